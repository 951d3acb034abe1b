"""Publications that were delivered to some replicas and not to their leader.

A node that was away when something was published may lead afterwards, and the fabric need not deliver to it what the
others have. So a new leader gives no places before the others have told what they have, or for :data:`GATHER_US`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from antiphon.streams.host import NOBODY
from antiphon.streams.messages import UnplacedReport
from antiphon.streams.numbering import Extent, Name
from antiphon.streams.replica_log import ReplicaLog

GATHER_US: Final = 300_000
"""How long a new leader waits for the others."""

REPORTED_AT_MOST: Final = 16_384
"""So many publications one report names; a majority was away for long where there are more."""

Place = Callable[[Name, Extent], None]


class Gathering:
    """The beginning of one leader: publications of others get their places first, then those of the leader.

    A publication that was delivered to another replica does not follow one that was not. So places in the order of the
    list of one replica, then of the next, then of the leader, extend the order of the topic.
    """

    def __init__(self, log: ReplicaLog, me: int, place: Place) -> None:
        self._log = log
        self._place = place
        self._reports: list[UnplacedReport] = []
        self._awaited = {each for each in log.replicas.all if each != me and log.host.is_connected(each)}
        self.is_over = False
        if self._awaited:
            log.host.after(GATHER_US, self.finish)
        else:
            self.finish()

    def on_report(self, sender: int, message: UnplacedReport) -> None:
        """A replica says what it has."""
        self._reports.append(message)
        self._awaited.discard(sender)
        if not self._awaited:
            self.finish()

    def finish(self) -> None:
        """Give places to everything."""
        if self.is_over:
            return
        self.is_over = True
        for report in self._reports:
            for source, sequence, count, size in report.publications:
                if self._log.numbering.has_no_place((source, sequence)):
                    self._place((source, sequence), (count, size))
        for name, extent in self._log.numbering.waiting():
            self._place(name, extent)


def report_to(leader: int, stream: int, log: ReplicaLog) -> None:
    """Tell a new leader which publications have no settled place."""
    if leader != NOBODY:
        # Also those with a place that is not settled: the leader may not have their entries.
        unsettled = islice(log.numbering.unsettled(), REPORTED_AT_MOST)
        publications = [(*name, *extent) for name, extent in unsettled]
        log.host.send(leader, UnplacedReport(stream, log.term, publications))
