"""The part of a replica that leads: how far each other replica has come, and which entries are settled.

A node that was away when something was published may lead afterwards, and the fabric need not deliver to it what the
others have. So a new leader gives no places before the others have told what they have, or for :data:`GATHER_US`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from itertools import islice
from typing import Final

from antiphon.streams.entries import DATA, IndexEntry
from antiphon.streams.host import NOBODY
from antiphon.streams.messages import AppendRequest, AppendResponse, SnapshotRequest, UnplacedReport
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

GATHER_US: Final = 300_000
"""How long a new leader waits for the others."""

REPORTED_AT_MOST: Final = 16_384
"""So many publications one report names; a majority was away for long where there are more."""


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
            self._host.send(to, AppendRequest(self._stream, log.term, previous, previous_term, entries, settled))
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


Place = Callable[[Name, Extent], None]


class Gathering:
    """The beginning of one leader: what was delivered to any of the replicas gets its place.

    Every list is in an order in which the fabric may deliver. A replica that came back may lack what the first
    publications of its list follow, so the lists are merged: a publication waits for all that are before it in any
    list.
    """

    def __init__(self, log: ReplicaLog, me: int, place: Place) -> None:
        self._log = log
        self._place = place
        self._reports: list[UnplacedReport] = []
        # Nodes that are to keep the stream from now on may have what was published while this replica was away. They
        # report when an entry of this leader has made them learners.
        others = {*log.replicas.all, *log.host.keepers()} - {me}
        self._awaited = {each for each in others if log.host.is_connected(each)}
        self.is_over = False
        if self._awaited:
            log.host.after(GATHER_US, self.finish)
        else:
            self.finish()

    def on_report(self, sender: int, message: UnplacedReport) -> None:
        """A replica says what it has; later, what has waited for long and is at other replicas alone, it seems."""
        if self.is_over:
            for source, sequence, count, size in message.publications:
                if self._log.numbering.has_no_place((source, sequence)):
                    self._place((source, sequence), (count, size))
            return
        self._reports.append(message)
        self._awaited.discard(sender)
        if not self._awaited:
            self.finish()

    def finish(self) -> None:
        """Give places to everything."""
        if self.is_over:
            return
        self.is_over = True
        numbering = self._log.numbering
        extents = dict(numbering.waiting())
        lists = [list(extents)]
        for report in self._reports:
            known = {(source, sequence): (count, size) for source, sequence, count, size in report.publications}
            lists.append([name for name in known if numbering.has_no_place(name)])
            extents.update(known)
        for name in merged(lists):
            self._place(name, extents[name])


def merged(lists: list[list[Name]]) -> list[Name]:
    """Everything in some lists, each after all that are before it in any of them.

    Publications that do not follow each other may be in another order in each list. Where all wait for each other
    because of that, the longest list decides: what it begins with follows nothing that it lacks, if it lacks nothing.
    """
    left = [deque(each) for each in sorted(lists, key=len, reverse=True)]
    # In how many lists a name is, and in how many of them it is the first one that is left.
    counts = Counter(name for each in lists for name in each)
    heads = Counter(each[0] for each in left if each)
    free = deque(dict.fromkeys(name for name in heads if heads[name] == counts[name]))
    found: list[Name] = []
    while len(found) < len(counts):
        name = free.popleft() if free else next(each[0] for each in left if each)
        found.append(name)
        for each in left:
            if each and each[0] == name:
                each.popleft()
            elif counts[name] > heads[name] and name in each:
                each.remove(name)
                continue
            else:
                continue
            if each:
                heads[each[0]] += 1
                if heads[each[0]] == counts[each[0]]:
                    free.append(each[0])
    return found


def report_to(leader: int, stream: int, log: ReplicaLog) -> None:
    """Tell a new leader which publications have no settled place."""
    if leader != NOBODY:
        # Also those with a place that is not settled: the leader may not have their entries.
        unsettled = islice(log.numbering.unsettled(), REPORTED_AT_MOST)
        publications = [(*name, *extent) for name, extent in unsettled]
        log.host.send(leader, UnplacedReport(stream, log.term, publications))
