"""One client that is connected to a simulated node, as its node sees it."""

from __future__ import annotations

from typing import Protocol

from antiphon.kernel.errors import AntiphonError
from antiphon.membership.messages import Control
from antiphon.sessions.backlog import Backlog, Backlogs
from antiphon.sessions.client_messages import (
    Delivery,
    FollowRequest,
    FollowResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MessagesMissed,
    ProducerRequest,
    ProducerResponse,
    PublishRequest,
    PublishResponse,
    StatusRequest,
    StatusResponse,
    SubscribeRequest,
    SubscriptionReady,
    TopicStarted,
)
from antiphon.sessions.node_end import NodeEnd
from antiphon.sessions.producer_state import ProducerStates
from antiphon.sessions.replay_buffer import Resumption
from antiphon.sessions.resume import ClientPublishing
from antiphon.sessions.seen_lists import SeenElsewhere
from antiphon.sessions.steps import Promise, Scope, Steps, start, wait
from antiphon.simulator.clients.batches import SimulatedBatch
from antiphon.simulator.clients.machine import ROOM, SimulatedTopic
from antiphon.simulator.cluster.clock import VirtualClock
from antiphon.simulator.cluster.fabrics import NodeSettings
from antiphon.simulator.cluster.links import SimulatedConnection


class SimulatedGateway(Protocol):
    """The node of a client."""

    clock: VirtualClock
    settings: NodeSettings
    end: NodeEnd[SimulatedBatch]
    producer_states: ProducerStates
    backlogs: Backlogs
    topic_state: SimulatedTopic
    waiting_for_room: list[Promise[None]]

    def join_topic(self) -> Promise[None]:
        """Become a member of the topic."""

    def has_room(self) -> bool:
        """Whether the process takes another publication."""

    def addresses(self) -> list[str]:
        """Where clients find the other nodes."""

    def hand_over(self, client: int, message: PublishRequest, order: str) -> None:
        """Publish a batch for a client."""


class OpenLine:
    """A connection that is always read from."""

    def hold(self, reason: str) -> None:
        """Simulated clients hand in little."""

    def release(self, reason: str) -> None:
        """Nothing was held."""


class SimulatedSession:
    """One connected client, as its node sees it."""

    def __init__(self, node: SimulatedGateway, connection: SimulatedConnection, client: int) -> None:
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
        elif isinstance(message, ProducerRequest):
            start(self._send_lane_states(message), self._scope)
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
        self._scope.end()
        self._node.end.on_disconnect(self)

    # Subscribing.

    def _subscribe(self, message: SubscribeRequest) -> Steps[None]:
        node, topic = self._node, self._node.topic_state
        yield from wait(node.join_topic())
        resumption: Resumption[SimulatedBatch] | None = None
        if message.resume is not None:
            resume = message.resume
            resumption = Resumption(self.client, resume.since_us, resume.seen, resume.past)
            yield from node.end.fetch(topic, resumption)
        self._numbers.append(message.number)
        self.send(SubscriptionReady(message.number))
        if resumption is not None:
            is_gap, batches = resumption.replay(ROOM, topic.replay_buffer)
            if is_gap:
                self.send(MessagesMissed(message.number, ROOM))
            for batch in batches:
                self._send_batch(message.number, batch)
        self.send(
            TopicStarted(message.number, ROOM, topic.replay_buffer.shown.ranges(), topic.replay_buffer.past.ranges())
        )

    def _send_lane_states(self, message: ProducerRequest) -> Steps[None]:
        nodes = yield from self._node.producer_states.ask(int(message.writer), message.lane, message.topics)
        self.send(ProducerResponse(message.number, nodes))

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
        self._node.waiting_for_room.append(room)
        return room

    def hand_over(self, message: PublishRequest, order: str) -> Promise[None] | None:
        """Publish a batch; in memory it is accepted at once."""
        self._node.hand_over(self.client, message, order)
        return None

    def respond(
        self,
        message: PublishRequest,
        failure: AntiphonError | None = None,
        is_known: bool = False,
        is_stale: bool = False,
    ) -> None:
        """Tell the client that a batch is accepted, or why not."""
        error = "" if failure is None else str(failure)
        self.send(PublishResponse(message.number, error, is_known, is_stale=is_stale))

    def check_list(self, size_bytes: int) -> None:
        """Simulated clients have seen little."""

    def keep_list(self, size_bytes: int) -> None:
        """Nothing is counted."""

    def followed(self, message: SeenElsewhere, failure: AntiphonError | None) -> None:
        """Tell the client that what it publishes follows what it has seen, or why not."""
        self.send(FollowResponse(message.number, message.topic, "" if failure is None else str(failure)))

    # Simulated nodes read from all clients.

    def bytes_received(self) -> int:
        """Nobody waits for the client."""
        return 0

    def request_heartbeat(self) -> None:
        """Nobody waits for the client."""

    def send_heartbeat(self) -> None:
        """The client can always ask."""

    def give_up(self) -> None:
        """Nobody waits for the client."""
