"""The network of a test: which of its nodes and clients reach each other, and how long it takes.

While two places are cut off from each other nothing of a connection between them arrives, neither bytes nor its end, as
if packets were lost and sent again; attempts to connect hang. When the cut heals, everything arrives in order.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Final, Protocol

PLACE: ContextVar[str] = ContextVar("antiphon_testing_place")
"""The node or client on whose behalf code runs: everything that it starts inherits it."""

OUTSIDE: Final = ""
"""The place of code that belongs to no node and no client."""


class WiredConnection(Protocol):
    """A connection, as the network sees it."""

    @property
    def places(self) -> frozenset[str]:
        """Its two ends."""

    def network_changed(self) -> None:
        """A partition has begun or ended, or delays have."""

    def reset(self) -> None:
        """One of its ends has died."""


class ClusterNetwork:
    """The cuts and delays between the places of a test."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        # By port, the place that listens there.
        self._listeners: dict[int, str] = {}
        self._groups: list[frozenset[str]] = []
        self._delays: dict[frozenset[str], float] = {}
        self._dead: set[str] = set()
        self._connections: dict[WiredConnection, None] = {}
        self._healed = asyncio.Event()

    # Places.

    def listens(self, place: str, port: int) -> None:
        """A place has begun to listen."""
        self._listeners[port] = place
        self._dead.discard(place)

    def place_at(self, port: int) -> str:
        """The place that listens at a port; outside if it is none of this test."""
        return self._listeners.get(port, OUTSIDE)

    def dies(self, place: str) -> None:
        """End all connections of a place at once, and refuse new ones."""
        self._dead.add(place)
        self._listeners = {port: other for port, other in self._listeners.items() if other != place}
        for connection in [each for each in self._connections if place in each.places]:
            connection.reset()

    def check_alive(self, place: str) -> None:
        """A dead place opens no connection."""
        if place in self._dead:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{place} has crashed")

    # Faults.

    def partition(self, groups: Iterable[Iterable[str]]) -> None:
        """Only places of one group reach each other; places in no group are one group more."""
        self._groups = [frozenset(group) for group in groups]
        self._changed()

    def delay(self, places: frozenset[str], seconds: float) -> None:
        """From now on everything between two places takes so long."""
        self._delays[places] = seconds

    def heal(self) -> None:
        """End the partition and all delays."""
        self._groups.clear()
        self._delays.clear()
        self._changed()

    def _changed(self) -> None:
        self._healed.set()
        self._healed = asyncio.Event()
        for connection in list(self._connections):
            connection.network_changed()

    def is_cut(self, places: frozenset[str]) -> bool:
        """Whether two places do not reach each other."""
        return len({self._group_of(place) for place in places}) > 1

    def _group_of(self, place: str) -> int:
        return next((number for number, group in enumerate(self._groups) if place in group), -1)

    def delay_between(self, places: frozenset[str]) -> float:
        """How long everything between two places takes, in seconds."""
        return self._delays.get(places, 0.0)

    async def until_reachable(self, places: frozenset[str]) -> None:
        """Wait as an attempt to connect does."""
        while self.is_cut(places):
            await self._healed.wait()
        await asyncio.sleep(self.delay_between(places))

    def opened(self, connection: WiredConnection) -> None:
        """There is a new connection."""
        self._connections[connection] = None

    def ended(self, connection: WiredConnection) -> None:
        """A connection is gone."""
        self._connections.pop(connection, None)
