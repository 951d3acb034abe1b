"""A simulated node that keeps streams: it hosts the streams of a live node, and tells the judge what it hands out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from antiphon.api.batch import Batch
from antiphon.api.batch_codec import encode_columns
from antiphon.api.columns import Author, Columns, Follows
from antiphon.api.heard import THIS_TOPIC
from antiphon.api.streams.stored_batches import StoredBatches
from antiphon.audit.streams import StreamsJudge
from antiphon.kernel.message import Publication
from antiphon.sessions.client_messages import StreamRequest, StreamResponse
from antiphon.simulator.clients.batches import SimulatedBatch
from antiphon.simulator.clients.machine import ROOM, Machine
from antiphon.simulator.clients.serving_node import ServingLife
from antiphon.simulator.clients.serving_session import SimulatedSession
from antiphon.simulator.cluster.links import SimulatedConnection
from antiphon.simulator.cluster.network import Pipe
from antiphon.streams.requests import AckMessages, Done, Handed, decode_request, decode_response
from antiphon.streams.service.host import StreamBatch
from antiphon.streams.service.live_replica import LiveReplica
from antiphon.streams.service.service import StreamService
from antiphon.streams.service.stream_gateway import StreamAccess, StreamGateway
from antiphon.torture.streams.files import SimulatedStreamFiles
from antiphon.transport.peer_messages import StreamFrame

LETTER_US: Final = 3000
"""How long a dead letter takes until it is accepted."""


class StreamMachine(Machine):
    """A machine with the files of streams."""

    files: SimulatedStreamFiles

    def wiped(self) -> None:
        super().wiped()
        self.files.wiped()

    def history_messages(self) -> set[str]:
        """The names of the messages that this machine has for the history of the topic; none if it keeps no history.

        Messages that are in the log alone are stored for the history when the node is back.
        """
        found: set[str] = set()
        for stream in self.files.streams():
            for content in self.files.contents(stream):
                batch = Batch(ROOM, content.publisher, content.order, 0, content.payload)
                found.update(value.decode() for value in batch.columns.values)
            first = int(self.files.fact(f"offset {stream}") or 0)
            found.update(MessageText(batch.name).name for _, batch in self.logged[first:])
        return found


class MessageText:
    """The text of a message of a program: its name, its key, and what it follows beside its author's messages."""

    def __init__(self, text: str) -> None:
        self.name, self.key, named = text.split(";")
        pairs = [int(number) for pair in named.split(",") if pair for number in pair.split(":")]
        self.follows = Follows({THIS_TOPIC: pairs}) if pairs else None


def stored_batch(batch: SimulatedBatch, offset: int) -> Batch:
    """A batch of the simulated fabric as a live node holds it."""
    text = MessageText(batch.name)
    follows: list[Follows | None] | None = None if text.follows is None else [text.follows]
    columns = Columns(
        batch.sequence, 0, [text.name.encode()], [text.key.encode()], author_sequence=batch.number, follows=follows
    )
    payload = encode_columns(columns, Author(batch.author, batch.number))
    return Batch(ROOM, batch.publisher, batch.order, offset, payload, sequence=batch.sequence)


class AllRights:
    """The rights of all programs: everything."""

    admin: Final = True

    def may_publish(self, topic: str) -> bool:
        """Whether messages may be published on a topic."""
        return True

    def may_subscribe(self, wanted: str) -> bool:
        """Whether a topic may be read."""
        return True

    def may_consume(self, topic: str) -> bool:
        """Whether named consumers of a topic may be used."""
        return True

    def may_manage(self, topic: str) -> bool:
        """Whether a topic and its consumers may be made, changed and removed."""
        return True


class ProgramHolder:
    """A program as the rights know it."""

    name: Final = "a program"
    rights: Final = AllRights()


class SimulatedAsker:
    """A connected program as the streams of a node know it. The judge hears what the two say."""

    holder: Final = ProgramHolder()

    def __init__(self, session: SimulatedSession, life: StreamLife) -> None:
        self._session = session
        self._life = life
        self._judge = life.streams_judge
        # By the number of a request: the consumer and the member that it attached, or the messages that are done.
        self._members: dict[int, tuple[str, int]] = {}
        self._acknowledged: dict[int, tuple[str, list[int]]] = {}

        self.is_connected = True
        self.has_room = True

    def _hear_beginning(self) -> int:
        """Tell the judge where the history begins here; the answer is the term of the leader."""
        found = self._life.history()
        if found is None:
            return 0
        self._judge.begins_at(found.kept().earliest)
        return found.replica.log.term

    def check_kept(self, quota: str, used: int, more: int = 1) -> None:
        """Programs have no quotas."""

    def charge_command(self) -> None:
        """Nor are they paced."""

    def asks(self, number: int, payload: bytes) -> None:
        """A request has come."""
        request = decode_request(payload)
        consumer, member = getattr(request, "consumer", ""), getattr(request, "member", 0)
        if isinstance(request, AckMessages):
            self._acknowledged[number] = (consumer, request.positions)
            self._judge.asked_to_acknowledge(consumer, request.positions)
        else:
            self._members[number] = (consumer, member)

    def answer(self, number: int, payload: bytes) -> None:
        """Send an answer."""
        response = decode_response(payload)
        if isinstance(response, Done) and number in self._acknowledged:
            self._hear_beginning()
            self._judge.answered(*self._acknowledged.pop(number), response.counts)
        elif isinstance(response, Handed):
            leader = (self._life.number, self._hear_beginning())
            consumer, member = self._members[number]
            content = response.batch
            batch = Batch(ROOM, content.publisher, content.order, content.position, content.payload)
            for place, delivery in response.places:
                name = batch.columns.values[place].decode()
                position = content.position + place
                self._judge.handed(consumer, member, response.generation, position, delivery, name, leader)
        self._session.send(StreamResponse(number, payload))


class StreamLife(ServingLife):
    """One life of a node that keeps streams."""

    machine: StreamMachine
    streams_judge: StreamsJudge

    def prepare(self, machine: Machine) -> None:
        super().prepare(machine)
        self.service: StreamService | None = None
        self.access = StreamAccess()
        self.host = SimulatedStreamHost(self)
        self._askers: dict[SimulatedConnection, SimulatedAsker] = {}

    def begin_topic(self) -> None:
        super().begin_topic()
        if self.service is None and self.machine.disk.is_kept:
            self.service = StreamService(self.host)
            self.access.gateway = StreamGateway(self.service)
            self.service.start(is_first=self.identifier == 0 and self.membership.incarnation <= 1)

    def crash(self, has_power: bool) -> None:
        super().crash(has_power)
        self._end_streams()
        self.machine.files.crashed()

    def _gone(self) -> None:
        if self.is_up:
            self._end_streams()
            self.machine.files.closed()
        super()._gone()

    def _end_streams(self) -> None:
        if self.service is not None:
            self.service.close()

    def history(self) -> LiveReplica | None:
        """The replica of the topic that this node has."""
        return None if self.service is None else self.service.by_topic.get(ROOM)

    def delivered(self, publication: Publication) -> None:
        before = len(self.machine.logged)
        super().delivered(publication)
        self.host.delivered(before)

    # Connections.

    def _take(self, connection: SimulatedConnection, frame: object) -> None:
        session = self.sessions.get(connection)
        if isinstance(frame, StreamRequest) and session is not None:
            asker = self._askers.get(connection)
            if asker is None:
                asker = self._askers[connection] = SimulatedAsker(session, self)
            asker.asks(frame.number, frame.payload)
            self.access.on_request(asker, frame.number, frame.payload, self.addresses())
        elif isinstance(frame, StreamFrame):
            sender = self.membership.identifier_of(connection.instance)
            if sender is not None and self.service is not None:
                self.service.on_frame(sender, frame.is_replica, frame.payload)
        else:
            super()._take(connection, frame)

    def _end(self, pipe: Pipe) -> None:
        asker = self._askers.pop(self._connections[pipe], None)
        if asker is not None:
            asker.is_connected = False
            self.access.client_ended(asker)
        super()._end(pipe)

    def peer_lost(self, identifier: int) -> None:
        super().peer_lost(identifier)
        if self.service is not None:
            self.service.peer_lost(identifier)

    def peer_found(self, identifier: int) -> None:
        super().peer_found(identifier)
        if self.service is not None:
            self.service.peer_found(identifier)


class SimulatedStreamHost(StoredBatches):
    """The host of the streams of one life: its files, its clock, its links and its deliveries."""

    def __init__(self, life: StreamLife) -> None:
        self._life = life
        self._followers: dict[int, Callable[[StreamBatch], None]] = {}
        self._last_follower = 0
        self.files = life.machine.files
        self.log = life.log
        self.now_us = self.clock_us = life.now_us
        self.after: Callable[[int, Callable[[], object]], None] = life.after  # type: ignore[assignment]
        self.draw = life.draw
        self.identifiers: Callable[[], Iterable[int]] = life.identifiers

    def settle(self) -> None:
        """Messages leave at once."""

    def send(self, identifier: int, is_replica: bool, payload: bytes) -> None:
        """Send another node something about streams."""
        self._life.send_control(identifier, StreamFrame(is_replica, payload))

    def address(self, identifier: int) -> str | None:
        """Where another node is."""
        peers = self._life.membership.peers()
        return next((peer.address for peer in peers if peer.identifier == identifier), None)

    def check_name(self, topic: str) -> None:
        """Programs use one topic."""

    def bury(self, topic: str, value: bytes, headers: dict[str, bytes], then: Callable[[], object]) -> None:
        """A dead letter is accepted after a while."""

        def accepted() -> None:
            consumer, position = headers["antiphon-consumer"].decode(), int(headers["antiphon-position"])
            self._life.streams_judge.buried(consumer, position)
            then()

        self._life.after(LETTER_US, accepted)

    # What is delivered.

    def end_offset(self, topic: str) -> int:
        """How many messages this node has delivered."""
        return len(self._life.machine.logged)

    def follow(self, topic: str, first_offset: int, take: Callable[[StreamBatch], None]) -> Callable[[], None]:
        """Hand over what is delivered, from an offset on."""
        self._last_follower += 1
        number = self._last_follower
        self._followers[number] = take
        for offset in range(first_offset, self.end_offset(topic)):
            take(stored_batch(self._life.machine.logged[offset][1], offset))
        return lambda: self._end(number)

    def _end(self, number: int) -> None:
        self._followers.pop(number, None)

    def delivered(self, first_offset: int) -> None:
        """There is more from an offset on."""
        logged = self._life.machine.logged
        for offset in range(first_offset, len(logged)):
            for take in list(self._followers.values()):
                take(stored_batch(logged[offset][1], offset))
