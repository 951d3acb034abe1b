"""The experiments on the rivals of BRISA: what runs must give whatever is published (thesis, section 4.3.5)."""

from __future__ import annotations

import numpy as np
import pytest
from librt.vecs import vec
from mypy_extensions import i64

from antiphon_lab.experiments.brisa.hops import CLUSTER, HEADER_BYTES, NODE_BYTES, NUMBER_BYTES, PLANETLAB
from antiphon_lab.experiments.brisa.model import Growth, published
from antiphon_lab.experiments.brisa.rivals import (
    BRISA,
    PLUMTREE,
    SIMPLE_GOSSIP,
    SIMPLE_TREE,
    SYSTEMS,
    TAG,
    Rival,
    RivalRun,
    rival_size_of,
)
from antiphon_lab.experiments.brisa.rivals_figures import (
    ReceptionCost,
    measure_construction,
    measure_cost,
    payload_share,
)
from antiphon_lab.experiments.brisa.rivals_hosts import Host, HostCase
from antiphon_lab.experiments.brisa.rivals_hosts import measure as measure_hosts
from antiphon_lab.experiments.brisa.rivals_recovery import Recovery, RecoveryCase, pooled
from antiphon_lab.experiments.brisa.rivals_recovery import measure as measure_recovery
from antiphon_lab.protocols.gossip.pulling import Pull
from antiphon_lab.reproduction.experiment import Results
from antiphon_lab.reproduction.registry import find

NODES, MESSAGES = 40, 12


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_delivers_everything_to_everybody(system: str) -> None:
    case = Rival(NODES, MESSAGES, system=system)
    run = RivalRun(case, Growth(case, 1))
    run.run()
    assert run.missing() == 0


def test_trees_carry_one_copy_and_rumours_as_many_as_the_fanout() -> None:
    """Figure 4.17: what is behind the bandwidth of large messages."""
    costs = {system: measure_cost(Rival(NODES, MESSAGES, system=system), 2) for system in SYSTEMS}
    others = (NODES - 1) / NODES
    for system in (SIMPLE_TREE, BRISA):
        assert costs[system].copies == pytest.approx(others)
    assert 3 < costs[SIMPLE_GOSSIP].copies <= 4.2
    assert costs[SIMPLE_TREE].management_bytes < costs[BRISA].management_bytes < costs[PLUMTREE].management_bytes


def test_payload_is_added_to_what_a_run_costs_without() -> None:
    cost = ReceptionCost(stabilising_bytes=1000, streaming_bytes=3000, copies=2, counted=10, missing=0)
    assert cost.megabytes(0) == pytest.approx(0.004)
    assert cost.megabytes(1) == pytest.approx(0.024)
    assert payload_share(cost, 1) == pytest.approx(100 * 20 / 24)


def test_a_question_weighs_what_it_names() -> None:
    pull = Pull(1, 0, vec[i64]([5, 6, 7]), 1, False, 0)
    assert rival_size_of(pull) == HEADER_BYTES + NODE_BYTES + 3 * (NODE_BYTES + NUMBER_BYTES)


def test_walks_take_longer_where_hops_do() -> None:
    """Figure 4.18: TAG opens a connection at each step; BRISA waits for the copies of one flood."""
    medians = {}
    for system in (BRISA, TAG):
        for network in (CLUSTER, PLANETLAB):
            built = measure_construction(Rival(NODES, 6, network=network, system=system), 3)
            assert len(built.times_ms) >= NODES // 2
            medians[system, network] = float(np.median(built.times_ms))
    assert medians[TAG, PLANETLAB] > 2 * medians[BRISA, PLANETLAB]
    assert medians[TAG, PLANETLAB] > 3 * medians[TAG, CLUSTER]


def test_a_host_serves_two_messages_at_a_time_and_the_others_wait() -> None:
    host = Host(2.5)
    assert [host.done_at(10) for _ in range(4)] == [13, 13, 15, 15]
    assert host.done_at(100) == 103
    assert host.busy_ms == 12.5


def test_hosts_slow_down_who_sends_too_much() -> None:
    """Table 4.3: SimpleGossip falls behind on hosts that are too slow for it; a tree does not notice them."""
    slow = {}
    for system in (SIMPLE_GOSSIP, SIMPLE_TREE):
        found = measure_hosts(HostCase(NODES, MESSAGES, system=system, cost_ms=1.5), 1)
        assert found.missing == 0
        slow[system] = found
    ideal = (MESSAGES - 1) * 0.2
    assert slow[SIMPLE_TREE].seconds == pytest.approx(ideal, rel=0.02)
    assert slow[SIMPLE_GOSSIP].seconds > 1.1 * ideal
    assert slow[SIMPLE_GOSSIP].busy > 0.9 > 2 * slow[SIMPLE_TREE].busy


def test_one_message_for_each_question_doubles_the_time() -> None:
    """Table 4.3: TAG takes 200 s for a stream of 100 s."""
    found = measure_hosts(HostCase(NODES, MESSAGES, system=TAG, cost_ms=0), 1)
    assert found.seconds == pytest.approx((MESSAGES - 1) * 0.4, rel=0.05)


def test_published_overheads_are_those_of_the_published_seconds() -> None:
    """Table 4.3 gives both."""
    seconds, overheads = published().tables["table-4.3/latency"], published().tables["table-4.3/overhead"]
    base = seconds.number("latency", seconds.rows.index(SIMPLE_TREE)).value
    for row, system in enumerate(overheads.rows):
        taken = seconds.number("latency", seconds.rows.index(system)).value
        assert 100 * (taken / base - 1) == pytest.approx(overheads.number("overhead", row).value, abs=1)


def test_parents_are_found_again_while_processes_are_replaced() -> None:
    """Figure 4.19, with fewer messages: whoever stays gets everything of BRISA."""
    results: Results[RecoveryCase, Recovery] = Results()
    for system in (BRISA, TAG):
        case = RecoveryCase(32, 40, gap_ms=15_000, system=system, batch=4, share=12)
        found = measure_recovery(case, 1)
        results.add(case, found)
        assert found.soft > 0
        assert found.missing == 0
        assert pooled(results, case) == found


def test_how_often_a_list_breaks_can_be_counted() -> None:
    """Of 4 that fail together among 128, some pair of neighbours: 6 pairs, each in a row with probability 2 in 128."""
    case = RecoveryCase(128, 10)
    assert case.per_minute == 4
    assert case.expected_breaks == pytest.approx(10 * 6 * 2 / 128)


def test_the_experiments_are_found_by_name() -> None:
    names = ["brisa/fig-4.17", "brisa/fig-4.18", "brisa/table-4.3", "brisa/fig-4.19"]
    assert [experiment.name for experiment in find(names)] == names
