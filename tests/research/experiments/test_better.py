"""Better than published: each claim, in pairs that differ in the system alone."""

from __future__ import annotations

import pytest

from antiphon_lab.experiments.vcube.better import (
    BETTER,
    BUNDLES,
    CLUSTER_ORDER,
    DIRECTORY,
    FLOODING,
    LARGEST_FIRST,
    REPAIRED,
    REPAIRED_DIRECTORY,
    WHOLE_BURST,
    WINDOWS,
    bursts,
    cases,
    times_less,
)
from antiphon_lab.experiments.vcube.improvements import (
    AS_PUBLISHED,
    BURST,
    Burst,
    ChurnTrial,
    Joining,
    Measured,
    Spreading,
    System,
    Trial,
    options_of,
    schedule_churn,
)
from antiphon_lab.experiments.vcube.one_topic import HOP_TICKS, draw_group
from antiphon_lab.reproduction.experiment import Plan, Results

SEEDS = range(2)


# Who is served first.


@pytest.mark.parametrize("everybody", [False, True])
@pytest.mark.parametrize("nodes", [16, 64])
def test_the_largest_subtree_first_is_sooner_everywhere(nodes: int, everybody: bool) -> None:
    for seed in SEEDS:
        ordered, largest = (Spreading(one, nodes, everybody).measure(seed) for one in (CLUSTER_ORDER, LARGEST_FIRST))
        assert largest["mean"] < ordered["mean"]
        assert largest["longest"] < ordered["longest"]
        assert largest["violations"] == ordered["violations"] == 0


@pytest.mark.parametrize("dimension", [3, 6])
def test_one_publication_takes_what_counting_says(dimension: int) -> None:
    """The longest path has one hop per dimension. In the order of clusters it waits for all copies before its own."""
    ordered, largest = (Spreading(one, 1 << dimension, False).measure(5) for one in (CLUSTER_ORDER, LARGEST_FIRST))
    assert largest["longest"] == dimension * HOP_TICKS
    assert ordered["longest"] == dimension * HOP_TICKS + dimension * (dimension - 1) / 2


def test_the_order_of_clusters_is_that_of_the_published_protocol() -> None:
    """Where nothing changes and nobody queues, the option is all that differs."""
    published, ordered = (Spreading(one, 64, True).measure(2) for one in (AS_PUBLISHED, CLUSTER_ORDER))
    assert published == ordered


# Windows and bundles.


@pytest.mark.parametrize("sources", [1, 4])
def test_a_wider_window_delivers_a_burst_sooner_with_the_same_packets(sources: int) -> None:
    for seed in SEEDS:
        found = [Burst(system, 32, sources).measure(seed) for system in (AS_PUBLISHED, *WINDOWS)]
        ticks = [one["ticks"] for one in found]
        assert ticks == sorted(ticks, reverse=True)
        assert len(set(ticks)) == len(ticks)
        assert {one["packets"] for one in found} == {2 * sources * BURST * 31}
        assert not any(one["violations"] for one in found)


def test_the_published_protocol_takes_a_round_trip_for_each_message_of_a_burst() -> None:
    round_trips = (BURST - 1) * 2 * 5 * HOP_TICKS
    assert Burst(AS_PUBLISHED, 32, 1).measure(1)["ticks"] >= round_trips + 5 * HOP_TICKS
    assert Burst(WINDOWS[-1], 32, 1).measure(1)["ticks"] < 2 * 5 * HOP_TICKS


@pytest.mark.parametrize("sources", [1, 4])
def test_bundles_need_fewer_packets_and_less_time_than_the_published_protocol(sources: int) -> None:
    for seed in SEEDS:
        published, *bundled = (Burst(one, 32, sources).measure(seed) for one in (AS_PUBLISHED, *BUNDLES))
        for one in bundled:
            assert one["packets"] < published["packets"] / 4
            assert one["ticks"] < published["ticks"] / 4
            assert one["mean"] < published["mean"]
            assert one["violations"] == 0


def test_a_whole_burst_travels_in_two_packets_per_member() -> None:
    """The first publication goes alone; those that had to queue for its round trip follow together."""
    assert Burst(WHOLE_BURST, 32, 1).measure(1)["packets"] == 2 * 2 * 31


# Subscribing.


@pytest.mark.parametrize(("nodes", "members"), [(16, 3), (64, 4), (64, 31)])
def test_a_subscription_costs_what_the_formulas_say(nodes: int, members: int) -> None:
    for seed in SEEDS:
        published, flooding, directory = (
            Joining(one, nodes, members).measure(seed) for one in (AS_PUBLISHED, FLOODING, DIRECTORY)
        )
        assert (published["joining"], published["leaving"]) == (2 * (nodes - 1), 2 * members)
        assert (flooding["joining"], flooding["leaving"]) == (4 * (nodes - 1), members)
        # Node 0 is the topic's home; if it is the newcomer it need not ask anybody.
        assert directory["joining"] - 4 * members in (0, 2)
        assert directory["leaving"] - members in (0, 1)
        assert published["violations"] == flooding["violations"] == directory["violations"] == 0


def test_a_directory_makes_the_cost_depend_on_the_topic_and_not_on_the_system() -> None:
    small, large = (Joining(DIRECTORY, nodes, 4).measure(1)["joining"] for nodes in (64, 512))
    assert small == large < 64 - 1


# Churn.


@pytest.mark.parametrize("system", [REPAIRED, REPAIRED_DIRECTORY], ids=lambda system: system.name)
def test_repaired_nothing_is_lost_and_nobody_is_stuck(system: System) -> None:
    for seed in range(6):
        found = ChurnTrial(system, 32).measure(seed)
        assert {found[name] for name in ("lost", "early", "disordered", "stuck")} == {0}


def test_as_published_churn_loses_publications_and_leaves_more_behind() -> None:
    for seed in SEEDS:
        published, repaired = (ChurnTrial(one, 64).measure(seed) for one in (AS_PUBLISHED, REPAIRED))
        assert published["lost"] > 0
        assert published["stuck"] > 0
        assert published["remembered"] > 10 * repaired["remembered"]


def test_churn_has_stable_publishers_and_changes_that_are_possible() -> None:
    group = draw_group(32, 16, 3)
    run = REPAIRED.run(group, 3)
    members = schedule_churn(run, 3)
    run.finish()
    assert set(group.members[:4]) <= members
    assert run.engine.published == 2 * 32
    rows = run.trace.table().to_pylist()
    assert sum(row["event"] in ("subscribe", "unsubscribe") for row in rows) == 32
    assert {row["node"] for row in rows if row["event"] == "publish"} <= set(group.members[:4])


# The experiment.


def test_the_smallest_plan_runs_and_reports_nothing_as_published() -> None:
    report = BETTER.run(BETTER.plan(False, 16, 1), 1, lambda _: None)
    assert {row.verdict for row in report.rows} == {None, "derived"}
    assert len({row.label for row in report.rows}) == len(report.rows)
    assert report.rows[0].measured.mean == 0
    lost = {row.label: row.measured.mean for row in report.rows if row.label.startswith("lost to members")}
    assert [value for label, value in lost.items() if "repaired" in label] == [0, 0]
    assert len(lost) == 3


@pytest.mark.parametrize("nodes", [2, 4])
def test_tiny_systems_are_no_exception(nodes: int) -> None:
    report = BETTER.run(BETTER.plan(False, nodes, 1), 1, lambda _: None)
    assert {case.nodes for case in cases(BETTER.plan(False, nodes, 1))} == {nodes}
    assert len(report.rows) > 20


def test_ratios_are_taken_pair_by_pair() -> None:
    plan = Plan((16,), repetitions=2, large_repetitions=2)
    group = bursts(plan)[0]
    results: Results[Trial, Measured] = Results()
    for trial in group:
        for ticks in (100, 300) if trial.system is AS_PUBLISHED else (50, 50):
            results.add(trial, {"ticks": float(ticks)})
    assert times_less(results, group, WINDOWS[0], "ticks").values == (2, 6)


def test_what_grows_with_the_square_of_the_size_is_left_to_full_runs() -> None:
    assert max(case.nodes for case in cases(BETTER.default) if isinstance(case, ChurnTrial | Burst)) == 256
    assert max(case.nodes for case in cases(BETTER.full) if isinstance(case, ChurnTrial | Burst)) == 1024
    assert max(case.nodes for case in cases(BETTER.full)) == 4096


def test_options_are_those_that_the_names_say() -> None:
    assert AS_PUBLISHED.options is None
    for system, window in zip(WINDOWS, (1, 2, 4, 16, 64), strict=True):
        assert system.options is not None
        options = options_of(system.options)
        assert (system.name, options.window, options.bundle) == (f"window {window}", window, 1)
