"""Protocols that wait, without an event loop: generators that yield what they wait for.

A session waits for deliveries, for the answers of other nodes and for the disk. Each of these is a :class:`Promise`. A
protocol is a generator that yields promises, and :func:`start` resumes it when a promise is kept. Nothing here reads a
clock or opens a socket. A host keeps promises when something has happened, so two runs with the same events do the
same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Generic, Protocol, TypeVar

from antiphon.kernel.errors import AntiphonError

T = TypeVar("T")


class Promise(Generic[T]):
    """Something that happens at most once: a value, or an error."""

    def __init__(self) -> None:
        self.is_done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[], None]] = []

    def resolve(self, value: T) -> None:
        """It has happened."""
        if not self.is_done:
            self._value = value
            self._finish()

    def fail(self, error: BaseException) -> None:
        """It has failed."""
        if not self.is_done:
            self._error = error
            self._finish()

    def _finish(self) -> None:
        self.is_done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def then(self, callback: Callable[[], None]) -> None:
        """Call something when it has happened: now, if it has."""
        if self.is_done:
            callback()
        else:
            self._callbacks.append(callback)

    def result(self) -> T:
        """The value; raises the error."""
        assert self.is_done, "a promise is looked at when it is done"
        if self._error is not None:
            raise self._error
        value: T = self._value
        return value


Steps = Generator[Promise[Any], None, T]
"""A protocol that waits for promises and gives a value in the end."""


class Timers(Protocol):
    """The clock of a host, in microseconds."""

    def now_us(self) -> int:
        """The time; it never runs backwards."""

    def after(self, delay_us: int, call: Callable[[], None]) -> None:
        """Call something after a while, unless the node has ended by then."""


class Scope:
    """How long steps go on: those of a client end with its connection."""

    def __init__(self) -> None:
        self.is_over = False
        # How the steps go on that wait for something, in the order in which they began to wait.
        self.waiting: dict[Callable[[], None], None] = {}

    def end(self) -> None:
        """Close all steps now: what they wait for may keep them, and whole batches with them, for half a minute."""
        self.is_over = True
        waiting, self.waiting = self.waiting, {}
        for close in reversed(waiting):
            close()


FOREVER = Scope()


def start(steps: Steps[T], scope: Scope = FOREVER) -> Promise[T]:
    """Run steps as far as they come, and go on whenever the promise that they wait for is kept."""
    finished: Promise[T] = Promise()
    current: Steps[T] | None = steps

    def advance() -> None:
        nonlocal current
        while current is not None:
            scope.waiting.pop(advance, None)
            if scope.is_over:
                # The promise that they wait for may last, and keeps this function.
                closed, current = current, None
                closed.close()
                return
            try:
                awaited = next(current)
            except StopIteration as end:
                finished.resolve(end.value)
                return
            except AntiphonError as error:
                finished.fail(error)
                return
            if not awaited.is_done:
                if scope is not FOREVER:
                    scope.waiting[advance] = None
                awaited.then(advance)
                return

    advance()
    return finished


def wait(promise: Promise[T]) -> Steps[T]:
    """Wait for a promise; gives its value, or raises its error."""
    if not promise.is_done:
        yield promise
    return promise.result()


class Turns:
    """Lets one after the other go on, in the order in which they came."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: deque[Promise[None]] = deque()

    def enter(self) -> Steps[None]:
        """Wait for one's turn."""
        if self._is_taken:
            turn: Promise[None] = Promise()
            self._waiting.append(turn)
            yield turn
        self._is_taken = True

    def leave(self) -> None:
        """One's turn is over."""
        if self._waiting:
            self._waiting.popleft().resolve(None)
        else:
            self._is_taken = False
