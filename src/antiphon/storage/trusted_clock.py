"""Decides how far retention believes the clock of the machine.

The clock may be wrong when a machine starts, and may jump. Retention must not remove everything because the clock is
ahead for a while, and must not stop because some batches carry times of the future. The rule is: a jump of more
than a minute against the time since the machine started counts when it has lasted for an hour, or for the age that
retention keeps if that is less. Until then time goes on from where it was.
"""

from __future__ import annotations

from typing import Final

from antiphon.runtime.logging import logger

JUMP_US: Final = 60_000_000
"""A difference of more than this is a jump; less is what a clock is corrected by as it runs."""

TRUST_SECONDS: Final = 3600.0

log = logger("storage")


class TrustedClock:
    """The time that retention goes by: the clock's, once the clock has gone on without a jump for long enough.

    ``newest_us`` is the newest time in the log, 0 if the log is empty. A node that starts knows no better time that was
    right once. The time since the machine started is ``uptime_us``.
    """

    def __init__(self, newest_us: int, clock_us: int, uptime_us: int) -> None:
        self._clock_us = clock_us
        self._uptime_us = uptime_us
        self._steady_since_us = uptime_us
        self._believed_us = min(newest_us, clock_us) if newest_us else clock_us

    def observe(self, clock_us: int, uptime_us: int) -> None:
        """Compare the clock with the time since the machine started."""
        passed_us = uptime_us - self._uptime_us
        jump_us = clock_us - self._clock_us - passed_us
        if abs(jump_us) > JUMP_US:
            self._steady_since_us = uptime_us
            log.warning("the clock jumped; retention believes it when it lasts", seconds=jump_us / 1_000_000)
        self._clock_us, self._uptime_us = clock_us, uptime_us
        self._believed_us = min(clock_us, self._believed_us + passed_us)

    def retention_us(self, age_seconds: float | None) -> int:
        """The time that retention goes by; ``age_seconds`` is the age that it keeps."""
        if self._is_steady(TRUST_SECONDS if age_seconds is None else min(TRUST_SECONDS, age_seconds)):
            self._believed_us = self._clock_us
        return self._believed_us

    def settled_us(self) -> int | None:
        """The clock if it is to be believed more than later times in the log; None if it is too early to say."""
        return self._clock_us if self._is_steady(TRUST_SECONDS) else None

    def _is_steady(self, seconds: float) -> bool:
        return self._uptime_us - self._steady_since_us >= seconds * 1_000_000
