"""Where sessions are loose, ordered publications may overtake only total and unordered ones of their publisher."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from antiphon.audit.promises import needs_memory
from antiphon.audit.verdict import judge_trace
from antiphon.trace.contract import COMPLETENESS, FINISHED, PROMISED, TOTAL_ORDER, Contract

STRICT = Contract("tree", "broker-tree", 3, everybody=True, always=("duplicates", "validity", "fifo", "causal"))
LOOSE = Contract("tree", "broker-tree", 3, everybody=True, always=STRICT.always, loose_sessions=True)

TOTAL, CAUSAL, FIFO, ANSWER = (0, 1), (0, 2), (0, 3), (1, 1)
ORDERS = {TOTAL: TOTAL_ORDER, CAUSAL: "causal", FIFO: "fifo", ANSWER: "causal"}


def broken(contract: Contract, *deliveries: tuple[int, tuple[int, int]]) -> dict[str, int]:
    """Node 0 publishes a total, a causal and a fifo publication, then everybody delivers; node 1 answers the second."""
    rows = [("publish", 0, name) for name in (TOTAL, CAUSAL, FIFO)]
    rows += [("publish" if event == "ask" else event, node, name) for event, node, name in expanded(deliveries)]
    table = pa.table({
        "event": [event for event, _, _ in rows],
        "node": [node for _, node, _ in rows],
        "source": [source for _, _, (source, _) in rows],
        "sequence": [sequence for _, _, (_, sequence) in rows],
        "topic": [0] * len(rows),
        "order": [ORDERS[name] for _, _, name in rows],
    })  # fmt: skip
    verdict = judge_trace(table, contract, FINISHED)
    return {kind: count for kind, count in verdict.counts.items() if count and kind in verdict.checks}


def expanded(deliveries: tuple[tuple[int, tuple[int, int]], ...]) -> list[tuple[str, int, tuple[int, int]]]:
    """Deliveries; a publication of node 1 is asked for before node 1 delivers it."""
    found = []
    for node, name in deliveries:
        if name == ANSWER and node == 1:
            found.append(("ask", node, name))
        found.append(("deliver", node, name))
    return found


OVERTAKEN = [(node, name) for node in (0, 1, 2) for name in (CAUSAL, FIFO, TOTAL)]


def test_what_overtakes_a_total_publication_is_wrong_only_where_sessions_are_strict() -> None:
    assert broken(STRICT, *OVERTAKEN) == {"fifo": 3}
    assert broken(LOOSE, *OVERTAKEN) == {}


@pytest.mark.parametrize(
    ("at_2", "wrong"),
    [
        ([CAUSAL, ANSWER, TOTAL, FIFO], {}),
        ([CAUSAL, TOTAL, ANSWER, FIFO], {}),
        ([FIFO, CAUSAL, TOTAL, ANSWER], {"fifo": 1}),
        ([ANSWER, CAUSAL, FIFO, TOTAL], {"causal": 1}),
        ([CAUSAL, CAUSAL, FIFO, TOTAL, ANSWER], {"duplicates": 1}),
    ],
)
def test_the_others_keep_their_order(at_2: list[tuple[int, int]], wrong: dict[str, int]) -> None:
    before = [(0, CAUSAL), (0, FIFO), (0, TOTAL), (1, CAUSAL), (1, ANSWER), (1, FIFO), (1, TOTAL), (0, ANSWER)]
    assert broken(LOOSE, *before, *((2, name) for name in at_2)) == wrong


def test_a_total_publication_may_be_lost_with_its_publisher_though_a_later_one_is_known() -> None:
    """Where sessions are strict the later one shows that others must have the earlier one."""
    rows = [("publish", 0, TOTAL), ("publish", 0, CAUSAL), *(("deliver", node, CAUSAL) for node in (0, 1, 2))]
    table = pa.table({
        "event": [event for event, _, _ in rows] + ["crash"],
        "node": [node for _, node, _ in rows] + [0],
        "source": [source for _, _, (source, _) in rows] + [0],
        "sequence": [sequence for _, _, (_, sequence) in rows] + [0],
        "topic": [0] * len(rows) + [0],
        "order": [ORDERS[name] for _, _, name in rows] + [None],
    })  # fmt: skip
    found = {}
    for contract in (STRICT, LOOSE):
        verdict = judge_trace(table, replace(contract, always=(), at_end=(COMPLETENESS,)), FINISHED)
        found[contract.loose_sessions] = verdict.counts[COMPLETENESS]
    assert found == {False: 2, True: 0}


def test_only_the_judge_in_memory_judges_loose_sessions() -> None:
    assert needs_memory({PROMISED: LOOSE.as_metadata()})
    assert not needs_memory({PROMISED: STRICT.as_metadata()})
