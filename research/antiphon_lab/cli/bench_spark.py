"""``antiphon bench spark``: the cost of a sweep on Spark, beside the same sweep in a plain pool of processes.

With ``--topics`` it measures topics in Spark instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer
from rich.table import Table

from antiphon.cli import output
from antiphon.kernel.errors import PeerError
from antiphon_lab.bench.own_process import run_antiphon
from antiphon_lab.cli import bench_topics

if TYPE_CHECKING:
    from antiphon_lab.bench.sweep_bench import SweepMeasurement

CELLS = 6
PUBLICATIONS = 4000
"""Five seconds and more on most machines."""
TOPIC_ROWS = 1_000_000
MOST_OVERHEAD = 0.15
"""The accepted overhead of Spark on cells of five seconds and more."""
FROM_SECONDS = 5.0
MOST_DISTURBED = 0.1
"""The processor time of other programs, per second, from which on a measurement is unreliable."""

NAMES = {"pool": "pool of processes", "spark": "Spark"}


class Overhead(msgspec.Struct, frozen=True):
    """The overhead of Spark over the pool, as shares."""

    elapsed: float
    processor: float | None
    """More reliable on a shared machine."""


def spark(
    cells: Annotated[int, typer.Option("--cells", metavar="N", min=1, help="Simulations of the sweep.")] = CELLS,
    publications: Annotated[
        int, typer.Option("--publications", metavar="N", min=1, help="Size of each: publications among 512 nodes.")
    ] = PUBLICATIONS,
    cores: Annotated[str, typer.Option("--cores", metavar="N,...", help="Numbers of cores.")] = "1,2",
    rounds: Annotated[
        int, typer.Option("--rounds", metavar="R", min=1, help="Measure every line so often; the fastest is shown.")
    ] = 1,
    engine: Annotated[
        Literal["spark", "pool"] | None,
        typer.Option(
            "--engine", help="Only this one, in this process, with the first number of cores; implies --json."
        ),
    ] = None,
    topics: Annotated[
        bool, typer.Option("--topics", help="Instead: how fast topics are read and written, beside Parquet files.")
    ] = False,
    rows: Annotated[
        int, typer.Option("--rows", metavar="N", min=1, help="With --topics: rows of 100 bytes.")
    ] = TOPIC_ROWS,
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", min=1, help="With --topics: live nodes.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Run one sweep on Spark and in a pool of processes: simulations per hour, rows of traces per second.

    Every line of the table is run in a process of its own. Both sides must have written the same bytes.
    [bold]outside[/] is the part of the seconds in which no cell ran; [bold]others[/] is the processor time of other
    programs meanwhile.

    With [bold]--topics[/]: write rows to a topic of live nodes and to Parquet files, and read them back from both.
    """
    numbers = parse_cores(cores)
    if topics:
        output.warn_if_not_compiled()
        lines_of_topics = bench_topics.measure(rows, rounds, nodes, numbers[-1])
        if json:
            output.print_json({"measurements": lines_of_topics})
        else:
            bench_topics.show(lines_of_topics)
        return
    if engine is not None:
        from antiphon_lab.bench.sweep_bench import measure_sweep

        output.print_json(measure_sweep(engine, numbers[0], cells, publications))
        return
    output.warn_if_not_compiled()
    lines = [(engine_name, number) for number in numbers for engine_name in ("pool", "spark")]
    every: list[SweepMeasurement] = []
    with output.progress("bench spark", len(lines) * rounds) as steps:
        # In turn, so that other load of the machine affects all lines equally.
        for engine_name, number in lines * rounds:
            every.append(measure_apart(engine_name, number, cells, publications))
            steps.step(f"{NAMES[engine_name]}, {number} cores")
    if len({one.fingerprint for one in every}) > 1:
        raise PeerError("Spark and the pool did not write the same bytes; one of them has a fault")
    measured = [fastest(every, engine_name, number) for engine_name, number in lines]
    overheads = overheads_of(measured)
    if json:
        output.print_json({"measurements": measured, "overheads": overheads})
    else:
        show(measured, overheads)


def fastest(measured: list[SweepMeasurement], engine: str, cores: int) -> SweepMeasurement:
    """The fastest of the rounds of a line, which others have disturbed least."""
    return min((one for one in measured if (one.engine, one.cores) == (engine, cores)), key=lambda one: one.seconds)


def parse_cores(text: str) -> list[int]:
    """Numbers of cores from a list with commas."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdigit() and int(word) > 0 for word in words):
        raise typer.BadParameter(f"expected numbers of cores such as 1,2, not {text!r}", param_hint="--cores")
    return [int(word) for word in words]


def measure_apart(engine: str, cores: int, cells: int, publications: int) -> SweepMeasurement:
    """Run one line in a process of its own."""
    from antiphon_lab.bench.sweep_bench import SweepMeasurement

    arguments = ["bench", "spark", "--engine", engine, "--cores", str(cores)]
    arguments += ["--cells", str(cells), "--publications", str(publications)]
    return run_antiphon(arguments, SweepMeasurement, f"the sweep in {NAMES[engine]}")


def overheads_of(measured: list[SweepMeasurement]) -> dict[str, Overhead]:
    """The overhead of Spark over the pool with as many cores, by their number."""
    pool = {one.cores: one for one in measured if one.engine == "pool"}
    return {
        str(one.cores): Overhead(
            elapsed=one.seconds / pool[one.cores].seconds - 1,
            processor=share_more(one.processor_seconds, pool[one.cores].processor_seconds),
        )
        for one in measured
        if one.engine == "spark"
    }


def share_more(one: float | None, other: float | None) -> float | None:
    """How much more one is than the other, as a share; unknown if either is."""
    return one / other - 1 if one and other else None


def show(measured: list[SweepMeasurement], overheads: dict[str, Overhead]) -> None:
    """The table for people."""
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    measures = ("cores", "s/cell", "start", "seconds", "outside", "simulations/h", "rows/s", "more")
    headings = (*measures, "processor s", "more", "others")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for one in measured:
        more = overheads[str(one.cores)] if one.engine == "spark" else None
        table.add_row(
            NAMES[one.engine],
            str(one.cores),
            f"{one.seconds_per_cell:.1f}",
            f"{one.start_seconds:.1f} s",
            f"{one.seconds:.1f}",
            f"{one.outside_seconds:.1f} s",
            f"{one.cells_per_hour:,.0f}",
            f"{one.rows_per_second:,.0f}",
            "" if more is None else f"{more.elapsed:+.1%}",
            "" if one.processor_seconds is None else f"{one.processor_seconds:.1f}",
            "" if more is None or more.processor is None else f"{more.processor:+.1%}",
            "" if one.others_seconds is None else f"{one.others_seconds:.1f} s",
        )
    output.console.print(table)
    shortest = min(one.seconds_per_cell for one in measured)
    if shortest < FROM_SECONDS:
        output.console.print(
            f"Cells of {shortest:.1f} s: the aim of {MOST_OVERHEAD:.0%} is for {FROM_SECONDS:.0f} s and more; "
            "raise --publications."
        )
    disturbed = [one for one in measured if one.others_seconds and one.others_seconds > MOST_DISTURBED * one.seconds]
    if disturbed:
        output.console.print(
            "The machine was busy with other work too (see others, in seconds of the processor); "
            "raise --rounds, or measure again when it is not."
        )
