"""Steps whose scope ends: they are closed at once, and nothing that they wait for keeps what they hold."""

from __future__ import annotations

import gc
import weakref

from antiphon.sessions.steps import Promise, Scope, Steps, Turns, start


class Held:
    """Something large."""


def test_what_steps_hold_is_let_go_when_their_scope_ends() -> None:
    """A tenant that came and went had the node keep its batches for as long as its rate was used up."""
    lasting: Promise[None] = Promise()
    closed = []

    def holding(held: Held) -> Steps[None]:
        try:
            yield lasting
        finally:
            closed.append(held is not None)

    scope, other = Scope(), Scope()
    held, kept = Held(), Held()
    references = weakref.ref(held), weakref.ref(kept)
    finished = start(holding(held), scope)
    start(holding(kept), other)
    del held, kept
    scope.end()
    gc.collect()
    assert closed == [True]
    assert references[0]() is None and references[1]() is not None
    lasting.resolve(None)
    assert closed == [True, True] and not finished.is_done
    assert not scope.waiting and not other.waiting


def test_hundreds_of_steps_that_wait_for_each_other_end_together() -> None:
    turns, ended = Turns(), []

    def in_turn(number: int) -> Steps[None]:
        yield from turns.enter()
        try:
            yield Promise()
        finally:
            ended.append(number)
            turns.leave()

    scope = Scope()
    for number in range(500):
        start(in_turn(number), scope)
    scope.end()
    assert ended == [0]
    start(in_turn(500), scope)
    assert not scope.waiting
