"""The reference workload: its check figures, on our engine and on SimPy."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from antiphon.kernel.errors import UsageError
from antiphon_lab.bench.reference import (
    ReferenceMeasurement,
    peak_memory_bytes,
    run_reference,
    run_whole_protocol,
    start_ticks,
)
from antiphon_lab.bench.simpy_rival import run_rival


def figures(measurement: ReferenceMeasurement) -> tuple[int, int, int, int]:
    return measurement.events, measurement.sum_latency, measurement.max_latency, measurement.end_time


def test_the_check_figures() -> None:
    measurement = run_reference(256, 1)
    assert figures(measurement) == (130_816, 27_744_465, 865, 2657)
    assert round(measurement.mean_latency, 4) == 425.0071
    assert (measurement.held_total, measurement.held_peak, measurement.publishers) == (None, None, None)


def test_the_check_figures_in_causal_order() -> None:
    measurement = run_reference(256, 1, causal=True)
    assert (measurement.events, measurement.sum_latency) == (130_816, 27_746_018)
    assert (measurement.held_total, measurement.held_peak) == (539, 4)


def test_the_whole_protocol_delivers_when_vector_clocks_do() -> None:
    """Barriers name less than vectors do, and mean the same."""
    for nodes, publishers in ((256, None), (100, 7)):
        vectors, barriers = run_reference(nodes, 1, True, publishers), run_whole_protocol(nodes, 1, publishers)
        assert figures(barriers) == figures(vectors)
        assert barriers.publishers == publishers
        assert (barriers.held_total, barriers.held_peak) == (vectors.held_total, vectors.held_peak)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("nodes", [2, 16, 64])
def test_simpy_does_the_same(nodes: int, seed: int) -> None:
    ours, theirs = run_reference(nodes, seed), run_rival(nodes, seed)
    assert figures(ours) == figures(theirs)
    assert ours.mean_latency == theirs.mean_latency
    assert ours.events == nodes + 2 * nodes * (nodes - 1)


def test_starts_come_from_the_finaliser_of_splitmix64() -> None:
    """The first output of SplitMix64 with seed 0 is 0xE220A8397B1DCDAF, as its authors publish it."""
    assert start_ticks(0, 0) == (0xE220A8397B1DCDAF >> 11) % 1001
    starts = [start_ticks(1, identifier) for identifier in range(2000)]
    assert (min(starts), max(starts)) == (0, 1000)


def test_fewer_publishers_and_any_number_of_nodes() -> None:
    measurement = run_reference(100, 1, publishers=1)
    assert measurement.events == 1 + 2 * 99
    assert measurement.publishers == 1
    assert run_reference(100, 1, publishers=100).events == 100 + 2 * 100 * 99


def test_rates_and_means_follow_from_the_counts() -> None:
    measurement = ReferenceMeasurement.of_run(4, 1, 28, 12, 2400, 300, 900, (10.0, 10.5, 12.5))
    assert (measurement.setup_seconds, measurement.seconds) == (0.5, 2.0)
    assert (measurement.events_per_second, measurement.mean_latency) == (14.0, 200.0)


def test_what_does_not_apply_is_left_out() -> None:
    assert list(msgspec.to_builtins(run_reference(4, 1))) == [
        "nodes",
        "seed",
        "events",
        "seconds",
        "events_per_second",
        "sum_latency",
        "mean_latency",
        "max_latency",
        "end_time",
        "peak_memory_bytes",
        "setup_seconds",
    ]


@pytest.mark.parametrize(
    ("nodes", "publishers", "complaint"),
    [
        (1, None, "needs at least 2 nodes, not 1; raise --nodes"),
        (8, 0, "from 1 to 8 of 8 nodes can publish, not 0; change --publishers"),
        (8, 9, "from 1 to 8 of 8 nodes can publish, not 9; change --publishers"),
    ],
)
def test_sizes_without_a_meaning_are_refused(nodes: int, publishers: int | None, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        run_reference(nodes, 1, publishers=publishers)


def test_simpy_knows_full_cubes_only() -> None:
    with pytest.raises(UsageError, match="power of two of nodes, not 100; change --nodes"):
        run_rival(100, 1)


def test_peak_memory_is_at_least_what_is_used_now() -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) if Path("/proc").exists() else 1
    before = peak_memory_bytes()
    assert before >= pages * 4096
    block = bytearray(b"x") * (before // 4)
    assert peak_memory_bytes() >= before
    assert len(block) > 0
