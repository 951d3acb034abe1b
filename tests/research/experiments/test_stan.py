"""Experiments on StaN: they measure what the protocol does, and the published claims hold on small universes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from antiphon.kernel.errors import UsageError
from antiphon_lab.experiments.stan import crossposts as stan_crossposts
from antiphon_lab.experiments.stan import overlays as stan_overlays
from antiphon_lab.experiments.stan import total_order as stan_total_order
from antiphon_lab.experiments.stan.churn_traces import Trace, overnet_like, read_trace
from antiphon_lab.experiments.stan.crossposts import CrosspostCase, most_correlated
from antiphon_lab.experiments.stan.dynamics import (
    FIG_3_13,
    GrowthCase,
    GrowthOutcome,
    StanChurnCase,
    measure_churn,
    measure_growth,
)
from antiphon_lab.experiments.stan.figures import FIG_3_7, FIG_3_8, LinkCase, measure_links
from antiphon_lab.experiments.stan.overlays import GREEDY, INITIAL, STAN, TopicOverlayCase, arranged
from antiphon_lab.experiments.stan.runs import (
    GRID,
    LIVEJOURNAL,
    PERIOD_TICKS,
    WIKIPEDIA,
    StanCase,
    StanWorld,
    key_of,
    measure,
    subscriptions_of,
    universe_named,
)
from antiphon_lab.experiments.stan.total_order import STAN as STAN_VIEWS
from antiphon_lab.experiments.stan.total_order import PeersCase, views_of
from antiphon_lab.protocols.gossip.stan import Stan
from antiphon_lab.protocols.gossip.stan_options import NOTHING, SIMPLE, StanOptions
from antiphon_lab.reproduction.experiment import Plan, Results, Row
from antiphon_lab.reproduction.measurements import measurement_of, run_measurement
from antiphon_lab.reproduction.verdicts import REPRODUCED
from antiphon_lab.universes.universe import universe_of

# Section 3.3.4: links.


def test_figure_3_7_physical_links_fall_and_logical_ones_stay() -> None:
    outcome = measure(StanCase(GRID, 60, 4, learning=NOTHING), seed=1)
    assert len(set(outcome.logical)) == 1
    assert list(outcome.physical) == sorted(outcome.physical, reverse=True)
    # Most of it comes in the first rounds.
    assert outcome.physical[0] - outcome.physical[2] > 0.8 * (outcome.physical[0] - outcome.physical[4])


def test_figure_3_7_loss_makes_it_slower() -> None:
    lossless, lossy = (measure(StanCase(GRID, 60, 2, loss), seed=1) for loss in (0.0, 0.3))
    assert lossy.physical[0] == lossless.physical[0]
    assert lossy.physical[2] > lossless.physical[2]


def test_what_a_run_ends_with_is_what_is_computed_directly() -> None:
    case = StanCase(GRID, 50, 40)
    outcome = measure(case, seed=3)
    assert outcome.at_fixed_point > 0.98
    assert abs(outcome.final.sum() - outcome.fixed.sum()) <= 0.02 * outcome.fixed.sum()


def test_figure_3_8_most_processes_like_wikipedias_save_over_two_fifths() -> None:
    report = FIG_3_8.run(Plan((400,), 3, 3), 1, lambda _: None)
    verdicts = {row.label: row.verdict for row in report.rows if row.published is not None}
    assert set(verdicts.values()) == {REPRODUCED}


def test_records_of_links_can_be_read_back(tmp_path: Path) -> None:
    measurement = measurement_of(0, measure_links, LinkCase(WIKIPEDIA, 60), 5, 1)
    record = run_measurement(measurement, tmp_path)
    again = run_measurement(measurement, tmp_path)
    assert again.value.aligned.tolist() == record.value.aligned.tolist()


# Sections 3.3.5 and 3.3.7: fitness.


def test_figure_3_10_overlays_are_random_graphs_before_and_after() -> None:
    before, after = (stan_overlays.measure(TopicOverlayCase(WIKIPEDIA, 300, how), 1) for how in (INITIAL, STAN))
    assert after.clustering.mean() == pytest.approx(before.clustering.mean(), rel=0.05)
    assert after.path_length.mean() == pytest.approx(before.path_length.mean(), rel=0.03)
    assert after.connected == after.overlays


def test_figure_3_14_who_links_by_common_interests_needs_fewer_links_and_clusters() -> None:
    stan, greedy = (stan_overlays.measure(TopicOverlayCase(WIKIPEDIA, 300, how), 1) for how in (STAN, GREEDY))
    assert greedy.physical.sum() < stan.physical.sum()
    assert greedy.clustering.mean() > 2 * stan.clustering.mean()


def test_the_greedy_rival_takes_those_with_most_topics_in_common() -> None:
    universe, views = universe_named(WIKIPEDIA, 100), arranged(TopicOverlayCase(WIKIPEDIA, 100, GREEDY), 1)
    owners, of = subscriptions_of(universe)
    topics = [set(universe.topics_of(process).tolist()) for process in range(universe.processes)]
    for place in range(0, len(of), 50):
        owner = int(owners[place])
        chosen = views.neighbour[views.place == place].tolist()
        others = [int(node) for node in universe.processes_of(int(of[place])) if node not in (owner, *chosen)]
        assert owner not in chosen and len(set(chosen)) == len(chosen)
        worst = min(len(topics[owner] & topics[node]) for node in chosen)
        assert worst >= max((len(topics[owner] & topics[node]) for node in others), default=0)


# Section 3.3.6: dynamics.


def test_figure_3_12_views_follow_the_population_and_refilling_keeps_everybody_in() -> None:
    without, refilled = (measure_churn(StanChurnCase(80, 5, 64, refill), seed=3) for refill in (0, 5))
    assert without.changes == refilled.changes > 5
    assert without.present == refilled.present
    assert refilled.logical[-1] > without.logical[-1]
    assert refilled.isolated <= without.isolated


def test_figure_3_13_a_universe_grows_step_by_step() -> None:
    outcome = measure_growth(GrowthCase(40, 0.9, 12), seed=3)
    assert len(outcome.logical) == 13
    assert set(outcome.logical[:11]) == {outcome.logical[0]}
    assert outcome.logical[12] > outcome.logical[10]
    assert outcome.physical[1] < outcome.physical[0]


def test_figure_3_13_rows_compare_both_ends() -> None:
    grown = GrowthOutcome(tuple([10.0] * 60 + [9.5]), tuple([8.0] * 60 + [4.0]))
    scratch = GrowthOutcome(tuple([10.0] * 61), tuple([4.0] * 61))
    results: Results[GrowthCase, GrowthOutcome] = Results()
    refilled = GrowthOutcome(tuple([10.0] * 60 + [12.0]), tuple([8.0] * 60 + [5.0]))
    cases = (GrowthCase(200, 0.5, 60), GrowthCase(200, 1.0, 60), GrowthCase(200, 0.5, 60, 5))
    for case, outcome in zip(cases, (grown, scratch, refilled), strict=True):
        results.add(case, outcome)
    rows = [found for found in FIG_3_13.compare(Plan((200,), 1, 1), results) if isinstance(found, Row)]
    assert [row.measured.mean for row in rows] == [0.95, 1.2, 1.0, 1.25, 2.0]
    assert [row.published is not None for row in rows] == [True, False, True, False, True]


# Traces of availability.


def test_the_stand_in_for_overnet_has_the_reported_properties() -> None:
    trace = overnet_like(1000, 24.0, seed=2)
    up = [len(trace.up_at(hour * 3600.0)) for hour in range(24)]
    # Two fifths are up, from the first moment on.
    assert min(up) > 330 and max(up) < 470
    changes = sum((begin > 0) + (end < 86_400) for sessions in trace.sessions for begin, end in sessions)
    assert 4 < changes / 1000 < 9
    lengths = np.array([end - begin for sessions in trace.sessions for begin, end in sessions])
    # Most sessions are short and some are very long.
    assert np.median(lengths) < 0.5 * lengths.mean()


def test_a_faster_replay_changes_more_in_a_cycle() -> None:
    trace = overnet_like(300, 6.0, seed=1)
    slow, fast = (sum(len(gone) + len(come) for gone, come in trace.changes(60.0 * speed, 10)) for speed in (1, 16))
    assert fast > 4 * slow


def test_changes_lead_from_one_population_to_the_next() -> None:
    trace = Trace((((0.0, 100.0),), ((50.0, 300.0),), ((10.0, 20.0), (190.0, 250.0))))
    assert trace.up_at(0.0) == [0]
    assert trace.changes(100.0, 3) == [([0], [1]), ([], [2]), ([1, 2], [])]


def test_a_real_trace_is_read_and_resampled(tmp_path: Path) -> None:
    file = tmp_path / "overnet.txt"
    file.write_text("# host, sessions\na 1000 1060 1100 1200\nb,1030,1100\n\na 1300 1310\n")
    trace = read_trace(file)
    assert trace.sessions == (((0.0, 60.0), (100.0, 200.0), (300.0, 310.0)), ((30.0, 100.0),))
    drawn = trace.resampled(20, seed=1)
    assert drawn.hosts == 20 and set(drawn.sessions) == set(trace.sessions)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a 1 2 3\n", "line 1: 3 times are no pairs"),
        ("a 5 4\n", "line 1: a session begins at 5 and ends at 4"),
        ("a one two\n", "only seconds"),
        ("# nothing\n", "names no host"),
    ],
)
def test_what_is_wrong_with_a_trace_is_said_with_its_line(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "trace.txt"
    file.write_text(text)
    with pytest.raises(UsageError, match=complaint):
        read_trace(file)


# Section 3.3.8: crossposts.


def test_figure_3_15_sharing_saves_little_before_stan_and_much_after() -> None:
    before, after = (stan_crossposts.measure(CrosspostCase(LIVEJOURNAL, 300, how), 1) for how in (INITIAL, STAN))
    assert stan_crossposts.savers(before) < 5 < stan_crossposts.savers(after)
    assert stan_crossposts.mean_hops(after.shared_hops) <= stan_crossposts.mean_hops(after.simple_hops)


def test_the_most_correlated_topics_are_those_with_the_same_members() -> None:
    process = np.array([0, 1, 2, 3, 0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 0, 5])
    topic = np.array([0, 0, 0, 0, 1, 1, 1, 4, 2, 2, 2, 2, 3, 3, 4, 4])
    triples = most_correlated(universe_of(process, topic))
    assert triples[0][:2] == (0, 1) and triples[1][:2] == (1, 0)


@pytest.mark.parametrize("flood", ["crosspost", SIMPLE])
def test_what_is_sent_follows_from_the_views_as_the_protocol_shows(flood: str) -> None:
    # Three topics of which all 40 processes have all: everybody relays once, whether back or not.
    universe = universe_of(np.tile(np.arange(40), 3), np.repeat(np.arange(3), 40))
    options = StanOptions(period=PERIOD_TICKS, refill=0, patience=4, in_step=True, flood=flood, key=key_of(7))
    world = StanWorld(universe, options, seed=7)
    world.engine.run(60 * PERIOD_TICKS)
    publisher = world.engine.nodes[5].process
    assert isinstance(publisher, Stan)
    publisher.crosspost(b"m", [0, 1, 2])
    world.engine.run()
    for process in world.present():
        views = [set(process.view(topic)) for topic in range(3)]
        expected = len(set.union(*views)) if flood == "crosspost" else sum(len(view) for view in views)
        assert process.flood.sent + process.flood.echoes == expected
    assert world.engine.deliveries == 3 * 40


# Section 6.1: total order over small views.


def test_epto_over_stans_views_never_breaks_the_order() -> None:
    outcome = stan_total_order.measure(PeersCase(30, 0.1, peers=STAN_VIEWS), seed=2)
    assert outcome.disorders == 0
    assert outcome.delivered_share > 0.99


def test_the_views_of_epto_are_those_of_stan() -> None:
    views = views_of(PeersCase(30, 0.1, peers=STAN_VIEWS), seed=2)
    assert [len(view) for view in views] == [9] * 30
    assert all(node not in view for node, view in enumerate(views))


def test_the_grid_of_figure_3_7_is_the_published_size() -> None:
    assert FIG_3_7.default.sizes == (100,)
    assert universe_named(GRID, 100).topics == 16
