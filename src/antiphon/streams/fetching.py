"""Fetches what a replica lacks from other replicas: messages that the fabric does not bring, and its history.

A replica that began with a snapshot lacks its history. It is filled from the newest missing entry down to the earliest
one, a piece at a time. Between two pieces it rests, longer while publications come, so that publishers hardly notice.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import Final

from antiphon.streams.entries import DATA
from antiphon.streams.host import NOBODY
from antiphon.streams.messages import (
    BackfillRequest,
    BackfillResponse,
    ContentRequest,
    ContentResponse,
    NamedContent,
    NumberedEntry,
    UnplacedReport,
)
from antiphon.streams.numbering import Extent, Name
from antiphon.streams.replica_log import ReplicaLog

FETCH_US: Final = 200_000
"""How long a replica waits for the fabric before it asks another replica for messages."""

REST_US: Final = 1000
"""How long it rests between two pieces of a long history."""

FETCHED_AT_MOST: Final = 256
"""How many publications one request names."""

FETCHED_BYTES: Final = 1 << 20
"""An answer has at least one publication, and no more once it has so many bytes."""

PIECE_ENTRIES: Final = 256
PIECE_BYTES: Final = 1 << 20

PATIENCE_US: Final = 500_000
"""After how long without an answer the next replica is asked."""

LOOK_US: Final = 1_000_000
"""How often a replica looks for publications without a place while there are some."""

BUSY_REST: Final = 9
"""While publications come, a replica rests this many times as long as the piece before took."""


class Fetching:
    """The missing messages of one replica."""

    def __init__(self, stream: int, me: int, log: ReplicaLog) -> None:
        self._stream = stream
        self._me = me
        self._log = log
        self._host = log.host
        self._is_asking = False
        self._turn = 0
        # Requests are numbered: a timer of an earlier one does not count.
        self._number = 0

    def advance(self) -> None:
        """Entries or messages have come: if some messages are missing, ask for them after a while."""
        if not self._log.advance() and not self._is_asking:
            self._is_asking = True
            self._ask_after(FETCH_US)

    def _ask_after(self, delay_us: int) -> None:
        self._number += 1
        number = self._number
        self._host.after(delay_us, lambda: self._ask() if number == self._number else None)

    def _ask(self) -> None:
        """Ask a replica, another one each time."""
        host, log = self._host, self._log
        self._is_asking = False
        missing = log.missing(FETCHED_AT_MOST)
        others = [each for each in log.replicas.all if each != self._me and host.is_connected(each)]
        if missing and others:
            self._turn += 1
            host.send(others[self._turn % len(others)], ContentRequest(self._stream, log.term, missing))
        self.advance()

    def on_request(self, sender: int, message: ContentRequest) -> None:
        """Another replica lacks messages."""
        contents: list[NamedContent] = []
        size = 0
        for name in message.publications:
            if size < FETCHED_BYTES:
                found = self._host.read_contents([name])
                contents += found
                size += sum(len(content) for _, _, content in found)
        if contents:
            self._host.send(sender, ContentResponse(self._stream, self._log.term, contents))

    def on_response(self, _sender: int, message: ContentResponse) -> None:
        """Another replica has sent messages; they count when they are on disk."""
        for source, sequence, content in message.contents:
            if not self._host.holds(source, sequence) and not self._log.is_past(source, sequence):
                self._host.write_content(source, sequence, content)

        def written() -> None:
            if self._is_asking and not self._log.advance():
                # A long history: the next piece follows this one.
                self._ask_after(REST_US)
            self.advance()
            self._host.progressed()

        self._host.when_on_disk(written)


class Backfilling:
    """The missing part of one replica's history."""

    def __init__(self, stream: int, me: int, log: ReplicaLog) -> None:
        self._stream = stream
        self._me = me
        self._log = log
        self._host = log.host
        self._is_busy = False
        # A piece has come and is not on disk yet: others of the same place are late answers.
        self._is_filling = False
        self._turn = 0
        # Requests are numbered: a timer of an earlier one does not count.
        self._requests = 0
        self._asked_us = 0
        self._last_seen = 0

    def advance(self) -> None:
        """Ask for the next piece, if something is missing."""
        if not self._log.is_whole and not self._is_busy:
            self._is_busy = True
            self._ask()

    def _ask(self) -> None:
        host, log = self._host, self._log
        self._requests += 1
        number = self._requests
        self._is_filling = False
        if log.is_whole:
            self._is_busy = False
            return
        others = [each for each in log.replicas.all if each != self._me and host.is_connected(each)]
        if others:
            self._turn += 1
            request = BackfillRequest(self._stream, log.term, log.index.floor + 1, log.kept.first, log.settled)
            self._asked_us = host.clock_us()
            host.send(others[self._turn % len(others)], request)
        host.after(PATIENCE_US, lambda: self._ask() if number == self._requests else None)

    def on_request(self, sender: int, message: BackfillRequest) -> None:
        """Another replica lacks a part of the history. One that knows of later removals must not get what was removed
        here later, so a replica that is behind does not answer."""
        log = self._log
        if log.settled < message.settled or log.index.floor >= message.below - 1:
            return
        first = max(message.first, log.index.floor + 1, message.below - PIECE_ENTRIES)
        entries: list[NumberedEntry] = []
        contents: list[NamedContent] = []
        size, lowest = 0, message.below
        for number in range(message.below - 1, first - 1, -1):
            (entry,) = log.index.slice(number, 1)
            if entry.kind == DATA and entry.end > log.kept.earliest:
                found = self._host.read_contents([(entry.source, entry.sequence)])
                if not found:
                    break
                contents += found
            entries.append((number, entry))
            lowest, size = number, size + entry.size
            if size >= PIECE_BYTES:
                break
        if entries:
            response = BackfillResponse(self._stream, log.term, message.below, lowest, entries[::-1], contents)
            self._host.send(sender, response)

    def on_response(self, _sender: int, message: BackfillResponse) -> None:
        """A piece has come. The next one is asked for when it is on disk, after a rest."""
        log = self._log
        if message.below != log.index.floor + 1 or log.is_whole or self._is_filling:
            return
        self._requests += 1
        self._is_filling = True
        log.fill(message.first, message.entries, message.contents)
        self._host.when_on_disk(self._rest)

    def _rest(self) -> None:
        took_us = self._host.clock_us() - self._asked_us
        is_quiet = self._log.index.last == self._last_seen
        self._last_seen = self._log.index.last
        rest_us = REST_US if is_quiet else min(max(REST_US, BUSY_REST * took_us), PATIENCE_US)
        self._host.after(rest_us, self._ask)


class Overlooked:
    """Publications that were delivered to a replica and that its leader seems never to get.

    The leader may have been away when they were published, and no log need give them to it. A replica that follows
    looks now and then whether something has waited for a place since it looked last. It sends that to the leader, the
    messages first, so that the leader does not depend on it afterwards. ``leader`` says whom the replica follows.
    """

    def __init__(self, stream: int, log: ReplicaLog, leader: Callable[[], int]) -> None:
        self._stream = stream
        self._log = log
        self._leader = leader
        # Those that waited when this replica looked last; None while it does not look.
        self._seen: set[Name] | None = None

    def waits(self) -> None:
        """A publication was delivered here that has no place yet."""
        if self._seen is None:
            self._seen = set()
            self._log.host.after(LOOK_US, self._look)

    def _look(self) -> None:
        seen, self._seen = self._seen or set(), None
        waiting = list(self._log.numbering.waiting())
        if not waiting:
            return
        # All that is before these was delivered before them, so it waits for as long.
        self._tell(list(takewhile(lambda each: each[0] in seen, waiting)))
        self._seen = {name for name, _ in waiting}
        self._log.host.after(LOOK_US, self._look)

    def _tell(self, overdue: list[tuple[Name, Extent]]) -> None:
        log, leader = self._log, self._leader()
        if not overdue or leader == NOBODY or not log.host.is_connected(leader):
            return
        size, told = 0, 0
        while told < len(overdue) and told < FETCHED_AT_MOST and size < FETCHED_BYTES:
            size += overdue[told][1][1]
            told += 1
        contents = log.host.read_contents([name for name, _ in overdue[:told]])
        log.host.send(leader, ContentResponse(self._stream, log.term, contents))
        publications = [(*name, *extent) for name, extent in overdue[:told]]
        log.host.send(leader, UnplacedReport(self._stream, log.term, publications))
