"""A simulated node with clients: the host of the node's end of their sessions.

It does what a live node does between its process and its clients: it gives batches their place, drops those that it has
delivered, shows the others to subscriptions, and keeps the last of them for clients that come from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.errors import AntiphonError, NoMajorityError, ProtocolError
from antiphon.kernel.message import BARRIER_KEY, ORDER_NAMES, Publication
from antiphon.kernel.message import TOTAL as TOTAL_ORDER
from antiphon.membership.messages import Control, Hello
from antiphon.sessions.backlog import Backlog, Backlogs
from antiphon.sessions.client_messages import (
    Delivery,
    FollowRequest,
    FollowResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MessagesMissed,
    PublishRequest,
    PublishResponse,
    StatusRequest,
    StatusResponse,
    SubscribeRequest,
    SubscriptionReady,
    TopicStarted,
)
from antiphon.sessions.dedup import SeenOfAll
from antiphon.sessions.host import FabricTraits, SessionTopic
from antiphon.sessions.node_end import NodeEnd
from antiphon.sessions.peer_messages import SESSION_CONTROLS
from antiphon.sessions.replay_buffer import Budget, Recent, Resumption, TotalOrder
from antiphon.sessions.resume import ClientPublishing
from antiphon.sessions.steps import Promise, Scope, Steps, start, wait
from antiphon.simulator.cluster.links import SimulatedConnection
from antiphon.simulator.cluster.network import Pipe
from antiphon.simulator.cluster.node import TOPIC, LifeEnvironment, NodeLife

ROOM: Final = "room"
"""The name of the topic that all clients use."""

ORDER_NUMBERS: Final = {name: number for number, name in enumerate(ORDER_NAMES)}
SEPARATOR: Final = b"|"


class SimulatedBatch(NamedTuple):
    """A batch as a node shows it: one message of a client."""

    publisher: int
    sequence: int
    order: str
    payload: bytes
    author: int
    number: int
    is_written: bool = False

    @property
    def total_keys(self) -> set[bytes | None]:
        """All messages are about one key."""
        return {None}


def batch_of(publisher: int, sequence: int, order: str, payload: bytes) -> SimulatedBatch:
    """A batch with the author that its payload names; a barrier has none."""
    if not payload:
        return SimulatedBatch(publisher, sequence, order, payload, publisher, sequence)
    author, number, _ = payload.split(SEPARATOR, 2)
    return SimulatedBatch(publisher, sequence, order, payload, int(author), int(number))


class SimulatedTopic:
    """The topic at one node."""

    name: Final = ROOM
    number: Final = TOPIC

    def __init__(self, total_order: TotalOrder) -> None:
        self.seen = SeenOfAll()
        self.recent: Recent[SimulatedBatch] = Recent(Budget(), total_order)
        self.is_watched = False
        self.joined: Promise[None] | None = None
        self.has_begun = False

    def is_member(self) -> bool:
        """Whether the node is a member."""
        return self.has_begun


class ServingLife(NodeLife):
    """One life of a node that serves clients. ``keeps_topic`` if it is a member from its beginning."""

    keeps_topic = True

    def prepare(self) -> None:
        """Make what serves clients; before the node begins."""
        fabric = FABRICS[self.settings.fabric]
        self.topic_state = SimulatedTopic(TotalOrder(fabric.may_pass_over, True))
        traits = FabricTraits(fabric.has_barriers, not fabric.has_barriers, fabric.may_pass_over)
        self.end: NodeEnd[SimulatedBatch] = NodeEnd(traits, self)
        self.sessions: dict[SimulatedConnection, SimulatedSession] = {}
        self.backlogs = Backlogs(1 << 30)
        self._to_show: list[SimulatedBatch | None] = []
        self._undelivered: dict[int, Promise[None]] = {}
        self._delivered_now: set[int] = set()
        self._has_news = False
        self._waiting_for_room: list[Promise[None]] = []

    def handle(self, event: Callable[[], None]) -> None:
        super().handle(partial(self._and_settle, event))

    def _and_settle(self, event: Callable[[], None]) -> None:
        event()
        while self._to_show or self._has_news or self._has_room_for_some():
            shown, self._to_show = self._to_show, []
            for batch in shown:
                self._show(batch)
            if self._has_news:
                self._has_news = False
                self.end.topics_changed()
            if self._has_room_for_some():
                waiting, self._waiting_for_room = self._waiting_for_room, []
                for promise in waiting:
                    promise.resolve(None)

    def _has_room_for_some(self) -> bool:
        return bool(self._waiting_for_room) and self.has_room()

    def has_room(self) -> bool:
        """Whether the process takes another publication."""
        return self.topic_state.has_begun and self.process is not None and self.process.room(TOPIC) > 0

    def _show(self, batch: SimulatedBatch | None) -> None:
        recent = self.topic_state.recent
        if batch is None:
            recent.lost(self.clock.now_us)
        else:
            recent.add(self.clock.now_us, batch)
        for session in list(self.sessions.values()):
            session.show(batch)

    # What the process does.

    def new_environment(self, identifier: int) -> LifeEnvironment:
        return ServingEnvironment(identifier, self)

    def begin_topic(self) -> None:
        if self.keeps_topic:
            self.join_topic()

    def join_topic(self) -> Promise[None]:
        """Become a member of the topic, if this node is none."""
        if self.topic_state.joined is None:
            self.topic_state.joined = Promise()
            assert self.process is not None, "a node that serves clients has a process"
            self.process.subscribe(TOPIC)
        return self.topic_state.joined

    def membership_began(self) -> None:
        """The node is a member of the topic."""
        topic = self.topic_state
        topic.recent.begin(self.clock.now_us)
        topic.has_begun = True
        self._has_news = True
        self.end.became_member(topic)
        joined = topic.joined
        if joined is not None:
            self.after(0, lambda: joined.resolve(None))

    def membership_ended(self) -> None:
        """The node is no member any more."""
        self.topic_state.recent.end()
        self.topic_state.has_begun = False
        self._has_news = True

    def delivered(self, publication: Publication) -> None:
        """The process delivers."""
        order = ORDER_NAMES[publication.order]
        batch = batch_of(int(publication.source), int(publication.sequence), order, publication.payload)
        is_new = self.topic_state.seen.add(batch.author, batch.number)
        self._has_news = self._has_news or self.topic_state.is_watched
        if int(publication.source) == self.identifier:
            accepted = self._undelivered.pop(batch.sequence, None)
            if accepted is not None:
                self.after(0, lambda: accepted.resolve(None))
            else:
                self._delivered_now.add(batch.sequence)
        if batch.payload and is_new:
            self._to_show.append(batch)

    def lost_one(self) -> None:
        """A publication will never be delivered here."""
        self._has_news = self._has_news or self.topic_state.is_watched
        if not self._to_show or self._to_show[-1] is not None:
            self._to_show.append(None)

    # The host of sessions.

    @property
    def identifier(self) -> int:
        """The identifier of the node."""
        assert self.process is not None, "a node that serves clients has a process"
        return int(self.process.me)

    def now_us(self) -> int:
        """The clock."""
        return self.clock.now_us

    def after(self, delay_us: int, call: Callable[[], None]) -> None:
        """Call something after a while, unless this life has ended by then."""
        self.clock.post(delay_us, lambda: self.handle(call))

    def identifiers(self) -> set[int]:
        """The nodes that are there."""
        return self.membership.identifiers()

    def addresses(self) -> list[str]:
        """Where clients find the other nodes."""
        return self.membership.addresses()

    def tell(self, identifier: int, control: Any) -> None:
        """Send a message to another node."""
        self.membership.tell(identifier, control)

    def topic(self, name: str) -> SimulatedTopic:
        """The topic."""
        return self.topic_state

    def find_topic(self, name: str) -> SimulatedTopic | None:
        """The topic."""
        return self.topic_state

    def publish_on(self, topic: SessionTopic[SimulatedBatch]) -> Promise[None]:
        """Be a member."""
        return self.join_topic()

    def publish_barrier(self, topic: SessionTopic[SimulatedBatch], key: int) -> tuple[int, Promise[None]]:
        """Publish an empty total batch about a key."""
        assert self.process is not None, "a node that serves clients has a process"
        number = int(self.process.publish_about([BARRIER_KEY + key], b"", TOPIC, TOTAL_ORDER))
        return number, self._until_delivered(number)

    def _until_delivered(self, number: int) -> Promise[None]:
        promise: Promise[None] = Promise()
        if number in self._delivered_now:
            self._delivered_now.discard(number)
            promise.resolve(None)
        else:
            self._undelivered[number] = promise
        return promise

    def batch(
        self, topic: SessionTopic[SimulatedBatch], publisher: int, sequence: int, order: str, payload: bytes
    ) -> SimulatedBatch:
        """A batch that another node has shown."""
        return batch_of(publisher, sequence, order, payload)

    def refusal(self) -> str | None:
        """Why the process cannot order totally now, if it cannot."""
        return None if self.process is None else self.process.refusal(TOTAL_ORDER)

    def first_unsettled(self, topic: int) -> int:
        """The first publication of this node that not all members are known to have."""
        assert self.process is not None, "a node that serves clients has a process"
        return int(self.process.first_unsettled(topic))

    def counted(self, topic: int) -> list[int]:
        """What counts as past."""
        assert self.process is not None, "a node that serves clients has a process"
        return [int(key) for key in self.process.counted(topic)]

    def until_shown(self) -> Promise[None]:
        """Nodes without a disk show at once."""
        shown: Promise[None] = Promise()
        shown.resolve(None)
        return shown

    def hand_over(self, client: int, message: PublishRequest, order: str) -> None:
        """Publish a batch for a client."""
        process = self.process
        assert process is not None, "a node that serves clients has a process"
        reason = process.refusal(ORDER_NUMBERS[order], TOPIC)
        if reason is not None:
            raise NoMajorityError(reason)
        payload = b"%d|%d|" % (client, message.serial) + message.payload
        number = int(process.publish(payload, TOPIC, ORDER_NUMBERS[order]))
        self._delivered_now.discard(number)
        self.end.handed_in(self.topic_state, number, client, message.serial)

    # Connections.

    def _take(self, connection: SimulatedConnection, frame: object) -> None:
        session = self.sessions.get(connection)
        if session is not None:
            session.on_message(frame)
        elif isinstance(frame, Hello) and not frame.address:
            if not self.has_entered or self.is_leaving:
                raise ProtocolError("this node takes no clients now; connect to another one")
            self.sessions[connection] = SimulatedSession(self, connection, int(frame.instance))
        elif isinstance(frame, SESSION_CONTROLS):
            sender = self.membership.identifier_of(connection.instance)
            if sender is not None:
                self.end.on_message(sender, frame)  # type: ignore[arg-type]
        else:
            super()._take(connection, frame)

    def _end(self, pipe: Pipe) -> None:
        session = self.sessions.pop(self._connections[pipe], None)
        if session is not None:
            session.ended()
        super()._end(pipe)

    def peer_lost(self, identifier: int) -> None:
        super().peer_lost(identifier)
        self.end.peer_gone(identifier)

    def link_lost(self, identifier: int) -> None:
        super().link_lost(identifier)
        self.end.peer_gone(identifier)

    def peers_changed(self) -> None:
        self.end.tell_nodes()

    def leave(self) -> None:
        if self.process is None or not self.has_entered:
            super().leave()
            return
        start(self.end.send_away()).then(super().leave)


class ServingEnvironment(LifeEnvironment):
    """What the process of a node with clients may do to the world."""

    def __init__(self, identifier: int, life: ServingLife) -> None:
        super().__init__(identifier, life)
        self._serving = life

    def deliver(self, publication: Publication) -> None:
        super().deliver(publication)
        self._serving.delivered(publication)

    def lost(self, topic: int, source: int, sequence: int, is_late: bool = False) -> None:
        self._serving.lost_one()

    def subscribed(self, topic: int) -> None:
        super().subscribed(topic)
        if topic == TOPIC:
            self._serving.membership_began()

    def unsubscribed(self, topic: int) -> None:
        super().unsubscribed(topic)
        if topic == TOPIC:
            self._serving.membership_ended()


class OpenLine:
    """A connection that is always read from."""

    def hold(self, reason: str) -> None:
        """Simulated clients hand in little."""

    def release(self, reason: str) -> None:
        """Nothing was held."""


class SimulatedSession:
    """One connected client, as its node sees it."""

    def __init__(self, node: ServingLife, connection: SimulatedConnection, client: int) -> None:
        self.client = client
        self.is_sent_away = False
        self._node = node
        self._connection = connection
        self._scope = Scope()
        backlog = Backlog(node.backlogs, OpenLine(), self)
        self._publishing = ClientPublishing(node.end, client, self, backlog, self._scope)
        # Subscriptions that are effective.
        self._numbers: list[int] = []
        node.end.on_connect(self)

    def send(self, control: Control) -> None:
        """Send something to the client."""
        self._connection.pipe.answer(control)

    def on_message(self, message: object) -> None:
        """The client says something."""
        if isinstance(message, PublishRequest):
            if not self.is_sent_away:
                self._publishing.on_publish(message)
        elif isinstance(message, FollowRequest):
            self._publishing.on_follow(message)
        elif isinstance(message, SubscribeRequest):
            start(self._subscribe(message), self._scope)
        elif isinstance(message, HeartbeatRequest):
            self.send(HeartbeatResponse())
        elif isinstance(message, StatusRequest):
            about = {
                "author": self.client,
                "peers": [{"address": address} for address in self._node.addresses()],
                "lost_seconds": self._node.settings.lost_seconds,
            }
            self.send(StatusResponse(message.number, about, self._node.clock.now_us))

    def ended(self) -> None:
        """The client is gone."""
        self._scope.is_over = True
        self._node.end.on_disconnect(self)

    # Subscribing.

    def _subscribe(self, message: SubscribeRequest) -> Steps[None]:
        node, topic = self._node, self._node.topic_state
        yield from wait(node.join_topic())
        resumption: Resumption[SimulatedBatch] | None = None
        if message.resume is not None:
            resumption = Resumption(self.client, message.resume.since_us, message.resume.seen)
            yield from node.end.fetch(topic, resumption)
        self._numbers.append(message.number)
        self.send(SubscriptionReady(message.number))
        if resumption is not None:
            is_gap, batches = resumption.replay(ROOM, topic.recent)
            if is_gap:
                self.send(MessagesMissed(message.number, ROOM))
            for batch in batches:
                self._send_batch(message.number, batch)
        self.send(TopicStarted(message.number, ROOM, topic.recent.shown.ranges()))

    def show(self, batch: SimulatedBatch | None) -> None:
        """A batch is shown here, or some are missing."""
        for number in self._numbers:
            if batch is None:
                self.send(MessagesMissed(number, ROOM))
            else:
                self._send_batch(number, batch)

    def _send_batch(self, number: int, batch: SimulatedBatch) -> None:
        self.send(Delivery(number, ROOM, batch.publisher, batch.order, 0, 0, batch.payload, batch.sequence))

    # What publishing needs.

    def is_open(self, topic: str) -> bool:
        """Whether a batch can be handed over at once."""
        return self._node.has_room()

    def check_publishing(self, topic: str) -> None:
        """Everybody may publish."""

    def until_room(self, topic: str) -> Promise[None] | None:
        """Kept when the process takes another batch."""
        if self._node.has_room():
            return None
        self._node.join_topic()
        room: Promise[None] = Promise()
        self._node._waiting_for_room.append(room)
        return room

    def hand_over(self, message: PublishRequest, order: str) -> Promise[None] | None:
        """Publish a batch; in memory it is accepted at once."""
        self._node.hand_over(self.client, message, order)
        return None

    def respond(self, message: PublishRequest, failure: AntiphonError | None = None, is_known: bool = False) -> None:
        """Tell the client that a batch is accepted, or why not."""
        self.send(PublishResponse(message.number, "" if failure is None else str(failure), is_known))

    def followed(self, message: FollowRequest, failure: AntiphonError | None) -> None:
        """Tell the client that what it publishes follows what it has seen, or why not."""
        self.send(FollowResponse(message.number, message.topic, "" if failure is None else str(failure)))

    # Simulated nodes read from all clients.

    def bytes_heard(self) -> int:
        """Nobody waits for the client."""
        return 0

    def request_heartbeat(self) -> None:
        """Nobody waits for the client."""

    def send_heartbeat(self) -> None:
        """The client can always ask."""

    def give_up(self) -> None:
        """Nobody waits for the client."""
