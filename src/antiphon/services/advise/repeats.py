"""Looks for operations that do not do the same twice: on the same state, at another time and with other chance.

Every replica applies an operation by itself, so an operation may depend on nothing but the store and its arguments. It
is run again with the clocks a year later, with another seed of the module ``random`` and in a fresh instance of the
service; a connection over the network, another process or a file that is opened counts as a mistake at once.
"""

from __future__ import annotations

import datetime
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from unittest.mock import patch

from antiphon.services.advise.pairs import Bench, State
from antiphon.services.advise.search import explore
from antiphon.services.calls import BoundCall

LATER_SECONDS: Final = 400 * 86_400 + 3_661
CLOCKS: Final = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")
OUTSIDE: Final = ("socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "urllib.", "open")
"""Beginnings of the events of Python that say that a program reaches for the world."""


@dataclass
class RepeatMistake:
    """An operation that does not do the same twice."""

    operation: str
    before: tuple[BoundCall, ...]
    call: BoundCall
    what: str

    def size(self) -> tuple[int, int]:
        """Smaller ones are easier to read."""
        return len(self.before), len(str(self.call))


@dataclass
class RepeatFindings:
    """The smallest mistake of each operation that has any."""

    mistakes: dict[str, RepeatMistake] = field(default_factory=dict)
    tried: int = 0

    def add(self, mistake: RepeatMistake) -> None:
        """Keep a mistake if it is smaller than what is known."""
        known = self.mistakes.get(mistake.operation)
        if known is None or mistake.size() < known.size():
            self.mistakes[mistake.operation] = mistake


class Watch:
    """Notes what a program does outside of itself. Python keeps an audit hook for ever, so there is one for all."""

    def __init__(self) -> None:
        self.is_on = False
        self.seen: list[str] = []
        sys.addaudithook(self._on_event)

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.is_on and event.startswith(OUTSIDE) and not is_import(event, arguments):
            self.seen.append(event)

    @contextmanager
    def watching(self) -> Iterator[list[str]]:
        """The events until the end."""
        self.seen = []
        self.is_on = True
        try:
            yield self.seen
        finally:
            self.is_on = False


_watch: list[Watch] = []


def watch() -> Watch:
    """The one watch of this process."""
    if not _watch:
        _watch.append(Watch())
    return _watch[0]


def is_import(event: str, arguments: tuple[Any, ...]) -> bool:
    """Whether a file is opened because a module is imported for the first time."""
    return event == "open" and str(arguments[0]).endswith((".py", ".pyc", ".so"))


@contextmanager
def elsewhere(namespaces: list[dict[str, Any]]) -> Iterator[None]:
    """At another replica: later, and with other chance. ``namespaces`` are those in which operations find names."""
    state = random.getstate()
    with ExitStack() as stack:
        for name in CLOCKS:
            later = later_clock(getattr(time, name), name.endswith("_ns"))
            for namespace in namespaces:
                for local, value in list(namespace.items()):
                    if value is getattr(time, name):
                        stack.enter_context(patch.dict(namespace, {local: later}))
            stack.enter_context(patch.object(time, name, later))
        for namespace in namespaces:
            stack.enter_context(patch.dict(namespace, {local: LATER[value] for local, value in replaced(namespace)}))
        for name, kind in (("datetime", LaterDateTime), ("date", LaterDate)):
            stack.enter_context(patch.object(datetime, name, kind))
        random.seed(20_260_101)
        try:
            yield
        finally:
            random.setstate(state)


def later_clock(clock: Callable[[], Any], is_ns: bool) -> Callable[[], Any]:
    """The same clock, later."""
    ahead = LATER_SECONDS * 1_000_000_000 if is_ns else LATER_SECONDS
    return lambda: clock() + ahead


def replaced(namespace: dict[str, Any]) -> list[tuple[str, type]]:
    """The names that stand for classes with a clock."""
    return [(name, value) for name, value in namespace.items() if isinstance(value, type) and value in LATER]


class Like(type):
    """The class of classes that stand for their base: its instances are theirs too."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.__mro__[1])


class LaterDateTime(datetime.datetime, metaclass=Like):
    """``datetime.datetime``, whose clock is later."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        return NOW(tz) + datetime.timedelta(seconds=LATER_SECONDS)

    @classmethod
    def utcnow(cls) -> Any:
        return NOW(datetime.UTC).replace(tzinfo=None) + datetime.timedelta(seconds=LATER_SECONDS)

    @classmethod
    def today(cls) -> Any:
        return NOW() + datetime.timedelta(seconds=LATER_SECONDS)


class LaterDate(datetime.date, metaclass=Like):
    """``datetime.date``, whose clock is later."""

    @classmethod
    def today(cls) -> Any:
        return NOW().date() + datetime.timedelta(seconds=LATER_SECONDS)


NOW: Final = datetime.datetime.now
LATER: Final[dict[type, type]] = {datetime.datetime: LaterDateTime, datetime.date: LaterDate}


class RepeatSearch:
    """Runs operations several times on the same state."""

    def __init__(self, bench: Bench, other: Bench) -> None:
        """``other`` is another instance of the service."""
        self._bench = bench
        self._other = other
        methods = [call.method for call in bench.description.operations.values()]
        self._namespaces = list({id(one.__globals__): one.__globals__ for one in methods}.values())
        self.found = RepeatFindings()

    def try_calls(self, strategy: Any, examples: int, start: int) -> None:
        """Draw a state and a call, and apply it again and again."""
        explore(strategy, lambda drawn: self._look(*drawn), examples, start)

    def _look(self, before: tuple[BoundCall, ...], call: BoundCall) -> None:
        self.found.tried += 1
        state = self._bench.reach(before)
        if state is None:
            return
        with watch().watching() as seen:
            first = self._bench.after(state, call)
        again = self._bench.after(state, call)
        with elsewhere(self._namespaces):
            later = self._other.after(state, call)
        what = self._difference(seen, first, again, later)
        if what:
            self.found.add(RepeatMistake(call.call.name, before, call, what))

    @staticmethod
    def _difference(seen: list[str], first: State, again: State, later: State) -> str:
        if seen:
            return f"reaches for the world outside of the store ({seen[0]})"
        if effect(first) != effect(again):
            return "does not do the same twice on the same state"
        if effect(first) != effect(later):
            return "does something else at another time, with other chance or in another instance of the service"
        return ""


def effect(state: State) -> tuple[Any, ...]:
    """The contents of the store after a call, and its result."""
    return state.contents(), state.result
