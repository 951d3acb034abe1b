"""``antiphon watch``: judges the order of live topics while they are used."""

from __future__ import annotations

import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer
from rich.markup import escape

from antiphon.cli import output, running
from antiphon.kernel.errors import PeerError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TRIGGER = "200 milliseconds"
SECONDS_BETWEEN_LOOKS = 1.0


class Watched(msgspec.Struct):
    """The results until the end."""

    topics: list[str]
    logs: int
    deliveries: int = 0
    violations: dict[str, int] = {}
    verdict: str = "clean"


@running.with_access()
def watch(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Topics to watch.", show_default=False)],
    access: running.ServerAccess,
    start: Annotated[
        Literal["latest", "earliest"], typer.Option(help="Begin with new messages, or with all that the logs hold.")
    ] = "latest",
    once: Annotated[bool, typer.Option("--once", help="Judge the present contents, and stop.")] = False,
    checkpoint: Annotated[
        Path | None, typer.Option(help="A directory with which another watch continues where this one ends.")
    ] = None,
    master: Annotated[str | None, typer.Option("--master", help="Watch on a Spark cluster.")] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per violation and line, and one at the end.")
    ] = False,
) -> None:
    """Watch live topics and report violations of their order as they happen, until Ctrl-C or SIGTERM.

    Spark reads the durable logs of all nodes and compares them: is anything delivered twice, before something that it
    follows, or, in total order, in different orders by different nodes? Any violation is exit code 1.

    Example: antiphon watch room --servers 127.0.0.1:7400    antiphon watch room --start earliest --once
    """
    found = watch_topics(options_of(access), topics, start, once, checkpoint, master, json)
    if json:
        output.print_line(found)
    else:
        show(found)
    if found.verdict != "clean":
        raise typer.Exit(1)


def options_of(access: running.ServerAccess) -> dict[str, str]:
    """The addresses and credentials, as options of Spark."""
    tls = access.tls or {}
    options = {f"tls{name.capitalize()}": value for name, value in tls.items()}
    if access.token:
        options["token"] = access.token
    return {"servers": access.servers, "cluster": access.cluster, **options}


def watch_topics(
    access: dict[str, str],
    topics: list[str],
    start: str,
    once: bool,
    checkpoint: Path | None,
    master: str | None,
    as_json: bool,
) -> Watched:
    """Watch until a signal, or until all present contents are judged."""
    import antiphon.spark
    from antiphon.audit.streaming.job import find_all_logs
    from antiphon.pipeline.session import SessionOptions, spark_session

    logs = find_all_logs(access, topics)
    found = Watched(topics, len(logs.by_number))
    with (
        spark_session("antiphon watch", SessionOptions(master=master, memory="1g", brief=True)) as session,
        tempfile.TemporaryDirectory(prefix="antiphon-watch-") as scratch,
    ):
        antiphon.spark.register(session)
        with stopped_by_signals() as stop:
            query = start_query(session, access, logs, found, start, checkpoint or Path(scratch), once, as_json)
            if not as_json:
                output.console.print(f"watching {escape(', '.join(topics))} in the logs of {found.logs} nodes")
            follow(query, found, stop)
    found.verdict = "violated" if any(found.violations.values()) else "clean"
    return found


def start_query(
    session: SparkSession,
    access: dict[str, str],
    logs: Any,
    found: Watched,
    start: str,
    checkpoint: Path,
    once: bool,
    as_json: bool,
) -> StreamingQuery:
    """The streaming query, which reports violations as they are found."""
    from antiphon.audit.streaming.job import violations

    def tell(frame: DataFrame, _: int) -> None:
        for row in frame.collect():
            found.violations[row["kind"]] = found.violations.get(row["kind"], 0) + 1
            if as_json:
                output.print_line(row.asDict())
            else:
                output.console.print(f"[bold red]{row['kind']}[/] on {escape(row['topic'])}: {escape(row['text'])}")

    writer = violations(session, access, logs, found.topics, start).writeStream.foreachBatch(tell)
    writer = writer.option("checkpointLocation", str(checkpoint)).outputMode("append")
    return (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=TRIGGER)).start()


def follow(query: StreamingQuery, found: Watched, stop: threading.Event) -> None:
    """Wait for the end, and count the rows."""
    counted = -1
    try:
        # The wait is here and not in Spark: a signal must not arrive in the middle of a call to Java.
        while query.isActive and not stop.wait(SECONDS_BETWEEN_LOOKS):
            counted = count_rows(query, found, counted)
        if stop.is_set():
            query.stop()
        else:
            query.awaitTermination()
        count_rows(query, found, counted)
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise
        if not stop.is_set():
            raise PeerError(f"watching has ended: {reason_in(str(error))}") from error
        # A signal may have stopped Java at the same moment; the results until then count.


def count_rows(query: StreamingQuery, found: Watched, counted: int) -> int:
    """Add the rows of micro-batches that were not counted yet; returns the last counted one.

    While no message arrives, Spark sometimes reports the next micro-batch as empty before it exists.
    """
    for progress in query.recentProgress:
        if progress["batchId"] > counted and progress["numInputRows"] > 0:
            counted = progress["batchId"]
            found.deliveries += progress["numInputRows"]
    return counted


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set once this command can end as it should; a second signal ends it at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before: dict[int, Any] = {}

    def ask(number: int, _: object) -> None:
        stop.set()
        signal.signal(number, before[number])

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, ask)
    try:
        yield stop
    finally:
        for asked, handler in before.items():
            signal.signal(asked, handler)


def reason_in(text: str) -> str:
    """Our own message in an error of Spark, which contains whole stacks."""
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("antiphon.")]
    return lines[-1].partition(": ")[2] if lines else text.strip().partition("\n")[0]


def show(found: Watched) -> None:
    """Print the totals for people."""
    output.console.print(f"{found.deliveries:,} deliveries in {found.logs} logs")
    for kind, count in found.violations.items():
        output.console.print(f"{kind}: [bold red]{count:,} violations[/]")
    if found.verdict == "clean":
        output.console.print("[bold green]nothing violated[/]")
