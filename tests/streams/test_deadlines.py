"""Calls that are due later: they come when they are due, and a cancelled one leaves nothing behind."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from functools import partial

from antiphon.streams.service.deadlines import TICK_US, Deadlines


class Timers:
    """A clock that goes on when it is told, and the timers that wait for it."""

    def __init__(self) -> None:
        self._now_us = 7
        self.waiting: list[tuple[int, Callable[[], object]]] = []

    def now_us(self) -> int:
        return self._now_us

    def after(self, delay_us: int, call: Callable[[], object]) -> None:
        self.waiting.append((self._now_us + delay_us, call))

    def go_on_to(self, now_us: int) -> None:
        self._now_us = now_us
        due = [call for at_us, call in self.waiting if at_us <= now_us]
        self.waiting = [(at_us, call) for at_us, call in self.waiting if at_us > now_us]
        for call in due:
            call()


class Session:
    """Something large that a call keeps."""

    def answer(self) -> None:
        """Nobody waits."""


def test_calls_come_when_they_are_due_and_no_more_than_a_tick_later() -> None:
    timers = Timers()
    called: list[int] = []
    deadlines = Deadlines(timers)
    for delay_us in (1_000_000, 0, 30_000):
        deadlines.add(delay_us, partial(called.append, delay_us))
    timers.go_on_to(TICK_US)
    assert called == [0]
    timers.go_on_to(29_000)
    assert called == [0]
    timers.go_on_to(30_007 + TICK_US)
    assert called == [0, 30_000]
    timers.go_on_to(1_000_006)
    assert called == [0, 30_000]
    timers.go_on_to(1_000_007 + TICK_US)
    assert called == [0, 30_000, 1_000_000] and not timers.waiting and len(deadlines) == 0


def test_a_cancelled_call_is_let_go_at_once_and_its_timer_keeps_nothing() -> None:
    timers = Timers()
    deadlines = Deadlines(timers)
    session = Session()
    reference = weakref.ref(session)
    cancel = deadlines.add(60_000_000, session.answer)
    del session
    assert reference() is not None
    cancel()
    cancel()
    gc.collect()
    assert reference() is None and len(deadlines) == 0
    timers.go_on_to(61_000_000)


def test_a_hundred_thousand_calls_of_one_minute_share_some_thousand_timers() -> None:
    timers = Timers()
    deadlines = Deadlines(timers)
    for number in range(100_000):
        deadlines.add(60_000_000 * number // 100_000, bool)
    assert len(timers.waiting) <= 60_000_000 // TICK_US + 1
    assert len(deadlines) == 100_000
    timers.go_on_to(61_000_000)
    assert len(deadlines) == 0
