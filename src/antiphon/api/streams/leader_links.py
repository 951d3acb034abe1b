"""Connections of a client to the nodes that lead streams: found by asking, given up when they lead no more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from antiphon.kernel.errors import PeerError
from antiphon.runtime.errors import ClosedError, error_from
from antiphon.streams.requests import Redirect, Request, Response, StreamFailure, encode

PAUSE_SECONDS: Final = 0.1
"""After how long a client asks again, if no node could answer."""

HOPS_AT_MOST: Final = 6
NODES_AT_MOST: Final = 64
"""So many nodes without histories are asked, until one has some or all have none."""


class NoAnswerError(PeerError):
    """No node could answer, for now: a leader is missing, or a majority of the replicas."""


class StreamPeer(Protocol):
    """A connection to one node."""

    @property
    def address(self) -> str:
        """Where it leads."""

    @property
    def is_up(self) -> bool:
        """Whether there is a node."""

    @property
    def reconnects(self) -> int:
        """How often it has led to another node, or to the same one anew: nothing of before counts there."""

    def ask_streams(
        self, payload: bytes, on_more: Callable[[Response], None] | None = None
    ) -> asyncio.Future[Response]:
        """Ask about streams; further answers to the same request go to ``on_more``."""

    async def abandon(self) -> None:
        """End the connection without waiting for anything."""


class LeaderLinks:
    """The connections of one client to leaders; ``connect`` opens one to an address."""

    def __init__(self, home: StreamPeer, connect: Callable[[str], Awaitable[StreamPeer]]) -> None:
        self._home = home
        self._connect = connect
        self._links: dict[str, StreamPeer] = {}
        # By topic: the address that answered last.
        self._known: dict[str, str] = {}

    async def ask(
        self,
        topic: str,
        request: Request,
        timeout: float,
        on_more: Callable[[Response], None] | None = None,
    ) -> tuple[StreamPeer, Response]:
        """The answer of the node that can answer, and the connection to it. Raises what the node refused."""
        reason = "no node answered"
        try:
            async with asyncio.timeout(timeout):
                while True:
                    found = await self._try(topic, request, on_more)
                    if not isinstance(found, str):
                        return found
                    reason = found
                    await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            raise NoAnswerError(f"no answer about {topic!r} within {timeout} seconds: {reason}") from None

    async def _try(
        self, topic: str, request: Request, on_more: Callable[[Response], None] | None
    ) -> tuple[StreamPeer, Response] | str:
        """Ask from node to node; the reason, if none of them could answer."""
        address = self._known.get(topic)
        visited: set[str] = set()
        waiting: list[str] = [] if address is None else [address]
        waiting.append("")
        reason = "no node could be reached"
        says_none = 0
        while waiting and len(visited) - says_none < HOPS_AT_MOST and says_none < NODES_AT_MOST:
            address = waiting.pop(0)
            visited.add(address)
            try:
                link = await self._link(address)
                response = await link.ask_streams(encode(request), on_more)
            except ClosedError:
                if not self._home.is_up:
                    raise
                continue
            except PeerError as error:
                reason = str(error)
                continue
            if isinstance(response, Redirect):
                reason = response.reason
                says_none += response.keeps_none
                known = {*visited, self._home.address}
                waiting = list(dict.fromkeys(each for each in (*response.addresses, *waiting) if each not in known))
                continue
            if isinstance(response, StreamFailure):
                raise error_from(response.error, response.is_denied, response.kind)
            self._known[topic] = address
            return link, response
        self._known.pop(topic, None)
        if says_none == len(visited) and not waiting:
            raise PeerError(reason)
        return reason

    async def _link(self, address: str) -> StreamPeer:
        if address in ("", self._home.address):
            return self._home
        link = self._links.get(address)
        if link is None or not link.is_up:
            link = self._links[address] = await self._connect(address)
        return link

    async def close(self) -> None:
        """End all connections."""
        links, self._links = self._links, {}
        for link in links.values():
            await link.abandon()
