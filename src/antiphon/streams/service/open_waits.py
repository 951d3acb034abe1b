"""Requests whose answers wait for something: each client has so many at a time, and none of them waits for ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from antiphon.kernel.errors import PeerError
from antiphon.streams.service.host import StreamClient

READERS_AT_MOST: Final = 256
"""How many readers of one client may wait for the next message of their histories."""

PUBLISHERS_AT_MOST: Final = 65_536
"""How many messages of one client may wait for their positions."""

WAIT_US: Final = 60_000_000
"""After so long nothing waits any more; clients have given up before."""


class OpenWaits:
    """The waiting requests of one kind, by client: a way to end each, and until when it may wait."""

    def __init__(self, what: str, at_most: int, now_us: Callable[[], int]) -> None:
        self._what = what
        self._at_most = at_most
        self._now_us = now_us
        self._open: dict[StreamClient, dict[int, tuple[int, Callable[[], object]]]] = {}
        self._last = 0

    def check(self, client: StreamClient) -> None:
        """Refuse one more, if there are too many. Those that have waited for too long end."""
        waits = self._open.get(client, {})
        now_us = self._now_us()
        # The first have waited for longest.
        for number, (until_us, end) in tuple(waits.items())[:2]:
            if until_us > now_us:
                break
            del waits[number]
            end()
        if len(waits) >= self._at_most:
            raise PeerError(f"{len(waits)} {self._what} of this client wait for answers, as many as may; wait for some")

    def begin(self, client: StreamClient, end: Callable[[], object]) -> Callable[[], object]:
        """One more waits, and is ended by ``end``; to be called when it waits no more."""
        self._last += 1
        number = self._last
        self._open.setdefault(client, {})[number] = (self._now_us() + WAIT_US, end)

        def over() -> None:
            waits = self._open.get(client)
            if waits is not None:
                waits.pop(number, None)
                if not waits:
                    del self._open[client]

        return over

    def client_ended(self, client: StreamClient) -> None:
        """A client has gone: nobody waits for its answers."""
        for _, end in self._open.pop(client, {}).values():
            end()
