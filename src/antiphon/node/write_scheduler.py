"""Which connections a node has to write to, and when: at once, after other frames have been gathered, or with credit.

Nobody waits for acknowledgements as an application waits for its messages, so they wait a little for others to travel
with. At low rates this saves most of their packets; at full speed they do not wait.
"""

from __future__ import annotations

import asyncio
from typing import Final

from antiphon.api.lifecycle import Lifecycle
from antiphon.transport.links import FrameWriter

CREDIT_SECONDS: Final = 0.004
CREDIT_FRAMES: Final = 16
"""How long acknowledgements wait for others to travel with, and how many travel without waiting."""

GATHER_BYTES: Final = 64 << 10
"""So much for one peer does not wait for more, whatever the setting says."""


class Flusher:
    """The connections of one node on which frames wait to be written."""

    def __init__(self, gather_seconds: float, lifecycle: Lifecycle) -> None:
        self._gather_seconds = gather_seconds
        self._lifecycle = lifecycle
        self._loop = asyncio.get_running_loop()
        # Those to which something is written when the node settles, and those on which nothing but credit waits.
        self.dirty: set[FrameWriter] = set()
        self.unhurried: set[FrameWriter] = set()
        self.is_unhurried_scheduled = False
        self._gathering: set[FrameWriter] = set()
        self._is_gathering_scheduled = False

    def write_dirty(self) -> None:
        """Write what is to be written now."""
        dirty, self.dirty = self.dirty, set()
        gathers = self._gather_seconds > 0
        for writer in dirty:
            if gathers and writer.queued_bytes < GATHER_BYTES:
                self._gathering.add(writer)
            else:
                writer.flush()
        if self._gathering and not self._is_gathering_scheduled:
            self._is_gathering_scheduled = True
            self._loop.call_later(self._gather_seconds, self._write_gathered)

    def schedule_unhurried(self) -> None:
        """See to it that credit is written before long."""
        self.is_unhurried_scheduled = True
        self._loop.call_later(CREDIT_SECONDS, self._write_unhurried)

    def _write_gathered(self) -> None:
        gathered, self._gathering = self._gathering, set()
        self._is_gathering_scheduled = False
        self._flush(gathered)

    def _write_unhurried(self) -> None:
        unhurried, self.unhurried = self.unhurried, set()
        self.is_unhurried_scheduled = False
        self._flush(unhurried)

    def _flush(self, writers: set[FrameWriter]) -> None:
        if not self._lifecycle.is_shut:
            for writer in writers:
                writer.flush()
