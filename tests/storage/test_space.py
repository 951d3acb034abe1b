"""Retention gives the space of removed batches back to the file system, while publishers go on."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sqlite3
from pathlib import Path

import pytest

from antiphon.storage import group_commit, space
from antiphon.storage.group_commit import GroupCommit
from antiphon.storage.log import DurableLog
from antiphon.storage.log_topics import LogRetention
from antiphon.storage.sqlite import Store
from tests.storage.independent_check import stored_in

MEGABYTE = 100_000
"""A tenth of one: everything is smaller here, the spare space too, so that little is written."""

KEPT = LogRetention(bytes=MEGABYTE)
BATCH = bytes(range(256)) * 40


@pytest.fixture(autouse=True)
def little_spare_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "SPARE_BYTES", 16 * MEGABYTE)
    monkeypatch.setattr(space, "STEP_PAGES", 25)


def refuse(error: BaseException) -> None:
    raise AssertionError("the commit failed") from error


def fill(log: DurableLog, byte_count: int, topic: str = "room") -> None:
    for number in range(byte_count // len(BATCH)):
        log.append(topic, 1, number, BATCH)
        if number % 40 == 39:
            log.commit()
    log.commit()


def bytes_on_disk(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def forget_how_to_shrink(directory: Path) -> None:
    """Make the file what an earlier version would have made: without incremental vacuum."""
    connection = sqlite3.connect(directory / "log.sqlite", isolation_level=None)
    connection.execute("pragma auto_vacuum=none")
    connection.execute("vacuum")
    assert connection.execute("pragma auto_vacuum").fetchone() == (0,)
    connection.close()


def test_removed_batches_take_no_space(tmp_path: Path) -> None:
    with DurableLog.open(tmp_path / "log", retention=KEPT, sync=False) as log:
        fill(log, 80 * MEGABYTE)
        assert bytes_on_disk(tmp_path / "log") > 80 * MEGABYTE
        log.trim(0)
        left = bytes_on_disk(tmp_path / "log")
        assert left < 12 * MEGABYTE, "half of the spare space, and what is kept"
        before = log.read("room", log.earliest("room"), 1 << 30)
        fill(log, 5 * MEGABYTE)
        assert log.read("room", before[0].first_offset, 1 << 30)[: len(before)] == before
    stored_in(tmp_path / "log")


def test_a_log_in_balance_is_not_moved_around(tmp_path: Path) -> None:
    with DurableLog.open(tmp_path / "log", retention=KEPT, sync=False) as log:
        fill(log, 10 * MEGABYTE)
        log.trim(0)
        assert log._space.give_back() is False, "less than the spare space is free: the next batches take it"
        pages = log._store.pages()[1]
        for _ in range(3):
            fill(log, 8 * MEGABYTE)
            log.trim(0)
        assert log._store.pages()[1] < 1.2 * pages


def test_a_process_that_dies_between_two_steps_leaves_a_whole_log(tmp_path: Path) -> None:
    with DurableLog.open(tmp_path / "log", retention=KEPT, sync=False) as log:
        fill(log, 40 * MEGABYTE)
        fill(log, MEGABYTE // 2, "hall")
        kept = None
        for number, _ in enumerate(log.trim_steps(0)):
            if number % 4:
                continue
            copy = tmp_path / f"copy {number}"
            shutil.copytree(tmp_path / "log", copy)
            found = stored_in(copy)
            kept = found.topics["hall"] if kept is None else kept
            assert found.topics["hall"] == kept
            shutil.rmtree(copy)
        assert number > 8, "it takes several steps, or this test looks at nothing"


def test_a_small_log_of_an_earlier_version_is_rewritten_once(tmp_path: Path) -> None:
    with DurableLog.open(tmp_path / "log", sync=False) as log:
        fill(log, 40 * MEGABYTE)
    forget_how_to_shrink(tmp_path / "log")
    with DurableLog.open(tmp_path / "log", retention=KEPT, sync=False) as log:
        log.trim(0)
        assert bytes_on_disk(tmp_path / "log") < 4 * MEGABYTE
        fill(log, 40 * MEGABYTE)
        log.trim(0)
        assert bytes_on_disk(tmp_path / "log") < 12 * MEGABYTE
    stored_in(tmp_path / "log")


def test_a_large_log_of_an_earlier_version_names_the_command(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space, "REWRITTEN_BYTES_AT_MOST", 0)
    with DurableLog.open(tmp_path / "log", sync=False) as log:
        fill(log, 40 * MEGABYTE)
    forget_how_to_shrink(tmp_path / "log")
    with caplog.at_level(logging.WARNING, "antiphon"), DurableLog.open(tmp_path / "log", retention=KEPT) as log:
        log.trim(0)
        log.trim(0)
    (record,) = caplog.records
    assert f"antiphon log compact {tmp_path / 'log'}" in record.__dict__["values"]["todo"]


def test_a_reader_in_the_middle_of_a_range_keeps_what_it_reads(tmp_path: Path) -> None:
    with DurableLog.open(tmp_path / "log", retention=KEPT, sync=False) as log:
        fill(log, 40 * MEGABYTE)
        reader = log.connect_reader()
        cursor = reader.execute("select body from item where key > 0 order by key")
        assert cursor.fetchone() == (BATCH,)
        log.trim(0)
        assert all(body == BATCH for (body,) in cursor), "its view of the file is the one that it began with"
        reader.close()
        fill(log, MEGABYTE)
        log.trim(0)
    assert bytes_on_disk(tmp_path / "log") < 14 * MEGABYTE


def test_commits_do_not_wait_for_all_of_the_trimming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "TRIM_STEP_SECONDS", 0.0)
    given: list[bool] = []
    real = space.Space.give_back

    def counted(self: space.Space) -> bool:
        given.append(real(self))
        return given[-1]

    monkeypatch.setattr(space.Space, "give_back", counted)

    async def run() -> list[int]:
        log = DurableLog.open(tmp_path / "log", retention=KEPT, sync=False)
        fill(log, 60 * MEGABYTE)
        commit = GroupCommit(log, lambda: None, refuse)
        commit.trim(0, None)
        seen = []
        for _ in range(5):
            log.append("room", 1, 0, b"new")
            await commit.until_committed()
            seen.append(len(given))
        while commit._is_trimming:
            await asyncio.sleep(0.01)
        await commit.close()
        return seen

    seen = asyncio.run(run())
    assert seen[-1] < len(given), "five commits were made before the last step"


def test_trimming_that_is_under_way_ends_with_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "TRIM_STEP_SECONDS", 0.0)

    async def run() -> None:
        log = DurableLog.open(tmp_path / "log", retention=KEPT, sync=False)
        fill(log, 60 * MEGABYTE)
        commit = GroupCommit(log, lambda: None, refuse)
        commit.trim(0, None)
        await commit.close()

    asyncio.run(run())
    stored_in(tmp_path / "log")
    store = Store(tmp_path / "log")
    store.open_for_reading()
    store.close()
