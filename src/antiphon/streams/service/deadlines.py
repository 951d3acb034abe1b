"""Calls that are due after a while unless they are cancelled. A cancelled one leaves nothing behind.

A timer of the event loop keeps what it is to call until it runs, perhaps for a minute. That is the answer to a request,
and with it the session of a client that has long gone, and the answers that this client never read. So here calls that
are due at about the same time share a timer, and the timer keeps only that time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

TICK_US: Final = 20_000
"""Calls come up to this much later than they are due."""


class DeadlineTimers(Protocol):
    """The clock of a host, in microseconds."""

    def now_us(self) -> int:
        """The time; it never runs backwards."""

    def after(self, delay_us: int, call: Callable[[], object]) -> None:
        """Call something after a while."""


class Deadlines:
    """The calls of one node that are due later."""

    def __init__(self, timers: DeadlineTimers) -> None:
        self._timers = timers
        # By tick: the calls that are due then. One timer runs for each.
        self._due: dict[int, dict[int, Callable[[], object]]] = {}
        self._last = 0

    def __len__(self) -> int:
        return sum(map(len, self._due.values()))

    def add(self, delay_us: int, call: Callable[[], object]) -> Callable[[], None]:
        """Call something after a while; the answer cancels it."""
        now_us = self._timers.now_us()
        tick = -(-(now_us + max(0, delay_us)) // TICK_US)
        due = self._due.get(tick)
        if due is None:
            due = self._due[tick] = {}
            self._timers.after(tick * TICK_US - now_us, partial(self._run, tick))
        self._last += 1
        number = self._last
        due[number] = call
        return partial(self._cancel, tick, number)

    def _cancel(self, tick: int, number: int) -> None:
        due = self._due.get(tick)
        if due is not None and due.pop(number, None) is not None and not due:
            # A dictionary keeps the memory of entries that are gone.
            due.clear()

    def _run(self, tick: int) -> None:
        for call in self._due.pop(tick, {}).values():
            call()
