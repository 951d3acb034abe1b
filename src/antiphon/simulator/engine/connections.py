"""Links that behave like connections: copies do not overtake each other, and short partitions lose nothing.

A connection retransmits lost packets, and breaks only when that was in vain for as long as failure detection takes;
then every copy that has not arrived is lost. Until then the copies wait.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.simulator.engine.events import Flight
from antiphon.simulator.network.network import NetworkPartition


@final
class ConnectionModel:
    """The times at which copies leave and arrive, by link; each direction is a link of its own."""

    def __init__(self, detection: i64) -> None:
        self._detection: Final[i64] = detection
        self._last_departures: dict[i64, i64] = {}
        self._last_arrivals: dict[i64, i64] = {}
        self._held_until: dict[i64, i64] = {}

    def departure(self, sender: i64, receiver: i64, departs: i64) -> i64:
        """The time at which a copy leaves that would leave at ``departs`` on an empty link.

        A copy without transmission time still leaves after the copies in the output queue, and is lost with them.
        """
        link = link_of(sender, receiver)
        departs = max(departs, self._last_departures.get(link, 0))
        self._last_departures[link] = departs
        return departs

    def arrival(self, sender: i64, receiver: i64, arrives: i64) -> i64:
        """The time at which a copy arrives that would arrive at ``arrives`` on an empty link."""
        link = link_of(sender, receiver)
        arrives = max(arrives, self._last_arrivals.get(link, 0))
        self._last_arrivals[link] = arrives
        return arrives

    def outlasts(self, cut: NetworkPartition) -> bool:
        """Whether a partition ends before it is detected."""
        return not cut.is_standstill and cut.end - cut.start < self._detection

    def held_until(self, sender: i64, receiver: i64, flight: Flight, cuts: list[NetworkPartition]) -> i64:
        """Until when a copy that would arrive now must wait, because of a short partition.

        All copies behind it wait too.
        """
        link = link_of(sender, receiver)
        until = self._held_until.get(link, 0)
        for cut in cuts:
            if self.outlasts(cut) and cut.severs(sender, receiver, flight.sent, flight.arrived):
                until = max(until, cut.end)
        self._held_until[link] = until
        return until


def link_of(sender: i64, receiver: i64) -> i64:
    """The number of a link."""
    return (sender << 32) | receiver
