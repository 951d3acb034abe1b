"""The requests of one client connection about streams, and the way to the leaders of streams at other nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from antiphon.api.streams.leader_links import LeaderLinks, StreamPeer
from antiphon.api.streams.stream_api import StreamCalls
from antiphon.client.requests import Requests
from antiphon.membership.messages import Control
from antiphon.sessions.client_messages import StreamRequest, StreamResponse
from antiphon.streams.requests import Response, decode_response


class StreamAsker(Protocol):
    """The connection that asks."""

    @property
    def address(self) -> str:
        """The address of its node."""

    @property
    def is_up(self) -> bool:
        """Whether there is a node to talk to."""

    @property
    def reconnects(self) -> int:
        """How often it has gone on at another node."""

    def request(self, make: Callable[[int], Control]) -> asyncio.Future[Any]:
        """Send something to the node that it answers."""

    async def abandon(self) -> None:
        """End the connection without waiting for anything."""


class ClientStreams:
    """Streams at one client. ``connect`` opens a connection to another node."""

    def __init__(
        self, client: StreamAsker, requests: Requests, connect: Callable[[str], Awaitable[StreamPeer]]
    ) -> None:
        self._client = client
        self._requests = requests
        # Of requests with several answers: who gets those behind the first.
        self._handlers: dict[int, Callable[[Response], None]] = {}
        self.abandon = client.abandon
        self._links = LeaderLinks(self, connect)
        self.api = StreamCalls(self._links)

    @property
    def address(self) -> str:
        """The address of the node."""
        return self._client.address

    @property
    def is_up(self) -> bool:
        """Whether there is a node to talk to."""
        return self._client.is_up

    @property
    def reconnects(self) -> int:
        """How often the client has gone on at another node."""
        return self._client.reconnects

    def ask_streams(
        self, payload: bytes, on_more: Callable[[Response], None] | None = None
    ) -> asyncio.Future[Response]:
        """Ask the node about streams; further answers to the same request go to ``on_more``."""
        numbers: list[int] = []

        def make(number: int) -> Control:
            numbers.append(number)
            return StreamRequest(number, payload)

        answer = self._client.request(make)
        if on_more is not None:
            self._handlers[numbers[0]] = on_more
        return answer

    def on_response(self, message: StreamResponse) -> None:
        """The node has answered, or has more."""
        response = decode_response(message.payload)
        if not self._requests.resolve(message.number, response):
            handler = self._handlers.get(message.number)
            if handler is not None:
                handler(response)

    async def close(self) -> None:
        """End the connections to leaders."""
        await self._links.close()
