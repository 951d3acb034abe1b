"""Figure 5.12: brokers."""

from __future__ import annotations

from collections import Counter

import pytest

from antiphon.simulator.engine.actions import PublishAction
from antiphon_lab.experiments.vcube.brokers import (
    BROKERS,
    FEW_PUBLISHERS,
    FIG_5_12,
    FITTING_PUBLISHERS,
    MEAN_GAP_TICKS,
    MESSAGES,
    NODES,
    OTHER_PUBLISHERS,
    SUBSCRIBERS,
    BrokerLatency,
    Load,
    broker_counts,
    cases,
    compare,
    measure,
    medium_brokers,
    parts,
    schedule,
    with_brokers,
)
from antiphon_lab.experiments.vcube.one_topic import PUBLISHED, REPAIRED, Group, TopicRun
from antiphon_lab.reproduction.experiment import Note, Plan, Results, Row
from antiphon_lab.reproduction.verdicts import DIFFERS, FITTED, REFUTED, REPRODUCED


def test_brokers_and_subscribers_are_as_many_as_published() -> None:
    """Section 5.6.7: 32, 256 and 2048 brokers with 127, 15 and 1 subscribers each."""
    assert broker_counts(NODES) == [32, 256, 2048]
    assert medium_brokers(NODES) == 256
    for count, subscribers in ((32, 127), (256, 15), (2048, 1)):
        assert count * (1 + subscribers) == NODES


def test_the_messages_are_shared_out_evenly_with_the_given_gaps() -> None:
    planned = schedule(Load(PUBLISHED, NODES, 30), 5)
    assert len(planned) == MESSAGES
    shares = Counter(publisher for _, publisher in planned)
    assert sorted(set(shares.values())) == [4, 5]
    assert len(shares) == 30
    alone = sorted(schedule(Load(PUBLISHED, NODES, 1), 5))
    assert len({publisher for _, publisher in alone}) == 1
    # 128 exponential gaps: the standard error of their mean is 44 ticks.
    assert alone[-1][0] / MESSAGES == pytest.approx(MEAN_GAP_TICKS, abs=4 * 44)


def test_all_systems_meet_the_same_publications() -> None:
    expected = schedule(Load(PUBLISHED, 256, 8), 9)
    assert schedule(Load(BROKERS, 256, 8, 16), 9) == expected
    assert schedule(Load(BROKERS, 256, 8, 16), 10) != expected


def one_publication(nodes: int, count: int, publisher: int, root: int) -> TopicRun:
    group = Group(nodes, tuple(range(nodes)), publisher, root)
    run = TopicRun(group, with_brokers(group, count), 1, charged=False, level="deliveries")
    run.engine.at(0, PublishAction(publisher))
    run.finish()
    return run


def test_the_parts_of_one_publication_are_those_of_counting() -> None:
    """A broker sends to the brokers below it first, then to its subscribers, one copy per tick."""
    nodes, count, subscribers = 64, 8, 7
    run = one_publication(nodes, count, publisher=5, root=5)
    assert run.engine.deliveries == nodes
    tree, served = parts(run.trace.table(), count)
    # The seven other brokers are 3, 3 and 1 at a distance of 1, 2 and 3 hops; 7 - 3 of their copies go to brokers.
    assert served == pytest.approx(101 + (7 - 3) / 7 + (subscribers + 1) / 2)
    # Copies leave in ascending order of cluster: so many ticks is the way to each of the seven spent in queues.
    assert tree == pytest.approx((3 * 1 + 3 * 2 + 1 * 3) / 7 * 101 + (1 + 2 + 3 + 3 + 4 + 5 + 6) / 7)


def test_a_publisher_that_is_no_broker_reaches_the_root_in_one_hop() -> None:
    at_root = one_publication(64, 8, publisher=5, root=5)
    elsewhere = one_publication(64, 8, publisher=13, root=5)
    tree_at_root, served_at_root = parts(at_root.trace.table(), 8)
    tree, _ = parts(elsewhere.trace.table(), 8)
    # The root is among the receivers now, with one hop and nothing to wait for.
    assert tree == pytest.approx((7 * (tree_at_root + 102) + 102) / 8)
    assert served_at_root > 100


def test_where_every_broker_is_alone_nobody_is_served() -> None:
    run = one_publication(8, 8, publisher=3, root=0)
    assert parts(run.trace.table(), 8)[1] == 0


def test_a_small_system_has_all_rows_and_no_violations() -> None:
    plan = Plan((256,), repetitions=1, large_repetitions=1)
    report = FIG_5_12.run(plan, 3, lambda _: None)
    measured = {row.label: row.measured.mean for row in report.rows}
    assert {row.verdict for row in report.rows} == {None, "derived"}
    assert measured[f"violations found by the oracle, VCube-PS, {FITTING_PUBLISHERS} publishers"] == 0
    assert len([label for label in measured if label.startswith("latency")]) == len(cases(plan))
    # Fewer brokers have shorter trees and more to serve.
    assert [measured[f"Tree part, SRPT-B with {count} brokers, 1 publisher"] for count in (2, 16, 128)] == sorted(
        measured[f"Tree part, SRPT-B with {count} brokers, 1 publisher"] for count in (2, 16, 128)
    )
    assert any("nothing is compared at 256" in note for note in report.notes)


def test_ours_never_waits_for_the_own_wave_and_the_published_one_does() -> None:
    published, ours = (measure(Load(system, 64, 1), 4) for system in (PUBLISHED, REPAIRED))
    assert ours.start_delay == 0
    assert published.start_delay > 1000


def fabricated(few: float, fitting: float, tree: dict[int, tuple[float, float]]) -> Results[Load, BrokerLatency]:
    """Results with these latencies of SRPT-B with 256 brokers, 645 for VCube-PS and 750 for SRPT-S."""
    results: Results[Load, BrokerLatency] = Results()
    for publishers, medium in 3 * ((FEW_PUBLISHERS, few), (FITTING_PUBLISHERS, fitting)):
        for system, total in ((PUBLISHED, 645.0), (REPAIRED, 617.0), (SUBSCRIBERS, 750.0)):
            results.add(Load(system, NODES, publishers), BrokerLatency(total, 0))
        for count in broker_counts(NODES):
            tree_part, served = tree[count]
            total = medium if count == 256 else tree_part + served
            results.add(Load(BROKERS, NODES, publishers, count), BrokerLatency(total, 0, tree_part, served))
    for publishers in 3 * OTHER_PUBLISHERS:
        results.add(Load(BROKERS, NODES, publishers, 256), BrokerLatency(700, 0, 600, 100))
    return results


def verdicts(results: Results[Load, BrokerLatency]) -> dict[str, str | None]:
    plan = Plan((NODES,), repetitions=1, large_repetitions=1)
    return {row.label: row.verdict for row in compare(plan, results) if isinstance(row, Row) and row.published}


LOAD = f", {FITTING_PUBLISHERS} publishers"


def test_verdicts_follow_the_measurements() -> None:
    found = verdicts(fabricated(600, 827, {32: (384, 7000), 256: (524, 300), 2048: (690, 50)}))
    assert found[f"VCube-PS below SRPT-B with 256 brokers{LOAD}"] == FITTED
    assert found[f"VCube-PS / fastest SRPT-B{LOAD}"] == REPRODUCED
    assert found[f"Tree part, fewer / more brokers{LOAD}"] == REPRODUCED
    assert found[f"B-S part, fewer / more brokers{LOAD}"] == REPRODUCED
    assert found[f"SRPT-B with 2048 brokers / SRPT-S{LOAD}"] == REPRODUCED
    assert not any(label.endswith(", 1 publisher") for label in found)


def test_what_is_measured_otherwise_differs() -> None:
    found = verdicts(fabricated(600, 600, {32: (700, 120), 256: (524, 300), 2048: (690, 50)}))
    assert found[f"VCube-PS below SRPT-B with 256 brokers{LOAD}"] == DIFFERS
    assert found[f"B-S part, fewer / more brokers{LOAD}"] == DIFFERS


def test_an_overloaded_root_refutes_that_the_tree_part_falls() -> None:
    found = verdicts(fabricated(600, 827, {32: (7000, 7000), 256: (524, 300), 2048: (690, 50)}))
    assert found[f"Tree part, fewer / more brokers{LOAD}"] == REFUTED


def test_the_notes_name_the_scanned_numbers_of_publishers() -> None:
    plan = Plan((NODES,), repetitions=1, large_repetitions=1)
    results = fabricated(600, 827, {32: (384, 7000), 256: (524, 300), 2048: (690, 50)})
    notes = [finding.text for finding in compare(plan, results) if isinstance(finding, Note)]
    assert any("600 with 1, 700 with 16, 827 with 30, 700 with 32" in note for note in notes)
    assert any("24 hops later" in note for note in notes)
