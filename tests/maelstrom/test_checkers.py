"""The checkers, by histories that were written by hand: each kind of violation is found, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.maelstrom.history import History, Outcome, PartitionSpan
from antiphon.maelstrom.kafka_checker import check_kafka
from antiphon.maelstrom.nemesis import PARTITIONS
from antiphon.maelstrom.set_checker import check_set, quantiles

MS = 1000


def done(
    history: History,
    begin_ms: int,
    end_ms: int,
    name: str,
    value: Any,
    outcome: Outcome = "ok",
    client: int = 0,
    **more: Any,
) -> None:
    """An operation that began, and ended before the next one begins."""
    begun = history.begin(
        begin_ms * MS, client, f"n{client}", name, more.get("asked", value), more.get("is_final", False)
    )
    history.end(begun, end_ms * MS, outcome, value)


# Sets.


def test_a_value_is_stable_from_the_last_read_that_lacks_it() -> None:
    history = History()
    done(history, 0, 10, "add", 1)
    done(history, 20, 21, "read", [1])
    done(history, 60, 62, "read", [])
    done(history, 90, 91, "read", [1])
    found = check_set(history.events, "add")
    assert (found.is_valid, found.stable, found.stale, found.lost) == (True, 1, 1, [])
    # From when it was acknowledged to when the read began that did not show it.
    assert found.stable_latencies_ms == {"0": 50, "0.5": 50, "0.95": 50, "0.99": 50, "1": 50}


def test_a_read_that_shows_a_value_before_it_is_acknowledged_makes_it_known() -> None:
    history = History()
    begun = history.begin(0, 0, "n0", "add", 1)
    done(history, 5, 10, "read", [1], client=1)
    done(history, 30, 31, "read", [], client=2)
    history.end(begun, 40 * MS, "ok", 1)
    done(history, 50, 51, "read", [1])
    assert check_set(history.events, "add").stable_latencies_ms["1"] == 20


def test_an_acknowledged_value_that_the_last_read_lacks_is_lost() -> None:
    history = History()
    done(history, 0, 10, "add", 1)
    done(history, 20, 21, "read", [1])
    done(history, 30, 31, "read", [])
    found = check_set(history.events, "add")
    assert (found.is_valid, found.lost, found.stable) == (False, [1], 0)


@pytest.mark.parametrize("outcome", ["fail", "info"])
def test_a_value_of_which_nobody_knows_may_be_missing(outcome: Outcome) -> None:
    history = History()
    done(history, 0, 10, "add", 1, outcome)
    done(history, 0, 10, "add", 2)
    done(history, 20, 21, "read", [2])
    found = check_set(history.events, "add")
    assert (found.is_valid, found.never_read, found.acknowledged, found.attempts) == (True, 1, 1, 2)


def test_a_read_that_began_before_the_acknowledgement_proves_no_loss() -> None:
    history = History()
    adding = history.begin(0, 0, "n0", "add", 1)
    reading = history.begin(1, 1, "n1", "read", None)
    history.end(adding, 2, "ok", 1)
    history.end(reading, 3, "ok", [])
    assert check_set(history.events, "add").lost == []


def test_a_read_shows_each_value_once_and_only_what_was_added() -> None:
    history = History()
    done(history, 0, 1, "add", 1)
    done(history, 2, 3, "read", [1, 1, 7])
    found = check_set(history.events, "add")
    assert (found.is_valid, found.doubled, found.invented) == (False, [1], [7])


def test_values_that_met_a_partition_are_counted_from_its_end() -> None:
    history = History()
    history.cuts.append(PartitionSpan(kind="one", begin_us=100 * MS, end_us=1000 * MS))
    done(history, 0, 1, "add", "before")
    done(history, 50, 51, "read", [])
    done(history, 60, 61, "read", ["before"])
    done(history, 200, 201, "add", "during")
    done(history, 1201, 1202, "read", ["before"])
    done(history, 1300, 1301, "add", "after")
    done(history, 1351, 1352, "read", ["before", "during"])
    done(history, 1400, 1401, "read", ["before", "during", "after"])
    found = check_set(history.events, "add", history.cuts)
    assert found.calm_latencies_ms == quantiles([49, 50])
    assert found.caught_latencies_ms == quantiles([201])
    assert found.stable_latencies_ms["1"] == 1000


def test_quantiles_are_taken_as_jepsen_takes_them() -> None:
    assert quantiles(range(100)) == {"0": 0, "0.5": 50, "0.95": 95, "0.99": 99, "1": 99}
    assert quantiles([]) == {}


# Logs.


def poll(messages: dict[str, list[list[Any]]], **asked: int) -> dict[str, Any]:
    return {"from": asked or dict.fromkeys(messages, 0), "messages": messages, "commits": {}}


def sent(offset: int, message: int, key: str = "k") -> dict[str, Any]:
    return {"key": key, "message": message, "offset": offset}


def good() -> History:
    history = History()
    for offset in range(3):
        done(history, offset, offset, "send", sent(offset, offset))
    return history


def test_a_log_that_all_see_alike_is_fine() -> None:
    history = good()
    done(history, 5, 6, "poll", poll({"k": [[0, 0], [1, 1]]}), client=1)
    done(history, 7, 8, "poll", poll({"k": [[2, 2]]}, k=2), client=1)
    done(history, 9, 9, "poll", poll({"k": [[0, 0], [1, 1], [2, 2]]}), client=2, is_final=True)
    found = check_kafka(history.events)
    assert (found.is_valid, found.acknowledged, found.polled, found.examples) == (True, 3, 6, {})


@pytest.mark.parametrize(
    ("kind", "operations"),
    [
        ("divergent", [("send", sent(2, 9))]),
        ("divergent", [("poll", poll({"k": [[0, 1], [1, 0]]}))]),
        ("lost", [("poll", poll({"k": [[0, 0], [2, 2]]}))]),
        ("lost", [("poll", poll({"k": [[2, 2]]}, k=1))]),
        ("nonmonotonic", [("poll", poll({"k": [[1, 1], [0, 0], [2, 2]]}))]),
        ("nonmonotonic", [("poll", poll({"k": [[0, 0], [1, 1]]})), ("poll", poll({"k": [[1, 1]]}, k=1))]),
        ("nonmonotonic", [("send", sent(5, 5)), ("send", sent(4, 4))]),
        ("unasked", [("poll", poll({"k": [[1, 1], [2, 2]]}, k=2))]),
        ("invented", [("poll", poll({"k": [[0, 0], [1, 1], [2, 2], [3, 77]]}))]),
        ("committed", [("assign", {"keys": ["k"], "listed": {"k": 1}})]),
        (
            "committed",
            [
                ("poll", {**poll({"k": [[0, 0], [1, 1]]}), "commits": {"k": 1}}),
                ("assign", {"keys": ["k"], "listed": {"k": 0}}),
            ],
        ),
    ],
)
def test_each_kind_of_violation_is_found(kind: str, operations: list[tuple[str, dict[str, Any]]]) -> None:
    history = good()
    for number, (name, value) in enumerate(operations):
        done(history, 10 + number, 10 + number, name, value, client=1)
    found = check_kafka(history.events)
    assert not found.is_valid
    assert found.violations[kind] > 0
    assert found.examples[kind]


def test_what_final_polls_do_not_show_is_lost() -> None:
    history = good()
    done(history, 9, 9, "poll", poll({"k": [[0, 0], [1, 1]]}), client=2, is_final=True)
    assert check_kafka(history.events).examples == {"lost": ["client 2 never sees k:[2]"]}


def test_a_client_that_is_assigned_anew_may_be_shown_what_it_was_shown() -> None:
    history = good()
    done(history, 5, 6, "poll", poll({"k": [[0, 0], [1, 1]]}), client=1)
    done(history, 7, 7, "assign", {"keys": ["k"], "listed": {}}, client=1)
    done(history, 8, 8, "poll", poll({"k": [[0, 0]]}), client=1)
    assert check_kafka(history.events).is_valid


# Partitions.


@pytest.mark.parametrize("count", [1, 2, 3, 5, 25])
@pytest.mark.parametrize("kind", PARTITIONS)
def test_partitions_are_the_same_in_both_directions_and_leave_nobody_without_itself(kind: str, count: int) -> None:
    from random import Random

    names = [f"n{number}" for number in range(count)]
    cuts = PARTITIONS[kind](names, Random(1))
    for node, deaf_to in cuts.items():
        assert node not in deaf_to
        assert all(node in cuts[other] for other in deaf_to)
    heard = [frozenset(names) - cuts.get(node, frozenset()) for node in names]
    if kind == "majorities-ring":
        assert all(len(nodes) > count / 2 for nodes in heard)
        assert count < 5 or len(set(heard)) == count
    elif kind == "one" and count > 1:
        assert sorted(map(len, heard)) == [1] + [count - 1] * (count - 1)
