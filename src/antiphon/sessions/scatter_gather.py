"""Requests that a node sends to all others, whose responses it waits for; nobody waits for a node that is gone.

A request, or its response, may be lost with a connection, and the other end need not notice. So nodes that have not
answered are asked again, as long as they are there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from antiphon.kernel.pending_replies import PendingReplies
from antiphon.sessions.steps import Promise, Steps, Timers

AGAIN_US: Final = (1_000_000, 16_000_000)
"""After how long nodes that have not answered are asked again: at first, and at most.

The wait doubles, so that many requests to a busy node do not keep it busy."""

Answer = TypeVar("Answer")
"""The messages of hosts, of which requests and responses are some."""


class OtherNodes(Protocol):
    """The other nodes, for a part that has something to ask them."""

    def identifiers(self) -> set[int]:
        """The nodes that are there."""

    def send_control(self, identifier: int, control: Any) -> None:
        """Send a message to one of them when the node settles."""


class ScatteredRequest(Generic[Answer]):
    """The nodes that have still to answer, and what the others have said."""

    def __init__(self, others: set[int], is_enough: Callable[[Answer], bool] | None) -> None:
        self.pending = PendingReplies(sorted(others))
        self.is_enough = is_enough
        self.answers: dict[int, Answer] = {}
        # Kept when nobody is waited for any more, or when it is time to ask again.
        self.changed: Promise[None] = Promise()


class ScatterGather(Generic[Answer]):
    """All open requests of one part of a node."""

    def __init__(self, others: OtherNodes, timers: Timers) -> None:
        self._others = others
        self._timers = timers
        self._open: dict[int, ScatteredRequest[Answer]] = {}
        self._last = 0

    def ask(
        self,
        make: Callable[[int], Answer],
        is_enough: Callable[[Answer], bool] | None = None,
        only: int | None = None,
    ) -> Steps[dict[int, Answer]]:
        """Ask all others, or ``only`` one: their answers. ``make`` gets the number that the answers must have.

        If one answer ``is_enough``, the node does not wait for the others.
        """
        there = self._others.identifiers()
        others = there if only is None else there & {only}
        if not others:
            return {}
        self._last += 1
        number = self._last
        question: ScatteredRequest[Answer] = ScatteredRequest(others, is_enough)
        self._open[number] = question
        wait_us, longest_us = AGAIN_US
        try:
            while question.pending:
                for identifier in question.pending.peers():
                    self._others.send_control(identifier, make(number))
                question.changed = Promise()
                self._timers.after(wait_us, lambda changed=question.changed: changed.resolve(None))  # type: ignore[misc]
                yield question.changed
                wait_us = min(2 * wait_us, longest_us)
                there = self._others.identifiers()
                for identifier in question.pending.peers():
                    if identifier not in there:
                        self._on_response(question, identifier)
        finally:
            del self._open[number]
        return question.answers

    def on_response(self, sender: int, number: int, answer: Answer) -> bool:
        """Another node has answered; whether its answer was awaited."""
        question = self._open.get(number)
        if question is None or not question.pending.waits_for(sender):
            return False
        question.answers[sender] = answer
        if question.is_enough is not None and question.is_enough(answer):
            question.pending.clear()
        self._on_response(question, sender)
        return True

    def on_peer_lost(self, identifier: int) -> None:
        """Do not wait for the answer of a node that is gone."""
        for question in list(self._open.values()):
            self._on_response(question, identifier)

    def _on_response(self, question: ScatteredRequest[Answer], identifier: int) -> None:
        question.pending.settle(identifier)
        if not question.pending:
            question.changed.resolve(None)
