"""What an order is: a rule that says which of the publications that arrived may be delivered now.

An order knows nothing of trees, gossip or sockets, so any of them can stand above any fabric. One instance serves one
process. A process stamps what it publishes, hands in what arrives, and delivers what comes back, in that sequence.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import append, vec
from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.counters import Counters
from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK, Publication, publication_key


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Ordered(Publication):
    """A publication that carries what must be delivered before it.

    ``dependencies`` holds one key per source (:func:`antiphon.kernel.message.publication_key`), meaning that
    publication and all before it from that source. The publication's own predecessor at its source is not listed;
    the sequence number implies it.
    """

    def __init__(
        self,
        source: i64,
        sequence: i64,
        timestamp: i64,
        payload: bytes,
        dependencies: vec[i64],
        topic: i64 = 0,
    ) -> None:
        super().__init__(source, sequence, timestamp, payload, topic)
        self.dependencies: Final[vec[i64]] = dependencies


@mypyc_attr(allow_interpreted_subclasses=True)
class Order:
    """The interface of every order.

    ``held_total`` counts the publications that had to wait, ``held_peak`` the most that waited at one time.
    """

    def __init__(self) -> None:
        self.held_total: i64 = 0
        self.held_peak: i64 = 0

    def count_held(self) -> None:
        """Called by orders when a publication begins to wait."""
        self.held_total += 1
        waiting = self.waiting()
        if waiting > self.held_peak:
            self.held_peak = waiting

    def stamp(self, sequence: i64) -> vec[i64]:
        """Called when this process publishes: the dependencies that its publication ``sequence`` must carry.

        The publication counts as delivered here from now on.
        """
        raise NotImplementedError

    def arrived(self, publication: Ordered) -> list[Ordered]:
        """Called once per arriving copy: what may now be delivered, in order. Duplicates give nothing."""
        raise NotImplementedError

    def frontier(self) -> vec[i64]:
        """All that counts as past here, as one key per source: that publication and all before it. Sorted by source."""
        raise NotImplementedError

    def start_from(self, frontier: vec[i64]) -> None:
        """Count all up to a frontier as past. Only before anything has arrived."""
        raise NotImplementedError

    def barrier(self) -> vec[i64]:
        """What this process's next publication would have to name; empty where an order names nothing."""
        return vec[i64]()

    def adopt_barrier(self, keys: vec[i64]) -> None:
        """Go on with the barrier of an earlier membership: what was delivered then still precedes what comes now."""

    def state(self) -> str:
        """All that decides what this order will release, as text."""
        raise NotImplementedError

    def waiting(self) -> i64:
        """How many publications have arrived and may not yet be delivered."""
        raise NotImplementedError


def frontier_of(items: list[tuple[i64, i64]]) -> vec[i64]:
    """Pairs of source and sequence number, sorted by source, as keys."""
    keys = vec[i64](capacity=len(items))
    for source, sequence in items:
        keys = append(keys, publication_key(source, sequence))
    return keys


def raise_to(past: Counters, frontier: vec[i64]) -> None:
    """Raise the counts of sources to those of a frontier, where they are lower."""
    for key in frontier:
        past.raise_to(key & SOURCE_MASK, key >> SOURCE_BITS)


def merged_frontiers(entries: vec[i64], frontier: vec[i64]) -> vec[i64]:
    """The union of two frontiers, both sorted by source: per source the highest number."""
    if len(entries) == 0:
        return frontier
    union = vec[i64](capacity=len(entries))
    position: i64 = 0
    for key in frontier:
        source = key & SOURCE_MASK
        while position < len(entries) and (entries[position] & SOURCE_MASK) < source:
            union = append(union, entries[position])
            position += 1
        if position < len(entries) and (entries[position] & SOURCE_MASK) == source:
            # The sequence number is in the high bits, so the greater key is the later publication.
            union = append(union, entries[position] if entries[position] > key else key)
            position += 1
        else:
            union = append(union, key)
    while position < len(entries):
        union = append(union, entries[position])
        position += 1
    return union
