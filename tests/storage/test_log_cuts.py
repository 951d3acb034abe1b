"""The files of a log before each statement that it executes: what a process leaves behind that is killed there."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from antiphon.kernel.errors import PeerError
from antiphon.storage import sqlite
from antiphon.storage.log import DurableLog
from antiphon.storage.log_topics import LogRetention
from tests.storage.independent_check import Stored, stored_in
from tests.storage.test_log_crashes import files_of_at_most

MEGABYTE = 1 << 20


class Cuts:
    """Copies the directory of an open log before each statement of its writer."""

    def __init__(self, log: DurableLog, directory: Path, copies: Path) -> None:
        self.made: list[Path] = []
        self._content: list[bytes] = []
        self._directory = directory
        self._copies = copies
        assert log._store.writer is not None
        self._writer = log._store.writer
        self._writer.set_trace_callback(self.cut)

    def cut(self, _: str = "") -> None:
        """Copy the files as they are now, if they differ from the last copy."""
        content = [(self._directory / name).read_bytes() for name in ("log.sqlite", "log.sqlite-wal", "promised")]
        if content == self._content:
            return
        self._content = content
        copy = self._copies / str(len(self.made))
        shutil.copytree(self._directory, copy)
        self.made.append(copy)

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """No file can grow, so no copies are made either; the next statement shows what is left."""
        self._writer.set_trace_callback(None)
        with files_of_at_most(1000):
            yield
        self._writer.set_trace_callback(self.cut)


def contents_of(directory: Path) -> Stored:
    """The contents as the files say and as the log says, which must agree."""
    stored = stored_in(directory)
    with DurableLog.open(directory) as log:
        assert set(log.topics()) == set(stored.topics)
        for name, batches in stored.topics.items():
            read = [] if not batches else log.read(name, batches[0][0], 1 << 30)
            assert [(entry.first_offset, entry.count, entry.batch) for entry in read] == batches
        assert {key: log.get(key) for key in stored.facts} == stored.facts
        log.append("after the kill", 1, 0, b"the log goes on")
    return stored


def test_a_commit_of_any_size_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    """Commits beyond what one statement writes, in bytes and in rows; each has a fact that belongs to its batches."""
    (tmp_path / "copies").mkdir()
    with DurableLog.open(tmp_path / "log") as log:
        cuts = Cuts(log, tmp_path / "log", tmp_path / "copies")
        whole = [{"commit": 0, "one": 0, "two": 0}]
        for number, sizes in enumerate(
            ([5], [3 * MEGABYTE] * 3, [9 * MEGABYTE], [100] * 300, [10, 5 * MEGABYTE, 10]), start=1
        ):
            for place, size in enumerate(sizes):
                log.append(("one", "two")[place % 2], 1 + place % 3, number, bytes(size))
            log.put("commit", str(number).encode())
            log.commit()
            whole.append({"commit": number, "one": log.latest("one"), "two": log.latest("two")})
        cuts.cut()
    found = []
    for copy in cuts.made:
        stored = contents_of(copy)
        ends = {name: sum(batch[1] for batch in stored.topics.get(name, [])) for name in ("one", "two")}
        found.append({"commit": int(stored.facts.get("commit", b"0")), **ends})
    assert all(state in whole for state in found), found
    assert [state for state in whole if state not in found] == []


@pytest.mark.parametrize("seed", range(2))
def test_appending_trimming_releasing_and_a_full_disk_cut_anywhere(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small limits of a statement, so that commits of a few batches take several; a journal that is written anew."""
    monkeypatch.setattr(sqlite, "BYTES_PER_STATEMENT", 20_000)
    monkeypatch.setattr(sqlite, "ROWS_PER_STATEMENT", 7)
    chance = random.Random(seed)
    (tmp_path / "copies").mkdir()
    committed: list[tuple[int, dict[str, int]]] = []
    with DurableLog.open(tmp_path / "log", retention=LogRetention(bytes=30_000)) as log:
        cuts = Cuts(log, tmp_path / "log", tmp_path / "copies")
        for step in range(15):
            for _ in range(chance.choice((1, 3, 12))):
                topic = chance.choice(("one", "two", "three", "journal"))
                log.append(topic, chance.randint(1, 4), step, bytes(chance.choice((10, 3000, 9000))))
            log.put(f"end of {topic}", str(log.latest(topic)).encode())
            if chance.random() < 0.3:
                begin = log.latest("journal")
                log.append("journal", 1, step, b"all that is needed")
                log.put("journal begins", str(begin).encode())
                log.release("journal", begin)
            if chance.random() < 0.2:
                with cuts.full_disk(), pytest.raises(PeerError):
                    log.commit()
            log.commit()
            committed.append((len(cuts.made), {name: size.latest for name, size in log.topics().items()}))
            if chance.random() < 0.5:
                log.trim(step)
        cuts.cut()
    for number, copy in enumerate(cuts.made):
        stored = contents_of(copy)
        ends = {name: batches[-1][0] + batches[-1][1] for name, batches in stored.topics.items() if batches}
        promised = [at_commit for copies, at_commit in committed if copies <= number]
        for name, end in promised[-1].items() if promised else ():
            assert ends[name] >= end, f"topic {name!r} ends at {ends[name]} though {end} was committed"
        for name, value in stored.facts.items():
            offset = int(value)
            topic = "journal" if name == "journal begins" else name.removeprefix("end of ")
            assert offset <= ends[topic], f"{name} is {offset}, but the topic ends at {ends[topic]}"
