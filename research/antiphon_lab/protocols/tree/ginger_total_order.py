"""Ginger as published, without failures: routing of topics and total order by locks (chapter 3 of the dissertation).

A publication goes over every link that leads to a subscriber. A total one locks its keys level by level: a broker
locks, sends it to the other children that subscribe, and sends it to its parent when all have acknowledged; a broker
that got it from above acknowledges instead. The root of the topic, which has no subscriber above, completes it: it is
delivered, and ``TotalProcessed`` goes down (section 3.5). With the order "own children first, then the parent" of
section 4.3.2.4.

The text leaves open what a locked key stops. ``blocking`` chooses a reading:

* ``single``: a key has one lock, which stops everything about it at that broker.
* ``direct``: a lock stops publications from the same direction as the one that locked.
* ``barrier``: a lock stops publications of the application here, and total publications from children; everything that
  is already in transit passes. This one works without failures; the other two deadlock and break the order.

A broker handles one event at a time and forwards in that order, so a pool of workers cannot reorder publications (D30).
Departures: publications are numbered by publisher and topic; an application is the one client of its broker.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.tree.publisher import keys_of
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import NONE, TOTAL, UNSPECIFIED, Keyed, ProtocolMessage, publication_key
from antiphon.kernel.process import NO_NODE, Environment, Process, order_name
from antiphon_lab.protocols.tree.ginger_messages import (
    BARRIER,
    DIRECT,
    Metadata,
    PublishedGingerOptions,
    TotalAck,
    TotalProcessed,
)
from antiphon_lab.protocols.tree.ginger_topic import Pending, Pool, PublishedGingerTopic


@mypyc_attr(allow_interpreted_subclasses=True)
class PublishedTotals(Process):
    """The part of a broker that orders."""

    def __init__(self, environment: Environment, options: PublishedGingerOptions) -> None:
        super().__init__(environment)
        self.options: Final[PublishedGingerOptions] = options
        self.parent: i64 = NO_NODE
        # Child brokers, with their last reported number of children.
        self.children: dict[int, int] = {}
        self.topics: dict[int, PublishedGingerTopic] = {}

    def topic(self, name: i64) -> PublishedGingerTopic:
        """The state of a topic."""
        known = self.topics.get(int(name))
        if known is None:
            known = PublishedGingerTopic(name, self.options.buffer_size)
            self.topics[int(name)] = known
        return known

    def begin_topic(self, name: i64, is_subscribed: bool, has_parent: bool, children: list[int]) -> None:
        """Know from the start on which links a topic has subscribers (before ``start``)."""
        topic = self.topic(name)
        topic.is_subscribed = is_subscribed
        topic.has_parent = has_parent
        topic.children = set(children)

    def start(self) -> None:
        if self.parent != NO_NODE:
            self.environment.watch(self.parent)
        for child in self.children:
            self.environment.watch(child)
        for name, topic in self.topics.items():
            if topic.is_subscribed:
                self.environment.subscribed(name)

    def neighbours(self) -> set[int]:
        """The parent and the children."""
        found = set(self.children)
        if self.parent != NO_NODE:
            found.add(int(self.parent))
        return found

    def _clients(self) -> int:
        return sum(topic.is_subscribed for topic in self.topics.values())

    def residual_degree(self) -> i64:
        """How many neighbours this broker has room for; it falls when one comes (D11) and rises when one goes (D9)."""
        return self.options.total_degree - len(self.neighbours()) - self._clients()

    def add_subscriber(self, topic: PublishedGingerTopic, neighbour: i64) -> None:
        """A topic has a subscriber behind a neighbour."""
        if neighbour == self.parent:
            topic.has_parent = True
        else:
            topic.children.add(int(neighbour))

    # Hooks of the part above.

    def arrive(self, topic: PublishedGingerTopic, publication: Keyed, sender: i64) -> None:
        """A publication has come; during a repair it may have to wait."""
        raise NotImplementedError

    # The application.

    def publish(self, payload: bytes, topic: i64 = 0, order: i64 = UNSPECIFIED) -> i64:
        return self.publish_about([], payload, topic, order)

    def publish_about(self, keys: list[int], payload: bytes, topic: i64 = 0, order: i64 = UNSPECIFIED) -> i64:
        state = self.topic(topic)
        if not state.is_subscribed:
            raise UsageError(f"node {self.me} is not subscribed to topic {topic}; only subscribers publish: subscribe")
        chosen = self.options.strength if order == UNSPECIFIED else order
        if not NONE <= chosen <= TOTAL:
            raise UsageError(f"there is no order {order_name(order)}; choose none, fifo, causal or total")
        state.published += 1
        now = self.environment.now()
        publication = Keyed(self.me, state.published, now, payload, topic, chosen, keys_of(keys))
        state.is_new(publication)
        self.arrive(state, publication, NO_NODE)
        return state.published

    # Section 3.5.

    def process(self, topic: PublishedGingerTopic, publication: Keyed, sender: i64) -> None:
        """Handle a publication now, unless a locked key stops it."""
        if self._is_stopped(topic, publication, sender):
            self._pool_for(topic, sender).add(publication, sender)
        elif publication.order == TOTAL:
            self._begin_total(topic, publication, sender)
        else:
            topic.keep(publication, True)
            self._forward(topic, Metadata(publication, True), sender)
            self._deliver(topic, publication)

    def process_completed(self, topic: PublishedGingerTopic, publication: Keyed, sender: i64) -> None:
        """A total publication comes that is completed elsewhere: it is delivered at once, through any lock."""
        name = publication_key(publication.source, publication.sequence)
        if name in topic.completed:
            return
        pending = topic.pending.get(name)
        if pending is not None:
            self.complete(topic, pending)
            return
        topic.keep(publication, True)
        topic.completed.add(name)
        self._forward(topic, Metadata(publication, True), sender)
        self._deliver(topic, publication)

    def _is_stopped(self, topic: PublishedGingerTopic, publication: Keyed, sender: i64) -> bool:
        blocking = self.options.blocking
        is_total = publication.order == TOTAL
        is_from_above = sender == self.parent and sender != NO_NODE
        if is_from_above and (is_total and self.options.totals_overtake):
            return False
        if blocking == BARRIER and not is_total and sender != NO_NODE:
            return False
        if self._pool_for(topic, sender).has_any(publication.keys):
            return True
        for key in publication.keys:
            if blocking != DIRECT:
                if key in topic.locked_from_below or key in topic.locked_from_above:
                    return True
            elif key in (topic.locked_from_above if is_from_above else topic.locked_from_below):
                return True
        return False

    def _pool_for(self, topic: PublishedGingerTopic, sender: i64) -> Pool:
        if sender == NO_NODE:
            return topic.pool_own if self.options.blocking == BARRIER else topic.pool_up
        return topic.pool_down if sender == self.parent else topic.pool_up

    def _forward(self, topic: PublishedGingerTopic, message: Metadata, sender: i64) -> None:
        """Send a publication over all links that lead to a subscriber, except the one that it came from."""
        if topic.has_parent and self.parent != sender and self.parent != NO_NODE:
            self.environment.send(self.parent, message)
        for child in sorted(topic.children):
            if child != sender:
                self.environment.send(child, message)

    def _deliver(self, topic: PublishedGingerTopic, publication: Keyed) -> None:
        if topic.is_subscribed:
            self.environment.deliver(publication)

    def _begin_total(self, topic: PublishedGingerTopic, publication: Keyed, sender: i64) -> None:
        pending = Pending(publication, sender == self.parent and sender != NO_NODE)
        topic.pending[publication_key(publication.source, publication.sequence)] = pending
        topic.lock(pending)
        topic.keep(publication, False)
        if sender in topic.children:
            # The publication itself is the acknowledgement of the child that sends it up.
            pending.acknowledge(sender)
        self.ask_children(topic, pending)

    def ask_children(self, topic: PublishedGingerTopic, pending: Pending) -> None:
        """Let the children lock that have not; continue at once if all have."""
        for child in sorted(topic.children):
            if child not in pending.acknowledged:
                pending.has_asked = True
                self.environment.send(child, Metadata(pending.publication, False))
        self.go_on_if_acknowledged(topic, pending)

    def is_acknowledged(self, topic: PublishedGingerTopic, pending: Pending) -> bool:
        """Whether all children that subscribe have locked, or as many acknowledgements came."""
        if self.options.counts_acknowledgements:
            return pending.acknowledgements >= len(topic.children)
        return topic.children <= pending.acknowledged

    def go_on_if_acknowledged(self, topic: PublishedGingerTopic, pending: Pending) -> None:
        """When all below have locked: complete, acknowledge, or climb, once."""
        if pending.has_gone_up or not self.is_acknowledged(topic, pending):
            return
        publication = pending.publication
        if not topic.has_parent or self.parent == NO_NODE:
            self.complete(topic, pending)
        elif pending.is_from_above:
            pending.has_gone_up = True
            self.environment.send(self.parent, TotalAck(publication.source, publication.sequence, publication.topic))
        else:
            pending.has_gone_up = True
            self.environment.send(self.parent, Metadata(publication, False))

    def complete(self, topic: PublishedGingerTopic, pending: Pending) -> None:
        """Deliver a total publication, tell all brokers below, and release waiting ones."""
        publication = pending.publication
        topic.mark_completed(publication)
        del topic.pending[publication_key(publication.source, publication.sequence)]
        self._deliver(topic, publication)
        for child in sorted(topic.children):
            self.environment.send(child, TotalProcessed(publication.source, publication.sequence, publication.topic))
        topic.unlock(publication)
        self._drain(topic)

    def _drain(self, topic: PublishedGingerTopic) -> None:
        """Retry waiting publications, those from above first; those that must still wait keep their place."""
        for pool in (topic.pool_down, topic.pool_up, topic.pool_own):
            for publication, sender in pool.take_all():
                self.process(topic, publication, sender)

    # Messages.

    def receive_metadata(self, sender: i64, message: Metadata) -> None:
        """A publication comes from a neighbour."""
        topic = self.topic(message.topic)
        publication = message.publication
        name = publication_key(publication.source, publication.sequence)
        is_new = topic.is_new(publication)
        if publication.order == TOTAL and name in topic.pending:
            if message.is_completed:
                self.process_completed(topic, publication, sender)
            else:
                self._receive_again(topic, topic.pending[name], sender)
        elif publication.order == TOTAL and name in topic.completed and self.options.answers_for_completed:
            self._answer_for_completed(topic, publication, sender)
        elif is_new or not self.options.drops_duplicates:
            if message.is_completed and publication.order == TOTAL:
                self.process_completed(topic, publication, sender)
            else:
                self.arrive(topic, publication, sender)

    def _receive_again(self, topic: PublishedGingerTopic, pending: Pending, sender: i64) -> None:
        """A total publication in progress comes a second time: after a repair (section 4.3.2.4)."""
        publication = pending.publication
        if sender in topic.children:
            pending.acknowledge(sender)
            self.go_on_if_acknowledged(topic, pending)
        elif self.options.acknowledges_blocked:
            self.environment.send(sender, TotalAck(publication.source, publication.sequence, publication.topic))
        elif sender == self.parent:
            # All below must have locked before it is acknowledged again; a child that is new here has not been asked.
            pending.is_from_above = True
            pending.has_gone_up = False
            self.ask_children(topic, pending)

    def _answer_for_completed(self, topic: PublishedGingerTopic, publication: Keyed, sender: i64) -> None:
        kind = TotalProcessed if sender in topic.children else TotalAck
        self.environment.send(sender, kind(publication.source, publication.sequence, publication.topic))

    def receive_ack(self, sender: i64, message: TotalAck) -> None:
        """A child has locked a total publication."""
        topic = self.topic(message.topic)
        pending = topic.pending.get(publication_key(message.source, message.sequence))
        if pending is not None and sender in topic.children:
            pending.acknowledge(sender)
            self.go_on_if_acknowledged(topic, pending)

    def receive_processed(self, message: TotalProcessed) -> None:
        """The parent reports that a total publication is completed."""
        topic = self.topic(message.topic)
        pending = topic.pending.get(publication_key(message.source, message.sequence))
        if pending is not None:
            self.complete(topic, pending)

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        if isinstance(message, Metadata):
            self.receive_metadata(sender, message)
        elif isinstance(message, TotalAck):
            self.receive_ack(sender, message)
        else:
            assert isinstance(message, TotalProcessed), "brokers send each other nothing else"
            self.receive_processed(message)

    def unfinished(self) -> i64:
        return sum(topic.waiting() for topic in self.topics.values())
