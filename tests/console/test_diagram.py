"""The diagram says what happened: compared with a slow walk over the rows, and with a run whose story is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from antiphon.audit.evidence import read_evidence
from antiphon.console.diagram.run_index import DELIVER, MessageName, RunIndex, dense
from antiphon.console.diagram.slices import Stretch, absences, longest_waits, slice_of, totals
from antiphon.console.diagram.waits import WaitExplainer, about_message
from antiphon.console.diagram.words import DiagramWords
from tests.console.served import simulated

BUSY = """
name = "much at once"
seed = 5
fabric = "cube"
protocol = "broadcast"
order = "causal"
nodes = 8
trace = { level = "everything" }
network.delay = { law = "normal", mean = 60, deviation = 30 }
workload = { kind = "rate", mean_gap = 40, count = 60 }
"""


def run_of(trace: Path) -> RunIndex:
    evidence = read_evidence([trace])
    return RunIndex(evidence.table, dict(evidence.about))


@pytest.fixture(scope="module")
def run(overtaking: Path) -> RunIndex:
    return run_of(overtaking)


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> RunIndex:
    return run_of(simulated(BUSY, tmp_path_factory.mktemp("busy")))


def told(run: RunIndex, source: int, sequence: int, node: int) -> list[str]:
    message = run.number_of(MessageName(0, source, sequence))
    return [step.text for step in about_message(run, WaitExplainer(run), message, node)["steps"]]


def test_a_wait_is_told_with_its_cause(run: RunIndex) -> None:
    assert told(run, 1, 1, 2) == [
        "Node 2 held message 1 of node 1 for 104 ticks: it follows message 1 of node 0.",
        "Message 1 of node 0 was on a slow link: 163 ticks from node 0 to node 2, where 14 ticks is usual.",
    ]


def test_a_message_that_did_not_wait_is_told_so(run: RunIndex) -> None:
    assert told(run, 1, 1, 0)[0] == "Node 0 delivered message 1 of node 1 as soon as it arrived."
    assert told(run, 1, 1, 1) == ["Node 1 published message 1 of node 1 itself."]


def test_the_longest_waits_come_first(run: RunIndex) -> None:
    waits = longest_waits(run, 3)
    assert [(each["node"], each["source"], each["held"]) for each in waits] == [(3, 1, 132), (2, 1, 104)]


def walked(run: RunIndex) -> tuple[dict[int, set[int]], dict[int, int]]:
    """What each message follows, and where it began, by a walk over the rows in their order."""
    known: dict[int, set[int]] = {node: set() for node in run.nodes}
    past: dict[int, set[int]] = {}
    began: dict[int, int] = {}
    for row in range(len(run)):
        node, message = int(run.node[row]), int(run.message[row])
        if run.event[row] != DELIVER:
            continue
        if node == run.source[row]:
            past[message] = set(known[node])
            began[message] = row
        known[node] |= past[message] | {message}
    return past, began


def test_the_past_and_the_future_are_those_of_a_slow_walk(busy: RunIndex) -> None:
    past, began = walked(busy)
    explainer = WaitExplainer(busy)
    history = explainer.history(0)
    assert sum(map(len, past.values())) > 500
    for message in past:
        birth = busy.birth_of(message)
        until, begins = history.past(birth), history.future(message, birth)
        for other in past:
            publisher, row = int(busy.source[began[other]]), busy.birth_of(other)
            if other == message:
                continue
            assert (other in past[message]) == (row <= until.get(publisher, -1)), (message, other)
            assert (message in past[other]) == (row > begins.get(publisher, len(busy))), (message, other)


def test_each_wait_ends_with_what_the_message_follows(busy: RunIndex) -> None:
    past, _ = walked(busy)
    explainer = WaitExplainer(busy)
    waits = longest_waits(busy, 100)
    assert len(waits) > 20
    for wait in waits:
        delivery = wait["row"]
        steps = explainer.explain(delivery).steps
        assert len(steps) > 1
        first, second = steps[:2]
        cause = busy.number_of(MessageName(0, second.source, second.sequence))
        assert cause in past[int(busy.message[delivery])], first.text
        ended = [row for row in busy.rows_of(cause, DELIVER) if busy.node[row] == wait["node"]]
        assert busy.time[ended[0]] == wait["time"], first.text


def test_each_copy_meets_its_arrival(busy: RunIndex) -> None:
    copies = busy.copies
    assert np.all(copies.arrival >= 0)
    assert len(set(copies.arrival.tolist())) == len(copies.arrival)
    assert np.all(busy.time[copies.arrival] > busy.time[copies.send])
    assert np.array_equal(busy.message[copies.arrival], busy.message[copies.send])
    assert np.array_equal(busy.node[copies.arrival], busy.peer[copies.send])


def test_counts_add_up_to_the_rows(busy: RunIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = slice_of(busy, Stretch(busy.first_time, busy.last_time))
    assert exact["exact"]
    assert exact["event"].count(DELIVER) == totals(busy)["delivered"] == 480
    monkeypatch.setattr("antiphon.console.diagram.slices.ROWS_DRAWN", 100)
    counted = slice_of(busy, Stretch(busy.first_time, busy.last_time, bins=37))
    assert not counted["exact"]
    assert sum(counted["delivered"]) == 480
    assert max(counted["longest_wait"]) == longest_waits(busy, 1)[0]["held"]


def test_a_slice_has_what_is_under_way_and_nothing_else(busy: RunIndex) -> None:
    middle = (busy.first_time + busy.last_time) // 2
    found = slice_of(busy, Stretch(middle, middle + 50, 2, 5))
    assert set(found["lane"]) <= {2, 3, 4}
    assert all(middle <= time <= middle + 50 for time in found["time"])
    arrows = found["arrows"]
    assert arrows["message"]
    assert all(time <= middle + 50 for time in arrows["from_time"])
    assert all(time >= middle for time in arrows["to_time"])


def test_a_node_that_is_down_is_shown_so(tmp_path: Path) -> None:
    text = BUSY.replace('order = "causal"', 'order = "none"') + (
        'fault = [{ kind = "crash", node = 3, at = 100, detected_after = 50 }, '
        '{ kind = "restart", node = 3, at = 900 }, { kind = "crash", node = 5, at = 1000 }]\n'
    )
    assert absences(run_of(simulated(text, tmp_path))) == [(3, 100, 900, "down"), (5, 1000, None, "down")]


def test_a_lost_copy_is_told(tmp_path: Path) -> None:
    run = run_of(simulated(BUSY + "network.loss = 0.02\n", tmp_path))
    lost = np.flatnonzero(run.copies.is_lost & run.copies.carries)
    assert len(lost) > 3
    row = int(run.copies.arrival[lost[0]])
    texts = [step.text for step in about_message(run, WaitExplainer(run), int(run.message[row]), None)["steps"]]
    assert texts


CUT = """
fault = [{ kind = "partition", at = 100, groups = [[0], [1, 3], [2]], linked = "chain" }]
"""
"""The link between nodes 0 and 2 is cut while the question is on its way."""


def test_a_wait_without_an_end_is_told(tmp_path: Path) -> None:
    from tests.console.served import OVERTAKING

    run = run_of(simulated(OVERTAKING + CUT, tmp_path))
    rows, until = run.waiting
    assert {(int(run.node[row]), int(run.source[row])) for row in rows} >= {(2, 1), (3, 1)}
    assert set(until.tolist()) == {run.last_time}
    message = run.number_of(MessageName(0, 1, 1))
    found = about_message(run, WaitExplainer(run), message, 2)
    texts = [step.text for step in found["steps"]]
    assert texts[0].startswith("Node 2 had message 1 of node 1 for ")
    assert texts[0].endswith("and never delivered it: it follows message 1 of node 0, which was not delivered there.")
    assert texts[1] == ("Message 1 of node 0 never arrived at node 2: the copy from node 0 was dropped (partition).")
    shown = slice_of(run, Stretch(run.first_time, run.last_time))["waiting"]
    assert len(shown["time"]) == len(rows)


def test_a_run_in_which_all_is_delivered_has_no_wait_without_an_end(busy: RunIndex) -> None:
    assert len(busy.waiting[0]) == 0


def live(rows: list[tuple[int, str, int, int, int]]) -> RunIndex:
    """A trace as live nodes write it: no copies, microseconds, and numbers that begin with the life of the node."""
    import pyarrow as pa

    table = pa.table({
        "time": [row[0] for row in rows],
        "event": [row[1] for row in rows],
        "node": [row[2] for row in rows],
        "source": [row[3] for row in rows],
        "sequence": [(1 << 32) + row[4] for row in rows],
        "topic": [1_500_000_000] * len(rows),
        "order": ["causal"] * len(rows),
    })  # fmt: skip
    return RunIndex(table, {"unit": "microseconds", "topics": {"1500000000": "room"}})


def test_a_live_trace_shows_what_was_released_together() -> None:
    run = live([
        (1_000_000, "deliver", 0, 0, 1),
        (1_002_000, "deliver", 1, 0, 1),
        (1_003_000, "deliver", 1, 1, 1),
        (1_004_000, "deliver", 0, 1, 1),
        (1_150_000, "deliver", 2, 0, 1),
        (1_150_100, "deliver", 2, 1, 1),
    ])  # fmt: skip
    message = run.number_of(MessageName(1_500_000_000, 1, (1 << 32) + 1))
    found: dict[str, Any] = about_message(run, WaitExplainer(run), message, 2)
    assert [step.text for step in found["steps"]] == [
        "Node 2 delivered message 1 of node 1 147 ms after it was published, at once behind message 1 of node 0, which "
        "it follows: it probably waited for that one.",
        "Node 2 delivered message 1 of node 0 150 ms after it was published.",
    ]


@pytest.mark.parametrize(
    ("ticks", "words"), [(1, "1 µs"), (1_500, "1.5 ms"), (147_100, "147 ms"), (1_234_567, "1.23 s")]
)
def test_live_times_are_said_in_units_of_people(ticks: int, words: str) -> None:
    assert DiagramWords({"unit": "microseconds"}).duration(ticks) == words
    assert DiagramWords({}).duration(ticks) == f"{ticks:,} tick{'s' if ticks > 1 else ''}"


@pytest.mark.parametrize("values", [[5, 3, 5, 9], [1 << 40, 3, 1 << 50], [7], []])
def test_values_are_numbered_in_their_order(values: list[int]) -> None:
    places, count = dense(np.array(values, np.int64))
    used = sorted(set(values))
    assert places.tolist() == [used.index(value) for value in values]
    assert count == max(1, len(used))
