"""When VCube-PS as published delivers: causal barriers with ``first_rec`` and ``last_delvs``.

A publication waits until each (s, c) of its barrier is *satisfied* at this node (CHECKCB, lines 95 to 98 of Algorithm 4
in the thesis): something from s with a counter of at least c was delivered, or the first that was received from s since
this node joined has a counter above c. The latter relies on per-source order of reception: a publication older than the
first will not arrive any more. Counters of one source within one topic increase but have gaps, so nothing can be
concluded from a counter alone.

The printed CHECKDELIVERY scans all waiting publications at every reception, and again after every delivery. Here a
publication waits for *one* unsatisfied dependency and is checked again when something happens to the source of that
one: a delivery, a first reception, or (where silent sources are not waited for) a departure. As in the printed
algorithm, it is delivered only when some publication is received. It is checked again from the beginning, because a
departure makes ``first_rec`` forget, and with it a satisfied dependency can become unsatisfied again.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.kernel.counters import Counters
from antiphon.kernel.integer_map import IntegerMap
from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK, publication_key
from antiphon_lab.protocols.cube.published_messages import Pub

NOTHING: Final[i64] = -1
ANY_COUNTER: Final[i64] = 1 << 60
SATISFIED: Final[i64] = -1


@final
class Parked:
    """A publication in ``not_delvs``, and the counter of the dependency that it waits for."""

    def __init__(self, publication: Pub, needed: i64) -> None:
        self.publication: Final[Pub] = publication
        self.needed: Final[i64] = needed


@final
class PublishedDelivery:
    """The variables first_rec, last_delvs, not_delvs and causal_barrier of one topic at one node.

    ``prunes``: whether a delivery removes the publication's dependencies from the barrier; ``waits_for_unheard``:
    whether a dependency on a source without receptions must be waited for.
    """

    def __init__(self, me: i64, prunes: bool, waits_for_unheard: bool) -> None:
        self._me: Final[i64] = me
        self._prunes: Final[bool] = prunes
        self._waits_for_unheard: Final[bool] = waits_for_unheard
        self._first_received: Counters = Counters()
        self._last_delivered: Counters = Counters()
        # The keys of the next publication's barrier; the values mean nothing.
        self._barrier: IntegerMap = IntegerMap()
        # By the source of the dependency that each one waits for.
        self._parked: dict[i64, list[Parked]] = {}
        self._to_check: list[Parked] = []
        self._waiting: i64 = 0
        # Over all memberships: how many publications had to wait, and the most that did at one time.
        self.held_total: i64 = 0
        self.held_peak: i64 = 0

    def first(self, source: i64) -> i64:
        """The counter of the first publication received from ``source``, or ``NOTHING``."""
        first = self._first_received.get(source)
        return first if first > 0 else NOTHING

    def waiting(self) -> i64:
        """How many publications have been received and not delivered."""
        return self._waiting

    def barrier(self) -> vec[i64]:
        """The dependencies of the next publication of this node."""
        keys = vec[i64](capacity=len(self._barrier))
        for key, _ in self._barrier.sorted_items():
            keys = append(keys, key)
        return keys

    def publish(self, counter: i64) -> vec[i64]:
        """This node publishes, and delivers at once; the answer is the barrier that the publication carries."""
        if self._first_received.get(self._me) == 0:
            self._first_received.put(self._me, counter)
        self._last_delivered.put(self._me, counter)
        self._look_again(self._me, counter)
        barrier = self.barrier()
        self._barrier = IntegerMap()
        self._barrier.put(publication_key(self._me, counter), 0)
        return barrier

    def received(self, publication: Pub) -> list[Pub]:
        """A publication has arrived; returns the publications that may be delivered now, in order."""
        source = publication.source
        if self._first_received.get(source) == 0:
            self._first_received.put(source, publication.sequence)
            self._look_again(source, publication.sequence - 1)
        released: list[Pub] = []
        self._waiting += 1
        self._check(publication, released)
        position: i64 = 0
        while position < len(self._to_check):
            self._check(self._to_check[position].publication, released)
            position += 1
        if position > 0:
            self._to_check = []
        if self._waiting > 0 and publication not in released:
            self.held_total += 1
            if self._waiting > self.held_peak:
                self.held_peak = self._waiting
        return released

    def source_left(self, source: i64) -> None:
        """``source`` has unsubscribed: if it comes back, another first publication must be received from it."""
        self._first_received.forget(source)
        if not self._waits_for_unheard:
            self._look_again(source, ANY_COUNTER)

    def leave(self, forgets_last: bool, forgets_barrier: bool) -> None:
        """This node has left: waiting publications are dropped, and receptions are forgotten."""
        self._first_received = Counters()
        if forgets_last:
            self._last_delivered = Counters()
        if forgets_barrier:
            self._barrier = IntegerMap()
        self._parked = {}
        self._to_check = []
        self._waiting = 0

    def state(self) -> str:
        """The content as text, to compare states."""
        parked = [
            (source, [(each.publication.source, each.publication.sequence, each.needed) for each in queue])
            for source, queue in sorted(self._parked.items())
        ]
        to_check = [(each.publication.source, each.publication.sequence) for each in self._to_check]
        heard = f"{self._first_received.sorted_items()} {self._last_delivered.sorted_items()}"
        return f"{heard} {list(self.barrier())} {parked} {to_check}"

    def _check(self, publication: Pub, released: list[Pub]) -> None:
        """Deliver a publication, or let it wait for the first dependency that is not satisfied."""
        missing = self._missing(publication.barrier)
        if missing != SATISFIED:
            source = missing & SOURCE_MASK
            parked = Parked(publication, missing >> SOURCE_BITS)
            queue = self._parked.get(source)
            if queue is None:
                self._parked[source] = [parked]
            else:
                queue.append(parked)
            return
        self._waiting -= 1
        self._last_delivered.put(publication.source, publication.sequence)
        barrier = self._barrier
        if self._prunes and len(barrier) > 0:
            for key in publication.barrier:
                barrier.remove(key)
        barrier.put(publication_key(publication.source, publication.sequence), 0)
        released.append(publication)
        self._look_again(publication.source, publication.sequence)

    def _missing(self, barrier: vec[i64]) -> i64:
        """The first dependency that is not satisfied, or ``SATISFIED``."""
        position: i64 = 0
        while True:
            position = self._last_delivered.first_behind(barrier, position)
            if position < 0:
                return SATISFIED
            key = barrier[position]
            first = self.first(key & SOURCE_MASK)
            is_too_old = first > key >> SOURCE_BITS
            if not is_too_old and (first != NOTHING or self._waits_for_unheard):
                return key
            position += 1

    def _look_again(self, source: i64, counter: i64) -> None:
        """Dependencies on ``source`` up to ``counter`` may be satisfied now."""
        if len(self._parked) == 0:
            return
        queue = self._parked.pop(source, None)
        if queue is None:
            return
        still: list[Parked] = []
        for parked in queue:
            if parked.needed <= counter:
                self._to_check.append(parked)
            else:
                still.append(parked)
        if len(still) > 0:
            self._parked[source] = still
