"""The part of a replica that leads: how far each other replica has come, and which entries are settled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from antiphon.streams.entries import DATA, IndexEntry
from antiphon.streams.messages import AppendRequest, AppendResponse, SnapshotRequest
from antiphon.streams.numbering import Extent, Name
from antiphon.streams.replica_log import ReplicaLog

ENTRIES_AT_MOST: Final = 256
"""How many entries one message carries."""

WINDOW: Final = 4096
"""How many entries may be under way to one replica."""

PAYLOAD_BYTES: Final = 4 << 20
"""One message carries entries with about so many bytes: the newest values of a compacted history may be long."""

QUORUM_US: Final = 500_000
"""After how long without a majority a leader steps down, so that nobody takes its silence for progress."""


class ReplicaProgress:
    """How far another replica has come."""

    def __init__(self, sent: int) -> None:
        self.held = 0
        self.matched = 0
        self.sent = sent
        self.settled_told = -1
        self.is_whole = False
        # Until a replica answers, nobody knows where its entries agree: one message at a time.
        self.is_probing = True
        self.is_waiting = False


class Leading:
    """One term of a leader. ``resign`` ends it."""

    def __init__(self, stream: int, me: int, log: ReplicaLog, resign: Callable[[], None]) -> None:
        self._stream = stream
        self._me = me
        self._log = log
        self._host = log.host
        self._resign = resign
        self._progress: dict[int, ReplicaProgress] = {}
        self._is_doubting = False
        self.is_over = False
        # Whether everything that replicas missed while they were away has its place.
        self.knows_past = False
        self.replicas_changed()

    def append(self, kind: int, payload: bytes = b"") -> int:
        """Add an entry of this term; gives its number."""
        return self._append(IndexEntry(self._log.term, kind, self._log.index.next_position, payload=payload))

    def place(self, name: Name, extent: Extent) -> None:
        """Give a publication its place."""
        log, (count, size) = self._log, extent
        next_position, time_us = log.index.next_position, self._host.clock_us()
        self._append(IndexEntry(log.term, DATA, next_position, count, *name, size=size, time_us=time_us))

    def _append(self, entry: IndexEntry) -> int:
        log = self._log
        number = log.matched = log.append(entry)
        log.advance()
        return number

    def replicas_changed(self) -> None:
        """Begin to serve new replicas, and forget those that are none any more."""
        others = [each for each in self._log.replicas.all if each != self._me]
        self._progress = {each: self._progress.get(each) or ReplicaProgress(self._log.index.last) for each in others}

    def disks(self, number: int) -> int:
        """On how many disks an entry is, with its messages."""
        return sum(progress.held >= number for progress in self._progress.values()) + (self._log.held >= number)

    @property
    def is_set_known(self) -> bool:
        """Whether an entry says who the replicas are."""
        return self._log.set_number > 0

    def is_near(self, replica: int, entries: int) -> bool:
        """Whether a replica has the history, but for so many entries."""
        progress = self._progress.get(replica)
        if progress is None or not progress.is_whole or progress.held < self._log.set_number:
            return False
        return progress.held + entries >= self._log.settled

    def has_all(self, replica: int) -> bool:
        """Whether a replica has everything up to the last change of the replicas."""
        if replica == self._me:
            return True
        progress = self._progress.get(replica)
        return progress is not None and progress.is_whole and progress.held >= self._log.set_number

    def probe(self, replica: int) -> None:
        """Begin anew with a replica: messages to it may be lost."""
        progress = self._progress.get(replica)
        if progress is not None:
            progress.sent = progress.matched or self._log.index.last
            progress.is_probing, progress.is_waiting = True, False

    def disconnected(self) -> None:
        """A connection has ended: without a majority this leader cannot settle anything."""
        if not self._is_doubting and not self._has_majority():
            self._is_doubting = True
            self._host.after(QUORUM_US, self._resign_if_alone)

    def _has_majority(self) -> bool:
        replicas = self._log.replicas
        connected = sum(each == self._me or self._host.is_connected(each) for each in replicas.voters)
        return connected >= replicas.majority

    def _resign_if_alone(self) -> None:
        self._is_doubting = False
        if not self.is_over and not self._has_majority():
            self._resign()

    def send_to_all(self) -> None:
        """Send every replica the entries that it lacks."""
        for each, progress in self._progress.items():
            if not progress.is_waiting and self._host.is_connected(each):
                self._send(each, progress)

    def _send(self, to: int, progress: ReplicaProgress) -> None:
        log = self._log
        while True:
            previous, settled = progress.sent, log.settled
            previous_term = log.index.term_at(previous)
            if previous_term is None:
                self._send_snapshot(to, progress)
                return
            room = min(ENTRIES_AT_MOST, WINDOW - (previous - progress.matched))
            entries = [] if progress.is_probing or room <= 0 else fitting(log.index.slice(previous + 1, room))
            if not entries and not progress.is_probing and progress.settled_told >= settled:
                return
            place = previous, previous_term
            self._host.send(to, AppendRequest(self._stream, log.term, *place, entries, settled, self.knows_past))
            progress.sent += len(entries)
            progress.settled_told = settled
            if progress.is_probing:
                progress.is_waiting = True
                return

    def _send_snapshot(self, to: int, progress: ReplicaProgress) -> None:
        """The entries that a replica lacks are part of a snapshot."""
        log = self._log
        log.compact()
        index = log.index
        snapshot = SnapshotRequest(self._stream, log.term, index.base, index.base_term, index.base_position, log.state)
        self._host.send(to, snapshot)
        progress.sent, progress.is_probing, progress.is_waiting = index.base, True, True

    def on_response(self, sender: int, message: AppendResponse) -> None:
        """A replica says how far it has come, or that it lacks what comes before."""
        progress = self._progress.get(sender)
        if progress is None:
            return
        progress.is_waiting = False
        if not message.is_matched:
            progress.is_probing = True
            progress.sent = min(message.held, max(progress.sent - 1, 0))
            return
        progress.is_probing = False
        progress.is_whole = message.is_whole
        progress.matched = max(progress.matched, message.matched)
        progress.sent = max(progress.sent, progress.matched)
        if message.held > progress.held:
            progress.held = message.held
            self.count()

    def count(self) -> None:
        """Settle the entries that a majority of the voters holds; the last of them must be of this term."""
        log = self._log
        replicas = log.replicas
        held = [log.held if each == self._me else self._progress[each].held for each in replicas.voters]
        number = sorted(held, reverse=True)[replicas.majority - 1]
        if number > log.settled and log.index.term_at(number) == log.term:
            log.settle_to(number)
            if self._me not in replicas.voters and log.is_set_settled:
                # A replica that is removed leads until its removal is settled.
                self._resign()


def fitting(entries: list[IndexEntry]) -> list[IndexEntry]:
    """The first of some entries, as many as fit a message, and at least one."""
    size = 0
    for place, entry in enumerate(entries):
        size += len(entry.payload)
        if size > PAYLOAD_BYTES and place:
            return entries[:place]
    return entries
