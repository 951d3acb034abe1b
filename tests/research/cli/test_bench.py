"""``antiphon bench simulator`` as people and programs call it."""

from __future__ import annotations

import json
import sys

import msgspec
import pytest

from antiphon.kernel.errors import PeerError, UsageError
from antiphon_lab.bench.reference import ReferenceMeasurement
from antiphon_lab.cli import bench
from antiphon_lab.cli.bench import Line, default_lines, show_ratio
from tests.cli.conftest import Command

KEYS = [
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


def test_the_reference_workload_for_programs(command: Command) -> None:
    called = command("bench", "simulator", "--nodes", "256", "--seed", "1", "--json")
    found = json.loads(called.said)
    assert (called.code, called.complained, list(found)) == (0, "", KEYS)
    assert (found["nodes"], found["seed"], found["events"]) == (256, 1, 130_816)
    assert (found["sum_latency"], found["max_latency"], found["end_time"]) == (27_744_465, 865, 2657)
    assert found["events_per_second"] == pytest.approx(130_816 / found["seconds"])


def test_the_causal_variant_for_programs(command: Command) -> None:
    found = json.loads(command("bench", "simulator", "--nodes", "256", "--seed", "1", "--causal", "--json").said)
    assert list(found) == [*KEYS, "held_total", "held_peak"]
    assert (found["sum_latency"], found["held_total"], found["held_peak"]) == (27_746_018, 539, 4)


def test_the_whole_protocol_for_programs(command: Command) -> None:
    found = json.loads(
        command("bench", "simulator", "--nodes", "256", "--seed", "1", "--whole-protocol", "--json").said
    )
    assert list(found) == [*KEYS, "held_total", "held_peak"]
    assert (found["events"], found["sum_latency"]) == (130_816, 27_746_018)


def test_aggregation_for_programs(command: Command) -> None:
    """Table 4.1: fewer packets than the messages that are received in them."""
    found = json.loads(command("bench", "simulator", "--nodes", "64", "--seed", "1", "--aggregation", "--json").said)
    assert list(found) == [*KEYS, "held_total", "held_peak", "receptions", "receptions_per_second", "packets"]
    assert found["receptions"] == 64 * 63
    assert found["packets"] < found["receptions"]
    called = command("bench", "simulator", "--aggregation", "--causal", "--json")
    assert (called.code, "use --aggregation alone" in called.complained) == (2, True)


def test_simpy_for_programs(command: Command) -> None:
    ours, theirs = (
        json.loads(command("bench", "simulator", "--nodes", "64", "--json", *rival).said)
        for rival in ((), ("--rival",))
    )
    assert list(theirs) == KEYS
    same = ("events", "sum_latency", "mean_latency", "max_latency", "end_time")
    assert [ours[key] for key in same] == [theirs[key] for key in same]


def test_a_person_reads_a_table_and_the_ratio(command: Command) -> None:
    called = command("bench", "simulator", "--nodes", "64")
    lines = [" ".join(line.split()) for line in called.said.splitlines()]
    assert called.code == 0
    assert lines[0] == "nodes events events/s seconds set-up peak memory mean latency"
    assert lines[1].startswith("everybody broadcasts 64 8,128 ")
    assert lines[2].startswith("SimPy 64 8,128 ")
    assert lines[1].split()[-1] == lines[2].split()[-1]
    assert lines[3].endswith("times SimPy at 64 nodes, with the same sum of latencies.")
    assert "bench simulator: 2/2 SimPy, 64 nodes" in called.complained


def test_the_causal_variant_is_compared_with_simpy_by_the_plain_one(command: Command) -> None:
    called = command("bench", "simulator", "--nodes", "32", "--causal")
    lines = [" ".join(line.split()) for line in called.said.splitlines()]
    assert [line.split(" 32 ")[0] for line in lines[1:4]] == [
        "everybody broadcasts, causal order",
        "SimPy",
        "everybody broadcasts",
    ]


def test_the_whole_protocol_stands_beside_the_plain_broadcast(command: Command) -> None:
    called = command("bench", "simulator", "--nodes", "32", "--whole-protocol")
    lines = [" ".join(line.split()) for line in called.said.splitlines()]
    assert [line.split(" 32 ")[0] for line in lines[1:4]] == [
        "VCube-PS, everybody publishes",
        "SimPy",
        "everybody broadcasts",
    ]


def test_sizes_that_simpy_cannot_do_are_not_compared(command: Command) -> None:
    called = command("bench", "simulator", "--nodes", "100", "--publishers", "1")
    assert "one broadcast" in called.said
    assert "SimPy is not compared" in called.said


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--nodes", "1", "--json"), "needs at least 2 nodes, not 1; raise --nodes"),
        (("--nodes", "1"), "needs at least 2 nodes, not 1; raise --nodes"),
        (("--rival", "--causal", "--json"), "the SimPy program knows neither --causal nor --publishers"),
        (("--whole-protocol", "--causal", "--json"), "the whole protocol has an order of its own"),
        (("--whole-protocol", "--nodes", "1", "--json"), "needs at least 2 nodes, not 1; raise --nodes"),
        (("--nodes", "8", "--publishers", "9", "--json"), "from 1 to 8 of 8 nodes can publish, not 9"),
    ],
)
def test_misuse(command: Command, arguments: tuple[str, ...], complaint: str) -> None:
    called = command("bench", "simulator", *arguments)
    assert (called.code, called.said) == (2, "")
    assert complaint in called.complained


def test_the_default_table() -> None:
    assert default_lines(large=False) == [
        Line(256),
        Line(1024),
        Line(2048),
        Line(1024, causal=True),
        Line(1024, whole_protocol=True),
        Line(1024, aggregation=True),
        Line(100_000, publishers=1),
    ]
    assert set(default_lines(large=True)) - set(default_lines(large=False)) == {
        Line(4096),
        Line(4096, whole_protocol=True),
        Line(1_000_000, publishers=1),
    }


def test_a_line_is_run_in_a_process_of_its_own_by_the_command_it_names() -> None:
    assert Line(64, causal=True, publishers=3).arguments(9) == [
        "bench", "simulator", "--json", "--nodes", "64", "--seed", "9", "--causal", "--publishers", "3",
    ]  # fmt: skip
    assert Line(64, whole_protocol=True).arguments(2)[-1] == "--whole-protocol"
    ballast = bytearray(b"x") * 300_000_000
    apart = bench.measure_apart(Line(16), 1)
    assert apart.events == 16 + 2 * 16 * 15
    # What this process has is no part of what the other had.
    assert apart.peak_memory_bytes < len(ballast)


def test_a_run_that_dies_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(PeerError, match="the run of 16 nodes ended with code 1: it may have run out of memory"):
        bench.measure_apart(Line(16), 1)


def test_no_ratio_is_printed_of_different_work() -> None:
    ours = ReferenceMeasurement.of_run(4, 1, 28, 12, 2400, 300, 900, (0.0, 0.5, 2.5))
    theirs = msgspec.structs.replace(ours, sum_latency=2401)
    with pytest.raises(PeerError, match="disagree about the workload at 4 nodes"):
        show_ratio(ours, theirs)


def test_simpy_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="SimPy is not installed; run `pip install simpy`"):
        bench.measure(Line(8, rival=True), 1)
