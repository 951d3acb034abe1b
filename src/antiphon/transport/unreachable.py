"""Where nobody answers: said once, once more if the reason changes, and then ever more rarely.

Links are tried again every few seconds for as long as a peer is away, each time by another object. What was said about
an address is therefore known here.
"""

from __future__ import annotations

from typing import Final

from antiphon.runtime.logging import logger

FIRST_PAUSE_SECONDS: Final = 60.0
LONGEST_PAUSE_SECONDS: Final = 3600.0
"""Between two lines about one address for the same reason; it doubles each time."""

ADDRESSES_AT_MOST: Final = 1024
"""When more are out of reach, the one that has been for longest is forgotten, and would be told of anew."""

log = logger("links")


class Silence:
    """What was said about one address."""

    def __init__(self, reason: str, now_seconds: float) -> None:
        self.reason = reason
        self.attempts = 1
        self.pause_seconds = FIRST_PAUSE_SECONDS
        self.say_again_at = now_seconds + FIRST_PAUSE_SECONDS


class Unreachable:
    """The addresses at which nobody answers."""

    def __init__(self) -> None:
        self._silent: dict[str, Silence] = {}

    def failed(self, address: str, reason: str, now_seconds: float) -> None:
        """An attempt has failed; say so if it is news, or if nothing was said for long."""
        known = self._silent.get(address)
        if known is None or known.reason != reason:
            self._silent.pop(address, None)
            if len(self._silent) >= ADDRESSES_AT_MOST:
                del self._silent[next(iter(self._silent))]
            self._silent[address] = Silence(reason, now_seconds)
            log.warning("cannot connect", address=address, reason=reason)
            return
        known.attempts += 1
        if now_seconds >= known.say_again_at:
            known.pause_seconds = min(2 * known.pause_seconds, LONGEST_PAUSE_SECONDS)
            known.say_again_at = now_seconds + known.pause_seconds
            log.warning("still cannot connect", address=address, reason=reason, attempts=known.attempts)

    def reached(self, address: str) -> None:
        """Somebody answers."""
        known = self._silent.pop(address, None)
        if known is not None:
            log.info("connected again", address=address, attempts=known.attempts)


UNREACHABLE: Final = Unreachable()
"""Of this process: nodes in one process have the same network."""
