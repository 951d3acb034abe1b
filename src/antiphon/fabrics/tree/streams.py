"""The streams of topics: everything that is published reaches every broker of the topic, in causal order, once.

The tree of a topic consists of the brokers with subscribers and of all brokers between them and the root. Each broker
hands on what it gets, to all other links that carry the topic, in the order in which it comes (section 3.5). Links are
FIFO, so each broker's stream respects causality, and holds with each item everything before it. That is kept through
repairs: over a new link both sides say what they have got (``Known``), and each sends what the other has not, in the
order of its own stream; nothing has to be held meanwhile. Both streams were closed under causality before, so they are
afterwards.

The document numbers by client and keeps a buffer of fixed size, from which messages that are still needed fall out
(section 4.3.1). Here items are numbered by the broker that injects them, without gaps, and are kept until all brokers
of the topic have them: the root collects what everybody has got, in complete epochs only, and tells.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.tree.attachment import COLLECT
from antiphon.fabrics.tree.durable_state import ROUND, Wait
from antiphon.fabrics.tree.log_recovery import recall
from antiphon.fabrics.tree.messages import (
    Carry,
    Collect,
    Frontier,
    Item,
    Join,
    Joined,
    Known,
    Leave,
    Report,
    Settled,
    Skip,
    Stable,
)
from antiphon.fabrics.tree.options import TreeOptions
from antiphon.fabrics.tree.root import Reign
from antiphon.fabrics.tree.topic import JOINING, OPEN, SHUT, Topic, lacks
from antiphon.fabrics.tree.topology import Overlay
from antiphon.kernel.message import SOURCE_MASK, Keyed, Message
from antiphon.kernel.process import NO_NODE, Environment


@mypyc_attr(allow_interpreted_subclasses=True)
class Streams(Reign):
    """The part of a broker that hands on what is published."""

    def __init__(self, environment: Environment, options: TreeOptions, overlay: Overlay) -> None:
        super().__init__(environment, options, overlay)
        self.topics: Final[dict[i64, Topic]] = {}
        for record in self.journal.records:
            self._restore(record)
        self.journal.records = []
        # Children that asked for a topic before this broker had it.
        self._waiting: dict[i64, dict[i64, Join]] = {}
        # The round in which the root collects: who is still to report, and what the others have got.
        self._round: i64 = 0
        self._rounds: i64 = 0
        self._reporters: set[int] = set()
        self._reported: dict[int, Frontier] = {}
        self._collects: bool = False
        # Whether all that this broker reports in it is on its disk.
        self._is_round_safe: bool = True
        # The topics of which the parent has not said yet what it has got.
        self._joining: set[i64] = set()

    def topic(self, name: i64) -> Topic:
        """The state of a topic, made at its first use."""
        topic = self.topics.get(name)
        if topic is None:
            topic = Topic(name, self.me, self.journal.first_number)
            self.topics[name] = topic
        return topic

    # What outlives a crash.

    def _restore(self, record: Message) -> None:
        """Take over what an earlier life has written of a topic: it was cut off from all others, it seems."""
        if isinstance(record, Joined):
            topic = self.topic(record.topic)
            topic.end()
            topic.items = []
            topic.begin_at(record)
            topic.is_carried = True
            topic.is_needed = True
            topic.is_written = True
        elif isinstance(record, (Item, Skip, Leave)):
            known = self.topics.get(record.topic)
            if known is None or not known.is_written:
                return
            if isinstance(record, Item):
                known.remember([record])
            elif isinstance(record, Skip):
                known.skip_to(record)
            else:
                del self.topics[record.topic]

    def write_down(self, topic: Topic) -> None:
        """Write down what becomes of a topic from now on, and what has become of it so far."""
        if not topic.is_written and self.journal.is_kept:
            topic.is_written = True
            for record in image_of(topic):
                self.journal.write(record)

    def _shorten_journal(self) -> None:
        """Write the journal anew if most of it is not needed any more."""
        written = [topic for topic in self.topics.values() if topic.is_written]
        if self.journal.is_long(sum(len(topic.items) + 1 for topic in written)):
            records = [record for topic in written for record in image_of(topic)]
            self.journal.rewrite(self.overlay, self.council, self.highest, records)

    # What the part above adds.

    def handle_item(self, topic: Topic, item: Item) -> None:
        """An item has come here for the first time, and has been handed on."""
        raise NotImplementedError

    def carried(self, topic: Topic) -> None:
        """The topic has come here: whatever is published on it from now on will."""
        raise NotImplementedError

    def links_changed(self, topic: Topic) -> None:
        """The links that carry a topic have changed."""

    def skipped(self, topic: Topic) -> None:
        """Some of a topic was skipped, perhaps what somebody here waited for."""

    # Items.

    def inject(self, topic: Topic, kind: i64, publication: Keyed) -> None:
        """Put something into the stream of a topic."""
        self.put(topic, Item(self.journal.origin, topic.injected + 1, kind, publication))

    def put(self, topic: Topic, item: Item) -> None:
        """Put this broker's next item into the stream of a topic."""
        topic.injected = item.number
        self._spread(topic, item, self.me)

    def _receive_item(self, sender: i64, item: Item) -> None:
        topic = self.topics.get(item.topic)
        if topic is None or not topic.is_carried or not (sender == self.parent or sender in topic.children):
            return
        if topic.is_new(item):
            self._spread(topic, item, sender)

    def _spread(self, topic: Topic, item: Item, sender: i64) -> None:
        topic.take(item)
        if topic.is_written:
            self.journal.write(item)
        if topic.up == OPEN and self.parent != sender:
            self.environment.send(self.parent, item)
        for child in topic.children:
            if child != sender:
                self.environment.send(child, item)
        if self.is_root and not self._collects:
            self._collect_later()
        self.handle_item(topic, item)

    # Which links carry a topic.

    def begin(self, name: i64, is_subscribed: bool, children: list[int]) -> None:
        """Carry a topic from the start, with all who do so too."""
        topic = self.topic(name)
        topic.is_wanted = is_subscribed
        topic.is_subscribed = is_subscribed
        topic.is_carried = True
        topic.children.update(children)
        topic.is_settled = True
        topic.up = OPEN if self.parent != NO_NODE else SHUT

    def want(self, topic: Topic) -> None:
        """See to it that a topic comes here."""
        if topic.is_carried:
            return
        if self.is_root:
            if self.is_complete:
                self._settle(topic)
        elif self.parent != NO_NODE and topic.up == SHUT:
            topic.up = JOINING
            self.environment.send(self.parent, Join(topic.name, None, {}, {}, []))

    def _settle(self, topic: Topic) -> None:
        """The topic is here, and nothing of it will be skipped any more: tell those who wait for it."""
        if not topic.is_carried:
            topic.is_apart = len(self.current.absent) > 0
        topic.is_carried = True
        topic.is_settled = True
        if topic.children:
            base, completed, locks = topic.known()
            for child in topic.children:
                self.environment.send(child, Settled(topic.name, None, base, completed, locks))
        for child, join in self._waiting.pop(topic.name, {}).items():
            if child in self.children:
                self.handle_join(child, join)
        self.carried(topic)

    def joins(self) -> list[Join]:
        """What a new parent must be asked to carry: what is carried here, and what was asked for."""
        wanted: list[Join] = []
        for topic in self.topics.values():
            if topic.is_carried:
                wanted.append(self._join(topic))
            elif self._is_asked_for(topic):
                topic.up = JOINING
                wanted.append(Join(topic.name, None, {}, {}, []))
        return wanted

    def _is_asked_for(self, topic: Topic) -> bool:
        return topic.is_wanted or topic.is_needed or len(topic.requests) > 0 or topic.name in self._waiting

    def is_joining(self) -> bool:
        return len(self._joining) > 0

    def _join(self, topic: Topic) -> Join:
        topic.up = JOINING
        self._joining.add(topic.name)
        base, completed, locks = topic.known()
        return Join(topic.name, dict(topic.frontier), base, completed, locks)

    def handle_join(self, child: i64, join: Join) -> None:
        topic = self.topic(join.topic)
        if join.frontier is None and not topic.is_settled:
            # The child begins with what this broker begins with.
            self._waiting.setdefault(topic.name, {})[child] = join
            self.want(topic)
            return
        self._stop_waiting(topic.name, child)
        was_carried = topic.is_carried
        if not was_carried:
            # The child has more than this broker, which takes all that the child still keeps.
            topic.begin_at(join)
        elif join.frontier is not None:
            if not lacks(topic.frontier, join.base):
                self._skip_to(topic, join, child)
            # Else the child looks into its log, and says what it has not.
            recall(self.environment, topic, join.frontier)
        topic.is_carried = True
        topic.children.add(child)
        base, completed, locks = topic.known()
        history = list(topic.items) if join.frontier is None else []
        self.environment.send(
            child,
            Joined(topic.name, dict(topic.frontier), base, completed, locks, history, topic.is_settled, topic.is_apart),
        )
        if join.frontier is not None:
            for item in topic.missing_at(join.frontier):
                self.environment.send(child, item)
        if not was_carried and self.parent != NO_NODE:
            self.environment.send(self.parent, self._join(topic))
        self.links_changed(topic)

    def _receive_joined(self, joined: Joined) -> None:
        topic = self.topic(joined.topic)
        if topic.up != JOINING:
            return
        topic.up = OPEN
        frontier = joined.frontier
        assert frontier is not None, "who carries a topic knows how far"
        if topic.is_carried:
            self._skip_to(topic, joined, self.parent)
            if lacks(frontier, topic.base):
                recall(self.environment, topic, frontier)
                self.environment.send(self.parent, self._skip(topic))
            for item in joined.history:
                self._receive_item(self.parent, item)
            for item in topic.missing_at(frontier):
                self.environment.send(self.parent, item)
        else:
            topic.begin_at(joined)
            topic.is_apart = joined.is_apart
            topic.remember(joined.history)
        self._joining.discard(topic.name)
        if joined.is_settled and not topic.is_settled:
            self._settle(topic)
        self.links_changed(topic)
        self.leave_if_idle(topic)
        self.pass_on_news()

    def _receive_settled(self, settled: Settled) -> None:
        topic = self.topic(settled.topic)
        if topic.up == OPEN:
            self._skip_to(topic, settled, self.parent)
            if not topic.is_settled:
                self._settle(topic)

    def _skip(self, topic: Topic) -> Skip:
        base, completed, locks = topic.known()
        return Skip(topic.name, None, base, completed, locks)

    def _skip_to(self, topic: Topic, known: Known, sender: i64) -> None:
        """Go on without what another broker will not send, and say so where somebody would have got it."""
        for origin, first, last in topic.missed(known):
            for number in range(first, last + 1):
                self.environment.lost(topic.name, origin & SOURCE_MASK, number)
        is_news = lacks(topic.frontier, known.base)
        topic.skip_to(known)
        if topic.is_written and (is_news or known.locks):
            self.journal.write(Skip(topic.name, None, known.base, known.completed, known.locks))
        self.skipped(topic)
        if is_news:
            # Those behind this broker will not get it either.
            skip = self._skip(topic)
            if topic.up == OPEN and self.parent != sender:
                self.environment.send(self.parent, skip)
            for child in topic.children:
                if child != sender:
                    self.environment.send(child, skip)

    def _receive_skip(self, sender: i64, skip: Skip) -> None:
        topic = self.topics.get(skip.topic)
        if topic is not None and topic.is_carried and (sender == self.parent or sender in topic.children):
            self._skip_to(topic, skip, sender)

    def settle_all(self) -> None:
        """As root, when all living brokers are there: nothing will be skipped any more."""
        for topic in list(self.topics.values()):
            if not topic.is_settled and (topic.is_carried or self._is_asked_for(topic)):
                self._settle(topic)

    def leave_if_idle(self, topic: Topic) -> None:
        """Stop carrying a topic that nobody here or below needs."""
        if topic.is_carried and topic.up == OPEN and topic.is_idle() and topic.name not in self._waiting:
            if topic.is_written:
                self.journal.write(Leave(self.me, 0, topic.name))
            topic.end()
            self.environment.send(self.parent, Leave(self.me, 0, topic.name))

    def _stop_waiting(self, name: i64, child: i64) -> None:
        waiting = self._waiting.get(name)
        if waiting is not None:
            waiting.pop(child, None)
            if not waiting:
                del self._waiting[name]

    def _remove_link(self, topic: Topic, child: i64) -> None:
        self._stop_waiting(topic.name, child)
        if child in topic.children:
            topic.children.remove(int(child))
            self.links_changed(topic)
            self.leave_if_idle(topic)

    def child_gone(self, child: i64) -> None:
        for topic in self.topics.values():
            topic.told.discard(int(child))
            self._remove_link(topic, child)
        # Those who were below the child have not been asked.
        self._round = 0

    def parent_gone(self) -> None:
        self._joining.clear()
        for topic in self.topics.values():
            topic.up = SHUT

    def became_root(self) -> None:
        if not self._collects:
            self._collect_later()

    def began_epoch(self) -> None:
        self._round = 0
        if not self.current.absent:
            for topic in self.topics.values():
                topic.is_apart = False
        if self.is_root and not self._collects:
            self._collect_later()

    # What everybody has got.

    def _collect_later(self) -> None:
        self._collects = True
        self.environment.set_timer(self.options.collect_ticks, COLLECT)

    def _start_round(self) -> None:
        self._collects = False
        # While somebody is waited for nothing is forgotten, and what everybody else has got is known.
        is_final = not self.current.absent
        names = [
            int(topic.name) for topic in self.topics.values() if topic.items and (is_final or not topic.is_agreed())
        ]
        if not self.is_root or not names:
            return
        self._collect_later()
        # A round that cannot end because somebody has failed is given up when the next epoch begins.
        if self.is_complete and self._round == 0:
            self._rounds += 1
            self._begin_round(Collect(self.me, self._rounds, self.epoch, names))

    def _begin_round(self, collect: Collect) -> None:
        self._round = collect.sequence
        # Those who are not ready yet begin another epoch when they are.
        self._reporters = {int(child) for child, below in self.children.items() if below is not None}
        self._reported = {}
        for name in collect.names:
            topic = self.topics.get(name)
            # Where the application is behind the topic is left out, and so nobody counts it as got by all.
            if topic is not None and topic.is_carried and self.environment.keeps_up(topic.name):
                self._reported[name] = dict(topic.frontier)
        for child in self._reporters:
            self.environment.send(child, collect)
        # Others forget what is reported, and could not give it to a later life of this broker.
        self._is_round_safe = self.journal.is_safe(ROUND, 0, self._round)
        self._report_if_complete()

    def is_on_disk(self, wait: Wait) -> None:
        if wait.kind == ROUND:
            if wait.name == self._round:
                self._is_round_safe = True
                self._report_if_complete()
        else:
            super().is_on_disk(wait)

    def _receive_report(self, sender: i64, report: Report) -> None:
        is_expected = report.sequence == self._round and report.epoch == self.epoch
        if not is_expected or sender not in self._reporters:
            return
        self._reporters.remove(int(sender))
        for name, frontier in list(self._reported.items()):
            if sender not in self.topics[name].children:
                continue
            others = report.frontiers.get(name)
            if others is None:
                del self._reported[name]
            else:
                self._reported[name] = lower(frontier, others)
        self._report_if_complete()

    def _report_if_complete(self) -> None:
        if self._round == 0 or self._reporters or not self._is_round_safe:
            return
        number = self._round
        self._round = 0
        if self.parent != NO_NODE:
            self.environment.send(self.parent, Report(self.me, number, self.epoch, self._reported))
        elif self.is_root and self.is_complete:
            self._spread_stable(Stable(self._reported, not self.current.absent))

    def _spread_stable(self, stable: Stable) -> None:
        for child in self.children:
            self.environment.send(child, stable)
        for name, frontier in stable.frontiers.items():
            topic = self.topics.get(name)
            if topic is not None and topic.is_carried:
                topic.settle(frontier)
                if stable.is_final:
                    topic.forget(frontier)
                    self.leave_if_idle(topic)
        self._shorten_journal()

    # What arrives.

    def receive(self, sender: i64, message: Message) -> None:
        if isinstance(message, Item):
            self._receive_item(sender, message)
        elif isinstance(message, Skip):
            self._receive_skip(sender, message)
        elif sender == self.parent and isinstance(message, (Joined, Settled, Collect, Stable, Carry)):
            self._receive_from_parent(message)
        elif sender in self.children and isinstance(message, (Join, Leave, Report)):
            self._receive_from_child(sender, message)
        elif not isinstance(message, (Known, Collect, Stable, Leave, Report, Carry)):
            super().receive(sender, message)

    def _receive_from_parent(self, message: Message) -> None:
        if isinstance(message, Joined):
            self._receive_joined(message)
        elif isinstance(message, Settled):
            self._receive_settled(message)
        elif isinstance(message, Collect):
            if message.epoch == self.epoch:
                self._begin_round(message)
        elif isinstance(message, Stable):
            self._spread_stable(message)
        elif isinstance(message, Carry):
            topic = self.topic(message.topic)
            topic.is_needed = True
            self.want(topic)

    def _receive_from_child(self, sender: i64, message: Message) -> None:
        if isinstance(message, Join):
            self.handle_join(sender, message)
        elif isinstance(message, Leave):
            self._remove_link(self.topic(message.topic), sender)
        elif isinstance(message, Report):
            self._receive_report(sender, message)

    def expire(self, name: i64) -> None:
        if name == COLLECT:
            self._start_round()
        else:
            super().expire(name)


def image_of(topic: Topic) -> list[Message]:
    """What a later life needs to know of a topic: all but its items, and these."""
    base, completed, locks = topic.known()
    known = Joined(topic.name, base, base, completed, locks, [], False, topic.is_apart)
    return [known, *topic.items]


def lower(one: Frontier, other: Frontier) -> Frontier:
    """What both have got."""
    return {origin: min(number, other[origin]) for origin, number in one.items() if origin in other}
