"""Tasks that end with whoever began them, and the loop on which a program runs."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class Tasks:
    """Holds tasks while they run, as nobody else does, and cancels what is left of them."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something beside everything else."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def cancel(self) -> None:
        """End them all."""
        for task in self._running:
            task.cancel()


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a program, like ``asyncio.run``, on uvloop where it is available.

    What was imported before stays for good, so the garbage collector is told not to look at it any more: otherwise it
    stops the program for milliseconds now and then.
    """
    gc.collect()
    gc.freeze()
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
