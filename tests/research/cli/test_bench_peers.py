"""``antiphon bench peers`` as people and programs call it; the rivals need not be installed."""

from __future__ import annotations

import json

import pytest

from antiphon_lab.bench.peers.contender import Contender
from antiphon_lab.bench.peers.measure import MeasurePlan
from antiphon_lab.bench.peers.registry import CONTENDERS
from antiphon_lab.bench.peers.report import Figures, Ratio, RoundFigures, latency_of, throughput_of
from antiphon_lab.bench.peers.workload import Workload
from antiphon_lab.cli import bench_peers
from antiphon_lab.cli.bench_peers import cells, in_comparison
from tests.cli.conftest import Command

QUICK = ("--workload", "1-to-2", "--payload", "64", "--messages", "500", "--rounds", "1", "--no-latency")


def pretend(speeds: dict[str, int], seen: list[tuple[str, str, int, MeasurePlan]]) -> object:
    """In the place of a measurement, which takes its time."""

    def measured(contender: Contender, workload: Workload, plan: MeasurePlan) -> Figures:
        seen.append((contender.name, workload.name, workload.payload_bytes, plan))
        if contender.name not in speeds:
            return Figures.failed(contender.name, workload, 0.5, "it fell")
        one = RoundFigures.of_counts(100, 1, speeds[contender.name], 1.0, 0.001)
        return Figures.of(contender.name, workload, 0.5, throughput_of([one]), latency_of(2000.0, one, [3000]))

    return measured


@pytest.fixture
def everybody_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for contender in CONTENDERS.values():
        monkeypatch.setattr(type(contender), "missing", lambda _: "")


def test_a_real_run_for_programs(command: Command) -> None:
    called = command("bench", "peers", "--only", "tcp", *QUICK, "--json")
    found = json.loads(called.said)
    assert called.code == 0
    assert list(found) == ["antiphon", "machine", "contenders", "absent", "figures", "ratios"]
    (one,) = found["figures"]
    assert (one["contender"], one["workload"], one["payload_bytes"]) == ("tcp", "1-to-2", 64)
    (only_round,) = one["throughput"]["rounds"]
    assert (only_round["published"], only_round["delivered"], only_round["lost"]) == (500, 1000, 0)
    assert "latency" not in one
    assert found["ratios"] == []
    assert "bench peers: 1/1 tcp, 1-to-2, 64 bytes" in called.complained


@pytest.mark.usefixtures("everybody_is_here")
def test_a_person_reads_a_table_with_ratios(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_peers, "measure", pretend({"antiphon": 90, "nats": 30}, []))
    called = command("bench", "peers", "--only", "antiphon,nats", "--workload", "1-to-1", "--payload", "100")
    lines = [" ".join(line.split()) for line in called.said.splitlines()]
    assert called.code == 0
    assert lines[0] == "workload bytes deliveries/s lost CPU µs each p50 µs p99 µs Antiphon is"
    assert lines[1] == "1-to-1 100 Antiphon, causal order 90 20 11.1 3 3"
    assert lines[2] == "1-to-1 100 NATS (nats-py) 30 140 33.3 3 3 3.0 times as fast"
    assert "limits for slow subscribers raised" in called.said


@pytest.mark.usefixtures("everybody_is_here")
def test_contenders_take_turns_under_every_workload_and_payload(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str, int, MeasurePlan]] = []
    monkeypatch.setattr(bench_peers, "measure", pretend(dict.fromkeys(CONTENDERS, 100), seen))
    assert command("bench", "peers", "--json", "--seconds", "1.5", "--messages", "7").code == 0
    assert [name for name, *_ in seen[: len(CONTENDERS)]] == list(CONTENDERS)
    assert list(dict.fromkeys((workload, size) for _, workload, size, _ in seen)) == [
        (workload, size) for size in (100, 1024) for workload in ("1-to-1", "1-to-7", "7-to-7")
    ]
    assert {plan for *_, plan in seen} == {MeasurePlan(7, 1.5, 3, 1.5)}


@pytest.mark.usefixtures("everybody_is_here")
def test_who_fails_does_not_stop_the_others_but_the_command_fails(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_peers, "measure", pretend({"nats": 30}, []))
    called = command("bench", "peers", "--only", "redis,nats", "--workload", "1-to-1", "--payload", "100", "--json")
    found = json.loads(called.said)["figures"]
    assert called.code == 1
    assert [one.get("error") for one in found] == ["it fell", None]
    assert "1 of 2 runs failed, the first being redis 1-to-1: it fell" in called.complained


def test_who_is_not_installed_is_named_and_left_out(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon_lab.bench.peers.contender.find_spec", lambda _: None)
    monkeypatch.setattr("antiphon_lab.bench.peers.contender.shutil.which", lambda *_, **__: None)
    called = command("bench", "peers", "--only", "nats,zeromq,tcp", *QUICK, "--json")
    found = json.loads(called.said)
    assert called.code == 0
    assert [one["name"] for one in found["contenders"]] == ["tcp"]
    install = "pip install 'antiphon-lab[bench-peers]'"
    assert found["absent"] == [
        {"name": "nats", "reason": f"not installed; run `{install}` and `apt-get install nats-server`"},
        {"name": "zeromq", "reason": f"not installed; run `{install}`"},
    ]
    assert "NATS (nats-py): not installed" in called.complained


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--only", "kafka"], "there is no contender named 'kafka'; choose among antiphon, zeromq"),
        (["--workload", "1:7"], "a workload is written like 1-to-7"),
        (["--payload", "big"], "--payload takes numbers of bytes"),
        (["--payload", "8"], "a payload has 32 to"),
        (["--messages", "0"], "--messages must be more than 0, not 0"),
        (["--seconds", "-1"], "--seconds must be more than 0"),
        (["--seconds", "nan"], "--seconds must be more than 0"),
        (["--rounds", "0"], "--rounds must be more than 0"),
    ],
)
def test_misuse_is_explained(command: Command, arguments: list[str], complaint: str) -> None:
    called = command("bench", "peers", *arguments)
    assert (called.code, called.said) == (2, "")
    assert complaint in called.complained


def test_a_row_without_latency_and_a_row_without_figures() -> None:
    one = RoundFigures.of_counts(1000, 2, 2000, 0.5, 0.004)
    workload = Workload(1, 2, 64)
    assert cells(Figures.of("tcp", workload, 0.1, throughput_of([one]), None)) == ["4,000", "0", "2.0", "", ""]
    assert cells(Figures.failed("tcp", workload, 0.1, "it fell")) == ["failed", "", "", "", ""]
    assert in_comparison(None) == ""
    assert in_comparison(Ratio("nats", "1-to-1", 100, 3.14)) == "3.1 times as fast"
