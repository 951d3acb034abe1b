"""Shares the seeds of a campaign out among processes of this machine."""

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

from antiphon.torture.campaign import Sharing, Tally

SECONDS_BETWEEN_LOOKS = 1.0


@contextmanager
def sharing(jobs: int) -> Iterator[Sharing]:
    """Let some processes share the work; one is this one."""
    if jobs == 1:
        yield map
        return
    before = set(multiprocessing.active_children())
    # Started afresh and not forked: a progress bar has a thread, which a fork would cut in half.
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=begin_worker)

    def share(run: Callable[[range], Tally], portions: list[range]) -> Iterator[Tally]:
        futures = deque(pool.submit(run, portion) for portion in portions)
        while futures:
            yield futures.popleft().result()

    try:
        yield share
    except BaseException:
        # Whoever wants to stop does not wait for what was begun.
        for worker in set(multiprocessing.active_children()) - before:
            worker.terminate()
        raise
    finally:
        pool.shutdown()


def begin_worker() -> None:
    """Leave it to the process that shares out the work to answer keys and signals, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, args=(os.getppid(),), daemon=True).start()


def end_with_parent(parent: int) -> None:
    """End this process when the one that started it is gone, however that went: nobody wants its work any more."""
    while os.getppid() == parent:
        time.sleep(SECONDS_BETWEEN_LOOKS)
    os._exit(1)


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
