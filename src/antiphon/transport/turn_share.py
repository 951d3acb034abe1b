"""Each identity's share of the turns of the event loop, so that no client's requests make others wait for long.

A frame of twenty bytes may cost a node a hundred times what it costs its sender, and one read brings thousands of
them. So the frames of one identity are handled for five milliseconds, and the rest waits until everybody else has
had a turn. Where nobody else waits the next turn follows at once, so nothing is lost by it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Final, Protocol

TURN_SECONDS: Final = 0.005
"""How long the frames of one identity are handled before others have their turn."""

FILL: Final = 0.5
"""An identity that takes less than this part of the time never waits for a turn."""


class WaitingConnection(Protocol):
    """A connection with frames that were not handled yet."""

    def go_on(self) -> None:
        """It has a turn."""


class TurnShare:
    """The share of one identity, over all of its connections."""

    def __init__(self) -> None:
        self._left = TURN_SECONDS
        self._at = 0.0
        self._begun = 0.0
        # When the frames that are handled now have taken as long as they may.
        self.ends = 0.0
        self._waiting: deque[WaitingConnection] = deque()
        self._is_scheduled = False
        self.postponed = 0
        """How often frames had to wait for a turn."""

    def begin(self) -> bool:
        """Frames have come; whether they may be handled now."""
        now = self._begun = time.perf_counter()
        self._left = min(TURN_SECONDS, self._left + (now - self._at) * FILL)
        self._at = now
        self.ends = now + self._left
        return self._left > 0

    def end(self) -> None:
        """They have been handled, or as many as there was time for."""
        now = time.perf_counter()
        self._left -= now - self._begun
        self._at = now

    def wait(self, connection: WaitingConnection) -> None:
        """Let a connection go on in one of the next turns."""
        self.postponed += 1
        self._waiting.append(connection)
        self._schedule()

    def _schedule(self) -> None:
        if self._waiting and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._left = TURN_SECONDS
        self._at = time.perf_counter()
        for _ in range(len(self._waiting)):
            if self._left <= 0:
                break
            self._waiting.popleft().go_on()
        self._is_scheduled = False
        self._schedule()
