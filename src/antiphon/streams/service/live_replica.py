"""One replica of a stream at one node: the disk, the timers and the deliveries behind :mod:`antiphon.streams`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol

import msgspec

from antiphon.streams.coordinator import Coordinator
from antiphon.streams.directory import DIRECTORY, StreamDirectory
from antiphon.streams.entries import DATA, MEMBERS, OPENING, IndexEntry, ReplicaSet
from antiphon.streams.host import NOBODY
from antiphon.streams.links import MessageLinks
from antiphon.streams.messages import NamedContent, NumberedEntry, PublicationLinks, StreamMessage
from antiphon.streams.reassignment import Reassignment
from antiphon.streams.replica import Replica
from antiphon.streams.requests import StreamInfo
from antiphon.streams.retention import Bounds, KeptRange, LastValue, Retention, newest_of
from antiphon.streams.service.entry_window import EntryWindow
from antiphon.streams.service.host import Name, ServiceHost, StreamBatch, StreamContent, StreamFiles

BATCHES_CACHED: Final = 256
"""The messages of so many publications are held in memory for consumers."""

ENTRIES_READ: Final = 64
"""So many entries are read at one time for a consumer that is behind."""

NOTHING_KNOWN: Final = MessageLinks(-1, 0)
"""Of a message that is not here any more."""

ALL_ENTRIES: Final = 1 << 62


class StreamNode(Protocol):
    """The node on which a replica lives."""

    host: ServiceHost
    store: StreamFiles
    directory: StreamDirectory

    def send(self, replica: int, stream: int, message: StreamMessage) -> None:
        """Send a message to another replica when the node settles."""

    def is_connected(self, replica: int) -> bool:
        """Whether another replica can be reached."""

    def settled(self, replica: LiveReplica, number: int, entry: IndexEntry) -> None:
        """An entry of a stream is settled."""

    def hand(self, replica: LiveReplica, consumer: str, member: int, position: int, delivery: int) -> None:
        """Give a message to a member."""

    def trimmed(self, replica: LiveReplica) -> None:
        """A stream begins later."""

    def keepers_of(self, replica: LiveReplica) -> Sequence[int]:
        """The nodes that are to keep a stream."""

    def replicas_settled(self, replica: LiveReplica) -> None:
        """Other nodes keep a stream from now on."""

    def bury(
        self, replica: LiveReplica, consumer: str, position: int, deliveries: int, then: Callable[[], object]
    ) -> None:
        """Publish a message as a dead letter."""

    def leader_changed(self, replica: LiveReplica) -> None:
        """A replica leads, follows another one, or has no leader."""


class LiveReplica:
    """The host of one replica and of its consumers."""

    def __init__(self, node: StreamNode, stream: int, topic: str, founders: ReplicaSet) -> None:
        self.stream = stream
        self.topic = topic
        self.info: StreamInfo | None = None
        # Whether this replica leads, and knows everything that former leaders have settled.
        self.is_open = False
        self._awaited: dict[int, Callable[[], object]] = {}
        self._node = node
        self._host = node.host
        self._store = node.store
        self._end_following: Callable[[], object] = bool
        self.is_over = False
        # Where publications without a settled place are in the log of this node.
        self._offsets: dict[Name, int] = {}
        # The last entry that may be on disk; nobody knows at first.
        self._last_written = ALL_ENTRIES
        # Messages that are written and may not be on disk, each with whether entries wait for that. And the last that
        # were read.
        self._unsafe: dict[Name, bool] = {}
        self._cache: dict[Name, StreamBatch] = {}
        self.now_us, self.draw, self.clock_us = node.host.now_us, node.host.draw, node.host.clock_us
        self.is_connected = node.is_connected
        # Entries with messages that are settled: the last ones, and those that consumers behind them read.
        self._tail = EntryWindow()
        self._read = EntryWindow(ENTRIES_READ)
        # Whether the log says that the newest values of removed messages are too many.
        self._is_told_full = False
        self.coordinator = Coordinator(self)
        self._retention = Retention(self)
        self._reassignment = Reassignment(self)
        saved = self._store.saved(stream)
        self.next_offset = int(self._store.fact(f"offset {stream}") or 0)
        self.replica = Replica(stream, self._store.identity, self, saved, founders)
        for source, sequence, offset in self._store.deliveries(stream, self.next_offset):
            content = self._store.content(stream, source, sequence)
            assert content is not None, "it was listed"
            count = int(self._host.batch(topic, content).count)
            self._offsets[source, sequence] = offset
            self.replica.delivered(source, sequence, count, len(content.payload))
            self.next_offset = max(self.next_offset, offset + count)

    def start(self) -> None:
        """The node is in its cluster."""
        self.replica.start()

    def close(self) -> None:
        """Do nothing any more."""
        self.is_over = True
        self._end_following()

    # What the fabric delivers.

    def follow_topic(self) -> None:
        """Take what is delivered on the topic from now on."""
        self._end_following = self._host.follow(self.topic, self.next_offset, self._deliver)

    def _deliver(self, batch: StreamBatch) -> None:
        name = (batch.author, batch.number)
        self.next_offset = batch.end_offset
        if self.replica.log.is_past(*name):
            return
        content = StreamContent(int(batch.publisher), int(batch.sequence), batch.order, batch.payload)
        # Nobody else hears of the entry of a sole replica, and it is written after its messages: it is on disk only if
        # they are.
        is_early = self.replica.is_alone and self.replica.log.numbering.has_no_place(name)
        self._write_content(name, content, batch.first_offset, is_early)
        self._offsets[name] = batch.first_offset
        self._remember(name, batch)
        if is_early:
            self.replica.delivered(*name, int(batch.count), len(batch.payload))
            self._store.then(partial(self._unsafe.pop, name, None))
            self.turn_ends()
            return

        def safe() -> None:
            if not self.is_over:
                self._unsafe.pop(name, None)
                self.replica.delivered(*name, int(batch.count), len(batch.payload))
                self.turn_ends()

        self._store.then(safe)

    def _write_content(self, name: Name, content: StreamContent, offset: int, is_early: bool = False) -> None:
        self._store.write_content(self.stream, name, offset, content)
        self._unsafe[name] = not is_early

    def _remember(self, name: Name, batch: StreamBatch) -> None:
        self._cache[name] = batch
        if len(self._cache) > BATCHES_CACHED:
            del self._cache[next(iter(self._cache))]

    def batch_in_memory(self, entry: IndexEntry) -> StreamBatch | None:
        """The messages of an entry, if they are in memory."""
        return self._cache.get((entry.source, entry.sequence))

    def batch_of(self, entry: IndexEntry) -> StreamBatch | None:
        """The messages of an entry, if they are here."""
        name = (entry.source, entry.sequence)
        found = self._cache.get(name)
        if found is None:
            content = self._store.content(self.stream, *name)
            if content is None:
                return None
            found = self._host.batch(self.topic, content)
            self._remember(name, found)
        return found

    def content_of(self, entry: IndexEntry) -> StreamBatch | StreamContent | None:
        """The same for reading alone: old messages do not take the place of those that consumers look at."""
        name = (entry.source, entry.sequence)
        return self._cache.get(name) or self._store.content(self.stream, *name)

    def entry_at(self, position: int) -> IndexEntry:
        """The settled entry that holds a position."""
        found = self._tail.find(position) or self._read.find(position)
        if found is None:
            # A consumer goes on from there: it needs the next ones soon.
            (found, *others) = self._store.entries_at(self.stream, position, ENTRIES_READ)
            for entry in (found, *others):
                self._read.add(entry)
        return found

    # What the replica asks for.

    def send(self, replica: int, message: StreamMessage) -> None:
        self._node.send(replica, self.stream, message)

    def after(self, delay_us: int, call: Callable[[], object]) -> None:
        self._host.after(delay_us, partial(self._call, call))

    def _call(self, call: Callable[[], object]) -> None:
        if not self.is_over:
            call()
            self.turn_ends()

    def turn_ends(self) -> None:
        """Settle acknowledgements, and send what is new."""
        self.coordinator.flush()
        self.replica.flush()

    def write_vote(self, term: int, voted_for: int) -> None:
        self._store.put(f"vote {self.stream}", msgspec.msgpack.encode((term, voted_for)))

    def write_entries(self, first: int, entries: Sequence[IndexEntry]) -> None:
        if first <= self._last_written:
            self._store.cut_entries(self.stream, first, ALL_ENTRIES)
        for number, entry in enumerate(entries, first):
            self._store.write_entry(self.stream, number, entry)
        self._last_written = first + len(entries) - 1

    def read_entries(self, first: int, most: int) -> list[IndexEntry]:
        return self._store.entries(self.stream, first, most)

    def write_snapshot(self, base: int, base_term: int, position: int, state: bytes, replaces: bool) -> None:
        # Publications before this offset need not be looked at when the node starts.
        offset = min(self._offsets.values(), default=self.next_offset)
        self._store.put(f"offset {self.stream}", str(offset).encode())
        self._store.put(f"snapshot {self.stream}", msgspec.msgpack.encode((base, base_term, position, state)))
        if replaces:
            self._store.put(f"floor {self.stream}", str(base).encode())
            self._store.cut_entries(self.stream, 0, ALL_ENTRIES)

    def drop_contents(self, is_settled: Callable[[Name], bool]) -> None:
        for name in {*self._store.content_names(self.stream), *self._unsafe}:
            if is_settled(name):
                self._store.remove_content(self.stream, *name)

    def remove_entries(self, last: int) -> None:
        self._store.remove_entries(self.stream, last)

    def fill(self, first: int, entries: Sequence[NumberedEntry], contents: Sequence[NamedContent]) -> None:
        last = entries[-1][0]
        self._store.cut_entries(self.stream, first, last)
        for number, entry in entries:
            self._store.write_entry(self.stream, number, entry)
        for source, sequence, content in contents:
            self._write_content((source, sequence), msgspec.msgpack.decode(content, type=StreamContent), -1)
            self._store.then(partial(self._unsafe.pop, (source, sequence), None))
        self._store.put(f"floor {self.stream}", b"%d" % (first - 1))

    def trimmed(self, earliest: int) -> None:
        self.coordinator.trimmed(earliest)
        if self.is_open:
            self._node.trimmed(self)

    def when_on_disk(self, call: Callable[[], object]) -> None:
        self._store.then(partial(self._call, call))

    def progressed(self) -> None:
        self.replica.progressed()

    def holds(self, source: int, sequence: int) -> bool:
        waits = self._unsafe.get((source, sequence))
        return self._store.holds(self.stream, source, sequence) if waits is None else not waits

    def read_contents(self, publications: Sequence[Name]) -> list[tuple[int, int, bytes]]:
        found = [(*name, self._store.content(self.stream, *name)) for name in publications]
        return [
            (source, sequence, msgspec.msgpack.encode(each)) for source, sequence, each in found if each is not None
        ]

    def links_of(self, publications: Sequence[Name]) -> list[PublicationLinks]:
        found: list[PublicationLinks] = []
        for name in publications:
            content = self._store.content(self.stream, *name)
            if content is None:
                found.append((0, 0, []))
                continue
            batch = self._host.batch(self.topic, content)
            first, count = self._host.first_number(batch), int(batch.count)
            pairs = [
                number
                for place in range(count)
                for pair in self._host.links_of(batch, place).follows
                for number in pair
            ]
            found.append((first, first + count - 1, pairs))
        return found

    def write_content(self, source: int, sequence: int, content: bytes) -> None:
        self._write_content((source, sequence), msgspec.msgpack.decode(content, type=StreamContent), -1)
        self._store.then(partial(self._unsafe.pop, (source, sequence), None))

    def settled(self, number: int, entry: IndexEntry) -> None:
        if entry.kind == DATA:
            self._offsets.pop((entry.source, entry.sequence), None)
            if entry.count:
                self._tail.add(entry)
        if self.topic:
            self.coordinator.settled(number, entry)
        self._node.settled(self, number, entry)
        is_mine = entry.kind == OPENING and self.replica.leading is not None and entry.term == self.replica.log.term
        if is_mine:
            self.is_open = True
            self.coordinator.opened()
            self._retention.opened()
            self._reassignment.opened(self.replica)
            self._node.replicas_settled(self)
            self._node.leader_changed(self)
        self._retention.settled(number)
        if entry.kind == MEMBERS:
            self._reassignment.advance()
            self._node.replicas_settled(self)
        call = self._awaited.pop(number, None)
        if call is not None:
            call()

    def snapshot(self) -> bytes:
        if self.stream == DIRECTORY:
            return self._node.directory.snapshot()
        return msgspec.msgpack.encode((self.coordinator.settled_end, self.coordinator.table.snapshot()))

    def restore(self, state: bytes) -> None:
        if self.stream == DIRECTORY:
            self._node.directory.restore(state)
            return
        self.coordinator.settled_end, consumers = msgspec.msgpack.decode(state, type=tuple[int, bytes])
        self.coordinator.table.restore(consumers)

    def leads(self, term: int) -> None:
        pass

    def followed(self, leader: int) -> None:
        self.is_open = False
        self._awaited.clear()
        self.coordinator.resigned()
        self._retention.resigned()
        self._reassignment.resigned()
        self._node.leader_changed(self)

    def replicas_changed(self, replicas: ReplicaSet) -> None:
        pass

    def when_settled(self, number: int, call: Callable[[], object]) -> None:
        """Call something when an entry is settled, if this replica still leads then."""
        self._awaited[number] = call

    def keepers(self) -> Sequence[int]:
        return self._node.keepers_of(self)

    # What retention asks for.

    def bounds(self) -> Bounds:
        return Bounds() if self.info is None else self.info.policy.bounds

    def not_done(self) -> Iterable[int]:
        return [consumer.done_below for consumer in self.coordinator.table.by_name.values()]

    def kept(self) -> KeptRange:
        return self.replica.log.kept

    def settled_entries(self) -> tuple[int, Callable[[int, int], list[IndexEntry]]]:
        log = self.replica.log
        return log.settled, log.index.slice

    def has_room_for_values(self) -> bool:
        is_full = self.replica.log.last_values.is_full
        if is_full and not self._is_told_full:
            self._host.log.info(
                "retention stops: the newest values of removed messages are too long, or have too many keys",
                topic=self.topic,
                bytes=self.replica.log.last_values.size,
            )
        self._is_told_full = is_full
        return not is_full

    def newest(self, entries: list[IndexEntry]) -> list[LastValue] | None:
        found = newest_of(entries, self._keys_of)
        if found is None:
            return None
        values = []
        for key, (entry, place) in found.items():
            batch = self.batch_of(entry)
            if batch is None:
                return None
            payload = self._host.alone(batch, place)
            position = entry.position + place
            values.append(LastValue(key, position, int(batch.publisher), int(batch.sequence), batch.order, payload))
        return values

    def _keys_of(self, entry: IndexEntry) -> list[bytes] | None:
        batch = self.batch_of(entry)
        return None if batch is None else [self._host.key_of(batch, place) for place in range(entry.count)]

    def append(self, kind: int, payload: bytes) -> int | None:
        return self.replica.propose(payload, kind)

    # What consumers ask for.

    def propose(self, payload: bytes) -> int | None:
        return self.replica.propose(payload)

    def key_of(self, position: int) -> bytes:
        entry = self.entry_at(position)
        batch = self.batch_of(entry)
        return b"" if batch is None else self._host.key_of(batch, position - entry.position)

    def links(self, position: int) -> MessageLinks:
        entry = self.entry_at(position)
        batch = self.batch_of(entry)
        return NOTHING_KNOWN if batch is None else self._host.links_of(batch, position - entry.position)

    def hand(self, consumer: str, member: int, position: int, delivery: int) -> None:
        self._node.hand(self, consumer, member, position, delivery)

    def bury(self, consumer: str, position: int, deliveries: int, then: Callable[[], object]) -> None:
        self._node.bury(self, consumer, position, deliveries, then)

    @property
    def leader(self) -> int:
        """The replica that leads, or :data:`NOBODY`."""
        return self.replica.leader if not self.is_over else NOBODY
