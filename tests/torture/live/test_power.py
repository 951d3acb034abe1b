"""A loss of power takes what was not synced, and nothing else; what a log has promised survives it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import antiphon
from antiphon.kernel.errors import PeerError, UsageError
from antiphon.storage.log import DurableLog
from antiphon.torture.live.power import (
    EVERYTHING,
    LATEST,
    SECTOR_BYTES,
    SECTORS,
    WAYS,
    FaultyDisk,
    compile_library,
    compiler,
)

pytestmark = pytest.mark.skipif(
    compiler() is None or sys.platform != "linux", reason="losses of power need Linux and a C compiler"
)

LOG_CHILD = Path(__file__).parents[2] / "storage" / "log_child.py"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_library(tmp_path_factory.mktemp("library"))


@pytest.fixture
def disk(tmp_path: Path, library: Path) -> FaultyDisk:
    (tmp_path / "root").mkdir()
    return FaultyDisk(library, tmp_path / "root", tmp_path / "notes")


def run_and_kill(disk: FaultyDisk, root: Path, program: str) -> None:
    """Run a program with the disk, in its directory, and kill it when it is through."""
    text = f"import os, signal\n{program}\nos.kill(os.getpid(), signal.SIGKILL)"
    environment = {**os.environ, **disk.environment()}
    ended = subprocess.run([sys.executable, "-c", text], env=environment, cwd=root, capture_output=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()


def prepare(root: Path, **files: bytes) -> None:
    """Files that were there before, as on a disk that has been synced."""
    for name, content in files.items():
        (root / name).write_bytes(content)


WRITE_TWICE = """
file = os.open("log", os.O_RDWR)
os.pwrite(file, b"second", 0)
{sync}
os.pwrite(file, b"third and longer", 2)
"""


@pytest.mark.parametrize(
    ("sync", "left"), [("", b"first"), ("os.fsync(file)", b"second"), ("os.fdatasync(file)", b"second")]
)
def test_what_was_synced_stays_and_the_rest_is_gone(disk: FaultyDisk, tmp_path: Path, sync: str, left: bytes) -> None:
    root = tmp_path / "root"
    prepare(root, log=b"first")
    run_and_kill(disk, root, WRITE_TWICE.format(sync=sync))
    assert (root / "log").read_bytes() == b"sethird and longer", "a process that is killed loses nothing"
    loss = disk.lose(random.Random(1), EVERYTHING)
    assert (root / "log").read_bytes() == left
    assert loss.bytes == (16 if sync else 22)


@pytest.mark.parametrize(
    "change",
    [
        "os.ftruncate(os.open('log', os.O_RDWR), 3)",
        "open('log', 'wb').close()",
        "open('log', 'wb').write(b'other')",
        "open('log', 'ab').write(b'more')",
        "os.writev(os.open('log', os.O_WRONLY), [b'ot', b'her and much longer'])",
        "os.pwritev(os.open('log', os.O_WRONLY), [b'ot', b'her'], 9)",
    ],
)
def test_every_way_to_change_a_file_is_taken_back(disk: FaultyDisk, tmp_path: Path, change: str) -> None:
    root = tmp_path / "root"
    prepare(root, log=b"as it was")
    run_and_kill(disk, root, change)
    assert (root / "log").read_bytes() != b"as it was"
    disk.lose(random.Random(1), EVERYTHING)
    assert (root / "log").read_bytes() == b"as it was"


def names_in(root: Path) -> dict[str, bytes | None]:
    """What is in a directory, by name; of directories the name alone."""
    return {path.name: path.read_bytes() if path.is_file() else None for path in root.iterdir()}


CHANGE_NAMES = """
open("new", "w").close()
os.unlink("old")
os.rename("from", "to")
os.mkdir("made")
open("made/inside", "w").close()
{sync}
"""
SYNC_NAMES = "os.fsync(os.open('.', os.O_RDONLY))"


@pytest.mark.parametrize("sync", ["", SYNC_NAMES])
def test_names_stay_when_their_directory_is_synced(disk: FaultyDisk, tmp_path: Path, sync: str) -> None:
    root = tmp_path / "root"
    before, after = {"old": b"old", "from": b"1", "to": b"2"}, {"new": b"", "to": b"1", "made": None}
    prepare(root, **before)
    run_and_kill(disk, root, CHANGE_NAMES.format(sync=sync))
    assert names_in(root) == after
    disk.lose(random.Random(1), EVERYTHING)
    assert names_in(root) == (after if sync else before)


def test_what_one_life_has_not_synced_may_be_lost_in_the_next(disk: FaultyDisk, tmp_path: Path) -> None:
    root = tmp_path / "root"
    prepare(root, log=b"....")
    for place in range(2):
        run_and_kill(disk, root, f"os.pwrite(os.open('log', os.O_RDWR), b'x', {place})")
    disk.lose(random.Random(1), EVERYTHING)
    assert (root / "log").read_bytes() == b"...."


STATES = 5
WRITE_SECTORS = f"""
file = os.open("log", os.O_RDWR)
for state in range(1, {STATES}):
    for place in range(4):
        os.pwrite(file, bytes([state]) * {2 * SECTOR_BYTES}, place * {2 * SECTOR_BYTES})
"""


@pytest.mark.parametrize("way", WAYS)
def test_every_sector_is_left_as_it_was_at_some_moment(disk: FaultyDisk, tmp_path: Path, way: str) -> None:
    """By moments all but one write are whole, and by sectors each is left by itself."""
    root = tmp_path / "root"
    found = []
    for seed in range(12):
        prepare(root, log=bytes(8 * SECTOR_BYTES))
        run_and_kill(disk, root, WRITE_SECTORS)
        disk.lose(random.Random(seed), way)
        content = (root / "log").read_bytes()
        sectors = [set(content[place : place + SECTOR_BYTES]) for place in range(0, len(content), SECTOR_BYTES)]
        assert len(sectors) == 8 and all(len(sector) == 1 for sector in sectors)
        found.append([state for (state,) in sectors])
    if way == EVERYTHING:
        assert found == [[0] * 8] * 12
        return
    assert len({tuple(states) for states in found}) > 6
    descends = [states == sorted(states, reverse=True) and states[0] - states[-1] <= 1 for states in found]
    assert all(descends) == (way == LATEST), found
    torn = [states[place] != states[place + 1] for states in found for place in range(0, 8, 2)]
    assert any(torn) and way in (LATEST, SECTORS)


def run_log_and_kill(disk: FaultyDisk, directory: Path, seed: int, promises: int) -> tuple[int, int, int]:
    """Let a process append to a log until it has promised so much; its last promise."""
    source = str(Path(antiphon.__file__).parent.parent)
    environment = {**os.environ, **disk.environment(), "PYTHONPATH": source}
    command = [sys.executable, str(LOG_CHILD), str(directory), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(promises)]
        child.kill()
        lines += list(child.stdout)
    last = next(line for line in reversed(lines) if line.endswith("\n"))
    commit, room, hall = map(int, last.split()[1:])
    return commit, room, hall


def lacks(directory: Path, promised: tuple[int, int, int]) -> bool:
    """Whether a log has lost something that was promised, or is not readable."""
    try:
        with DurableLog.open(directory) as log:
            log.verify()
            found = (int(log.get("commit") or b"0"), log.latest("room"), log.latest("hall"))
    except PeerError:
        return True
    return any(have < want for have, want in zip(found, promised, strict=True))


def test_a_log_keeps_what_it_has_promised_through_losses_of_power(disk: FaultyDisk, tmp_path: Path) -> None:
    chance = random.Random(4)
    taken = 0
    directory = tmp_path / "root" / "new" / "log"
    for seed in range(9):
        promised = run_log_and_kill(disk, directory, seed, chance.randrange(1, 9))
        taken += disk.lose(chance, None if seed else EVERYTHING).changes
        assert not lacks(directory, promised), seed
    assert taken > 0, "nothing was at stake"


def test_a_disk_that_lies_about_syncs_is_found_out(tmp_path: Path, library: Path) -> None:
    disk = FaultyDisk(library, tmp_path / "root", tmp_path / "notes", lies=True)
    promised = run_log_and_kill(disk, tmp_path / "root", 1, 5)
    disk.lose(random.Random(1), EVERYTHING)
    assert lacks(tmp_path / "root", promised)


SYNC = """
import time
file = os.open("log", os.O_RDWR)
begun = time.monotonic()
os.fsync(file)
os.write(file, b"%.3f" % (time.monotonic() - begun))
"""


def test_a_slow_disk_takes_longer_for_each_sync_until_it_is_well(disk: FaultyDisk, tmp_path: Path) -> None:
    root = tmp_path / "root"
    took_seconds = []
    for more_seconds in (0.0, 3.0, 0.0):
        prepare(root, log=b"")
        disk.slow_down(more_seconds)
        run_and_kill(disk, root, SYNC)
        took_seconds.append(float((root / "log").read_bytes()))
    assert took_seconds[1] >= 3.0 > max(took_seconds[0], took_seconds[2])


def test_without_a_compiler_the_reason_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="need Linux and a C compiler"):
        compile_library(tmp_path)
