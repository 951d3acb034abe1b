"""Answers requests of clients about streams at one node: topics, history, positions, and members of consumers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec

from antiphon.kernel.errors import AntiphonError, DeniedError, PeerError, ProtocolError, UsageError
from antiphon.streams.commands import CreateConsumer, RemoveConsumer, ResetConsumer
from antiphon.streams.directory import DIRECTORY
from antiphon.streams.entries import IndexEntry
from antiphon.streams.requests import (
    AckMessages,
    AttachConsumer,
    AwaitPosition,
    BatchContent,
    CreateTopic,
    DescribeTopic,
    DetachConsumer,
    Done,
    ExtendLease,
    FoundDirectory,
    Handed,
    ListTopics,
    MissedMessages,
    ReadHistory,
    Redirect,
    RemoveConsumerRequest,
    RemoveTopic,
    Request,
    ResetConsumerRequest,
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
from antiphon.streams.service.history_requests import HistoryRequests
from antiphon.streams.service.host import StreamClient
from antiphon.streams.service.inquiries import check_generation, described_replica, first_position
from antiphon.streams.service.live_replica import LiveReplica
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
    | ResetConsumerRequest
)

CONSUMERS_AT_MOST: Final = 1000
"""So many consumers a history has: its replicas keep them all, and its leader looks at each of them."""

MEMBERS_AT_MOST: Final = 1000
"""So many members one consumer has."""

MEMBERS_OF_CLIENT: Final = 256
"""So many of them are of one client."""

ACK_US_AT_LEAST: Final = 100_000
ACK_US_AT_MOST: Final = 86_400_000_000
"""How long messages are leased to members."""

ROOM_US: Final = 10_000
"""How often it looks whether a member has read what it was sent."""

HANDED_BYTES_AT_MOST: Final = 4 << 20
"""So many bytes are handed to one member in one turn."""


@dataclass
class MemberAttachment:
    """A member that is connected here."""

    client: StreamClient
    number: int
    # Messages of this turn, by the batch that they are in.
    batches: dict[int, tuple[BatchContent, list[tuple[int, int]]]] = field(default_factory=dict)
    # Where the batch of the last one begins and ends, and its messages of this turn.
    current: tuple[int, int, list[tuple[int, int]]] = (0, 0, [])
    # How many messages the member knows that its consumer has missed.
    missed: int = 0
    # The bytes of this turn; nothing more is handed to a member that does not read.
    queued_bytes: int = 0
    is_paused: bool = False


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
        self._history = HistoryRequests(service)

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
            self._history.read(client, replica, request, respond)
        elif isinstance(request, AwaitPosition):
            self._history.await_position(client, replica, request, respond)
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
        elif isinstance(request, (RemoveConsumerRequest, ResetConsumerRequest)):
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
        service = self._service
        voters = replica.replica.replicas.voters
        return described_replica(
            replica, sum(each == service.identity or service.is_connected(each) for each in voters)
        )

    def settled(self, replica: LiveReplica, entry: IndexEntry) -> None:
        """An entry of a stream is settled here."""
        self._history.settled(replica, entry)

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
        client.charge_command()
        if isinstance(request, AttachConsumer):
            self._attach(client, number, replica, request, respond)
            return
        if isinstance(request, RemoveConsumerRequest):
            coordinator.settle(RemoveConsumer(request.consumer), lambda: respond(Done()))
            return
        if isinstance(request, ResetConsumerRequest):
            self._reset(replica, request, respond)
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

    def _reset(self, replica: LiveReplica, request: ResetConsumerRequest, respond: Callable[[Response], None]) -> None:
        """Let a consumer begin anew at another position."""
        check_generation(replica, request.generation)
        name, topic = request.consumer, replica.topic
        known = replica.coordinator.table.by_name.get(name)
        if known is None:
            raise UsageError(f"{topic!r} has no consumer {name!r}; antiphon consumers ls {topic} lists those it has")
        refusal = (
            f"the consumer {name!r} of {topic!r} has members; end its programs, or wait until their messages have come "
            "back, and reset it then"
        )
        if known.members:
            raise UsageError(refusal)
        command = ResetConsumer(name, first_position(replica, request.start, request.start_us))
        replica.coordinator.reset(command, lambda counts: respond(Done() if counts else StreamFailure(refusal)))

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
        self._check_bounds(client, replica, request)
        # Where a consumer begins counts when it is made; afterwards it goes on.
        start = first_position(replica, request.start, request.start_us) if known is None else 0
        place = (replica.stream, request.consumer, request.member)

        attachment = MemberAttachment(client, number)

        def is_wanted() -> bool:
            return self._attached.get(place) is attachment

        def attached(is_attached: bool) -> None:
            respond(Done(is_attached))
            if is_attached:
                self._tell_missed(replica, request.consumer, attachment)

        def created(_: bool) -> None:
            # The connection may have ended meanwhile: nobody would take what this member is handed.
            if client.is_connected:
                self._attached[place] = attachment
                held, window = request.held, request.window
                coordinator.attach(request.consumer, request.member, held, window, attached, is_wanted)

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
            if stream == replica.stream:
                self._tell_missed(replica, name, attachment)

    @staticmethod
    def _tell_missed(replica: LiveReplica, name: str, attachment: MemberAttachment) -> None:
        consumer = replica.coordinator.table.by_name.get(name)
        if consumer is not None and consumer.missed > attachment.missed:
            attachment.missed = consumer.missed
            attachment.client.answer(attachment.number, encode(MissedMessages(consumer.missed)))

    def _check_bounds(self, client: StreamClient, replica: LiveReplica, request: AttachConsumer) -> None:
        """Refuse a member beside too many others, and leases that end before anybody can have done the work."""
        table, ack_us = replica.coordinator.table, request.settings.ack_us
        if not ACK_US_AT_LEAST <= ack_us <= ACK_US_AT_MOST:
            raise UsageError(f"messages are leased for 0.1 to 86400 seconds (ack_seconds), not {ack_us / 1e6:g}")
        consumer = table.by_name.get(request.consumer)
        if consumer is None and len(table.by_name) >= CONSUMERS_AT_MOST:
            raise PeerError(f"{request.topic!r} has {CONSUMERS_AT_MOST} consumers, as many as may be; remove some")
        if consumer is not None and len(consumer.members) >= MEMBERS_AT_MOST:
            raise PeerError(f"the consumer {request.consumer!r} has {MEMBERS_AT_MOST} members, as many as may be")
        if sum(each.client is client for each in self._attached.values()) >= MEMBERS_OF_CLIENT:
            raise PeerError(f"one client may be {MEMBERS_OF_CLIENT} members of consumers at a time; connect once more")

    def _detach(self, replica: LiveReplica, consumer: str, member: int) -> None:
        self._attached.pop((replica.stream, consumer, member), None)
        replica.coordinator.detach(consumer, member)

    def client_ended(self, client: StreamClient) -> None:
        """A client has gone: its messages go to others at once."""
        self._history.client_ended(client)
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
        first, end, places = attachment.current
        if first <= position < end:
            places.append((position - first, delivery))
            return
        entry = replica.entry_at(position)
        found = attachment.batches.get(entry.position)
        if found is None:
            content = self._history.content(replica, entry)
            if content is None:
                return
            found = attachment.batches[entry.position] = (content, [])
            attachment.queued_bytes += len(content.payload)
            if len(attachment.batches) == 1:
                self._service.after(0, partial(self._send, attachment, (replica.stream, consumer, member)))
            if attachment.queued_bytes > HANDED_BYTES_AT_MOST or not attachment.client.has_room:
                attachment.is_paused = True
                handing = replica.coordinator.handing(consumer)
                assert handing is not None, "it hands out"
                handing.pause(member)
        found[1].append((position - entry.position, delivery))
        attachment.current = (entry.position, entry.end, found[1])

    def _send(self, attachment: MemberAttachment, place: tuple[int, str, int]) -> None:
        batches, attachment.batches, attachment.queued_bytes = attachment.batches, {}, 0
        attachment.current = (0, 0, [])
        for content, places in batches.values():
            attachment.client.answer(attachment.number, encode(Handed(content, places, place[0])))
        if attachment.is_paused:
            self._go_on(attachment, place)

    def _go_on(self, attachment: MemberAttachment, place: tuple[int, str, int]) -> None:
        """Hand a member more as soon as it has read what it was sent."""
        if not attachment.client.has_room and self._attached.get(place) is attachment:
            self._service.after(ROOM_US, partial(self._go_on, attachment, place))
            return
        replica = self._service.replicas.get(place[0])
        handing = None if replica is None else replica.coordinator.handing(place[1])
        attachment.is_paused = False
        if replica is not None and handing is not None and self._attached.get(place) is attachment:
            handing.resume(place[2])
            replica.turn_ends()

    def leader_changed(self, replica: LiveReplica) -> None:
        """Members of a replica that leads no more go to the next leader."""
        if replica.is_open or replica.stream == DIRECTORY:
            return
        self._history.leader_changed(replica)
        for place, attachment in tuple(self._attached.items()):
            if place[0] == replica.stream:
                del self._attached[place]
                reason = Redirect(self._service.whom_to_ask(replica.stream), "the history has another leader")
                attachment.client.answer(attachment.number, encode(reason))

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
