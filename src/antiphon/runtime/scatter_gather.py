"""Questions that a node asks all others, and whose answers it waits for; who is gone meanwhile is not waited for.

A question, or its answer, may be lost with a connection, of which the other end need not notice anything. So those who
have not answered are asked again, as long as they are there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from antiphon.kernel.pending_replies import PendingReplies

AGAIN_SECONDS: Final = (1.0, 16.0)
"""After how long those who have not answered are asked again: at first, and at most.

The wait doubles, so that many questions to a busy node do not keep it busy."""

Answer = TypeVar("Answer")
"""The messages of hosts, of which questions and answers are some."""


class Others(Protocol):
    """The other nodes, as somebody sees them who has something to ask them."""

    def identifiers(self) -> set[int]:
        """The nodes that are there."""

    def tell(self, identifier: int, control: Any) -> None:
        """Send a message to one of them when the node settles."""


class Question(Generic[Answer]):
    """The nodes that have still to answer, and what the others have said."""

    def __init__(
        self, others: set[int], answered: asyncio.Future[None], is_enough: Callable[[Answer], bool] | None
    ) -> None:
        self.pending = PendingReplies(sorted(others))
        self.answered = answered
        self.is_enough = is_enough
        self.answers: dict[int, Answer] = {}


class Questions(Generic[Answer]):
    """All questions of one part of a node; ``settle`` writes what was told to others."""

    def __init__(self, others: Others, settle: Callable[[], None]) -> None:
        self._others = others
        self._settle = settle
        self._open: dict[int, Question[Answer]] = {}
        self._last = 0

    async def ask(
        self, make: Callable[[int], Answer], is_enough: Callable[[Answer], bool] | None = None
    ) -> list[Answer]:
        """Ask all others; ``make`` gets the number that their answers are to have.

        If one answer ``is_enough``, nobody else is waited for.
        """
        return list((await self.ask_each(make, is_enough)).values())

    async def ask_each(
        self,
        make: Callable[[int], Answer],
        is_enough: Callable[[Answer], bool] | None = None,
        only: int | None = None,
    ) -> dict[int, Answer]:
        """The same, or ask ``only`` one of them: the answers by the identifiers of those who gave them."""
        there = self._others.identifiers()
        others = there if only is None else there & {only}
        if not others:
            return {}
        self._last += 1
        number = self._last
        question = self._open[number] = Question(others, asyncio.get_running_loop().create_future(), is_enough)
        wait_seconds, longest_seconds = AGAIN_SECONDS
        try:
            while not question.answered.done():
                for identifier in question.pending.peers():
                    self._others.tell(identifier, make(number))
                self._settle()
                await asyncio.wait([question.answered], timeout=wait_seconds)
                wait_seconds = min(2 * wait_seconds, longest_seconds)
                there = self._others.identifiers()
                for identifier in question.pending.peers():
                    if identifier not in there:
                        self._heard(question, identifier)
        finally:
            del self._open[number]
        return question.answers

    def answered(self, sender: int, number: int, answer: Answer) -> None:
        """Another node has answered."""
        question = self._open.get(number)
        if question is not None and question.pending.waits_for(sender):
            question.answers[sender] = answer
            if question.is_enough is not None and question.is_enough(answer):
                question.pending.clear()
            self._heard(question, sender)

    def peer_gone(self, identifier: int) -> None:
        """Do not wait for the answer of one who is not there any more."""
        for question in list(self._open.values()):
            self._heard(question, identifier)

    def _heard(self, question: Question[Answer], identifier: int) -> None:
        question.pending.settle(identifier)
        if not question.pending and not question.answered.done():
            question.answered.set_result(None)
