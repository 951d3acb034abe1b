"""SimpleTree: a random tree that one node arranges, and publications that are pushed along its links.

The rival of BRISA at the efficient end (thesis of M. Matos, section 4.3.5). A joining node asks the coordinator, which
names a random node that joined before as its parent. So there is no cycle, depths are about ``ln n``, and the number of
children has no bound. A node that gets a publication pushes it over all its other links, up and down, so that every
node may publish. There are no extra copies, no periodic messages and no repair: when a node fails the nodes below it
are cut off, as published. Missing publications are noticed by gaps and, before a node falls silent, by comparing with
the coordinator (:mod:`antiphon.fabrics.gossip.topic`).

The coordinator is the first contact, and the first node of the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.gossip.options import BrisaOptions, rival_rules
from antiphon.fabrics.gossip.process import Brisa
from antiphon.fabrics.gossip.sampling.service import (
    Connections,
    Neighbourhood,
    PeerSampling,
    SamplingMessage,
    draw_some,
)
from antiphon.fabrics.gossip.topic import Group
from antiphon.kernel.errors import UsageError
from antiphon.kernel.process import NO_NODE, Environment


class SimpleTreeOptions(BrisaOptions):
    """One contact arranges the tree; every link of it is used for everything."""

    def __init__(
        self,
        contacts: Sequence[int] = (0,),
        order: str = "fifo",
        mixed: bool = False,
        period: i64 = 1000,
        patience: i64 = 8,
        keep: i64 = 64,
        buffer: i64 = 1024,
        join_window: i64 = 2000,
    ) -> None:
        check_coordinator(contacts)
        super().__init__(
            contacts=contacts,
            order=order,
            mixed=mixed,
            period=period,
            patience=patience,
            keep=keep,
            buffer=buffer,
            join_window=join_window,
            floods=True,
            rules=rival_rules(),
        )


def check_coordinator(contacts: Sequence[int]) -> None:
    """Refuse several coordinators: one node has to know the order of joins."""
    if len(contacts) != 1:
        raise UsageError(
            f"one node has to know the order of joins, not {len(contacts)}; name one contact, for example "
            "contacts = [0]"
        )


@mypyc_attr(acyclic=True)
class AskParent(SamplingMessage):
    """The sender joins and asks the coordinator for a parent."""


@mypyc_attr(acyclic=True)
class NameParent(SamplingMessage):
    """The receiver's parent is to be ``parent``, which joined before it."""

    def __init__(self, source: i64, topic: i64, parent: i64) -> None:
        super().__init__(source, topic)
        self.parent: Final[i64] = parent


@mypyc_attr(acyclic=True)
class BeParent(SamplingMessage):
    """The sender is a child of the receiver."""


class RandomTree(PeerSampling):
    """The place of one node in the tree; neighbours are the parent and the children."""

    def __init__(self, environment: Environment, topic: i64, connections: Connections, listener: Neighbourhood) -> None:
        super().__init__(environment, topic, connections, listener)
        self.parent: i64 = NO_NODE
        self._neighbours: Final[list[i64]] = []
        # At the coordinator: the joined nodes, and the parent of each.
        self._joined: Final[list[i64]] = [self.me]
        self._given: Final[dict[i64, i64]] = {}

    def neighbours(self) -> list[i64]:
        return self._neighbours

    def sample(self, count: i64) -> list[i64]:
        return draw_some(self.random, self._neighbours, count)

    def elder(self) -> i64:
        return super().elder() if self.parent == NO_NODE else self.parent

    def join(self, contact: i64) -> None:
        self.environment.send(contact, AskParent(self.me, self.topic))

    def receive(self, sender: i64, message: SamplingMessage) -> None:
        if isinstance(message, AskParent):
            self.environment.send(sender, NameParent(self.me, self.topic, self._parent_of(sender)))
        elif isinstance(message, NameParent):
            if self.parent == NO_NODE:
                self.parent = message.parent
                self._link(message.parent)
                self.environment.send(message.parent, BeParent(self.me, self.topic))
        elif isinstance(message, BeParent):
            self._link(sender)

    def _parent_of(self, newcomer: i64) -> i64:
        """A random one of those that joined before; the same if it is asked for again."""
        given = self._given.get(newcomer, NO_NODE)
        if given == NO_NODE:
            given = self._joined[self.random.below(len(self._joined))]
            self._given[newcomer] = given
            self._joined.append(newcomer)
        return given

    def _link(self, peer: i64) -> None:
        if peer not in self._neighbours:
            self._neighbours.append(peer)
            self.listener.neighbour_up(peer)


class SimpleTreeGroup(Group):
    """A topic at one node."""

    def new_sampling(self, connections: Connections) -> PeerSampling:
        return RandomTree(self._environment, self.topic, connections, self)

    def tell_neighbours(self) -> None:
        """Nothing to do: nodes send publications alone."""


class SimpleTree(Brisa):
    """SimpleTree at one node: topics and the application are served as by BRISA."""

    def new_group(self, topic: i64) -> Group:
        now = self.environment.now()
        return SimpleTreeGroup(self.environment, topic, self.options, self.connections, self.seeds, now)

    def mistaken_for_neighbour(self, sender: i64, topic: i64) -> None:
        """Links have no second end that would have to agree."""
