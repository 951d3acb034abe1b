"""Everything of a replica that is on disk, or about to be: its term and vote, its entries, and its snapshot."""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.streams.entries import DATA, MEMBERS, TRIM, Index, IndexEntry, ReplicaSet, decode_set
from antiphon.streams.host import NOBODY, ReplicaHost, SavedReplica
from antiphon.streams.messages import NamedContent, NumberedEntry
from antiphon.streams.numbering import Name, Numbering
from antiphon.streams.retention import KeptRange, LastValues, Trim

COMPACT_ENTRIES: Final = 4096
"""After so many settled entries a replica writes a snapshot, so that it needs little memory and starts quickly."""


class SnapshotState(msgspec.Struct, frozen=True, array_like=True):
    """The state of a replica after the base of its index."""

    replicas: ReplicaSet
    settled: dict[int, list[int]]
    application: bytes
    kept: KeptRange = KeptRange()
    last_values: bytes = b""


class ReplicaLog:
    """The log of one replica, and how far it has come.

    Four marks move along the entries. ``matched``: up to here the entries are those of the leader that this replica
    follows. ``on_disk``: up to here they are on disk. ``complete``: up to here their messages are on disk.
    ``settled``: up to here no replica will ever have others.
    """

    def __init__(self, host: ReplicaHost, saved: SavedReplica, founders: ReplicaSet) -> None:
        self.host: Final = host
        self.term = saved.term
        self.voted_for = saved.voted_for
        self.index = Index(saved.base, saved.base_term, saved.position, saved.floor, host.read_entries)
        self.numbering = Numbering()
        # The part that is kept, now and according to the snapshot.
        self.kept = self._saved_kept = KeptRange()
        self.last_values = LastValues()
        self.state = saved.state
        self.settled = self.matched = self.on_disk = self.complete = self._written = saved.base
        # Answers of the disk from before this many truncations speak of entries that may be gone.
        self._truncations = 0
        # The publications of the entries behind ``complete``, and their entries.
        self._incomplete: dict[Name, int] = {}
        # The replicas from each entry on that changed them.
        self._sets: list[tuple[int, ReplicaSet]] = [(saved.base, founders)]
        if saved.state:
            self._restore(saved.state)
        for entry in saved.entries:
            self.append(entry)
        self._written = self.on_disk = self.index.last

    @property
    def replicas(self) -> ReplicaSet:
        """The replicas, as the last entry about them says, settled or not."""
        return self._sets[-1][1]

    @property
    def set_number(self) -> int:
        """The number of the last entry about the replicas; 0 if these are the first ones."""
        return self._sets[-1][0]

    @property
    def is_set_settled(self) -> bool:
        """Whether the last entry about the replicas is settled."""
        return self._sets[-1][0] <= self.settled

    def may_lead(self, replica: int) -> bool:
        """Whether a replica is a voter, or was one before a change that is not settled.

        A leader that takes itself out may be the only one that has the entry, and then nobody else is elected.
        """
        settled = next(found for number, found in reversed(self._sets) if number <= self.settled)
        return replica in self.replicas.voters or replica in settled.voters

    @property
    def held(self) -> int:
        """Up to which entry this replica has on disk what its leader has told it, messages included."""
        return min(self.complete, self.on_disk, self.matched)

    # Terms.

    def begin_term(self, term: int, voted_for: int = NOBODY) -> None:
        """A later term has begun."""
        self.term, self.voted_for = term, voted_for
        self.host.write_vote(term, voted_for)

    def vote(self, candidate: int) -> None:
        """Give the vote of this term."""
        self.voted_for = candidate
        self.host.write_vote(self.term, candidate)

    # Entries.

    def append(self, entry: IndexEntry) -> int:
        """Add an entry; gives its number."""
        number = self.index.append(entry)
        if entry.kind == DATA:
            self.numbering.place((entry.source, entry.sequence), number)
            self._incomplete[entry.source, entry.sequence] = number
        elif entry.kind == MEMBERS:
            self._sets.append((number, decode_set(entry.payload)))
            self.host.replicas_changed(self.replicas)
        self.advance()
        return number

    def truncate(self, first: int) -> None:
        """Another leader has other entries from a number on."""
        assert first > self.settled, "a settled entry is never replaced"
        for entry in self.index.truncate(first):
            if entry.kind == DATA:
                self.numbering.displace((entry.source, entry.sequence))
                self._incomplete.pop((entry.source, entry.sequence), None)
        last = first - 1
        self._written, self.on_disk = min(self._written, last), min(self.on_disk, last)
        self.complete, self.matched = min(self.complete, last), min(self.matched, last)
        self._truncations += 1
        self._confirm(self._written)
        while self._sets[-1][0] > last:
            self._sets.pop()
            self.host.replicas_changed(self.replicas)

    def write(self) -> None:
        """Bring new entries to the disk."""
        last = self.index.last
        if last > self._written:
            first, self._written = self._written + 1, last
            self.host.write_entries(first, self.index.slice(first, last - first + 1))
            self._confirm(last)

    def _confirm(self, number: int) -> None:
        truncations = self._truncations

        def on_disk() -> None:
            if truncations == self._truncations and number > self.on_disk:
                self.on_disk = number
                self.host.progressed()

        self.host.when_on_disk(on_disk)

    def advance(self) -> bool:
        """Entries or messages have come; whether the messages of all entries are here."""
        while self.complete < self.index.last:
            entry = self.index.entry(self.complete + 1)
            if entry.kind == DATA:
                if entry.end > self.kept.earliest and not self._holds(entry):
                    return False
                self._incomplete.pop((entry.source, entry.sequence), None)
            self.complete += 1
        return True

    def _holds(self, entry: IndexEntry) -> bool:
        return self.host.holds(entry.source, entry.sequence)

    def is_past(self, source: int, sequence: int) -> bool:
        """Whether the messages of a publication are not to be stored: they were removed, or come with the history.

        That is so if they have a place, and no entry behind the snapshot waits for them. A message on disk proves
        nothing: its removal may be under way, and messages stored behind the removal would stay for ever.
        """
        name = (source, sequence)
        if not self.numbering.is_settled(name):
            return False
        number = self._incomplete.get(name)
        if number is None or number > self.settled:
            return True
        entry = self.index.entry(number)
        return entry.end <= self.kept.earliest or self._holds(entry)

    def missing(self, most: int) -> list[tuple[int, int]]:
        """The publications among the next entries whose messages are not here."""
        entries = self.index.slice(self.complete + 1, most)
        wanted = [entry for entry in entries if entry.kind == DATA and entry.end > self.kept.earliest]
        return [(entry.source, entry.sequence) for entry in wanted if not self._holds(entry)]

    def settle_to(self, number: int) -> None:
        """The entries up to a number are settled."""
        while self.settled < number:
            self.settled += 1
            entry = self.index.entry(self.settled)
            if entry.kind == DATA:
                self.numbering.settle((entry.source, entry.sequence))
                self.kept = self.kept.grown(entry.size)
            elif entry.kind == TRIM:
                self._trim(msgspec.msgpack.decode(entry.payload, type=Trim))
            self.host.settled(self.settled, entry)
            if entry.kind == TRIM:
                self.host.trimmed(self.kept.earliest)
        self.free()

    def _trim(self, trim: Trim) -> None:
        before, self.kept = self.kept, self.kept.trimmed(trim, self.host.not_done())
        if self.kept is not before:
            self.last_values.apply(trim.newest)
        self.advance()

    # The part that is kept.

    @property
    def is_whole(self) -> bool:
        """Whether everything that is kept is here: a replica that began with a snapshot lacks what was before."""
        return self.index.floor < self.kept.first

    def free(self) -> None:
        """Free memory, and the disk space of what is not kept any more."""
        if self.settled - self.index.base >= COMPACT_ENTRIES or self.kept.first > self._saved_kept.first:
            self.compact()
        # Only what the snapshot does not count as kept: after a crash the replica begins with the snapshot.
        last = self._saved_kept.first - 1
        if last > self.index.floor:
            self.index.floor = last
            self.host.remove_entries(last)
            self._confirm(self._written)

    def fill(self, first: int, entries: list[NumberedEntry], contents: list[NamedContent]) -> None:
        """Take entries of before the snapshot, all from a number on to the first one that is here."""
        index, below = self.index, self.index.floor
        self.host.fill(first, entries, contents)

        def on_disk() -> None:
            if self.index is index and index.floor == below:
                index.floor = first - 1
                self.free()

        self.host.when_on_disk(on_disk)

    # Snapshots.

    def compact(self) -> None:
        """Write a snapshot of the state after the settled entries, which need not be in memory any more."""
        if self.settled == self.index.base or min(self.on_disk, self.complete) < self.settled:
            return
        replicas = next(found for number, found in reversed(self._sets) if number <= self.settled)
        self._saved_kept = self.kept
        values = self.last_values.snapshot()
        snapshot = SnapshotState(replicas, self.numbering.snapshot(), self.host.snapshot(), self.kept, values)
        self.state = msgspec.msgpack.encode(snapshot)
        self.index.forget(self.settled)
        self._sets = [(self.settled, replicas), *(each for each in self._sets if each[0] > self.settled)]
        self._write_snapshot(replaces=False)

    def install(self, base: int, base_term: int, position: int, state: bytes) -> None:
        """Begin with the snapshot of a leader, in place of everything here.

        The leader does not keep the entries that follow those here: it has removed these, too. Messages that are here
        and have a place may be among those that are kept: they come again when the history is filled.
        """
        self.index = Index(base, base_term, position, base, self.host.read_entries)
        self._incomplete.clear()
        self.settled = self.matched = self.complete = self._written = base
        self.on_disk = 0
        self.state = state
        self._truncations += 1
        self._restore(state)
        self.host.replicas_changed(self.replicas)
        self._write_snapshot(replaces=True)
        self.host.drop_contents(self.numbering.is_settled)
        self._confirm(base)

    def _write_snapshot(self, replaces: bool) -> None:
        index = self.index
        self.host.write_snapshot(index.base, index.base_term, index.base_position, self.state, replaces)

    def _restore(self, encoded: bytes) -> None:
        snapshot = msgspec.msgpack.decode(encoded, type=SnapshotState)
        self._sets = [(self.index.base, snapshot.replicas)]
        self.numbering.restore(snapshot.settled)
        self.kept = self._saved_kept = snapshot.kept
        self.last_values = LastValues.restored(snapshot.last_values)
        self.host.restore(snapshot.application)
        self.host.trimmed(self.kept.earliest)
