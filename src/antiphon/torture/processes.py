"""Distributes the seeds of a campaign over processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

from antiphon.torture.campaign import Sharing
from antiphon.torture.tally import Tally

SECONDS_BETWEEN_LOOKS = 1.0


@contextmanager
def sharing(jobs: int) -> Iterator[Sharing]:
    """Share the work among ``jobs`` processes; with one job, this process does all of it."""
    if jobs == 1:
        yield map
        return
    before = set(multiprocessing.active_children())
    # Spawned, not forked: a progress bar runs a thread, and a fork would copy it in a broken state.
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=begin_worker)

    def share(run: Callable[[range], Tally], portions: list[range]) -> Iterator[Tally]:
        futures = deque(pool.submit(run, portion) for portion in portions)
        while futures:
            yield futures.popleft().result()

    try:
        yield share
    except BaseException:
        # An interrupted campaign does not wait for portions that have begun.
        for worker in set(multiprocessing.active_children()) - before:
            worker.terminate()
        raise
    finally:
        pool.shutdown()


def begin_worker() -> None:
    """Leave keys and signals to the parent process, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, args=(os.getppid(),), daemon=True).start()


def end_with_parent(parent: int) -> None:
    """End this process when its parent is gone, for whatever reason: nobody needs its work any more."""
    while os.getppid() == parent:
        time.sleep(SECONDS_BETWEEN_LOOKS)
    os._exit(1)


def cores() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
