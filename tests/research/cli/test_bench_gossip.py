"""``antiphon bench gossip``: one size, several sizes, and the figure of these."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.conftest import Command


def test_everybody_delivers_the_whole_stream(command: Command) -> None:
    called = command("bench", "gossip", "--nodes", "30", "--publications", "5", "--json")
    assert (called.code, json.loads(called.said)["deliveries"]) == (0, 150)


def test_sizes_are_measured_one_by_one_and_drawn(command: Command, tmp_path: Path) -> None:
    drawn = tmp_path / "scale.svg"
    called = command("bench", "gossip", "--sizes", "10, 20", "--publications", "3", "--figure", drawn, "--json")
    found = json.loads(called.said)["measurements"]
    assert [(one["nodes"], one["deliveries"]) for one in found] == [(10, 30), (20, 60)]
    assert ElementTree.parse(drawn).getroot().tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--sizes", "10,many"), "expected numbers such as"),
        (("--figure", "scale.svg"), "one size is no curve"),
        (("--sizes", "2"), "needs at least as many nodes"),
    ],
)
def test_what_makes_no_sense_is_refused(command: Command, arguments: tuple[str, ...], complaint: str) -> None:
    called = command("bench", "gossip", *arguments)
    assert called.code == 2
    assert complaint in " ".join(called.complained.split())
