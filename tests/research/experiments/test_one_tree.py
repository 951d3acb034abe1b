"""Figure 2.9: the size at which a single root begins to queue."""

from __future__ import annotations

import pytest

from antiphon_lab.experiments.vcube.broadcasts import BroadcastCase
from antiphon_lab.experiments.vcube.one_tree import FIG_2_9, case_of, compare, largest_without_queue, systems_of
from antiphon_lab.reproduction.experiment import Plan, Report, Results, Row


def report_of(node_limit: int) -> Report:
    return FIG_2_9.run(FIG_2_9.plan(False, node_limit, 3), 1, lambda _: None)


def test_the_single_root_keeps_up_with_128_nodes_and_not_with_256() -> None:
    report = report_of(256)
    (first, *rest) = report.rows
    assert (first.measured.values, first.verdict) == ((128, 128, 128), "reproduced")
    assert all(row.published is None for row in rest)
    latency = {row.label: row.measured.mean for row in rest}
    assert len(latency) == len(rest) == 6 * 4
    assert latency["latency, one tree, 256 nodes"] > 2 * latency["latency, many trees, 256 nodes"]
    assert latency["latency, one tree, 128 nodes"] < 1.5 * latency["latency, many trees, 128 nodes"]
    assert "896 for 128 nodes, 2048 for 256" in report.notes[0]


@pytest.mark.parametrize("nodes", [8, 64, 256])
def test_the_largest_subtree_first_is_better_at_every_size(nodes: int) -> None:
    latency = {row.label: row.measured.mean for row in report_of(nodes).rows}
    for trees in ("many trees", "one tree"):
        label = f"latency, {trees}, {nodes} nodes"
        assert latency[f"{label}, largest first"] < latency[label]


def test_too_few_nodes_to_see_it_is_said() -> None:
    report = report_of(64)
    assert all(row.verdict is None for row in report.rows)
    assert report.notes[0] == "The root begins to queue above 128 nodes, more than were simulated."


def test_a_root_that_queues_too_early_or_too_late_differs() -> None:
    plan = Plan((64, 128, 256), repetitions=3, large_repetitions=3)
    for latencies, largest in (((400, 620, 1000), 64), ((400, 480, 620), 256), ((700, 800, 900), 0)):
        results: Results[BroadcastCase, float] = Results()
        for nodes, one in zip(plan.sizes, latencies, strict=True):
            for largest_first in (False, True):
                several, single = systems_of(largest_first)
                for _ in range(3):
                    results.add(case_of(single, nodes, largest_first), float(one))
                    results.add(case_of(several, nodes, largest_first), 420.0 if nodes == 256 else 300.0)
        assert largest_without_queue(plan, results).values == (largest,) * 3
        first = next(compare(plan, results))
        assert isinstance(first, Row)
        assert first.verdict == "differs"
