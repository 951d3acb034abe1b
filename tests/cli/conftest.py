"""How tests call the command."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from antiphon.cli.main import main


class Called(NamedTuple):
    """What a call of the command gave; standard error without the hint that the package is not compiled."""

    code: int
    said: str
    complained: str


Command = Callable[..., Called]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Command:
    """Calls ``antiphon`` with the given arguments, in this process."""

    def call(*arguments: object) -> Called:
        monkeypatch.setattr(sys, "argv", ["antiphon", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        said, complained = capfdbinary.readouterr()
        lines = complained.decode().splitlines(keepends=True)
        hint = ("running without compiled modules", "times slower")
        kept = "".join(line for line in lines if not any(part in line for part in hint))
        return Called(int(stopped.value.code or 0), said.decode(), kept)

    return call
