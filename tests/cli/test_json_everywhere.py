"""Every command that prints a result prints it for programs too."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest
import typer

from antiphon.cli.main import OWN
from antiphon.plugins import COMMANDS, entries_of
from tests.reference.commands import parameters_of

WITHOUT_RESULT = {"demo", "maelstrom node"}
"""A tour, and a program that speaks a protocol on standard output."""


def commands() -> Iterator[tuple[str, str]]:
    """All commands, with the flags that each has."""
    entries = [*(EntryPoint(name, about.home, "") for name, about in OWN.items()), *entries_of(COMMANDS)]
    for entry in entries:
        command = entry.load()
        if isinstance(command, typer.Typer):
            for each in command.registered_commands:
                assert each.callback is not None
                yield f"{entry.name} {each.name or each.callback.__name__}", flags_of(each.callback)
        else:
            yield entry.name, flags_of(command)


def flags_of(function: object) -> str:
    return " ".join(each.names for each in parameters_of(function))  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "flags"), [pytest.param(*each, id=each[0]) for each in commands()])
def test_a_command_with_a_result_has_json(name: str, flags: str) -> None:
    assert ("`--json`" in flags) == (name not in WITHOUT_RESULT)
