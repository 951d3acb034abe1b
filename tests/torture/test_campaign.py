"""Campaigns: what is drawn, what is found, and how small it becomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.audit.findings import KINDS as ORACLE_KINDS
from antiphon.kernel.errors import PeerError
from antiphon.simulator.scenario.file import check_scenario, load_scenario, parse_scenario
from antiphon.simulator.scenario.promises import PROMISES
from antiphon.simulator.scenario.scenario import (
    NetworkTable,
    PartitionFault,
    PublishTable,
    Scenario,
    SubscribeTable,
    TopicsTable,
)
from antiphon.simulator.scenario.writer import scenario_text
from antiphon.torture import shrinking
from antiphon.torture.campaign import run_campaign, run_schedule, run_seeds, tasks
from antiphon.torture.schedules import operations
from antiphon.torture.schedules.every_fabric import draw_any_schedule
from antiphon.torture.schedules.operations import (
    PART,
    PAUSE,
    PUBLISH,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Operation,
    Shape,
    operations_of,
    possible,
    with_operations,
)
from antiphon.torture.schedules.topic_schedule import draw_schedule
from antiphon.torture.shrinking import Shrinker, options_without, parted, representatives, write_failure
from antiphon.torture.tally import KINDS, Outcome, Tally
from antiphon.trace.contract import REQUESTS, STUCK
from tests.torture.broken import (
    AnswersForItselfOnly,
    Broken,
    DeliversToOutsiders,
    DeliversTwice,
    DropsQueuedPublications,
    ForgetsWhatCameEarly,
    KeepsClusters,
    LosesRefusals,
    RefusesWithoutACounter,
    StumblesOverLeavers,
    Variant,
    break_vcube_ps,
)

SOME = range(1, 101)


# What is drawn.


def test_a_seed_is_a_schedule() -> None:
    assert draw_schedule(7) == draw_schedule(7)
    assert draw_schedule(7) != draw_schedule(8)
    assert draw_schedule(7, "fifo").order == "fifo"
    assert operations_of(draw_schedule(7, "fifo")) == operations_of(draw_schedule(7))


def test_schedules_can_be_run_and_written_as_files() -> None:
    for seed in SOME:
        scenario = draw_schedule(seed)
        check_scenario(scenario)
        assert parse_scenario(scenario_text(scenario)) == scenario
        assert with_operations(scenario, operations_of(scenario)) == scenario


def test_schedules_are_of_all_kinds() -> None:
    drawn = [draw_schedule(seed) for seed in SOME]
    sizes = [scenario.nodes for scenario in drawn]
    assert min(sizes) >= 2
    assert max(sizes) <= 64
    assert sum(size <= 8 for size in sizes) > 50
    assert sum(size > 24 for size in sizes) > 2
    assert sum(size & (size - 1) != 0 for size in sizes) > 50
    assert {scenario.order for scenario in drawn} == {"none", "fifo", "causal"}
    assert {scenario.topic_count() for scenario in drawn} == {1, 2, 3}
    kinds = [{operation.kind for operation in operations_of(scenario)} for scenario in drawn]
    for kind in (PAUSE, UNSUBSCRIBE, SUBSCRIBE, PUBLISH):
        assert sum(kind in found for found in kinds) > 40
    networks = Tally()
    for scenario in drawn:
        networks.count(scenario, Outcome(seed=0))
    assert set(networks.networks) == {"constant", "link", "matrix", "normal", "reordering", "slow output"}


def test_schedules_hold_the_patterns_that_hurt() -> None:
    patterns = dict.fromkeys(("back at once", "published at once", "hesitated", "published and left"), 0)
    for seed in SOME:
        operations = operations_of(draw_schedule(seed))
        known = {(one.kind, one.node, one.topic, one.at) for one in operations}
        for kind, node, topic, at in known:
            if kind == SUBSCRIBE:
                patterns["back at once"] += (UNSUBSCRIBE, node, topic, at) in known
                patterns["published at once"] += (PUBLISH, node, topic, at) in known
                patterns["hesitated"] += (UNSUBSCRIBE, node, topic, at + 1) in known
            elif kind == UNSUBSCRIBE:
                patterns["published and left"] += (PUBLISH, node, topic, at - 1) in known
    assert all(count > 20 for count in patterns.values()), patterns


def test_what_is_impossible_is_left_out() -> None:
    subscribe = Operation(5, SUBSCRIBE, 1)
    publish = Operation(5, PUBLISH, 1)
    unsubscribe = Operation(7, UNSUBSCRIBE, 1)
    pause = Operation(6, PAUSE, 1, 0, 8)
    assert possible([publish, subscribe, unsubscribe], [[]]) == [subscribe, publish, unsubscribe]
    assert possible([publish, unsubscribe], [[]]) == []
    assert possible([subscribe, publish, unsubscribe], [[1]]) == [publish, unsubscribe]
    assert possible([unsubscribe, pause, subscribe], [[]]) == [subscribe, pause]
    assert possible([pause, Operation(7, PAUSE, 1, 0, 9), Operation(8, PUBLISH, 1)], [[1]]) == [
        pause,
        Operation(8, PUBLISH, 1),
    ]


# What is found.


def test_the_topic_protocol_survives() -> None:
    """A small part of the campaign; ``antiphon torture --seeds 10000`` is the rest."""
    tally = run_campaign(1, 90)
    assert [outcome.about for outcome in tally.failing] == []
    assert tally.violations == {}
    assert tally.seeds == 90
    assert tally.deliveries > 10_000
    assert min(tally.faults.values()) > 100


def test_how_the_work_is_shared_makes_no_difference() -> None:
    assert tasks(5, 120) == [range(5, 55), range(55, 105), range(105, 125)]
    heard: list[int] = []
    shared = run_campaign(5, 60, watch=lambda tally: heard.append(tally.seeds), fabric="tree")
    assert heard == [50, 60]
    assert shared == run_seeds(range(5, 65), None, "tree")


def test_all_ways_to_fail_have_a_place() -> None:
    judged = {promise for promises in PROMISES.values() for promise in promises}
    assert judged | {"membership", "completeness", REQUESTS, STUCK} <= set(KINDS)
    assert set(ORACLE_KINDS) <= set(KINDS)
    assert list(Tally().as_json()["violations"]) == [kind for kind in KINDS if kind != STUCK]


FOUND: dict[str, tuple[Variant, str | None, str | None, str, int]] = {
    "a lost refusal": (LosesRefusals, None, None, "stuck", 40),
    "own numbers instead of the past": (AnswersForItselfOnly, None, "causal", "causal", 400),
    "early publications forgotten": (ForgetsWhatCameEarly, None, None, "completeness", 40),
    "clusters kept by newcomers": (KeepsClusters, None, None, "completeness", 40),
    "queued publications forgotten": (DropsQueuedPublications, None, None, "requests", 20),
    "delivered after leaving": (DeliversToOutsiders, None, None, "membership", 20),
    "delivered twice": (DeliversTwice, None, None, "duplicates", 20),
    "refused for ever": (RefusesWithoutACounter, None, None, "endless", 60),
    "stumbled": (StumblesOverLeavers, None, None, "error", 40),
    "no order at all": (Broken, "none", "fifo", "fifo", 20),
    "fifo instead of causal": (Broken, "fifo", "causal", "causal", 60),
}


@pytest.mark.parametrize(("variant", "lie", "order", "kind", "seeds"), FOUND.values(), ids=FOUND.keys())
def test_a_broken_protocol_is_found(
    variant: Variant, lie: str | None, order: str | None, kind: str, seeds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_vcube_ps(monkeypatch, variant, lie)
    monkeypatch.setattr(operations, "EVENT_LIMIT", 60_000)
    for seed in range(1, seeds + 1):
        if kind in run_schedule(draw_schedule(seed, order)).violations:
            return
    pytest.fail(f"{seeds} schedules did not find it")


def test_the_machinery_of_broken_variants_breaks_nothing_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = run_seeds(range(1, 31), None)
    break_vcube_ps(monkeypatch, Broken)
    assert run_seeds(range(1, 31), None) == honest


# How small it becomes.


def test_a_failure_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of a lost refusal: somebody publishes to somebody who leaves."""
    break_vcube_ps(monkeypatch, LosesRefusals)
    monkeypatch.setattr(shrinking, "PATIENCE", (3,))
    # With a directory the topic's home cannot be taken away, and what is left is larger.
    asking_everybody = (one for one in map(draw_schedule, range(1, 50)) if not one.protocol_options["directory"])
    failing = (one for one in asking_everybody if "stuck" in run_schedule(one).violations)
    for _ in range(3):
        large = next(failing)
        small = Shrinker(large, "stuck").shrink()
        assert "stuck" in run_schedule(small).violations
        assert small.nodes == 2
        assert small.topic_count() == 1
        kinds = {operation.kind for operation in operations_of(small)}
        assert {UNSUBSCRIBE, PUBLISH} <= kinds <= {UNSUBSCRIBE, PUBLISH, SUBSCRIBE}
        assert len(operations_of(small)) <= 4 < len(operations_of(large))


def test_making_small_keeps_what_matters() -> None:
    """A failure that needs three nodes, two operations in this order, a gap between them and a slow network."""

    def run(scenario: Scenario) -> Outcome:
        check_scenario(scenario)
        operations = operations_of(scenario)
        publications = [one.at for one in operations if one.kind == PUBLISH]
        subscriptions = [one.at for one in operations if one.kind == SUBSCRIBE]
        fails = (
            scenario.nodes >= 3
            and scenario.network.transmission == 60
            and any(first + 40 <= then for first in publications for then in subscriptions)
        )
        return Outcome(seed=scenario.seed, violations={"causal": 1} if fails else {})

    seeds = (seed for seed in range(1, 1000) if run(draw_schedule(seed)).violations)
    for _ in range(3):
        small = Shrinker(draw_schedule(next(seeds)), "causal", run).shrink()
        assert small.nodes == 3
        assert small.topic_count() == 1
        first, *between, last = operations_of(small)
        assert (first.kind, last.kind) == (PUBLISH, SUBSCRIBE)
        # Who subscribes may have to unsubscribe before.
        assert [one.kind for one in between] in ([], [UNSUBSCRIBE])
        assert first.at <= 1
        assert 40 <= last.at - first.at <= 101
        assert small.network == NetworkTable(transmission=60)


def test_nodes_that_are_left_out_leave_partitions_and_trees_to_the_others() -> None:
    """Node 1 goes, and whoever is above it moves down."""
    places = {0: 0, 2: 1, 3: 2, 4: 3}
    cut = Operation(5, PART, 0, 0, 9, None, (1, 3), Shape(True))
    assert parted(cut, places) == [cut._replace(keys=(2,))]
    assert parted(cut._replace(keys=(1,)), places) == []
    bridge = Operation(5, PART, 0, 0, 9, None, (0, 1), Shape(False, ((2,), (3, 4)), "chain"))
    assert parted(bridge, places) == [bridge._replace(keys=(0,), shape=Shape(False, ((1,), (2, 3)), "chain"))]
    assert parted(bridge._replace(shape=Shape(False, ((1,), (3, 4)), "chain")), places) == []
    tree = Scenario(nodes=5, fabric="tree", protocol="broker-tree", protocol_options={"parents": [-1, 0, 1, 1, 3]})
    assert options_without(tree, places) == {"parents": [-1, 0, 0, 2]}


def test_a_failure_that_needs_a_partition_keeps_a_simple_one() -> None:
    def run(scenario: Scenario) -> Outcome:
        parted = any(isinstance(fault, PartitionFault) for fault in scenario.faults)
        return Outcome(seed=scenario.seed, violations={"causal": 1} if parted else {})

    for kind in ("chain", "ring"):
        drawn = (draw_any_schedule(seed) for seed in range(1, 200))
        odd = next(one for one in drawn if f'linked = "{kind}"' in scenario_text(one))
        small = Shrinker(odd, "causal", run).shrink()
        (fault,) = small.faults
        assert isinstance(fault, PartitionFault)
        assert (small.nodes, fault.linked, fault.one_way, len(fault.groups)) == (2, "apart", False, 1)


def test_each_way_to_fail_has_a_representative() -> None:
    lost = Outcome(seed=1, violations={"stuck": 3, "completeness": 1})
    doubled = Outcome(seed=2, violations={"stuck": 1, "duplicates": 1})
    stuck = Outcome(seed=3, violations={"stuck": 1})
    assert representatives([lost, doubled, stuck]) == [("duplicates", doubled), ("completeness", lost)]
    assert representatives([stuck]) == [("stuck", stuck)]
    assert representatives([]) == []
    here, there = (
        Outcome(seed=seed, fabric=fabric, violations={"stuck": 1}) for seed, fabric in ((4, "cube"), (5, "tree"))
    )
    assert representatives([here, there]) == [("stuck", here), ("stuck", there)]


def test_a_failure_is_written_as_a_scenario_that_says_what_it_is_about(tmp_path: Path) -> None:
    scenario = Scenario(
        nodes=2,
        protocol="vcube-ps",
        topics=TopicsTable(members=[[0]]),
        subscriptions=[SubscribeTable(at=3, node=1)],
        publications=[PublishTable(at=4, node=0)],
    )
    outcome = Outcome(seed=77, violations={"stuck": 1}, about="stuck: 1, such as this")
    path = write_failure(outcome, "stuck", scenario, tmp_path / "new")
    assert path == tmp_path / "new" / "torture-77.toml"
    assert path.read_text().startswith(
        "# Seed 77 of antiphon torture, shrunk while it failed by: stuck.\n"
        "# At first: stuck: 1, such as this\n"
        "# Replay it: antiphon simulate torture-77.toml\n"
        "# torture-77.txt is the trace as text: "
        "antiphon simulate torture-77.toml --level everything --trace torture-77.txt\n"
        'name = "torture 77: stuck"\n'
    )
    assert operations_of(load_scenario(path)) == operations_of(scenario)
    story = path.with_suffix(".txt").read_text().splitlines()
    assert "         3     1  subscribe         topic 0" in story
    delivery = "deliver           Ordered; publication 1 of 0 on topic 0, causal; after 0 ticks"
    assert f"         4     0  {delivery}" in story
    (tmp_path / "file").touch()
    with pytest.raises(PeerError, match=r"^cannot write .*torture-77\.toml: .*; choose another place$"):
        write_failure(outcome, "stuck", scenario, tmp_path / "file")
