"""Log recovery: reads back from the log the publications that a member lacks and memory holds no more.

A log is in the order of delivery, which is not that of the numbers of a source. Publications without order overtake
those that wait for a key, thousands of them while a majority is out of reach, and publications that were not shown are
read first, however old they are. So a low number says nothing about where a higher one is: the log is read until all is
found that it has held.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.fabrics.cube.repair.retransmit_buffer import Holdings
from antiphon.kernel.message import SOURCE_MASK, Publication, publication_key
from antiphon.kernel.process import Environment


@final
class LogRecovery:
    """The publications in the log that one member lacks, in the order of delivery."""

    def __init__(
        self, publications: list[Publication], firsts: dict[i64, i64], lacking: set[i64], gone: set[i64]
    ) -> None:
        self._publications: Final[list[Publication]] = publications
        # By source, the first number that was looked for, and all that was.
        self._firsts: Final[dict[i64, i64]] = firsts
        self._lacking: Final[set[i64]] = lacking
        # What has been here and is not any more.
        self._gone: Final[set[i64]] = gone - {publication_key(each.source, each.sequence) for each in publications}
        self._position: i64 = 0

    def has_more_than(self, count: i64, theirs: Holdings) -> bool:
        """Whether the member still lacks more than so many of these publications."""
        self._pass_held(theirs)
        place = self._position
        lacking: i64 = 0
        while place < len(self._publications) and lacking <= count:
            each = self._publications[place]
            if not theirs.holds(each.source, each.sequence):
                lacking += 1
            place += 1
        return lacking > count

    def unsent(self, theirs: Holdings) -> list[Publication]:
        """The publications that the member still lacks."""
        self._pass_held(theirs)
        publications = self._publications[self._position :]
        return [each for each in publications if not theirs.holds(each.source, each.sequence)]

    def _pass_held(self, theirs: Holdings) -> None:
        """Go to the first publication that the member lacks; it needs nothing that comes before that."""
        publications = self._publications
        while self._position < len(publications):
            first = publications[self._position]
            if not theirs.holds(first.source, first.sequence):
                break
            self._position += 1

    def begins_before(self, wanted: list[tuple[i64, i64, i64]]) -> bool:
        """Whether the first number of each source was looked for, so that a member can go on with what was found."""
        return all(source in self._firsts and first >= self._firsts[source] for source, first, _ in wanted)

    def covers(self, lacking: set[i64]) -> bool:
        """Whether all of this was looked for. Since then the log may have got some of it."""
        return lacking <= self._lacking

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


def lacking_keys(
    environment: Environment, topic: i64, wanted: list[tuple[i64, i64, i64]], theirs: Holdings
) -> set[i64]:
    """The publications that a member lacks and this log has held; the member may have many in between."""
    return {
        publication_key(source, number)
        for source, first, last in wanted
        for number in range(first, last + 1)
        if not theirs.holds(source, number) and environment.was_logged(topic, source, number)
    }


def recover(environment: Environment, topic: i64, wanted: list[tuple[i64, i64, i64]], theirs: Holdings) -> LogRecovery:
    """Read back as far as it may help; ``wanted`` has for each source the first and the last number that is lacking."""
    reader = environment.log_reader(topic)
    firsts = {source: first for source, first, _ in wanted}
    lacking = lacking_keys(environment, topic, wanted, theirs)
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
            if open_counts[source] == 0:
                del open_counts[source]
    found.reverse()
    if is_whole:
        # What is not in it has never been here.
        return LogRecovery(found, firsts, lacking, set())
    gone = {
        publication_key(source, number)
        for source, first, last in wanted
        for number in range(first, last + 1)
        if is_cut or theirs.holds(source, number) or publication_key(source, number) in lacking
    }
    return LogRecovery(found, firsts, lacking, gone)
