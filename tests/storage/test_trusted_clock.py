"""Retention and the search by time, when the clock of the machine is wrong for a while."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from antiphon.storage import disk as disk_module
from antiphon.storage.disk import Disk
from antiphon.storage.group_commit import GroupCommit
from antiphon.storage.log import DurableLog
from antiphon.storage.log_topics import SET_BACKS_AT_MOST, LogRetention
from antiphon.storage.trusted_clock import TrustedClock
from tests.storage.independent_check import stored_in

SECOND = 1_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR
YEAR = 365 * DAY
NOW = 56 * YEAR


def refuse(error: BaseException) -> None:
    raise AssertionError("the commit failed") from error


def clock_at(clock: TrustedClock, clock_us: int, uptime_us: int, age_seconds: float = 86_400.0) -> int:
    clock.observe(clock_us, uptime_us)
    return clock.retention_us(age_seconds)


def test_a_clock_that_goes_on_is_believed() -> None:
    clock = TrustedClock(NOW, NOW, 0)
    assert [clock_at(clock, NOW + step, step) for step in (0, SECOND, HOUR, DAY)] == [
        NOW, NOW + SECOND, NOW + HOUR, NOW + DAY,
    ]  # fmt: skip


def test_a_jump_forward_counts_when_it_has_lasted_for_an_hour() -> None:
    clock = TrustedClock(NOW, NOW, 0)
    assert clock_at(clock, NOW + YEAR, SECOND) == NOW + SECOND
    assert clock_at(clock, NOW + YEAR + HOUR - SECOND, HOUR) == NOW + HOUR
    assert clock_at(clock, NOW + YEAR + HOUR, HOUR + SECOND) == NOW + YEAR + HOUR


def test_a_jump_forward_that_ends_leaves_nothing_behind() -> None:
    clock = TrustedClock(NOW, NOW, 0)
    assert clock_at(clock, NOW + YEAR, SECOND) == NOW + SECOND
    assert clock_at(clock, NOW + 2 * SECOND, 2 * SECOND) == NOW + 2 * SECOND
    assert clock_at(clock, NOW + 2 * HOUR, 2 * HOUR) == NOW + 2 * HOUR


def test_a_jump_counts_sooner_where_less_is_kept() -> None:
    clock = TrustedClock(NOW, NOW, 0)
    assert clock_at(clock, NOW + YEAR, SECOND, 60.0) == NOW + SECOND
    assert clock_at(clock, NOW + YEAR + 60 * SECOND, 61 * SECOND, 60.0) == NOW + YEAR + 60 * SECOND


def test_a_node_that_starts_with_a_wrong_clock_removes_nothing_for_an_hour() -> None:
    clock = TrustedClock(NOW, NOW + 70 * YEAR, 0)
    assert clock_at(clock, NOW + 70 * YEAR + SECOND, SECOND) == NOW + SECOND
    assert clock_at(clock, NOW + 70 * YEAR + HOUR, HOUR) == NOW + 70 * YEAR + HOUR


def test_a_log_with_times_of_the_future_does_not_lead_the_clock() -> None:
    clock = TrustedClock(NOW + 70 * YEAR, NOW, 0)
    assert clock_at(clock, NOW, 0) == NOW
    assert clock.settled_us() is None
    assert clock_at(clock, NOW + HOUR, HOUR) == NOW + HOUR
    assert clock.settled_us() == NOW + HOUR


def jumped_log(directory: Path, age_seconds: float | None = None) -> DurableLog:
    """Ten batches a minute apart, ten while the clock is a century ahead, and ten afterwards."""
    log = DurableLog.open(directory, retention=LogRetention(age_seconds=age_seconds), sync=False)
    for ahead in (0, 100 * YEAR, 0):
        for _ in range(10):
            log.append("room", 1, NOW + ahead + log.latest("room") * 60 * SECOND, b"batch")
    log.commit()
    return log


def test_retention_by_age_goes_on_after_a_jump_of_the_clock(tmp_path: Path) -> None:
    with jumped_log(tmp_path / "log", age_seconds=1800.0) as log:
        settled = NOW + 2 * HOUR
        assert sum(log.trim_steps(settled, settled)) == 10, "these have true times"
        log.append("room", 1, settled, b"later")
        log.commit()
        assert sum(log.trim_steps(settled + 1800 * SECOND, None)) == 0
        assert sum(log.trim_steps(settled + 1801 * SECOND, None)) == 21, "as old as the moment of the correction"
    stored_in(tmp_path / "log")


def test_the_search_by_time_is_right_after_a_jump_of_the_clock(tmp_path: Path) -> None:
    with jumped_log(tmp_path / "log") as log:
        settled = NOW + 2 * HOUR
        assert sum(log.trim_steps(settled, settled)) == 0
        for minute in range(5):
            log.append("room", 1, settled + (minute + 1) * 60 * SECOND, b"later")
        for _ in range(2):
            assert log.offset_at("room", NOW + 5 * 60 * SECOND) == 5
            assert log.offset_at("room", settled) == 10, "the future and what followed it count as this moment"
            assert log.offset_at("room", settled + 1) == 30
            assert log.offset_at("room", settled + 150 * SECOND) == 32
            assert log.offset_at("room", settled + DAY) == 35
            log.commit()
    with DurableLog.open(tmp_path / "log") as log:
        assert log.offset_at("room", settled + 150 * SECOND) == 32, "the correction is in the log"
        assert log.append("room", 1, settled + HOUR, b"later") == 35
        assert log.offset_at("room", settled + HOUR) == 35


def test_a_clock_that_is_behind_for_a_while_changes_nothing(tmp_path: Path) -> None:
    """An hour in 1970 is believed; when the clock is right again, retention goes by the times that were written."""
    with DurableLog.open(tmp_path / "log", retention=LogRetention(age_seconds=86_400.0), sync=False) as log:
        log.append("room", 1, NOW, b"true")
        log.commit()
        assert sum(log.trim_steps(HOUR, HOUR)) == 0
        log.append("room", 1, HOUR + SECOND, b"in 1970")
        log.commit()
        assert sum(log.trim_steps(NOW + HOUR, NOW + HOUR)) == 0, "the first batch is an hour old"
        assert sum(log.trim_steps(NOW + DAY + SECOND, None)) == 2


def test_corrections_are_bounded_and_times_still_never_run_backwards(tmp_path: Path) -> None:
    with DurableLog.open(tmp_path / "log", sync=False) as log:
        for number in range(3 * SET_BACKS_AT_MOST):
            log.append("room", 1, NOW + YEAR, b"ahead")
            log.commit()
            list(log.trim_steps(0, NOW + number * HOUR))
            log.append("room", 1, NOW + number * HOUR + SECOND, b"right")
            log.commit()
        topic = log._topics["room"]
        assert len(topic.set_backs) == SET_BACKS_AT_MOST
        times = [topic.time_at(entry.first_offset, entry.appended_at_us) for entry in log.read("room", 0, 1 << 20)]
        assert times == sorted(times)
        assert times[-1] == NOW + (3 * SET_BACKS_AT_MOST - 1) * HOUR + SECOND


def test_a_node_trims_by_the_time_that_it_believes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock jumps a year ahead and back: nothing is removed that is younger than a day."""
    clock = {"wall": NOW, "uptime": 0}
    monkeypatch.setattr(disk_module, "wall_clock_us", lambda: clock["wall"])
    monkeypatch.setattr(disk_module, "uptime_us", lambda: clock["uptime"])

    async def trim_at(disk: Disk, ahead_us: int, uptime_us: int) -> int:
        clock.update(wall=NOW + ahead_us + uptime_us, uptime=uptime_us)
        disk.trim()
        disk.stop_trimming()
        assert disk.commit is not None and disk.store is not None
        while disk.commit._is_trimming:
            await asyncio.sleep(0.001)
        return disk.store.earliest("room")

    async def run() -> list[int]:
        log = DurableLog.open(tmp_path / "log", retention=LogRetention(age_seconds=86_400.0), sync=False)
        log.append("room", 1, NOW, b"first")
        log.append("room", 1, NOW + HOUR, b"second")
        log.commit()
        disk = Disk()
        disk.open(log, GroupCommit(log, lambda: None, refuse), True)
        found = [await trim_at(disk, 0, 0), await trim_at(disk, YEAR, HOUR), await trim_at(disk, YEAR, 2 * HOUR - 1)]
        found += [await trim_at(disk, 0, 2 * HOUR), await trim_at(disk, 0, DAY + SECOND)]
        await disk.close()
        return found

    assert asyncio.run(run()) == [0, 0, 0, 0, 1]
