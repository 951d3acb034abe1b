"""The open requests of a client: each has a number, which its answer repeats."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from antiphon.kernel.errors import DeniedError
from antiphon.runtime.errors import error_from
from antiphon.sessions.client_messages import (
    DismissResponse,
    LogsResponse,
    MarksResponse,
    ProducerResponse,
    PublishResponse,
    RangeResponse,
    StatusResponse,
)

LogAnswer = LogsResponse | RangeResponse | MarksResponse | ProducerResponse | DismissResponse


class Requests:
    """The open requests of one client, of two kinds.

    Any node can say how it is, so the next node is asked again when one goes. Requests
    about the log of a node, and about a lane, end with the node: another node has another log.
    """

    def __init__(self, next_number: Callable[[], int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._next_number = next_number
        self._status: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._of_node: dict[int, asyncio.Future[Any]] = {}

    def ask_status(self) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        """Wait for the figures of a node, of whichever answers under this number."""
        number = self._next_number()
        answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._status[number] = answer
        answer.add_done_callback(lambda _: self._status.pop(number, None))
        return number, answer

    def ask_node(self, number: int) -> asyncio.Future[Any]:
        """Wait for an answer of this node under this number."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._of_node[number] = answer
        answer.add_done_callback(lambda _: self._of_node.pop(number, None))
        return answer

    def unanswered_status(self) -> list[int]:
        """The numbers under which somebody waits for the figures of a node."""
        return [number for number, answer in self._status.items() if not answer.done()]

    def on_status(self, message: StatusResponse) -> None:
        """A node says how it is, or that the client may not know."""
        answer = self._status.get(message.number)
        if message.denied:
            set_exception(answer, DeniedError(message.denied))
        elif answer is not None and not answer.done():
            answer.set_result(message.status)

    def on_response(self, message: LogAnswer | PublishResponse) -> None:
        """The node has answered, if somebody still waits for it."""
        answer = self._of_node.get(message.number)
        if isinstance(message, PublishResponse) and message.error:
            set_exception(answer, error_from(message.error, message.is_denied, message.kind))
        elif answer is not None and not answer.done():
            answer.set_result(message)

    def resolve(self, number: int, value: object) -> bool:
        """Give an answer to the request with a number; whether somebody waits for it."""
        answer = self._of_node.get(number)
        if answer is None or answer.done():
            return False
        answer.set_result(value)
        return True

    def node_lost(self, error: BaseException) -> None:
        """This node answers nothing more."""
        for answer in tuple(self._of_node.values()):
            set_exception(answer, error)

    def fail(self, error: BaseException) -> None:
        """No node answers any more."""
        for answer in tuple(self._status.values()):
            set_exception(answer, error)


def set_exception(future: Any, error: BaseException) -> None:
    """Let something fail that somebody may wait for; not everybody waits for every one of them."""
    if future is not None and not future.done():
        future.set_exception(error)
        future.exception()
