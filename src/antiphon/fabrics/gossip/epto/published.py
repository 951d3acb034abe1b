"""The ordering component of EpTO at the word of the thesis (Algorithm 5), which breaks total order, and a repair.

Algorithm 5 compares stamps and not whole keys, in two places. Each can be chosen:

* **Which events are accepted** (line 9). Printed is ``ts < lastDeliveredTimestamp``: with 0 at the start nothing is
  ever accepted, and nothing delivered. Lemmas 3 and 10 mean the opposite: ``later``, a stamp above the last; equal ones
  are refused, and become holes. ``not-earlier`` accepts equal ones.
* **Which events leave** (line 23). ``printed`` keeps back what has a larger stamp than the smallest that is too young.
  So an event leaves while one with the same stamp and a smaller source is too young, and follows later: nodes differ in
  their order. ``strict`` keeps back what has an equal stamp too.

``later`` with ``strict`` is right: events with one stamp leave together, sorted by source. All other pairs are wrong;
they are here to show that, in tests and under torture.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.fabrics.gossip.epto.order import DONE, NEW, WAITING, KnownEvent, Ordering, sorted_by_key
from antiphon.kernel.process import Environment

INVERTED: Final[i64] = 0
LATER: Final[i64] = 1
NOT_EARLIER: Final[i64] = 2

FOREVER: Final[i64] = 1 << 60


@final
class StampOrdering(Ordering):
    """The order of stamps alone; only those that leave together are sorted by whole keys."""

    def __init__(self, environment: Environment, topic: i64, is_founder: bool, accepts: i64, is_strict: bool) -> None:
        super().__init__(environment, topic, is_founder)
        self._accepts: Final[i64] = accepts
        self._is_strict: Final[bool] = is_strict
        self._received: Final[dict[i64, KnownEvent]] = {}
        # As printed, all that was ever delivered is remembered.
        self._delivered: Final[set[i64]] = set()
        self._last_delivered: i64 = 0 if accepts == INVERTED else -1

    def _is_acceptable(self, stamp: i64) -> bool:
        if self._accepts == INVERTED:
            return stamp < self._last_delivered
        return stamp > self._last_delivered or (self._accepts == NOT_EARLIER and stamp == self._last_delivered)

    def offer(self, event: KnownEvent, born: i64) -> None:
        if event.state == WAITING:
            if born < event.born:
                event.born = born
        elif event.state == NEW:
            if event.name in self._delivered or not self._is_acceptable(event.stamp):
                self.refuse(event)
                return
            event.state = WAITING
            event.born = born
            self._received[event.name] = event

    def release(self, latest_birth: i64) -> list[KnownEvent]:
        smallest_young = FOREVER
        deliverable: list[KnownEvent] = []
        for event in self._received.values():
            if event.born <= latest_birth and event.publication is not None:
                deliverable.append(event)
            elif event.stamp < smallest_young:
                smallest_young = event.stamp
        found: list[KnownEvent] = []
        for event in sorted_by_key(deliverable):
            if event.stamp < smallest_young or (event.stamp == smallest_young and not self._is_strict):
                del self._received[event.name]
                self._delivered.add(event.name)
                self.delivering(event)
                self._last_delivered = event.stamp
                found.append(event)
        return found

    def next(self) -> KnownEvent | None:
        """Of those with the smallest stamp, one that lacks its payload: it keeps the others back."""
        waiting = self.waiting()
        for event in waiting:
            if event.publication is None and event.stamp == waiting[0].stamp:
                return event
        return None

    def refuse(self, event: KnownEvent) -> None:
        """Earlier ones of its source may wait, with the same stamp; then it is lost when a later one leaves."""
        source, sequence = event.source(), event.sequence()
        if any(other.source() == source and other.sequence() < sequence for other in self._received.values()):
            event.state = DONE
        else:
            super().refuse(event)

    def give_up(self, event: KnownEvent) -> None:
        del self._received[event.name]
        self.refuse(event)
        self._last_delivered = max(self._last_delivered, event.stamp)
        self.last_stamp = self._last_delivered

    def count(self) -> i64:
        return len(self._received)

    def waiting(self) -> list[KnownEvent]:
        return sorted_by_key(list(self._received.values()))
