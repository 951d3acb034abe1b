"""The streams of topics: everything that is published reaches every broker of the topic, in causal order, once.

The tree of a topic consists of the brokers with subscribers and of all brokers between them and the root. Each broker
hands on what it gets, to all other links that carry the topic, in the order in which it comes (section 3.5). Links are
FIFO, so each broker's stream respects causality, and holds with each item everything before it. That is kept through
repairs: over a new link both sides say what they have got (``Known``), and each sends what the other has not, in the
order of its own stream; nothing has to be held meanwhile. Both streams were closed under causality before, so they are
afterwards.

The document numbers by client. Here items are numbered by the broker that injects them, without gaps. How long they are
kept is in ``stability.py``, and what is in no buffer any more comes from the log (``log_recovery.py``).
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.tree.durable_state import DurableState
from antiphon.fabrics.tree.log_recovery import recall
from antiphon.fabrics.tree.messages import Carry, Item, JoinRequest, JoinResponse, Known, Leave, Settled, Skip
from antiphon.fabrics.tree.pieces import LOCK_BYTES_AT_MOST, beginning_of, bytes_of, lock_pieces
from antiphon.fabrics.tree.stability import ItemRetention
from antiphon.fabrics.tree.topic import JOINING, OPEN, SHUT, TreeTopic, lacks
from antiphon.fabrics.tree.topic_table import TreeTopicTable
from antiphon.fabrics.tree.view import TreeView
from antiphon.kernel.message import SOURCE_MASK, Keyed
from antiphon.kernel.process import NO_NODE, Environment


@mypyc_attr(allow_interpreted_subclasses=True)
class StreamEvents:
    """Streams tell this to the other parts of a broker."""

    def handle_item(self, topic: TreeTopic, item: Item) -> None:
        """An item has come here for the first time, and has been handed on."""
        raise NotImplementedError

    def carried(self, topic: TreeTopic) -> None:
        """The topic has come here: whatever is published on it from now on will."""
        raise NotImplementedError

    def links_changed(self, topic: TreeTopic) -> None:
        """The links that carry a topic have changed."""
        raise NotImplementedError

    def skipped(self, topic: TreeTopic) -> None:
        """Items of a topic were skipped, perhaps some for which this broker waited."""
        raise NotImplementedError

    def joined(self) -> None:
        """The parent has answered about a topic that it was asked to carry."""
        raise NotImplementedError


@final
class Streams:
    """Hands on what is published, over the links that carry its topic."""

    def __init__(
        self,
        environment: Environment,
        view: TreeView,
        topics: TreeTopicTable,
        durable: DurableState,
        retention: ItemRetention,
        events: StreamEvents,
    ) -> None:
        self._environment: Final[Environment] = environment
        self._view: Final[TreeView] = view
        self._topics: Final[TreeTopicTable] = topics
        self._durable: Final[DurableState] = durable
        self._retention: Final[ItemRetention] = retention
        self._events: Final[StreamEvents] = events
        # Children that asked for a topic before this broker had it.
        self._waiting: dict[i64, dict[i64, JoinRequest]] = {}
        # The topics of which the parent has not said yet what it has got.
        self._joining: set[i64] = set()
        # Those of which the question to the parent had no room for the locks: they follow its answer.
        self._untold: set[i64] = set()

    # Items.

    def inject(self, topic: TreeTopic, kind: i64, publication: Keyed) -> None:
        """Put something into the stream of a topic."""
        self.put(topic, Item(self._durable.origin, topic.injected + 1, kind, publication))

    def put(self, topic: TreeTopic, item: Item) -> None:
        """Put this broker's next item into the stream of a topic."""
        topic.injected = item.number
        self._spread(topic, item, self._view.me)

    def on_item(self, sender: i64, item: Item) -> None:
        """An item comes from a neighbour."""
        topic = self._topics.get(item.topic)
        if topic is None or not (sender == self._view.parent or sender in topic.children):
            return
        if not topic.is_carried:
            self._go_on_beginning(topic, item)
        elif topic.is_new(item):
            self._spread(topic, item, sender)
            if topic.is_settling:
                self._settle(topic)

    def _go_on_beginning(self, topic: TreeTopic, item: Item) -> None:
        """An item comes that the answer of the parent had no room for."""
        if topic.is_settling and topic.is_new(item):
            topic.remember([item])
            self._settle(topic)
            if topic.is_carried:
                self._events.links_changed(topic)

    def _spread(self, topic: TreeTopic, item: Item, sender: i64) -> None:
        """Hand on a new item, keep it, and let the broker handle it."""
        parent = self._view.parent
        if topic.up == OPEN and parent != sender:
            self._environment.send(parent, item)
        for child in topic.children:
            if child != sender:
                self._environment.send(child, item)
        self._retention.keep(topic, item)
        self._events.handle_item(topic, item)

    # Which links carry a topic.

    def begin(self, name: i64, is_subscribed: bool, children: list[int]) -> None:
        """Carry a topic from the start, together with all brokers that do so."""
        topic = self._topics.of(name)
        topic.is_wanted = is_subscribed
        topic.is_subscribed = is_subscribed
        topic.is_carried = True
        topic.children.update(children)
        topic.is_settled = True
        topic.up = OPEN if self._view.parent != NO_NODE else SHUT

    def want(self, topic: TreeTopic) -> None:
        """See to it that a topic comes here."""
        view = self._view
        if topic.is_carried:
            return
        if view.is_root:
            if view.is_complete and self._may_begin(topic):
                self._settle(topic)
        elif view.parent != NO_NODE and topic.up == SHUT:
            topic.up = JOINING
            self._environment.send(view.parent, JoinRequest(topic.name, None, {}, {}, []))

    def _may_begin(self, topic: TreeTopic) -> bool:
        """As root: whether a topic is known here, or may begin because nothing was ordered in it.

        A part of the tree that can order has a broker that knows all that was ordered before.
        """
        return topic.is_carried or not topic.is_needed or self._view.can_order

    def _settle(self, topic: TreeTopic) -> None:
        """No item of the topic will be skipped any more: tell the waiting children when all items are here."""
        topic.is_settling = not topic.has_all_promised()
        if topic.is_settling:
            return
        if not topic.is_carried:
            topic.is_apart = len(self._view.current.absent) > 0
        topic.is_carried = True
        topic.is_settled = True
        topic.promised.clear()
        if topic.children:
            base, completed, locks = topic.known()
            first, *others = lock_pieces(locks)
            for child in topic.children:
                self._tell_locks(child, topic, others)
                self._environment.send(child, Settled(topic.name, None, base, completed, first))
        for child, join in self._waiting.pop(topic.name, {}).items():
            if child in self._view.children:
                self.handle_join(child, join)
        self._events.carried(topic)

    def joins(self) -> list[JoinRequest]:
        """The topics that a new parent must be asked to carry: what is carried here, and what was asked for."""
        wanted: list[JoinRequest] = []
        # One message carries them all.
        room: i64 = LOCK_BYTES_AT_MOST
        for topic in self._topics.by_number.values():
            if topic.is_carried:
                join = self._join(topic, room)
                room -= bytes_of(join.locks)
                wanted.append(join)
            elif self._is_asked_for(topic):
                topic.up = JOINING
                wanted.append(JoinRequest(topic.name, None, {}, {}, []))
        return wanted

    def _is_asked_for(self, topic: TreeTopic) -> bool:
        return topic.is_wanted or topic.is_needed or len(topic.requests) > 0 or topic.name in self._waiting

    def is_joining(self) -> bool:
        """Whether the parent has not answered yet about all topics that it was asked to carry."""
        return len(self._joining) > 0

    def _join(self, topic: TreeTopic, room: i64 = LOCK_BYTES_AT_MOST) -> JoinRequest:
        topic.up = JOINING
        self._joining.add(topic.name)
        base, completed, locks = topic.known()
        if bytes_of(locks) > room:
            self._untold.add(topic.name)
            locks = []
        return JoinRequest(topic.name, dict(topic.frontier), base, completed, locks)

    def on_join_request(self, sender: i64, join: JoinRequest) -> None:
        """A child asks for a topic."""
        if sender in self._view.children:
            self.handle_join(sender, join)

    def handle_join(self, child: i64, join: JoinRequest) -> None:
        """Carry a topic over the link to a child from now on, as soon as it is here."""
        topic = self._topics.of(join.topic)
        if join.frontier is None and not topic.is_settled:
            # The child begins with what this broker begins with.
            self._waiting.setdefault(topic.name, {})[child] = join
            self.want(topic)
            return
        self._stop_waiting(topic.name, child)
        # A broker that is about to carry it gets the rest from its parent, whatever the child has.
        was_carried = topic.is_carried or topic.is_settling
        # At once, so that the topic does not count as idle meanwhile.
        topic.children.add(child)
        if not was_carried:
            # The child has more than this broker, which takes all that the child still keeps.
            topic.begin_at(join)
        elif join.frontier is not None:
            if not lacks(topic.frontier, join.base):
                self._skip_to(topic, join, child)
            # Else the child looks into its log, and says what it has not.
            recall(self._environment, topic, join.frontier)
        topic.is_carried = True
        if join.frontier is not None and not topic.is_settled:
            topic.promised[int(child)] = join.frontier
        base, completed, locks = topic.known()
        history = beginning_of(topic.items) if join.frontier is None else []
        first, *others = lock_pieces(locks)
        is_settled = topic.is_settled and len(others) == 0
        self._environment.send(
            child,
            JoinResponse(topic.name, dict(topic.frontier), base, completed, first, history, is_settled, topic.is_apart),
        )
        self._tell_locks(child, topic, others)
        if topic.is_settled and not is_settled:
            self._environment.send(child, Settled(topic.name, None, base, completed, []))
        for item in topic.items[len(history) :] if join.frontier is None else topic.missing_at(join.frontier):
            self._environment.send(child, item)
        if not was_carried and self._view.parent != NO_NODE:
            self._environment.send(self._view.parent, self._join(topic))
        self._events.links_changed(topic)

    def on_join_response(self, sender: i64, joined: JoinResponse) -> None:
        """The parent carries a topic from now on, and says what it has got of it."""
        if sender != self._view.parent:
            return
        topic = self._topics.of(joined.topic)
        if topic.up != JOINING:
            return
        topic.up = OPEN
        frontier = joined.frontier
        assert frontier is not None, "a broker that carries a topic has a frontier"
        if topic.is_carried:
            if not topic.is_settled:
                topic.promised[int(sender)] = frontier
            self._skip_to(topic, joined, sender)
            if topic.name in self._untold:
                self._tell_locks(sender, topic, lock_pieces(topic.known()[2]))
            if lacks(frontier, topic.base):
                recall(self._environment, topic, frontier)
                self._tell_skip(sender, topic)
            for item in joined.history:
                self.on_item(sender, item)
            for item in topic.missing_at(frontier):
                self._environment.send(sender, item)
        else:
            topic.begin_at(joined)
            topic.is_apart = joined.is_apart
            topic.remember(joined.history)
            topic.promised[int(sender)] = frontier
        self._joining.discard(topic.name)
        self._untold.discard(topic.name)
        if joined.is_settled and not topic.is_settled:
            self._settle(topic)
        self._events.links_changed(topic)
        self.leave_if_idle(topic)
        self._events.joined()

    def on_settled(self, sender: i64, settled: Settled) -> None:
        """The parent will not skip anything of a topic any more."""
        if sender != self._view.parent:
            return
        topic = self._topics.of(settled.topic)
        if topic.up != OPEN:
            return
        self._skip_to(topic, settled, sender)
        if topic.is_settled:
            return
        was_carried = topic.is_carried
        self._settle(topic)
        if topic.is_carried and not was_carried:
            self._events.links_changed(topic)

    def _tell_skip(self, neighbour: i64, topic: TreeTopic) -> None:
        base, completed, locks = topic.known()
        first, *others = lock_pieces(locks)
        self._environment.send(neighbour, Skip(topic.name, None, base, completed, first))
        self._tell_locks(neighbour, topic, others)

    def _skip_to(self, topic: TreeTopic, known: Known, sender: i64) -> None:
        """Go on without items that another broker will not send, and report those that a subscriber here misses."""
        for origin, first, last in topic.missed(known):
            for number in range(first, last + 1):
                self._environment.lost(topic.name, origin & SOURCE_MASK, number)
        is_news = lacks(topic.frontier, known.base)
        topic.skip_to(known)
        if topic.is_written and (is_news or known.locks):
            self._durable.write(Skip(topic.name, None, known.base, known.completed, known.locks))
        self._events.skipped(topic)
        if topic.is_settling:
            self._settle(topic)
        if is_news:
            # Those behind this broker will not get it either.
            if topic.up == OPEN and self._view.parent != sender:
                self._tell_skip(self._view.parent, topic)
            for child in topic.children:
                if child != sender:
                    self._tell_skip(child, topic)

    def on_skip(self, sender: i64, skip: Skip) -> None:
        """A neighbour cannot send some of a topic."""
        topic = self._topics.get(skip.topic)
        if topic is None or not (sender == self._view.parent or sender in topic.children):
            return
        if not skip.base:
            self._add_locks(topic, skip, sender)
        elif topic.is_carried:
            self._skip_to(topic, skip, sender)

    def _add_locks(self, topic: TreeTopic, more: Skip, sender: i64) -> None:
        """Locks come for which another message had no room."""
        if not topic.is_carried:
            if topic.up == OPEN:
                topic.skip_to(more)
            return
        known = len(topic.locks)
        self._skip_to(topic, more, sender)
        if len(topic.locks) > known:
            # Those behind this broker may not know them either.
            if topic.up == OPEN and self._view.parent != sender:
                self._environment.send(self._view.parent, more)
            for child in topic.children:
                if child != sender:
                    self._environment.send(child, more)

    def _tell_locks(self, neighbour: i64, topic: TreeTopic, pieces: list[list[Item]]) -> None:
        """Tell a neighbour of locks for which the message that speaks of the others has no room."""
        for piece in pieces:
            self._environment.send(neighbour, Skip(topic.name, None, {}, {}, piece))

    def on_carry(self, sender: i64, carry: Carry) -> None:
        """The parent wants a topic to be carried here, for the sake of total publications."""
        if sender == self._view.parent:
            topic = self._topics.of(carry.topic)
            topic.is_needed = True
            self.want(topic)

    def settle_all(self) -> None:
        """As root, when all living brokers are there: nothing will be skipped any more."""
        for topic in self._topics.all():
            is_asked_for = topic.is_carried or self._is_asked_for(topic)
            if not topic.is_settled and is_asked_for and self._may_begin(topic):
                self._settle(topic)

    def leave_if_idle(self, topic: TreeTopic) -> None:
        """Stop carrying a topic that no broker here or below needs."""
        view = self._view
        if topic.name in self._joining or topic.name in self._waiting:
            return
        if topic.is_carried and topic.up == OPEN and topic.is_idle():
            if topic.is_written:
                self._durable.write(Leave(view.me, 0, topic.name))
            topic.end()
            self._environment.send(view.parent, Leave(view.me, 0, topic.name))

    def on_leave(self, sender: i64, leave: Leave) -> None:
        """A child needs a topic no more."""
        if sender in self._view.children:
            self._remove_link(self._topics.of(leave.topic), sender)

    def _stop_waiting(self, name: i64, child: i64) -> None:
        waiting = self._waiting.get(name)
        if waiting is not None:
            waiting.pop(child, None)
            if not waiting:
                del self._waiting[name]

    def _remove_link(self, topic: TreeTopic, child: i64) -> None:
        self._stop_waiting(topic.name, child)
        if child in topic.children:
            topic.children.remove(int(child))
            if topic.promised.pop(int(child), None) is not None and topic.is_settling:
                self._settle(topic)
            self._events.links_changed(topic)
            self.leave_if_idle(topic)

    def on_child_lost(self, child: i64) -> None:
        """No topic is carried over the link to a child any more."""
        for topic in self._topics.by_number.values():
            topic.told.discard(int(child))
            self._remove_link(topic, child)

    def on_parent_lost(self) -> None:
        """No topic is carried over the link to the parent any more."""
        self._joining.clear()
        for topic in self._topics.by_number.values():
            topic.up = SHUT
            # The next parent says whether anything will be skipped, and sends what this one has not sent.
            topic.is_settling = False
            topic.promised = {child: frontier for child, frontier in topic.promised.items() if child in topic.children}
