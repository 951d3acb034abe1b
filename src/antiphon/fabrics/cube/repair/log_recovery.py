"""Log recovery: reads back from the log the publications that a member lacks and memory holds no more."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.fabrics.cube.repair.retransmit_buffer import Holdings
from antiphon.kernel.message import SOURCE_MASK, Publication, publication_key
from antiphon.kernel.process import Environment

DISORDER: Final[i64] = 1024
"""No publication was delivered before one of its source that is older by so many numbers."""


@final
class LogRecovery:
    """The publications in the log that one member lacks, in the order of delivery."""

    def __init__(self, publications: list[Publication], bounds: dict[i64, tuple[i64, i64]], gone: set[i64]) -> None:
        self._publications: Final[list[Publication]] = publications
        self._bounds: Final[dict[i64, tuple[i64, i64]]] = bounds
        # What has been here and is not any more.
        self._gone: Final[set[i64]] = gone - {publication_key(each.source, each.sequence) for each in publications}
        self._position: i64 = 0

    def unsent(self, theirs: Holdings) -> list[Publication]:
        """The publications that the member still lacks; it needs nothing that comes before the first of them."""
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
        while number <= last and publication_key(source, number) in self._gone:
            number += 1
        return number - 1

    def text(self) -> str:
        """The state as text, to compare states."""
        names = sorted(publication_key(each.source, each.sequence) for each in self._publications)
        return f"{self._position} {names} {sorted(self._gone)}"


def recover(environment: Environment, topic: i64, wanted: list[tuple[i64, i64, i64]], theirs: Holdings) -> LogRecovery:
    """Read back as far as it may help; ``wanted`` has for each source the first and the last number that is lacking."""
    reader = environment.read_back(topic)
    bounds = {source: (first, last) for source, first, last in wanted}
    # What is lacking and in the log, unless that has lost it. There may be much in between that the other has.
    lacking = {
        publication_key(source, number)
        for source, first, last in wanted
        for number in range(first, last + 1)
        if not theirs.holds(source, number) and environment.was_logged(topic, source, number)
    }
    # By source how much of it has not been found.
    open_counts: dict[i64, i64] = {}
    for key in lacking:
        open_counts[key & SOURCE_MASK] = open_counts.get(key & SOURCE_MASK, 0) + 1
    found: list[Publication] = []
    is_whole, is_cut = False, reader is None
    while reader is not None and len(open_counts) > 0:
        entries = reader.earlier()
        if entries is None or len(entries) == 0:
            is_whole, is_cut = entries is not None, entries is None
            break
        for message in reversed(entries):
            assert isinstance(message, Publication), "a log holds publications"
            source, sequence = message.source, message.sequence
            if source not in open_counts:
                continue
            if publication_key(source, sequence) in lacking:
                open_counts[source] -= 1
                found.append(message)
            # What has no order may have been delivered before something earlier, but not before much of it.
            if open_counts[source] == 0 or sequence + DISORDER <= bounds[source][0]:
                del open_counts[source]
    found.reverse()
    if is_whole:
        # What is not in it has never been here.
        return LogRecovery(found, bounds, set())
    gone = {
        publication_key(source, number)
        for source, first, last in wanted
        for number in range(first, last + 1)
        if is_cut or theirs.holds(source, number) or publication_key(source, number) in lacking
    }
    return LogRecovery(found, bounds, gone)
