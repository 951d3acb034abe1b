"""``antiphon doctor`` finds what is wrong with a machine, and says what to do."""

from __future__ import annotations

import json
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from antiphon.cli import doctor
from antiphon.kernel.errors import UsageError
from antiphon.node.local_cluster import free_addresses
from tests.cli.conftest import Command


@pytest.fixture
def taken() -> Iterator[str]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def by_check(found: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {finding["check"]: finding for finding in found["findings"]}


def test_a_machine_that_is_ready(command: Command, tmp_path: Path) -> None:
    called = command("doctor", "--data", str(tmp_path / "not" / "there"), "--listen", *free_addresses(1), "--json")
    assert called.code == 0
    found = json.loads(called.said)
    assert found["is_ready"]
    checks = by_check(found)
    assert checks.keys() == {
        "python", "compiled", "packages", "spark", "port", "disk space", "disk sync", "clock", "open files",
    }  # fmt: skip
    assert str(tmp_path) in checks["disk space"]["found"]
    assert list(tmp_path.iterdir()) == []


def test_a_port_in_use_is_a_problem(command: Command, taken: str, tmp_path: Path) -> None:
    called = command("doctor", "--data", str(tmp_path), "--listen", taken)
    assert called.code == 1
    assert f"a node cannot listen on {taken}" in called.said
    assert "choose another address" in called.said
    assert "not ready" in called.said


@pytest.mark.parametrize("address", ["7400", "host:", ":7400", "host:name"])
def test_an_address_without_host_or_port_is_misuse(address: str) -> None:
    with pytest.raises(UsageError, match="HOST:PORT"):
        list(doctor.check_port(address))


def test_a_directory_that_cannot_be_written_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    # Root may write everywhere but here.
    (finding,) = doctor.check_disk(Path("/proc/self"))
    assert finding.state == doctor.PROBLEM
    assert "cannot write to /proc/self" in finding.found


def test_a_disk_without_room_and_with_slow_syncs_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "LITTLE_DISK_BYTES", 1 << 60)
    monkeypatch.setattr(doctor, "SLOW_SYNC_MS", 0.0)
    space, sync = doctor.check_disk(tmp_path)
    assert (space.state, sync.state) == (doctor.PROBLEM, doctor.HINT)
    assert "full disk" in space.advice
    assert "faster disk" in sync.advice


def test_a_package_of_another_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "requires", lambda _: ["msgspec>=99", "no-such-package>=1", "pandas>=99; extra == 'x'"])
    missing, wrong = doctor.check_packages()
    assert "no-such-package" in missing.found
    assert "msgspec" in wrong.found and "pandas" not in wrong.found
    assert missing.state == wrong.state == doctor.PROBLEM


def test_a_clock_that_jumps_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([100.0, 103.0])
    monkeypatch.setattr("antiphon.cli.doctor.time.time", lambda: next(times))
    (finding,) = doctor.check_clock()
    assert finding.state == doctor.PROBLEM
    assert "jumped by 2" in finding.found


def test_few_open_files_are_told_with_the_command_that_helps() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(256, len(os.listdir("/proc/self/fd")) + 64), before[1]))
    try:
        (finding,) = doctor.check_limits()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert finding.state == doctor.HINT
    assert "ulimit -n" in finding.advice
