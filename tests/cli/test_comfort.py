"""The shell: completion, colours, widths."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def output_of(*arguments: str, **variables: str) -> str:
    """What a command prints on standard output."""
    done = subprocess.run(
        [Path(sys.executable).with_name("antiphon"), *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    return done.stdout


@pytest.mark.parametrize(("words", "expected"), [("antiphon no", ["node"]), ("antiphon node --lis", ["--listen"])])
def test_the_shell_completes_commands_and_flags(words: str, expected: list[str]) -> None:
    place = str(len(words.split()) - 1)
    said = output_of(COMP_WORDS=words, COMP_CWORD=place, _ANTIPHON_COMPLETE="complete_bash")
    assert said.split() == expected


def test_the_lines_for_the_shell_can_be_shown() -> None:
    assert "_ANTIPHON_COMPLETE=complete_bash" in output_of("--show-completion", "bash")


def test_no_color_means_no_colour_and_tables_fit_the_terminal() -> None:
    coloured = output_of("dependencies", COLUMNS="80", FORCE_COLOR="1", NO_COLOR="")
    plain = output_of("dependencies", COLUMNS="80", FORCE_COLOR="1", NO_COLOR="1")
    assert "\x1b[3" not in plain
    assert "\x1b[" in coloured
    assert max(len(line) for line in output_of("dependencies", COLUMNS="80").splitlines()) <= 80
