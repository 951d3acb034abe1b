"""How nodes and clients are flushed and closed."""

from __future__ import annotations

import asyncio
from typing import Protocol

from antiphon.kernel.errors import AntiphonError
from antiphon.live.logs import logger
from antiphon.live.receipts import Refusals

log = logger("closing")


class Closeable(Protocol):
    """A node or a client."""

    async def close(self) -> None:
        """Stop; raises what messages met that were not accepted."""


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
