"""The beginning of a leader: it gathers what was delivered to the replicas and has no place, and gives it places.

A node that was away when something was published may lead afterwards, and the fabric need not deliver to it what the
others have. So a new leader gives no places before the others have told what they have, or for :data:`GATHER_US`. If
all that are connected have come back, they may lack what an absent one has. Then it waits for that one, too, for
:data:`ABSENT_US`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from antiphon.streams.host import NOBODY
from antiphon.streams.leaders.merging import KnownList, in_order
from antiphon.streams.messages import PublicationLinks, UnplacedReport
from antiphon.streams.numbering import Extent, Name
from antiphon.streams.replica_log import ReplicaLog

GATHER_US: Final = 300_000
"""How long a new leader waits for the others that are connected."""

ABSENT_US: Final = 10_000_000
"""How long a new leader waits for those that are not connected, if all that are connected have come back."""

REPORTED_AT_MOST: Final = 16_384
"""So many publications one report names; a majority was away for long where there are more."""

LINKED_AT_MOST: Final = 2048
"""Of so many publications a report also says what they follow."""

Place = Callable[[Name, Extent], None]


class Gathering:
    """The beginning of one leader: what was delivered to any of the replicas gets its place.

    Every list is in an order in which the fabric may deliver. A replica that came back may lack what the first
    publications of its list follow, so the lists are merged: a publication waits for all that are before it in any
    list. It needs one list that lacks nothing: that of a replica that ``knows_past``, or those of all replicas.
    """

    def __init__(self, log: ReplicaLog, me: int, knows_past: bool, place: Place, finished: Callable[[], None]) -> None:
        self._log = log
        self._place = place
        self._finished = finished
        # Whether the list of this replica lacks nothing, and whether any list does that has come.
        self._is_mine_whole = self._knows_past = knows_past
        self._is_late = False
        self._reports: list[UnplacedReport] = []
        # Nodes that are to keep the stream from now on may have what was published while this replica was away. They
        # report when an entry of this leader has made them learners.
        others = {*log.replicas.all, *log.host.keepers()} - {me}
        self._awaited = {each for each in others if log.host.is_connected(each)}
        self._absent = {*log.replicas.all} - {me} - self._awaited
        self.is_over = False
        log.host.after(GATHER_US, self._late)
        self._advance()

    def _late(self) -> None:
        self._is_late = True
        self._log.host.after(ABSENT_US - GATHER_US, self.finish)
        self._advance()

    def _advance(self) -> None:
        is_heard = self._is_late or not self._awaited
        if is_heard and (self._knows_past or not self._absent | self._awaited):
            self.finish()

    def on_report(self, sender: int, message: UnplacedReport) -> None:
        """A replica says what it has; later, what has waited for long and is at other replicas alone, it seems."""
        if self.is_over:
            for source, sequence, count, size in message.publications:
                if self._log.numbering.has_no_place((source, sequence)):
                    self._place((source, sequence), (count, size))
            return
        self._reports.append(message)
        self._knows_past |= message.knows_past
        self._awaited.discard(sender)
        self._absent.discard(sender)
        self._advance()

    def finish(self) -> None:
        """Give places to everything."""
        if self.is_over:
            return
        self.is_over = True
        numbering = self._log.numbering
        mine = list(numbering.waiting())
        lists = [KnownList(mine, self._is_mine_whole, [] if self._is_mine_whole else links_of(self._log, mine))]
        for report in self._reports:
            known = [((source, sequence), (count, size)) for source, sequence, count, size in report.publications]
            lists.append(KnownList(known, report.knows_past, report.links))
        extents = {name: extent for each in lists for name, extent in each.publications}
        for name in in_order(lists):
            if numbering.has_no_place(name):
                self._place(name, extents[name])
        self._finished()


def links_of(log: ReplicaLog, publications: list[tuple[Name, Extent]]) -> list[PublicationLinks]:
    """The publications that the first of some say that they follow."""
    return log.host.links_of([name for name, _ in publications[:LINKED_AT_MOST]])


def report_to(leader: int, stream: int, log: ReplicaLog, knows_past: bool) -> None:
    """Tell a new leader which publications have no settled place."""
    if leader != NOBODY:
        # Also those with a place that is not settled: the leader may not have their entries.
        unsettled = list(islice(log.numbering.unsettled(), REPORTED_AT_MOST))
        publications = [(*name, *extent) for name, extent in unsettled]
        links = [] if knows_past else links_of(log, unsettled)
        log.host.send(leader, UnplacedReport(stream, log.term, publications, knows_past, links))
