"""The durable log: offsets, times, facts, retention, bounds, and that threads do not wait for each other."""

from __future__ import annotations

import random
import resource
import shutil
import threading
from pathlib import Path

import pytest

from antiphon.kernel.errors import PeerError, UsageError
from antiphon.storage import log_topics as topic_module
from antiphon.storage.log import DurableLog
from antiphon.storage.log_formats import Entry, OffsetRemovedError
from antiphon.storage.log_topics import MAXIMAL_BATCH_BYTES, LogRetention, TopicSize
from antiphon.storage.sqlite import Row

SECOND = 1_000_000
PLENTY = 1 << 30


def offsets(entries: list[Entry]) -> list[int]:
    return [entry.first_offset for entry in entries]


def test_offsets_count_messages_per_topic(tmp_path: Path) -> None:
    with DurableLog.open(tmp_path / "log") as log:
        assert log.append("room", 3, 10, b"why?") == 0
        assert log.append("hall", 5, 11, b"x") == 0
        assert log.append("room", 1, 12, b"because") == 3
        assert (log.earliest("room"), log.latest("room"), log.latest("hall")) == (0, 4, 5)
        assert (log.earliest("nobody"), log.latest("nobody"), log.read("nobody", 0, PLENTY)) == (0, 0, [])


@pytest.mark.parametrize("committed", [0, 1, 2, 3])
def test_reading_begins_with_the_entry_that_contains_the_offset(tmp_path: Path, committed: int) -> None:
    entries = [Entry(0, 3, 10, b"a" * 10), Entry(3, 2, 11, b"b" * 10), Entry(5, 1, 12, b"c" * 10)]
    with DurableLog.open(tmp_path / "log") as log:
        for number, entry in enumerate(entries):
            assert log.append("room", entry.count, entry.appended_at_us, entry.batch) == entry.first_offset
            if number < committed:
                assert log.commit() == 1
        assert log.read("room", 0, PLENTY) == entries
        assert log.read("room", 2, PLENTY) == entries
        assert log.read("room", 4, PLENTY) == entries[1:]
        assert log.read("room", 5, PLENTY) == entries[2:]
        assert log.read("room", 6, PLENTY) == []
        assert log.read("room", 0, 0) == entries[:1], "at least one"
        assert log.read("room", 0, 19) == entries[:1]
        assert log.read("room", 1, 20) == entries[:2]


def test_a_commit_says_how_many_batches_it_wrote(tmp_path: Path) -> None:
    with DurableLog.open(tmp_path / "log") as log:
        assert log.commit() == 0
        for _ in range(200):
            log.append("room", 1, 0, b"x" * 100)
        assert log.pending_bytes == 20_000
        assert log.commit() == 200
        assert log.pending_bytes == 0
        assert log.commit() == 0
        assert log.verify() == 200


@pytest.mark.parametrize("sync", [True, False])
def test_everything_is_there_after_reopening(tmp_path: Path, sync: bool) -> None:
    with DurableLog.open(tmp_path / "log", sync=sync) as log:
        log.append("room", 3, 10, b"why?")
        log.append("ro\u00f6m \U0001f3b6", 1, 11, b"")
        log.put("identity", b"\x07")
        log.commit()
        log.append("room", 1, 12, b"closed before it was committed")
        before = log.topics()
    with DurableLog.open(tmp_path / "log", sync=sync) as log:
        assert log.topics() == before
        assert log.get("identity") == b"\x07"
        assert [entry.batch for entry in log.read("room", 0, PLENTY)] == [b"why?", b"closed before it was committed"]
        assert log.read("ro\u00f6m \U0001f3b6", 0, PLENTY) == [Entry(0, 1, 11, b"")]
        assert log.append("room", 1, 13, b"next") == 4
        assert log.append("new", 1, 13, b"next") == 0


def test_facts_are_there_at_once_and_the_last_one_counts(tmp_path: Path) -> None:
    with DurableLog.open(tmp_path / "log") as log:
        assert log.get("reserved") is None
        log.put("reserved", b"1")
        log.commit()
        log.put("reserved", b"2")
        log.put("other", b"")
        assert (log.get("reserved"), log.get("other")) == (b"2", b"")
    with DurableLog.open(tmp_path / "log") as log:
        assert (log.get("reserved"), log.get("other"), log.get("third")) == (b"2", b"", None)


def test_time_lookup_finds_the_first_offset_at_or_after(tmp_path: Path) -> None:
    with DurableLog.open(tmp_path / "log") as log:
        for number in range(20):
            log.append("other", 7, 1, b"")
            log.append("room", 5, 100 + number // 2 * 10, b"x")
            if number < 14:
                log.commit()
        for time_us in range(90, 200):
            wanted = next((number * 5 for number in range(20) if 100 + number // 2 * 10 >= time_us), 100)
            assert log.offset_at("room", time_us) == wanted, time_us
        assert log.offset_at("nobody", 5) == 0


def test_times_do_not_run_backwards_within_a_topic(tmp_path: Path) -> None:
    with DurableLog.open(tmp_path / "log") as log:
        log.append("room", 1, 50, b"a")
        log.append("room", 1, 20, b"b")
        log.append("hall", 1, 20, b"c")
        assert [entry.appended_at_us for entry in log.read("room", 0, PLENTY)] == [50, 50]
        assert log.read("hall", 0, PLENTY)[0].appended_at_us == 20
    with DurableLog.open(tmp_path / "log") as log:
        log.append("room", 1, 30, b"d")
        assert log.read("room", 2, PLENTY)[0].appended_at_us == 50


def test_retention_by_size_removes_the_oldest_whole_batches(tmp_path: Path) -> None:
    with DurableLog.open(tmp_path / "log", retention=LogRetention(bytes=250)) as log:
        for number in range(10):
            log.append("room", 2, number, b"x" * 100)
        log.append("hall", 1, 0, b"x" * 250)
        assert log.trim(0) == 0, "what is not committed stays"
        log.commit()
        assert log.trim(0) == 8
        assert log.topics() == {"room": TopicSize(16, 20, 2, 200), "hall": TopicSize(0, 1, 1, 250)}
        assert offsets(log.read("room", 16, PLENTY)) == [16, 18]
        with pytest.raises(OffsetRemovedError, match=r"offset 15 .* earliest one still there is 16") as caught:
            log.read("room", 15, PLENTY)
        assert caught.value.earliest == 16
    with DurableLog.open(tmp_path / "log") as log:
        assert (log.earliest("room"), log.latest("room")) == (16, 20)
        assert log.append("room", 1, 0, b"") == 20


def test_retention_by_age_can_empty_a_topic_and_offsets_go_on(tmp_path: Path) -> None:
    with DurableLog.open(tmp_path / "log", retention=LogRetention(age_seconds=10)) as log:
        for number in range(10):
            log.append("room", 3, number * SECOND, b"x")
        log.commit()
        assert log.trim(15 * SECOND) == 5
        assert log.earliest("room") == 15
        assert log.offset_at("room", 0) == 15
        assert log.trim(15 * SECOND) == 0
        assert log.trim(60 * SECOND) == 5
        assert log.topics() == {"room": TopicSize(30, 30, 0, 0)}
        assert log.offset_at("room", 0) == 30
    with DurableLog.open(tmp_path / "log", retention=LogRetention(age_seconds=10)) as log:
        assert (log.earliest("room"), log.latest("room"), log.trim(99 * SECOND)) == (30, 30, 0)
        assert log.append("room", 1, 70 * SECOND, b"y") == 30
        log.commit()
        assert log.trim(75 * SECOND) == 0
        assert log.trim(81 * SECOND) == 1


def test_retention_goes_in_steps_and_space_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_module, "REMOVED_PER_TRANSACTION", 7)
    sizes = []
    with DurableLog.open(tmp_path / "log", retention=LogRetention(bytes=300_000)) as log:
        for number in range(60):
            for _ in range(20):
                log.append("room", 1, number, bytes(7000))
            log.commit()
            log.trim(number)
            assert log.topics()["room"].byte_count <= 300_000
            sizes.append((tmp_path / "log" / "log.sqlite").stat().st_size)
        assert log.verify() == log.topics()["room"].batch_count == 42
    assert (tmp_path / "log" / "log.sqlite").stat().st_size < 2_000_000, "8.4 MB went through"


def test_a_fact_that_is_not_committed_does_not_confuse_retention(tmp_path: Path) -> None:
    with DurableLog.open(tmp_path / "log", retention=LogRetention(bytes=1)) as log:
        log.put("stored", b"1")
        log.append("room", 1, 0, b"12")
        log.commit()
        log.put("stored", b"2")
        log.put("pending", b"3")
        log.append("new", 1, 0, b"1")
        assert log.trim(0) == 1
        shutil.copytree(tmp_path / "log", tmp_path / "as if the process had died here")
    with DurableLog.open(tmp_path / "as if the process had died here") as log:
        assert (log.get("stored"), log.get("pending"), list(log.topics())) == (b"1", None, ["room"])


@pytest.mark.parametrize(
    ("topic", "count", "time_us", "byte_count", "complaint"),
    [
        ("room", 0, 0, 1, "at least one message"),
        ("room", 1, -1, 1, "time in microseconds"),
        ("room", 1, 1 << 62, 1, "time in microseconds"),
        ("", 1, 0, 1, "1 to 1024 bytes"),
        ("x" * 1025, 1, 0, 1, "1 to 1024 bytes"),
        ("\ud800", 1, 0, 1, "must be text"),
        ("room", 1, 0, MAXIMAL_BATCH_BYTES + 1, "make smaller ones"),
        ("room", 1 << 43, 0, 1, "used up its offsets"),
    ],
)
def test_misuse_of_append_is_refused_and_leaves_no_trace(
    tmp_path: Path, topic: str, count: int, time_us: int, byte_count: int, complaint: str
) -> None:
    with DurableLog.open(tmp_path / "log") as log:
        with pytest.raises(UsageError, match=complaint):
            log.append(topic, count, time_us, bytes(byte_count))
        assert (log.topics(), log.commit(), log.pending_bytes) == ({}, 0, 0)


def test_other_misuse_is_refused(tmp_path: Path) -> None:
    log = DurableLog.open(tmp_path / "log")
    log.append("room", 2, 0, b"")
    for offset in (-1, 3):
        with pytest.raises(UsageError, match=f"no offset {offset}; the latest is 2"):
            log.read("room", offset, PLENTY)
    with pytest.raises(UsageError, match="more than 1048576"):
        log.put("key", bytes(1048577))
    with pytest.raises(UsageError, match="retention bytes must be more than 0, not -5"):
        LogRetention(bytes=-5)
    with pytest.raises(UsageError, match="retention age_seconds must be more than 0, not 0"):
        LogRetention(age_seconds=0)
    log.close()
    log.close()
    for call in (
        lambda: log.append("room", 1, 0, b""),
        lambda: log.put("key", b""),
        log.commit,
        lambda: log.trim(0),
        lambda: log.read("room", 0, 1),
        lambda: log.offset_at("room", 0),
    ):
        with pytest.raises(UsageError, match="the log is closed; open it again"):
            call()


def test_memory_before_a_commit_is_bounded(tmp_path: Path) -> None:
    with DurableLog.open(tmp_path / "log", pending_limit_bytes=1000) as log:
        for _ in range(10):
            log.append("room", 1, 0, bytes(100))
        with pytest.raises(PeerError, match=r"1000 bytes wait .* commit, then append again"):
            log.append("room", 1, 0, b"x")
        log.commit()
        assert log.append("room", 1, 0, b"x") == 10


def test_what_was_committed_is_not_kept_in_memory(tmp_path: Path) -> None:
    """A prepared statement keeps what it wrote last, and there is one for each number of batches in a commit."""
    with DurableLog.open(tmp_path / "log", sync=False) as log:
        log.append("room", 1, 0, bytes(1 << 19))
        log.commit()
        before = resident_bytes()
        for count in range(1, 21):
            for _ in range(count):
                log.append("room", 1, 0, bytes(1 << 19))
            log.commit()
        # 105 MiB were written; the last commits are kept, up to 4 MiB of each.
        assert resident_bytes() - before < 60 << 20


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_appending_and_reading_do_not_wait_for_a_running_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DurableLog.open(tmp_path / "log", retention=LogRetention(bytes=1)) as log:
        log.append("room", 1, 1, b"stored")
        log.commit()
        log.append("room", 1, 2, b"being stored")
        log.put("fact", b"old")
        inside, go_on = threading.Event(), threading.Event()
        promise = log._store.promise

        def slow_promise(commit: int) -> None:
            """The rows are written already and not yet acknowledged."""
            inside.set()
            assert go_on.wait(60)
            promise(commit)

        write = log._store.write

        def slow_write(rows: list[Row]) -> None:
            inside.set()
            assert go_on.wait(60)
            write(rows)

        for name, slow in (("write", slow_write), ("promise", slow_promise)):
            inside.clear()
            go_on.clear()
            monkeypatch.setattr(log._store, name, slow)
            written: list[int] = []
            thread = threading.Thread(target=lambda written=written: written.append(log.commit()))
            thread.start()
            assert inside.wait(60)
            first = log.append("room", 1, 3, name.encode())
            log.put("fact", name.encode())
            assert log.read("room", 0, PLENTY)[-1] == Entry(first, 1, 3, name.encode())
            assert log.offset_at("room", 3) == 2
            assert log.get("fact") == name.encode()
            go_on.set()
            thread.join()
            assert written == [1], "what is appended during a commit belongs to the next"
            monkeypatch.undo()
        assert log.commit() == 1
        assert [entry.batch for entry in log.read("room", 0, PLENTY)] == [
            b"stored",
            b"being stored",
            b"write",
            b"promise",
        ]
    with DurableLog.open(tmp_path / "log") as log:
        assert log.get("fact") == b"promise"


def test_threads_that_append_read_commit_and_trim_at_once(tmp_path: Path) -> None:
    """A reader follows from the beginning while others write and remove; all it may ever see is the truth."""
    generator = random.Random(3)
    with DurableLog.open(tmp_path / "log", retention=LogRetention(bytes=50_000)) as log:
        stop, failures = threading.Event(), list[BaseException]()

        def work() -> None:
            try:
                while not stop.is_set():
                    log.commit()
                    log.trim(0)
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        position = read = 0
        try:
            for number in range(4000):
                first = log.append("room", 2, number, number.to_bytes(4, "big") * generator.randrange(1, 200))
                assert first == number * 2
                if generator.random() < 0.3:
                    try:
                        for entry in log.read("room", position, 3000):
                            assert entry.first_offset == position
                            assert entry.batch[:4] == (position // 2).to_bytes(4, "big")
                            position = entry.next_offset
                            read += 1
                    except OffsetRemovedError as error:
                        position = max(error.earliest, position + 1)
                    found = log.offset_at("room", position // 2)
                    assert position <= found <= max(position, log.earliest("room"))
        finally:
            stop.set()
            thread.join()
        assert failures == []
        assert read > 100
        log.commit()
        assert log.verify() == log.topics()["room"].batch_count
