"""The tree of brokers as of one epoch, and what a broker can tell from it.

The documents keep a *local view* at each broker: ancestors and siblings within ``max_hops``, learnt from paths that
travel with subscriptions and status messages (section 4.2.2). Here every broker has the whole tree of the last epoch,
which the root sends round after each repair, and the local view is read off it: never stale within an epoch, and right
for any number of hops. A tree of a thousand brokers is some kilobytes, once per repair.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.tree.quorum import NOBODY, Council
from antiphon.kernel.process import NO_NODE

NO_EPOCH: Final[i64] = 0
"""The epoch of a newcomer. Its tree holds the brokers that it may ask for a place in the real one."""

ROOT_BITS: Final = 22
"""Room for the number of the root in that of an epoch."""

GONE_AT_MOST: Final = 256
"""How many brokers that were given up a root remembers. Most have crashed, and a broker that returns is a new one."""


def regular_parents(count: int, fan_out: int) -> list[int]:
    """The parent of each of so many brokers if each has ``fan_out`` children, until there are no more."""
    return [int(NO_NODE), *((broker - 1) // fan_out for broker in range(1, count))]


def overlay_of_newcomer(me: int, contacts: Sequence[int]) -> Overlay:
    """The knowledge of a broker that wants to join: the brokers that it may ask."""
    return Overlay(NO_EPOCH, NO_NODE, dict.fromkeys([me, *contacts], int(NO_NODE)), can_order=False)


def wrong_parents(parents: Sequence[int], count: int) -> str | None:
    """The first mistake in a list of parents."""
    if len(parents) != count:
        return f"expected a parent for each of the {count} nodes, not {len(parents)}"
    if parents.count(int(NO_NODE)) != 1:
        return f"expected one root, a node with parent -1, not {parents.count(int(NO_NODE))}"
    for node in range(count):
        at, steps = node, 0
        while at != NO_NODE:
            at, steps = parents[at] if at < count else count, steps + 1
            if at >= count:
                return f"a parent of node {node} does not exist; choose from 0 to {count - 1}"
            if steps > count:
                return f"node {node} is its own ancestor; a tree has no cycles"
    return None


def astray(parents: dict[int, int], root: i64) -> i64:
    """A broker from which no way leads to the root, or ``NO_NODE`` if there is none."""
    rooted = {int(root)}
    for broker in parents:
        path: list[int] = []
        at = broker
        while at not in rooted:
            if at not in parents or len(path) > len(parents):
                return broker
            path.append(at)
            at = parents[at]
        rooted.update(path)
    return NO_NODE


@final
@mypyc_attr(acyclic=True)
class Overlay:
    """The parent of each broker in an epoch. Immutable."""

    def __init__(
        self,
        epoch: i64,
        root: i64,
        parents: dict[int, int],
        absent: list[int] | None = None,
        council: Council | None = None,
        can_order: bool = True,
        gone: list[int] | None = None,
    ) -> None:
        self.epoch: Final[i64] = epoch
        self.root: Final[i64] = root
        # The parent of every broker, NO_NODE for the root; the keys are the members.
        self.parents: Final[dict[int, int]] = parents
        # Absent brokers: the others keep the items that they lack.
        self.absent: Final[list[int]] = absent or []
        # Brokers that were given up, the latest last: no items are kept for them, but roots look for them.
        self.gone: Final[list[int]] = gone or []
        # Whose majorities were needed, and whether they were there: total publications are completed if so.
        # A default that is no literal would leave the compiled constructor without a signature, which hosts read.
        self.council: Final[Council] = NOBODY if council is None else council
        self.can_order: Final[bool] = can_order

    def is_later_than(self, other: Overlay) -> bool:
        """Which of two trees counts: the one that can order, and of two that can or cannot, the later one.

        Without a quorum two roots may give their epochs the same number: one failed before all had heard of its epoch.
        """
        if self.can_order != other.can_order:
            return self.can_order
        return self.epoch > other.epoch or (self.epoch == other.epoch and self.root > other.root)

    def children_of(self, broker: i64) -> list[int]:
        """The children of a broker, lowest first."""
        return sorted(child for child, parent in self.parents.items() if parent == broker)

    def path_of(self, broker: i64) -> list[int]:
        """A broker, its parent, and so on to the root."""
        path = [int(broker)]
        at = self.parents.get(broker, NO_NODE)
        while at != NO_NODE:
            path.append(int(at))
            assert len(path) <= len(self.parents), "a tree has no cycles"
            at = self.parents.get(at, NO_NODE)
        return path

    def below(self, broker: i64) -> dict[int, int]:
        """All brokers below one, with their parents."""
        return {other: parent for other, parent in self.parents.items() if broker in self.path_of(other)[1:]}

    def neighbourhood(self, broker: i64, max_hops: i64, ancestors_first: bool) -> list[int]:
        """The local view of a broker: the candidates for a new parent when its own has failed, best first.

        These are the brokers that can be reached through the parent with one step down at most, within ``max_hops``:
        ancestors and uncles of any degree, and siblings. By hops, or all that are nearer to the root before siblings.
        """
        path = self.path_of(broker)
        found: list[tuple[bool, int, int]] = []
        for ups in range(1, len(path)):
            if ups > 1 and ups <= max_hops:
                found.append((False, ups, path[ups]))
            if ups + 1 <= max_hops:
                is_sibling = ups == 1
                others = [other for other in self.children_of(path[ups]) if other != path[ups - 1]]
                found += [(is_sibling, ups + 1, other) for other in others]
        if not ancestors_first:
            found = [(False, hops, other) for _, hops, other in found]
        return [other for _, _, other in sorted(found)]

    def successors(self, total_degree: i64) -> list[int]:
        """The brokers that become the root in turn: each one if all before it in this list have failed.

        After the root come those nearest to it, with most room for children; among equals the one with the lowest
        number (section 4.2.3.2). All brokers that know the same epoch agree without asking each other.
        """
        children: dict[int, int] = {}
        for parent in self.parents.values():
            children[parent] = children.get(parent, 0) + 1
        ranked: list[tuple[int, int, int]] = []
        for broker in self.parents:
            room = int(total_degree) - children.get(broker, 0)
            ranked.append((len(self.path_of(broker)), -room, broker))
        return [broker for _, _, broker in sorted(ranked)]
