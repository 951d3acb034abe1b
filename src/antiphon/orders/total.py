"""Total order per key, above mixed orders: a total publication is a synchronisation point for its keys.

If one process delivers a publication about a key before a total one about that key, no process delivers it after
that one, whatever its order. So total publications about a key come in one order everywhere.

The rule. The fabric sees to it that for every total publication ``m``

* a **lock** with the keys of ``m`` reaches every process before ``m`` starts, and a process that has the lock begins
  nothing about these keys until it has delivered ``m``: it is *closed*;
* ``m`` names, per source, the last publication that this source had begun when it closed (its *dependencies*);
* of two total publications with a common key one, that with the lower **place**, starts before the lock of the other
  leaves, so the other names it.

Here, where publications arrive, a weaker publication ``w`` about a locked key waits until ``m`` is here, which says
on which side ``w`` belongs: if ``m`` names ``w``, or ``w`` is an earlier one of the same source, then ``w`` goes
first, and ``m`` waits for it as for everything that it names; if not, ``w`` waits until ``m`` is delivered. Of
several locks on a key the one with the lowest place decides: who goes before that one goes before all.

*Why all agree.* On which side of ``m`` a publication belongs is written in ``m``, the same for all. If ``m`` names
``w``, nobody delivers ``m`` first. If not, the source of ``w`` began it when it was not closed any more, so after it
had delivered ``m``, after ``m`` had started, after everybody had the lock; whoever gets ``w`` has the lock or has
delivered ``m``, and waits.

*Why nobody waits for ever.* What ``m`` names has started before ``m``; and ``w`` waits for the delivery of ``m`` only
if ``m`` started before ``w``. So these waits go back in time and form no circle. To wait for the arrival of ``m`` is
to wait for the network and for the locks of ``m``, which wait for nothing here.

A total publication is not delivered by its source at once, but like any other when all that it names is past: what
counts as past stays closed under what publications wait for, and newcomers may start from it as from any order's.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.counters import Counters
from antiphon.kernel.message import CAUSAL, SOURCE_BITS, SOURCE_MASK, TOTAL, Publication, publication_key
from antiphon.orders.barriers import CausalBarrier
from antiphon.orders.causal import NO_PUBLICATIONS, CausalOrder, Waiting
from antiphon.orders.order import frontier_of, merged_frontiers, prefixes_of

ALL_SHARE: Final = vec[i64]([0])
"""Publications that name no key are about this one."""

NOTHING: Final[i64] = -1


@final
@mypyc_attr(acyclic=True)
class Lock:
    """A total publication that will come, or has come and waits.

    ``attempt`` counts how often its source has locked anew, where nodes may fail.
    """

    def __init__(self, source: i64, sequence: i64, keys: vec[i64], place: i64, attempt: i64) -> None:
        self.source: Final[i64] = source
        self.sequence: Final[i64] = sequence
        self.keys: Final[vec[i64]] = keys
        self.place: Final[i64] = place
        self.attempt: Final[i64] = attempt
        self.publication: Publication | None = None


NO_LOCKS: Final[dict[i64, Lock]] = {}
NO_LOCKED_KEYS: Final[dict[i64, list[Lock]]] = {}
"""Shared by all topics without locks: they stay empty, and a first lock begins others."""


@final
@mypyc_attr(acyclic=True)
class TotalOrder(CausalOrder):
    """Serves publications of all orders, about keys or not; ``strength`` is that of publications that name none."""

    def __init__(self, me: i64, strength: i64 = CAUSAL) -> None:
        # Own total publications are delivered like others, and implied by the numbers of those that follow.
        super().__init__(me, CausalBarrier(True, me), True, strength)
        # Per source the highest number that arrived before all below it counted as past.
        self._ahead: Counters | None = None
        self._locks: dict[i64, Lock] = NO_LOCKS
        # By key, those with lower places first.
        self._locks_of: dict[i64, list[Lock]] = NO_LOCKED_KEYS
        # What waits and is not held up by locks any more.
        self._let_go: set[i64] = NO_PUBLICATIONS

    # Locks.

    def lock(self, source: i64, sequence: i64, keys: vec[i64], place: i64, attempt: i64 = 0) -> None:
        """A total publication about some keys will come, unless it has been here."""
        name = publication_key(source, sequence)
        known = self._locks.get(name)
        if sequence <= self.past(source) or (known is not None and known.place == place):
            return
        if known is not None:
            if known.publication is not None:
                # Word of an earlier grant comes late: the publication is here, and will not come once more.
                return
            # It was granted anew.
            self._unlock(name)
        lock = Lock(source, sequence, keys, place, attempt)
        if len(self._locks) == 0:
            self._locks = {}
            self._locks_of = {}
        self._locks[name] = lock
        for key in keys:
            locks = self._locks_of.setdefault(key, [])
            position = len(locks)
            while position > 0 and locks[position - 1].place > place:
                position -= 1
            locks.insert(position, lock)

    def is_closed(self, keys: vec[i64]) -> bool:
        """Whether nothing may begin here about some keys."""
        return len(self._locks) > 0 and any(key in self._locks_of for key in keys)

    def open_locks(self) -> i64:
        """How many total publications are announced and not delivered."""
        return len(self._locks)

    def _unlock(self, name: i64) -> None:
        lock = self._locks.pop(name, None)
        if lock is None:
            return
        for key in lock.keys:
            locks = self._locks_of[key]
            locks.remove(lock)
            if len(locks) == 0:
                del self._locks_of[key]

    def pass_over(self, source: i64, sequence: i64) -> list[Publication]:
        for lock in [lock for lock in self._locks.values() if lock.source == source and lock.sequence <= sequence]:
            self._unlock(publication_key(source, lock.sequence))
        released = super().pass_over(source, sequence)
        self._release_waiting(publication_key(source, 0), released)
        self._release_after(released)
        return released

    def locks(self) -> list[Lock]:
        """The total publications that are announced and not delivered."""
        return list(self._locks.values())

    def has_unknown_before(self, place: i64, keys: vec[i64]) -> bool:
        """Whether a total publication about one of these keys is announced for an earlier place, and is not here."""
        return any(
            lock.place < place and lock.publication is None for key in keys for lock in self._locks_of.get(key, [])
        )

    def withdraw(self, locks: list[Lock]) -> list[Publication]:
        """Wait no longer for these locks; return what may be delivered now."""
        released: list[Publication] = []
        for lock in locks:
            self._unlock(publication_key(lock.source, lock.sequence))
        for source in sorted({lock.source for lock in locks}):
            self._release_waiting(publication_key(source, 0), released)
        self._release_after(released)
        return released

    def break_circle(self) -> list[Publication]:
        """Where everything is here that is waited for, what waits does so in a circle; what may be delivered now.

        That is only so where two parts of a system did not know of each other: what one began about a key the total
        publications of the other do not name. Then that with the lowest place goes first, with all that it follows.
        """
        if len(self._held) == 0 or len(self._locks) == 0:
            return []
        if any(lock.publication is None for lock in self._locks.values()) or len(self.gaps()) > 0:
            return []
        held = {
            publication_key(waiting.publication.source, waiting.publication.sequence): waiting.publication
            for queue in self._waiting_for.values()
            for waiting in queue
        }
        first = min(self._locks.values(), key=place_of)
        following = [publication_key(first.source, first.sequence)]
        while len(following) > 0:
            publication = held.get(following.pop())
            if publication is None:
                continue
            for last in [publication_key(publication.source, publication.sequence - 1), *publication.dependencies]:
                following += self._let_go_until(last if last >= 0 else ~last, held)
        released: list[Publication] = []
        for lock in self.locks():
            self._release_waiting(publication_key(lock.source, lock.sequence), released)
        self._release_after(released)
        return released

    def _let_go_until(self, last: i64, held: dict[i64, Publication]) -> list[i64]:
        """No lock holds up what waits of a source up to one of its publications; what that is and was not before."""
        source, sequence = last & SOURCE_MASK, last >> SOURCE_BITS
        found: list[i64] = []
        first = self.past(source) + 1
        if sequence - first > len(held):
            # A peer that lies may name a number that is a trillion away.
            numbers = sorted([key >> SOURCE_BITS for key in held if key & SOURCE_MASK == source])
        else:
            numbers = list(range(first, sequence + 1))
        for number in numbers:
            key = publication_key(source, number)
            if first <= number <= sequence and key in held and key not in self._let_go:
                if len(self._let_go) == 0:
                    self._let_go = set()
                self._let_go.add(key)
                found.append(key)
        return found

    def everything_before(self, closed: vec[i64]) -> vec[i64]:
        """The predecessors of a total publication of this process: all it has seen, and what others had when they
        closed.

        Also what waiting publications name: or else something could wait for this one that those wait for.
        """
        known = merged_frontiers(self._started(), closed)
        for queue in self._waiting_for.values():
            for waiting in queue:
                known = merged_frontiers(known, reached_by(waiting.publication.dependencies))
        names = vec[i64](capacity=len(known))
        for key in known:
            # Its own predecessors are implied by its number.
            if key & SOURCE_MASK != self.me:
                names = append(names, key)
        return names

    def _started(self) -> vec[i64]:
        """Per source the highest number that has arrived or counts as past: it has started."""
        past = prefixes_of(self.frontier())
        return past if self._ahead is None else merged_frontiers(past, frontier_of(self._ahead.sorted_items()))

    # What every order does.

    def arrived(self, publication: Publication) -> list[Publication]:
        lock = None
        key = publication_key(publication.source, publication.sequence)
        if publication.order == TOTAL:
            lock = self._locks.get(key)
        elif len(self._held) > 0 and key in self._held:
            # A lock for an earlier place may have come since its first copy had to wait, and would let this one pass.
            return []
        released = super().arrived(publication) if lock is None else self._lock_arrived(lock, publication)
        if publication.sequence > self._past.counts.get(publication.source):
            ahead = self._ahead
            if ahead is None:
                ahead = self._ahead = Counters()
            ahead.raise_to(publication.source, publication.sequence)
        return released

    def _lock_arrived(self, lock: Lock, publication: Publication) -> list[Publication]:
        """A total publication has come that was announced."""
        lock.publication = publication
        released: list[Publication] = []
        self._release_waiting(arrival_of(lock), released)
        self._release_after(released)
        released.extend(super().arrived(publication))
        return released

    def start_from(self, frontier: vec[i64]) -> None:
        super().start_from(frontier)
        for name in [name for name in self._locks if self.counts(name)]:
            self._unlock(name)

    def state(self) -> str:
        locks = [(name, lock.place, lock.publication is not None) for name, lock in sorted(self._locks.items())]
        return f"{super().state()} {list(self._started())} {locks} {sorted(self._let_go)}"

    def _count(self, publication: Publication) -> None:
        super()._count(publication)
        if len(self._let_go) > 0:
            self._let_go.discard(publication_key(publication.source, publication.sequence))
        if publication.order == TOTAL:
            self._unlock(publication_key(publication.source, publication.sequence))

    def _missing(self, publication: Publication, start: i64) -> i64:
        missing = super()._missing(publication, start)
        if missing != -1 or len(self._locks) == 0 or publication.order == TOTAL:
            return missing
        # The position behind that of the predecessor stands for a lock.
        return -1 if self._obstacle(publication) == NOTHING else len(publication.dependencies) + 1

    def _wait(self, waiting: Waiting, missing: i64) -> None:
        publication = waiting.publication
        if missing <= len(publication.dependencies):
            super()._wait(waiting, missing)
            return
        self._wait_under(self._obstacle(publication), waiting)

    def _obstacle(self, publication: Publication) -> i64:
        """The key of ``_waiting_for`` under which a weaker publication waits because of a lock, or ``NOTHING``."""
        if len(self._let_go) > 0 and publication_key(publication.source, publication.sequence) in self._let_go:
            return NOTHING
        for key in keys_of(publication):
            locks = self._locks_of.get(key)
            if locks is not None:
                obstacle = obstacle_of(locks[0], publication)
                if obstacle != NOTHING:
                    return obstacle
        return NOTHING


def reached_by(keys: vec[i64]) -> vec[i64]:
    """A set of publications that holds these, with all before them from their sources."""
    highest: dict[i64, i64] = {}
    for key in keys:
        one = key if key >= 0 else ~key
        source = one & SOURCE_MASK
        highest[source] = max(one, highest.get(source, 0))
    return vec[i64]([highest[source] for source in sorted(highest)])


def obstacle_of(lock: Lock, publication: Publication) -> i64:
    """The event for which a weaker publication waits because of one lock, or ``NOTHING``."""
    if lock.source == publication.source:
        if publication.sequence < lock.sequence:
            return NOTHING
    else:
        total = lock.publication
        if total is None:
            return arrival_of(lock)
        if names(total, publication):
            return NOTHING
    return publication_key(lock.source, lock.sequence)


def keys_of(publication: Publication) -> vec[i64]:
    """The keys that a publication is about."""
    keys = publication.total_order_keys()
    return keys if len(keys) > 0 else ALL_SHARE


def place_of(lock: Lock) -> tuple[i64, i64]:
    """The sort key of total publications; two lock managers may have given the same place."""
    return lock.place, lock.source


def arrival_of(lock: Lock) -> i64:
    """Stands for the arrival of total publications of a source: there is no publication 0."""
    return publication_key(lock.source, 0)


def names(total: Publication, publication: Publication) -> bool:
    """Whether a total publication names another one; what it names is sorted by source."""
    keys = total.dependencies
    low: i64 = 0
    high: i64 = len(keys)
    while low < high:
        middle = (low + high) // 2
        if (keys[middle] & SOURCE_MASK) < publication.source:
            low = middle + 1
        else:
            high = middle
    if low == len(keys) or keys[low] & SOURCE_MASK != publication.source:
        return False
    return keys[low] >> SOURCE_BITS >= publication.sequence
