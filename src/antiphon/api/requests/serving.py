"""Answers the requests on one topic, as one of the programs that share them."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from antiphon.api.batch import Message
from antiphon.api.publisher import Publisher, Value
from antiphon.api.pubsub import PubSubHost
from antiphon.api.requests.headers import (
    BUSY,
    END,
    FAILED,
    FROM,
    GONE,
    GROUP,
    HERE,
    LAST,
    MORE,
    OURS,
    PART,
    REPLY,
    REQUEST,
    SERVER,
    STATE,
    TO,
    checked_topic,
    merged,
    order_of,
)
from antiphon.api.subscription import DEFAULT_LIMIT, LiveSubscription
from antiphon.api.topic_names import CALLERS, SERVING
from antiphon.kernel.errors import PeerError, UsageError
from antiphon.runtime.errors import ClosedError
from antiphon.runtime.logging import logger
from antiphon.runtime.tasks import Tasks

log = logger("requests")


class Request:
    """A request that this program is to answer."""

    def __init__(self, serving: Serving, message: Message) -> None:
        self._serving = serving
        self.message: Final = message
        self._is_ended = False

    @property
    def topic(self) -> str:
        """The topic that it came on."""
        return self.message.topic

    @property
    def value(self) -> bytes:
        """The question."""
        return self.message.value

    @property
    def key(self) -> bytes | None:
        """The key that it was asked with."""
        return self.message.key

    @property
    def headers(self) -> dict[str, bytes]:
        """The headers that the caller gave."""
        return {name: content for name, content in self.message.headers.items() if name not in OURS}

    async def reply(self, value: Value, *, more: bool = False, headers: dict[str, bytes] | None = None) -> None:
        """Answer; with ``more`` further replies follow, until one without it, or :meth:`end`."""
        await self._send(value, MORE if more else LAST, headers)

    async def end(self) -> None:
        """Nothing more follows."""
        await self._send(b"", END, None)

    async def fail(self, reason: str) -> None:
        """It cannot be answered: the caller's ``request`` raises ``RequestFailedError`` with the reason."""
        await self._send(reason.encode(), FAILED, None)

    async def _send(self, value: Value, part: bytes, headers: dict[str, bytes] | None) -> None:
        if self._is_ended:
            raise UsageError("the request has had its last reply; write reply(..., more=True) if others follow")
        self._is_ended = part != MORE
        await self._serving.send(self.message, value, part, headers)

    def __repr__(self) -> str:
        return f"Request({self.message!r})"


class Serving:
    """The requests on a topic that come to this program. Made by ``serve``.

    Iterate over it with ``async for``. It begins to serve with the first iteration, or with ``ready``; use it with
    ``async with``, so that callers hear when it ends.
    """

    def __init__(self, host: PubSubHost, topic: str, group: str, limit: int) -> None:
        if limit < 1:
            raise UsageError(f"limit is at least 1 request, not {limit}")
        self.topic: Final = checked_topic(topic)
        self.group: Final = group
        self._host = host
        self._limit = limit
        self._publish = Publisher(host).publish
        self._name = b"%x" % secrets.randbits(64)
        self._waiting: deque[Request] = deque()
        self._news = asyncio.Event()
        self._subscriptions: list[LiveSubscription] = []
        self._is_ready = False
        self._is_closed = False
        self._tasks = Tasks()

    async def ready(self) -> Serving:
        """Wait until callers find this program."""
        if self._is_closed:
            raise ClosedError("this program has stopped serving; call serve again")
        if not self._is_ready:
            add = self._host.subscriptions.add
            requests = add(self.topic, "latest", self._on_message, "block", DEFAULT_LIMIT, self._on_missed)
            callers = add(CALLERS + self.topic, "latest", self._on_caller, "block", DEFAULT_LIMIT, self._on_missed)
            self._subscriptions += [requests, callers]
            try:
                await requests.ready()
                await callers.ready()
                await self._announce(HERE)
            except BaseException:
                self._end_subscriptions()
                raise
            self._is_ready = True
        return self

    def _end_subscriptions(self) -> None:
        for subscription in self._subscriptions:
            subscription.end()
        self._subscriptions.clear()

    async def _announce(self, state: bytes) -> None:
        headers = {SERVER: self._name, GROUP: self.group.encode(), STATE: state}
        await self._publish(SERVING + self.topic, b"", order="fifo", headers=headers)

    # What comes.

    def _on_message(self, message: Message) -> None:
        headers = message.headers
        if headers.get(TO) != self._name or REQUEST not in headers:
            return
        if len(self._waiting) >= self._limit:
            self._tasks.spawn(self._quietly(self.send(message, b"", BUSY, None)))
            return
        self._waiting.append(Request(self, message))
        self._news.set()

    def _on_caller(self, message: Message) -> None:
        self._tasks.spawn(self._quietly(self._announce(HERE)))

    def _on_missed(self, topic: str) -> None:
        self._tasks.spawn(self._quietly(self._announce(HERE)))

    async def _quietly(self, work: object) -> None:
        try:
            await work  # type: ignore[misc]
        except PeerError as error:
            log.warning("callers could not be told about this program", topic=self.topic, cause=error)

    # What the program does.

    async def send(self, request: Message, value: Value, part: bytes, headers: dict[str, bytes] | None) -> None:
        """Publish a reply."""
        ours = ((REPLY, request.headers[REQUEST]), (FROM, self._name), (PART, part))
        await self._publish(
            self.topic, value, order=order_of(self._host), headers=merged(headers, ours), after=[request]
        )

    def __aiter__(self) -> AsyncIterator[Request]:
        return self._requests()

    async def _requests(self) -> AsyncIterator[Request]:
        await self.ready()
        while not self._is_closed:
            while self._waiting:
                yield self._waiting.popleft()
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), 0.5)
            except TimeoutError:
                self._host.refuse_if_closed()
                for subscription in self._subscriptions:
                    if subscription.failure is not None:
                        raise subscription.failure from None

    async def close(self) -> None:
        """Stop serving: requests that wait go to other programs."""
        if self._is_closed:
            return
        self.abandon()
        if self._is_ready:
            await self._quietly(self._announce(GONE))

    def abandon(self) -> None:
        """Stop at once, as a crash does: callers notice it by themselves."""
        self._is_closed = True
        self._waiting.clear()
        self._news.set()
        self._end_subscriptions()
        self._tasks.cancel()

    async def __aenter__(self) -> Serving:
        return await self.ready()

    async def __aexit__(self, *_: object) -> None:
        await self.close()
