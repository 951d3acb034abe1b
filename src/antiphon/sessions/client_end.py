"""The client's end of its connection: everything that a client decides about its node, and about the next one.

A client numbers its batches of each topic. It keeps a batch until its node says that it is safe, and hands in the
others again at the next node (:mod:`antiphon.sessions.unacked`). It remembers which batches its subscriptions have
seen. Two nodes agree on everything that orders promise, so a subscription may take what one node showed and then, of
what the next one shows, whatever it has not seen: each message at most once, and in order.

It is a pure state machine. Its host calls it when something has happened and offers :class:`ClientHost`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from antiphon.kernel.errors import PeerError
from antiphon.membership.heartbeats import Vigil
from antiphon.membership.messages import Control
from antiphon.sessions.client_messages import (
    BatchesDropped,
    FollowRequest,
    FollowResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MessagesMissed,
    NodeAddresses,
    PublishRequest,
    PublishResponse,
    Resume,
    SafeUpTo,
    SubscribeRequest,
    SubscriptionEnded,
    SubscriptionReady,
    TopicStarted,
    UnsubscribeRequest,
)
from antiphon.sessions.dedup import SeenOfAll
from antiphon.sessions.steps import Promise, Scope, Steps, Timers, start, wait
from antiphon.sessions.unacked import Kept, KeptBatches

TRY_US: Final = 2_000_000
"""How long one node may take to answer a client that looks for another node."""

ADDRESSES_AT_MOST: Final = 1024
FIRST_PAUSE_US: Final = 20_000
LONGEST_PAUSE_US: Final = 1_000_000
"""Between two rounds through all addresses; it doubles each time."""

HEARTBEAT_LOOKS: Final = 32
"""How often a client looks in ``lost_seconds`` whether its node is silent.

It looks more often than nodes do, so that it moves soon after the other nodes have given up its own. It looks regularly
because only then it knows for how long it was awake to hear, and because a timer for each frame costs more."""

NODE: Final = 0
"""The only node that a client listens for."""


class Introduction(NamedTuple):
    """A node's words about itself and the others when a client connects."""

    address: str
    author: int
    """The number under which it publishes what the client hands in."""
    peers: list[str]
    clock_us: int
    """The reading of its clock when that of the client shows 0; no later than that."""
    lost_seconds: float | None
    """After how long somebody is lost; earlier versions know no heartbeats and do not say."""


class ClientHost(Timers, Protocol):
    """The actions that the client's end asks of its host."""

    def draw(self, below: int) -> int:
        """A random number from 0 to below another one."""

    def open(self, address: str, patience_us: int) -> Promise[Introduction]:
        """Connect to a node and hear who it is; :class:`PeerError` says why not."""

    def leave(self, is_aborted: bool, waits_until_resumed: bool) -> None:
        """End the connection: at once, in order, or when the subscriptions are effective at another node."""

    def bytes_heard(self) -> int:
        """How much has come from the node over this connection."""

    def send(self, control: Control) -> None:
        """Queue something for the node; without one, it is forgotten."""

    def disconnected(self, lost: str, reason: str) -> None:
        """The node is lost, and the client looks for another one."""

    def reconnected(self, lost: str) -> None:
        """The client continues at another node."""

    def failed(self, reason: str) -> None:
        """No node was found."""

    def accepted(self, receipt: Any) -> None:
        """A batch is accepted."""

    def refused(self, receipt: Any, answer: PublishResponse | FollowResponse) -> None:
        """A batch is not accepted."""

    def subscription_ready(self, number: int) -> None:
        """A subscription is effective."""

    def subscription_missed(self, number: int, topic: str) -> None:
        """Here messages of a subscription may be missing."""

    def subscription_dropped(self, number: int) -> None:
        """The node has dropped messages of a subscription, as its policy says."""

    def subscription_ended(self, number: int, message: SubscriptionEnded) -> None:
        """Nothing more comes of a subscription."""

    def resumed(self) -> None:
        """All subscriptions are effective at the new node."""


class ServerPool:
    """Where a client's next node could be: the addresses it was given, and those that its nodes have told it."""

    def __init__(self, given: Sequence[str]) -> None:
        self.given = list(given)
        self._learned: list[str] = []

    def learn(self, addresses: Iterable[str]) -> None:
        """The node has said where the others are now."""
        self._learned = list(addresses)[:ADDRESSES_AT_MOST]

    def others(self, lost: str, host: ClientHost) -> list[str]:
        """Where to go when a node is lost: first to others that it knew, in random order, and to it last.

        So the clients of a lost node do not all come to the same one.
        """
        likely = [address for address in self._learned if address != lost]
        for place in range(len(likely) - 1, 0, -1):
            other = host.draw(place + 1)
            likely[place], likely[other] = likely[other], likely[place]
        return list(dict.fromkeys([*likely, *(address for address in self.given if address != lost), lost]))


class ClientSubscription:
    """One subscription as the client remembers it. ``start`` and ``is_time`` are those of the request."""

    def __init__(self, number: int, pattern: str, start: str | int, is_time: bool, policy: str, limit: int) -> None:
        self.number = number
        self._pattern = pattern
        self._start = start
        self._is_time = is_time
        self._policy = policy
        self._limit = limit
        self._ready_at_us: int | None = None
        self.seen: dict[str, SeenOfAll] = {}
        # Messages dropped at this node and at earlier ones: each node counts for itself.
        self.dropped = 0
        self._dropped_before = 0

    @property
    def has_been_ready(self) -> bool:
        """Whether it was effective at some node."""
        return self._ready_at_us is not None

    @property
    def is_from_offset(self) -> bool:
        """Whether it began at an offset, which means something at its node only."""
        return isinstance(self._start, int) and not self._is_time

    def ready(self, now_us: int) -> None:
        """It is effective at a node."""
        if self._ready_at_us is None:
            self._ready_at_us = now_us

    def take(self, topic: str, author: int, number: int, is_written: bool) -> bool:
        """A batch has come; whether it is new."""
        return self.seen_on(topic).add(author, number, is_written)

    def seen_on(self, topic: str) -> SeenOfAll:
        """The batches that it has seen on a topic."""
        seen = self.seen.get(topic)
        if seen is None:
            seen = self.seen[topic] = SeenOfAll()
        return seen

    def count_dropped(self, count: int) -> None:
        """The node has dropped so many messages of it, as its policy says."""
        self.dropped = self._dropped_before + count

    def request(self) -> SubscribeRequest:
        """The request to its first node."""
        return self._request(None)

    def request_again(self, node_clock_us: int) -> SubscribeRequest:
        """The request to the next node: to continue, if it was effective."""
        self._dropped_before = self.dropped
        if self._ready_at_us is None or self._is_time or self._start == "earliest":
            # The log of another node sends all of it, and batches that were seen are dropped here.
            return self._request(None)
        seen = {topic: seen.ranges() for topic, seen in self.seen.items()}
        return self._request(Resume(self._ready_at_us + node_clock_us, seen))

    def _request(self, resume: Resume | None) -> SubscribeRequest:
        start = self._start if resume is None else "latest"
        return SubscribeRequest(self.number, self._pattern, start, self._is_time, self._policy, self._limit, resume)


class ClientEnd:
    """One client. It looks for another node for ``reconnect_us`` when its own is gone."""

    def __init__(self, host: ClientHost, pool: ServerPool, reconnect_us: int) -> None:
        self._host = host
        self.pool = pool
        self.reconnect_us = reconnect_us
        self.address = pool.given[0]
        self.author = 0
        self.is_up = False
        self.reconnects = 0
        self._node_clock_us = 0
        self._last_number = 0
        # The steps that belong to the present connection, and the search for another one.
        self._connection = Scope()
        self._search = Scope()
        # What the client publishes: its own numbers by topic, what is not safe, and the topics on which publications
        # follow what was seen at earlier nodes, or are about to.
        self._serials: dict[str, int] = {}
        self.unacked = KeptBatches()
        self._following: set[str] = set()
        self._follows: set[str] = set()
        self.subscriptions: dict[int, ClientSubscription] = {}
        # Those that are not effective yet at the node of which they were asked last.
        self._resuming: set[int] = set()

    def next_number(self) -> int:
        """A number for something that the node is to answer."""
        self._last_number += 1
        return self._last_number

    # Its node.

    def connected(self, node: Introduction) -> None:
        """There is a node, the first or another one."""
        self.address = node.address
        self.author = node.author
        self._node_clock_us = node.clock_us
        self.pool.learn(node.peers)
        self.is_up = True
        self._connection = Scope()
        if node.lost_seconds is not None:
            self._listen(Vigil(node.lost_seconds, self._host.now_us() / 1e6, HEARTBEAT_LOOKS), self._connection)

    def _listen(self, vigil: Vigil, connection: Scope) -> None:
        """Give the node up when it has been silent for too long."""
        self._host.send(HeartbeatRequest())

        def look() -> None:
            if connection.is_over:
                return
            silent = vigil.poll(self._host.now_us() / 1e6, {NODE: self._host.bytes_heard()})
            if silent.lost:
                # A connection that is closed in order would wait until the node reads what was sent to it.
                self._look_elsewhere("the node is silent", is_aborted=True)
                return
            if silent.asked:
                self._host.send(HeartbeatRequest())
            self._host.after(round(vigil.look_seconds * 1e6), look)

        self._host.after(round(vigil.look_seconds * 1e6), look)

    def connection_lost(self) -> None:
        """The connection to the node has ended."""
        if self.is_up:
            self._look_elsewhere("the connection has ended")

    def close(self) -> None:
        """Nothing more is wanted."""
        self.is_up = False
        self._connection.is_over = True
        self._search.is_over = True

    def _look_elsewhere(self, reason: str, is_aborted: bool = False, is_leaving: bool = False) -> None:
        """The node is lost, or is about to go: then it waits for a while, and others can ask it for what they lack."""
        lost = self.address
        self.is_up = False
        self._connection.is_over = True
        self._host.leave(is_aborted, is_leaving)
        if self.reconnect_us <= 0:
            self._host.failed(f"the connection to the node at {lost} has ended; connect again, here or elsewhere")
            return
        self._following.clear()
        self._follows.clear()
        self.unacked.connection_lost()
        self._host.disconnected(lost, reason)
        self._search = Scope()
        start(self._reconnect(lost), self._search)

    def _reconnect(self, lost: str) -> Steps[None]:
        """Try all nodes, again and again with longer pauses, until one answers or the time is over."""
        host = self._host
        give_up_at_us = host.now_us() + self.reconnect_us
        pause_us = FIRST_PAUSE_US
        tried: dict[str, str] = {}
        while True:
            for address in self.pool.others(lost, host):
                left_us = give_up_at_us - host.now_us()
                if left_us <= 0:
                    break
                try:
                    node = yield from wait(host.open(address, min(TRY_US, left_us)))
                except PeerError as error:
                    tried[address] = str(error)
                    continue
                self._resume(lost, node)
                return
            left_us = give_up_at_us - host.now_us()
            if left_us <= 0:
                break
            waited: Promise[None] = Promise()
            # Pauses vary, so that clients do not come all at once.
            host.after(min(left_us, pause_us // 2 + host.draw(pause_us // 2)), lambda: waited.resolve(None))  # noqa: B023
            yield waited
            pause_us = min(2 * pause_us, LONGEST_PAUSE_US)
        said = "; ".join(tried.values())
        seconds = self.reconnect_us / 1e6
        host.failed(f"the node at {lost} is gone, and no other was found in {seconds:g} seconds: {said}")

    def _resume(self, lost: str, node: Introduction) -> None:
        """Continue at another node."""
        self.connected(node)
        self.reconnects += 1
        for subscription in list(self.subscriptions.values()):
            if subscription.is_from_offset and subscription.has_been_ready:
                for topic in subscription.seen:
                    self._host.subscription_missed(subscription.number, topic)
            self._resuming.add(subscription.number)
            self._host.send(subscription.request_again(self._node_clock_us))
        for topic in self.unacked.topics():
            self._follow(topic)
        self._host.reconnected(lost)
        self._tell_resumed()

    def _tell_resumed(self) -> None:
        if not self._resuming:
            self._host.resumed()

    # Publishing.

    @property
    def has_room(self) -> bool:
        """Whether a batch of some topic may be handed in now."""
        return self.is_up and self.unacked.room() > 0

    def room(self, topic: str) -> int:
        """How many more batches of a topic may be handed in now."""
        if not self.is_up:
            return 0
        if self.reconnects and topic not in self._follows:
            self._follow(topic)
            return 0
        return 0 if self.unacked.has_to_repeat(topic) else self.unacked.room()

    def publish(self, topic: str, order: str, payload: bytes, about: tuple[int, ...], receipt: Any) -> None:
        """Hand a batch in at the node, and keep it."""
        serial = self._serials[topic] = self._serials.get(topic, 0) + 1
        kept = Kept(self.next_number(), topic, serial, order, payload, about, receipt)
        self.unacked.add(kept)
        self._hand_in(kept)

    def _hand_in(self, kept: Kept) -> None:
        self._host.send(PublishRequest(kept.number, kept.topic, kept.order, kept.payload, kept.about, kept.serial))

    def _answered(self, message: PublishResponse) -> bool:
        """The node has accepted a batch, or refused it; whether it is one of those that were handed in here."""
        kept = self.unacked.answered(message.number)
        if kept is None:
            return False
        if message.error:
            self.unacked.remove(kept)
            self._host.refused(kept.receipt, message)
        else:
            self.unacked.accepted(kept)
            if message.is_known:
                self.unacked.done(kept)
            self._host.accepted(kept.receipt)
        self._repeat()
        return True

    def _followed(self, message: FollowResponse) -> None:
        """The node has caught up with what was seen elsewhere, or cannot."""
        self._following.discard(message.topic)
        self._follows.add(message.topic)
        if message.error:
            for kept in self.unacked.give_up_unaccepted(message.topic):
                self._host.refused(kept.receipt, message)
        self._repeat()

    def _follow(self, topic: str) -> None:
        """See to it that what is published from now on follows what was seen at other nodes."""
        if topic not in self._following:
            self._following.add(topic)
            past = self.past_of(topic)
            # Its own publications come first too, though they may not have been shown to it.
            past[self.author] = max(past.get(self.author, 0), self.unacked.done_up_to(topic))
            self._host.send(FollowRequest(self.next_number(), topic, past))

    def past_of(self, topic: str) -> dict[int, int]:
        """The last batch of each author that was seen on a topic."""
        past: dict[int, int] = {}
        for subscription in self.subscriptions.values():
            seen = subscription.seen.get(topic)
            if seen is not None:
                for author, ranges in seen.ranges().items():
                    past[author] = max(past.get(author, 0), ranges[0])
        return past

    def _repeat(self) -> None:
        """Hand in again what may be lost, as much of it as may be on its way."""
        for topic in self.unacked.topics_to_repeat():
            while topic in self._follows and (kept := self.unacked.next_again(topic)) is not None:
                self._hand_in(kept)

    # Subscribing.

    def subscribe(self, subscription: ClientSubscription) -> None:
        """Begin a subscription."""
        self.subscriptions[subscription.number] = subscription
        if self.is_up:
            self._host.send(subscription.request())

    def unsubscribe(self, number: int) -> None:
        """End a subscription."""
        if self.subscriptions.pop(number, None) is not None:
            self._resuming.discard(number)
            if self.is_up:
                self._host.send(UnsubscribeRequest(number))

    # What the node says.

    def on_message(self, message: object) -> bool:
        """The node says something; false if it is about something else than the session."""
        if isinstance(message, PublishResponse):
            return self._answered(message)
        if isinstance(message, SafeUpTo):
            self.unacked.safe(message.topic, message.serial)
        elif isinstance(message, FollowResponse):
            self._followed(message)
        elif isinstance(message, NodeAddresses):
            self.pool.learn(message.addresses)
            if message.is_leaving:
                self._look_elsewhere("the node is about to go", is_leaving=True)
        elif isinstance(message, HeartbeatRequest):
            self._host.send(HeartbeatResponse())
        elif isinstance(message, (SubscriptionReady, SubscriptionEnded, MessagesMissed, TopicStarted, BatchesDropped)):
            subscription = self.subscriptions.get(message.number)
            if subscription is not None:
                self._on_subscription(subscription, message)
        else:
            return isinstance(message, HeartbeatResponse)
        return True

    def _on_subscription(
        self,
        subscription: ClientSubscription,
        message: SubscriptionReady | SubscriptionEnded | MessagesMissed | TopicStarted | BatchesDropped,
    ) -> None:
        if isinstance(message, SubscriptionReady):
            self._resuming.discard(message.number)
            subscription.ready(self._host.now_us())
            self._host.subscription_ready(message.number)
            self._tell_resumed()
        elif isinstance(message, MessagesMissed):
            subscription.seen_on(message.topic)
            self._host.subscription_missed(message.number, message.topic)
        elif isinstance(message, TopicStarted):
            subscription.seen_on(message.topic).merge(message.seen)
        elif isinstance(message, BatchesDropped):
            subscription.seen_on(message.topic).merge(message.batches)
            subscription.count_dropped(message.count)
            self._host.subscription_dropped(message.number)
        else:
            subscription.count_dropped(message.dropped)
            self.subscriptions.pop(message.number, None)
            self._resuming.discard(message.number)
            self._host.subscription_ended(message.number, message)
            self._tell_resumed()
