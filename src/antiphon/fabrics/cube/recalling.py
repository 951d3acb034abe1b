"""Reading from a log, backwards, what somebody lacks that is not kept in memory any more."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.fabrics.cube.keeping import Possession
from antiphon.kernel.message import publication_key
from antiphon.kernel.process import Environment
from antiphon.orders.order import Ordered

DISORDER: Final[i64] = 1024
"""No publication was delivered before another one of its source that is so much older."""


@final
class Recall:
    """What the log holds of what one member lacks, in the order in which it was delivered."""

    def __init__(self, publications: list[Ordered], bounds: dict[i64, tuple[i64, i64]], is_whole: bool) -> None:
        self._publications: Final[list[Ordered]] = publications
        self._bounds: Final[dict[i64, tuple[i64, i64]]] = bounds
        # Whether the log was read back to the subscription: what is not in it has never been here.
        self._is_whole: Final[bool] = is_whole
        self._names: Final[set[i64]] = {publication_key(each.source, each.sequence) for each in publications}
        self._position: i64 = 0

    def unsent(self, theirs: Possession) -> list[Ordered]:
        """What the member still lacks. It has got, or will never need, what came before the first of that."""
        publications = self._publications
        while self._position < len(publications):
            first = publications[self._position]
            if not theirs.holds(first.source, first.sequence):
                break
            self._position += 1
        return [each for each in publications[self._position :] if not theirs.holds(each.source, each.sequence)]

    def covers(self, wanted: list[tuple[i64, i64, i64]]) -> bool:
        """Whether all of this was looked for."""
        for source, first, last in wanted:
            bounds = self._bounds.get(source)
            if bounds is None or first < bounds[0] or last > bounds[1]:
                return False
        return True

    def gone_before(self, source: i64, first: i64, last: i64) -> i64:
        """Up to which number, from ``first`` on, nothing is left; less than ``first`` if something is, or never was."""
        number = first
        if self._is_whole:
            return first - 1
        while number <= last and publication_key(source, number) not in self._names:
            number += 1
        return number - 1

    def text(self) -> str:
        """Everything as text, for those who compare states."""
        return f"{self._position} {sorted(self._names)}"


def recall(environment: Environment, topic: i64, wanted: list[tuple[i64, i64, i64]], theirs: Possession) -> Recall:
    """Read back as far as it may help; ``wanted`` has for each source the first and the last number that is lacking."""
    bounds = {source: (first, last) for source, first, last in wanted}
    # By source how many are lacking of which it is not known yet whether the log holds them.
    open_counts = {source: last - first + 1 for source, first, last in wanted}
    found: list[Ordered] = []
    is_whole = False
    piece: i64 = 0
    while len(open_counts) > 0:
        entries = environment.kept(topic, piece)
        if entries is None or len(entries) == 0:
            is_whole = entries is not None
            break
        piece += 1
        for message in reversed(entries):
            assert isinstance(message, Ordered), "a log holds publications"
            source, sequence = message.source, message.sequence
            if source not in open_counts:
                continue
            first, last = bounds[source]
            if first <= sequence <= last:
                open_counts[source] -= 1
                if not theirs.holds(source, sequence):
                    found.append(message)
            # What has no order may have been delivered before something earlier, but not before much of it.
            if open_counts[source] == 0 or sequence + DISORDER <= first:
                del open_counts[source]
    found.reverse()
    return Recall(found, bounds, is_whole)
