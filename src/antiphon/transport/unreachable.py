"""Addresses at which no node answers: logged once, once more if the reason changes, and then ever more rarely.

Links are tried again every few seconds for as long as a peer is away, each time by another object. So the last line
about each address is remembered here. If a node has answered there before, the membership logs that it is lost, and
nothing is added to that.
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
    """The log lines so far about one address."""

    def __init__(self, reason: str, now_seconds: float) -> None:
        self.reason = reason
        self.attempts = 1
        self.pause_seconds = FIRST_PAUSE_SECONDS
        self.say_again_at = now_seconds + FIRST_PAUSE_SECONDS


class Unreachable:
    """The addresses at which nobody answers."""

    def __init__(self) -> None:
        self._silent: dict[str, Silence] = {}
        # Addresses at which a node has answered, the last one last.
        self._reached: dict[str, None] = {}

    def failed(self, address: str, reason: str, now_seconds: float) -> None:
        """An attempt has failed; say so if it is news, or if nothing was said for long."""
        if address in self._reached:
            log.debug("cannot connect", address=address, reason=reason)
            if address not in self._silent:
                self._remember(address, reason, now_seconds)
            else:
                self._silent[address].attempts += 1
            return
        known = self._silent.get(address)
        if known is None or known.reason != reason:
            self._remember(address, reason, now_seconds)
            log.warning("cannot connect", address=address, reason=reason)
            return
        known.attempts += 1
        if now_seconds >= known.say_again_at:
            known.pause_seconds = min(2 * known.pause_seconds, LONGEST_PAUSE_SECONDS)
            known.say_again_at = now_seconds + known.pause_seconds
            log.warning("still cannot connect", address=address, reason=reason, attempts=known.attempts)

    def _remember(self, address: str, reason: str, now_seconds: float) -> None:
        self._silent.pop(address, None)
        if len(self._silent) >= ADDRESSES_AT_MOST:
            del self._silent[next(iter(self._silent))]
        self._silent[address] = Silence(reason, now_seconds)

    def reached(self, address: str) -> None:
        """Somebody answers."""
        known = self._silent.pop(address, None)
        self._reached.pop(address, None)
        self._reached[address] = None
        if len(self._reached) > ADDRESSES_AT_MOST:
            del self._reached[next(iter(self._reached))]
        if known is not None:
            log.info("connected again", address=address, attempts=known.attempts)


UNREACHABLE: Final = Unreachable()
"""Of this process: nodes in one process have the same network."""
