"""A set of publications of many sources, such as those that a process has delivered.

Most sources have no gap: all up to one number is in the set, and one array holds these numbers
(:mod:`antiphon.kernel.counters`). A source with gaps has an interval set of its own until they are closed
(:mod:`antiphon.kernel.interval_set`).
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.counters import Counters
from antiphon.kernel.interval_set import IntervalSet
from antiphon.kernel.message import publication_key


@final
@mypyc_attr(acyclic=True)
class PublicationSet:
    """Publications by source and sequence number; ``counts`` has the number up to which a source is complete.

    Others only read ``counts``.
    """

    def __init__(self) -> None:
        self.counts: Final = Counters()
        # Mostly there are none, and what is not there takes no memory.
        self._gapped: dict[i64, IntervalSet] | None = None

    def has(self, source: i64, sequence: i64) -> bool:
        """Whether a publication is in the set."""
        if sequence <= self.counts.get(source):
            return True
        if self._gapped is None:
            return False
        numbers = self._with_gaps(source)
        return numbers is not None and numbers.has(sequence)

    def _with_gaps(self, source: i64) -> IntervalSet | None:
        """The numbers of a source that has gaps."""
        gapped = self._gapped
        return None if gapped is None else gapped.get(source)

    def has_any_of(self, source: i64) -> bool:
        """Whether a publication of this source is in the set."""
        return self.counts.get(source) > 0 or self._with_gaps(source) is not None

    def has_gaps(self) -> bool:
        """Whether a publication is missing before one of the same source that is in the set."""
        return self._gapped is not None

    def add(self, source: i64, sequence: i64) -> bool:
        """Add a publication; whether it is new."""
        complete = self.counts.get(source)
        if sequence <= complete:
            return False
        numbers = None if self._gapped is None else self._with_gaps(source)
        if numbers is None:
            if sequence == complete + 1:
                self.counts.put(source, sequence)
                return True
            numbers = IntervalSet(complete)
            if self._gapped is None:
                self._gapped = {}
            self._gapped[source] = numbers
        is_new = numbers.add(sequence)
        self._complete(source, numbers)
        return is_new

    def add_next(self, source: i64, sequence: i64) -> None:
        """Add the next publication of a source that has no gaps."""
        self.counts.put(source, sequence)

    def complete_to(self, source: i64, sequence: i64) -> None:
        """Add all publications of a source up to a number."""
        if sequence <= self.counts.get(source):
            return
        numbers = self._with_gaps(source)
        if numbers is None:
            self.counts.put(source, sequence)
        else:
            numbers.complete_to(sequence)
            self._complete(source, numbers)

    def _complete(self, source: i64, numbers: IntervalSet) -> None:
        """Count the numbers of a source with gaps as far as they are complete now."""
        self.counts.raise_to(source, numbers.complete)
        gapped = self._gapped
        if gapped is not None and not numbers.has_gaps():
            del gapped[source]
            if len(gapped) == 0:
                self._gapped = None

    def beyond(self) -> list[i64]:
        """The keys of all publications above the lowest gap of their source, ascending."""
        gapped = self._gapped
        if gapped is None:
            return []
        return sorted(
            [publication_key(source, number) for source, numbers in gapped.items() for number in numbers.beyond()]
        )

    def state(self) -> str:
        """The content as text."""
        return f"{self.counts.sorted_items()} {self.beyond()}"
