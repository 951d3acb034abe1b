"""Salvages what is whole of a damaged log into a new one, and keeps the damaged one aside.

The new log has nothing that was not in the old one: batches whose checksums are right, under their names and offsets.
Where a batch is lost there is a *hole*, and reading it fails with a sentence that names the next offset. The new log
has another number, so a reader that names a log by its number learns that it is another one.

The node's own state (its identifier, its votes, what it knows about publishers) is kept only if nothing is lost. A node
that went on with an older state could break promises that it has made. Without it the node joins as a new one, and the
messages in its log are still there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from antiphon.kernel.errors import PeerError, UsageError
from antiphon.storage.directory import sync_directory
from antiphon.storage.log import DurableLog
from antiphon.storage.log_formats import (
    FIRST_FACT,
    Entry,
    HeadRecord,
    TopicRecord,
    key_of,
    packed_header,
    record_row,
)
from antiphon.storage.log_reader import is_internal
from antiphon.storage.sqlite import (
    BYTES_PER_STATEMENT,
    DATABASE_NAME,
    LOCK_NAME,
    MARK_NAME,
    ROWS_PER_STATEMENT,
    Row,
    Store,
    errors_of,
    take_lock,
)
from antiphon.storage.verify import LogSurvey, Progress, TopicFindings

HOLES_AT_MOST: Final = 4096
"""Of a topic with more holes, what is before the last of them is left out."""

INSTRUCTIONS_PER_TICK: Final = 1_000_000


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a log that exists; refused while a node has it."""
    names = {path.name for path in directory.iterdir()} if directory.is_dir() else set()
    if not names & {DATABASE_NAME, MARK_NAME, f"{DATABASE_NAME}-wal"}:
        raise UsageError(f"{directory} holds no log; name the data directory of a node (--data)")
    try:
        descriptor = take_lock(directory)
    except PeerError as error:
        if LOCK_NAME in names and "open already" in str(error):
            raise UsageError(f"a running node has {directory} open; stop the node first ({error})") from error
        raise
    try:
        yield
    finally:
        os.close(descriptor)


def verified(directory: Path, progress: Progress) -> LogSurvey:
    """Survey a log; nothing is changed."""
    with locked(directory):
        return surveyed(directory, progress)


def surveyed(directory: Path, progress: Progress) -> LogSurvey:
    """Survey a log of which the caller has the lock."""
    survey = LogSurvey(directory)
    with errors_of(directory, "reading"):
        survey.read(progress)
        survey.check_structure()
    return survey


class Repair:
    """One repair: the new log is made beside the old one, checked, and put in its place."""

    def __init__(self, directory: Path, out: Path | None) -> None:
        self.directory = directory
        self.target = out or directory.with_name(f"{directory.name}.repairing")
        self._is_in_place = out is None
        self.aside: Path | None = None
        self.batches = 0
        self.bytes = 0
        self.keeps_state = False

    def run(self, progress: Progress) -> LogSurvey:
        """Survey the log and, if it is damaged, make the new one."""
        if self.target.exists() and any(self.target.iterdir()):
            raise UsageError(f"{self.target} is not empty, perhaps from a repair that was interrupted; remove it first")
        with locked(self.directory):
            survey = surveyed(self.directory, progress)
            if survey.is_whole:
                return survey
            self.keeps_state = not survey.lacks_state
            with errors_of(self.target, "writing"):
                self._write(survey)
            if self._is_in_place:
                self._exchange()
        return survey

    def _write(self, survey: LogSurvey) -> None:
        topics = [
            topic
            for _, topic in sorted(survey.topics.items())
            if topic.record is not None and (self.keeps_state or not is_internal(topic.record.name))
        ]
        numbers = {topic.number: number for number, topic in enumerate(topics, 1)}
        cuts = {topic.number: first_kept(topic) for topic in topics}
        store = Store(self.target)
        with closing(store):
            store.open_for_reading()
            store.open_for_writing(sync=True, commit=0)
            records: dict[int, TopicRecord] = {}
            rows: list[Row] = []
            for topic, entry in survey.entries():
                if topic.number not in numbers or entry.first_offset < cuts[topic.number]:
                    continue
                records[topic.number] = with_entry(records.get(topic.number), topic, entry)
                key = key_of(numbers[topic.number], entry.first_offset)
                rows.append((key, packed_header(key, entry), entry.batch))
                if len(rows) == ROWS_PER_STATEMENT or sum(len(body) for *_, body in rows) > BYTES_PER_STATEMENT:
                    store.write(rows)
                    rows = []
            facts = [fact for _, fact in sorted(survey.facts.items())] if self.keeps_state else []
            rows += [record_row(numbers[topic.number], records.get(topic.number) or empty(topic)) for topic in topics]
            rows += [record_row(FIRST_FACT + place, fact) for place, fact in enumerate(facts)]
            store.write([*rows, record_row(0, HeadRecord(1, len(topics), len(facts)))])
            store.make_everything_durable(1)
        self.batches = sum(record.batch_count for record in records.values())
        self.bytes = sum(record.byte_count for record in records.values())
        with DurableLog.open(self.target) as log:
            if log.verify() != self.batches:
                raise PeerError(f"the new log in {self.target} is not what was written; check the disk, and try again")

    def _exchange(self) -> None:
        """Put the new log in the place of the old one, which stays under another name."""
        number = 1
        while (aside := self.directory.with_name(f"{self.directory.name}.damaged-{number}")).exists():
            number += 1
        try:
            self.directory.rename(aside)
        except OSError as error:
            raise PeerError(
                f"cannot rename {self.directory}: {error.strerror}; the repaired log is in {self.target}: put it in "
                "the place of the old one, or name another place with --out"
            ) from error
        self.target.rename(self.directory)
        sync_directory(self.directory.parent)
        self.aside = aside

    def result(self, survey: LogSurvey) -> dict[str, Any]:
        """The salvaged and the lost entries, for programs."""
        found = survey.result()
        is_done = not survey.is_whole
        found["repaired"] = {
            "log": str(self.directory if self._is_in_place else self.target) if is_done else None,
            "damaged_log": None if not is_done else str(self.aside or self.directory),
            "batches": self.batches,
            "bytes": self.bytes,
            "keeps_state": self.keeps_state if is_done else True,
            "lost": [
                {"topic": topic.record.name, "first": first, "end": end}
                for _, topic in sorted(survey.topics.items())
                if topic.record is not None
                for first, end in lost_ranges(topic)
            ],
            "lost_batches_without_a_name": sum(
                len(topic.places) for topic in survey.topics.values() if topic.record is None
            ),
        }
        return found


def first_kept(topic: TopicFindings) -> int:
    """The first offset of a topic that the new log has."""
    kept, missing = topic.runs()
    if len(missing) > HOLES_AT_MOST:
        return missing[-HOLES_AT_MOST - 1][1]
    return kept[0] if kept else topic.end()


def lost_ranges(topic: TopicFindings) -> list[tuple[int, int]]:
    """The ranges of a topic that the new log lacks, and that the old one had."""
    cut = first_kept(topic)
    lost = [each for each in topic.lost() if each[0] >= cut]
    return [(topic.first(), cut), *lost] if cut > topic.first() else lost


def with_entry(record: TopicRecord | None, topic: TopicFindings, entry: Entry) -> TopicRecord:
    """The record of a topic in the new log, with one more entry."""
    assert topic.record is not None, "a topic without a name has no entries to keep"
    if record is None:
        first = entry.first_offset
        holes = tuple(each for each in topic.runs()[1] if each[0] > first)
        set_backs = topic.record.set_backs
        record = TopicRecord(topic.record.name, first, topic.end(), 0, 0, topic.record.last_at_us, set_backs, holes)
    return TopicRecord(
        record.name,
        record.earliest,
        max(record.next_offset, entry.next_offset),
        record.batch_count + 1,
        record.byte_count + len(entry.batch),
        max(record.last_at_us, entry.appended_at_us) if not record.set_backs else record.last_at_us,
        record.set_backs,
        record.holes,
    )


def empty(topic: TopicFindings) -> TopicRecord:
    """The record of a topic of which no entry is left; its offsets are not used again."""
    assert topic.record is not None, "a topic without a name is left out"
    end = topic.end()
    return TopicRecord(topic.record.name, end, end, 0, 0, topic.record.last_at_us, topic.record.set_backs)


def compacted(directory: Path, tick: Callable[[], None]) -> dict[str, Any]:
    """Write the file of a log anew, without free pages; ``tick`` is called now and then."""
    with locked(directory):
        pass  # refused with a sentence, before anything is opened
    before = bytes_of(directory)
    with DurableLog.open(directory) as log:  # refused if it is damaged
        batches = sum(size.batch_count for size in log.topics().values())
    store = Store(directory)
    with closing(store):
        commit = store.open_for_reading().commit
        store.open_for_writing(sync=True, commit=commit)
        assert store.writer is not None, "it was opened for writing"
        store.writer.set_progress_handler(tick, INSTRUCTIONS_PER_TICK)
        store.rewrite()
    return {"directory": str(directory), "batches": batches, "bytes_before": before, "bytes": bytes_of(directory)}


def bytes_of(directory: Path) -> int:
    """The size of the files of a log."""
    return sum(path.stat().st_size for path in directory.iterdir())
