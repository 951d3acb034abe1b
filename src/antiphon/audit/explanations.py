"""Explains violations to people: the few rows of the trace that show what went wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from antiphon.audit.columns.histories import NOBODY, POSITION
from antiphon.audit.columns.verdict import Example

Row = Mapping[str, Any]


ROWS_PER_STORY = 10
"""The most rows that a person would read."""


TELLING = ["time", "event", "node", "topic", "source", "sequence", POSITION]


CHANGES = ("subscribed", "unsubscribe", "unsubscribed")


def sentence(example: Example) -> str:
    """A violation in one sentence."""
    name = f"publication {example.sequence} of node {example.source} on topic {example.topic} at node {example.node}"
    witness = f": publication {example.witness_sequence} of node {example.witness_source}"
    shown = witness if example.kind == "causal" and example.witness_source != NOBODY else ""
    return f"{name}: {example.detail}{shown}"


def is_telling(row: Row, example: Example) -> bool:
    """Whether a row belongs to the explanation of a violation."""
    if row["topic"] != example.topic or row["node"] not in people(example):
        return False
    if row["event"] in CHANGES:
        return bool(row["node"] == example.node) and example.kind in ("membership", "completeness")
    return (row["source"], row["sequence"]) in publications(example) and row["event"] in ("publish", "deliver")


def people(example: Example) -> set[int]:
    """The nodes of an explanation: the node with the violation, and the publishers."""
    return {example.node, example.source, example.witness_source} - {NOBODY}


def publications(example: Example) -> set[tuple[int, int]]:
    """The publications of an explanation."""
    return {(example.source, example.sequence), (example.witness_source, example.witness_sequence)}


def tell(rows: Iterable[Row], example: Example) -> list[str]:
    """The explanation of a violation, one line per row; ``rows`` contain at least those that belong to it."""
    telling = sorted((row for row in rows if is_telling(row, example)), key=lambda row: int(row[POSITION]))
    # The violation comes last; for a node that joined and left often, the beginning is left out.
    return [line(row, example) for row in telling[-ROWS_PER_STORY:]]


def line(row: Row, example: Example) -> str:
    """A row in words."""
    words = {
        "publish": "is asked to publish",
        "deliver": "delivers",
        "subscribed": "becomes a member",
        "unsubscribe": "asks to leave",
        "unsubscribed": "is not a member any more",
    }
    what = "" if row["event"] in CHANGES else f" {row['sequence']} of node {row['source']}"
    starts = row["event"] == "deliver" and row["node"] == row["source"]
    mark = "   <- here" if row[POSITION] == example.position and example.kind != "completeness" else ""
    return (
        f"time {row['time']:,}: node {row['node']} {words[row['event']]}{what}{' (its start)' if starts else ''}{mark}"
    )


def tell_from_table(table: pa.Table, examples: Mapping[str, Example]) -> dict[str, list[str]]:
    """The explanations from a table; positions are row numbers."""
    rows: list[Row] = []
    for example in examples.values():
        here = pc.and_(
            pc.equal(table["topic"], example.topic), pc.is_in(table["node"], pa.array(people(example), pa.int32()))
        )
        places = pc.indices_nonzero(pc.fill_null(here, False))
        telling = table.select(TELLING[:-1]).take(places)
        telling = telling.set_column(1, "event", telling["event"].cast(pa.string()))
        rows += telling.append_column(POSITION, places.cast(pa.int64())).to_pylist()
    unique = {int(row[POSITION]): row for row in rows}
    return {kind: tell(unique.values(), example) for kind, example in examples.items()}
