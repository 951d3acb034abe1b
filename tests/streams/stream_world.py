"""Replicas of one stream in virtual time: a network of connections, disks, and a fabric that delivers causally.

The fabric is a model, not the code of one: it delivers every publication to every node, each node in an order of its
own that respects causality, some time after the node could get it. Connections keep order and lose what is under way
when they break. A disk loses what was written since its last commit when its node crashes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from antiphon.simulator.cluster.clock import VirtualClock
from antiphon.streams.coordinator import Coordinator
from antiphon.streams.entries import COMMAND, DATA, MEMBERS, OPENING, IndexEntry, ReplicaSet
from antiphon.streams.host import NOBODY, SavedReplica
from antiphon.streams.links import MessageLinks
from antiphon.streams.messages import NamedContent, NumberedEntry, PublicationLinks, StreamMessage
from antiphon.streams.reassignment import Reassignment
from antiphon.streams.replica import Replica
from antiphon.streams.retention import Bounds, KeptRange, LastValue, Retention, newest_of
from tests.streams.crew import Crew
from tests.streams.stream_judge import StreamJudge

Name = tuple[int, int]

COMMIT_US = 3000
DETECTION_US = 20_000
STREAM = 7
MESSAGE_BYTES = 100


class Disk:
    """What a machine has written; the part that is safe outlives a crash."""

    def __init__(self) -> None:
        self.vote = (0, NOBODY)
        self.snapshot: tuple[int, int, int, bytes] = (0, 0, 0, b"")
        self.entries: dict[int, IndexEntry] = {}
        self.floor = 0
        self.contents: dict[Name, int] = {}
        # Local deliveries in their order.
        self.deliveries: list[tuple[Name, int]] = []

    def copy(self) -> Disk:
        found = Disk()
        found.vote, found.snapshot, found.entries = self.vote, self.snapshot, dict(self.entries)
        found.floor = self.floor
        found.contents, found.deliveries = dict(self.contents), list(self.deliveries)
        return found

    def apply(self, write: tuple[Any, ...]) -> None:
        getattr(self, f"_{write[0]}")(*write[1:])

    def _vote(self, term: int, voted_for: int) -> None:
        self.vote = (term, voted_for)

    def _entries(self, first: int, entries: list[IndexEntry]) -> None:
        self.entries = {number: entry for number, entry in self.entries.items() if number < first}
        self.entries.update(enumerate(entries, first))

    def _snapshot(self, snapshot: tuple[int, int, int, bytes], replaces: bool) -> None:
        self.snapshot = snapshot
        if replaces:
            self.entries, self.floor = {}, snapshot[0]

    def _drop(self, names: list[Name]) -> None:
        for name in names:
            self.contents.pop(name, None)

    def _remove(self, last: int) -> None:
        self.floor = last
        for number in [number for number in self.entries if number <= last]:
            entry = self.entries.pop(number)
            self.contents.pop((entry.source, entry.sequence), None)

    def _fill(self, first: int, filled: list[NumberedEntry], contents: dict[Name, int]) -> None:
        last = filled[-1][0]
        self.entries = {number: entry for number, entry in self.entries.items() if not first <= number <= last}
        self.entries.update(filled)
        self.contents.update(contents)
        self.floor = first - 1

    def _content(self, name: Name, count: int) -> None:
        self.contents[name] = count

    def _delivery(self, name: Name, count: int, is_stored: bool) -> None:
        if is_stored:
            self.contents[name] = count
        self.deliveries.append((name, count))

    def saved(self) -> SavedReplica:
        base, base_term, position, state = self.snapshot
        entries = []
        number = base + 1
        while number in self.entries:
            entries.append(self.entries[number])
            number += 1
        return SavedReplica(*self.vote, base, base_term, position, state, entries, self.floor)


class SimulatedReplica:
    """One life of a node with a replica: the host of :class:`Replica`."""

    def __init__(self, world: StreamWorld, me: int) -> None:
        self.world, self.me = world, me
        self.is_up = True
        self.disk = world.disks[me].copy()
        self._unsafe: list[tuple[Any, ...]] = []
        self._callbacks: list[tuple[int, Callable[[], None]]] = []
        self._written = 0
        self._is_committing = False
        # The state machine of the application: the positions of publications, and the commands.
        self.applied: list[tuple[int, int, int, bytes]] = []
        self.delivered: set[Name] = set()
        self.random = random.Random(world.random.random())
        self.coordinator = Coordinator(self)
        self.retention = Retention(self)
        self.reassignment = Reassignment(self)
        self.replica = Replica(STREAM, me, self, self.disk.saved(), world.founders_of[me])
        for name, count in self.disk.deliveries:
            self.delivered.add(name)
            if name in self.disk.contents:
                self.replica.delivered(*name, count, count * MESSAGE_BYTES)

    # What the replica asks for.

    def send(self, replica: int, message: StreamMessage) -> None:
        self.world.send(self.me, replica, message)

    def is_connected(self, replica: int) -> bool:
        return replica in self.world.connections[self.me]

    def now_us(self) -> int:
        return self.world.clock.now_us

    def after(self, delay_us: int, call: Callable[[], object]) -> None:
        self.world.clock.post(delay_us, lambda: self._call(call))

    def _call(self, call: Callable[[], object]) -> None:
        if self.is_up:
            call()
            self.turn_ends()

    def turn_ends(self) -> None:
        self.coordinator.flush()
        self.replica.flush()

    def draw(self, below: int) -> int:
        return self.random.randrange(below)

    def _write(self, *write: object) -> None:
        self._unsafe.append(write)
        self._written += 1

    def write_vote(self, term: int, voted_for: int) -> None:
        self._write("vote", term, voted_for)

    def write_entries(self, first: int, entries: Sequence[IndexEntry]) -> None:
        self._write("entries", first, list(entries))

    def read_entries(self, first: int, most: int) -> list[IndexEntry]:
        found: list[IndexEntry] = []
        while len(found) < most and first in self.disk.entries:
            found.append(self.disk.entries[first])
            first += 1
        return found

    def write_snapshot(self, base: int, base_term: int, position: int, state: bytes, replaces: bool) -> None:
        self._write("snapshot", (base, base_term, position, state), replaces)

    def write_content(self, source: int, sequence: int, content: bytes) -> None:
        self._write("content", (source, sequence), len(content))

    def remove_entries(self, last: int) -> None:
        self._write("remove", last)

    def drop_contents(self, is_settled: Callable[[Name], bool]) -> None:
        there = {*self.disk.contents}
        for write in self._unsafe:
            if write[0] in ("content", "delivery"):
                there.add(write[1])
            elif write[0] == "fill":
                there.update(write[3])
        self._write("drop", [name for name in there if is_settled(name)])

    def fill(self, first: int, entries: Sequence[NumberedEntry], contents: Sequence[NamedContent]) -> None:
        counts = {(source, sequence): len(content) for source, sequence, content in contents}
        self._write("fill", first, list(entries), counts)

    def clock_us(self) -> int:
        return self.world.clock.now_us

    def trimmed(self, earliest: int) -> None:
        self.coordinator.trimmed(earliest)

    def when_on_disk(self, call: Callable[[], None]) -> None:
        self._callbacks.append((self._written, call))
        self._commit_soon()

    def _commit_soon(self) -> None:
        if not self._is_committing:
            self._is_committing = True
            count, written = len(self._unsafe), self._written
            delay_us = 1 + self.random.randrange(2 * COMMIT_US)
            self.after(delay_us, lambda: self._committed(count, written))

    def _committed(self, count: int, written: int) -> None:
        for write in self._unsafe[:count]:
            self.disk.apply(write)
        self.world.disks[self.me] = self.disk.copy()
        del self._unsafe[:count]
        self._is_committing = False
        due = [call for number, call in self._callbacks if number <= written]
        self._callbacks = [each for each in self._callbacks if each[0] > written]
        for call in due:
            call()
        if self._unsafe or self._callbacks:
            self._commit_soon()

    def progressed(self) -> None:
        self.replica.progressed()

    def holds(self, source: int, sequence: int) -> bool:
        return (source, sequence) in self.disk.contents

    def read_contents(self, publications: Sequence[Name]) -> list[tuple[int, int, bytes]]:
        return [
            (*name, bytes(self.disk.contents[name])) for name in map(tuple, publications) if name in self.disk.contents
        ]

    def links_of(self, publications: Sequence[Name]) -> list[PublicationLinks]:
        """Each publication has one number, and names all that it follows."""
        found: list[PublicationLinks] = []
        for name in publications:
            _, follows = self.world.publications[name]
            found.append((name[1], name[1], [number for pair in sorted(follows) for number in pair]))
        return found

    def settled(self, number: int, entry: IndexEntry) -> None:
        if entry.kind in (DATA, COMMAND):
            self.applied.append((entry.position, entry.source, entry.sequence, entry.payload))
        self.world.judge.settled(self.me, number, entry, self.replica.leading is not None)
        self.coordinator.settled(number, entry)
        if entry.kind == OPENING and self.replica.leading is not None and entry.term == self.replica.log.term:
            self.coordinator.opened()
            self.retention.opened()
            self.reassignment.opened(self.replica)
            self.world.release(self)
        self.retention.settled(number)
        if entry.kind == MEMBERS:
            self.reassignment.advance()
            self.world.release(self)

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self.applied, self.coordinator.settled_end, self.coordinator.table.snapshot()))

    def restore(self, state: bytes) -> None:
        self.applied, self.coordinator.settled_end, consumers = msgspec.msgpack.decode(
            state, type=tuple[list[tuple[int, int, int, bytes]], int, bytes]
        )
        self.coordinator.table.restore(consumers)

    def leads(self, term: int) -> None:
        self.world.judge.leads(self.me, term)

    def followed(self, leader: int) -> None:
        self.coordinator.resigned()
        self.retention.resigned()
        self.reassignment.resigned()

    def keepers(self) -> list[int]:
        return self.world.keepers

    # What retention asks for.

    def bounds(self) -> Bounds:
        return self.world.bounds

    def not_done(self) -> list[int]:
        return [consumer.done_below for consumer in self.coordinator.table.by_name.values()]

    def kept(self) -> KeptRange:
        return self.replica.log.kept

    def settled_entries(self) -> tuple[int, Callable[[int, int], list[IndexEntry]]]:
        return self.replica.log.settled, self.replica.log.index.slice

    def has_room_for_values(self) -> bool:
        return True

    def newest(self, entries: list[IndexEntry]) -> list[LastValue] | None:
        found = newest_of(entries, self._keys_of)
        if found is None:
            return None
        places = {key: entry.position + place for key, (entry, place) in found.items()}
        # Every seventh message has no value.
        return [LastValue(key, at, payload=b"%d" % at if at % 7 else b"") for key, at in places.items()]

    def _keys_of(self, entry: IndexEntry) -> list[bytes] | None:
        if (entry.source, entry.sequence) not in self.disk.contents:
            return None
        return [self.world.judge.key_of(position) for position in range(entry.position, entry.end)]

    def append(self, kind: int, payload: bytes) -> int | None:
        return self.replica.propose(payload, kind)

    # What the coordinator asks for.

    def propose(self, payload: bytes) -> int | None:
        return self.replica.propose(payload)

    def key_of(self, position: int) -> bytes:
        return self.world.judge.key_of(position)

    def links(self, position: int) -> MessageLinks:
        return self.world.links(position)

    def hand(self, consumer: str, member: int, position: int, delivery: int) -> None:
        self.world.crew.hand(self, consumer, member, position, delivery)

    def bury(self, consumer: str, position: int, deliveries: int, then: Callable[[], object]) -> None:
        self.world.judge.buried(consumer, position, deliveries)
        self.after(2000, then)

    def replicas_changed(self, replicas: ReplicaSet) -> None:
        self.world.wanted_connections(self.me, replicas)

    # What the fabric does.

    def deliver(self, name: Name, count: int) -> None:
        self.delivered.add(name)
        is_past = self.replica.log.is_past(*name)
        self._write("delivery", name, count, not is_past)

        def safe() -> None:
            if not is_past:
                self.replica.delivered(*name, count, count * MESSAGE_BYTES)
            self.replica.flush()

        self.when_on_disk(safe)


class StreamWorld:
    """Some machines, a network, a fabric, and the judge."""

    def links(self, position: int) -> MessageLinks:
        """What a message says: half of the publishers name single messages, the others all up to some."""
        judge = self.judge
        author, number = judge.name_of(position)
        follows = tuple(judge.name_of(before) for before in judge.follows(position))
        return MessageLinks(author, number, follows, is_narrowed=author % 2 == 0)

    def __init__(self, seed: int, nodes: int, founders: ReplicaSet, bounds: Bounds) -> None:
        self.random = random.Random(seed)
        self.clock = VirtualClock()
        self.nodes = nodes
        self.founders = founders
        self.bounds = bounds
        # The nodes that are to keep the stream; a node that comes later does not know the first ones.
        self.keepers = list(founders.voters)
        self.founders_of = {node: founders if node in self.keepers else ReplicaSet(()) for node in range(nodes)}
        self.message_bytes = MESSAGE_BYTES
        self.disks = [Disk() for _ in range(nodes)]
        self.lives: list[SimulatedReplica | None] = [None] * nodes
        self.connections: list[set[int]] = [set() for _ in range(nodes)]
        self._cuts: set[frozenset[int]] = set()
        # The number of the connection between two nodes: what was sent over an earlier one is lost.
        self._numbers: dict[frozenset[int], int] = {}
        self._noticed_of: dict[tuple[int, int], int] = {}
        self._arrivals: dict[tuple[int, int], int] = {}
        self.published_us: dict[Name, int] = {}
        self.publications: dict[Name, tuple[int, frozenset[Name]]] = {}
        self._counts: dict[int, int] = {}
        self.judge: StreamJudge = StreamJudge(self)
        self.crew = Crew(self)
        for node in range(nodes):
            self.start(node)

    def life(self, node: int) -> SimulatedReplica | None:
        return self.lives[node]

    def wanted_connections(self, node: int, replicas: ReplicaSet) -> None:
        """All nodes are connected anyway."""

    # Machines and network.

    def start(self, node: int) -> None:
        if self.lives[node] is not None:
            return
        life = self.lives[node] = SimulatedReplica(self, node)
        life.replica.start()
        for other in range(self.nodes):
            self._connect_soon(node, other)
        self._spread_to(node)

    def crash(self, node: int) -> None:
        life = self.lives[node]
        if life is not None:
            life.is_up = False
            self.lives[node] = None
            for other in tuple(self.connections[node]):
                self._break(node, other, crashed=node)

    def wipe(self, node: int) -> None:
        self.crash(node)
        self.disks[node] = Disk()

    def release(self, leader: SimulatedReplica) -> None:
        """The leader tells nodes that are no replicas any more to forget the stream."""
        replica = leader.replica
        if replica.leading is None or not replica.log.is_set_settled:
            return
        for node in range(self.nodes):
            if node not in (*replica.replicas.all, *self.keepers) and node in self.connections[leader.me]:
                self.clock.post(self.random.randrange(100, 5000), partial(self._forget, node, self.lives[node]))

    def _forget(self, node: int, life: SimulatedReplica | None) -> None:
        if life is not None and self.lives[node] is life:
            self.wipe(node)
            self.founders_of[node] = ReplicaSet(())
            self.start(node)

    def cut(self, one: int, other: int) -> None:
        if one != other:
            self._cuts.add(frozenset((one, other)))
            if other in self.connections[one]:
                self._break(one, other, None)

    def heal(self) -> None:
        self._cuts.clear()
        for one in range(self.nodes):
            for other in range(one):
                self._connect_soon(one, other)
            self._spread_to(one)

    def _connect_soon(self, one: int, other: int) -> None:
        if one != other:
            self.clock.post(self.random.randrange(1000, 30_000), lambda: self._connect(one, other))

    def _connect(self, one: int, other: int) -> None:
        pair = frozenset((one, other))
        if pair in self._cuts or other in self.connections[one] or self.lives[one] is None or self.lives[other] is None:
            return
        if one in self.connections[other]:
            # The other end has not noticed yet that the former one broke.
            self._connect_soon(one, other)
            return
        self._numbers[pair] = self._numbers.get(pair, 0) + 1
        for here, there in ((one, other), (other, one)):
            self.connections[here].add(there)
            self._noticed_of[here, there] = self._numbers[pair]
            life = self.lives[here]
            assert life is not None
            life.replica.connected(there)

    def _break(self, one: int, other: int, crashed: int | None) -> None:
        pair = frozenset((one, other))
        self._numbers[pair] = self._numbers.get(pair, 0) + 1
        for here, there in ((one, other), (other, one)):
            if here == crashed:
                self.connections[here].discard(there)
                continue
            life, number = self.lives[here], self._noticed_of[here, there]
            self.clock.post(self.random.randrange(DETECTION_US), partial(self._noticed, here, there, number, life))

    def _noticed(self, here: int, there: int, number: int, life: SimulatedReplica | None) -> None:
        is_it = self._noticed_of[here, there] == number
        if life is not None and life.is_up and there in self.connections[here] and is_it:
            self.connections[here].discard(there)
            life.replica.disconnected(there)
            self._connect_soon(here, there)

    def send(self, sender: int, to: int, message: StreamMessage) -> None:
        if to not in self.connections[sender]:
            return
        pair = frozenset((sender, to))
        number = self._numbers[pair]
        at_us = self.clock.now_us + self.random.randrange(100, 5000)
        at_us = self._arrivals[sender, to] = max(at_us, self._arrivals.get((sender, to), 0) + 1)

        def arrive() -> None:
            life = self.lives[to]
            if life is not None and self._numbers[pair] == number and sender in self.connections[to]:
                life.replica.receive(sender, message)
                life.turn_ends()

        self.clock.post(at_us - self.clock.now_us, arrive)

    # The fabric.

    def publish(self, node: int) -> None:
        life = self.lives[node]
        if life is None:
            return
        self._counts[node] = self._counts.get(node, 0) + 1
        name = (node, self._counts[node])
        count = self.random.randrange(1, 4)
        self.published_us[name] = self.clock.now_us
        self.publications[name] = (count, frozenset(life.delivered))
        life.deliver(name, count)
        for other in range(self.nodes):
            if other != node:
                self._spread_to(other)

    def propose(self, payload: bytes) -> None:
        for life in self.lives:
            if life is not None and life.replica.leading is not None:
                life.replica.propose(payload)
                life.replica.flush()

    def _spread_to(self, node: int) -> None:
        self.clock.post(self.random.randrange(500, 20_000), lambda: self._deliver_some(node))

    def _deliver_some(self, node: int) -> None:
        life = self.lives[node]
        if life is None:
            return
        ready = []
        for name, (count, past) in self.publications.items():
            is_reachable = any(
                frozenset((node, other)) not in self._cuts and other_life is not None and name in other_life.delivered
                for other, other_life in enumerate(self.lives)
            )
            if name not in life.delivered and past <= life.delivered and is_reachable:
                ready.append((name, count))
        if ready:
            name, count = self.random.choice(ready)
            life.deliver(name, count)
            for other in range(self.nodes):
                self._spread_to(other)
