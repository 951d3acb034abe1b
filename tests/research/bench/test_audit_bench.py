"""The benchmark of audits: traces of the size that was asked for, and memory of all processes together."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from antiphon.cli import main as command
from antiphon.kernel.errors import PeerError
from antiphon.trace.store import read_trace
from antiphon_lab.bench import audit_bench
from antiphon_lab.bench.audit_bench import NODES, AuditMeasurement, Watch, trace_of, watched
from antiphon_lab.cli import bench_audit

MIB = 1 << 20
HOLDER = """
import subprocess, sys, time
held = bytearray(60 << 20)
child = subprocess.run([sys.executable, "-c", "import time; held = bytearray(60 << 20); time.sleep(1)"])
print("done")
"""


def test_memory_is_that_of_a_process_and_its_children() -> None:
    """60 MiB in each of the two."""
    said, watch = watched([sys.executable, "-c", HOLDER])
    assert said == b"done\n"
    assert watch.seconds > 0
    assert watch.processor_seconds > 0
    assert 120 * MIB < watch.peak_memory_bytes < 400 * MIB
    nobody = Watch()
    nobody.look(1 << 30)
    assert nobody.peak_memory_bytes == 0, "there is no such process"


def test_a_command_that_fails_is_a_clear_sentence() -> None:
    program = "import sys; sys.exit('antiphon: there is no room; free some')"
    with pytest.raises(PeerError, match="the audit ended with code 1: there is no room; free some"):
        watched([sys.executable, "-c", program])


@pytest.mark.parametrize("topics", [1, 5])
def test_a_trace_has_as_many_deliveries_as_were_asked_for(tmp_path: Path, topics: int) -> None:
    path = trace_of(20 * NODES, topics, tmp_path)
    table = read_trace(path)
    assert table["event"].to_pylist().count("deliver") == 20 * NODES
    assert len(set(table["topic"].to_pylist()) - {None}) == topics
    written = path.stat().st_mtime_ns
    assert trace_of(20 * NODES, topics, tmp_path).stat().st_mtime_ns == written, "it is not made again"


def measurement(deliveries: int, seconds: float) -> AuditMeasurement:
    return AuditMeasurement(
        topics=1,
        deliveries=deliveries,
        trace_rows=deliveries + 10,
        trace_bytes=100,
        seconds=seconds,
        elapsed_seconds=seconds + 9,
        processor_seconds=seconds * 2,
        peak_memory_bytes=3 << 30,
    )


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    measured = iter([measurement(1_000_000, 10.0), measurement(2_000_000, 19.0)])
    monkeypatch.setattr(audit_bench, "trace_of", lambda *asked: asked[-1])
    monkeypatch.setattr(audit_bench, "measure_audit", lambda *_: next(measured))
    monkeypatch.setattr(sys, "argv", ["antiphon", "bench", "audit", *arguments])
    with pytest.raises(SystemExit) as stopped:
        command.main()
    return stopped.value.code


def test_the_table_shows_the_curve(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "--deliveries", "1000000,2000000") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "100,000" in lines[1] and "19.0 s" in lines[1] and "3.00 GiB" in lines[1]
    assert "1.90" in lines[2], "twice the trace took 1.9 times as long"
    assert lines[2].count("#") == bench_audit.BAR
    assert lines[1].count("#") == round(bench_audit.BAR * 10 / 19)


def test_the_result_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "--deliveries", "1000000,2000000", "--json") == 0
    found = msgspec.json.decode(capsys.readouterr().out)
    assert [one["deliveries"] for one in found["measurements"]] == [1_000_000, 2_000_000]


def test_sizes_that_are_none_are_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "--deliveries", "many") == 2
    assert "expected numbers such as" in capsys.readouterr().err
