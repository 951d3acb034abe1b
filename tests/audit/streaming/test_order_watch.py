"""The judge of live topics finds what is planted, nothing where there is nothing, and goes on where it was."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.audit.streaming.order_watch import OrderWatch, Row, Violation, kept_of, watch_from
from antiphon.kernel.message import CAUSAL, FIFO, NONE, TOTAL

# Node n has the log 10 + n.
Delivery = tuple[int, int]


def rows(log: int, *deliveries: Delivery, order: int = CAUSAL, keys: tuple[bytes, ...] = ()) -> list[Row]:
    return [Row(log, place, *each, order, keys) for place, each in enumerate(deliveries)]


def judge(*lanes: list[Row]) -> list[Violation]:
    logs = sorted({row.log for lane in lanes for row in lane})
    watch = OrderWatch(own={log - 10: log for log in logs}, logs=logs)
    return watch.judge(row for lane in lanes for row in lane)


def kinds(found: list[Violation]) -> list[str]:
    return [each.kind for each in found]


QUESTION, ANSWER = (0, 1), (1, 1)


def test_an_answer_before_its_question_is_found() -> None:
    clean = [rows(10, QUESTION, ANSWER), rows(11, QUESTION, ANSWER), rows(12, QUESTION, ANSWER)]
    assert judge(*clean) == []
    [found] = judge(*clean[:2], rows(12, ANSWER, QUESTION))
    assert (found.kind, found.log, found.offset) == ("causal", 12, 1)
    assert found.text == "publication 1 of node 0 at offset 1 of log 12: delivered after 1 of node 1, which follows it"


def test_what_nobody_follows_may_come_in_any_order() -> None:
    assert judge(rows(10, QUESTION, ANSWER), rows(11, ANSWER, QUESTION), rows(12, ANSWER, QUESTION)) == []


def test_what_is_followed_through_others_is_found() -> None:
    """Node 2 comments on the answer and has not seen the question."""
    comment = (2, 1)
    lanes = [rows(10, QUESTION, ANSWER, comment), rows(11, QUESTION, ANSWER, comment), rows(12, ANSWER, comment)]
    assert judge(*lanes) == []
    assert kinds(judge(*lanes, rows(13, comment, QUESTION))) == ["causal"]


def test_the_orders_of_publications_are_told_apart() -> None:
    def third(order: int) -> list[Violation]:
        answers = [row._replace(order=order) if row[2:4] == ANSWER else row for row in rows(11, QUESTION, ANSWER)]
        late = [row._replace(order=order) if row[2:4] == ANSWER else row for row in rows(12, ANSWER, QUESTION)]
        return judge(rows(10, QUESTION), answers, late)

    assert kinds(third(CAUSAL)) == ["causal"]
    assert kinds(third(FIFO)) == kinds(third(NONE)) == []


@pytest.mark.parametrize(("order", "expected"), [(FIFO, ["fifo"]), (CAUSAL, ["fifo"]), (NONE, [])])
def test_the_order_of_one_publisher(order: int, expected: list[str]) -> None:
    assert kinds(judge(rows(12, (0, 2), (0, 1), order=order))) == expected


def test_duplicates_are_found_in_any_order() -> None:
    assert kinds(judge(rows(12, (0, 1), (0, 3), (0, 2), (0, 3), (0, 1), order=NONE))) == ["duplicates", "duplicates"]


def test_total_order_is_one_order_per_key() -> None:
    one, other = (0, 1), (1, 1)
    for keys in ((), (b"k",)):
        ahead, behind = (rows(12, *each, order=TOTAL, keys=keys) for each in ((one, other), (other, one)))
        assert judge(ahead, [row._replace(log=13) for row in ahead]) == []
        [found] = judge(ahead, [row._replace(log=13) for row in behind])
        assert found.kind == "total"
    apart = [
        [Row(12, 0, *one, TOTAL, (b"a",)), Row(12, 1, *other, TOTAL, (b"b",))],
        [Row(13, 0, *other, TOTAL, (b"b",)), Row(13, 1, *one, TOTAL, (b"a",))],
    ]
    assert judge(*apart) == []
    # Holes make no violation, and what comes between them has its place.
    assert judge(
        rows(12, (0, 1), (2, 1), order=TOTAL), rows(13, (1, 1), (2, 1), order=TOTAL),
        rows(14, (0, 1), (1, 1), (2, 1), order=TOTAL), rows(15, (0, 1), (1, 1), (2, 1), order=TOTAL),
    ) == []  # fmt: skip


def history(random: Random, nodes: int, count: int) -> dict[int, list[Row]]:
    """Logs of nodes that publish in turn and deliver everything in causal order, as late as they like."""
    logs: list[list[Delivery]] = [[] for _ in range(nodes)]
    follows: dict[Delivery, set[Delivery]] = {}
    numbers = [0] * nodes
    while len(follows) < count or any(len(log) < count for log in logs):
        node = random.randrange(nodes)
        ready = [each for each in follows if each not in logs[node] and follows[each] <= set(logs[node])]
        if ready and (random.random() < 0.7 or len(follows) == count):
            logs[node].append(random.choice(ready))
        elif len(follows) < count:
            numbers[node] += 1
            follows[node, numbers[node]] = set(logs[node])
            logs[node].append((node, numbers[node]))
    return {10 + node: rows(10 + node, *log) for node, log in enumerate(logs)}


@given(st.integers(0, 10_000), st.integers(1, 12))
def test_nothing_is_found_in_causal_histories_however_they_are_read(seed: int, piece: int) -> None:
    random = Random(seed)
    logs = history(random, 3, 20)
    watch = OrderWatch(own={0: 10, 1: 11, 2: 12}, logs=sorted(logs))
    left = {log: list(lane) for log, lane in logs.items()}
    while any(left.values()):
        some = [row for log in left for row in left[log][: random.randrange(piece + 1)]]
        for row in some:
            left[row.log].remove(row)
        assert watch.judge(some) == []
        watch = watch_from(kept_of(watch), {}, ())
    for _ in range(10):
        watch.judge([])
    assert watch.judged == 60


@given(st.integers(0, 10_000))
def test_a_delivery_that_is_moved_before_what_it_follows_is_found(seed: int) -> None:
    random = Random(seed)
    logs = history(random, 3, 12)
    lane = [row[2:4] for row in logs[12]]
    # The last publication of node 0 follows the first of node 1 if node 0 had that before; then they are exchanged.
    later = max(row[2:4] for row in logs[10] if row.publisher == 0) if any(r.publisher == 0 for r in logs[10]) else None
    own = [row[2:4] for row in logs[10]]
    before = [each for each in own[: own.index(later)] if each[0] == 1] if later is not None else []
    if not before or later is None:
        return
    lane.remove(before[0])
    lane.insert(lane.index(later) + 1, before[0])
    logs[12] = rows(12, *lane)
    watch = OrderWatch(own={0: 10, 1: 11}, logs=sorted(logs))
    found = watch.judge(row for lane in logs.values() for row in lane)
    assert any((each.log, each.publisher, each.sequence) == (12, *before[0]) for each in found), found


def test_a_start_that_never_comes_is_not_waited_for_for_ever() -> None:
    watch = OrderWatch(own={0: 10, 1: 11}, logs=[10, 11])
    assert watch.judge([Row(11, 0, 0, 7, CAUSAL)]) == []
    for _ in range(10):
        watch.judge([])
    assert (watch.judged, watch.unknown_starts) == (1, 1)
