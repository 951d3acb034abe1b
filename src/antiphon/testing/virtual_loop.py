"""An event loop whose clock is virtual: it stands still while there is work, and jumps when there is none.

When no socket is ready and no callback waits, nothing more happens before the next timer, and the clock jumps there.
There are two exceptions, for which the loop waits in real time: a thread that works, such as that which writes a log,
and bytes that are under way in the kernel (:mod:`antiphon.testing.tallies`).
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

from antiphon.testing.tallies import Tallies

TURN_SECONDS: Final = 10e-6
"""How long a turn of the loop takes: as in real life, nothing happens at the very moment of something else."""

LOOK_SECONDS: Final = 0.05
"""How long the loop waits for a thread or the kernel before it looks again; both wake it earlier."""

KERNEL_SECONDS: Final = 2.0
"""What has been under way for so long never comes."""


class WaitsForeverError(RuntimeError):
    """The test waits, and nothing is left that could wake it."""


class VirtualTimeSelector(selectors.DefaultSelector):
    """Waits for sockets in no time: instead of sleeping it moves the clock of its loop."""

    def __init__(self, tallies: Tallies) -> None:
        super().__init__()
        self._tallies = tallies
        self.now = 0.0
        self.working_threads = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """The sockets that are ready now; if there are none, time passes."""
        self.now += TURN_SECONDS
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if self.working_threads:
            return super().select(LOOK_SECONDS)
        ready = self._wait_for_kernel()
        if ready:
            return ready
        if timeout is None:
            raise WaitsForeverError("the test waits for something, and no timer, socket or thread is left to bring it")
        self.now += timeout
        return []

    def _wait_for_kernel(self) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for what is under way; the sockets to which it has come."""
        give_up_at = time.perf_counter() + KERNEL_SECONDS
        while not self._tallies.are_settled():
            ready = super().select(LOOK_SECONDS)
            if ready:
                return ready
            if time.perf_counter() > give_up_at:
                self._tallies.give_up()
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """The event loop of a test."""

    def __init__(self) -> None:
        self.tallies = Tallies()
        self._virtual = VirtualTimeSelector(self.tallies)
        super().__init__(self._virtual)

    def time(self) -> float:
        """Virtual seconds since the loop began."""
        return self._virtual.now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run something in a thread; the clock stands still meanwhile."""
        self._virtual.working_threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._thread_ended)
        return future

    async def shutdown_default_executor(self, *arguments: Any) -> None:
        """Wait for the threads at the end, in real time."""
        self._virtual.working_threads += 1
        try:
            await super().shutdown_default_executor(*arguments)
        finally:
            self._virtual.working_threads -= 1

    def _thread_ended(self, _: asyncio.Future[Any]) -> None:
        self._virtual.working_threads -= 1


@contextmanager
def virtual_clocks(loop: VirtualTimeLoop) -> Iterator[None]:
    """Let the clocks of nodes and clients, and the time stamps of messages, follow the loop's."""
    began_ns = time.time_ns()

    def monotonic_ns() -> int:
        return round(loop.time() * 1e9)

    def time_ns() -> int:
        return began_ns + monotonic_ns()

    with mock.patch.multiple(time, monotonic_ns=monotonic_ns, time_ns=time_ns, monotonic=loop.time):
        yield
