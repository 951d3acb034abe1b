"""The client's end of its connection: everything that a client decides about its node, and about the next one.

A client numbers its batches of each topic. It keeps a batch until its node says that it is safe, and hands in the
others again at the next node (:mod:`antiphon.sessions.unacked`). It remembers which batches its subscriptions have
seen. Two nodes agree on everything that orders promise, so a subscription may take what one node showed and then, of
what the next one shows, whatever it has not seen: each message at most once, and in order.

It is a pure state machine. Its host calls it when something has happened and offers :class:`ClientHost`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol

from antiphon.kernel.errors import PeerError
from antiphon.membership.heartbeats import FailureDetector
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
    SafeUpTo,
    SubscriptionEnded,
    SubscriptionReady,
    TopicStarted,
    UnsubscribeRequest,
)
from antiphon.sessions.client_subscription import ArrivingBatch, ClientSubscription
from antiphon.sessions.dedup import DedupTable, Ranges
from antiphon.sessions.seen_lists import NUMBERS_AT_MOST, cut_lists, share_of
from antiphon.sessions.server_pool import ServerPool
from antiphon.sessions.shown_since import ShownSince
from antiphon.sessions.steps import Promise, Scope, Steps, Timers, start, wait
from antiphon.sessions.unacked import UnackedBatch, UnackedBatches

TRY_US: Final = 2_000_000
"""How long one node may take to answer a client that looks for another node."""

SOON_US: Final = 300_000
"""After how long a client that waits for its node to catch up brings what need not wait for all of that."""

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
    is_strict: bool
    """Whether ordered messages of a publisher wait for its own total messages before them."""


class ClientHost(Timers, Protocol):
    """The actions that the client's end asks of its host."""

    def draw(self, below: int) -> int:
        """A random number from 0 to below another one."""

    def open(self, address: str, patience_us: int) -> Promise[Introduction]:
        """Connect to a node and hear who it is; :class:`PeerError` says why not."""

    def leave(self, is_aborted: bool, waits_until_resumed: bool) -> None:
        """End the connection: at once, in order, or when the subscriptions are effective at another node."""

    def bytes_received(self) -> int:
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
        self.is_strict = False
        self._node_clock_us = 0
        self._last_number = 0
        # The steps that belong to the present connection, and the search for another one.
        self._connection = Scope()
        self._search = Scope()
        # For publishing: the client's own numbers by topic, how many batches of a topic the node has refused, those
        # that are not safe, and topics on which publications follow what was seen at earlier nodes, or are about to.
        self._serials: dict[str, int] = {}
        self._refusals: dict[str, int] = {}
        self.unacked = UnackedBatches()
        self._following: dict[str, int] = {}
        self._follows: set[str] = set()
        # By topic, for the next batch to be handed in again: the number of the request that names only what it follows,
        # and the last number of the batches that follow no more; and up to where such requests were answered.
        self._shown_since = ShownSince()
        self._following_first: dict[str, tuple[int, int]] = {}
        self._repeats_to: dict[str, int] = {}
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
        self.is_strict = node.is_strict
        self._node_clock_us = node.clock_us
        self.pool.learn(node.peers)
        self.is_up = True
        self._connection = Scope()
        if node.lost_seconds is not None:
            self._listen(
                FailureDetector(node.lost_seconds, self._host.now_us() / 1e6, HEARTBEAT_LOOKS), self._connection
            )

    def _listen(self, detector: FailureDetector, connection: Scope) -> None:
        """Give the node up when it has been silent for too long."""
        self._host.send(HeartbeatRequest())

        def poll() -> None:
            if connection.is_over:
                return
            silent = detector.poll(self._host.now_us() / 1e6, {NODE: self._host.bytes_received()})
            if silent.lost:
                # A connection that is closed in order would wait until the node reads what was sent to it.
                self._look_elsewhere("the node is silent", is_aborted=True)
                return
            if silent.asked:
                self._host.send(HeartbeatRequest())
            self._host.after(round(detector.look_seconds * 1e6), poll)

        self._host.after(round(detector.look_seconds * 1e6), poll)

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
        self._following_first.clear()
        self._repeats_to.clear()
        self._follows.clear()
        self._refusals.clear()
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
            for address in self.pool.others(lost, host.draw):
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
        numbers_at_most = share_of(len(self.subscriptions))
        for subscription in list(self.subscriptions.values()):
            if subscription.is_from_offset and subscription.has_been_ready:
                for topic in subscription.seen:
                    self._host.subscription_missed(subscription.number, topic)
            self._resuming.add(subscription.number)
            self._host.send(subscription.request_again(self._node_clock_us, numbers_at_most))
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
        kept = UnackedBatch(self.next_number(), topic, serial, order, payload, about, receipt)
        self.unacked.add(kept)
        self._hand_in(kept)

    def _hand_in(self, kept: UnackedBatch) -> None:
        refusals = self._refusals.get(kept.topic, 0)
        number, topic, order, payload = kept.number, kept.topic, kept.order, kept.payload
        self._host.send(
            PublishRequest(number, topic, order, payload, kept.about, kept.serial, None, refusals, kept.is_accepted)
        )

    def _answered(self, message: PublishResponse) -> bool:
        """The node has accepted a batch, or refused it; whether it is one of those that were handed in here."""
        kept = self.unacked.on_ack(message.number)
        if kept is None:
            return False
        if message.error:
            self._refusals[kept.topic] = self._refusals.get(kept.topic, 0) + 1
            self.unacked.refused(kept)
            self._host.refused(kept.receipt, message)
        elif message.is_stale:
            self.unacked.on_returned(kept)
        else:
            self.unacked.accepted(kept)
            if message.is_known:
                self.unacked.done(kept)
            self._host.accepted(kept.receipt)
        self._repeat()
        return True

    def _followed(self, message: FollowResponse) -> None:
        """The node has caught up with what was seen elsewhere, or cannot."""
        number, last = self._following_first.get(message.topic, (0, 0))
        if message.number == number and message.topic in self._following:
            if not message.error:
                self._repeats_to[message.topic] = last
                self._repeat()
            return
        self._following.pop(message.topic, None)
        self._follows.add(message.topic)
        if message.error:
            for kept in self.unacked.give_up_unaccepted(message.topic):
                self._host.refused(kept.receipt, message)
        self._repeat()

    def _follow(self, topic: str) -> None:
        """See to it that what is published from now on follows what was seen at other nodes."""
        if topic not in self._following:
            number = self._following[topic] = self.next_number()
            past = self._past_without_kept(topic)
            has_own = self.unacked.done_up_to(topic) <= self.past_of(topic).get(self.author, 0)
            publications = self._publications_of(topic) if has_own else {}
            if cut_lists({topic: publications}, NUMBERS_AT_MOST).get(topic, {}) != publications:
                # They do not fit a request, and a part of them would say nothing.
                publications = {}
            self._host.send(FollowRequest(number, topic, past, publications))
            self._host.after(SOON_US, lambda: self._follow_first(topic, number))

    def _past_without_kept(self, topic: str) -> dict[int, int]:
        """The last batch of each author that was seen on a topic, or published and need not be handed in again."""
        past = self.past_of(topic)
        # Its own publications come first too, though they may not have been shown to it. The node waits for none that
        # are kept: they are handed in here, ahead of anything else.
        seen = min(past.get(self.author, 0), self.unacked.last_not_kept(topic))
        past[self.author] = max(seen, self.unacked.done_up_to(topic))
        return past

    def _follow_first(self, topic: str, number: int) -> None:
        """The node still waits for what was seen: see to it that it has what the next batch to be handed in follows.

        Another client that waits for this one may hold the messages that were seen later.
        """
        first = self.unacked.first_again(topic)
        asked_to = self._following_first.get(topic, (0, 0))[1]
        if self._following.get(topic) != number or first is None or first.number <= asked_to:
            return
        last = self._shown_since.end_of(topic, first.number)
        if last is not None:
            past = self._shown_since.before(topic, first.number, self._past_without_kept(topic))
            self._following_first[topic] = (self.next_number(), last)
            self._host.send(FollowRequest(self._following_first[topic][0], topic, past, {}))

    def _publications_of(self, topic: str) -> dict[int, Ranges]:
        """All publications on a topic that were shown, or came before."""
        publications = DedupTable()
        for subscription in self.subscriptions.values():
            publications.merge(subscription.past[topic].ranges())
        return publications.ranges()

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
            while self._may_repeat(topic) and (kept := self.unacked.next_again(topic)) is not None:
                self._hand_in(kept)
            if topic in self._repeats_to:
                self._follow_first(topic, self._following.get(topic, 0))

    def _may_repeat(self, topic: str) -> bool:
        """Whether the node has what the next batch to be handed in again follows."""
        if topic in self._follows or not self.reconnects:
            return True
        first = self.unacked.first_again(topic)
        return first is not None and first.number <= self._repeats_to.get(topic, 0)

    # Subscribing.

    def take(
        self, subscription: ClientSubscription, topic: str, batch: ArrivingBatch, publication: tuple[int, int]
    ) -> bool:
        """A batch has come for a subscription, as the publication of a node; whether it is to be shown."""
        is_shown = subscription.take(topic, batch, publication, self.is_strict)
        if not self.unacked.has_any(topic):
            self._shown_since.forget(topic)
        elif is_shown:
            self._shown_since.add(topic, self._last_number, batch.author, batch.number)
        return is_shown

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
            subscription.past[message.topic].merge(message.past)
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
