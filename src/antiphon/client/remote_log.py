"""The requests of a client about the durable log of its node (:mod:`antiphon.storage.log_server`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from antiphon.membership.messages import Control
from antiphon.runtime.errors import error_from
from antiphon.sessions.client_messages import (
    LogsRequest,
    LogsResponse,
    MarksRequest,
    MarksResponse,
    RangeRequest,
    RangeResponse,
)

Times = tuple[int, int | None]
"""In microseconds since 1970, from the first to below the second, if there is one."""


class AskingClient(Protocol):
    """A client that asks the node to which it is connected."""

    @property
    def address(self) -> str:
        """The address of the node."""

    def request(self, make: Callable[[int], Control]) -> asyncio.Future[Any]:
        """Send something to the node that it answers; ``make`` gets the number that the answer is to have."""


class RemoteLog:
    """The log of the node that a client has now; another node would have another log."""

    def __init__(self, client: AskingClient) -> None:
        self._client = client

    async def topics(self, names: Sequence[str] | None = None, times_us: Sequence[int] = ()) -> LogsResponse:
        """The content of the log: of these topics, or of all that the client may read."""
        wanted = None if names is None else list(names)
        found: LogsResponse = await self._client.request(lambda number: LogsRequest(number, wanted, tuple(times_us)))
        self._raise(found.error, found.is_denied)
        return found

    async def range(
        self, log_number: int, topic: str, offset: int, end: int, most_bytes: int, times_us: Times = (0, None)
    ) -> RangeResponse:
        """Some of the stored batches from an offset to an end, which were published at some times.

        If the offset has been removed the answer says so, and is no error.
        """
        found: RangeResponse = await self._client.request(
            lambda number: RangeRequest(number, log_number, topic, offset, end, most_bytes, *times_us)
        )
        if not found.removed_below:
            self._raise(found.error, found.is_denied)
        return found

    async def marks(self, log_number: int, topic: str, offset: int, end: int) -> MarksResponse:
        """Whose messages a range has, for the first part of it."""
        found: MarksResponse = await self._client.request(
            lambda number: MarksRequest(number, log_number, topic, offset, end)
        )
        self._raise(found.error, found.is_denied)
        return found

    def _raise(self, error: str, is_denied: bool) -> None:
        if error:
            raise error_from(f"the node at {self._client.address} refused: {error}", is_denied)
