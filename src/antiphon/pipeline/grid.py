"""Reads a grid file: one scenario, lists of values for some of its keys, and seeds.

A grid uses the keys of scenario files. Its table ``[base]`` is a scenario (or ``scenario`` names a file with one), its
table ``[grid]`` gives a list of values where a scenario has one, and tables ``[[variant]]`` change several keys
together under a name. Every combination, with every seed, is a cell: one deterministic simulation.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from msgspec import Meta

import antiphon
from antiphon.kernel.errors import ScenarioError, UsageError
from antiphon.pipeline.sweep_cells import Cell, Scalar
from antiphon.simulator.scenario.file import check_scenario, read_text
from antiphon.simulator.scenario.scenario import LARGEST_SEED, OnceWorkload, RateWorkload, Scenario, ScenarioTable
from antiphon.simulator.scenario.toml_document import Document, Place, spell, to_toml
from antiphon.simulator.scenario.workload import publisher_count
from antiphon.trace.store import SCHEMA, SCHEMA_VERSION

MOST_CELLS = 20_000
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.\-]{0,63}$"
NOT_AXES = {
    "seed": "list the seeds before the tables instead, for example: seeds = [1, 2, 3]",
    "name": "cells are named after their parameters; leave it out",
}


class VariantTable(msgspec.Struct, frozen=True, kw_only=True):
    """The name of a variant; all its other keys are those of a scenario."""

    name: Annotated[str, Meta(pattern=NAME, description="a name of letters, digits, '-', '_'", examples=["crash"])]


class GridTable(ScenarioTable, frozen=True, kw_only=True):
    """A whole grid file."""

    experiment: Annotated[
        str, Meta(pattern=NAME, description="a name of letters, digits, '-', '_'", examples=["order-and-size"])
    ]
    scenario: Annotated[str, Meta(description="the name of a scenario file", examples=["base.toml"])] | None = None
    base: (
        Annotated[dict[str, Any], Meta(description="a table with a scenario in it", examples=[{"nodes": 64}])] | None
    ) = None
    seeds: (
        Annotated[
            list[Annotated[int, Meta(ge=0, le=LARGEST_SEED, description="an integer, 0 or more", examples=[7])]],
            Meta(min_length=1, description="a list of seeds", examples=[[1, 2, 3]]),
        ]
        | None
    ) = None
    repetitions: (
        Annotated[int, Meta(ge=1, le=MOST_CELLS, description="a number of repetitions, 1 or more", examples=[5])] | None
    ) = None
    grid: Annotated[
        dict[str, Any], Meta(description="a table with lists of values", examples=[{"nodes": [16, 64]}])
    ] = msgspec.field(default_factory=dict)
    variants: Annotated[
        list[dict[str, Any]], Meta(description="tables [[variant]]", examples=[[{"name": "crash"}]])
    ] = msgspec.field(name="variant", default_factory=list)


class Axis(msgspec.Struct, frozen=True):
    """A key of the scenario that takes several values."""

    place: tuple[str, ...]
    column: str
    values: list[Scalar]


class Grid(msgspec.Struct, frozen=True):
    """A grid file, expanded."""

    experiment: str
    columns: list[str]
    """The parameters in which cells differ, the seed last."""
    cells: list[Cell]


def load_grid(path: Path) -> Grid:
    """Load and check the cells of a grid file; every one is a valid scenario."""
    return parse_grid(read_text(path, "grid"), path)


def parse_grid(text: str, path: Path) -> Grid:
    """Parse and check the cells of a grid; a base scenario in another file is looked for beside ``path``."""
    document = Document(str(path), text)
    table = document.convert(document.table(), GridTable)
    base, base_document = base_of(table, document, path)
    axes = list(find_axes(table.grid, (), document))
    check_columns(axes, document)
    variants = check_variants(table, document)
    seeds = seeds_of(table, base, document)
    count = math.prod(len(axis.values) for axis in axes) * max(len(variants), 1) * len(seeds)
    if count > MOST_CELLS:
        raise document.error(("grid",), f"this makes {count:,} cells, and {MOST_CELLS:,} is the most; leave some out")
    columns = [*(["variant"] if variants else []), *(axis.column for axis in axes), "seed"]
    cells = []
    for number, (variant, values, seed) in enumerate(combinations(variants, axes, seeds)):
        origin = CellDocument(document, base_document, axes, variant)
        scenario = overlay(base, axes, values, table.variants, variant, seed, origin)
        parameters: dict[str, Scalar] = {} if variant is None else {"variant": variants[variant]}
        parameters |= {axis.column: value for axis, value in zip(axes, values, strict=True)}
        cells.append(build_cell(number, table.experiment, {**parameters, "seed": seed}, scenario, origin))
    return Grid(table.experiment, columns, cells)


def combinations(
    variants: list[str], axes: list[Axis], seeds: list[int]
) -> Iterator[tuple[int | None, tuple[Scalar, ...], int]]:
    """Every combination: the position of the variant (if there are any), a value of each axis, a seed."""
    positions: list[int | None] = list(range(len(variants))) if variants else [None]
    return itertools.product(positions, itertools.product(*(axis.values for axis in axes)), seeds)


def base_of(table: GridTable, document: Document, path: Path) -> tuple[dict[str, Any], Document | None]:
    """The base scenario as a table, and its file if that is not the grid's own."""
    if (table.base is None) == (table.scenario is None):
        raise document.error(
            ("base",) if table.base is not None else (),
            "expected either a table [base] with a scenario in it, or the name of a scenario file; "
            'for example: scenario = "base.toml"',
        )
    if table.base is not None:
        return table.base, None
    assert table.scenario is not None, "one of the two is there"
    place = path.parent / table.scenario
    try:
        found = Document(str(place), read_text(place, "scenario"))
    except UsageError as error:
        raise document.error(("scenario",), str(error)) from error
    return found.table(), found


def find_axes(table: dict[str, Any], place: tuple[str, ...], document: Document) -> Iterator[Axis]:
    """The lists of values, in the order of the file."""
    for key, value in table.items():
        inner = (*place, key)
        if isinstance(value, dict):
            yield from find_axes(value, inner, document)
            continue
        example = f"for example: {key} = [{to_toml(value)}]" if not isinstance(value, list) else ""
        if not isinstance(value, list):
            raise document.error(("grid", *inner), f"expected a list of values, not {to_toml(value)}; {example}")
        if inner[0] in NOT_AXES:
            raise document.error(("grid", *inner), f"this cannot be varied here; {NOT_AXES[inner[0]]}")
        yield Axis(inner, column_of(inner), checked_values(value, inner, document))


def checked_values(values: list[Any], place: tuple[str, ...], document: Document) -> list[Scalar]:
    """The values of an axis: at least one, no duplicates, and simple enough for a column."""
    if not values:
        raise document.error(("grid", *place), "expected at least one value; leave the key out to take the base's")
    for position, value in enumerate(values):
        if not isinstance(value, str | int | float) or value == "":
            raise document.error(
                ("grid", *place),
                f"expected numbers, words or truth values, not {to_toml(value)}; "
                "to vary tables and lists, give each a name in a table [[variant]]",
            )
        # In Python 1 == True == 1.0, and a column would show them as equal.
        if any(label(value) == label(other) for other in values[:position]):
            raise document.error(("grid", *place), f"{to_toml(value)} is listed twice; leave one out")
    return values


def check_columns(axes: list[Axis], document: Document) -> None:
    """Every parameter has a column of its own."""
    seen: dict[str, Axis] = {}
    for axis in axes:
        other = seen.setdefault(axis.column, axis)
        if other is not axis:
            raise document.error(
                ("grid", *axis.place),
                f"its column would have the same name as that of {spell(other.place)}; leave one out",
            )


def column_of(place: tuple[str, ...]) -> str:
    """The column of a key: ``network.delay.ticks`` becomes ``network_delay_ticks``.

    A key with the name of a trace column (``order``) becomes ``scenario_order``, because both are in one table.
    """
    name = re.sub(r"\W", "_", "_".join(place))
    return f"scenario_{name}" if name in {*SCHEMA.names, "experiment", "variant"} else name


def check_variants(table: GridTable, document: Document) -> list[str]:
    """The names of the variants, each once."""
    names: list[str] = []
    for number, variant in enumerate(table.variants):
        name = document.convert(variant, VariantTable, ("variant", number)).name
        if name in names:
            raise document.error(("variant", number, "name"), f'there is a variant "{name}" already; rename one')
        if "seed" in variant:
            raise document.error(("variant", number, "seed"), f"this cannot be varied here; {NOT_AXES['seed']}")
        names.append(name)
    return names


def seeds_of(table: GridTable, base: dict[str, Any], document: Document) -> list[int]:
    """The seeds: as listed, or as many as there are repetitions, from the base's seed up."""
    if table.seeds is not None:
        if table.repetitions is not None:
            raise document.error(("repetitions",), "the seeds are listed already; leave out seeds or repetitions")
        if len(set(table.seeds)) < len(table.seeds):
            raise document.error(("seeds",), "a seed is listed twice, which would run the same cell twice")
        return table.seeds
    first = base.get("seed", 1)
    if not isinstance(first, int) or table.repetitions is None:
        # The check of the scenario reports a wrong seed.
        return [first]
    return list(range(first, first + table.repetitions))


class CellDocument(Document):
    """Reports an error in a cell at its origin: in the grid, in a variant, or in the base scenario."""

    def __init__(self, document: Document, base: Document | None, axes: list[Axis], variant: int | None) -> None:
        super().__init__(document.name)
        self._document = document
        self._base = base
        self._axes = axes
        self._variant = variant

    def error(self, place: Place, sentence: str) -> ScenarioError:
        """The complaint about a value at a place of the cell's scenario."""
        for axis in self._axes:
            if place[: len(axis.place)] == axis.place:
                return self._document.error(("grid", *place), sentence)
        if self._variant is not None and self._document.has(("variant", self._variant, *place[:1])):
            return self._document.error(("variant", self._variant, *place), sentence)
        if self._base is not None:
            return self._base.error(place, sentence)
        return self._document.error(("base", *place), sentence)


def overlay(
    base: dict[str, Any],
    axes: list[Axis],
    values: tuple[Scalar, ...],
    variants: list[dict[str, Any]],
    variant: int | None,
    seed: int,
    origin: CellDocument,
) -> Scenario:
    """The scenario of a cell: the base, changed by the variant, then by the values of the axes."""
    table = copy.deepcopy(base)
    if variant is not None:
        merge(table, {key: value for key, value in variants[variant].items() if key != "name"})
    for axis, value in zip(axes, values, strict=True):
        changed: Any = value
        for key in reversed(axis.place):
            changed = {key: changed}
        merge(table, changed)
    table["seed"] = seed
    return origin.convert(table, Scenario)


def merge(table: dict[str, Any], changes: dict[str, Any]) -> None:
    """Change a table key by key. Nested tables are changed and not replaced, unless their kind changes."""
    for key, value in changes.items():
        inner = table.get(key)
        if isinstance(inner, dict) and isinstance(value, dict) and not changes_kind(inner, value):
            merge(inner, value)
        else:
            table[key] = copy.deepcopy(value)


def changes_kind(table: dict[str, Any], changes: dict[str, Any]) -> bool:
    """Whether the key that decides the kind of a table gets another value; the other keys are meaningless then."""
    return any(key in changes and key in table and changes[key] != table[key] for key in ("law", "kind"))


def build_cell(
    number: int, experiment: str, parameters: dict[str, Scalar], scenario: Scenario, origin: CellDocument
) -> Cell:
    """A checked cell, with its place on disk and the digest that changes with it."""
    named = ", ".join(f"{column} {label(value)}" for column, value in parameters.items())
    scenario = msgspec.structs.replace(scenario, name=f"{experiment}: {named}")
    try:
        check_scenario(scenario, origin)
    except ScenarioError as error:
        raise ScenarioError(f"{error} (in the cell with {named})") from error
    steps = [f"experiment={experiment}", *(f"{column}={quote(label(value))}" for column, value in parameters.items())]
    described = json.dumps(msgspec.to_builtins(scenario), sort_keys=True)
    return Cell(
        number=number,
        parameters=parameters,
        scenario=scenario,
        directory="/".join(steps),
        digest=hashlib.sha256(f"{antiphon.__version__} {SCHEMA_VERSION} {described}".encode()).hexdigest(),
        work=estimate_work(scenario),
    )


def label(value: Scalar) -> str:
    """A value as it appears in the name of a directory."""
    return to_toml(value) if isinstance(value, bool) else str(value)


def estimate_work(scenario: Scenario) -> int:
    """The approximate number of copies in a run; good enough to begin with the largest."""
    workload = scenario.workload
    publications = len(scenario.publications)
    if isinstance(workload, OnceWorkload):
        publications += publisher_count(workload, scenario.nodes)
    elif isinstance(workload, RateWorkload):
        gaps = (min(workload.until or scenario.limits.time, scenario.limits.time) - workload.start) / workload.mean_gap
        publications += int(gaps if workload.count is None else min(workload.count, gaps))
    share = 1.0 if scenario.topics is None or scenario.topics.members is not None else scenario.topics.share
    return int(publications * max(1.0, scenario.nodes * share)) + scenario.nodes
