"""The two clocks of a live node, in microseconds."""

from __future__ import annotations

import time


def wall_clock_us() -> int:
    """Since 1970, for what people see and for what other machines must understand; it may jump."""
    return time.time_ns() // 1000


def monotonic_us() -> int:
    """Since some moment, never backwards, and the same for all processes of one machine."""
    return time.monotonic_ns() // 1000
