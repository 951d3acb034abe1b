"""Links that behave like connections: what goes over one does not overtake, and short partitions lose nothing.

A connection sends again what did not get through, and breaks only when that has been in vain for as long as a failure
takes to be noticed; then it takes with it all that has not arrived. Until then whatever is on it waits.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.simulator.engine.events import Flight
from antiphon.simulator.network.network import Cut


@final
class Connections:
    """When copies leave and arrive, by link; the links of one direction are those of the other turned round."""

    def __init__(self, detection: i64) -> None:
        self._detection: Final[i64] = detection
        self._last_departures: dict[i64, i64] = {}
        self._last_arrivals: dict[i64, i64] = {}
        self._held_until: dict[i64, i64] = {}

    def departure(self, sender: i64, receiver: i64, departs: i64) -> i64:
        """When a copy leaves that would leave then, if nothing were before it.

        What is not charged for still leaves after what waits in the output queue, and is lost with it.
        """
        link = link_of(sender, receiver)
        departs = max(departs, self._last_departures.get(link, 0))
        self._last_departures[link] = departs
        return departs

    def arrival(self, sender: i64, receiver: i64, arrives: i64) -> i64:
        """When a copy arrives that would arrive then, if nothing were before it."""
        link = link_of(sender, receiver)
        arrives = max(arrives, self._last_arrivals.get(link, 0))
        self._last_arrivals[link] = arrives
        return arrives

    def outlasts(self, cut: Cut) -> bool:
        """Whether a partition is over before anybody notices."""
        return not cut.is_standstill and cut.end - cut.start < self._detection

    def held_until(self, sender: i64, receiver: i64, flight: Flight, cuts: list[Cut]) -> i64:
        """Until when a copy that would arrive now has to wait, because a short partition was in its way.

        Whatever comes behind it waits too.
        """
        link = link_of(sender, receiver)
        until = self._held_until.get(link, 0)
        for cut in cuts:
            if self.outlasts(cut) and cut.severs(sender, receiver, flight.sent, flight.arrived):
                until = max(until, cut.end)
        self._held_until[link] = until
        return until


def link_of(sender: i64, receiver: i64) -> i64:
    """The name of a link."""
    return (sender << 32) | receiver
