"""Additions of other distributions to Antiphon, found by the entry points that they declare.

The laboratory (distribution ``antiphon-lab``) adds commands, protocols for scenarios and stages of
the tour. Anybody else can do the same: an entry point names an object, and the group says what it is for.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

COMMANDS: Final = "antiphon.commands"
"""A function or a ``typer.Typer``, under the name of the command."""

PROTOCOLS: Final = "antiphon.protocols"
"""A dictionary of protocols by the names that scenarios use."""

TOUR: Final = "antiphon.tour"
"""Stages of ``antiphon demo``: pairs of a title and a function."""

LABORATORY: Final = "antiphon-lab"
"""The distribution that has the published protocols, experiments, benchmarks and reports."""


def entries_of(group: str) -> list[EntryPoint]:
    """The entry points of a group, in the order of their names; nothing is imported yet."""
    return sorted(entry_points(group=group), key=lambda entry: entry.name)


@cache
def plugins(group: str) -> dict[str, Any]:
    """The objects of a group by name, in the order of their names."""
    return {entry.name: entry.load() for entry in entries_of(group)}
