"""Answers requests of clients about streams at one node: topics, history, positions, and members of consumers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec

from antiphon.kernel.errors import AntiphonError, DeniedError, ProtocolError, RemovedError, UsageError
from antiphon.streams.commands import CreateConsumer, RemoveConsumer
from antiphon.streams.directory import DIRECTORY
from antiphon.streams.entries import DATA, IndexEntry
from antiphon.streams.requests import (
    EARLIEST,
    LATEST,
    AckMessages,
    AttachConsumer,
    AwaitPosition,
    BatchContent,
    ConsumerInfo,
    CreateTopic,
    DescribeTopic,
    DetachConsumer,
    Done,
    ExtendLease,
    FoundDirectory,
    Handed,
    HistoryPiece,
    ListTopics,
    MissedMessages,
    PositionFound,
    ReadHistory,
    Redirect,
    RemoveConsumerRequest,
    RemoveTopic,
    Request,
    Response,
    ReturnMessage,
    SetPolicy,
    SetWindow,
    StreamFailure,
    TopicInfo,
    TopicList,
    decode_request,
    encode,
)
from antiphon.streams.service.disk_waits import DiskWait, DiskWaits
from antiphon.streams.service.host import StreamClient
from antiphon.streams.service.live_replica import LiveReplica
from antiphon.streams.service.recent_positions import AwaitedPositions, PlacedBatch, RecentPositions
from antiphon.streams.service.service import StreamService
from antiphon.streams.service.topic_requests import TopicRequests, may_see

OneTopicRequest = (
    DescribeTopic
    | ReadHistory
    | AwaitPosition
    | AttachConsumer
    | AckMessages
    | ReturnMessage
    | ExtendLease
    | SetWindow
    | DetachConsumer
    | RemoveConsumerRequest
)

ENTRIES_READ: Final = 256
"""How many publications one piece of history has at most."""


@dataclass
class MemberAttachment:
    """A member that is connected here."""

    client: StreamClient
    number: int
    # Messages of this turn, by the batch that they are in.
    batches: dict[int, tuple[BatchContent, list[tuple[int, int]]]] = field(default_factory=dict)
    # How many messages the member knows that its consumer has missed.
    missed: int = 0


class StreamAccess:
    """The way to the streams of a node: there are some when the node has its place, and a data directory.

    ``is_possible`` says whether its fabric has histories at all.
    """

    def __init__(self, is_possible: bool = True) -> None:
        self._is_possible = is_possible
        self.gateway: StreamGateway | None = None

    def on_request(self, client: StreamClient, number: int, payload: bytes, others: list[str]) -> None:
        """A client asks for something; ``others`` are the addresses of the other nodes."""
        if self.gateway is not None:
            self.gateway.on_request(client, number, payload)
        elif self._is_possible:
            reason = "no node of this cluster keeps streams: that takes data directories (--data)"
            client.answer(number, encode(Redirect(others, reason, keeps_none=True)))
        else:
            reason = "topics have a history on a cube or a tree, and not on the fabric of this cluster"
            client.answer(number, encode(StreamFailure(reason)))

    def client_ended(self, client: StreamClient) -> None:
        """A client has gone."""
        if self.gateway is not None:
            self.gateway.client_ended(client)

    def rights_changed(self, client: StreamClient) -> None:
        """A client has other rights."""
        if self.gateway is not None:
            self.gateway.rights_changed(client)


class StreamGateway:
    """The requests of all clients of one node about streams."""

    def __init__(self, service: StreamService) -> None:
        self._service = service
        self._host = service.host
        self._topics = TopicRequests(service)
        service.members = self
        self._attached: dict[tuple[int, str, int], MemberAttachment] = {}
        # By stream: readers that wait for messages, and the positions of the last publications.
        self._readers: dict[int, list[Callable[[], None]]] = {}
        self._positions: dict[int, RecentPositions] = {}
        self._disk_waits = DiskWaits(service)

    def on_request(self, client: StreamClient, number: int, payload: bytes) -> None:
        """A client asks for something."""
        try:
            request = decode_request(payload)
        except msgspec.DecodeError as error:
            raise ProtocolError(f"a client sent a request about streams that cannot be read: {error}") from error
        respond = partial(self._respond, client, number)
        try:
            self._handle(client, number, request, respond)
        except AntiphonError as error:
            respond(StreamFailure(str(error), isinstance(error, DeniedError), type(error).__name__))

    def _respond(self, client: StreamClient, number: int, response: Response) -> None:
        client.answer(number, encode(response))

    def _handle(self, client: StreamClient, number: int, request: Request, respond: Callable[[Response], None]) -> None:
        if isinstance(request, (CreateTopic, RemoveTopic, ListTopics, SetPolicy, FoundDirectory)):
            self._topics.handle(client, request, respond)
            return
        self._check(client, request)
        replica = self._leader_of(request.topic, respond)
        if replica is None:
            return
        if isinstance(request, DescribeTopic):
            respond(TopicList([self._describe(replica)]))
        elif isinstance(request, ReadHistory):
            self._read(replica, request, respond)
        elif isinstance(request, AwaitPosition):
            self._await_position(client, replica, request, respond)
        else:
            self._consume(client, number, replica, request, respond)
        replica.turn_ends()

    def _check(self, client: StreamClient, request: OneTopicRequest) -> None:
        topic = request.topic
        self._host.check_name(topic)
        rights = client.holder.rights
        if isinstance(request, DescribeTopic):
            what, is_allowed = "read", may_see(rights, topic)
        elif isinstance(request, ReadHistory):
            what, is_allowed = "read", rights.may_subscribe(topic)
        elif isinstance(request, AwaitPosition):
            what, is_allowed = "read", rights.may_subscribe(topic) or rights.may_publish(topic)
        elif isinstance(request, RemoveConsumerRequest):
            what, is_allowed = "manage the consumers of", rights.may_manage(topic)
        else:
            what, is_allowed = "consume", rights.may_consume(topic)
        if not is_allowed:
            raise DeniedError(f"client {client.holder.name!r} may not {what} {topic!r}; have it added to its rights")

    def _leader_of(self, topic: str, respond: Callable[[Response], None]) -> LiveReplica | None:
        """The replica here that leads the history of a topic; otherwise the client is told whom to ask."""
        service = self._service
        found = service.by_topic.get(topic)
        if found is not None and found.is_open:
            return found
        if found is not None:
            respond(
                Redirect(service.whom_to_ask(found.stream), f"the history of {topic!r} has another leader, or none yet")
            )
            return None
        info = service.directory.by_name.get(topic)
        if info is not None:
            respond(Redirect(service.whom_to_ask(info.number), f"the history of {topic!r} is kept at other nodes"))
        elif service.leads_directory:
            respond(StreamFailure(f"the topic {topic!r} has no history; make it with: antiphon topics create {topic}"))
        else:
            respond(
                Redirect(service.whom_to_ask(None), f"this node does not know where the history of {topic!r} is kept")
            )
        return None

    def _describe(self, replica: LiveReplica) -> TopicInfo:
        info, leading, coordinator = replica.info, replica.replica.leading, replica.coordinator
        assert info is not None and leading is not None
        consumers = []
        for name, consumer in sorted(coordinator.table.by_name.items()):
            handing = coordinator.handing(name)
            handed_out = 0 if handing is None else len(handing.holders())
            lag = coordinator.settled_end - consumer.done_below
            mode, members = consumer.settings.mode, len(consumer.members)
            consumers.append(ConsumerInfo(name, mode, consumer.done_below, lag, handed_out, members, consumer.missed))
        connected = sum(
            each == self._service.identity or self._service.is_connected(each)
            for each in replica.replica.replicas.voters
        )
        kept, end = replica.kept(), coordinator.settled_end
        return TopicInfo(
            info.name,
            info.policy.replicas,
            info.number,
            end,
            connected,
            consumers,
            info.policy,
            kept.earliest,
            kept.size,
        )

    # History.

    def _read(self, replica: LiveReplica, request: ReadHistory, respond: Callable[[Response], None]) -> None:
        check_generation(replica, request.generation)
        end = replica.coordinator.settled_end
        position = self._position_of(replica, request.position)
        if position < end:
            respond(self._history(replica, position, request.most_bytes))
        elif request.wait_us == 0:
            respond(HistoryPiece([], position, replica.stream))
        else:
            self._wait_for_news(replica, position, request, respond)

    def _position_of(self, replica: LiveReplica, start: int) -> int:
        """The position at which somebody begins, or goes on."""
        earliest = replica.kept().earliest
        if start == LATEST:
            return replica.coordinator.settled_end
        if start == EARLIEST:
            return earliest
        if start < earliest:
            raise RemovedError(
                f"position {start} of {replica.topic!r} was removed by retention; the earliest one is {earliest}"
            )
        return start

    def _wait_for_news(
        self, replica: LiveReplica, position: int, request: ReadHistory, respond: Callable[[Response], None]
    ) -> None:
        is_answered = False

        def answer() -> None:
            nonlocal is_answered
            if not is_answered:
                is_answered = True
                # Retention may have removed the position meanwhile: then the next question is refused.
                is_kept = position >= replica.kept().earliest
                piece = self._history(replica, position, request.most_bytes) if is_kept else HistoryPiece([], position)
                respond(piece)

        self._readers.setdefault(replica.stream, []).append(answer)
        self._service.after(request.wait_us, answer)

    def _history(self, replica: LiveReplica, position: int, most_bytes: int) -> HistoryPiece:
        end, size = replica.coordinator.settled_end, 0
        batches: list[BatchContent] = []
        for entry in self._service.store.entries_at(replica.stream, position, ENTRIES_READ):
            if entry.end > end or (batches and size > most_bytes):
                break
            content = self._content(replica, entry)
            if content is None:
                break
            batches.append(content)
            size += len(content.payload)
            position = entry.end
        return HistoryPiece(batches, position, replica.stream)

    def _content(self, replica: LiveReplica, entry: IndexEntry) -> BatchContent | None:
        batch = replica.batch_of(entry)
        if batch is None:
            return None
        return BatchContent(entry.position, int(batch.publisher), int(batch.sequence), batch.order, batch.payload)

    # Positions.

    def _await_position(
        self, client: StreamClient, replica: LiveReplica, request: AwaitPosition, respond: Callable[[Response], None]
    ) -> None:
        now_us = self._service.now_us()

        def found(position: int, jumps: list[int], entry: int) -> None:
            leading = replica.replica.leading
            placed = PositionFound(replica.stream, position, 0 if leading is None else leading.disks(entry), jumps)
            if request.all_us == 0 or leading is None:
                respond(placed)
            else:
                self._disk_waits.add(replica, DiskWait(placed, entry, self._service.now_us() + request.all_us, respond))

        awaited = AwaitedPositions(client, request.author, request.sequence, request.count, now_us, found, respond)
        self._positions_of(replica.stream).find(awaited)

    def _positions_of(self, stream: int) -> RecentPositions:
        return self._positions.setdefault(stream, RecentPositions())

    def settled(self, replica: LiveReplica, entry: IndexEntry) -> None:
        """An entry of a stream is settled here."""
        if entry.kind != DATA:
            return
        is_leading = replica.replica.leading is not None
        if is_leading:
            for answer in self._readers.pop(replica.stream, ()):
                answer()
        # The next leader is asked for positions that were settled before it led.
        batch = replica.batch_of(entry) if is_leading else replica.batch_in_memory(entry)
        if batch is None:
            return
        first = self._host.first_number(batch)
        placed = PlacedBatch(first, int(batch.count), entry.position, replica.replica.log.settled)
        self._positions_of(replica.stream).add(batch.author, placed)

    # Consumers.

    def _consume(
        self,
        client: StreamClient,
        number: int,
        replica: LiveReplica,
        request: Request,
        respond: Callable[[Response], None],
    ) -> None:
        coordinator = replica.coordinator
        if isinstance(request, AttachConsumer):
            self._attach(client, number, replica, request, respond)
            return
        if isinstance(request, RemoveConsumerRequest):
            coordinator.settle(RemoveConsumer(request.consumer), lambda: respond(Done()))
            return
        assert isinstance(request, (AckMessages, ReturnMessage, ExtendLease, SetWindow, DetachConsumer))
        handing = coordinator.handing(request.consumer)
        attachment = self._attached.get((replica.stream, request.consumer, request.member))
        if handing is None or attachment is None or attachment.client is not client:
            respond(Redirect([], f"this client is no member of the consumer {request.consumer!r} here"))
        elif isinstance(request, AckMessages):
            handing.acknowledge(request.member, request.positions, lambda counts: respond(Done(counts)))
        elif isinstance(request, ReturnMessage):
            handing.give_back(request.member, request.position, request.delay_us)
            respond(Done())
        elif isinstance(request, ExtendLease):
            handing.extend(request.member, request.position)
            respond(Done())
        elif isinstance(request, SetWindow):
            handing.widen(request.member, request.window)
            respond(Done())
        else:
            self._detach(replica, request.consumer, request.member)
            respond(Done())

    def _attach(
        self,
        client: StreamClient,
        number: int,
        replica: LiveReplica,
        request: AttachConsumer,
        respond: Callable[[Response], None],
    ) -> None:
        check_generation(replica, request.generation)
        coordinator = replica.coordinator
        known = coordinator.table.by_name.get(request.consumer)
        if known is not None and known.settings != request.settings:
            raise UsageError(
                f"the consumer {request.consumer!r} of {request.topic!r} has other settings ({known.settings}); "
                "use these, choose another name, or remove it: antiphon consumers rm"
            )
        # Where a consumer begins counts when it is made; afterwards it goes on.
        start = self._position_of(replica, request.start) if known is None else 0
        place = (replica.stream, request.consumer, request.member)

        def attached(is_attached: bool) -> None:
            respond(Done(is_attached))
            self.trimmed(replica)

        def created(_: bool) -> None:
            self._attached[place] = MemberAttachment(client, number)
            coordinator.attach(request.consumer, request.member, request.held, request.window, attached)

        if known is None:
            owner = client.holder.name
            used = sum(each.coordinator.owned_by(owner) for each in self._service.replicas.values() if each.is_open)
            client.check_kept("consumers", used)
            coordinator.create(CreateConsumer(request.consumer, start, request.settings, owner), created)
        else:
            created(True)

    def trimmed(self, replica: LiveReplica) -> None:
        """Tell members what their consumers have missed."""
        for (stream, name, _), attachment in self._attached.items():
            consumer = replica.coordinator.table.by_name.get(name) if stream == replica.stream else None
            if consumer is not None and consumer.missed > attachment.missed:
                attachment.missed = consumer.missed
                attachment.client.answer(attachment.number, encode(MissedMessages(consumer.missed)))

    def _detach(self, replica: LiveReplica, consumer: str, member: int) -> None:
        self._attached.pop((replica.stream, consumer, member), None)
        replica.coordinator.detach(consumer, member)

    def client_ended(self, client: StreamClient) -> None:
        """A client has gone: its messages go to others at once, and it waits for no position."""
        for positions in self._positions.values():
            positions.holder_ended(client)
        for place, attachment in tuple(self._attached.items()):
            if attachment.client is client:
                self._end_member(place)

    def rights_changed(self, client: StreamClient) -> None:
        """A client that may not consume a topic any more gets nothing more of it, and hears why when it asks again."""
        for place, attachment in tuple(self._attached.items()):
            replica = self._service.replicas.get(place[0])
            if attachment.client is not client or replica is None:
                continue
            if not client.holder.rights.may_consume(replica.topic):
                self._end_member(place)
                client.answer(attachment.number, encode(Redirect([], "this client may not consume any more")))

    def _end_member(self, place: tuple[int, str, int]) -> None:
        del self._attached[place]
        replica = self._service.replicas.get(place[0])
        if replica is not None:
            replica.coordinator.detach(place[1], place[2])
            replica.turn_ends()

    def hand(self, replica: LiveReplica, consumer: str, member: int, position: int, delivery: int) -> None:
        """Give a message to a member, with others of its batch."""
        attachment = self._attached.get((replica.stream, consumer, member))
        if attachment is None:
            return
        entry = replica.entry_at(position)
        found = attachment.batches.get(entry.position)
        if found is None:
            content = self._content(replica, entry)
            if content is None:
                return
            found = attachment.batches[entry.position] = (content, [])
            if len(attachment.batches) == 1:
                self._service.after(0, partial(self._send, attachment, replica.stream))
        found[1].append((position - entry.position, delivery))

    def _send(self, attachment: MemberAttachment, generation: int) -> None:
        batches, attachment.batches = attachment.batches, {}
        for content, places in batches.values():
            attachment.client.answer(attachment.number, encode(Handed(content, places, generation)))

    def leader_changed(self, replica: LiveReplica) -> None:
        """Members of a replica that leads no more go to the next leader."""
        if replica.is_open or replica.stream == DIRECTORY:
            return
        elsewhere = Redirect(self._service.whom_to_ask(replica.stream), "the history has another leader")
        for awaited in self._positions_of(replica.stream).leads_no_more():
            awaited.respond(elsewhere)
        for place, attachment in tuple(self._attached.items()):
            if place[0] == replica.stream:
                del self._attached[place]
                attachment.client.answer(attachment.number, encode(elsewhere))

    def bury(
        self, replica: LiveReplica, consumer: str, position: int, deliveries: int, then: Callable[[], object]
    ) -> None:
        """Publish a message as a dead letter."""
        entry = replica.entry_at(position)
        batch = replica.batch_of(entry)
        value = b"" if batch is None else self._host.value_of(batch, position - entry.position)
        headers = {
            "antiphon-topic": replica.topic.encode(),
            "antiphon-consumer": consumer.encode(),
            "antiphon-position": str(position).encode(),
            "antiphon-deliveries": str(deliveries).encode(),
            "antiphon-reason": b"not acknowledged",
        }
        self._host.bury(f"{replica.topic}.dead", value, headers, then)


def check_generation(replica: LiveReplica, generation: int) -> None:
    """Refuse positions of another history of the topic."""
    if generation not in (0, replica.stream):
        raise UsageError(
            f"the position is of generation {generation}, an earlier history of {replica.topic!r} that was removed; "
            f"the present one has generation {replica.stream}: begin at 'earliest', 'latest' or one of its positions"
        )
