"""The calls of a node or a client about requests and replies."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from antiphon.api.batch import Message
from antiphon.api.publisher import Key, Value
from antiphon.api.pubsub import PubSubHost
from antiphon.api.requests.caller import Caller
from antiphon.api.requests.serving import Serving
from antiphon.runtime.errors import RequestFailedError

REQUESTS_WAITING: Final = 1024
"""Unless the program says otherwise, so many requests wait for it."""


class RequestUser:
    """The part of a node or a client that asks and answers."""

    def __init__(self, live: PubSubHost) -> None:
        self._request_host: Final[PubSubHost] = live
        self._callers: Final[dict[str, Caller]] = {}

    async def request(
        self,
        topic: str,
        value: Value,
        *,
        timeout: float = 10.0,
        group: str | None = None,
        key: Key | None = None,
        headers: dict[str, bytes] | None = None,
    ) -> Message:
        """Ask a program that serves a topic, and wait for its reply.

        The request and the reply are messages of the topic: every subscriber sees the request first. With ``group`` a
        program of this group is asked. Requests with one ``key`` go to one program as long as the same programs serve.

        It raises ``NobodyServesError`` if no program serves the topic, ``NoReplyError`` if no reply comes within
        ``timeout`` seconds, and ``RequestFailedError`` if the program says that it cannot answer.
        """
        replies = self.request_many(topic, value, timeout=timeout, group=group, key=key, headers=headers)
        async with aclosing(replies):
            async for reply in replies:
                return reply
        raise RequestFailedError(f"a request on {topic!r} ended without a reply")

    async def request_many(
        self,
        topic: str,
        value: Value,
        *,
        timeout: float = 10.0,
        group: str | None = None,
        key: Key | None = None,
        headers: dict[str, bytes] | None = None,
    ) -> AsyncGenerator[Message, None]:
        """Ask a program that serves a topic, and iterate over its replies; each may take ``timeout`` seconds."""
        self._request_host.refuse_if_closed()
        caller = self._callers.get(topic)
        if caller is None:
            caller = self._callers[topic] = Caller(self._request_host, topic)
        await caller.started()
        async with aclosing(caller.ask(value, timeout, group, key, headers)) as replies:
            async for reply in replies:
                yield reply

    def serve(self, topic: str, *, group: str = "", limit: int = REQUESTS_WAITING) -> Serving:
        """Answer the requests on a topic: ``async for request in client.serve("prices.get")``.

        Each request goes to one of the programs that serve the topic. If that program ends without a reply, the request
        goes to another one. Up to ``limit`` requests wait here; callers then ask others, or get ``OverloadedError``.
        """
        self._request_host.refuse_if_closed()
        return Serving(self._request_host, topic, group, limit)
