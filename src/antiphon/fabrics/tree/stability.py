"""Finds the items that all brokers of a topic have, so that no broker needs to keep them any more.

The document keeps a buffer of fixed size, from which messages that are still needed fall out (section 4.3.1). Here
items are kept until all brokers of the topic have them. The root finds that out in **rounds**, in complete epochs only:
it asks (``CollectRequest``), every broker answers what it and all brokers below it have received (``CollectResponse``),
and the root announces the result (``Stable``).
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.tree.durable_state import ROUND, DurableState
from antiphon.fabrics.tree.messages import CollectRequest, CollectResponse, Frontier, Item, Stable
from antiphon.fabrics.tree.options import TreeOptions
from antiphon.fabrics.tree.topic import TreeTopic
from antiphon.fabrics.tree.topic_table import TreeTopicTable
from antiphon.fabrics.tree.view import TreeView
from antiphon.kernel.process import NO_NODE, Environment

COLLECT: Final[i64] = 2
"""The name of the timer that runs out when the root is to ask again."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ItemRetention:
    """Keeps items for brokers that may ask for them."""

    def keep(self, topic: TreeTopic, item: Item) -> None:
        """A new item has come."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class StabilityEvents:
    """Rounds tell this to the other parts of a broker."""

    def forgot(self, topic: TreeTopic) -> None:
        """Items of a topic that all have got are kept no more."""
        raise NotImplementedError


@final
class Stability(ItemRetention):
    """Keeps items until all brokers have them."""

    def __init__(
        self,
        environment: Environment,
        options: TreeOptions,
        view: TreeView,
        topics: TreeTopicTable,
        durable: DurableState,
        events: StabilityEvents,
    ) -> None:
        self._environment: Final[Environment] = environment
        self._options: Final[TreeOptions] = options
        self._view: Final[TreeView] = view
        self._topics: Final[TreeTopicTable] = topics
        self._durable: Final[DurableState] = durable
        self._events: Final[StabilityEvents] = events
        # Whether the root is to ask again after some time.
        self._collects: bool = False
        # The current round: the brokers that have still to answer, and the items that the others have.
        self._round: i64 = 0
        self._rounds: i64 = 0
        self._reporters: set[int] = set()
        # The children that were asked in the last round: these have got what all have got, and no others may have.
        self._asked: set[int] = set()
        self._reported: dict[int, Frontier] = {}
        # Whether all that this broker reports in it is on its disk.
        self._is_round_safe: bool = True

    def keep(self, topic: TreeTopic, item: Item) -> None:
        topic.take(item)
        if topic.is_written:
            self._durable.write(item)
        if self._view.is_root and not self._collects:
            self._collect_later()

    # When rounds begin and end.

    def _collect_later(self) -> None:
        self._collects = True
        self._environment.set_timer(self._options.collect_ticks, COLLECT)

    def became_root(self) -> None:
        """This broker is the one that asks from now on."""
        if not self._collects:
            self._collect_later()

    def began_epoch(self) -> None:
        """Give up the round of the last epoch, and ask anew in this one."""
        self._round = 0
        if not self._view.current.absent:
            for topic in self._topics.by_number.values():
                topic.is_apart = False
        if self._view.is_root and not self._collects:
            self._collect_later()

    def on_child_lost(self, child: i64) -> None:
        """Give up the round."""
        # The brokers below the child have not been asked.
        self._round = 0
        self._asked.discard(int(child))

    def start_round(self) -> None:
        """As root, ask which items all brokers have."""
        view = self._view
        self._collects = False
        # While a broker is absent nothing is forgotten, and the items that all others have are known.
        is_final = not view.current.absent
        names = [
            int(topic.name)
            for topic in self._topics.by_number.values()
            if topic.items and (is_final or not topic.is_agreed())
        ]
        if not view.is_root or not names:
            return
        self._collect_later()
        # A round that cannot end because a broker has failed is given up when the next epoch begins.
        if view.is_complete and self._round == 0:
            self._rounds += 1
            self._begin_round(CollectRequest(view.me, self._rounds, view.epoch, names))

    # The round.

    def on_collect_request(self, sender: i64, collect: CollectRequest) -> None:
        """The root asks."""
        if sender == self._view.parent and collect.epoch == self._view.epoch:
            self._begin_round(collect)

    def _begin_round(self, collect: CollectRequest) -> None:
        self._round = collect.sequence
        # Brokers that are not ready yet begin another epoch when they are.
        self._reporters = {int(child) for child, below in self._view.children.items() if below is not None}
        self._asked = set(self._reporters)
        self._reported = {}
        for name in collect.names:
            topic = self._topics.get(name)
            # If the application is behind, the topic is left out, so that no broker counts its items as stable.
            if topic is not None and topic.is_carried and self._environment.has_capacity(topic.name):
                self._reported[name] = dict(topic.frontier)
        for child in self._reporters:
            self._environment.send(child, collect)
        # Others forget what is reported, and could not give it to a later incarnation of this broker.
        self._is_round_safe = self._durable.is_safe(ROUND, 0, self._round)
        self._report_if_complete()

    def round_on_disk(self, number: i64) -> None:
        """All that this broker reports in a round is on its disk."""
        if number == self._round:
            self._is_round_safe = True
            self._report_if_complete()

    def on_collect_response(self, sender: i64, report: CollectResponse) -> None:
        """A child says what it and all below it have got."""
        if sender not in self._view.children:
            return
        is_expected = report.sequence == self._round and report.epoch == self._view.epoch
        if not is_expected or sender not in self._reporters:
            return
        self._reporters.remove(int(sender))
        for name, frontier in list(self._reported.items()):
            if sender not in self._topics.by_number[name].children:
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
        view = self._view
        number = self._round
        self._round = 0
        if view.parent != NO_NODE:
            self._environment.send(view.parent, CollectResponse(view.me, number, view.epoch, self._reported))
        elif view.is_root and view.is_complete:
            self._spread_stable(Stable(self._reported, not view.current.absent))

    def on_stable(self, sender: i64, stable: Stable) -> None:
        """The root announces which items all brokers have."""
        if sender == self._view.parent:
            self._spread_stable(stable)

    def _spread_stable(self, stable: Stable) -> None:
        for child in self._asked:
            self._environment.send(child, stable)
        for name, frontier in stable.frontiers.items():
            topic = self._topics.get(name)
            if topic is not None and topic.is_carried:
                topic.settle(frontier)
                if stable.is_final:
                    topic.forget(frontier)
                    self._events.forgot(topic)
        self._topics.shorten_journal(self._view)


def lower(one: Frontier, other: Frontier) -> Frontier:
    """What both have got."""
    return {origin: min(number, other[origin]) for origin, number in one.items() if origin in other}
