"""Where readers and consumers of a history begin: at its ends, at a position, or at a time."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from antiphon.kernel.errors import UsageError
from antiphon.streams.position import generation_of
from antiphon.streams.requests import EARLIEST, LATEST

StreamStart = str | int | datetime


class StartPlace(NamedTuple):
    """A place to begin at, as requests name it."""

    position: int
    generation: int = 0
    time_us: int = 0


def place_of(start: StreamStart) -> StartPlace:
    """The place that a program names; an error says what a place is."""
    if start == "earliest":
        return StartPlace(EARLIEST)
    if start == "latest":
        return StartPlace(LATEST)
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise UsageError("a time to begin at needs a time zone; use for example datetime.now(UTC)")
        return StartPlace(EARLIEST, 0, max(1, int(start.timestamp() * 1_000_000)))
    if isinstance(start, int) and not isinstance(start, bool) and start >= 0:
        return StartPlace(int(start), generation_of(start))
    raise UsageError(f"begin at 'earliest', 'latest' or a position from 0 on, or at a datetime, not {start!r}")
