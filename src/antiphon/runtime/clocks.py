"""The clocks of a live node, in microseconds."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from antiphon.kernel.errors import UsageError


def wall_clock_us() -> int:
    """Since 1970, for what people see and for what other machines must understand; it may jump."""
    return time.time_ns() // 1000


def monotonic_us() -> int:
    """Since some moment, never backwards, and the same for all processes of one machine."""
    return time.monotonic_ns() // 1000


def uptime_us() -> int:
    """Since the machine started, with the time that it slept; never backwards."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1000


def datetime_of(time_us: int) -> datetime:
    """Microseconds since 1970 as a time."""
    try:
        return datetime.fromtimestamp(time_us / 1_000_000, UTC)
    except (OverflowError, ValueError, OSError) as error:
        raise UsageError(f"{time_us} microseconds since 1970 is no time to start from") from error
