"""VCube: the virtual hypercube, its clusters and its trees.

Node ``i`` of a cube of dimension ``d`` sees the other nodes as ``d`` clusters; cluster ``s`` (counted from 1) is the
subcube of the ``2**(s-1)`` identifiers whose highest bit of difference to ``i`` is bit ``s-1``, listed in the order
``i ^ 2**(s-1) ^ k`` for ``k = 0, 1, ...``. Every tree question follows from that list:

* ``cluster(i, j)``: the cluster of ``i`` that holds ``j``.
* ``Cube.first(i, s)``: the first member of cluster ``s`` of ``i``, which is the child that ``i`` has there.
* A root has children in its clusters ``1 .. d``; a node that got a message from ``j`` has them in its clusters
  ``1 .. cluster(i, j) - 1``. The subcubes handed down are disjoint, so nobody can be reached twice, even when the
  nodes disagree about who is a member.

Follows sections 2.4 and 2.4.1 of the thesis (its CLUSTER, FIRSTCHILD and CHILDREN). The printed range ``1 < s <= h``
of Algorithm 1 must be ``1 <= s <= h``; the guards for empty clusters are not in the document. Two kinds of cube share
one interface: ``FullCube``, where everything is a bit formula, and ``PartialCube``, where some identifiers are not
members; the number of nodes then need not be a power of two, and it may change. A larger dimension only adds clusters
above those that were there, so nodes that differ about the dimension agree about every cluster that both know.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr, u8

from antiphon.kernel.errors import UsageError
from antiphon.kernel.process import NO_NODE

MAXIMUM_DIMENSION: Final = 22
"""Four million identifiers: what fits below the sequence number in a publication key."""


def cluster(i: i64, j: i64) -> i64:
    """The index of the cluster of ``i`` that holds ``j``: the bit length of ``i ^ j``. Symmetric, and 0 for itself."""
    difference = i ^ j
    index: i64 = 0
    while difference > 0:
        difference >>= 1
        index += 1
    return index


def cluster_members(i: i64, s: i64) -> list[int]:
    """Cluster ``s`` of ``i`` in its order, members or not; the closed form of the recursive definition."""
    head = i ^ (1 << (s - 1))
    return [int(head ^ k) for k in range(1 << (s - 1))]


def dimension_for(node_count: int) -> int:
    """The smallest dimension of a cube that has room for this many nodes."""
    if not 1 <= node_count <= 1 << MAXIMUM_DIMENSION:
        raise UsageError(
            f"a cube holds from 1 to {1 << MAXIMUM_DIMENSION} nodes, not {node_count}; choose a number in that range"
        )
    return (node_count - 1).bit_length()


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Cube:
    """The members of the cube, with the questions that trees ask."""

    def __init__(self, dimension: i64) -> None:
        self.dimension: i64 = dimension

    def first(self, i: i64, s: i64) -> i64:
        """The first member of cluster ``s`` of ``i``, or ``NO_NODE`` if that cluster has none."""
        raise NotImplementedError

    def contains(self, i: i64) -> bool:
        """Whether ``i`` is a member."""
        raise NotImplementedError

    def members(self) -> list[int]:
        """All members, ascending."""
        raise NotImplementedError

    def to_change(self) -> PartialCube:
        """Another cube with the same members, which may change."""
        return PartialCube(self.dimension, self.members())

    def children(self, i: i64, height: i64) -> list[int]:
        """The children of ``i`` when it is given its clusters ``1 .. height``, in ascending order of cluster."""
        found: list[int] = []
        s: i64 = 1
        while s <= height:
            child = self.first(i, s)
            if child != NO_NODE:
                found.append(int(child))
            s += 1
        return found

    def children_in_tree(self, i: i64, root: i64) -> list[int]:
        """The children of ``i`` in the tree rooted at ``root`` (Algorithm 1); empty if ``i`` is not in that tree."""
        at = root
        height = self.dimension
        while at != i:
            s = cluster(at, i)
            if s > height:
                return []
            at = self.first(at, s)
            if at == NO_NODE:
                return []
            height = s - 1
        return self.children(i, height)

    def height_in_tree(self, i: i64, root: i64) -> i64:
        """In the tree of ``root``, ``i`` has its children in its clusters ``1 .. height``; 0 if it is not in it."""
        if i == root:
            return self.dimension
        parent = self.parent_in_tree(i, root)
        return 0 if parent == NO_NODE else cluster(i, parent) - 1

    def parent_in_tree(self, i: i64, root: i64) -> i64:
        """The parent of ``i`` in the tree rooted at ``root``; ``NO_NODE`` for the root and those outside the tree."""
        parent: i64 = NO_NODE
        at = root
        height = self.dimension
        while at != i:
            s = cluster(at, i)
            if s > height:
                return NO_NODE
            parent = at
            at = self.first(at, s)
            if at == NO_NODE:
                return NO_NODE
            height = s - 1
        return parent


@mypyc_attr(acyclic=True)
class FullCube(Cube):
    """Every identifier below ``2**dimension`` is a member: a binomial tree from every root."""

    def first(self, i: i64, s: i64) -> i64:
        return i ^ (1 << (s - 1))

    def height_in_tree(self, i: i64, root: i64) -> i64:
        # The parent differs in the lowest bit in which the root differs; below it both are the same.
        difference = i ^ root
        if difference == 0:
            return self.dimension
        height: i64 = 0
        while difference & 1 == 0:
            difference >>= 1
            height += 1
        return height

    def contains(self, i: i64) -> bool:
        return 0 <= i < (1 << self.dimension)

    def members(self) -> list[int]:
        return list(range(1 << int(self.dimension)))


DENSE_DIMENSION: Final[i64] = 17
"""Up to this dimension a cube has a byte for each entry of its trie, 256 KiB at most."""


NO_ENTRIES: Final[set[i64]] = set()


@mypyc_attr(acyclic=True)
class PartialCube(Cube):
    """Some identifiers are members. ``first`` costs O(dimension); adding and removing too.

    A binary trie laid out as a heap says where there are members: entry 1 stands for all identifiers, entries ``2e``
    and ``2e + 1`` for the two halves of entry ``e``, one byte each. The first member of a cluster is the one with the
    least XOR distance to the cluster's head, found by walking down on the head's side wherever that has a member.
    Above ``DENSE_DIMENSION`` the entries are a set: identifiers far apart, as live nodes may have, cost what they are.
    """

    def __init__(self, dimension: i64, members: Iterable[int] = ()) -> None:
        super().__init__(dimension)
        self._size: i64 = 1 << dimension
        self._is_dense: bool = dimension <= DENSE_DIMENSION
        self._occupied: vec[u8] = vec[u8]([0] * int(2 << dimension)) if self._is_dense else vec[u8]()
        self._entries: set[i64] = NO_ENTRIES if self._is_dense else set()
        self._count: i64 = 0
        for member in members:
            self.add(member)

    def copy(self) -> PartialCube:
        """Another cube with the same members."""
        twin = PartialCube(self.dimension)
        twin._occupied = vec[u8](self._occupied)
        if not self._is_dense:
            twin._entries = set(self._entries)
        twin._count = self._count
        return twin

    def to_change(self) -> PartialCube:
        return self.copy()

    def include(self, i: i64) -> bool:
        """Make ``i`` a member, whatever dimension that takes; false if it was one."""
        if i >= self._size:
            self._grow(dimension_for(int(i) + 1))
        return self.add(i)

    def _grow(self, dimension: i64) -> None:
        """Become a cube of a higher dimension; rare, since every step has room for as many again."""
        members = self.members()
        self.dimension = dimension
        self._size = 1 << dimension
        self._is_dense = dimension <= DENSE_DIMENSION
        self._occupied = vec[u8]([0] * int(2 << dimension)) if self._is_dense else vec[u8]()
        self._entries = NO_ENTRIES if self._is_dense else set()
        self._count = 0
        for member in members:
            self.add(member)

    def _has(self, entry: i64) -> bool:
        return self._occupied[entry] != 0 if self._is_dense else entry in self._entries

    def add(self, i: i64) -> bool:
        """Make ``i`` a member; false if it was one."""
        if not 0 <= i < self._size:
            raise UsageError(
                f"identifier {i} does not fit a cube of dimension {self.dimension}; choose one below {self._size}"
            )
        entry = self._size + i
        if self._has(entry):
            return False
        self._count += 1
        while entry > 0 and not self._has(entry):
            if self._is_dense:
                self._occupied[entry] = 1
            else:
                self._entries.add(entry)
            entry >>= 1
        return True

    def remove(self, i: i64) -> bool:
        """Make ``i`` a non-member; false if it was none."""
        if not self.contains(i):
            return False
        self._count -= 1
        entry = self._size + i
        self._clear(entry)
        while entry > 1 and not self._has(entry ^ 1):
            entry >>= 1
            self._clear(entry)
        return True

    def _clear(self, entry: i64) -> None:
        if self._is_dense:
            self._occupied[entry] = 0
        else:
            self._entries.discard(entry)

    def contains(self, i: i64) -> bool:
        return 0 <= i < self._size and self._has(self._size + i)

    def count(self) -> i64:
        """The number of members."""
        return self._count

    def first(self, i: i64, s: i64) -> i64:
        if s > self.dimension:
            # Somebody with a larger cube has handed this one down.
            return NO_NODE
        head = i ^ (1 << (s - 1))
        level = s - 1
        entry = (self._size + head) >> level
        if not self._is_dense:
            return self._first_of_few(head, level, entry)
        if self._occupied[entry] == 0:
            return NO_NODE
        while level > 0:
            level -= 1
            entry = (entry << 1) | ((head >> level) & 1)
            if self._occupied[entry] == 0:
                entry ^= 1
        return entry - self._size

    def _first_of_few(self, head: i64, level: i64, entry: i64) -> i64:
        entries = self._entries
        if entry not in entries:
            return NO_NODE
        while level > 0:
            level -= 1
            entry = (entry << 1) | ((head >> level) & 1)
            if entry not in entries:
                entry ^= 1
        return entry - self._size

    def members(self) -> list[int]:
        if not self._is_dense:
            return sorted([int(entry - self._size) for entry in self._entries if entry >= self._size])
        return [i for i in range(int(self._size)) if self._occupied[self._size + i] != 0]


def full_or_partial(node_count: int) -> Cube:
    """The cube of nodes ``0 .. node_count - 1``: full where their number is a power of two."""
    dimension = dimension_for(node_count)
    if node_count == 1 << dimension:
        return FullCube(dimension)
    return PartialCube(dimension, range(node_count))
