"""When a node that was lost is tried again: after a while, each time after a longer one."""

from __future__ import annotations

from typing import Final

from antiphon.membership.host import SECOND_US, Host, Timer

RETRY_US: Final = (SECOND_US // 5, 5 * SECOND_US)
"""The shortest and the longest wait before a broken connection is tried again; each is a fifth longer than the last."""

RETRY: Final = "retry"


class Retries:
    """The waits of one node for others. Each ends with the timer ``RETRY``."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._next_us: dict[int, int] = {}

    def later(self, identifier: int) -> None:
        """Try a node again after a while."""
        wait_us = self._next_us.get(identifier, RETRY_US[0])
        self._next_us[identifier] = min(6 * wait_us // 5, RETRY_US[1])
        self._host.set_timer(Timer(RETRY, identifier), wait_us)

    def stop(self, identifier: int) -> None:
        """A node is back, or does not come back: try no more."""
        self._next_us.pop(identifier, None)
        self._host.cancel_timer(Timer(RETRY, identifier))
