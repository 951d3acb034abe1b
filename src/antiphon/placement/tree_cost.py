"""The price of identifiers: how long publications travel over the trees of all publishers.

Every node publishes to all others, each over its own tree (:mod:`antiphon.fabrics.cube.topology`). The *tree latency*
of a pair is the sum of delays on the way from the publisher to the receiver; times at nodes and in queues are left
out. The trees depend on the identifiers alone, so the number of pairs whose way uses a link is counted once. The mean
over all pairs is then a sum over the links of the cube, and exchanging two places changes the few links of two
identifiers.

The largest latency has no such sum; it costs a walk through all trees.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.cube.topology import Cube


@final
class TreeCost:
    """The trees of all publishers among the members of a cube, with the delays between their places.

    Members and places are named by their indices. ``place_at[member]`` is the place of a member.
    """

    def __init__(self, cube: Cube, delays_us: list[list[int]]) -> None:
        members = cube.members()
        self.count: Final[i64] = len(members)
        self._delays: Final[vec[i64]] = vec[i64]([delay for row in delays_us for delay in row])
        index = {member: at for at, member in enumerate(members)}
        # For each root all nodes of its tree but the root, parents first, and the parent of each.
        self._nodes: vec[i64] = vec[i64]()
        self._parents: vec[i64] = vec[i64]()
        uses: dict[i64, i64] = {}
        for root in members:
            self._add_tree(cube, root, index, uses)
        # By member its links: the other end, and how many pairs use the link there and back.
        self._first_link: vec[i64] = vec[i64]()
        self._ends: vec[i64] = vec[i64]()
        self._there: vec[i64] = vec[i64]()
        self._back: vec[i64] = vec[i64]()
        self._list_links(uses)

    def _add_tree(self, cube: Cube, root: i64, index: dict[int, int], uses: dict[i64, i64]) -> None:
        order: list[i64] = [root]
        heights: list[i64] = [cube.dimension]
        parent_of: list[i64] = [0]
        below: list[i64] = [1]
        at: i64 = 0
        while at < len(order):
            node, height = order[at], heights[at]
            s: i64 = 1
            while s <= height:
                child = cube.first(node, s)
                if child >= 0:
                    order.append(child)
                    heights.append(s - 1)
                    parent_of.append(at)
                    below.append(1)
                    self._nodes = append(self._nodes, i64(index[int(child)]))
                    self._parents = append(self._parents, i64(index[int(node)]))
                s += 1
            at += 1
        at = len(order) - 1
        while at > 0:
            parent = parent_of[at]
            below[parent] += below[at]
            link = i64(index[int(order[parent])]) * self.count + i64(index[int(order[at])])
            uses[link] = uses.get(link, 0) + below[at]
            at -= 1

    def _list_links(self, uses: dict[i64, i64]) -> None:
        ends: list[set[i64]] = [set() for _ in range(int(self.count))]
        for link in uses:
            one, other = link // self.count, link % self.count
            ends[one].add(other)
            ends[other].add(one)
        at: i64 = 0
        while at < self.count:
            self._first_link = append(self._first_link, i64(len(self._ends)))
            for other in sorted(ends[at]):
                self._ends = append(self._ends, other)
                self._there = append(self._there, uses.get(at * self.count + other, 0))
                self._back = append(self._back, uses.get(other * self.count + at, 0))
            at += 1
        self._first_link = append(self._first_link, i64(len(self._ends)))

    def pairs(self) -> i64:
        """The number of pairs of a publisher and a receiver."""
        return max(1, self.count * (self.count - 1))

    def mean_us(self, place_at: vec[i64]) -> float:
        """The mean latency of all pairs."""
        return float(self.total(place_at)) / float(self.pairs())

    def total(self, place_at: vec[i64]) -> i64:
        """The sum of the latencies of all pairs, in microseconds."""
        total: i64 = 0
        member: i64 = 0
        while member < self.count:
            link = self._first_link[member]
            row = place_at[member] * self.count
            while link < self._first_link[member + 1]:
                total += self._there[link] * self._delays[row + place_at[self._ends[link]]]
                link += 1
            member += 1
        return total

    def _around(self, place_at: vec[i64], member: i64, but: i64) -> i64:
        """The part of the sum that the links of a member have, without those to another one."""
        place = place_at[member]
        total: i64 = 0
        link = self._first_link[member]
        while link < self._first_link[member + 1]:
            other = self._ends[link]
            if other != but:
                there = place_at[other]
                total += self._there[link] * self._delays[place * self.count + there]
                total += self._back[link] * self._delays[there * self.count + place]
            link += 1
        return total

    def change_by_exchange(self, place_at: vec[i64], one: i64, other: i64) -> i64:
        """By how much the sum grows when two members exchange their places; leaves them exchanged."""
        before = self._around(place_at, one, -1) + self._around(place_at, other, one)
        place_at[one], place_at[other] = place_at[other], place_at[one]
        return self._around(place_at, one, -1) + self._around(place_at, other, one) - before

    def cost_at(self, place_at: vec[i64], member: i64, place: i64) -> i64:
        """The part of the sum that a member would have at a place, over the links to members that have one (not -1)."""
        total: i64 = 0
        link = self._first_link[member]
        while link < self._first_link[member + 1]:
            there = place_at[self._ends[link]]
            if there >= 0:
                total += self._there[link] * self._delays[place * self.count + there]
                total += self._back[link] * self._delays[there * self.count + place]
            link += 1
        return total

    def largest(self, place_at: vec[i64]) -> tuple[i64, i64, i64]:
        """The largest latency of a pair, with its publisher and its receiver."""
        latencies: vec[i64] = vec[i64]([0] * int(self.count))
        largest: i64 = 0
        publisher: i64 = 0
        receiver: i64 = 0
        at: i64 = 0
        root: i64 = 0
        while root < self.count:
            latencies[root] = 0
            end = at + self.count - 1
            while at < end:
                node, parent = self._nodes[at], self._parents[at]
                latency = latencies[parent] + self._delays[place_at[parent] * self.count + place_at[node]]
                latencies[node] = latency
                if latency > largest:
                    largest, publisher, receiver = latency, root, node
                at += 1
            root += 1
        return largest, publisher, receiver

    def latencies(self, place_at: vec[i64]) -> list[int]:
        """The latencies of all pairs, in microseconds."""
        found: list[int] = []
        latencies: vec[i64] = vec[i64]([0] * int(self.count))
        at: i64 = 0
        root: i64 = 0
        while root < self.count:
            latencies[root] = 0
            end = at + self.count - 1
            while at < end:
                node, parent = self._nodes[at], self._parents[at]
                latencies[node] = latencies[parent] + self._delays[place_at[parent] * self.count + place_at[node]]
                found.append(int(latencies[node]))
                at += 1
            root += 1
        return found

    def way(self, place_at: vec[i64], publisher: i64, receiver: i64) -> list[int]:
        """The places on the way from a publisher to a receiver."""
        parent_of: dict[i64, i64] = {}
        at = publisher * (self.count - 1)
        end = at + self.count - 1
        while at < end:
            parent_of[self._nodes[at]] = self._parents[at]
            at += 1
        way = [int(place_at[receiver])]
        member = receiver
        while member != publisher:
            member = parent_of[member]
            way.append(int(place_at[member]))
        way.reverse()
        return way
