"""The list of commands: a call imports the module of its own command and nothing heavy besides."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer

from antiphon.cli.main import ELSEWHERE, OWN, app_for, wanted_command
from antiphon.plugins import COMMANDS, entries_of
from tests.cli.conftest import Command

HEAVY = ("numpy", "pyarrow", "pyspark", "antiphon.simulator", "antiphon.audit", "antiphon.torture", "antiphon_lab")


def loaded_by(*arguments: str) -> set[str]:
    """The modules that a call of the command has imported when it ends."""
    program = (
        "import atexit, sys; sys.argv = ['antiphon', *sys.argv[1:]]; atexit.register(lambda: print('|', *sys.modules));"
        "from antiphon.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("|")[2].split())


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("pub", "--help"), ("sub", "--help")])
def test_a_call_imports_nothing_heavy_that_its_command_does_not_need(arguments: tuple[str, ...]) -> None:
    loaded = loaded_by(*arguments)
    assert [name for name in HEAVY if name in loaded] == []


def test_the_help_lists_every_command(command: Command) -> None:
    said = command("--help").said
    assert [name for name in (*OWN, *ELSEWHERE) if f" {name} " not in said] == []


def test_every_listed_command_exists() -> None:
    names = [*OWN, *(entry.name for entry in entries_of(COMMANDS))]
    assert set(typer.main.get_command(app_for(None)).commands) == set(names) | ELSEWHERE.keys()  # type: ignore[attr-defined]


def test_a_mistyped_command_is_corrected(command: Command) -> None:
    called = command("pbu")
    assert called.code == 2
    assert "Did you mean 'pub'" in called.complained


def test_a_shell_that_completes_a_word_sees_the_options_of_every_command(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wanted_command(["sub", "--co"]) == "sub"
    assert wanted_command(["--version"]) == ""
    monkeypatch.setenv("_ANTIPHON_COMPLETE", "complete_bash")
    assert wanted_command(["sub", "--co"]) is None
