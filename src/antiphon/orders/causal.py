"""Causal order, and weaker publications beside causal ones: each waits for what its own order says.

``NONE`` waits for nothing, ``FIFO`` for everything earlier of its source, ``CAUSAL`` for everything that its source had
published or delivered, whatever order that had. A causal publication names other publications that must be delivered
before it. A process keeps the set of publications that it has delivered; a publication may be delivered when it is the
next of its source and all it names are in that set. The set of what counts as past is closed under happened-before at
every moment: that is the invariant which makes it enough to name the *immediate* predecessors
(:mod:`antiphon.orders.barriers`) or the changed entries of a vector clock (:mod:`antiphon.orders.vectors`).

A process that joins late starts from a **frontier**: all up to it counts as past without having been delivered. A
frontier must be closed in the same sense; the union of what several processes count as past is.

A publication that cannot be delivered waits for *one* missing delivery, is looked at again exactly when that delivery
happens, and goes on from where it stopped. So a publication with k dependencies costs k comparisons plus one step per
time it has to wait, however many others are waiting; the printed algorithms scan all that waits at every arrival.

Where orders are mixed:

* Only causal publications carry dependencies, prune the barriers of the processes that deliver them, and leave their
  source with an empty one. A weaker one does not wait, so a process that has delivered it need not have what its source
  had delivered: it can stand for nothing but itself, and the next causal publication of its source names all that it
  would have named.
* A publication without order is delivered out of sequence. So what counts as past is, per source, a number up to which
  it is complete, and single publications beyond.
* Such single publications are named one by one until the gap below them is closed. To name "all up to here" instead
  would name something that the publisher has not delivered itself. Then its set of past publications would not be
  closed under what its own publication names. Others rely on that when they name this publication and nothing before
  it, and the publisher, of all nodes, would deliver in the wrong order. (``docs/proofs/mixed-orders.md`` has the
  argument, ``tests/fabrics/cube/test_vcube_ps_mixed.py`` the schedule.)
"""

from __future__ import annotations

from typing import Final

from librt.vecs import append, vec
from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.message import CAUSAL, NONE, SOURCE_BITS, SOURCE_MASK, TOTAL, Publication, publication_key
from antiphon.kernel.publication_set import PublicationSet
from antiphon.orders.fifo import NO_DEPENDENCIES
from antiphon.orders.order import Order, frontier_of, singles_of

NO_PUBLICATIONS: Final[set[i64]] = set()
"""Shared by all that have none: it stays empty, and who has a first one begins a set of its own."""


@mypyc_attr(acyclic=True)
class DependencyTracker:
    """Knows what the next causal publication of one process must name."""

    def delivered(self, publication: Publication) -> None:
        """A publication of another process was delivered, and all before it of its source."""
        raise NotImplementedError

    def delivered_beyond_gap(self, source: i64, sequence: i64) -> None:
        """A publication was delivered, and something before it of its source was not."""
        raise NotImplementedError

    def gap_closed(self, source: i64, first: i64, last: i64) -> None:
        """The deliveries of a source between two numbers are not beyond a gap any more."""

    def take(self, past: PublicationSet) -> vec[i64]:
        """The publications that a causal one must name if it starts now; the next one names only new ones."""
        raise NotImplementedError

    def barrier(self) -> vec[i64]:
        """The publications that must also precede those of a later membership; empty where that is not needed."""
        return vec[i64]()

    def adopt(self, keys: vec[i64]) -> None:
        """Go on with the barrier of an earlier membership."""


@mypyc_attr(acyclic=True)
class Waiting:
    """A publication that had to wait; its dependencies before position ``checked`` are met."""

    def __init__(self, publication: Publication, checked: i64) -> None:
        self.publication: Final[Publication] = publication
        self.checked: i64 = checked


NOBODY_WAITS: Final[dict[i64, list[Waiting]]] = {}
"""Shared in the same way: a topic at rest has nothing that waits, and there may be very many such topics."""


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class CausalOrder(Order):
    """Waits for dependencies; ``tracker`` decides what own publications name.

    ``strength`` is the order of publications that name none. If orders are not ``mixed``, all publications are causal.
    """

    def __init__(self, me: i64, tracker: DependencyTracker, mixed: bool, strength: i64) -> None:
        super().__init__(strength)
        self.me: Final[i64] = me
        self._mixed: Final[bool] = mixed
        self._tracker: Final[DependencyTracker] = tracker
        # What counts as past.
        self._past: Final = PublicationSet()
        # Up to which numbers sources are complete. Computed when it is asked for and forgotten with the next change:
        # newcomers ask more often than it changes.
        self._frontier: vec[i64] = vec[i64]()
        # Keyed by the one delivery that each of the listed publications waits for.
        self._waiting_for: dict[i64, list[Waiting]] = NOBODY_WAITS
        self._held: set[i64] = NO_PUBLICATIONS

    def stamp(self, sequence: i64, order: i64 = CAUSAL) -> vec[i64]:
        assert order != TOTAL, "a total publication is not past when it starts; it names everything_before"
        assert sequence == self._past.counts.get(self.me) + 1, "own publications are stamped in sequence"
        self._past.add(self.me, sequence)
        self._frontier = vec[i64]()
        if order != CAUSAL:
            return NO_DEPENDENCIES
        # The own predecessor is implied by the sequence number and never listed.
        return self._tracker.take(self._past)

    def arrived(self, publication: Publication) -> list[Publication]:
        source, sequence, past = publication.source, publication.sequence, self._past
        if sequence <= past.counts.get(source) or (self._mixed and past.has_gaps() and past.has(source, sequence)):
            return []
        missing = self._missing(publication, 0)
        if missing != -1:
            self._hold(publication, missing)
            return []
        self._count(publication)
        released = [publication]
        if len(self._held) > 0:
            self._release_after(released)
        return released

    def waiting(self) -> i64:
        return len(self._held)

    def state(self) -> str:
        return f"{self._past.state()} {sorted(self._held)} {list(self.barrier())}"

    def barrier(self) -> vec[i64]:
        return self._tracker.barrier()

    def adopt_barrier(self, keys: vec[i64]) -> None:
        self._tracker.adopt(keys)

    # What counts as past.

    def past(self, source: i64) -> i64:
        """Up to which number the publications of ``source`` count as past."""
        return self._past.counts.get(source)

    def counts(self, key: i64) -> bool:
        return self._past.has(key & SOURCE_MASK, key >> SOURCE_BITS)

    def counts_any_of(self, source: i64) -> bool:
        """Whether a publication of this source counts as past."""
        return self._past.has_any_of(source)

    def frontier(self) -> vec[i64]:
        if len(self._frontier) == 0:
            self._frontier = frontier_of(self._past.counts.sorted_items())
        return followed_by(self._frontier, self._past.beyond()) if self._past.has_gaps() else self._frontier

    def start_from(self, frontier: vec[i64]) -> None:
        assert len(self._held) == 0, "a frontier is set before anything arrives"
        for key in frontier:
            self._past.complete_to(key & SOURCE_MASK, key >> SOURCE_BITS)
        for key in singles_of(frontier):
            self._past.add(key & SOURCE_MASK, key >> SOURCE_BITS)
        self._frontier = vec[i64]()

    def _count(self, publication: Publication) -> None:
        """Count a publication as past that may be delivered."""
        source, sequence = publication.source, publication.sequence
        if self._mixed and (self._past.has_gaps() or sequence > self._past.counts.get(source) + 1):
            self._count_beside_gaps(publication)
            return
        self._past.add_next(source, sequence)
        self._frontier = vec[i64]()
        self._tracker.delivered(publication)

    def _count_beside_gaps(self, publication: Publication) -> None:
        source, sequence = publication.source, publication.sequence
        is_next = sequence == self.past(source) + 1
        self._past.add(source, sequence)
        if not is_next:
            self._tracker.delivered_beyond_gap(source, sequence)
            return
        self._frontier = vec[i64]()
        self._tracker.delivered(publication)
        last = self.past(source)
        if last > sequence:
            self._tracker.gap_closed(source, sequence + 1, last)

    # What waits.

    def held_keys(self) -> list[i64]:
        """The keys of publications that have arrived and wait."""
        return sorted(self._held)

    def is_held(self, key: i64) -> bool:
        """Whether a publication has arrived and waits."""
        return key in self._held

    def _missing(self, publication: Publication, start: i64) -> i64:
        """The position of the first unmet dependency from ``start`` on; -1 if there is none.

        The position after the last one stands for the predecessor from the same source.
        """
        if publication.order == NONE:
            return -1
        past = self._past.counts
        dependencies = publication.dependencies
        end = len(dependencies)
        if past.get(publication.source) < publication.sequence - 1:
            return end
        if end == 0:
            return -1
        # Singles are passed over there: they read as sequence numbers below 0.
        missing = past.first_behind(dependencies, start)
        if missing != -1 or dependencies[end - 1] >= 0:
            return missing
        position = start
        while position < end:
            key = ~dependencies[position]
            if key >= 0 and not self._past.has(key & SOURCE_MASK, key >> SOURCE_BITS):
                return position
            position += 1
        return -1

    def _hold(self, publication: Publication, missing: i64) -> None:
        key = publication_key(publication.source, publication.sequence)
        if key in self._held:
            return
        if len(self._held) == 0:
            self._held = set()
        self._held.add(key)
        self.count_held()
        self._wait(Waiting(publication, 0), missing)

    def _wait(self, waiting: Waiting, missing: i64) -> None:
        publication = waiting.publication
        if missing < len(publication.dependencies):
            waiting.checked = missing
            key = publication.dependencies[missing]
        else:
            key = publication_key(publication.source, publication.sequence - 1)
        self._wait_under(key, waiting)

    def _wait_under(self, key: i64, waiting: Waiting) -> None:
        queue = self._waiting_for.get(key)
        if queue is None:
            if len(self._waiting_for) == 0:
                self._waiting_for = {}
            self._waiting_for[key] = [waiting]
        else:
            queue.append(waiting)

    def _release_after(self, released: list[Publication]) -> None:
        """Add to ``released`` all that its own members set free, directly or through each other."""
        position: i64 = 0
        while position < len(released):
            done = released[position]
            position += 1
            source, sequence = done.source, done.sequence
            if not self._mixed:
                self._release_waiting(publication_key(source, sequence), released)
                continue
            self._release_waiting(~publication_key(source, sequence), released)
            # If it closed a gap, all that was delivered beyond is complete now.
            while sequence <= self.past(source):
                self._release_waiting(publication_key(source, sequence), released)
                sequence += 1

    def _release_waiting(self, key: i64, released: list[Publication]) -> None:
        """Check the publications that waited under ``key``: add to ``released`` those that wait for nothing else."""
        queue = self._waiting_for.pop(key, None)
        if queue is None:
            return
        for waiting in queue:
            publication = waiting.publication
            missing = self._missing(publication, waiting.checked)
            if missing != -1:
                self._wait(waiting, missing)
                continue
            self._held.remove(publication_key(publication.source, publication.sequence))
            self._count(publication)
            released.append(publication)

    # Where something may be missing for good.

    def gaps(self) -> list[tuple[i64, i64]]:
        """The missing publications for which others wait: per source the number up to which all are missing."""
        found: dict[i64, i64] = {}
        for key in self._waiting_for:
            name = key if key >= 0 else ~key
            source, wanted = name & SOURCE_MASK, name >> SOURCE_BITS
            last = self._last_missing(source, wanted)
            if last > max(self.past(source), found.get(source, 0)):
                found[source] = last
        return sorted(found.items())

    def _last_missing(self, source: i64, wanted: i64) -> i64:
        """Up to which number, and at most up to ``wanted``, nothing of a source has arrived."""
        last = self.past(source)
        if wanted - last > len(self._held):
            # A peer that lies may name a number that is a trillion away.
            numbers = [key >> SOURCE_BITS for key in self._held if key & SOURCE_MASK == source]
            return max(last, min([each - 1 for each in numbers if last < each <= wanted], default=wanted))
        while last < wanted and publication_key(source, last + 1) not in self._held:
            last += 1
        return last

    def pass_over(self, source: i64, sequence: i64) -> list[Publication]:
        """Count everything of a source up to a number as past, delivered or not; return what may be delivered now.

        Nothing of it may be waiting here. The numbers are passed over one after the other, each with all that waited
        for it. Only a publication that is passed over names what it follows, and what waited for an earlier number may
        be part of that.
        """
        first = self.past(source) + 1
        number = first
        while number <= sequence:
            assert publication_key(source, number) not in self._held, "what has arrived is not passed over"
            number += 1
        released: list[Publication] = []
        number = first
        while number <= self.past(source) or number <= sequence:
            self._past.complete_to(source, number)
            self._frontier = vec[i64]()
            self._tracker.gap_closed(source, number, self.past(source))
            freed: list[Publication] = []
            self._release_waiting(publication_key(source, number), freed)
            self._release_waiting(~publication_key(source, number), freed)
            self._release_after(freed)
            released.extend(freed)
            number += 1
        return released


def followed_by(prefixes: vec[i64], singles: list[i64]) -> vec[i64]:
    """Numbers per source and single publications, both in order, as one set."""
    keys = prefixes
    for key in singles:
        keys = append(keys, ~key)
    return keys
