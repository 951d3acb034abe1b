"""The model of chapter 5: its latencies from first principles, and that free acknowledgements change nothing."""

from __future__ import annotations

import msgspec
import pytest

from antiphon.simulator.scenario.run import timed
from antiphon.simulator.scenario.workload import plan
from antiphon_lab.experiments.vcube.broadcasts import (
    MANY_TREES,
    ONE_TREE,
    SRPT,
    VCUBE_PS,
    WINDOW_TICKS,
    BroadcastCase,
    hop_ticks,
    latency_of,
    root_of,
    scenario_of,
    simulate,
)

TREES = (MANY_TREES, ONE_TREE)


def lonely_latencies(node: int, dimension: int, propagation: int, largest_first: bool, now: int = 0) -> dict[int, int]:
    """When a node that owns a subcube and all below it have a publication, if nothing else is on its way."""
    found = {node: now}
    clusters = range(dimension, 0, -1) if largest_first else range(1, dimension + 1)
    for place, cluster in enumerate(clusters, 1):
        child = node ^ (1 << (cluster - 1))
        found |= lonely_latencies(child, cluster - 1, propagation, largest_first, now + place + propagation + 1)
    return found


@pytest.mark.parametrize("largest_first", [False, True])
@pytest.mark.parametrize("propagation", [100, 1000])
def test_one_publisher_alone(propagation: int, largest_first: bool) -> None:
    case = BroadcastCase(MANY_TREES, 64, 1, propagation, largest_first=largest_first)
    latencies = lonely_latencies(0, 6, propagation, largest_first)
    assert len(latencies) == 64
    assert latency_of(case, 1) == pytest.approx(sum(latencies.values()) / 63)
    assert simulate(case, 1).latency_maximum == max(latencies.values())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_one_publisher_alone_over_one_tree_takes_the_hop_to_the_root_more(seed: int) -> None:
    case = BroadcastCase(ONE_TREE, 64, 1, 100)
    (publication,) = plan(scenario_of(case, seed))
    root = root_of(case, seed)
    assert root not in (None, publication.node)
    assert hop_ticks(100) == 102
    latencies = lonely_latencies(root or 0, 6, 100, False, now=102)
    del latencies[publication.node]
    assert latency_of(case, seed) == pytest.approx(sum(latencies.values()) / 63)
    assert simulate(case, seed).latency_maximum == max(latencies.values())


@pytest.mark.parametrize("trees", TREES)
@pytest.mark.parametrize("percent", [25, 100])
def test_acknowledgements_free_of_charge_are_as_good_as_none(trees: str, percent: int) -> None:
    """The documents send them and do not charge them; leaving them out gives the same receptions."""
    none_sent = scenario_of(BroadcastCase(trees, 128, percent, 100), 3)
    free = msgspec.structs.replace(
        none_sent,
        protocol_options={**none_sent.protocol_options, "acknowledge": True},
        network=msgspec.structs.replace(none_sent.network, charge_control=False),
    )
    without, with_them = timed(none_sent, None, None), timed(free, None, None)
    assert with_them.sent > without.sent
    assert with_them.latency_mean == without.latency_mean
    assert with_them.latency_max == without.latency_max


def test_acknowledgements_that_are_charged_slow_receptions_down() -> None:
    assert latency_of(BroadcastCase(MANY_TREES, 256, 100, 100, acknowledged=True), 1) > latency_of(
        BroadcastCase(MANY_TREES, 256, 100, 100), 1
    )


@pytest.mark.parametrize(("percent", "expected"), [(25, 16), (100, 64)])
def test_the_share_of_publishers_and_the_window(percent: int, expected: int) -> None:
    planned = list(plan(scenario_of(BroadcastCase(MANY_TREES, 64, percent, 100), 2)))
    assert len({publication.node for publication in planned}) == len(planned) == expected
    assert all(0 <= publication.at <= WINDOW_TICKS for publication in planned)


def test_rivals_meet_the_same_publications() -> None:
    scenarios = [scenario_of(BroadcastCase(trees, 64, 25, 100), 2) for trees in TREES]
    assert list(plan(scenarios[0])) == list(plan(scenarios[1]))


def test_the_root_is_drawn_anew_for_every_seed() -> None:
    roots = {root_of(BroadcastCase(ONE_TREE, 64, 100, 100), seed) for seed in range(20)}
    assert len(roots) > 5
    assert root_of(BroadcastCase(MANY_TREES, 64, 100, 100), 1) is None
    assert scenario_of(BroadcastCase(ONE_TREE, 64, 100, 100), 1).protocol_options["root"] in range(64)


def test_a_case_says_what_it_is() -> None:
    assert str(BroadcastCase(SRPT, 8, 25, 100)) == "SRPT, 8 nodes, 25 % publish"
    assert str(BroadcastCase(MANY_TREES, 8, 100, 100, True, True)) == (
        "a tree per publisher, 8 nodes, 100 % publish, acknowledged, largest first"
    )


@pytest.mark.parametrize(("system", "plain"), [(VCUBE_PS, MANY_TREES), (SRPT, ONE_TREE)])
@pytest.mark.parametrize("percent", [25, 100])
def test_the_systems_receive_as_their_trees_do(system: str, plain: str, percent: int) -> None:
    """Every node publishes once, so that no copy waits for acknowledgements or for its causal past."""
    found, expected = (latency_of(BroadcastCase(trees, 128, percent, 100), 3) for trees in (system, plain))
    assert found == pytest.approx(expected, rel=0.01)


def test_the_published_protocol_runs_with_its_order_and_its_acknowledgements() -> None:
    case = BroadcastCase(VCUBE_PS, 64, 100, 100)
    engine = simulate(case, 1)
    assert scenario_of(case, 1).protocol == "vcube-ps-published"
    assert engine.sent == 2 * 64 * 63
    # Causal order holds some deliveries back; receptions do not wait for it.
    assert engine.latency_sum > engine.reception_ticks
    assert latency_of(BroadcastCase(VCUBE_PS, 64, 100, 100, acknowledged=True), 1) > latency_of(case, 1)
