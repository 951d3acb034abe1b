"""An event loop in virtual time for one simulated program, so that it runs the calls of live clients."""

from __future__ import annotations

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from math import ceil
from typing import Any, cast

from antiphon.simulator.cluster.clock import VirtualClock

Run = Callable[[Callable[[], None]], None]


class ProgramLoop:
    """The loop of one program. ``run`` calls something in it: later if it stands still, never if it has ended."""

    def __init__(self, clock: VirtualClock, run: Run, failed: Callable[[str], None]) -> None:
        self._clock = clock
        self._run = run
        self._failed = failed
        self._ready: deque[asyncio.Handle] = deque()
        self._is_woken = False
        self.is_over = False
        self._tasks: set[asyncio.Task[Any]] = set()
        # It has what tasks, futures and timers ask a loop for, and no more.
        self._as_loop = cast(asyncio.AbstractEventLoop, self)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Let the program do something. An error that it does not expect is a finding."""
        task = self.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failed(f"{type(error).__name__}: {error}")

    # What asyncio asks for.

    def time(self) -> float:
        return self._clock.now_us / 1_000_000

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self._as_loop, context)
        self._ready.append(handle)
        self._wake()
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self._as_loop, context)
        # A timer never comes before its time, or whoever looks at the clock waits for nothing again and again.
        due_us = ceil(when * 1_000_000)
        if due_us / 1_000_000 < when:
            # The product was rounded down.
            due_us += 1
        delay_us = max(0, due_us - self._clock.now_us)
        self._clock.post(delay_us, lambda: self._run(lambda: self._expired(handle)))
        return handle

    def _expired(self, handle: asyncio.TimerHandle) -> None:
        if not handle.cancelled():
            self._ready.append(handle)
            self._wake()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer is passed over when its time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self._as_loop)

    def create_task(self, coro: Any, *, name: object = None, context: Context | None = None) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self._as_loop, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.is_over:
            # Tasks of a program that is over are destroyed while they wait.
            return
        error = context.get("exception")
        self._failed(f"{context.get('message')}: {type(error).__name__}: {error}")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    # Turns.

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._clock.post(0, lambda: self._run(self._turn))

    def _turn(self) -> None:
        """Call everything that was ready when the turn began."""
        self._is_woken = False
        before = events._get_running_loop()
        events._set_running_loop(self._as_loop)
        try:
            for _ in range(len(self._ready)):
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            events._set_running_loop(before)
        if self._ready:
            self._wake()
