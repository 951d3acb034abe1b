"""Figure 3.1: what vectors and barriers carry, counted again from what was delivered when."""

from __future__ import annotations

import pytest

from antiphon.orders import CausalBarriers, CausalVectors
from antiphon_lab.experiments.vcube.causal_information import (
    FIG_3_1,
    Information,
    InformationCase,
    Sizes,
    broadcasting,
    cases,
    compare,
    measure,
    simulate,
)
from antiphon_lab.experiments.vcube.one_topic import TopicRun, draw_group
from antiphon_lab.reproduction.experiment import Plan, Results, Row

CASE = InformationCase(16, 60, 80)


def run_with(order: type[CausalVectors] | type[CausalBarriers], case: InformationCase = CASE) -> tuple[TopicRun, Sizes]:
    return simulate(case, draw_group(case.nodes, case.nodes, 1), broadcasting(case.nodes, order), 1, charged=True)


def histories(run: TopicRun) -> dict[tuple[int, int], tuple[set[tuple[int, int]], set[tuple[int, int]]]]:
    """Per publication: what its source had delivered since its last publication, and all that happened before it."""
    since: dict[int, set[tuple[int, int]]] = {}
    past: dict[int, set[tuple[int, int]]] = {}
    before: dict[tuple[int, int], set[tuple[int, int]]] = {}
    found = {}
    for row in run.trace.table().to_pylist():
        if row["event"] != "deliver":
            continue
        node, publication = row["node"], (row["source"], row["sequence"])
        heard, known = since.setdefault(node, set()), past.setdefault(node, set())
        if node == row["source"]:
            before[publication] = set(known)
            found[publication] = (set(heard), set(known))
            heard.clear()
        else:
            heard.add(publication)
            known |= before[publication]
        known.add(publication)
    return found


def test_a_compressed_vector_has_an_entry_for_each_source_heard_since_the_last_publication() -> None:
    run, sizes = run_with(CausalVectors)
    expected = {publication: len({source for source, _ in heard}) for publication, (heard, _) in histories(run).items()}
    assert sizes.of == expected
    assert len(expected) == CASE.publications


def test_a_barrier_has_an_entry_for_each_immediate_predecessor_of_another_source() -> None:
    """Thesis, section 2.2.3: m is an immediate predecessor if nothing lies between it and the message."""
    run, sizes = run_with(CausalBarriers)
    before = {publication: known for publication, (_, known) in histories(run).items()}
    for publication, known in before.items():
        immediate = {one for one in known if not any(one in before[other] for other in known)}
        assert sizes.of[publication] == len({source for source, _ in immediate if source != publication[0]})


def test_a_case_is_run_with_both_orders_and_judged() -> None:
    found = measure(CASE, 1)
    assert found.violations == 0
    assert 0 < found.barrier < found.vector
    assert found.most_indirect >= found.vector - found.barrier
    assert found.repaired == pytest.approx(found.barrier, rel=0.2)


def test_barriers_follow_the_rate_and_vectors_the_number_of_publications() -> None:
    slow, fast, long = (
        measure(case, 1)
        for case in (InformationCase(256), InformationCase(256, 20), InformationCase(256, publications=300))
    )
    assert fast.barrier > 1.5 * slow.barrier
    assert long.vector > 1.5 * slow.vector
    assert long.barrier == pytest.approx(slow.barrier, rel=0.25)


@pytest.mark.campaign
def test_the_published_numbers_at_their_size() -> None:
    report = FIG_3_1.run(Plan((1024,), 3, 3), 1, lambda _: None)
    assert [(row.label, row.verdict) for row in report.rows if row.published is not None] == [
        ("compressed vector, 1024 nodes", "fitted"),
        ("causal barrier, 1024 nodes", "reproduced"),
        ("most indirect predecessors in one vector, 1024 nodes", "refuted"),
        ("violations found by the oracle in all runs", "derived"),
    ]
    assert "more than 41 indirect ones on average" in report.notes[0]


def test_other_sizes_are_not_compared() -> None:
    report = FIG_3_1.run(FIG_3_1.plan(False, 16, 1), 1, lambda _: None)
    assert {row.verdict for row in report.rows} == {None, "derived"}
    assert "nothing is compared" in report.notes[0]


def test_verdicts_follow_the_numbers() -> None:
    plan = Plan((1024,), 1, 1)
    results: Results[InformationCase, Information] = Results()
    for case in cases(plan):
        for _ in range(3):
            results.add(case, Information(vector=60.0, barrier=6.5, most_indirect=35.0, repaired=6.5, violations=0))
    verdicts = [row.verdict for row in compare(plan, results) if isinstance(row, Row) and row.published is not None]
    assert verdicts == ["differs", "differs", "differs", "derived"]
