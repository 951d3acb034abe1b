"""The ordering component of EpTO: events wait until they are old enough, and leave in the order of their keys.

Thesis of M. Matos, section 5.2.4, Algorithm 5. The **key** of an event is (stamp, source, sequence): no two events have
the same, and all nodes compare them alike. Known events wait in a heap by key until they are delivered. Age is counted
in rounds: an event whose age was ``a`` in round ``r`` was **born** in round ``r - a``, so nothing has to be touched to
let all of them age, and the larger of two ages is the smaller of two births. In a round events leave while the one with
the smallest key is older than the limit. That is the published rule, by which an event leaves if it is old enough and
has a smaller key than everything that is not.

**Why order is never broken.** Keys leave in ascending order at every node, and what comes with a key that is not above
the last that left is refused. So any two nodes deliver what they both deliver in the order of the keys, whatever the
clocks, the network or the ages do. This needs the whole key in both places: where events leave, and where they are
accepted. The published algorithm compares stamps alone, and in line 9 the wrong way around
(:mod:`antiphon.fabrics.gossip.epto.published`).

**Holes.** A refused event is never delivered here. Numbers of one source have ascending keys. So when one leaves and an
earlier number of its source has not left, the earlier one never will: it is reported as lost at that moment, in the
place where it would have come. An event is reported at once if it is refused after everything known of its source.
Where only some numbers of a source are events (``is_alone`` is false) nothing follows from numbers: a refused event is
reported, perhaps several times, and the caller knows which events were delivered.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.gossip.epto.messages import Stamped
from antiphon.kernel.integer_map import IntegerMap
from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK
from antiphon.kernel.process import Environment

NEW: Final[i64] = 0
WAITING: Final[i64] = 1
DONE: Final[i64] = 2
"""An event has just been heard of; waits to be delivered; or was delivered, refused or given up."""


@final
class KnownEvent:
    """An event that a node knows of. ``publication`` is missing while only its name has come."""

    def __init__(self, name: i64, stamp: i64, publication: Stamped | None) -> None:
        self.name: Final[i64] = name
        self.stamp: Final[i64] = stamp
        self.publication: Stamped | None = publication
        self.state: i64 = NEW
        self.born: i64 = 0
        self.place: i64 = 0
        # Whether events with larger keys have left before it.
        self.is_late: bool = False

    def source(self) -> i64:
        """The node that published it."""
        return self.name & SOURCE_MASK

    def sequence(self) -> i64:
        """Which of its source's it is."""
        return self.name >> SOURCE_BITS

    def is_before(self, other: KnownEvent) -> bool:
        """Whether its key is the smaller one."""
        if self.stamp != other.stamp:
            return self.stamp < other.stamp
        mine, theirs = self.name & SOURCE_MASK, other.name & SOURCE_MASK
        return mine < theirs if mine != theirs else self.name < other.name


@mypyc_attr(allow_interpreted_subclasses=True)
class EptoClock:
    """Where stamps come from (thesis, Figure 5.5)."""

    def stamp(self, last: i64) -> i64:
        """The stamp of an event that begins now; ``last`` is the stamp of the last one that was delivered here."""
        raise NotImplementedError

    def on_stamp(self, stamp: i64) -> None:
        """An event with this stamp has been heard of."""

    def reading(self) -> i64:
        """The stamp that a newcomer must not fall behind."""
        return 0

    def begin_after(self, stamp: i64) -> None:
        """Somebody else has read this; no stamp of this clock is to be below it."""
        self.on_stamp(stamp)


@final
class HostClock(EptoClock):
    """The clock of the host that all share as far as they can; it need not be exact.

    ``offset`` ticks and ``parts_per_million`` are by how much it is wrong, where a simulation says so; it shows
    multiples of ``granularity``. A clock that is behind could stamp an event below one that was delivered here already,
    and the event would be refused by its own publisher. So a stamp is above the last delivered one in any case.
    """

    def __init__(
        self, environment: Environment, offset: i64 = 0, parts_per_million: i64 = 0, granularity: i64 = 1
    ) -> None:
        self._environment: Final[Environment] = environment
        self._offset: Final[i64] = offset
        self._parts_per_million: Final[i64] = parts_per_million
        self._granularity: Final[i64] = granularity
        self._latest: i64 = 0

    def stamp(self, last: i64) -> i64:
        now = self._environment.shared_time()
        shown = now + self._offset + now * self._parts_per_million // 1_000_000
        shown -= shown % self._granularity
        self._latest = max(shown, last + 1, self._latest)
        return self._latest

    def begin_after(self, stamp: i64) -> None:
        self._latest = max(self._latest, stamp)


@final
class LogicalClock(EptoClock):
    """Lamport's clock: a count that is ahead of everything that has been heard of."""

    def __init__(self) -> None:
        self._count: i64 = 0

    def stamp(self, last: i64) -> i64:
        self._count += 1
        return self._count

    def on_stamp(self, stamp: i64) -> None:
        if stamp > self._count:
            self._count = stamp

    def reading(self) -> i64:
        return self._count


@mypyc_attr(allow_interpreted_subclasses=True)
class Ordering:
    """The interface of ordering components: take events that balls bring, and say which may be delivered.

    ``is_founder`` if the node is there from the start, so that it may expect every source's numbers from 1 on;
    ``is_alone`` if all publications of the topic are events.
    """

    def __init__(self, environment: Environment, topic: i64, is_founder: bool, is_alone: bool = True) -> None:
        self._environment: Final[Environment] = environment
        self._topic: Final[i64] = topic
        self._is_founder: Final[bool] = is_founder
        self._is_alone: Final[bool] = is_alone
        self._last_of: Final[IntegerMap] = IntegerMap()
        self.last_stamp: i64 = -1
        self.holes: i64 = 0

    def offer(self, event: KnownEvent, born: i64) -> None:
        """An event has come by a ball: its age says that it was born in this round, or earlier."""
        raise NotImplementedError

    def release(self, latest_birth: i64) -> list[KnownEvent]:
        """The events that may be delivered, in order; those born after ``latest_birth`` are too young."""
        raise NotImplementedError

    def waiting(self) -> list[KnownEvent]:
        """The waiting events, in order."""
        raise NotImplementedError

    def count(self) -> i64:
        """How many wait."""
        raise NotImplementedError

    def next(self) -> KnownEvent | None:
        """The event that is to be delivered next and keeps all others back, if there is one."""
        raise NotImplementedError

    def give_up(self, event: KnownEvent) -> None:
        """The next event cannot be delivered: nobody had its payload."""
        raise NotImplementedError

    def delivering(self, event: KnownEvent) -> None:
        """An event is delivered: what its source published before and has not been delivered never will be."""
        if self._is_alone:
            source, sequence = event.source(), event.sequence()
            self._report(source, self._last_known(source, sequence - 1) + 1, sequence - 1)
            self._last_of.put(source, sequence)
        self.last_stamp = event.stamp
        event.state = DONE

    def is_past(self, name: i64, stamp: i64) -> bool:
        """Whether an event that is not known, or not any more, is certainly too late; if so that is reported."""
        if stamp >= self.last_stamp:
            return False
        self._pass_over(name & SOURCE_MASK, name >> SOURCE_BITS)
        return True

    def has_left(self, name: i64, stamp: i64) -> bool:
        """Whether an event that is not known any more was delivered, or reported, here."""
        return stamp <= self.last_stamp and (name >> SOURCE_BITS) <= self._last_known(name & SOURCE_MASK, -1)

    def refuse(self, event: KnownEvent) -> None:
        """An event cannot be delivered here any more; it is reported unless that was done, or it was delivered."""
        event.state = DONE
        self._pass_over(event.source(), event.sequence())

    def _pass_over(self, source: i64, sequence: i64) -> None:
        if not self._is_alone:
            self._report(source, sequence, sequence)
            return
        last = self._last_known(source, sequence - 1)
        if sequence > last:
            self._report(source, last + 1, sequence)
            self._last_of.put(source, sequence)

    def _last_known(self, source: i64, otherwise: i64) -> i64:
        """The last number of a source that was delivered or reported; a newcomer has no right to earlier ones."""
        return self._last_of.get(source, 0 if self._is_founder else otherwise)

    def _report(self, source: i64, first: i64, last: i64) -> None:
        for sequence in range(first, last + 1):
            self.holes += 1
            self._environment.lost(self._topic, source, sequence)


@final
class EventHeap:
    """Events by key, the smallest first."""

    def __init__(self) -> None:
        self._events: Final[list[KnownEvent]] = []

    def count(self) -> i64:
        """How many there are."""
        return len(self._events)

    def first(self) -> KnownEvent | None:
        """The event with the smallest key."""
        return self._events[0] if len(self._events) > 0 else None

    def in_order(self) -> list[KnownEvent]:
        """All of them, by key."""
        return sorted_by_key(self._events)

    def push(self, event: KnownEvent) -> None:
        """Put one in."""
        heap = self._events
        heap.append(event)
        place: i64 = len(heap) - 1
        while place > 0:
            parent = (place - 1) >> 1
            if not event.is_before(heap[parent]):
                break
            heap[place] = heap[parent]
            place = parent
        heap[place] = event

    def pop(self) -> None:
        """Take the first one out."""
        heap = self._events
        moved = heap.pop()
        size: i64 = len(heap)
        if size == 0:
            return
        place: i64 = 0
        while True:
            child = 2 * place + 1
            if child >= size:
                break
            if child + 1 < size and heap[child + 1].is_before(heap[child]):
                child += 1
            if not heap[child].is_before(moved):
                break
            heap[place] = heap[child]
            place = child
        heap[place] = moved


@final
class KeyOrdering(Ordering):
    """The order of whole keys."""

    def __init__(self, environment: Environment, topic: i64, is_founder: bool, is_alone: bool = True) -> None:
        super().__init__(environment, topic, is_founder, is_alone)
        self._heap: Final = EventHeap()
        self._last: KnownEvent | None = None

    def last(self) -> KnownEvent | None:
        """The event that left last, if any did."""
        return self._last

    def start_after(self, last: KnownEvent) -> list[KnownEvent]:
        """Go on after an earlier membership of this node, or where a neighbour is: what is not above this is refused.

        Gives the events that waited and are refused now.
        """
        refused: list[KnownEvent] = []
        if self._last is not None and last.is_before(self._last):
            return refused
        self._last = last
        self.last_stamp = last.stamp
        event = self._heap.first()
        while event is not None and not last.is_before(event):
            self._heap.pop()
            self.refuse(event)
            refused.append(event)
            event = self._heap.first()
        return refused

    def offer(self, event: KnownEvent, born: i64) -> None:
        if event.state == WAITING:
            if born < event.born:
                event.born = born
        elif event.state == NEW:
            last = self._last
            if last is not None and not last.is_before(event):
                self.refuse(event)
                return
            event.state = WAITING
            event.born = born
            self._heap.push(event)

    def release(self, latest_birth: i64) -> list[KnownEvent]:
        found: list[KnownEvent] = []
        event = self._heap.first()
        while event is not None and event.born <= latest_birth and event.publication is not None:
            self._heap.pop()
            self.delivering(event)
            self._last = event
            found.append(event)
            event = self._heap.first()
        return found

    def next(self) -> KnownEvent | None:
        return self._heap.first()

    def give_up(self, event: KnownEvent) -> None:
        assert event is self._heap.first(), "only what is next keeps others waiting"
        self._heap.pop()
        # It counts as passed: what comes before it in order may not be delivered after the next one.
        self.refuse(event)
        self._last = event
        self.last_stamp = event.stamp

    def count(self) -> i64:
        return self._heap.count()

    def waiting(self) -> list[KnownEvent]:
        return self._heap.in_order()


def sorted_by_key(events: list[KnownEvent]) -> list[KnownEvent]:
    """Events by key; for observers, too slow for delivery."""
    return sorted(events, key=lambda event: (int(event.stamp), int(event.source()), int(event.sequence())))
