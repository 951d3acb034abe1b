"""Directories: each topic has a home node, which lists its members.

The home lists the registered members, and keeps the frontiers of members that have left. It puts concurrent
subscriptions into one order, so that newcomers find each other without asking every node.

The set of nodes must not change: the home of a topic would move, and its record would not. Where nodes come and go, the
``directory`` option stays off.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.cube.topology import Cube
from antiphon.kernel.process import NO_NODE
from antiphon.orders.order import merged_frontiers

SCATTER: Final = 0x9E3779B1
SCATTERED_BITS: Final = (1 << 31) - 1
"""So much of a topic's number is scattered: its product with a number of 32 bits must fit 64. Hosts may use hashes."""


@final
class Record:
    """The entry of one topic at its home."""

    def __init__(self) -> None:
        # Who is listed, with the counter of the subscription, in the order of registration.
        self.listed: dict[i64, i64] = {}
        self.past: vec[i64] = vec[i64]()


@final
class Directory:
    """The records of all topics whose home this node is."""

    def __init__(self, cube: Cube) -> None:
        self._cube: Final[Cube] = cube
        self._records: dict[i64, Record] = {}

    def home_of(self, topic: i64) -> i64:
        """The home of a topic: the member of the cube nearest to a place that depends on the topic alone."""
        place = (((topic & SCATTERED_BITS) * SCATTER) >> 5) & ((1 << self._cube.dimension) - 1)
        if self._cube.contains(place):
            return place
        s: i64 = 1
        while s <= self._cube.dimension:
            found = self._cube.first(place, s)
            if found != NO_NODE:
                return found
            s += 1
        return NO_NODE

    def register(self, topic: i64, node: i64, counter: i64) -> vec[i64]:
        """List a newcomer; return the members that were listed before."""
        record = self._record(topic)
        others = vec[i64]()
        for listed in record.listed:
            if listed != node:
                others = append(others, listed)
        record.listed[node] = counter
        return others

    def unregister(self, topic: i64, node: i64, counter: i64, past: vec[i64]) -> None:
        """Take a leaver off the list, unless it has registered anew since, and keep what it counted as past."""
        record = self._record(topic)
        record.past = merged_frontiers(record.past, past)
        if record.listed.get(node, counter + 1) < counter:
            del record.listed[node]

    def past(self, topic: i64) -> vec[i64]:
        """The union of the frontiers of the members that have left."""
        return self._record(topic).past

    def state(self) -> str:
        """The content as text, to compare states."""
        return str([(name, list(r.listed.items()), list(r.past)) for name, r in sorted(self._records.items())])

    def _record(self, topic: i64) -> Record:
        found = self._records.get(topic)
        if found is None:
            found = Record()
            self._records[topic] = found
        return found
