"""How nodes and clients are closed at the end of an ``async with``."""

from __future__ import annotations

from typing import Protocol

from antiphon.kernel.errors import AntiphonError
from antiphon.live.logs import logger

log = logger("closing")


class Closeable(Protocol):
    """A node or a client."""

    async def close(self) -> None:
        """Stop; raises what messages met that were not accepted."""


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
