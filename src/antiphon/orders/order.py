"""The interface of orders: rules that decide which of the publications that arrived may be delivered now.

An order knows nothing of trees, gossip or sockets, so any of them can stand above any fabric. One instance serves one
process. A process stamps what it publishes, hands in what arrives, and delivers what comes back, in that sequence.

The predecessors that a publication names, and the past of a process, are **sets of publications**, written as keys
(:func:`antiphon.kernel.message.publication_key`). A key from 0 up means that publication and all before it from its
source; there is at most one per source, and they are sorted by source. Where publications may be delivered out of
sequence, keys of **single** publications follow, each as its complement, which is negative, sorted by the key. Their
sequence number reads as negative too, below every count: code that knows only the first kind ignores the second.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.counters import Counters
from antiphon.kernel.message import CAUSAL, SOURCE_BITS, SOURCE_MASK, UNSPECIFIED, Publication, publication_key


@final
@mypyc_attr(acyclic=True)
class Ordered(Publication):
    """A publication that carries what must be delivered before it."""

    def __init__(
        self,
        source: i64,
        sequence: i64,
        timestamp: i64,
        payload: bytes,
        dependencies: vec[i64],
        topic: i64 = 0,
        order: i64 = CAUSAL,
    ) -> None:
        super().__init__(source, sequence, timestamp, payload, topic, order, dependencies)


@final
@mypyc_attr(acyclic=True)
class KeyedOrdered(Publication):
    """The same about some keys of its topic, such as accounts."""

    def __init__(
        self,
        source: i64,
        sequence: i64,
        timestamp: i64,
        payload: bytes,
        dependencies: vec[i64],
        topic: i64,
        order: i64,
        keys: vec[i64],
    ) -> None:
        super().__init__(source, sequence, timestamp, payload, topic, order, dependencies)
        self.keys: Final[vec[i64]] = keys

    def total_order_keys(self) -> vec[i64]:
        return self.keys


@final
@mypyc_attr(acyclic=True)
class Placed(Publication):
    """The same in total order where nodes may fail: of two about a key, that with the lower place comes first."""

    def __init__(
        self,
        source: i64,
        sequence: i64,
        timestamp: i64,
        payload: bytes,
        dependencies: vec[i64],
        topic: i64,
        order: i64,
        keys: vec[i64],
        place: i64,
    ) -> None:
        super().__init__(source, sequence, timestamp, payload, topic, order, dependencies)
        self.keys: Final[vec[i64]] = keys
        self.place: Final[i64] = place

    def total_order_keys(self) -> vec[i64]:
        return self.keys


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Order:
    """The interface of every order.

    ``strength`` is how strongly it orders a publication that asks for nothing in particular. ``held_total`` counts the
    publications that had to wait, ``held_peak`` the most that waited at one time.
    """

    def __init__(self, strength: i64 = UNSPECIFIED) -> None:
        self.strength: Final[i64] = strength
        self.held_total: i64 = 0
        self.held_peak: i64 = 0

    def count_held(self) -> None:
        """Called by orders when a publication begins to wait."""
        self.held_total += 1
        waiting = self.waiting()
        if waiting > self.held_peak:
            self.held_peak = waiting

    def stamp(self, sequence: i64, order: i64 = CAUSAL) -> vec[i64]:
        """Called when this process publishes: the dependencies that its publication ``sequence`` must carry.

        The publication counts as delivered here from now on. ``order`` matters where publications may differ in it.
        """
        raise NotImplementedError

    def arrived(self, publication: Publication) -> list[Publication]:
        """Called once per arriving copy: what may now be delivered, in order. Duplicates give nothing."""
        raise NotImplementedError

    def frontier(self) -> vec[i64]:
        """All that counts as past here, as a set of publications."""
        raise NotImplementedError

    def start_from(self, frontier: vec[i64]) -> None:
        """Count all up to a frontier as past. Only before anything has arrived."""
        raise NotImplementedError

    def barrier(self) -> vec[i64]:
        """The publications that the next one of this process would name; empty where an order names nothing."""
        return vec[i64]()

    def adopt_barrier(self, keys: vec[i64]) -> None:
        """Continue with the barrier of an earlier membership: its deliveries still precede new publications."""

    def state(self) -> str:
        """All that decides what this order will release, as text."""
        raise NotImplementedError

    def counts(self, key: i64) -> bool:
        """Whether a publication counts as past here."""
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
    """The union of two frontiers: per source the highest number, and all single publications that it does not cover."""
    if len(entries) == 0 or len(frontier) == 0:
        return frontier if len(entries) == 0 else entries
    if entries[-1] < 0 or frontier[-1] < 0:
        return with_singles(
            merged_frontiers(prefixes_of(entries), prefixes_of(frontier)), singles_of(entries) | singles_of(frontier)
        )
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


def prefixes_of(keys: vec[i64]) -> vec[i64]:
    """Of a set of publications what is written as a number per source."""
    prefixes = vec[i64](capacity=len(keys))
    for key in keys:
        if key >= 0:
            prefixes = append(prefixes, key)
    return prefixes


def singles_of(keys: vec[i64]) -> set[i64]:
    """Of a set of publications those that are written one by one."""
    return {~key for key in keys if key < 0}


def with_singles(prefixes: vec[i64], singles: set[i64]) -> vec[i64]:
    """A set of publications: numbers per source, and single ones, of which those are left out that a number covers."""
    reached = {key & SOURCE_MASK: key >> SOURCE_BITS for key in prefixes}
    keys = prefixes
    for single in sorted(singles):
        if single >> SOURCE_BITS > reached.get(single & SOURCE_MASK, 0):
            keys = append(keys, ~single)
    return keys
