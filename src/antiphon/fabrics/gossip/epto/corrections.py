"""Corrective deliveries: an event that comes too late is put into its place afterwards, instead of being dropped.

Thesis of M. Matos, section 5.5, which proposes this and leaves it open. EpTO has no final order, so nobody can say that
a correction was the last one: this is *unconscious eventual consistency* (Baldoni et al., 2006). All nodes that have
heard of the same events have the same sequence in the end, and none of them knows when that is.

**The programming model.** An application keeps a log and a state that follows from it (:class:`RevisableState`). A
delivery is applied at the end. A correction comes with its key, and so with its place: what comes after that place is
taken back, the newest first, the late event is applied, and the others are applied again (:class:`CorrectedLog`). So
the state is at any time the one that the known events give in the order of their keys. An application may show it to
people; it must not do anything because of it that cannot be taken back. ``Epto.tentative()`` says how likely something
can still come before an event that waits.

**What the ordering component remembers** is which numbers of each source have left, as intervals. The published one
remembers the last key alone. A source has at most :data:`MOST_GAPS` gaps: beyond that the oldest gap counts as
delivered, so an event from it is ignored.

Corrections need whole balls: a late event whose payload is still to come would hold back all that is in time. Topics of
live nodes do not offer them. There a total publication has an offset in a log, its readers confirm offsets, and causal
publications wait for it. All of that takes a place for final.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.gossip.epto.messages import Stamped
from antiphon.fabrics.gossip.epto.order import DONE, NEW, WAITING, EventHeap, KnownEvent, Ordering
from antiphon.kernel.errors import UsageError
from antiphon.kernel.interval_set import IntervalSet
from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK
from antiphon.kernel.process import Environment

MOST_GAPS: Final[i64] = 1024
"""Of one source. A gap is an event, or several in a row, that this node has not heard of."""

Key = tuple[int, int, int]


@final
class CorrectingOrdering(Ordering):
    """The order of whole keys, in which late events leave at once and say so."""

    def __init__(self, environment: Environment, topic: i64, is_founder: bool) -> None:
        super().__init__(environment, topic, is_founder)
        self._heap: Final = EventHeap()
        self._last: KnownEvent | None = None
        # By source the numbers that have left.
        self._left: Final[dict[i64, IntervalSet]] = {}

    def offer(self, event: KnownEvent, born: i64) -> None:
        if event.state == WAITING:
            if born < event.born:
                event.born = born
        elif event.state == NEW:
            if self._was_delivered(event.name):
                event.state = DONE
                return
            event.state = WAITING
            event.born = born
            self._heap.push(event)

    def release(self, latest_birth: i64) -> list[KnownEvent]:
        found: list[KnownEvent] = []
        event = self._heap.first()
        while event is not None:
            last = self._last
            event.is_late = last is not None and event.is_before(last)
            # Nothing is won by letting a late one become older: what should have waited for it has left.
            if event.born > latest_birth and not event.is_late:
                break
            self._heap.pop()
            self.delivering(event)
            found.append(event)
            event = self._heap.first()
        return found

    def delivering(self, event: KnownEvent) -> None:
        source = event.source()
        numbers = self._left.get(source)
        if numbers is None:
            numbers = IntervalSet(most_gaps=MOST_GAPS)
            self._left[source] = numbers
        numbers.add(event.sequence())
        event.state = DONE
        if not event.is_late:
            self._last = event
            self.last_stamp = event.stamp

    def _was_delivered(self, name: i64) -> bool:
        numbers = self._left.get(name & SOURCE_MASK)
        return numbers is not None and numbers.has(name >> SOURCE_BITS)

    def is_past(self, name: i64, stamp: i64) -> bool:
        """Nothing is too late; what was delivered need not be looked at."""
        return self._was_delivered(name)

    def has_left(self, name: i64, stamp: i64) -> bool:
        return self._was_delivered(name)

    def count(self) -> i64:
        return self._heap.count()

    def next(self) -> KnownEvent | None:
        return self._heap.first()

    def waiting(self) -> list[KnownEvent]:
        return self._heap.in_order()


@mypyc_attr(allow_interpreted_subclasses=True)
class RevisableState:
    """The interface of an application that can take back what it has done."""

    def apply(self, publication: Stamped) -> None:
        """The next event of the sequence."""
        raise NotImplementedError

    def take_back(self, publication: Stamped) -> None:
        """Undo the event that was applied last."""
        raise NotImplementedError


def key_of(publication: Stamped) -> Key:
    """The place of an event in the one order."""
    return int(publication.stamp), int(publication.source), int(publication.sequence)


@final
class CorrectedLog:
    """The events that a node has delivered, in the order of their keys, and the state that follows from them.

    The last ``horizon`` events can be taken back. A correction from before them is not applied, and counted in
    ``beyond_horizon``: from then on this node may differ from others.
    """

    def __init__(self, state: RevisableState, horizon: i64 = 1024) -> None:
        if horizon < 1:
            raise UsageError(f"a horizon of {horizon} leaves nothing to correct; choose at least 1")
        self._state: Final[RevisableState] = state
        self._horizon: Final[i64] = horizon
        # Its last events, and their keys.
        self.events: Final[list[Stamped]] = []
        self._keys: Final[list[Key]] = []
        self._is_trimmed: bool = False
        self.corrections: i64 = 0
        self.taken_back: i64 = 0
        self.beyond_horizon: i64 = 0

    def delivered(self, publication: Stamped) -> None:
        """A delivery in order."""
        self._insert(len(self.events), publication)

    def corrected(self, publication: Stamped) -> i64:
        """A corrective delivery; the number of events that were taken back for it, -1 if it is beyond the horizon."""
        place: i64 = bisect_left(self._keys, key_of(publication))
        if place == 0 and self._is_trimmed:
            self.beyond_horizon += 1
            return -1
        behind: i64 = len(self.events) - place
        self.corrections += 1
        self.taken_back += behind
        self._insert(place, publication)
        return behind

    def _insert(self, place: i64, publication: Stamped) -> None:
        """Apply an event at its place, after what follows it was taken back, and apply that again."""
        behind = self.events[int(place) :]
        for event in reversed(behind):
            self._state.take_back(event)
        self.events.insert(int(place), publication)
        self._keys.insert(int(place), key_of(publication))
        self._state.apply(publication)
        for event in behind:
            self._state.apply(event)
        if len(self.events) > self._horizon:
            self._is_trimmed = True
            del self.events[0]
            del self._keys[0]
