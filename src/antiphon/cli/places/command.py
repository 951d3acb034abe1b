"""``antiphon place``: chooses the identifiers of the nodes of a cube by the delays between their places."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from librt.vecs import vec
from mypy_extensions import i64

import antiphon
from antiphon.cli import output, running
from antiphon.cli.places import drawing
from antiphon.cli.top import Watcher
from antiphon.kernel.errors import UsageError
from antiphon.placement.assignment import STEPS, Annealing, LongestWay, at_random, cost_of, greedily
from antiphon.placement.cities import CITIES, between_cities
from antiphon.placement.delay_matrix import DelayMatrix, read_matrix
from antiphon.placement.measured import matrix_of
from antiphon.placement.newcomers import cost_of_identifiers
from antiphon.placement.tree_cost import TreeCost

GOALS = ("mean", "largest")
RANDOM_ASSIGNMENTS = 20
"""Random identifiers differ; what they cost is a mean over so many."""


@dataclass
class Priced:
    """An assignment with its tree latencies over all pairs of a publisher and a receiver."""

    identifiers: list[int]
    """The place of each identifier."""
    mean_ms: float
    largest_ms: float
    longest_way: list[str]
    latencies_ms: list[float]

    def facts(self) -> dict[str, Any]:
        """The figures for programs."""
        return {"mean_ms": self.mean_ms, "largest_ms": self.largest_ms, "longest_way": self.longest_way}


@running.with_access()
def place(
    matrix: Annotated[
        Path | None,
        typer.Argument(metavar="MATRIX", help="Delays between places, as CSV: pairs or a square.", show_default=False),
    ] = None,
    cities: Annotated[
        int | None,
        typer.Option(
            "--cities",
            metavar="N",
            help=f"Instead of a file: the first N of {len(CITIES)} cities, with delays computed from their distances.",
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Instead: the round trips that the nodes of a running cluster measure.")
    ] = False,
    *,
    access: running.ServerAccess,
    goal: Annotated[
        str, typer.Option("--goal", metavar="mean|largest", help="Which latency to make small, over all pairs.")
    ] = "mean",
    estimate: Annotated[
        bool,
        typer.Option("--estimate", help="Estimate missing delays: from the other direction, or over a third place."),
    ] = False,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="The same seed gives the same identifiers.")] = 1,
    effort: Annotated[
        float, typer.Option("--effort", metavar="X", min=0.01, max=100, help="X times as many trials as usual.")
    ] = 1.0,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Choose identifiers such that nodes that are near each other are neighbours on the cube.

    Prints the latency over the trees of all publishers before, with random identifiers, and after.
    docs/guides/places.md describes the two forms of a matrix, and how nodes get the identifiers.

    With --live it asks the nodes of a cluster what they measure, and prints what their identifiers cost now.

    Examples: antiphon place delays.csv    antiphon place --cities 64 --goal largest    antiphon place --live
    """
    if goal not in GOALS:
        raise UsageError(f"there is no goal {goal!r}; choose mean or largest")
    if (matrix is not None) + (cities is not None) + live != 1:
        raise UsageError("name a file with delays, --cities N or --live; for example: antiphon place --cities 64")
    now: dict[int, int] = {}
    if live:
        delays, now = antiphon.run(cluster_delays(access))
    else:
        delays = delays_from(matrix, cities, estimate)
    output.warn_if_not_compiled()
    cost = cost_of(delays.rows)
    seeds = range(seed, seed + RANDOM_ASSIGNMENTS)
    before = [priced(cost, at_random(len(delays.names), each), delays) for each in seeds]
    greedy = priced(cost, greedily(cost, seed), delays)
    after = priced(cost, improved(cost, greedy.identifiers, goal, seed, effort), delays)
    found = {
        "places": len(delays.names),
        "estimated_delays": delays.estimated,
        "mean_delay_ms": delays.mean_us() / 1000,
        "goal": goal,
        "seed": seed,
        "random": {
            "mean_ms": sum(each.mean_ms for each in before) / len(before),
            "largest_ms": sum(each.largest_ms for each in before) / len(before),
            "assignments": len(before),
        },
        **({"now": present(now, delays)} if live else {}),
        "greedy": greedy.facts(),
        "chosen": after.facts(),
        "identifiers": [
            {"identifier": identifier, "place": delays.names[at]} for identifier, at in enumerate(after.identifiers)
        ],
    }
    if json:
        output.print_json(found)
    else:
        drawing.show(found, before[0].latencies_ms, after.latencies_ms)


def delays_from(matrix: Path | None, cities: int | None, estimate: bool) -> DelayMatrix:
    """The delays that the command is to use."""
    if matrix is None:
        return between_cities(cities or 0)
    try:
        text = matrix.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {matrix}: {error}") from error
    return read_matrix(text, str(matrix), estimate)


async def cluster_delays(access: running.ServerAccess) -> tuple[DelayMatrix, dict[int, int]]:
    """The delays between the nodes of a cluster, named by their addresses, and the place of each identifier now."""
    watcher = Watcher(access)
    try:
        nodes = (await watcher.picture()).nodes
    finally:
        await watcher.close()
    places = {node.address: place for place, node in enumerate(nodes)}
    round_trips_us = {
        (places[node.address], places[address]): round(1000 * milliseconds)
        for node in nodes
        for address, milliseconds in node.round_trips_ms.items()
        if address in places
    }
    now = {node.node: places[node.address] for node in nodes}
    return matrix_of([node.address for node in nodes], round_trips_us), now


def present(place_of: dict[int, int], delays: DelayMatrix) -> dict[str, Any]:
    """The figures of the identifiers that nodes have now."""
    cost, places = cost_of_identifiers(place_of, delays.rows)
    return priced(cost, places, delays).facts()


def improved(cost: TreeCost, start: list[int], goal: str, seed: int, effort: float) -> list[int]:
    """The identifiers after the search, with its progress on standard error."""
    steps_of_all = STEPS if goal == "mean" else 2 * STEPS
    with output.progress("place", steps_of_all) as steps:
        annealing = Annealing(cost, start, seed, effort)
        for _ in range(STEPS):
            annealing.step()
            steps.step(f"mean {annealing.mean_us() / 1000:.1f} ms")
        if goal == "mean":
            return annealing.best
        search = LongestWay(cost, annealing.best, seed, effort)
        for _ in range(STEPS):
            search.step()
            steps.step(f"largest {int(search.largest_us) / 1000:.1f} ms")
        return search.best


def priced(cost: TreeCost, identifiers: list[int], delays: DelayMatrix) -> Priced:
    """The latencies of an assignment."""
    place_at = vec[i64](identifiers)
    largest_us, publisher, receiver = cost.largest(place_at)
    return Priced(
        identifiers,
        cost.mean_us(place_at) / 1000,
        int(largest_us) / 1000,
        [delays.names[at] for at in cost.way(place_at, publisher, receiver)],
        [latency / 1000 for latency in cost.latencies(place_at)],
    )
