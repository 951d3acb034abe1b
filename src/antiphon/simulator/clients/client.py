"""A simulated client and its application: the host of the client's end of its session."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from antiphon.audit.clients import ERROR, ClientJudge
from antiphon.kernel.errors import PeerError
from antiphon.kernel.randomness import RandomStream
from antiphon.membership.messages import PROTOCOL_VERSION, Control, Hello, Refused
from antiphon.sessions.client_end import ClientEnd, Introduction
from antiphon.sessions.client_messages import (
    Delivery,
    FollowResponse,
    PublishResponse,
    StatusRequest,
    StatusResponse,
    SubscriptionEnded,
)
from antiphon.sessions.client_subscription import ClientSubscription
from antiphon.sessions.server_pool import ServerPool
from antiphon.sessions.steps import Promise
from antiphon.simulator.clients.batches import batch_of
from antiphon.simulator.clients.machine import ROOM
from antiphon.simulator.cluster.clock import VirtualClock
from antiphon.simulator.cluster.network import Network, Pipe

RECONNECT_US = 60_000_000
"""How long a client looks for another node: longer than any fault lasts."""


class SimulatedClient:
    """One client, which subscribes once and publishes what it is told to."""

    def __init__(
        self,
        number: int,
        addresses: list[str],
        clock: VirtualClock,
        network: Network,
        judge: ClientJudge,
        random: RandomStream,
    ) -> None:
        self.number = number
        # Numbers of authors are beyond those of nodes.
        self._author = (1 << 61) + number
        self.place = f"client{number}"
        self.is_up = True
        self._clock = clock
        self._network = network
        self._judge = judge
        self._random = random
        self._pipe: Pipe | None = None
        self._former: Pipe | None = None
        self._opening: tuple[str, Promise[Introduction]] | None = None
        self._heard = 0
        self._is_paused = False
        self._backlog: list[Callable[[], None]] = []
        self._waiting: deque[tuple[str, str]] = deque()
        self._published = 0
        self.end = ClientEnd(self, ServerPool(addresses), RECONNECT_US)
        self.subscription = ClientSubscription(self.end.next_number(), ROOM, "latest", False, "block", 1 << 20)
        self.is_ready = False

    # What happens to it.

    def begin(self) -> None:
        """Connect to the first node that answers."""
        self.end.subscribe(self.subscription)
        # A client that has no node yet looks for one as a client that has lost its own; that is no move.
        self.end.is_up, self.end.reconnects = True, -1
        self.handle(self.end.connection_lost)

    def publish(self, order: str) -> None:
        """Ask for a message."""
        self.handle(lambda: self._ask(order))

    def _ask(self, order: str) -> None:
        self._published += 1
        name = f"{self.number}.{self._published}"
        self._judge.asked(self.number, name, order, self._clock.now_us)
        self._waiting.append((name, order))

    def pause(self, lasts_us: int) -> None:
        """Stand still for a while."""
        if not self._is_paused:
            self._is_paused = True
            self._clock.post(lasts_us, self._continue)

    def _continue(self) -> None:
        self._is_paused = False
        backlog, self._backlog = self._backlog, []
        for event in backlog:
            self.handle(event)

    def handle(self, event: Callable[[], None]) -> None:
        """Let something happen, and hand in what there is room for."""
        if not self.is_up:
            return
        if self._is_paused:
            self._backlog.append(event)
            return
        try:
            event()
            while self._waiting and self.end.room(ROOM) > 0:
                name, order = self._waiting.popleft()
                self.end.publish(ROOM, order, name.encode(), (), name)
        except Exception as error:
            self._judge.violation(ERROR, f"client {self.number}: {type(error).__name__}: {error}")
            self.is_up = False

    # Its connections.

    def accepted(self, receipt: Any) -> None:
        """A message is accepted; nobody connects to a client."""
        self._judge.accepted(receipt, self._clock.now_us)

    def on_frame(self, pipe: Pipe, frame: object) -> None:
        """Nobody connects to a client."""

    def ended(self, pipe: Pipe) -> None:
        """Nobody connects to a client."""

    def opened(self, pipe: Pipe) -> None:
        """A connection stands."""

    def on_reply(self, pipe: Pipe, frame: object) -> None:
        """A node says something."""
        self.handle(lambda: self._hear(pipe, frame))

    def _hear(self, pipe: Pipe, frame: object) -> None:
        if pipe is not self._pipe:
            return
        self._heard += 1
        if isinstance(frame, Delivery):
            batch = batch_of(frame.publisher, frame.sequence, frame.order, frame.payload)
            publication = (frame.publisher, frame.sequence)
            if self.end.take(self.subscription, ROOM, batch, publication):
                self._judge.shown(self.number, batch.name, publication)
        elif isinstance(frame, StatusResponse) and self._opening is not None:
            (address, promise), self._opening = self._opening, None
            peers = [peer["address"] for peer in frame.status["peers"]]
            clock_us = frame.clock_us - self._clock.now_us
            promise.resolve(Introduction(address, self._author, peers, clock_us, frame.status["lost_seconds"], True))
        elif isinstance(frame, Refused):
            self._fail_opening(frame.reason)
        else:
            self.end.on_message(frame)

    def lost(self, pipe: Pipe) -> None:
        """A connection has ended."""
        self.handle(lambda: self._lose(pipe))

    def _lose(self, pipe: Pipe) -> None:
        if pipe is self._pipe:
            if self.end.is_up:
                self.end.connection_lost()
            else:
                self._fail_opening("the connection has ended")

    def _fail_opening(self, reason: str) -> None:
        if self._opening is not None:
            (address, promise), self._opening = self._opening, None
            self.leave(True, False)
            promise.fail(PeerError(f"{address}: {reason}"))

    # The host of the client's end.

    def now_us(self) -> int:
        """The clock."""
        return self._clock.now_us

    def after(self, delay_us: int, call: Callable[[], None]) -> None:
        """Call something after a while."""
        self._clock.post(delay_us, lambda: self.handle(call))

    def draw(self, below: int) -> int:
        """A random number."""
        return int(self._random.below(below))

    def open(self, address: str, patience_us: int) -> Promise[Introduction]:
        """Connect to a node."""
        promise: Promise[Introduction] = Promise()
        hello = Hello(PROTOCOL_VERSION, "antiphon", str(self._author), "")
        self._pipe = pipe = self._network.open(self, address, hello, 0)
        self._opening = (address, promise)
        pipe.send(StatusRequest(0, False))

        def give_up() -> None:
            if pipe is self._pipe and not promise.is_done:
                self._fail_opening("no answer")

        self.after(patience_us, give_up)
        return promise

    def leave(self, is_aborted: bool, waits_until_resumed: bool) -> None:
        """End the connection."""
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            if waits_until_resumed:
                self._former = pipe
            elif is_aborted:
                pipe.abort()
            else:
                pipe.close()

    def bytes_received(self) -> int:
        """How much has come."""
        return self._heard

    def send(self, control: Control) -> None:
        """Send something to the node."""
        if self._pipe is not None:
            self._pipe.send(control)

    def disconnected(self, lost: str, reason: str) -> None:
        """The node is lost."""
        self.is_ready = False

    def reconnected(self, lost: str) -> None:
        """The client continues at another node, or has found its first."""
        self._judge.moves += self.end.reconnects > 0

    def resumed(self) -> None:
        """A node that is about to go is not needed any more."""
        if self._former is not None:
            self._former.close()
            self._former = None

    def failed(self, reason: str) -> None:
        """No node was found."""
        self._judge.gave_up(self.number)
        self.is_up = False

    def refused(self, receipt: Any, answer: PublishResponse | FollowResponse) -> None:
        """A message is refused."""
        self._judge.refused(receipt)

    def subscription_ready(self, number: int) -> None:
        """The subscription is effective."""
        self.is_ready = True
        self._judge.ready(self.number, self._clock.now_us)

    def subscription_missed(self, number: int, topic: str) -> None:
        """Something may be missing."""
        self._judge.missed(self.number, self._clock.now_us)

    def subscription_dropped(self, number: int) -> None:
        """Nothing is dropped here."""

    def subscription_ended(self, number: int, message: SubscriptionEnded) -> None:
        """No node ends a subscription."""
        self._judge.violation(ERROR, f"the subscription of client {self.number} was ended: {message.error}")
