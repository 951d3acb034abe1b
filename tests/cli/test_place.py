"""``antiphon place``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Command


def test_cities_get_identifiers_that_are_better_than_random_ones(command: Command) -> None:
    called = command("place", "--cities", "24", "--effort", "0.05", "--json")
    assert called.code == 0
    found = json.loads(called.said)
    assert [row["identifier"] for row in found["identifiers"]] == list(range(24))
    assert len({row["place"] for row in found["identifiers"]}) == found["places"] == 24
    assert found["chosen"]["mean_ms"] < found["greedy"]["mean_ms"] < found["random"]["mean_ms"]
    assert "place: 100/100" in called.complained
    again = command("place", "--cities", "24", "--effort", "0.05", "--json")
    assert again.said == called.said
    other = command("place", "--cities", "24", "--effort", "0.05", "--seed", "2", "--json")
    assert json.loads(other.said)["identifiers"] != found["identifiers"]


def test_the_largest_latency_can_be_the_goal(command: Command) -> None:
    by_mean, by_largest = (
        json.loads(command("place", "--cities", "32", "--effort", "0.2", "--goal", goal, "--json").said)["chosen"]
        for goal in ("mean", "largest")
    )
    assert by_largest["largest_ms"] < by_mean["largest_ms"]
    assert by_mean["mean_ms"] < by_largest["mean_ms"]


def test_people_see_a_drawing_and_the_order_in_which_to_start_nodes(command: Command, tmp_path: Path) -> None:
    matrix = tmp_path / "delays.csv"
    matrix.write_text("delay_ms,here,near,far\nhere,0,1,50\nnear,1,0,\nfar,50,50,0\n")
    called = command("place", matrix, "--estimate")
    assert called.code == 0
    assert "3 places, mean delay 33.7 ms, 1 delays estimated" in called.said
    assert "The longest way: " in called.said
    assert {"here", "near", "far"} == set(called.said.splitlines()[-1].split(", "))
    assert any("####" in line for line in called.said.splitlines())
    assert any("====" in line for line in called.said.splitlines())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "name a file with delays, --cities N or --live"),
        (["--live", "--cities", "8"], "name a file with delays, --cities N or --live"),
        (["nowhere.csv"], "cannot read nowhere.csv"),
        (["--cities", "500"], "choose from 2 to 128"),
        (["--cities", "8", "--goal", "best"], "there is no goal 'best'"),
    ],
)
def test_misuse_is_explained(command: Command, arguments: list[str], complaint: str) -> None:
    called = command("place", *arguments)
    assert called.code == 2
    assert complaint in " ".join(called.complained.split())


def test_a_broken_matrix_is_explained_with_its_line(command: Command, tmp_path: Path) -> None:
    matrix = tmp_path / "delays.csv"
    matrix.write_text("delay_ms,a,b\na,0,-3\nb,3,0\n")
    called = command("place", matrix)
    assert called.code == 2
    assert "line 2, a to b: -3 ms is negative" in " ".join(called.complained.split())
