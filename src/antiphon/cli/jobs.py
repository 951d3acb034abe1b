"""Shared by commands that run many simulations as one job on Spark: options, progress, and interruption."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from antiphon.cli import output

if TYPE_CHECKING:
    from antiphon.pipeline.jobs import Job, Watcher

SECONDS_BETWEEN_LOOKS = 0.2

Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        envvar="ANTIPHON_SPARK_MASTER",
        help="A Spark cluster: spark://HOST:PORT, yarn, k8s://URL or sc://HOST:PORT; default Spark in this process.",
        show_default=False,
    ),
]
Cores = Annotated[
    int | None, typer.Option("--cores", metavar="N", min=1, help="Use so many cores; default all.", show_default=False)
]


def run_with_progress(
    job: Job[Any, Any], title: str, run: Callable[[Watcher], None], then: Callable[[output.Steps], None]
) -> None:
    """Run a job with a bar that shows how many units are done, running and left; ``then`` is called at every update.

    On an interrupt it prints what is finished, and the exit code is 130.
    """
    total = len(job.units)
    with output.progress(title, total) as steps:

        def watch(done: int, running: int) -> None:
            left = max(total - done - running - len(job.failures), 0)
            failed = f", {len(job.failures):,} failed" if job.failures else ""
            steps.reach(done, f"done, {running} running, {left} left{failed}")
            then(steps)

        try:
            with terminated_as_interrupted():
                run(watch)
        except KeyboardInterrupt as interrupt:
            output.complain(f"interrupted; {job.state()}; the same command does the rest")
            raise typer.Exit(130) from interrupt


Answer = TypeVar("Answer")


def interruptible(work: Callable[[], Answer]) -> Answer:
    """Run Spark work on another thread, because its connection cannot be interrupted in the middle of a call."""
    answers: list[Answer] = []
    errors: list[BaseException] = []

    def do() -> None:
        try:
            answers.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=do, name="spark-work", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(SECONDS_BETWEEN_LOOKS)
    if errors:
        raise errors[0]
    return answers[0]


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Treat SIGTERM like an interrupt key: Spark is stopped and its files are removed."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
