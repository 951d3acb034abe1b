"""Which publications of the topic have a place in the index, and which wait for one.

A replica is a member of the topic, so the fabric delivers every publication to it, in an order that follows the
topic's. The leader gives them places in the order of its own deliveries. A later leader goes on with those that have
none, in the order of *its* deliveries. Both extend the topic's order: whatever a publication follows was delivered
before it to either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from antiphon.kernel.interval_set import ANY_GAPS, IntervalSet, restored

Name = tuple[int, int]
"""A publication: its source and its sequence number."""

Extent = tuple[int, int]
"""How many messages a publication has, and how many bytes."""

SOURCES_AT_MOST: Final = 16_384
"""So many publishers are remembered. A publication that comes again after as many others is placed twice."""


class Numbering:
    """The publications of one stream, as one replica knows them."""

    def __init__(self) -> None:
        self._settled: dict[int, IntervalSet] = {}
        # Those with a place that is not settled, and those delivered here whose place is not settled, in that order.
        self._placed: dict[Name, int] = {}
        self._delivered: dict[Name, Extent] = {}

    def is_settled(self, name: Name) -> bool:
        """Whether a publication has its place for good."""
        numbers = self._settled.get(name[0])
        return numbers is not None and numbers.has(name[1])

    def deliver(self, name: Name, extent: Extent) -> bool:
        """The fabric has delivered a publication here; whether it has no place yet."""
        if self.is_settled(name):
            return False
        self._delivered[name] = extent
        return name not in self._placed

    def has_no_place(self, name: Name) -> bool:
        """Whether a publication has no place, settled or not."""
        return name not in self._placed and not self.is_settled(name)

    def unsettled(self) -> Iterator[tuple[Name, Extent]]:
        """The publications that were delivered here and whose place is not settled, in the order of their delivery."""
        return iter(self._delivered.items())

    def waiting(self) -> Iterator[tuple[Name, Extent]]:
        """The publications without a place, in the order of their delivery."""
        return iter([(name, extent) for name, extent in self._delivered.items() if name not in self._placed])

    def place(self, name: Name, number: int) -> None:
        """A publication has got a place."""
        self._placed[name] = number

    def displace(self, name: Name) -> None:
        """The place of a publication was not settled, and is given to another entry."""
        self._placed.pop(name, None)

    def settle(self, name: Name) -> None:
        """The place of a publication is settled."""
        self._placed.pop(name, None)
        self._delivered.pop(name, None)
        # The source that was last goes to the end, so that those that publish no more can be forgotten.
        numbers = self._settled.pop(name[0], None) or IntervalSet()
        self._settled[name[0]] = numbers
        numbers.add(name[1])
        if len(self._settled) > SOURCES_AT_MOST:
            del self._settled[next(iter(self._settled))]

    def snapshot(self) -> dict[int, list[int]]:
        """The settled publications by source: the number up to which all are, then where intervals begin and end."""
        found: dict[int, list[int]] = {}
        for source, numbers in self._settled.items():
            inside = numbers.inside(numbers.complete + 1, numbers.highest())
            found[source] = [
                int(numbers.complete),
                *(int(bound) for first, last in inside for bound in (first, last + 1)),
            ]
        return found

    def restore(self, snapshot: dict[int, list[int]]) -> None:
        """Take the settled publications from a snapshot."""
        self._settled = {source: restored(numbers[0], ANY_GAPS, numbers[1:]) for source, numbers in snapshot.items()}
        self._placed.clear()
        self._delivered = {name: extent for name, extent in self._delivered.items() if not self.is_settled(name)}
