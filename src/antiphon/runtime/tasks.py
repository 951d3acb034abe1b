"""Tasks that end with the object that started them, and the loop on which a program runs."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

COLLECTING: Final = (5000, 20, 20)
"""After how many new objects the garbage collector looks at these, and after how many such looks at older ones."""


class Tasks:
    """Holds references to running tasks, which asyncio does not, and cancels those that are left."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Start a task."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in self._running:
            task.cancel()


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a program, like ``asyncio.run``, on uvloop where it is available.

    Imported modules stay until the end, so the garbage collector ignores them from now on. Otherwise it stops the
    program for milliseconds now and then. The state of a node's topics is no garbage either, so the collector
    runs more rarely than by default.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTING)
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
