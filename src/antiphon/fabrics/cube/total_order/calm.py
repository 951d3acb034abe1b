"""Waits until no node of a cube was lost or found for a while: others may be about to be lost or found too."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.kernel.process import Environment

EXCLUDING: Final[i64] = 2
"""The name of the timer."""


@final
class CalmTimer:
    """Runs out when nothing has put it off for ``ticks``."""

    def __init__(self, environment: Environment, ticks: i64) -> None:
        self._environment: Final[Environment] = environment
        self._ticks: Final[i64] = ticks
        self._at: i64 = 0
        self.is_set: bool = False

    def put_off(self) -> None:
        """Something has changed: begin to wait anew."""
        self._at = self._environment.now() + self._ticks
        if not self.is_set:
            self._set()

    def expire(self) -> bool:
        """The timer of the host has run out; whether nothing has changed meanwhile."""
        self.is_set = False
        if self._environment.now() < self._at:
            self._set()
        return not self.is_set

    def is_calm_since(self, time: i64) -> bool:
        """Whether nothing has changed for a while, all of it after some time; if not, begin to wait."""
        if self._environment.now() >= max(time + self._ticks, self._at):
            return True
        if not self.is_set:
            self.put_off()
        return False

    def _set(self) -> None:
        self.is_set = True
        self._environment.set_timer(max(1, self._at - self._environment.now()), EXCLUDING)
