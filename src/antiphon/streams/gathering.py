"""Publications that were delivered to some replicas and not to their leader.

A node that was away when something was published may lead afterwards, and the fabric need not deliver to it what the
others have. So a new leader gives no places before the others have told what they have, or for :data:`GATHER_US`.
"""

from __future__ import annotations

from collections import Counter, deque
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
    """The beginning of one leader: what was delivered to any of the replicas gets its place.

    Every list is in an order in which the fabric may deliver. A replica that came back may lack what the first
    publications of its list follow, so the lists are merged: a publication waits for all that are before it in any
    list.
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
        numbering = self._log.numbering
        extents = dict(numbering.waiting())
        lists = [list(extents)]
        for report in self._reports:
            known = {(source, sequence): (count, size) for source, sequence, count, size in report.publications}
            lists.append([name for name in known if numbering.has_no_place(name)])
            extents.update(known)
        for name in merged(lists):
            self._place(name, extents[name])


def merged(lists: list[list[Name]]) -> list[Name]:
    """Everything in some lists, each after all that are before it in any of them.

    Publications that do not follow each other may be in another order in each list. Where all wait for each other
    because of that, the longest list decides: what it begins with follows nothing that it lacks, if it lacks nothing.
    """
    left = [deque(each) for each in sorted(lists, key=len, reverse=True)]
    # In how many lists a name is, and in how many of them it is the first one that is left.
    counts = Counter(name for each in lists for name in each)
    heads = Counter(each[0] for each in left if each)
    free = deque(dict.fromkeys(name for name in heads if heads[name] == counts[name]))
    found: list[Name] = []
    while len(found) < len(counts):
        name = free.popleft() if free else next(each[0] for each in left if each)
        found.append(name)
        for each in left:
            if each and each[0] == name:
                each.popleft()
            elif counts[name] > heads[name] and name in each:
                each.remove(name)
                continue
            else:
                continue
            if each:
                heads[each[0]] += 1
                if heads[each[0]] == counts[each[0]]:
                    free.append(each[0])
    return found


def report_to(leader: int, stream: int, log: ReplicaLog) -> None:
    """Tell a new leader which publications have no settled place."""
    if leader != NOBODY:
        # Also those with a place that is not settled: the leader may not have their entries.
        unsettled = islice(log.numbering.unsettled(), REPORTED_AT_MOST)
        publications = [(*name, *extent) for name, extent in unsettled]
        log.host.send(leader, UnplacedReport(stream, log.term, publications))
