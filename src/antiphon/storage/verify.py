"""Says what is damaged in a log, and what of it is whole: every page, row, record, batch and range of offsets.

The survey reads the pages itself (:mod:`antiphon.storage.page_file`) and believes a row only if its checksum is right,
so it finds everything that is whole wherever the damage is. SQLite then checks its own structure, which the survey does
not need but a node does. The survey changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.kernel.errors import PeerError
from antiphon.storage.log_formats import (
    FIRST_FACT,
    FIRST_RECORD_KEY,
    OFFSET_BITS,
    DamagedError,
    Entry,
    FactRecord,
    HeadRecord,
    Record,
    TopicRecord,
    checked_entry,
    marked_commit,
    unpacked_header,
    unpacked_record,
)
from antiphon.storage.page_file import PageFile, Transaction
from antiphon.storage.sqlite import DATABASE_NAME, MARK_NAME, PAGE_BYTES, SQLITE_MAGIC, complaints_about

COMPLAINTS_SHOWN: Final = 20
PAGES_PER_REPORT: Final = 64

Progress = Callable[[int, int], None]
"""Told how many pages are read, of how many."""


class TopicFindings:
    """The findings about one topic."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.record: TopicRecord | None = None
        self.places: dict[int, tuple[int, int, int, int]] = {}
        """Of each whole entry, by its first offset: messages, bytes, its page and its place there."""

    def runs(self) -> tuple[list[int], list[tuple[int, int]]]:
        """The first offsets of the entries to keep, in order, and the ranges that are missing around them."""
        record = self.record
        first, end = (0, 0) if record is None else (record.earliest, record.next_offset)
        kept: list[int] = []
        missing: list[tuple[int, int]] = []
        position = first
        for offset in sorted(self.places):
            if offset < position:
                continue  # removed by retention, in a page that is free or that an older state has left
            if offset > position and (kept or record is not None):
                missing.append((position, offset))
            kept.append(offset)
            position = offset + self.places[offset][0]
        if position < end:
            missing.append((position, end))
        return kept, missing

    def lost(self) -> list[tuple[int, int]]:
        """The ranges that are missing and that no earlier repair has left out."""
        return [each for each in self.runs()[1] if self.record is None or each not in self.record.holes]

    def first(self) -> int:
        """The first offset that must be there, as far as it is known."""
        return self.record.earliest if self.record is not None else min(self.places, default=0)

    def end(self) -> int:
        """The offset behind the last one that must be there, as far as it is known."""
        if self.record is not None:
            return self.record.next_offset
        return max((offset + place[0] for offset, place in self.places.items()), default=0)


class LogSurvey:
    """Everything that was found in the files of a log."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.damages: list[str] = []
        """What is wrong, one sentence each."""
        self.head: HeadRecord | None = None
        self.promised: int | None = None
        self.topics: dict[int, TopicFindings] = {}
        self.facts: dict[int, FactRecord] = {}
        self.lacks_state = False
        """Whether something is lost, so that the node cannot go on as the one that it was."""
        self.pages = self.free_pages = 0
        self._page_bytes = PAGE_BYTES
        self._transactions: list[Transaction] = []

    @property
    def is_whole(self) -> bool:
        """Whether there is nothing wrong."""
        return not self.damages

    def lose(self, damage: str) -> None:
        """Something is wrong, and something is lost by it."""
        self.damages.append(damage)
        self.lacks_state = True

    # Reading.

    def read(self, progress: Progress) -> None:
        """Read all files."""
        path = self.directory / DATABASE_NAME
        if not path.exists():
            self.lose(f"the file {DATABASE_NAME} is missing: nothing of the log is left")
            return
        self._read_mark()
        self._page_bytes = self._read_page_bytes(path)
        with closing(PageFile(path, self._page_bytes)) as pages:
            self._add_transactions(pages)
            free = pages.free_pages()
            if free is None:
                self.damages.append("the list of free pages is damaged")
            self.pages, self.free_pages = pages.page_count, len(free or ())
            for number in range(2, pages.page_count + 1):
                if number not in (free or ()):
                    self._read_page(pages, number)
                if number % PAGES_PER_REPORT == 0 or number == pages.page_count:
                    progress(number, pages.page_count)
        self._judge()

    def _read_mark(self) -> None:
        try:
            self.promised = marked_commit((self.directory / MARK_NAME).read_bytes())
        except FileNotFoundError:
            self.lose(f"the file {MARK_NAME} is missing, so it is not known whether the last commits are there")
        except DamagedError as error:
            self.lose(f"{error}, so it is not known whether the last commits are there")

    def _read_page_bytes(self, path: Path) -> int:
        with path.open("rb") as file:
            header = file.read(18)
        if not header.startswith(SQLITE_MAGIC) or len(header) < 18:
            self.damages.append(f"{DATABASE_NAME} does not begin as it should")
            return PAGE_BYTES
        page_bytes = int.from_bytes(header[16:18], "big")
        if page_bytes < 512 or page_bytes & (page_bytes - 1):
            self.damages.append(f"{DATABASE_NAME} says that its pages have {page_bytes} bytes")
            return PAGE_BYTES
        return page_bytes

    def _add_transactions(self, pages: PageFile) -> None:
        """Take the transactions of the write-ahead log: those behind a damaged place only if they were promised."""
        damaged = 0
        for transaction in pages.transactions():
            if not transaction.is_whole:
                damaged += 1
                commits = [
                    head.commit for key, _, body in filter(None, pages.rows_of(transaction))
                    if key == FIRST_RECORD_KEY and (head := read_record(0, body, HeadRecord)) is not None
                ]  # fmt: skip
                if not commits or self.promised is None or max(commits) > self.promised:
                    continue
            pages.add(transaction)
            self._transactions.append(transaction)
        if damaged:
            self.lose(f"the write-ahead log is damaged before or in {damaged} of its transactions")

    def _read_page(self, pages: PageFile, number: int) -> None:
        for place, row in enumerate(pages.rows(number)):
            try:
                if row is None:
                    raise DamagedError("a row cannot be read")
                key, header, body = row
                if key < 0:
                    self._take_record(key - FIRST_RECORD_KEY, body)
                else:
                    entry = checked_entry(unpacked_header(key, header), body)
                    topic = self.topics.setdefault(key >> OFFSET_BITS, TopicFindings(key >> OFFSET_BITS))
                    topic.places[entry.first_offset] = (entry.count, len(body), number, place)
            except DamagedError as error:
                self.lose(f"page {number}: {error}")

    def _take_record(self, number: int, body: bytes) -> None:
        """Take a record; of two states of one record, which an older state of a page may hold, take the newer."""
        if number == 0:
            head = needed_record(number, body, HeadRecord)
            self.head = head if self.head is None or head.commit > self.head.commit else self.head
        elif number < FIRST_FACT:
            record = needed_record(number, body, TopicRecord)
            topic = self.topics.setdefault(number, TopicFindings(number))
            known = topic.record
            if known is None or (record.next_offset, record.earliest) > (known.next_offset, known.earliest):
                topic.record = record
        else:
            fact = needed_record(number, body, FactRecord)
            if self.facts.get(number, fact) != fact:
                self.lose(f"fact {fact.key!r} is there in two states")
            self.facts[number] = fact

    # Judging.

    def _judge(self) -> None:
        """Compare what was found with what must be there."""
        head = self.head
        if head is None:
            self.lose("the head of the log is missing")
        elif self.promised is not None and head.commit < self.promised:
            self.lose(f"commit {self.promised} was promised, and the last one that is there is {head.commit}")
        topic_count = max(self.topics, default=0) if head is None else head.topic_count
        for number in range(1, topic_count + 1):
            if number not in self.topics:
                self.lose(f"topic number {number} is missing, with its name")
        for topic in self.topics.values():
            self._judge_topic(topic)
        lost_facts = 0 if head is None else head.fact_count - len(self.facts)
        if lost_facts > 0:
            self.lose(f"{lost_facts} facts of the node are missing")

    def _judge_topic(self, topic: TopicFindings) -> None:
        kept, missing = topic.runs()[0], topic.lost()
        record = topic.record
        if record is None:
            self.lose(f"topic number {topic.number} has {len(kept)} batches, and its name is missing")
            return
        for first, end in missing:
            self.lose(f"topic {record.name!r} lacks the offsets {first} to {end - 1}")
        if not missing and len(kept) != record.batch_count:
            self.damages.append(f"topic {record.name!r} says that it has {record.batch_count} batches, not {len(kept)}")

    def entries(self) -> Iterator[tuple[TopicFindings, Entry]]:
        """The entries to keep of topics with a name, topic by topic and in order."""
        path = self.directory / DATABASE_NAME
        if not path.exists():
            return
        with closing(PageFile(path, self._page_bytes)) as pages:
            for transaction in self._transactions:
                pages.add(transaction)
            for topic in self.topics.values():
                for offset in topic.runs()[0] if topic.record is not None else ():
                    *_, number, place = topic.places[offset]
                    row = next(row for index, row in enumerate(pages.rows(number)) if index == place)
                    if row is None:
                        raise PeerError(f"{path} has changed while it was read; stop the program that writes to it")
                    yield topic, checked_entry(unpacked_header(row[0], row[1]), row[2])

    # Results.

    def check_structure(self) -> None:
        """Let SQLite check its own structure."""
        self.damages += complaints_about(self.directory, COMPLAINTS_SHOWN)

    def result(self) -> dict[str, Any]:
        """The findings for programs."""
        return {
            "directory": str(self.directory),
            "verdict": "whole" if self.is_whole else "damaged",
            "commit": None if self.head is None else self.head.commit,
            "promised": self.promised,
            "pages": self.pages,
            "free_pages": self.free_pages,
            "facts": len(self.facts),
            "topics": [self._topic_result(topic) for _, topic in sorted(self.topics.items())],
            "damages": [
                damage if count == 1 else f"{damage} ({count} times)" for damage, count in Counter(self.damages).items()
            ],
        }

    def _topic_result(self, topic: TopicFindings) -> dict[str, Any]:
        kept, record = topic.runs()[0], topic.record
        return {
            "topic": None if record is None else record.name,
            "number": topic.number,
            "earliest": topic.first(),
            "next_offset": topic.end(),
            "batches": len(kept),
            "bytes": sum(topic.places[offset][1] for offset in kept),
            "missing": [list(each) for each in topic.lost()],
            "lost_before": [] if record is None else [list(each) for each in record.holes],
        }


def needed_record(number: int, body: bytes, kind: type[Record]) -> Record:
    """A record of which the checksum is right."""
    try:
        return unpacked_record(number, body, kind)
    except msgspec.MsgspecError as error:
        raise DamagedError(f"record {number}: {error}") from error


def read_record(number: int, body: bytes, kind: type[Record]) -> Record | None:
    """The same, or None."""
    try:
        return needed_record(number, body, kind)
    except DamagedError:
        return None
