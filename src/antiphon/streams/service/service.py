"""The streams of one node: which it keeps, how their replicas reach those of other nodes, and the directory.

A node with a data directory keeps streams. The first node of a cluster founds the directory; its leader lets others
vote until three or five do, and asks nodes to keep the streams that are made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

import msgspec

from antiphon.kernel.errors import ProtocolError
from antiphon.streams.directory import (
    DIRECTORY,
    Absences,
    AddStream,
    AssignReplicas,
    DirectoryCommand,
    StreamDirectory,
    keepers_of,
    replicas_for,
)
from antiphon.streams.entries import COMMAND, IndexEntry, ReplicaSet
from antiphon.streams.host import NOBODY
from antiphon.streams.messages import StreamMessage, decode_message, encode_message
from antiphon.streams.requests import REPLACE_US, Policy, StreamInfo
from antiphon.streams.service.host import ServiceHost
from antiphon.streams.service.live_replica import LiveReplica
from antiphon.streams.service.service_messages import (
    ForgetStreams,
    KeepStream,
    ServiceMessage,
    StreamGreeting,
    decode_service_message,
)

PLACE_US: Final = 1_000_000
"""How often the leader of the directory looks whether streams must move."""

GREET_US: Final = 1_000_000
"""How often a node looks for others that have not greeted it."""

PLACED_AT_ONCE: Final = 256
"""So many streams it looks at, at one time."""

DIRECTORY_VOTERS: Final = 5


class StreamMembers(Protocol):
    """Those to whom a node hands messages of consumers: sessions of clients."""

    def hand(self, replica: LiveReplica, consumer: str, member: int, position: int, delivery: int) -> None:
        """Give a message to a member."""

    def settled(self, replica: LiveReplica, entry: IndexEntry) -> None:
        """An entry of a stream is settled here."""

    def leader_changed(self, replica: LiveReplica) -> None:
        """A replica leads, follows another one, or has no leader."""

    def trimmed(self, replica: LiveReplica) -> None:
        """A stream begins later."""

    def bury(
        self, replica: LiveReplica, consumer: str, position: int, deliveries: int, then: Callable[[], object]
    ) -> None:
        """Publish a message as a dead letter."""


class StreamService:
    """The streams of one node with a data directory. ``members`` is set by the gateway of clients."""

    members: StreamMembers

    def __init__(self, host: ServiceHost) -> None:
        self.host = host
        self.store = host.files
        self.identity = self.store.identity
        self.directory = StreamDirectory()
        self.now_us, self.after = host.now_us, host.after
        self._is_over = False
        # By the identifier of a node: its number as a replica. And the other way round.
        self._identities: dict[int, int] = {}
        self._identifiers: dict[int, int] = {}
        self._with_directory: set[int] = set()
        # By identifier: for how many rounds a node has not answered.
        self._silent: dict[int, int] = {}
        self.replicas: dict[int, LiveReplica] = {}
        self.by_topic: dict[str, LiveReplica] = {}
        self._absences = Absences()
        # Streams that are still to be looked at in this round.
        self._unplaced: list[int] = []

    # The life of the node.

    def start(self, is_first: bool) -> None:
        """The node is in its cluster; ``is_first`` if it began it."""
        if self.store.fact("directory") is not None:
            self._keep_directory(ReplicaSet(()))
        elif is_first and self.store.fact("streams") is None:
            self._keep_directory(ReplicaSet((self.identity,)))
        kept = msgspec.msgpack.decode(self.store.fact("streams") or b"\x90", type=list[StreamInfo])
        for info in kept:
            self._keep(info)
        self._write_kept()
        for identifier in self.host.identifiers():
            self.peer_found(identifier)
        self.after(GREET_US, self._greet_again)
        self.host.settle()

    def close(self) -> None:
        """End."""
        self._is_over = True
        for replica in self.replicas.values():
            replica.close()

    def _keep_directory(self, founders: ReplicaSet) -> None:
        if DIRECTORY in self.replicas:
            return
        saved = self.store.fact("directory")
        if saved is None:
            self.store.put("directory", msgspec.msgpack.encode(founders))
        else:
            founders = msgspec.msgpack.decode(saved, type=ReplicaSet)
        replica = self.replicas[DIRECTORY] = LiveReplica(self, DIRECTORY, "", founders)
        replica.start()

    def _keep(self, info: StreamInfo) -> None:
        known = self.replicas.get(info.number)
        if known is not None or self._is_over:
            if known is not None and (known.info is None or info.changed >= known.info.changed):
                known.info = info
            return
        if self.store.fact(f"offset {info.number}") is None:
            # The history begins now, and not with what the log of this node has of the topic.
            self.store.put(f"offset {info.number}", b"%d" % self.host.end_offset(info.name))
        founders = self.store.fact(f"founders {info.number}")
        if founders is None:
            # A node that comes later, or again with nothing, learns from the leader who the replicas are: it must not
            # vote as if it were one of the first.
            first = ReplicaSet(() if info.assigned else tuple(info.voters))
            founders = msgspec.msgpack.encode(first)
            self.store.put(f"founders {info.number}", founders)
        replica = LiveReplica(self, info.number, info.name, msgspec.msgpack.decode(founders, type=ReplicaSet))
        replica.info = info
        self.replicas[info.number] = self.by_topic[info.name] = replica
        replica.follow_topic()
        replica.start()

    def _write_kept(self) -> None:
        kept = [replica.info for replica in self.replicas.values() if replica.info is not None]
        self.store.put("streams", msgspec.msgpack.encode(kept))
        self.store.then(bool)

    def _forget(self, number: int) -> None:
        replica = self.replicas.pop(number, None)
        if replica is not None:
            replica.close()
            if self.by_topic.get(replica.topic) is replica:
                del self.by_topic[replica.topic]
            self.store.forget(number)
            self._write_kept()

    # Other nodes.

    def peer_found(self, identifier: int) -> None:
        """Another node can be reached."""
        self._tell(identifier, StreamGreeting(self.identity, DIRECTORY in self.replicas, sorted(self.replicas)))

    def _greet_again(self) -> None:
        """Greet the nodes that have not answered: a greeting is lost where the other one had no place yet."""
        if self._is_over:
            return
        self.after(GREET_US, self._greet_again)
        silent = {each for each in self.host.identifiers() if each not in self._identities}
        self._silent = {each: self._silent.get(each, 0) + 1 for each in silent}
        for identifier, rounds in self._silent.items():
            # Nodes without a data directory never answer: after the 1st, 2nd, 4th, ... round.
            if rounds & (rounds - 1) == 0:
                self.peer_found(identifier)

    def peer_lost(self, identifier: int) -> None:
        """Another node cannot be reached any more."""
        identity = self._identities.pop(identifier, None)
        if identity is not None and self._identifiers.get(identity) == identifier:
            del self._identifiers[identity]
            for replica in tuple(self.replicas.values()):
                replica.replica.disconnected(identity)
                replica.turn_ends()

    def on_frame(self, sender: int, is_replica: bool, payload: bytes) -> None:
        """Another node has said something about streams."""
        try:
            if is_replica:
                self._on_replica_message(sender, decode_message(payload))
            else:
                self._on_service_message(sender, decode_service_message(payload))
        except msgspec.DecodeError as error:
            raise ProtocolError(f"node {sender} sent a message about streams that cannot be read: {error}") from error
        self.host.settle()

    def _on_replica_message(self, sender: int, message: StreamMessage) -> None:
        identity = self._identities.get(sender)
        if message.stream == DIRECTORY and DIRECTORY not in self.replicas:
            self._keep_directory(ReplicaSet(()))
        replica = self.replicas.get(message.stream)
        if replica is not None and identity is not None:
            replica.replica.receive(identity, message)
            replica.turn_ends()

    def _on_service_message(self, sender: int, message: ServiceMessage) -> None:
        if isinstance(message, StreamGreeting):
            self._greeted(sender, message)
        elif isinstance(message, KeepStream):
            if message.info.number in self.replicas or self.identity in message.info.keepers:
                self._keep(message.info)
                self._write_kept()
        else:
            for number in message.numbers:
                self._forget(number)

    def _greeted(self, sender: int, greeting: StreamGreeting) -> None:
        if greeting.has_directory:
            self._with_directory.add(greeting.identity)
        if not greeting.identity or greeting.identity == self.identity:
            return
        is_new = self._identities.get(sender) != greeting.identity
        self._identities[sender] = greeting.identity
        self._identifiers[greeting.identity] = sender
        if is_new:
            # First the greeting: messages of a replica that nobody has greeted are dropped.
            self.peer_found(sender)
            for replica in tuple(self.replicas.values()):
                replica.replica.connected(greeting.identity)
                replica.turn_ends()
        self._help(greeting.identity, set(greeting.kept))
        for number in greeting.kept:
            self._release(number, greeting.identity)

    def _release(self, number: int, identity: int) -> None:
        """As the leader of a stream: tell a node that is no replica any more to forget it."""
        replica = self.replicas.get(number)
        if replica is None or number == DIRECTORY or not replica.is_open or not replica.replica.log.is_set_settled:
            return
        if identity not in (*replica.replica.replicas.all, *self.keepers_of(replica)):
            self._tell_identity(identity, ForgetStreams([number]))

    def _help(self, identity: int, kept: set[int]) -> None:
        """As the leader of the directory: tell a node which streams it keeps, and which are no more."""
        if not self.leads_directory:
            return
        for info in self.directory.by_number.values():
            # A node that keeps it may have an earlier policy.
            if identity in info.keepers or info.number in kept:
                self._tell_identity(identity, KeepStream(info))
        gone = [each for each in kept if each and each <= self.directory.last and each not in self.directory.by_number]
        if gone:
            self._tell_identity(identity, ForgetStreams(gone))

    def _tell(self, identifier: int, message: ServiceMessage) -> None:
        self.host.send(identifier, False, msgspec.msgpack.encode(message))

    def _tell_identity(self, identity: int, message: ServiceMessage) -> None:
        if identity == self.identity:
            self._on_service_message(-1, message)
        elif identity in self._identifiers:
            self._tell(self._identifiers[identity], message)

    # The directory.

    @property
    def leads_directory(self) -> bool:
        """Whether this node leads the directory, and knows all of it."""
        found = self.replicas.get(DIRECTORY)
        return found is not None and found.is_open

    @property
    def knows_directory(self) -> bool:
        """Whether some node that this one has met keeps the directory."""
        return DIRECTORY in self.replicas or bool(self._with_directory)

    def found_directory(self) -> None:
        """Begin the directory here."""
        self._keep_directory(ReplicaSet((self.identity,)))
        for identifier in self._identifiers.values():
            self.peer_found(identifier)

    def keepers_of(self, replica: LiveReplica) -> Sequence[int]:
        """The nodes that are to keep a stream; those that keep the directory are always an odd number."""
        if replica.stream != DIRECTORY:
            return replica.replica.replicas.voters if replica.info is None else replica.info.keepers
        now_us, voters = self.now_us(), replica.replica.replicas.voters
        self._absences.look(voters, self._is_present, now_us)
        staying = [each for each in voters if self._absences.away_us(each, now_us) < REPLACE_US]
        able = [*staying, *(each for each in sorted(self._identifiers) if each not in voters)]
        wanted = able[: min(DIRECTORY_VOTERS, (len(able) - 1) // 2 * 2 + 1)]
        return wanted if len(wanted) >= len(voters) else voters

    def _is_present(self, identity: int) -> bool:
        return identity == self.identity or identity in self._identifiers

    def replicas_settled(self, replica: LiveReplica) -> None:
        """Other nodes keep a stream from now on."""
        if replica.info is None or not replica.is_open:
            return
        for identity in self._identifiers:
            if identity in replica.info.keepers:
                # The leader of the directory has told it, too; a request to forget may have come later.
                self._tell_identity(identity, KeepStream(replica.info))
            else:
                self._release(replica.stream, identity)

    def _place(self, term: int) -> None:
        """As the leader of the directory: let other nodes keep streams whose replicas are away for too long."""
        directory = self.replicas[DIRECTORY]
        if not self.leads_directory or directory.replica.log.term != term:
            return
        self.after(PLACE_US, partial(self._place, term))
        now_us = self.now_us()
        self._unplaced = self._unplaced or list(self.directory.by_number)
        looked_at, self._unplaced = self._unplaced[:PLACED_AT_ONCE], self._unplaced[PLACED_AT_ONCE:]
        for info in [self.directory.by_number[each] for each in looked_at if each in self.directory.by_number]:
            self._absences.look((*info.voters, *info.keepers), self._is_present, now_us)
            present = replicas_for(info.number, self.candidates(), info.policy.replicas)
            wanted = keepers_of(info, present, partial(self._absences.away_us, now_us=now_us))
            if set(wanted) != set(info.keepers):
                self.host.log.info("other nodes keep a topic", topic=info.name, nodes=len(wanted))
                self.decide(AssignReplicas(info.number, wanted), bool)

    def candidates(self) -> list[int]:
        """The nodes that can keep streams now."""
        return [self.identity, *self._identifiers]

    def create(self, name: str, policy: Policy, owner: str, done: Callable[[StreamInfo], None]) -> None:
        """As the leader of the directory: keep the history of a topic from now on."""
        found = self.directory.by_name.get(name)
        if found is not None:
            done(found)
            return
        number = self.replicas[DIRECTORY].replica.log.index.last + 1
        voters = replicas_for(number, self.candidates(), policy.replicas)
        self.decide(AddStream(name, policy, voters, owner), lambda: done(self.directory.by_name[name]))

    def decide(self, command: DirectoryCommand, done: Callable[[], object]) -> None:
        """As the leader of the directory: change it."""
        directory = self.replicas[DIRECTORY]
        proposed = directory.propose(msgspec.msgpack.encode(command))
        assert proposed is not None, "the leader proposes"
        directory.when_settled(proposed, done)
        directory.turn_ends()

    # What replicas ask for.

    def send(self, replica: int, stream: int, message: StreamMessage) -> None:
        """Send a message to another replica."""
        identifier = self._identifiers.get(replica)
        if identifier is not None:
            self.host.send(identifier, True, encode_message(message))

    def is_connected(self, replica: int) -> bool:
        """Whether another replica can be reached."""
        return replica in self._identifiers

    def settled(self, replica: LiveReplica, number: int, entry: IndexEntry) -> None:
        """An entry is settled."""
        if replica.stream == DIRECTORY:
            if entry.kind == COMMAND:
                before = dict(self.directory.by_number)
                self.directory.apply(number, entry.payload)
                self._changed(before)
        else:
            self.members.settled(replica, entry)
        self.host.settle()

    def _changed(self, before: dict[int, StreamInfo]) -> None:
        """As the leader of the directory: tell the nodes that keep a stream, or kept one."""
        if not self.leads_directory:
            return
        now = self.directory.by_number
        for info in (info for number, info in now.items() if before.get(number) != info):
            former = before.get(info.number)
            for identity in {*info.keepers, *(() if former is None else former.keepers)}:
                self._tell_identity(identity, KeepStream(info))
        for info in (info for number, info in before.items() if number not in now):
            for identity in info.keepers:
                self._tell_identity(identity, ForgetStreams([info.number]))

    def hand(self, replica: LiveReplica, consumer: str, member: int, position: int, delivery: int) -> None:
        """Give a message to a member."""
        self.members.hand(replica, consumer, member, position, delivery)

    def trimmed(self, replica: LiveReplica) -> None:
        """A stream begins later."""
        if replica.stream != DIRECTORY:
            self.members.trimmed(replica)

    def bury(
        self, replica: LiveReplica, consumer: str, position: int, deliveries: int, then: Callable[[], object]
    ) -> None:
        """Publish a message as a dead letter."""
        self.members.bury(replica, consumer, position, deliveries, then)

    def leader_changed(self, replica: LiveReplica) -> None:
        """A replica leads, follows another one, or has no leader."""
        if replica.stream == DIRECTORY and self.leads_directory:
            self._absences.clear()
            self.after(PLACE_US, partial(self._place, replica.replica.log.term))
            for identity in (self.identity, *self._identifiers):
                self._help(identity, set())
        self.members.leader_changed(replica)

    # Where to ask.

    def address_of(self, identity: int) -> str | None:
        """Where a replica is."""
        identifier = self._identifiers.get(identity)
        return None if identifier is None else self.host.address(identifier)

    def whom_to_ask(self, stream: int | None) -> list[str]:
        """Nodes that know more about a stream, or about the directory: the leader, or replicas."""
        replica = self.replicas.get(DIRECTORY if stream is None else stream)
        if replica is not None and replica.leader not in (NOBODY, self.identity):
            identities = [replica.leader]
        elif stream is None:
            identities = sorted(self._with_directory)
        else:
            info = self.directory.by_number.get(stream)
            identities = [] if info is None else info.keepers
        found = [self.address_of(each) for each in identities]
        return [each for each in found if each is not None]
