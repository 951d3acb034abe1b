"""The durable log when its process is killed, its disk is full, or its last write is torn."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import antiphon
from antiphon.kernel.errors import PeerError
from antiphon.storage.log import DurableLog
from antiphon.storage.log_formats import Entry
from tests.storage.independent_check import stored_in
from tests.storage.log_child import batch_of

CHILD = Path(__file__).with_name("log_child.py")
PLENTY = 1 << 30


def run_and_kill(directory: Path, seed: int, promises: int, seconds: float) -> tuple[int, int, int]:
    """Run the child until it made so many promises and a little longer, kill it, and give its last promise."""
    environment = {**os.environ, "PYTHONPATH": str(Path(antiphon.__file__).parent.parent)}
    child = subprocess.Popen(
        [sys.executable, str(CHILD), str(directory), str(seed)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert child.stdout is not None
    lines = [child.stdout.readline() for _ in range(promises)]
    time.sleep(seconds)  # anywhere in a commit, not always right behind one
    child.send_signal(signal.SIGKILL)
    lines += list(child.stdout)
    child.stdout.close()
    assert child.wait() == -signal.SIGKILL, lines
    commit, room, hall = (
        int(word) for word in next(line for line in reversed(lines) if line.endswith("\n")).split()[1:]
    )
    return commit, room, hall


def everything(log: DurableLog, topic: str) -> list[Entry]:
    """All entries of a topic, which must be the right ones without a gap."""
    entries = log.read(topic, log.earliest(topic), PLENTY)
    offset = log.earliest(topic)
    for entry in entries:
        assert entry.first_offset == offset
        assert entry.batch == batch_of(topic, offset, entry.count)
        offset = entry.next_offset
    assert offset == log.latest(topic)
    return entries


def test_what_was_promised_is_there_after_kill_minus_9_again_and_again(tmp_path: Path) -> None:
    generator = random.Random(11)
    for round_number in range(12):
        promised = run_and_kill(tmp_path / "log", round_number, generator.randrange(1, 9), generator.uniform(0, 0.1))
        stored_in(tmp_path / "log")
        with DurableLog.open(tmp_path / "log") as log:
            commit = int(log.get("commit") or b"0")
            found = (commit, log.latest("room"), log.latest("hall"))
            assert all(have >= want for have, want in zip(found, promised, strict=True)), (found, promised)
            if commit == promised[0]:
                assert found == promised, "facts and batches of one commit belong together"
            for topic in ("room", "hall"):
                everything(log, topic)


@pytest.fixture
def killed(tmp_path: Path) -> tuple[Path, tuple[int, int, int]]:
    """A log with its write-ahead log, as a killed process left it, and what it had promised."""
    return tmp_path / "log", run_and_kill(tmp_path / "log", 5, 4, 0.0)


def test_a_torn_last_write_is_repaired_and_the_log_goes_on(tmp_path: Path) -> None:
    """The promise is taken back to the commit before, as it is when the power fails in the middle of the last one."""
    log = DurableLog.open(tmp_path / "log")
    write_ahead = tmp_path / "log" / "log.sqlite-wal"
    log.append("room", 1, 1, b"kept")
    log.commit()
    mark = (tmp_path / "log" / "promised").read_bytes()
    whole = write_ahead.stat().st_size
    log.append("room", 1, 2, b"torn" * 5000)
    log.commit()
    content = write_ahead.read_bytes()
    for number, end in enumerate([whole, whole + 1, whole + 24, whole + 5000, len(content) - 16384, len(content) - 1]):
        for filler in (b"", bytes(len(content) - end), random.Random(end).randbytes(len(content) - end)):
            copy = tmp_path / f"torn-{number}-{filler[:1].hex()}-{len(filler)}"
            shutil.copytree(tmp_path / "log", copy)
            (copy / "log.sqlite-wal").write_bytes(content[:end] + filler)
            (copy / "promised").write_bytes(mark)
            with DurableLog.open(copy) as torn:
                assert torn.read("room", 0, PLENTY) == [Entry(0, 1, 1, b"kept")]
                assert torn.append("room", 2, 3, b"next") == 1
            with DurableLog.open(copy) as torn:
                assert [entry.batch for entry in torn.read("room", 0, PLENTY)] == [b"kept", b"next"]
    log.close()


# A commit may have been written whole and not yet promised when the process was killed: less than a third of the file.
@pytest.mark.parametrize("keep", [0.0, 0.3, 0.6])
def test_a_write_ahead_log_that_lost_what_was_promised_is_refused_and_left_alone(
    killed: tuple[Path, tuple[int, int, int]], keep: float
) -> None:
    directory, _ = killed
    write_ahead = directory / "log.sqlite-wal"
    os.truncate(write_ahead, int(write_ahead.stat().st_size * keep))
    before = {path.name: path.read_bytes() for path in directory.iterdir() if path.name in ("log.sqlite", "promised")}
    content = write_ahead.read_bytes()
    for _ in range(2):
        with pytest.raises(PeerError, match=r"commit \d+ was made durable but the last whole one is .* restore"):
            DurableLog.open(directory)
    assert write_ahead.read_bytes() == content
    assert {name: (directory / name).read_bytes() for name in before} == before


def test_a_creation_that_was_interrupted_begins_again(tmp_path: Path) -> None:
    DurableLog.open(tmp_path / "log").close()
    (tmp_path / "log" / "promised").unlink()  # made last
    DurableLog.open(tmp_path / "log").close()
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "lock").write_bytes(b"")
    (tmp_path / "half" / "log.sqlite.new").write_bytes(b"half a file")
    with DurableLog.open(tmp_path / "half") as log:
        assert log.append("room", 1, 0, b"") == 0
    assert sorted(path.name for path in (tmp_path / "half").iterdir())[:2] == ["lock", "log.sqlite"]


@contextmanager
def files_of_at_most(byte_count: int) -> Iterator[None]:
    """No file of this process may grow beyond this: the disk is full, as far as it can tell."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (byte_count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_loses_nothing_and_the_next_commit_tries_again(tmp_path: Path) -> None:
    with DurableLog.open(tmp_path / "log") as log:
        log.append("room", 1, 1, b"before")
        log.commit()
        limit = (tmp_path / "log" / "log.sqlite-wal").stat().st_size + 20_000
        for number in range(20):
            log.append("room", 1, 2 + number, bytes([number]) * 7000)
        log.put("fact", b"1")
        with files_of_at_most(limit):
            for attempt in range(3):
                with pytest.raises(PeerError, match="nothing appended is lost"):
                    log.commit()
                log.append("room", 1, 50, b"attempt %d" % attempt)
                assert len(log.read("room", 0, PLENTY)) == 22 + attempt
                assert log.pending_bytes == 140_000 + 9 * (attempt + 1)
        shutil.copytree(tmp_path / "log", tmp_path / "copy")
        assert log.commit() == 23
        assert log.pending_bytes == 0
        everything_read = log.read("room", 0, PLENTY)
    with DurableLog.open(tmp_path / "copy") as log:
        assert [entry.batch for entry in log.read("room", 0, PLENTY)] == [b"before"], "a failed commit leaves nothing"
        assert log.get("fact") is None
    with DurableLog.open(tmp_path / "log") as log:
        assert log.read("room", 0, PLENTY) == everything_read
        assert log.get("fact") == b"1"


def test_closing_on_a_full_disk_says_so_and_keeps_what_was_committed(tmp_path: Path) -> None:
    log = DurableLog.open(tmp_path / "log")
    log.append("room", 1, 1, b"before")
    log.commit()
    log.append("room", 1, 1, bytes(1_000_000))
    with files_of_at_most(100_000), pytest.raises(PeerError, match="log"):
        log.close()
    with DurableLog.open(tmp_path / "log") as log:
        assert [entry.batch for entry in log.read("room", 0, PLENTY)] == [b"before"]


def test_a_mark_that_cannot_be_written_is_written_by_the_next_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with DurableLog.open(tmp_path / "log") as log:
        before = (tmp_path / "log" / "promised").read_bytes()
        log.append("room", 1, 1, b"stored")
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            with pytest.raises(PeerError, match="No space left on device"):
                log.commit()
        assert (log.pending_bytes, log.read("room", 0, PLENTY)) == (0, [Entry(0, 1, 1, b"stored")])
        assert (tmp_path / "log" / "promised").read_bytes() == before
        assert log.commit() == 0
        assert (tmp_path / "log" / "promised").read_bytes() != before


def test_without_sync_nothing_is_promised_before_closing(tmp_path: Path) -> None:
    """A machine that loses power may keep nothing of the write-ahead log; that was the choice."""
    with DurableLog.open(tmp_path / "log", sync=False) as log:
        log.append("room", 1, 1, b"at risk")
        log.commit()
        shutil.copytree(tmp_path / "log", tmp_path / "process died")
        shutil.copytree(tmp_path / "log", tmp_path / "machine died")
    os.truncate(tmp_path / "machine died" / "log.sqlite-wal", 0)
    for name, latest in (("process died", 1), ("machine died", 0), ("log", 1)):
        with DurableLog.open(tmp_path / name) as log:
            assert log.latest("room") == latest, name


def open_and_say(directory: Path, answers: multiprocessing.Queue[str]) -> None:
    """In another process: try to open the log."""
    try:
        DurableLog.open(directory).close()
        answers.put("opened")
    except PeerError as error:
        answers.put(str(error))


def test_a_second_process_is_refused_until_the_first_has_closed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers: multiprocessing.Queue[str] = context.Queue()

    def ask() -> str:
        process = context.Process(target=open_and_say, args=(tmp_path / "log", answers))
        process.start()
        answer = answers.get(timeout=60)
        process.join()
        return answer

    with DurableLog.open(tmp_path / "log"):
        assert f"is open already, in process {os.getpid()}; stop that one" in ask()
        with pytest.raises(PeerError, match="is open already"):
            DurableLog.open(tmp_path / "log")
    assert ask() == "opened"
