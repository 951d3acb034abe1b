"""A simulated node with clients: the host of the node's end of their sessions.

It does what a live node does between its process and its clients: it gives batches their place, drops those that it has
delivered, shows the others to subscriptions, and keeps the last of them for clients that come from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.errors import NoMajorityError, ProtocolError
from antiphon.kernel.message import BARRIER_KEY, ORDER_NAMES, Publication
from antiphon.kernel.message import TOTAL as TOTAL_ORDER
from antiphon.membership.messages import Hello
from antiphon.sessions.backlog import Backlogs
from antiphon.sessions.client_messages import (
    PublishRequest,
)
from antiphon.sessions.host import FabricTraits, SessionTopic
from antiphon.sessions.node_end import NodeEnd
from antiphon.sessions.peer_messages import SESSION_CONTROLS, PeerProducerRequest, PeerProducerResponse
from antiphon.sessions.producer_state import ProducerStates
from antiphon.sessions.replay_buffer import TotalOrderScope
from antiphon.sessions.steps import Promise, start
from antiphon.sessions.writers import Writers
from antiphon.simulator.clients.batches import LaneOrigin, SimulatedBatch, batch_of, client_payload, written_payload
from antiphon.simulator.clients.machine import ROOM, Machine, SimulatedTopic
from antiphon.simulator.clients.serving_session import SimulatedSession
from antiphon.simulator.cluster.links import SimulatedConnection
from antiphon.simulator.cluster.network import Pipe
from antiphon.simulator.cluster.node import TOPIC, LifeEnvironment, NodeLife

FIRST_LANE: Final = 1 << 60
"""Lanes of writers are authors too."""

ORDER_NUMBERS: Final = {name: number for number, name in enumerate(ORDER_NAMES)}


class ServingLife(NodeLife):
    """One life of a node that serves clients. ``keeps_topic`` if it is a member from its beginning."""

    keeps_topic = True

    def prepare(self, machine: Machine) -> None:
        """Make what serves clients; before the node begins."""
        self.machine = machine
        fabric = FABRICS[self.settings.fabric]
        self.topic_state = SimulatedTopic(TotalOrderScope(fabric.may_pass_over, True))
        counts_past, knows_all = not fabric.has_barriers, fabric.membership.is_full
        traits = FabricTraits(fabric.has_barriers, counts_past, fabric.may_pass_over, knows_all)
        self.end: NodeEnd[SimulatedBatch] = NodeEnd(traits, self)
        self.writers = Writers(self.log, self.now_us)
        self.writers.load(machine)
        self.producer_states = ProducerStates(self.writers, self)
        self.sessions: dict[SimulatedConnection, SimulatedSession] = {}
        self.backlogs = Backlogs(1 << 30)
        self._to_show: list[SimulatedBatch | None] = []
        self._undelivered: dict[int, Promise[None]] = {}
        self._delivered_now: set[int] = set()
        self._has_news = False
        self.is_closing = False
        self.waiting_for_room: list[Promise[None]] = []

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
                waiting, self.waiting_for_room = self.waiting_for_room, []
                for promise in waiting:
                    promise.resolve(None)

    def _has_room_for_some(self) -> bool:
        return bool(self.waiting_for_room) and self.has_room()

    def has_room(self) -> bool:
        """Whether the process takes another publication."""
        return self.topic_state.has_begun and self.process is not None and self.process.room(TOPIC) > 0

    def _show(self, batch: SimulatedBatch | None) -> None:
        replay_buffer = self.topic_state.replay_buffer
        if batch is None:
            replay_buffer.lost(self.clock.now_us)
        else:
            replay_buffer.add(self.clock.now_us, batch)
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
        topic.replay_buffer.begin(self.clock.now_us)
        if self.has_returned and not topic.has_delivered:
            for logged_at_us, batch in self.machine.logged:
                topic.replay_buffer.add(logged_at_us, batch)
                topic.logged_before.add(batch.author, batch.number, batch.is_written)
        topic.has_begun = True
        self._has_news = True
        self.end.became_member(topic)
        joined = topic.joined
        if joined is not None:
            self.after(0, lambda: joined.resolve(None))

    def membership_ended(self) -> None:
        """The node is no member any more."""
        self.topic_state.replay_buffer.end()
        self.topic_state.has_begun = False
        self._has_news = True

    def delivered(self, publication: Publication) -> None:
        """The process delivers."""
        order = ORDER_NAMES[publication.order]
        batch = batch_of(int(publication.source), int(publication.sequence), order, publication.payload)
        topic = self.topic_state
        position: tuple[str, bytes] | None = None
        if batch.origin is not None:
            position = self.writers.take(ROOM, batch.origin)
            is_new = position is not None
            if is_new:
                topic.seen.add(batch.author, batch.number, only_grows=True)
        else:
            is_new = topic.seen.take_at_node(batch.author, batch.number, batch.order, True, topic.logged_before)
        self._has_news = self._has_news or self.topic_state.is_watched
        if int(publication.source) == self.identifier:
            accepted = self._undelivered.pop(batch.sequence, None)
            if accepted is not None:
                self.after(0, lambda: accepted.resolve(None))
            else:
                self._delivered_now.add(batch.sequence)
        if batch.payload and is_new:
            topic.has_delivered = True
            self._to_show.append(batch)
            self.machine.append(self.clock.now_us, batch, position)

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

    @property
    def has_returned(self) -> bool:
        """Whether an earlier life has left its log."""
        return self.membership.is_returning and self.machine.disk.has_journal

    def counted(self) -> set[int]:
        """The other nodes that barriers pass."""
        return self.membership.counted()

    def absent(self) -> set[int]:
        """The other nodes that have a say and are not there."""
        return self.membership.absent()

    def addresses(self) -> list[str]:
        """Where clients find the other nodes."""
        return self.membership.addresses()

    def send_control(self, identifier: int, control: Any) -> None:
        """Send a message to another node."""
        self.membership.send_control(identifier, control)

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

    def frontier_keys(self, topic: int) -> list[int]:
        """The publications that count as past."""
        assert self.process is not None, "a node that serves clients has a process"
        return [int(key) for key in self.process.frontier_keys(topic)]

    def until_shown(self) -> Promise[None]:
        """Deliveries are on disk at once, and shown."""
        shown: Promise[None] = Promise()
        shown.resolve(None)
        return shown

    @property
    def has_log(self) -> bool:
        """Whether the node keeps what it delivers."""
        return self.machine.disk.is_kept

    def is_member_of(self, topic: str) -> bool:
        """Whether the node is a member of the topic."""
        return self.topic_state.has_begun

    def until_committed(self) -> Promise[None]:
        """Deliveries are on disk at once."""
        return self.until_shown()

    def hand_over(self, client: int, message: PublishRequest, order: str) -> None:
        """Publish a batch for a client."""
        process = self.process
        assert process is not None, "a node that serves clients has a process"
        reason = process.refusal(ORDER_NUMBERS[order], TOPIC)
        if reason is not None:
            raise NoMajorityError(reason)
        lane = message.lane
        if lane is not None:
            writer = int(lane.writer)
            origin = LaneOrigin(FIRST_LANE + writer, message.serial, writer, lane.lane, lane.digest, lane.previous)
            self.writers.check(ROOM, origin)
            payload = written_payload(origin, message.payload)
        else:
            payload = client_payload(client, message.serial, message.payload)
        number = int(process.publish(payload, TOPIC, ORDER_NUMBERS[order]))
        self._delivered_now.discard(number)
        if lane is None:
            self.end.safety.handed_in(self.topic_state, number, client, message.serial)

    # Connections.

    def _take(self, connection: SimulatedConnection, frame: object) -> None:
        session = self.sessions.get(connection)
        if session is not None:
            session.on_message(frame)
        elif isinstance(frame, Hello) and not frame.address:
            if not self.has_entered or self.is_closing:
                raise ProtocolError("this node takes no clients now; connect to another one")
            self.sessions[connection] = SimulatedSession(self, connection, int(frame.instance))
        elif isinstance(frame, SESSION_CONTROLS):
            sender = self.membership.identifier_of(connection.instance)
            if sender is None:
                return
            if isinstance(frame, (PeerProducerRequest, PeerProducerResponse)):
                self.producer_states.on_message(sender, frame)
            else:
                self.end.on_message(sender, frame)
        else:
            super()._take(connection, frame)

    def _end(self, pipe: Pipe) -> None:
        session = self.sessions.pop(self._connections[pipe], None)
        if session is not None:
            session.ended()
        super()._end(pipe)

    def peer_lost(self, identifier: int) -> None:
        super().peer_lost(identifier)
        self._peer_gone(identifier)

    def link_lost(self, identifier: int) -> None:
        super().link_lost(identifier)
        self._peer_gone(identifier)

    def _peer_gone(self, identifier: int) -> None:
        self.end.on_peer_lost(identifier)
        self.producer_states.on_peer_lost(identifier)

    def peers_changed(self) -> None:
        self.end.tell_nodes()

    def leave(self) -> None:
        if self.process is None or not self.has_entered:
            super().leave()
            return
        self.is_closing = True
        start(self.end.send_away()).then(super().leave)


class ServingEnvironment(LifeEnvironment):
    """The environment of the process of a node with clients."""

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
