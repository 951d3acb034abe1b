"""How an application takes what a subscription has received: message by message, or in lists.

Apart from :mod:`antiphon.api.subscription` because asynchronous generators cannot be compiled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Protocol

from antiphon.api.batch import Message
from antiphon.runtime.logging import logger

Callback = Callable[[Message], Awaitable[None] | None]

log = logger("subscription")


class Received(Protocol):
    """The messages that wait in a subscription."""

    current: Iterator[Message]
    """The rest of the batch that was taken last."""

    def arrival(self) -> asyncio.Future[None] | None:
        """Done when something has come, or nothing more will; None if that is known. Raises why it ended, if it did."""

    def take_messages(self) -> list[Message] | None:
        """The messages of the next batch; None if nothing has come."""


async def messages_of(received: Received) -> AsyncIterator[Message]:
    """The messages, one after the other."""
    while True:
        # A program that stops in the middle of a batch and iterates again goes on with the next message.
        for message in received.current:
            yield message
        while (arrival := received.arrival()) is not None:
            await arrival
        messages = received.take_messages()
        if messages is None:
            return
        received.current = iter(messages)


async def batches_of(received: Received) -> AsyncIterator[list[Message]]:
    """Lists of messages, as they came."""
    while True:
        messages = list(received.current)
        if not messages:
            while (arrival := received.arrival()) is not None:
                await arrival
            taken = received.take_messages()
            if taken is None:
                return
            messages = taken
        if messages:
            yield messages


async def call_for_each(received: Received, callback: Callback) -> None:
    """Await a callback for each message, one after the other; one that fails costs nothing but its message."""
    async for message in messages_of(received):
        try:
            await callback(message)  # type: ignore[misc]
        except Exception as error:
            log.error("a callback failed", cause=error, topic=message.topic, offset=message.offset)
