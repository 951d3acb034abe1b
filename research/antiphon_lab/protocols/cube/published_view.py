"""The variable view[t] of VCube-PS as published: the last operation known of every node, and its UPDATE.

A tuple (n, SUB, rc) makes n a member, a tuple (n, UNS, rc) a tombstone; of one node the tuple with the larger counter
is kept (Algorithm 4, lines 81 to 87 of the thesis). Two readings of the text can be selected instead. The prose keeps
"only the current subscribers", so no tombstones: an older SUB that comes later then brings back a member that has
left. And the listing of the thesis prints ``return`` inside the loop: only the first tuple of the view is compared, and
everything else is added beside what it contradicts, so that a member known to have left stays a member.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.cube.messages import member_entry
from antiphon.fabrics.cube.view import View
from antiphon.kernel.integer_map import IntegerMap
from antiphon_lab.protocols.cube.published_messages import NO_ENTRIES


@final
class PublishedMemberView:
    """The beliefs of one node about the members of one topic, itself included where it is one."""

    def __init__(self, members: View, keeps_tombstones: bool, returns_early: bool) -> None:
        self._members: Final[View] = members
        self._left: Final = IntegerMap()
        self._keeps_tombstones: Final[bool] = keeps_tombstones
        self._returns_early: Final[bool] = returns_early
        # Computed when it is asked for and forgotten with the next change.
        self._subscriptions: vec[i64] = NO_ENTRIES

    def first(self, i: i64, s: i64) -> i64:
        """The first member of cluster ``s`` of ``i``, or ``NO_NODE``."""
        return self._members.first(i, s)

    def contains(self, node: i64) -> bool:
        """Whether ``node`` is believed to be a member."""
        return self._members.contains(node)

    def members(self) -> list[int]:
        """All believed to be members, ascending."""
        return self._members.active_members()

    def update(self, node: i64, counter: i64, is_subscription: bool) -> None:
        """UPDATE with one tuple; the one that is known wins a tie."""
        if self._returns_early and node != self._first_node():
            self._add_beside(node, counter, is_subscription)
            return
        if self._members.counter_of(node) >= counter or self._left.get(node, -1) >= counter:
            return
        self._subscriptions = NO_ENTRIES
        if is_subscription:
            self._left.remove(node)
            self._members.add(node, counter, True)
            return
        self._members.remove(node, counter)
        if self._keeps_tombstones:
            self._left.put(node, counter)

    def _add_beside(self, node: i64, counter: i64, is_subscription: bool) -> None:
        """Add the tuple without a comparison."""
        self._subscriptions = NO_ENTRIES
        if is_subscription:
            self._members.add(node, counter, True)
        elif self._left.get(node, -1) < counter:
            self._left.put(node, counter)

    def subscriptions(self) -> vec[i64]:
        """The tuples of all members, sorted by node: the whole view in an acknowledgement."""
        if len(self._subscriptions) == 0:
            entries = NO_ENTRIES
            for member in self._members.active_members():
                entries = append(entries, member_entry(member, self._members.counter_of(member), True))
            self._subscriptions = entries
        return self._subscriptions

    def tombstones(self) -> vec[i64]:
        """The tuples of nodes that left, sorted by node."""
        entries = NO_ENTRIES
        for node, counter in self._left.sorted_items():
            entries = append(entries, member_entry(node, counter, False))
        return entries

    def _first_node(self) -> i64:
        """The node of the tuple that a loop over the view meets first; sets have no order, so take the lowest."""
        lowest: i64 = -1
        for member in self._members.active_members():
            lowest = member
            break
        for node, _ in self._left.sorted_items():
            return node if lowest < 0 or node < lowest else lowest
        return lowest
