"""Tells other doors of retained messages, and asks them for those from before this door began."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from antiphon.api.batch import Message
from antiphon.kernel.errors import AntiphonError
from antiphon.mqtt.retained import Notice, RetainedAnswer, RetainedMessage, RetainedRequest, RetainedTable
from antiphon.runtime.logging import logger

TOPIC: Final = "$mqtt.retained"
"""The topic on which doors tell each other."""

ANSWER_SECONDS: Final = 0.3
"""Doors wait for up to so long before they answer, so that mostly one of them does."""

PART_BYTES: Final = 256 << 10
log = logger("mqtt")


class RetainedExchange:
    """Keeps the table of one door up to date."""

    def __init__(self, table: RetainedTable, publish: Callable[[str, bytes], Awaitable[Any]]) -> None:
        self._table = table
        self._publish = publish
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Notice)
        self._asked: int = 0
        self._answering: dict[int, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self) -> None:
        """Ask the other doors for what they have."""
        self._asked = secrets.randbits(60)
        self._say(RetainedRequest(self._asked))

    def tell(self, message: RetainedMessage) -> Awaitable[Any]:
        """Tell all doors, this one too, of a retained message; to be awaited until it is accepted."""
        return self._publish(TOPIC, self._encoder.encode(message))

    def close(self) -> None:
        """Answer nobody any more."""
        for timer in self._answering.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()

    def received(self, message: Message) -> None:
        """A door has said something."""
        try:
            notice = self._decoder.decode(message.value)
        except msgspec.MsgspecError as error:
            log.warning(
                "a notice about retained messages cannot be read", publisher=message.publisher, reason=str(error)
            )
            return
        match notice:
            case RetainedMessage():
                self._table.merge(notice)
            case RetainedRequest():
                if notice.number != self._asked:
                    delay = random.uniform(0.0, ANSWER_SECONDS)
                    self._answering[notice.number] = asyncio.get_running_loop().call_later(
                        delay, self._answer, notice.number
                    )
            case RetainedAnswer():
                for each in notice.messages:
                    self._table.merge(each)
                if notice.is_last:
                    timer = self._answering.pop(notice.number, None)
                    if timer is not None:
                        timer.cancel()

    def _answer(self, number: int) -> None:
        """Send all that is retained, in parts."""
        self._answering.pop(number, None)
        parts: list[list[RetainedMessage]] = [[]]
        size = 0
        for message in self._table.messages():
            if size > PART_BYTES:
                parts.append([])
                size = 0
            parts[-1].append(message)
            size += len(message.payload) + len(message.topic) + 100
        for place, part in enumerate(parts):
            self._say(RetainedAnswer(number, tuple(part), place == len(parts) - 1))

    def _say(self, notice: RetainedRequest | RetainedAnswer) -> None:
        task = asyncio.get_running_loop().create_task(self._until_said(notice))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _until_said(self, notice: RetainedRequest | RetainedAnswer) -> None:
        try:
            await self._publish(TOPIC, self._encoder.encode(notice))
        except AntiphonError as error:
            log.warning("other doors were not told of retained messages", reason=str(error))
