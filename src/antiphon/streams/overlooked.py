"""Publications that were delivered to a replica and that its leader seems never to get.

The leader may have been away when they were published, and no log need give them to it. A replica that follows looks
now and then whether something has waited for a place since it looked last. It sends that to the leader, the messages
first, so that the leader does not depend on it afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import Final

from antiphon.streams.fetching import FETCHED_AT_MOST, FETCHED_BYTES
from antiphon.streams.host import NOBODY
from antiphon.streams.messages import ContentResponse, UnplacedReport
from antiphon.streams.numbering import Extent, Name
from antiphon.streams.replica_log import ReplicaLog

LOOK_US: Final = 1_000_000
"""How often a replica looks while something waits."""


class Overlooked:
    """The publications of one replica that wait for a place. ``leader`` says whom the replica follows."""

    def __init__(self, stream: int, log: ReplicaLog, leader: Callable[[], int]) -> None:
        self._stream = stream
        self._log = log
        self._leader = leader
        # Those that waited when this replica looked last; None while it does not look.
        self._seen: set[Name] | None = None

    def waits(self) -> None:
        """A publication was delivered here that has no place yet."""
        if self._seen is None:
            self._seen = set()
            self._log.host.after(LOOK_US, self._look)

    def _look(self) -> None:
        seen, self._seen = self._seen or set(), None
        waiting = list(self._log.numbering.waiting())
        if not waiting:
            return
        # All that is before these was delivered before them, so it waits for as long.
        self._tell(list(takewhile(lambda each: each[0] in seen, waiting)))
        self._seen = {name for name, _ in waiting}
        self._log.host.after(LOOK_US, self._look)

    def _tell(self, overdue: list[tuple[Name, Extent]]) -> None:
        log, leader = self._log, self._leader()
        if not overdue or leader == NOBODY or not log.host.is_connected(leader):
            return
        size, told = 0, 0
        while told < len(overdue) and told < FETCHED_AT_MOST and size < FETCHED_BYTES:
            size += overdue[told][1][1]
            told += 1
        contents = log.host.read_contents([name for name, _ in overdue[:told]])
        log.host.send(leader, ContentResponse(self._stream, log.term, contents))
        publications = [(*name, *extent) for name, extent in overdue[:told]]
        log.host.send(leader, UnplacedReport(self._stream, log.term, publications))
