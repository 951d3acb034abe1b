"""The tables of the documentation that follow from what fabrics say about themselves.

    python -m tests.fabrics.descriptions    # writes them into the pages

Each table stands in its page behind a line that begins with its heading.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.fabrics.options import options_of
from antiphon.fabrics.registry import FABRICS

DOCS: Final = Path(__file__).parents[2] / "docs"

FABRIC_HEADING: Final = "| live fabric | its nodes are connected | a cluster survives | total order |"


def in_toml(value: Any) -> str:
    """A default as it would stand in a file; ``none`` where the table has nothing."""
    if value is None or value == []:
        return "none"
    return f"`{msgspec.json.encode(value).decode()}`"


def fabric_rows() -> Iterator[str]:
    """What each fabric survives."""
    for fabric in FABRICS.values():
        yield f"| `{fabric.name}` | {fabric.shape} | {fabric.survives} | {fabric.total_order} |"


def option_rows(kind: type[msgspec.Struct]) -> Iterator[str]:
    """The options in the table of live nodes."""
    for option in options_of(kind):
        yield f"| `{option.name}` | {in_toml(option.default)} | {option.help} |"


def tables() -> Iterator[tuple[str, str, list[str]]]:
    """The page, the heading and the rows of each table."""
    yield "guarantees.md", FABRIC_HEADING, list(fabric_rows())
    for fabric in FABRICS.values():
        kind = fabric.implementation().table
        if kind is not None:
            yield "operations.md", f"| key of `[{fabric.name}]` | without it | meaning |", list(option_rows(kind))


def written(page: str, heading: str) -> list[str]:
    """The rows below a heading of a page, without the line between them."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    first = lines.index(heading) + 2
    return list(itertools.takewhile(lambda line: line.startswith("|"), lines[first:]))


def main() -> None:
    """Write all tables into their pages."""
    for page, heading, rows in tables():
        path = DOCS / page
        text = path.read_text(encoding="utf-8")
        old = written(page, heading)
        path.write_text(text.replace("\n".join(old), "\n".join(rows)), encoding="utf-8")


if __name__ == "__main__":
    main()
