"""Gathers total operations of one caller: those that wait while others are under way take one place in the order.

A place in total order costs messages between nodes, whatever it is about. A lone operation leaves at once. While some
are under way, the next ones wait for each other and leave together, about all of their keys. So the number of places
does not grow with the number of calls, and a bundle waits only where one of its keys is busy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any, Final

from antiphon.services.frames import BUNDLE, ServiceFrame, encode

UNDER_WAY_AT_MOST: Final = 4
"""So many messages in total order are under way before the next operations wait for each other."""

KEYS_AT_MOST: Final = 128
FRAMES_AT_MOST: Final = 256
BYTES_AT_MOST: Final = 256 << 10

Post = Callable[[ServiceFrame, str, Collection[bytes], list[int]], Any]


class Bundler:
    """The total operations of one caller. ``post`` publishes one message about keys, for these calls."""

    def __init__(self, loop: asyncio.AbstractEventLoop, post: Post) -> None:
        self._loop = loop
        self._post = post
        self._waiting: list[tuple[ServiceFrame, tuple[bytes, ...]]] = []
        self._under_way = 0
        self._is_scheduled = False

    def add(self, frame: ServiceFrame, keys: tuple[bytes, ...]) -> None:
        """An operation leaves with others of this turn of the loop, or when something under way is accepted."""
        self._waiting.append((frame, keys))
        if self._under_way < UNDER_WAY_AT_MOST and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_scheduled = False
        while self._waiting and self._under_way < UNDER_WAY_AT_MOST:
            frames, keys = self._next()
            if len(frames) == 1:
                frame = frames[0]
            else:
                frame = ServiceFrame(BUNDLE, frames[0].caller, 0, frames[0].home, frames[0].version, encode(frames))
            publishing = self._post(frame, "total", keys, [each.number for each in frames])
            if publishing is not None:
                self._under_way += 1
                publishing.add_done_callback(self._accepted)

    def _next(self) -> tuple[list[ServiceFrame], set[bytes]]:
        """As many operations as one message takes."""
        found: list[ServiceFrame] = []
        about: set[bytes] = set()
        size = 0
        for frame, keys in self._waiting:
            # An operation without keys is about one that all of these share: so are all of its service.
            is_full = len(about | set(keys)) > KEYS_AT_MOST or len(found) >= FRAMES_AT_MOST
            size += len(frame.body)
            if found and (is_full or size > BYTES_AT_MOST):
                break
            found.append(frame)
            about.update(keys)
        del self._waiting[: len(found)]
        return found, about

    def _accepted(self, publishing: Any) -> None:
        self._under_way -= 1
        if self._waiting and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._flush)
