"""A broker of the tree: topics, keys, and an order chosen per publication, through crashes.

Follows the dissertation of P. Matos on fault tolerance in Ginger (2024). A broker consists of parts, each in a module
of its own with its own state and messages:

* ``TreeView``: its knowledge of the tree; ``DurableState``: its state on disk; ``TreeTopicTable``: its topics;
* ``ParentSearch``, ``Attachment``, ``Root``: its place in the tree, and the rule that there is one tree;
* ``Streams``, ``Stability``: they carry publications to all brokers of a topic, and keep them until all have them;
* ``TreeTotalOrder``: the places of total publications;
* ``TreePublisher``: the requests of the application at this broker.

A part knows the parts that it is built on. It tells others through a narrow interface, such as ``StreamEvents``. The
classes at the end of this module say what each event triggers. :meth:`TreeBroker.receive` passes each message to its
handler. ``docs/proofs/broker-tree.md`` states the whole protocol and argues it.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.tree.attachment import Attachment, AttachmentEvents
from antiphon.fabrics.tree.durable_state import BEGUN, EPOCHS, NUMBERS, ROUND, DurableState
from antiphon.fabrics.tree.messages import (
    Attached,
    Begun,
    BrokerHello,
    Carry,
    Claim,
    Closed,
    CollectRequest,
    CollectResponse,
    Dismiss,
    Goodbye,
    Install,
    Item,
    JoinRequest,
    JoinResponse,
    Leave,
    Lost,
    ParentRequest,
    ParentResponse,
    ProbeRequest,
    ProbeResponse,
    Proposal,
    Ready,
    Settled,
    Skip,
    Stable,
)
from antiphon.fabrics.tree.options import TreeOptions
from antiphon.fabrics.tree.parent_search import PATIENCE, ParentSearch, SearchEvents
from antiphon.fabrics.tree.publisher import TreePublisher
from antiphon.fabrics.tree.root import CHANGE, CLAIM, GIVE_UP, Root, RootEvents
from antiphon.fabrics.tree.stability import COLLECT, ItemRetention, Stability, StabilityEvents
from antiphon.fabrics.tree.streams import StreamEvents, Streams
from antiphon.fabrics.tree.topic import TreeTopic
from antiphon.fabrics.tree.topic_table import TreeTopicTable
from antiphon.fabrics.tree.topology import NO_EPOCH, Overlay
from antiphon.fabrics.tree.total_order import TotalOrderEvents, TreeTotalOrder
from antiphon.fabrics.tree.view import TreeView
from antiphon.kernel.message import UNSPECIFIED, ProtocolMessage, Publication
from antiphon.kernel.process import Environment, Process


@mypyc_attr(allow_interpreted_subclasses=True)
class TreeBroker(Process):
    """One broker, with an application that publishes and subscribes.

    ``retention`` keeps items instead of :class:`Stability`, in experiments that keep none.
    """

    def __init__(
        self, environment: Environment, options: TreeOptions, overlay: Overlay, retention: ItemRetention | None = None
    ) -> None:
        super().__init__(environment)
        durable = DurableState(environment)
        view = TreeView(self.me, options, overlay, durable.past)
        topics = TreeTopicTable(self.me, durable)
        search = ParentSearch(environment, options, view, OnSearch(self))
        stability = Stability(environment, options, view, topics, durable, OnStability(self))
        streams = Streams(
            environment, view, topics, durable, stability if retention is None else retention, OnStreams(self)
        )
        total_order = TreeTotalOrder(environment, options, view, topics, durable, streams, OnTotalOrder(self))
        self.durable: Final[DurableState] = durable
        self.view: Final[TreeView] = view
        self.topics: Final[TreeTopicTable] = topics
        self.search: Final[ParentSearch] = search
        self.attachment: Final[Attachment] = Attachment(environment, options, view, search, OnAttachment(self))
        self.root: Final[Root] = Root(environment, options, view, durable, search, OnRoot(self))
        self.stability: Final[Stability] = stability
        self.streams: Final[Streams] = streams
        self.total_order: Final[TreeTotalOrder] = total_order
        self.publisher: Final[TreePublisher] = TreePublisher(
            environment, options, view, topics, durable, streams, total_order
        )

    def begin(self, topic: i64, is_subscribed: bool, children: list[int]) -> None:
        """Carry a topic from the start, together with all brokers that do so."""
        self.streams.begin(topic, is_subscribed, children)

    def start(self) -> None:
        self.attachment.watch_neighbours()
        if self.durable.is_kept:
            # Nothing is published before the incarnation is on disk.
            self.durable.reserve_numbers(self.durable.first_number, self.view)
        if self.view.overlay.epoch == NO_EPOCH or self.view.is_returning:
            # A newcomer knows only the brokers that it may ask.
            self.search.begin()
        self.total_order.announce_epoch()
        self.publisher.start()

    # What the application asks for.

    def publish(self, payload: bytes, topic: i64 = 0, order: i64 = UNSPECIFIED) -> i64:
        return self.publisher.publish([], payload, topic, order)

    def publish_about(self, keys: list[int], payload: bytes, topic: i64 = 0, order: i64 = UNSPECIFIED) -> i64:
        return self.publisher.publish(keys, payload, topic, order)

    def refusal(self, order: i64, topic: i64 = 0) -> str | None:
        return self.publisher.refusal(order, topic)

    def room(self, topic: i64) -> i64:
        return self.publisher.room(topic)

    def first_unsettled(self, topic: i64) -> i64:
        return self.publisher.first_unsettled(topic)

    def subscribe(self, topic: i64) -> None:
        self.publisher.wish(topic, True)

    def unsubscribe(self, topic: i64) -> None:
        self.publisher.wish(topic, False)

    def recorded(self, publication: Publication) -> ProtocolMessage:
        """A log holds entries of streams, so that they can go back to where they were."""
        handled = self.total_order.handled
        if handled is not None and handled.publication is publication:
            return handled
        # A publication of this broker itself whose place in the stream was skipped.
        return publication

    def unfinished(self) -> i64:
        searching = 0 if self.view.has_place else 1
        incomplete = 1 if self.view.is_root and not self.view.is_complete else 0
        return searching + incomplete + self.publisher.unfinished()

    def dismiss(self, brokers: list[int]) -> None:
        """An operator says that some brokers are gone for good: majorities do not count them any more."""
        self.root.dismiss(brokers)

    # What happens.

    def peer_lost(self, peer: i64) -> None:
        self.attachment.peer_lost(peer)

    def peer_found(self, peer: i64) -> None:
        self.root.peer_found(peer)

    def expire(self, name: i64) -> None:
        if name == COLLECT:
            self.stability.start_round()
        elif name == CLAIM:
            self.root.claim()
        elif name == CHANGE:
            self.root.propose_council()
        elif name == GIVE_UP:
            self.root.give_up_absent()
        elif name == PATIENCE:
            self.search.patience_ends()

    def synced(self) -> None:
        wait = self.durable.next_safe()
        if wait.kind == NUMBERS:
            self.publisher.numbers_on_disk()
        elif wait.kind == EPOCHS:
            self.root.epochs_reserved()
        elif wait.kind == BEGUN:
            self.root.begun_on_disk(wait.name)
        elif wait.kind == ROUND:
            self.stability.round_on_disk(wait.name)
        else:
            self.total_order.vote_on_disk(wait.topic, wait.name, wait.epoch)

    # One list of all messages; a table of handlers would box the sender, and slow down what comes most.
    def receive(self, sender: i64, message: ProtocolMessage) -> None:  # noqa: C901, PLR0912, PLR0915
        if isinstance(message, Item):
            self.streams.on_item(sender, message)
        elif isinstance(message, Closed):
            self.total_order.on_closed(sender, message)
        elif isinstance(message, Proposal):
            self.total_order.on_proposal(sender, message)
        elif isinstance(message, CollectRequest):
            self.stability.on_collect_request(sender, message)
        elif isinstance(message, CollectResponse):
            self.stability.on_collect_response(sender, message)
        elif isinstance(message, Stable):
            self.stability.on_stable(sender, message)
        elif isinstance(message, JoinRequest):
            self.streams.on_join_request(sender, message)
        elif isinstance(message, JoinResponse):
            self.streams.on_join_response(sender, message)
        elif isinstance(message, Settled):
            self.streams.on_settled(sender, message)
        elif isinstance(message, Skip):
            self.streams.on_skip(sender, message)
        elif isinstance(message, Leave):
            self.streams.on_leave(sender, message)
        elif isinstance(message, Carry):
            self.streams.on_carry(sender, message)
        elif isinstance(message, Install):
            self.root.on_install(sender, message)
        elif isinstance(message, Begun):
            self.root.on_begun(sender, message)
        elif isinstance(message, Claim):
            self.root.on_claim(sender, message)
        elif isinstance(message, Dismiss):
            self.root.on_dismiss(sender, message)
        elif isinstance(message, ParentRequest):
            self.attachment.on_parent_request(sender, message)
        elif isinstance(message, ParentResponse):
            self.attachment.on_parent_response(sender, message)
        elif isinstance(message, BrokerHello):
            self.attachment.on_hello(sender, message)
        elif isinstance(message, Attached):
            self.attachment.on_attached(sender, message)
        elif isinstance(message, Ready):
            self.attachment.on_ready(sender)
        elif isinstance(message, Lost):
            self.attachment.on_lost(sender, message)
        elif isinstance(message, ProbeRequest):
            self.search.on_probe_request(sender, message)
        elif isinstance(message, ProbeResponse):
            self.search.on_probe_response(sender, message)
        else:
            assert isinstance(message, Goodbye), "brokers send each other nothing else"
            self.attachment.on_goodbye(sender, message)


# What the events of each part lead to in the others.


@final
class OnSearch(SearchEvents):
    """The consequences of a search for a parent."""

    def __init__(self, broker: TreeBroker) -> None:
        self._broker: Final[TreeBroker] = broker

    def became_root(self) -> None:
        self._broker.stability.became_root()
        self._broker.root.look_for_missing()


@final
class OnAttachment(AttachmentEvents):
    """The consequences of links to neighbours."""

    def __init__(self, broker: TreeBroker) -> None:
        self._broker: Final[TreeBroker] = broker

    def on_parent_lost(self) -> None:
        self._broker.streams.on_parent_lost()
        self._broker.total_order.on_parent_lost()

    def on_child_lost(self, child: i64) -> None:
        self._broker.streams.on_child_lost(child)
        self._broker.stability.on_child_lost(child)

    def look_for_missing(self) -> None:
        self._broker.root.look_for_missing()

    def joins(self) -> list[JoinRequest]:
        return self._broker.streams.joins()

    def is_joining(self) -> bool:
        return self._broker.streams.is_joining()

    def handle_join(self, child: i64, join: JoinRequest) -> None:
        self._broker.streams.handle_join(child, join)


@final
class OnRoot(RootEvents):
    """The consequences of the root's actions, here or above."""

    def __init__(self, broker: TreeBroker) -> None:
        self._broker: Final[TreeBroker] = broker

    def on_parent_lost(self) -> None:
        self._broker.streams.on_parent_lost()
        self._broker.total_order.on_parent_lost()

    def begins_epoch(self) -> None:
        self._broker.total_order.begins_epoch()

    def began_epoch(self) -> None:
        self._broker.stability.began_epoch()
        self._broker.total_order.began_epoch()
        if self._broker.view.is_root:
            self._broker.streams.settle_all()
        self._broker.publisher.began_epoch()

    def all_began(self) -> None:
        self._broker.total_order.all_began()


@final
class OnStability(StabilityEvents):
    """What follows from rounds."""

    def __init__(self, broker: TreeBroker) -> None:
        self._broker: Final[TreeBroker] = broker

    def forgot(self, topic: TreeTopic) -> None:
        self._broker.streams.leave_if_idle(topic)


@final
class OnStreams(StreamEvents):
    """The consequences of arrivals on streams."""

    def __init__(self, broker: TreeBroker) -> None:
        self._broker: Final[TreeBroker] = broker

    def handle_item(self, topic: TreeTopic, item: Item) -> None:
        self._broker.total_order.handle_item(topic, item)

    def carried(self, topic: TreeTopic) -> None:
        self._broker.publisher.advance(topic)

    def links_changed(self, topic: TreeTopic) -> None:
        self._broker.total_order.close_all(topic)

    def skipped(self, topic: TreeTopic) -> None:
        self._broker.total_order.skipped(topic)

    def joined(self) -> None:
        self._broker.attachment.pass_on_news()


@final
class OnTotalOrder(TotalOrderEvents):
    """The consequences of completions."""

    def __init__(self, broker: TreeBroker) -> None:
        self._broker: Final[TreeBroker] = broker

    def keys_opened(self, topic: TreeTopic, keys: list[int]) -> None:
        self._broker.publisher.keys_opened(topic, keys)
