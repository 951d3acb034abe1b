"""Counts become figures."""

from __future__ import annotations

import math

import pytest

from antiphon_lab.bench.peers.registry import CONTENDERS
from antiphon_lab.bench.peers.report import (
    Absent,
    Figures,
    Latency,
    PeerReport,
    RoundFigures,
    latency_of,
    percentile,
    ratios_of,
    throughput_of,
)
from antiphon_lab.bench.peers.workload import Workload
from antiphon_lab.reproduction.machine import Machine

ONE_TO_SEVEN = Workload(1, 7, 100)


def a_round(delivered: int, seconds: float = 1.0) -> RoundFigures:
    return RoundFigures.of_counts(100, 7, delivered, seconds, processor_seconds=0.35)


def figures(
    name: str, delivered: int, latencies: list[int] | None = None, workload: Workload = ONE_TO_SEVEN
) -> Figures:
    latency = None if latencies is None else latency_of(2000.0, a_round(700), latencies)
    return Figures.of(name, workload, 0.5, throughput_of([a_round(delivered)]), latency)


def test_a_round_counts_deliveries_and_what_is_missing() -> None:
    one = a_round(690, seconds=2.0)
    assert (one.published, one.delivered, one.lost, one.delivered_per_second) == (100, 690, 10, 345.0)
    assert a_round(700).processor_microseconds_per_delivery == pytest.approx(500.0)
    assert a_round(0).processor_microseconds_per_delivery == pytest.approx(350_000.0)


def test_the_median_round_counts_and_losses_add_up() -> None:
    found = throughput_of([a_round(700, 1.0), a_round(690, 10.0), a_round(699, 0.1)])
    assert (found.delivered_per_second, found.best_delivered_per_second, found.lost) == (700.0, 6990.0, 11)


@pytest.mark.parametrize(("percent", "value"), [(50, 50), (99, 99), (100, 100), (1, 1)])
def test_a_percentile_is_one_of_the_values(percent: int, value: int) -> None:
    assert percentile(range(1, 101), percent) == value


def test_percentiles_of_few_and_of_none() -> None:
    assert (percentile([7], 50), percentile([7], 99), percentile([1, 2, 3], 50)) == (7, 7, 2)
    assert math.isnan(percentile([], 50))


def test_latencies_are_sorted_and_given_in_microseconds() -> None:
    found = latency_of(2000.0, a_round(699), [3000, 1000, 2000])
    assert found == Latency(2000.0, 3, 1, 2.0, 3.0, 3.0)


def test_antiphon_is_divided_by_each_rival_under_the_same_workload() -> None:
    other = Workload(7, 7, 100)
    found = ratios_of([
        figures("antiphon", 600, [4000]),
        figures("nats", 200, [1000]),
        figures("redis", 300),
        figures("zenoh", 100, workload=other),
        Figures.failed("mosquitto", ONE_TO_SEVEN, 0.5, "it fell"),
    ])  # fmt: skip
    assert [(one.rival, one.workload) for one in found] == [("nats", "1-to-7"), ("redis", "1-to-7")]
    assert [one.delivered_per_second for one in found] == pytest.approx([3.0, 2.0])
    assert [(one.p50_latency, one.p99_latency) for one in found] == [(4.0, 4.0), (None, None)]


def test_without_antiphon_there_are_no_ratios() -> None:
    assert ratios_of([figures("nats", 200), figures("redis", 300)]) == []


def test_a_report_says_who_took_part_and_who_did_not() -> None:
    found = PeerReport.of(Machine.here(), [CONTENDERS["tcp"]], [Absent("nats", "not installed")], [figures("tcp", 700)])
    assert [one.name for one in found.contenders] == ["tcp"]
    assert found.contenders[0].published_means
    assert (found.absent[0].name, found.ratios) == ("nats", [])
