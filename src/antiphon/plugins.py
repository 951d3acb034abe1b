"""What other distributions add to Antiphon, found by the entry points that they declare.

The laboratory (distribution ``antiphon-lab``) adds commands, protocols for scenarios and stages of
the tour. Anybody else can do the same: an entry point names an object, and the group says what it is for.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final

COMMANDS: Final = "antiphon.commands"
"""A function or a ``typer.Typer``, under the name of the command."""

PROTOCOLS: Final = "antiphon.protocols"
"""A dictionary of protocols by the names that scenarios use."""

TOUR: Final = "antiphon.tour"
"""Stages of ``antiphon demo``: pairs of a title and a function."""

LABORATORY: Final = "antiphon-lab"
"""The distribution that has the published protocols, experiments, benchmarks and reports."""


@cache
def plugins(group: str) -> dict[str, Any]:
    """The objects of a group by name, in the order of their names."""
    found = sorted(entry_points(group=group), key=lambda entry: entry.name)
    return {entry.name: entry.load() for entry in found}
