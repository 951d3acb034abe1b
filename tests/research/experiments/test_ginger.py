"""The experiments on the broker tree of Ginger: repairs, latency by faults and keys, cost without faults."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from antiphon.audit.oracle import judge
from antiphon.fabrics.tree.broker import TreeBroker
from antiphon.fabrics.tree.messages import DATA, Closed, CollectResponse, Item, Proposal
from antiphon.fabrics.tree.publisher import keys_of
from antiphon.fabrics.tree.topology import Overlay
from antiphon.kernel.message import NONE, Keyed
from antiphon.trace.store import MemoryTrace
from antiphon_lab.experiments.ginger import cost as ginger_cost
from antiphon_lab.experiments.ginger import latency as ginger_latency
from antiphon_lab.experiments.ginger.as_published import (
    AS_PRINTED,
    LOG_VII,
    LOG_VIII,
    REGIONAL,
    SHORT,
    PublishedCase,
)
from antiphon_lab.experiments.ginger.as_published import measure as measure_published
from antiphon_lab.experiments.ginger.bank_service import BankRun
from antiphon_lab.experiments.ginger.cost import CostCase, WeighingBroker, plain_broker, size_of
from antiphon_lab.experiments.ginger.latency import (
    FAULTS_AND_LATENCY,
    KEY_COUNTS,
    KEYS_AND_LATENCY,
    BankLatencies,
    case_of,
)
from antiphon_lab.experiments.ginger.model import (
    AS_PUBLISHED,
    BROKERS,
    CAUSAL,
    EVENTUAL,
    FAULTS,
    INTERVAL_MS,
    ORDERS,
    REGIONS,
    STRICT,
    TOTAL,
    BankCase,
    broken_promises,
    crashes_of,
    delays_ms,
)
from antiphon_lab.experiments.ginger.parents import ANCESTORS, BY_HOPS, NEAREST, WAYS, ParentsCase
from antiphon_lab.experiments.ginger.parents import measure as measure_parents
from antiphon_lab.experiments.ginger.reconfiguration import RECONFIGURATION, RepairCase, Repaired, measure
from antiphon_lab.experiments.ginger.repairs import NotingBroker, Repair, repairs_in
from antiphon_lab.reproduction.experiment import Results, Row
from antiphon_lab.reproduction.verdicts import DIFFERS, REFUTED, REPRODUCED

OPERATIONS = 100


def overlay_of(run: BankRun) -> Overlay:
    """The tree at the end, on which all agree."""
    brokers = [broker for broker in run.processes() if isinstance(broker, TreeBroker)]
    assert len({broker.view.overlay.epoch for broker in brokers}) == 1
    return brokers[0].view.overlay


def repaired(*faults: int) -> tuple[dict[int, Repair], BankRun]:
    """What each broker notes of a repair."""
    run = BankRun(BankCase(AS_PUBLISHED, faults, 100, OPERATIONS).setup(1), 1, None, NotingBroker)
    run.run()
    found = repairs_in(run)
    assert len({repair.broker for repair in found}) == len(found)
    return {repair.broker: repair for repair in found}, run


# The published overlay.


def test_delays_follow_the_regions() -> None:
    delays = delays_ms()
    assert (delays[0][1], delays[0][3], delays[1][3]) == (115, 240, 300)
    for one, other in product(range(BROKERS), repeat=2):
        assert delays[one][other] == delays[other][one]
        if one != other and REGIONS[one] == REGIONS[other]:
            assert 5 <= delays[one][other] <= 70
    assert delays == delays_ms()


def test_crashes_are_at_once_and_in_the_middle_of_the_load() -> None:
    moments = set()
    for seed in range(20):
        crashes = crashes_of((1, 2, 3), 300, seed)
        assert [broker for _, broker in crashes] == [1, 2, 3]
        (moment,) = {at for at, _ in crashes}
        assert 100 * INTERVAL_MS <= moment < 200 * INTERVAL_MS
        moments.add(moment)
    assert len(moments) > 10


# Repairs (section 5.4.1, annexes IV to VIII).


def test_one_orphan_takes_one_round_of_four_messages() -> None:
    """Crash of 3: broker 7 asks 0, is granted, says what it has and is told what 0 has."""
    noted, run = repaired(3)
    way = delays_ms()[0][7]
    orphan, root = noted[7], noted[0]
    assert set(noted) == {0, 7}
    assert (orphan.rounds, orphan.refusals, orphan.failed_candidates) == (1, 0, 0)
    assert orphan.synchronised == 4 * way
    assert (root.settled, orphan.settled) == (5 * way, 6 * way)
    assert (root.is_orphan, root.synchronised) == (False, None)
    assert orphan.missed > 0
    assert overlay_of(run).parents[7] == 0


def test_the_second_orphan_is_refused_by_the_root_and_taken_by_the_first() -> None:
    """Crash of 1: broker 0 has room for one of 4 and 5 (scenario S1)."""
    noted, run = repaired(1)
    assert (noted[4].rounds, noted[4].refusals) == (1, 0)
    assert (noted[5].rounds, noted[5].refusals, noted[5].failed_candidates) == (2, 1, 0)
    parents = overlay_of(run).parents
    assert (parents[4], parents[5]) == (0, 4)


def test_candidates_that_have_failed_too_are_told_from_refusals() -> None:
    """Crash of 1, 2 and 3: the root has room for three of four orphans; the last asks two of the dead (S5)."""
    noted, _ = repaired(1, 2, 3)
    assert (noted[7].rounds, noted[7].refusals, noted[7].failed_candidates) == (4, 1, 2)
    assert all(noted[broker].rounds == 1 for broker in (4, 5, 6))


def test_the_child_of_the_root_with_most_room_and_the_lowest_number_follows_it() -> None:
    """Annex VI: rooms are 1, 2 and 2; broker 2 takes over, with 6, 1 and 3 below it (S2)."""
    _, run = repaired(0)
    overlay = overlay_of(run)
    assert overlay.root == 2
    assert overlay.children_of(2) == [1, 3, 6]


def test_noting_changes_nothing() -> None:
    case = BankCase(AS_PUBLISHED, (1, 3), 10, OPERATIONS)
    runs = [BankRun(case.setup(2), 2, None, make) for make in (TreeBroker, NotingBroker)]
    for run in runs:
        run.run()
    plain, noting = runs
    assert plain.engine.events == noting.engine.events
    assert [replica.done for replica in plain.service.replicas.values()] == [
        replica.done for replica in noting.service.replicas.values()
    ]


def test_a_mean_by_rounds_is_one_value_per_repetition() -> None:
    plan = RECONFIGURATION.plan(False, None, 3)
    results: Results[RepairCase, Repaired] = Results()
    for case in RECONFIGURATION.cases(plan):
        for _ in range(3):
            results.add(case, measure(replace(case, operations=12), 1))
    rows = [row for row in RECONFIGURATION.compare(plan, results) if isinstance(row, Row)]
    assert len({row.label for row in rows}) == len(rows)
    by_label = {row.label: row for row in rows}
    assert len(by_label["until the last missed message, 1 round"].measured.values) == 3
    growth = [row for row in rows if row.label.startswith("time with")]
    assert [row.verdict for row in growth] == [REPRODUCED] * 3
    assert by_label["the root after the crash of 0"].verdict == REPRODUCED
    assert by_label["broker 0 after the crash of 3, until total order goes on"].verdict == REFUTED


# Latency (sections 5.4.2 and 5.4.3).


def test_what_is_delivered_keeps_its_promises() -> None:
    for system, faults in product((AS_PUBLISHED, STRICT), (0, 3)):
        case = BankCase(system, FAULTS[faults], 10, OPERATIONS)
        trace = MemoryTrace("deliveries")
        run = BankRun(case.setup(3), 3, trace.recorder)
        run.run()
        assert broken_promises(run, trace, case.is_strict) == 0
        counts = judge(trace.table(), BROKERS, default=NONE).counts
        # As in the document: a causal publication may overtake a total one of its own client.
        assert (counts["fifo"] > 0) == (system == AS_PUBLISHED)


def test_total_is_slowest_and_faults_and_few_keys_cost_time() -> None:
    few, many, faulty = (
        ginger_latency.measure(BankCase(AS_PUBLISHED, faults, keys, OPERATIONS), 1)
        for faults, keys in (((), 1), ((), 1000), ((1, 2, 3), 1000))
    )
    for found in (few, many, faulty):
        assert found.mean[EVENTUAL] < found.mean[TOTAL] > found.mean[CAUSAL]
        assert all(found.mean_with_own[order] < found.mean[order] for order in ORDERS)
    for order in ORDERS:
        assert few.mean[order] > many.mean[order] < faulty.mean[order]


def test_the_reach_is_that_of_the_repaired_tree() -> None:
    delays = delays_ms()
    quiet, broken = (
        ginger_latency.measure(BankCase(AS_PUBLISHED, faults, 100, 30), 1).reach_ms for faults in ((), (1, 3))
    )
    assert quiet == delays[0][3] + delays[3][7]
    assert broken == delays[0][2] + delays[2][7]


def latencies(eventual: float, causal: float, total: float, reach_ms: float = 300) -> BankLatencies:
    means = {EVENTUAL: eventual, CAUSAL: causal, TOTAL: total}
    return BankLatencies(means, means, reach_ms, 0)


def invented(reach_fell: bool) -> Results[BankCase, BankLatencies]:
    """Total latency falls from one fault to two, and causal and total latency rise from one key to ten."""
    results: Results[BankCase, BankLatencies] = Results()
    for case in KEYS_AND_LATENCY.cases(KEYS_AND_LATENCY.default):
        faults, keys = len(case.faults), case.keys
        base = 1000.0 / keys + 10 * faults
        odd = 5000.0 if keys == 10 else 0.0
        total = base + odd + 100 - (50 if faults == 2 else 0)
        reach_ms = 200.0 if faults == 2 and reach_fell else 300.0
        for _ in range(3):
            results.add(case, latencies(base, base + odd / 2, total, reach_ms))
    return results


def verdicts(results: Results[BankCase, BankLatencies]) -> dict[str, str | None]:
    found = KEYS_AND_LATENCY.compare(KEYS_AND_LATENCY.default, results)
    return {row.label: row.verdict for row in found if isinstance(row, Row)}


def test_a_trend_that_is_not_seen_differs_unless_its_reason_is_seen() -> None:
    lower_tree, same_tree = verdicts(invented(reach_fell=True)), verdicts(invented(reach_fell=False))
    label = "total, 100 keys, smallest growth with one more fault"
    assert (lower_tree[label], same_tree[label]) == (REFUTED, DIFFERS)
    assert same_tree["eventual, 100 keys, smallest growth with one more fault"] == REPRODUCED
    assert same_tree["eventual, 0 faults, smallest fall with ten times the keys"] == REPRODUCED
    assert same_tree["causal, 0 faults, smallest fall with ten times the keys"] == REFUTED
    assert same_tree["total, 0 faults, smallest fall with ten times the keys"] == DIFFERS


def test_every_cell_of_the_figures_is_simulated() -> None:
    cells = {(case.system, len(case.faults), case.keys) for case in KEYS_AND_LATENCY.cases(KEYS_AND_LATENCY.default)}
    assert cells == {*product((AS_PUBLISHED,), FAULTS, KEY_COUNTS), *product((STRICT,), (0, 3), KEY_COUNTS)}
    assert set(FAULTS_AND_LATENCY.cases(FAULTS_AND_LATENCY.default)) == {
        case_of(system, faults, 100) for system in (AS_PUBLISHED, STRICT) for faults in FAULTS
    }


# Cost without faults.


def test_collecting_is_all_that_fault_tolerance_sends() -> None:
    case = CostCase(ginger_cost.with_tolerance(1000), BROKERS, OPERATIONS)
    runs = [BankRun(case.setup(), 1, None, make) for make in (plain_broker, WeighingBroker)]
    for run in runs:
        run.run()
        assert all(audit.is_good for audit in run.audit())
        assert run.stuck() == 0
    plain, tolerant = runs
    rounds, rest = divmod(int(tolerant.engine.sent - plain.engine.sent), 3 * (BROKERS - 1))
    assert rest == 0
    assert OPERATIONS * INTERVAL_MS // 1000 <= rounds <= OPERATIONS * INTERVAL_MS // 1000 + 5


def test_plain_brokers_keep_nothing_and_others_the_more_the_rarer_they_collect() -> None:
    plain, often, seldom = (
        ginger_cost.measure(CostCase(system, BROKERS, OPERATIONS), 1)
        for system in (ginger_cost.WITHOUT, *(ginger_cost.with_tolerance(collect) for collect in (1000, 5000)))
    )
    assert (plain.kept, plain.kept_most) == (0, 0)
    assert 0 < often.kept < seldom.kept
    assert plain.messages < seldom.messages < often.messages
    assert plain.bytes < seldom.bytes < often.bytes
    assert plain.wrong == often.wrong == seldom.wrong == 0


def test_sizes_are_counted_by_hand() -> None:
    # Source, number, topic, order, time and one key.
    publication = keyed(b"12345")
    item = Item(0, 1, DATA, publication)
    assert (size_of(item, False), size_of(item, True)) == (8 * 7 + 5, 8 * 9 + 5)
    proposal = Proposal(publication, 1)
    assert (size_of(proposal, False), size_of(proposal, True)) == (8 * 6 + 5, 8 * 7 + 5)
    closed = Closed(1, 1, 0, 1)
    assert (size_of(closed, False), size_of(closed, True)) == (24, 32)
    assert size_of(CollectResponse(1, 5, 1, {0: {4: 10, 5: 3}, 1: {}}), True) == 8 * (3 + 5 + 1)


def keyed(payload: bytes) -> Keyed:
    """A publication about one key."""
    return Keyed(4, 1, 0, payload, 0, NONE, keys_of([9]))


@pytest.mark.parametrize("nodes", [2, 16])
def test_cost_is_measured_on_trees_of_any_size(nodes: int) -> None:
    plan = ginger_cost.COST.plan(False, nodes, 1)
    for case in ginger_cost.cases(plan):
        assert ginger_cost.measure(replace(case, operations=20), 1).wrong == 0


# Ginger as published.


def as_published(system: str, faults: tuple[int, ...], links: str = REGIONAL) -> PublishedCase:
    return PublishedCase(system, faults, 100, 200, links=links)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_repair_as_published_takes_the_path_of_the_log(seed: int) -> None:
    """Annex VIII: brokers 0 and 4 refuse, broker 2 accepts; two round trips to Europe and what was missed over it."""
    found = measure_published(as_published(AS_PRINTED, LOG_VIII), seed)
    assert (found.rounds, found.parent) == (3, 2)
    assert 3 * 230 <= found.orphan_ms <= 3 * 230 + 2 * 70 + 5


def test_the_time_of_a_repair_follows_from_the_link_that_it_makes() -> None:
    """Annex VII: request, answer and lost messages cross one link, to Asia or as short as within a region."""
    assert measure_published(as_published(AS_PRINTED, LOG_VII), 1).parent_side_ms == 3 * 240
    near = measure_published(as_published(AS_PRINTED, LOG_VII, SHORT), 1).parent_side_ms
    assert near == 3 * delays_ms(1, short_repairs=True)[0][7] <= 3 * 70


def test_as_published_a_crash_loses_deliveries_and_ours_loses_none() -> None:
    printed, ours = (measure_published(as_published(system, FAULTS[3]), 1) for system in (AS_PRINTED, AS_PUBLISHED))
    assert printed.missing > 0
    assert ours.missing == ours.stuck == 0
    for system in (AS_PRINTED, AS_PUBLISHED):
        assert measure_published(as_published(system, ()), 1).missing == 0


def test_short_links_of_repairs_leave_the_links_of_the_tree_as_they_are() -> None:
    usual, short = delays_ms(5), delays_ms(5, short_repairs=True)
    assert usual[0][3] == short[0][3] == 240
    assert usual[0][7] == 240
    assert 5 <= short[0][7] <= 70


def test_repetitions_of_a_repair_scatter_with_the_delays_that_the_document_leaves_open() -> None:
    report = RECONFIGURATION.run(RECONFIGURATION.plan(False, None, 2), 1, lambda _: None)
    grown = [row for row in report.rows if row.label.startswith("time with ")]
    assert grown
    assert all(row.confidence for row in grown)


def test_orphans_that_ask_the_nearest_first_ask_in_the_order_of_distance() -> None:
    """Only the order of the questions differs: regions, load and the moment of the crash are the same."""
    found = {way: measure_parents(ParentsCase(way, 40), 1) for way in WAYS}
    assert all(each.wrong == 0 for each in found.values())
    assert found[NEAREST].rounds > found[BY_HOPS].rounds == found[ANCESTORS].rounds == 1
    assert found[NEAREST].synchronised_ms < 0.6 * found[BY_HOPS].synchronised_ms
