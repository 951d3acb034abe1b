"""Choosing parents: what a node knows about its neighbours, and which of them it would rather receive from.

The thesis implements two strategies (section 4.2.5) and names three more that it leaves to later work (section 4.5):

* ``first-come``: the neighbour that delivered first stays; none is exchanged.
* ``delay``: the neighbour with the shortest round trip, measured on the periodic messages.
* ``age``: the neighbour that has been up for longest, and is therefore the most likely to stay (gerontocratic).
* ``load``: the neighbour that sends to the fewest others.
* ``bandwidth``: the neighbour that has the most of it.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.fabrics.gossip.messages import Beat, TreePosition
from antiphon.kernel.errors import UsageError

FIRST_COME: Final[i64] = 0
DELAY: Final[i64] = 1
AGE: Final[i64] = 2
LOAD: Final[i64] = 3
BANDWIDTH: Final[i64] = 4

STRATEGIES: Final = ("first-come", "delay", "age", "load", "bandwidth")
"""The strategies by number."""

UNKNOWN: Final[i64] = 1 << 50
"""The rank of a neighbour of which nothing is known yet: after all others."""


def strategy_number(name: str) -> i64:
    """The number of a strategy."""
    if name not in STRATEGIES:
        raise UsageError(f"parents are chosen by {', '.join(STRATEGIES)}, not by {name!r}; choose one of these")
    return STRATEGIES.index(name)


@final
class LinkMeasurements:
    """Measurements of one neighbour, from its periodic messages."""

    def __init__(self) -> None:
        self.round_trip: i64 = -1
        self.uptime: i64 = -1
        self.load: i64 = -1
        self.bandwidth: i64 = -1
        # The last stamp of the neighbour's clock, and when it came.
        self.stamp: i64 = -1
        self.heard_at: i64 = 0

    def on_beat(self, beat: Beat, now: i64) -> None:
        """Learn from a periodic message of the neighbour."""
        if beat.echo >= 0:
            self.round_trip = now - beat.echo - beat.held
        self.uptime = beat.report.uptime
        self.load = beat.report.load
        self.bandwidth = beat.report.bandwidth
        self.stamp = beat.stamp
        self.heard_at = now

    def rank(self, strategy: i64, position: TreePosition) -> i64:
        """How good a parent the neighbour is; the lowest is the best."""
        if strategy == DELAY:
            return UNKNOWN if self.round_trip < 0 else self.round_trip
        if strategy == AGE:
            return UNKNOWN if self.uptime < 0 else -self.uptime
        if strategy == LOAD:
            return UNKNOWN if self.load < 0 else self.load
        if strategy == BANDWIDTH:
            return UNKNOWN if self.bandwidth < 0 else -self.bandwidth
        return position.depth
