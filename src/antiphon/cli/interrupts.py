"""Requests to stop a command, by a key or a signal, each counted once.

One request may arrive twice: ``timeout`` signals a process and then its group, and a key on a terminal reaches both a
command and its children. Signals within two seconds count as one request. Later ones are new.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SAME_REQUEST_SECONDS = 2.0
REQUESTS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def requests_to_stop() -> Iterator[None]:
    """Let each request raise a KeyboardInterrupt, once. A process that ignores keys, as in the background, continues
    to.
    """
    last = -SAME_REQUEST_SECONDS

    def stop(_: int, __: FrameType | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= SAME_REQUEST_SECONDS:
            last = now
            raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in REQUESTS}
    taken = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in taken:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)


def first_request() -> asyncio.Event:
    """An event that the first request sets; the next different request ends the process at once."""
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    first = 0.0

    def stop(number: signal.Signals) -> None:
        nonlocal first
        if not asked.is_set():
            first = time.monotonic()
            asked.set()
        elif time.monotonic() - first >= SAME_REQUEST_SECONDS:
            for each in REQUESTS:
                loop.remove_signal_handler(each)
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            signal.raise_signal(number)

    for number in REQUESTS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop, number)
    return asked
