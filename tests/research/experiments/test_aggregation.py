"""Chapter 4 of the thesis at small sizes: what is measured, how it is compared, and that runs pair up."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from antiphon_lab.experiments.aggregation.better import AGGREGATION_BETTER
from antiphon_lab.experiments.aggregation.buffers import FIG_4_6, FIG_4_7
from antiphon_lab.experiments.aggregation.dependencies import FIG_4_3
from antiphon_lab.experiments.aggregation.latency import FIG_4_4, FIG_4_5
from antiphon_lab.experiments.aggregation.model import (
    AGGREGATION,
    FIXED,
    HYBRID,
    LAWS,
    LITERAL,
    NO_AGGREGATION,
    RIDE_ALONG,
    SINGLE_TREE,
    TIMER,
    TOPIC,
    TOPIC_AGGREGATION,
    AggregationCase,
    measure,
    start_times,
    travel,
)
from antiphon_lab.experiments.aggregation.packets import TABLE_4_1, TABLE_4_2, TABLE_4_3
from antiphon_lab.experiments.aggregation.start_laws import (
    LAW_NODES,
    ByLaw,
    FittingLaws,
    law_cases,
    laws_tried,
    side_by_side,
    table_rows,
)
from antiphon_lab.experiments.aggregation.trees import FIG_4_9
from antiphon_lab.reproduction.documents import Interval, Number
from antiphon_lab.reproduction.experiment import Experiment, Results, Sample

EXPERIMENTS = (TABLE_4_1, TABLE_4_2, TABLE_4_3, FIG_4_3, FIG_4_4, FIG_4_5, FIG_4_6, FIG_4_7, FIG_4_9)


def test_without_aggregation_there_is_a_packet_per_message_and_edge() -> None:
    found = measure(AggregationCase(16, NO_AGGREGATION), 1)
    assert (found.packets, found.aggregated, found.reduction_percent(16)) == (240, 0, 0)
    assert found.by_bytes.sum() == 240
    # 20 of header, 2 of source, 50 of payload and 4 for each entry; each message travels over 15 edges.
    assert found.bytes_sent == 240 * (20 + 2 + 50 + 4) + 15 * 4 * found.dependencies.sum()


def test_with_aggregation_every_message_still_travels_over_every_edge() -> None:
    found = measure(AggregationCase(64), 1)
    counts = found.by_publications
    assert counts @ np.arange(len(counts)) == 64 * 63
    assert found.packets == counts.sum() < 64 * 63
    assert found.largest_packets.max() == len(counts) - 1


@pytest.mark.parametrize("protocol", [AGGREGATION, NO_AGGREGATION, SINGLE_TREE, TIMER, HYBRID, TOPIC_AGGREGATION])
def test_nothing_is_delivered_before_it_is_received_and_pending_is_counted_per_node(protocol: str) -> None:
    run = travel(AggregationCase(16, protocol, timer_ticks=20), 3)
    elsewhere = ~np.eye(16, dtype=bool)
    assert (run.delivered >= run.received)[elsewhere].all()
    assert (run.received > run.starts[:, None])[elsewhere].all()
    peaks = run.pending_peaks()
    for node in range(16):
        arrived, gone = (np.delete(times[:, node], node) for times in (run.received, run.delivered))
        ticks = range(int(gone.max()) + 1)
        left = max(int(((arrived <= tick) & (gone > tick)).sum()) for tick in ticks)
        together = max(int(((arrived <= tick) & (gone >= tick)).sum()) for tick in ticks)
        assert max(1, left) <= peaks[node] <= together


def test_a_message_is_in_the_buffer_from_its_arrival_to_its_delivery_also_within_a_tick() -> None:
    """Node 0 gets the messages of 3 and 2, which wait for that of 1, in one tick; then all are delivered."""
    run = travel(AggregationCase(4), 1)
    receptions = np.array([[0, 3, 1, 5], [0, 2, 1, 5], [0, 1, 1, 5], [1, 0, 1, 5], [1, 2, 1, 6]])
    deliveries = np.array([[0, 0, 0], [0, 1, 5], [0, 2, 5], [0, 3, 5], [1, 0, 5], [1, 2, 6]])
    traffic = SimpleNamespace(receptions=receptions.astype(np.int64), deliveries=deliveries.astype(np.int64))
    made = replace(run, traffic=traffic)  # type: ignore[arg-type]
    assert made.pending_peaks().tolist() == [3, 1, 0, 0]


def test_pairs_share_their_start_times_and_the_delays_of_what_leaves_at_the_same_time() -> None:
    together, alone = (
        travel(AggregationCase(16, protocol, paired=True), 5) for protocol in (AGGREGATION, NO_AGGREGATION)
    )
    assert (together.starts == alone.starts).all()
    # The first message of all meets nobody on its way to the neighbours of its source.
    first = int(together.starts.argmin())
    nearest = first ^ 1
    assert together.received[first, nearest] == alone.received[first, nearest]


def test_on_barriers_it_saves_about_what_it_saves_on_vectors_and_riders_save_more() -> None:
    """Pairs that meet the same delays; without holding back VCube-PS sends a packet per message and edge."""
    vectors, barriers, one_by_one, riders = (
        measure(AggregationCase(64, protocol, paired=True), 1)
        for protocol in (AGGREGATION, TOPIC_AGGREGATION, TOPIC, RIDE_ALONG)
    )
    assert one_by_one.packets == one_by_one.answers == 64 * 63
    assert abs(barriers.packets - vectors.packets) < 0.01 * 64 * 63
    assert barriers.bytes_sent < vectors.bytes_sent
    assert barriers.answers < one_by_one.answers
    assert riders.packets < vectors.packets


def test_where_links_keep_their_delays_pairs_are_delivered_at_the_same_time() -> None:
    """Figure 4.5: the text finds deliveries of pairs equal; only output queues can make a difference here."""
    together, alone = (travel(AggregationCase(32, protocol, FIXED), 2) for protocol in (AGGREGATION, NO_AGGREGATION))
    assert together.engine.sent < alone.engine.sent
    assert abs(together.delivered - alone.delivered).mean() < 1


def test_literal_start_times_are_poisson_variables() -> None:
    times = np.array(start_times(AggregationCase(1024, starts=LITERAL), 1))
    assert abs(times.mean() - 1000) < 5
    assert abs(times.std() - 1000**0.5) < 3


def test_what_goes_beyond_is_measured_against_none_pair_by_pair() -> None:
    report = AGGREGATION_BETTER.run(AGGREGATION_BETTER.plan(False, 64, 1), 1, lambda _: None)
    found = {row.label: row.measured.mean for row in report.rows}
    for system in ("aggregation", "ride-along", "hybrid of 10", "timer of 10", "VCube-PS with aggregation"):
        assert found[f"packets against none, {system}, 64 nodes, calibrated"] < 0
    assert found["packets, VCube-PS, 64 nodes, calibrated"] == 64 * 63
    assert all(row.published is None for row in report.rows)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_every_experiment_runs_small_and_says_what_it_found(experiment: Experiment[Any, Any]) -> None:
    report = experiment.run(experiment.plan(False, 32, 1), 1, lambda _: None)
    labels = [row.label for row in report.rows]
    assert len(labels) == len(set(labels)) > 3
    assert all(row.unit for row in report.rows)
    assert sum("calibrated" in label for label in labels) >= sum("literal" in label for label in labels) > 0


def number(value: float) -> Number:
    return Number(value, "%", "somewhere", "something", Interval("a test", absolute=1))


@pytest.mark.parametrize(
    ("calibrated", "literal", "verdicts"),
    [
        (20.5, 3.0, ["fitted", "refuted"]),
        (17.0, 3.0, ["differs", "differs"]),
        (20.5, 0.0, ["fitted", "differs"]),
        (20.5, 17.0, ["fitted", "differs"]),
        (20.5, 19.5, ["fitted", "reproduced"]),
    ],
)
def test_fitted_start_times_are_no_evidence_and_refute_the_published_ones(
    calibrated: float, literal: float, verdicts: list[str]
) -> None:
    rows = table_rows("packets", 256, number(20), Sample((calibrated,) * 3), Sample((literal,) * 3))
    assert [row.verdict for row in rows] == verdicts


def test_only_table_4_1_holds_the_published_start_times_to_a_number() -> None:
    rows = list(side_by_side("packets", number(20), Sample((20.5,) * 3), Sample((3.0,) * 3)))
    assert [row.verdict for row in rows] == ["reproduced", None]


def laws_with(others: dict[str, float], fits: bool) -> ByLaw:
    """A quantity under laws of which all give Table 4.1, or the calibrated one does not."""
    laws = FittingLaws(Results(), 8)
    laws.calibrated_fits = fits
    return ByLaw(laws, {law: Sample((value,) * 3) for law, value in others.items()})


@pytest.mark.parametrize(
    ("calibrated", "others", "fits", "verdicts"),
    [
        (20.5, {"fixed delays": 30.0}, True, ["reproduced", None]),
        (12.0, {"fixed delays": 20.5}, True, ["fitted", None, None]),
        (12.0, {"fixed delays": 14.0}, True, ["refuted", None]),
        (12.0, {}, True, ["differs", None]),
        (12.0, {"fixed delays": 14.0}, False, ["differs", None]),
    ],
)
def test_a_number_is_refuted_only_if_no_law_gives_it_and_table_4_1(
    calibrated: float, others: dict[str, float], fits: bool, verdicts: list[str | None]
) -> None:
    by_law = laws_with(others, fits)
    rows = list(side_by_side("packets", number(20), Sample((calibrated,) * 3), Sample((3.0,) * 3), others=by_law))
    assert [row.verdict for row in rows] == verdicts


def test_laws_are_tried_where_table_4_1_can_be_checked() -> None:
    assert law_cases(64, ("aggregation",)) == []
    for nodes in LAW_NODES:
        for full in (False, True):
            cases = law_cases(nodes, ("aggregation", "no aggregation"), full=full)
            assert len(cases) == len(set(cases)) == 2 * len(laws_tried(nodes, full))
    assert set(laws_tried(1024, False)) < set(laws_tried(1024, True)) == set(laws_tried(256, False)) <= set(LAWS)


def test_delays_that_links_keep_are_the_same_for_every_packet() -> None:
    """The second reading of the delays: packets of one link do not overtake each other."""
    fixed, free = (
        travel(AggregationCase(32, "no aggregation", starts), 1) for starts in ("fixed delays", "calibrated")
    )
    assert fixed.measured().packets == free.measured().packets == 32 * 31
    assert start_times(AggregationCase(32, starts="fixed delays"), 1) == start_times(AggregationCase(32), 1)
    assert max(start_times(AggregationCase(64, starts="window 1000, deviation 75 per link"), 1)) > 430
