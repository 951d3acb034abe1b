"""The members of one topic, as one node knows them.

A member is **active** when it is known to have a complete view itself, so that it can be given a whole cluster to
reach; a newcomer is **passive** until then and is only sent copies of its own. Every entry carries the counter of the
member's subscription, so that news about an older membership never overwrites a newer one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.cube.topology import PartialCube, cluster
from antiphon.kernel.integer_map import IntegerMap
from antiphon.kernel.process import NO_NODE

NOBODY: Final[dict[i64, i64]] = {}
"""Shared by views without passive members: it stays empty."""


@final
@mypyc_attr(acyclic=True)
class View:
    """The members of a topic, as far as one node knows. Copies share their content until one of them changes."""

    def __init__(self, dimension: i64, active: Iterable[int] = ()) -> None:
        self._active: PartialCube = PartialCube(dimension, active)
        self._counters: IntegerMap = IntegerMap()
        for member in active:
            self._counters.put(member, 0)
        self._passive: dict[i64, i64] = NOBODY
        self._is_shared: bool = False

    def copy(self) -> View:
        """The same view, to be changed independently; costs nothing until then."""
        twin = View(0)
        twin._active = self._active
        twin._counters = self._counters
        if len(self._passive) > 0:
            twin._passive = dict(self._passive)
        twin._is_shared = True
        self._is_shared = True
        return twin

    def first(self, i: i64, s: i64) -> i64:
        """The first active member of cluster ``s`` of ``i``, or ``NO_NODE``."""
        return self._active.first(i, s)

    def height_in_tree(self, me: i64, root: i64) -> i64:
        """In the tree of ``root``, the member ``me`` has its children in its clusters ``1 .. height``.

        A view need not hold its owner, who is a member all the same.
        """
        active = self._active
        at = root
        height = active.dimension
        while at != me:
            s = cluster(at, me)
            head = at ^ (1 << (s - 1))
            child = active.first(at, s)
            at = me if child == NO_NODE or (me ^ head) < (child ^ head) else child
            height = s - 1
        return height

    def passive_in_cluster(self, i: i64, s: i64) -> list[i64]:
        """The passive members of cluster ``s`` of ``i``, in the order in which they became known."""
        return [member for member in self._passive if cluster(i, member) == s]

    def has_passive(self) -> bool:
        """Whether any member is passive."""
        return len(self._passive) > 0

    def contains(self, node: i64) -> bool:
        """Whether ``node`` is believed to be a member, active or passive."""
        return node in self._passive or self._active.contains(node)

    def counter_of(self, node: i64) -> i64:
        """The counter of the membership that is known of ``node``, or -1."""
        if len(self._passive) > 0 and node in self._passive:
            return self._passive[node]
        return self._counters.get(node, -1)

    def add(self, node: i64, counter: i64, is_active: bool) -> None:
        """``node`` has subscribed under ``counter``; ``is_active`` if it has a complete view."""
        known = self.counter_of(node)
        if counter < known or (counter == known and not is_active):
            return
        if is_active:
            self._drop_passive(node)
            if counter != known or not self._active.contains(node):
                self._make_own()
                self._counters.put(node, counter)
                self._active.include(node)
            return
        if self._active.contains(node):
            self._drop_active(node)
        if len(self._passive) == 0:
            self._passive = {}
        self._passive[node] = counter

    def remove(self, node: i64, counter: i64) -> None:
        """``node`` has unsubscribed under ``counter``; a newer subscription stays."""
        known = self.counter_of(node)
        if known < 0 or known > counter:
            return
        if node in self._passive:
            self._drop_passive(node)
        else:
            self._drop_active(node)

    def forget(self, node: i64) -> None:
        """``node`` is no member any more, whatever was heard of it."""
        self.remove(node, self.counter_of(node))

    def active_members(self) -> list[int]:
        """All active members, ascending."""
        return self._active.members()

    def members(self) -> list[int]:
        """All members, active or passive."""
        return [*self._active.members(), *self._passive]

    def state(self) -> str:
        """The content as text, to compare states."""
        return f"{self._counters.sorted_items()} {self._active.members()} {sorted(self._passive.items())}"

    def _drop_passive(self, node: i64) -> None:
        self._passive.pop(node, None)
        if len(self._passive) == 0:
            self._passive = NOBODY

    def _drop_active(self, node: i64) -> None:
        self._make_own()
        self._counters.remove(node)
        self._active.remove(node)

    def _make_own(self) -> None:
        if self._is_shared:
            self._active = self._active.copy()
            self._counters = self._counters.copy()
            self._is_shared = False
