"""The links of StaN computed directly, without running the protocol, for universes far beyond simulation.

At StaN's fixed point, the view of a process in a topic has the members that the process ranks lowest
(:mod:`antiphon_lab.protocols.gossip.stan`). Nothing else has to be known, so the links of each process can be computed
alone, here with arrays and on Spark with many machines (:mod:`antiphon_lab.universes.stan_job`).

The lowest ranks are found from either end. In a small topic all members are ranked, and the few below a bound are
sorted. In a large one ranks are counted up from 0 instead: a rank identifies its node, and one look-up in a table tells
whether that is a member. A view of ``k`` of ``n`` members costs ``min(n, k * 2**22 / n)`` ranks, so the most popular
topics are not the most expensive ones.

Random views, as they are before StaN begins, are drawn from the list of members. The cost is the number of entries of a
view, independent of the size of the topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from antiphon.kernel.errors import UsageError
from antiphon.kernel.randomness import GOLDEN_GAMMA, mix64
from antiphon_lab.protocols.gossip.stan_options import view_size
from antiphon_lab.protocols.gossip.stan_weights import (
    FIRST_FACTOR,
    FIRST_INVERSE,
    NODE_BITS,
    NODE_MASK,
    SECOND_FACTOR,
    SECOND_INVERSE,
    SHIFT,
    THIRD_FACTOR,
    THIRD_INVERSE,
)
from antiphon_lab.universes.law import Integers, scattered

Words = npt.NDArray[np.uint32]
Secrets = npt.NDArray[np.uint64]

RANKS_AT_A_TIME = 1 << 18
"""The number of ranks that are computed at once: they stay in the processor's cache."""
MOST_TABLES = 256 << 20
"""The most bytes to spend on membership tables of the largest topics."""
DRAWS_AT_A_TIME = 1 << 16
"""The number of members that are drawn at once."""
COUNTING_COST = 4.0
"""A view that is found by counting costs about so much more per rank: it is one view at a time."""
IDENTIFIERS = 1 << NODE_BITS


# Permutations, as in antiphon_lab.protocols.gossip.stan_weights, of many numbers at a time.


def secrets_of(processes: Integers, key: int) -> Secrets:
    """The secret of the permutation of each process."""
    numbers = (processes.astype(np.uint64) + np.uint64(1)) * np.uint64(GOLDEN_GAMMA)
    return scattered(np.uint64(mix64(key)) + numbers)


def random_secrets_of(processes: Integers, topics: Integers, seed: int) -> Secrets:
    """One for each process and topic."""
    numbers = (topics.astype(np.uint64) + np.uint64(1)) * np.uint64(GOLDEN_GAMMA)
    return scattered(secrets_of(processes, seed) + numbers)


def parts_of(secrets: Secrets) -> tuple[Words, Words, Words]:
    """The three parts of secrets."""
    mask = np.uint64(NODE_MASK)
    first, second = secrets & mask, (secrets >> np.uint64(NODE_BITS)) & mask
    third = secrets >> np.uint64(2 * NODE_BITS)
    return first.astype(np.uint32), second.astype(np.uint32), third.astype(np.uint32)


def fold(words: Words) -> None:
    """Exclusive or with the upper half."""
    words ^= words >> np.uint32(SHIFT)


def rank(words: Words, first: Words, second: Words, third: Words) -> None:
    """Turn nodes into their ranks, in place; products overflow, and only their last bits count."""
    mask = np.uint32(NODE_MASK)
    for secret, factor in ((first, FIRST_FACTOR), (second, SECOND_FACTOR), (third, THIRD_FACTOR)):
        words ^= secret
        fold(words)
        words *= np.uint32(factor)
        words &= mask
    fold(words)


def unrank(words: Words, first: Words, second: Words, third: Words) -> None:
    """Turn ranks into nodes, in place."""
    mask = np.uint32(NODE_MASK)
    for secret, inverse in ((third, THIRD_INVERSE), (second, SECOND_INVERSE), (first, FIRST_INVERSE)):
        fold(words)
        words *= np.uint32(inverse)
        words &= mask
        if secret is not first:
            fold(words)
            words ^= secret
            fold(words)
    fold(words)
    words ^= first


# Topics.


class TopicMembers:
    """The members of all topics, with values that are computed once for each topic. The same for all processes."""

    def __init__(self, offsets: Integers, members: Integers | Words, processes: int) -> None:
        if processes > IDENTIFIERS:
            raise UsageError(f"StaN ranks up to {IDENTIFIERS:,} processes, and this universe has {processes:,}")
        self.offsets = offsets
        self.members: Words = members.astype(np.uint32)
        self.processes = processes
        self.sizes: Integers = np.diff(offsets)
        sizes, places = np.unique(self.sizes, return_inverse=True)
        self.view_sizes: Integers = np.array([view_size(int(size)) for size in sizes], np.int64)[places]
        # This many ranks are expected to be more than enough, including the owner's own.
        self.wanted = self.view_sizes + 4 * np.sqrt(self.view_sizes) + 5
        self.is_large = self._found_by_counting()
        self._tables: dict[int, npt.NDArray[np.bool_]] = {}

    def _found_by_counting(self) -> npt.NDArray[np.bool_]:
        """Topics whose members are found faster by counting ranks than by ranking them all."""
        counted: npt.NDArray[np.bool_] = COUNTING_COST * self.wanted * IDENTIFIERS < self.sizes**2.0
        room = MOST_TABLES // max(1, self.processes)
        if np.count_nonzero(counted) > room:
            smallest = np.partition(self.sizes, len(self.sizes) - room)[len(self.sizes) - room]
            counted &= self.sizes > smallest
        return counted

    def table(self, topic: int) -> npt.NDArray[np.bool_]:
        """For each process whether it is a member; kept, for there are few such topics."""
        found = self._tables.get(topic)
        if found is None:
            found = np.zeros(self.processes, np.bool_)
            found[self.members[self.offsets[topic] : self.offsets[topic + 1]]] = True
            self._tables[topic] = found
        return found


@dataclass(frozen=True)
class Views:
    """Entries of views: each is one of subscription number ``place``; in ascending order of ``place``, then rank."""

    place: Integers
    neighbour: Integers


def lowest(topics: TopicMembers, owners: Integers, of: Integers, secrets: Secrets) -> Views:
    """The views of some subscriptions: for each the members of topic ``of`` that rank lowest, without the owner."""
    large = topics.is_large[of]
    found = [counted_up(topics, owners, of, secrets, place) for place in np.flatnonzero(large).tolist()]
    small = np.flatnonzero(~large)
    for start, end in slices(topics.sizes[of[small]], RANKS_AT_A_TIME):
        chosen = small[start:end]
        views = ranked(topics, owners[chosen], of[chosen], secrets[chosen], topics.wanted[of[chosen]])
        found.append(Views(chosen[views.place], views.neighbour))
    return joined(found)


def joined(views: list[Views]) -> Views:
    """Several as one, in order."""
    empty: Integers = np.empty(0, np.int64)
    place = np.concatenate([empty, *(one.place for one in views)])
    order = np.argsort(place, kind="stable")
    return Views(place[order], np.concatenate([empty, *(one.neighbour for one in views)])[order])


def slices(work: Integers, most: int) -> Iterator[tuple[int, int]]:
    """Stretches of about so much work, at least one item each."""
    ends = np.cumsum(work)
    start, done = 0, 0
    while start < len(work):
        end = max(start + 1, int(np.searchsorted(ends, done + most, side="right")))
        yield start, end
        start, done = end, int(ends[end - 1])


def ranked(
    topics: TopicMembers, owners: Integers, of: Integers, secrets: Secrets, wanted: npt.NDArray[np.float64]
) -> Views:
    """Views found by ranking all members: ``wanted`` of them are expected to be below a bound and are sorted."""
    sizes = topics.sizes[of]
    starts = topics.offsets[of]
    lists = [topics.members[start : start + size] for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)]
    words = np.concatenate(lists)
    rank(words, *(np.repeat(part, sizes) for part in parts_of(secrets)))
    bounds = np.minimum(wanted / np.maximum(sizes, 1) * IDENTIFIERS, IDENTIFIERS).astype(np.uint32)
    below = np.flatnonzero(words < np.repeat(bounds, sizes))
    ends = np.cumsum(sizes)
    place = np.searchsorted(ends, below, side="right")
    neighbour = topics.members[below - (ends - sizes)[place] + starts[place]].astype(np.int64)
    others = neighbour != owners[place]
    place, neighbour, below = place[others], neighbour[others], below[others]
    order = np.argsort((place << NODE_BITS) | words[below])
    views = first_of_each(place[order], neighbour[order], topics.view_sizes[of])
    return with_the_missing(topics, owners, of, secrets, views, bounds)


def with_the_missing(
    topics: TopicMembers, owners: Integers, of: Integers, secrets: Secrets, views: Views, bounds: Words
) -> Views:
    """Where too few were below the bound, all members are sorted."""
    counts = np.bincount(views.place, minlength=len(of))
    missing = np.flatnonzero((counts < topics.view_sizes[of]) & (bounds < IDENTIFIERS))
    if len(missing) == 0:
        return views
    everybody = topics.sizes[of[missing]].astype(np.float64)
    again = ranked(topics, owners[missing], of[missing], secrets[missing], everybody)
    is_complete = ~np.isin(views.place, missing)
    complete = Views(views.place[is_complete], views.neighbour[is_complete])
    return joined([complete, Views(missing[again.place], again.neighbour)])


def first_of_each(place: Integers, neighbour: Integers, counts: Integers) -> Views:
    """The first entries of each place, as many as ``counts`` gives."""
    starts = np.searchsorted(place, np.arange(len(counts)))
    taken = np.arange(len(place)) - starts[place] < counts[place]
    return Views(place[taken], neighbour[taken])


def counted_up(topics: TopicMembers, owners: Integers, of: Integers, secrets: Secrets, place: int) -> Views:
    """One view, found by counting ranks up."""
    topic, owner = int(of[place]), int(owners[place])
    parts = parts_of(secrets[place : place + 1])
    table = topics.table(topic)
    bound = float(topics.wanted[topic]) / int(topics.sizes[topic]) * IDENTIFIERS
    count = int(topics.view_sizes[topic])
    while True:
        words = np.arange(min(IDENTIFIERS, int(bound)), dtype=np.uint32)
        unrank(words, *parts)
        nodes = words[words < topics.processes]
        found = nodes[table[nodes]]
        found = found[found != owner][:count]
        if len(found) == count:
            return Views(np.full(count, place), found.astype(np.int64))
        bound *= 2


# Counting.


@dataclass(frozen=True)
class Links:
    """Links of processes, in the order of ``process``: entries of views, and different neighbours."""

    process: Integers
    topics: Integers
    logical: Integers
    initial: Integers
    """Physical links while views are random."""
    aligned: Integers
    """Physical links when StaN has come to rest."""


def aligned_views(topics: TopicMembers, owners: Integers, of: Integers, key: int = 0) -> Views:
    """The views of StaN at rest, for some subscriptions."""
    return lowest(topics, owners, of, secrets_of(owners, key))


def random_views(topics: TopicMembers, owners: Integers, of: Integers, seed: int) -> Views:
    """Views that are drawn, for some subscriptions."""
    secrets = random_secrets_of(owners, of, seed)
    # Where a view holds half of the members or more it is faster to sort them than to draw the last ones.
    is_dense = topics.sizes[of] <= 2 * topics.view_sizes[of]
    dense, sparse = np.flatnonzero(is_dense), np.flatnonzero(~is_dense)
    views = lowest(topics, owners[dense], of[dense], secrets[dense])
    found = [Views(dense[views.place], views.neighbour)]
    for start, end in slices(topics.view_sizes[of[sparse]], DRAWS_AT_A_TIME):
        chosen = sparse[start:end]
        views = drawn(topics, owners[chosen], of[chosen], secrets[chosen])
        found.append(Views(chosen[views.place], views.neighbour))
    return joined(found)


def drawn(topics: TopicMembers, owners: Integers, of: Integers, secrets: Secrets) -> Views:
    """Views of members that are drawn one after the other, without repetition and without the owner.

    The draws of a view do not depend on how many are made at once, nor on other views.
    """
    counts = topics.view_sizes[of]
    tries = int(counts.max(initial=0)) + 4
    missing = np.arange(len(of))
    found = []
    while len(missing):
        numbers = np.arange(1, tries + 1, dtype=np.uint64) * np.uint64(GOLDEN_GAMMA)
        words = scattered(secrets[missing, np.newaxis] + numbers) >> np.uint64(32)
        sizes = topics.sizes[of[missing]].astype(np.uint64)
        index = ((words * sizes[:, np.newaxis]) >> np.uint64(32)).astype(np.int64)
        members = topics.members[topics.offsets[of[missing]][:, np.newaxis] + index].astype(np.int64)
        is_new = first_in_each_row(members) & (members != owners[missing, np.newaxis])
        taken = is_new & (np.cumsum(is_new, axis=1) <= counts[missing, np.newaxis])
        complete = taken.sum(axis=1) == counts[missing]
        row, column = np.nonzero(taken & complete[:, np.newaxis])
        found.append(Views(missing[row], members[row, column]))
        missing = missing[~complete]
        tries *= 2
    return joined(found)


def first_in_each_row(values: Integers) -> npt.NDArray[np.bool_]:
    """Where a number stands that is not further left in the same row."""
    order = np.argsort(values, axis=1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=1)
    is_first = np.ones(values.shape, np.bool_)
    is_first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    found = np.empty(values.shape, np.bool_)
    np.put_along_axis(found, order, is_first, axis=1)
    return found


def physical_links(owners: Integers, views: Views, processes: Integers) -> Integers:
    """For each of some processes, in ascending order, how many different neighbours its views have."""
    pairs = np.sort((owners[views.place] << NODE_BITS) | views.neighbour)
    is_other = np.diff(pairs, prepend=-1) != 0
    return np.bincount(np.searchsorted(processes, pairs[is_other] >> NODE_BITS), minlength=len(processes))


def links_of(topics: TopicMembers, owners: Integers, of: Integers, seed: int, key: int = 0) -> Links:
    """The links of some processes, given by all their subscriptions in ascending order of the process."""
    processes, counts = np.unique(owners, return_counts=True)
    logical = np.bincount(np.searchsorted(processes, owners), topics.view_sizes[of], len(processes)).astype(np.int64)
    initial, aligned = np.zeros_like(logical), np.zeros_like(logical)
    ends = np.cumsum(counts)
    work = np.add.reduceat(topics.sizes[of], ends - counts) if len(of) else counts
    for start, end in slices(work, RANKS_AT_A_TIME):
        chosen = slice(int(ends[start] - counts[start]), int(ends[end - 1]))
        some, those = owners[chosen], of[chosen]
        initial[start:end] = physical_links(some, random_views(topics, some, those, seed), processes[start:end])
        aligned[start:end] = physical_links(some, aligned_views(topics, some, those, key), processes[start:end])
    return Links(processes, counts, logical, initial, aligned)
