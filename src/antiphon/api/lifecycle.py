"""How nodes and clients are started, flushed and closed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from antiphon.api.receipts import Refusals
from antiphon.kernel.errors import AntiphonError
from antiphon.runtime.errors import ClosedError
from antiphon.runtime.logging import logger

log = logger("closing")


class Lifecycle:
    """When a node began, how far its end has come, and why it ends; the node changes this, and its parts look at it."""

    def __init__(self) -> None:
        self.started_at = time.monotonic()
        # What stopped the node, if it did not stop because it was closed.
        self.failure: BaseException | None = None
        # Whether the node is about to go.
        self.is_closing = False
        # Whether everybody who waits has been told that the node goes: from then on its parts are being closed.
        self.has_told_end = False
        # Whether connections are closed, and nothing can be written any more.
        self.is_shut = False

    def check_open(self) -> None:
        """Refuse what comes too late."""
        if self.is_closing:
            raise self.failure or ClosedError("the node has been closed; start another one")


class Closeable(Protocol):
    """A node or a client."""

    async def close(self) -> None:
        """Stop; raises what messages met that were not accepted."""


Thing = TypeVar("Thing", bound=Closeable)


async def raise_refusals(refusals: Refusals) -> None:
    """Raise one error for all messages that were refused since the last flush; return if there are none."""
    # A refusal in this turn of the loop is counted in the next one.
    await asyncio.sleep(0)
    refused = refusals.take()
    if refused is not None:
        raise refused


async def close_after(thing: Closeable, error: BaseException | None) -> None:
    """Close something because the work with it has ended, with an error or well.

    An error of the work counts more than that messages were not accepted, which may well be its consequence.
    """
    try:
        await thing.close()
    except AntiphonError as refused:
        if error is None:
            raise
        log.error("messages were not accepted", reason=refused)


class Starting(Generic[Thing]):
    """Something that is started by ``await`` or by ``async with``, which also closes it."""

    def __init__(self, start: Coroutine[Any, Any, Thing]) -> None:
        self._start = start
        self._thing: Thing | None = None

    def __await__(self) -> Generator[Any, Any, Thing]:
        return self._start.__await__()

    async def __aenter__(self) -> Thing:
        self._thing = await self._start
        return self._thing

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._thing is not None:
            await close_after(self._thing, error)
