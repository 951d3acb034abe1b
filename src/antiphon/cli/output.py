"""Output of commands: results on standard output, everything else on standard error."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import typer

import antiphon.kernel.process

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    console: Console
    errors: Console

SECONDS_BETWEEN_LINES = 2.0

PLAIN_WIDTH = 120
"""The width where there is no terminal: enough for every table, so that no line is broken in two."""


def __getattr__(name: str) -> Any:
    """``console`` for results and ``errors`` for everything else, made when first used: a node prints a line and
    has no use for them."""
    if name not in {"console", "errors"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rich.console import Console

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PLAIN_WIDTH
    made = Console(highlight=False, width=width) if name == "console" else Console(stderr=True, highlight=False)
    return globals().setdefault(name, made)


def error_console() -> Console:
    """The console for everything but results."""
    return globals().get("errors") or __getattr__("errors")  # type: ignore[no-any-return]


def is_compiled() -> bool:
    """Whether the protocols and the engine run as compiled modules."""
    return not str(antiphon.kernel.process.__file__).endswith(".py")


def complain(sentence: str) -> None:
    """Print an error, on standard error."""
    from rich.markup import escape

    # A sentence may contain [[fault]] or [network], which are not markup.
    error_console().print(f"[bold red]antiphon:[/] {escape(sentence)}", soft_wrap=True)


def warn_if_not_compiled() -> None:
    """Say once, before long work, that compiled modules would be faster."""
    if not is_compiled():
        error_console().print(
            "antiphon: running without compiled modules (no C compiler at set-up): about 8 times slower"
        )


def end_with(found: dict[str, Any], as_json: bool, show: Callable[[dict[str, Any]], None], has_failed: bool) -> None:
    """Print a result, for programs or for people, and end with 1 if it is a failure."""
    if as_json:
        print_json(found)
    else:
        show(found)
    if has_failed:
        raise typer.Exit(1)


def print_json(result: object) -> None:
    """Print a result for machines: JSON and nothing else on standard output."""
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
    sys.stdout.buffer.flush()


def print_line(result: object) -> None:
    """Print one of many results for machines: JSON on a line of its own, at once."""
    sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")
    sys.stdout.buffer.flush()


@contextmanager
def progress(title: str, total: int) -> Iterator[Steps]:
    """Progress of long work: a bar on a terminal, a plain line now and then elsewhere; always on standard error."""
    errors = error_console()
    if errors.is_terminal:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=errors, transient=True) as bar:
            yield Steps(title, total, bar)
    else:
        yield Steps(title, total, None)


class Steps:
    """Counts the steps of long work."""

    def __init__(self, title: str, total: int, bar: Progress | None) -> None:
        self._title = title
        self._total = total
        self._done = 0
        self._bar = bar
        self._next_line = 0.0
        self._task = None if bar is None else bar.add_task(title, total=total)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Hide the bar while something else is printed."""
        if self._bar is not None:
            self._bar.stop()
        yield
        if self._bar is not None:
            self._bar.start()

    def step(self, what: str) -> None:
        """One more step is done."""
        self.reach(self._done + 1, what)

    def reach(self, done: int, what: str) -> None:
        """Set the number of finished steps; it may be the same as before."""
        finishes = done == self._total and self._done < done
        self._done = done
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, description=f"{self._title}: {what}")
        elif finishes or time.monotonic() >= self._next_line:
            print(f"{self._title}: {self._done}/{self._total} {what}", file=sys.stderr, flush=True)
            self._next_line = time.monotonic() + SECONDS_BETWEEN_LINES
