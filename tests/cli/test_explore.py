"""``antiphon explore``."""

from __future__ import annotations

import json

from tests.cli.conftest import Command


def test_every_schedule_of_a_small_system_keeps_the_promises(command: Command) -> None:
    called = command("explore", "--only", "2 nodes, a newcomer", "--rounds", "1", "--json")
    assert called.code == 0, called.complained
    found = json.loads(called.said)["explorations"]
    assert [(one["failing"], one["returns"]) for one in found] == [(0, False), (0, True), (1, False), (1, True)]
    assert all(one["exhausted"] and one["violation"] is None and one["states"] > 20 for one in found)


def test_a_schedule_that_breaks_a_promise_is_told(command: Command) -> None:
    """Nobody ever compares what it has, so what a dead publisher said last stays with those who have it."""
    called = command("explore", "--only", "3 nodes, 1 publication", "--rounds", "0", "--states", "50")
    assert called.code == 1
    assert ": never delivered" in called.said and "node 0 crashes" in called.said


def test_a_limit_is_said(command: Command) -> None:
    called = command("explore", "--only", "2 nodes, 2 publications of one", "--states", "10", "--json")
    assert called.code == 0
    assert not any(one["exhausted"] for one in json.loads(called.said)["explorations"])


def test_an_unknown_system_is_refused(command: Command) -> None:
    called = command("explore", "--only", "9 nodes")
    assert called.code == 2 and "no system is called '9 nodes'" in " ".join(called.complained.split())


def test_clusters_with_a_client_are_explored(command: Command) -> None:
    called = command("explore", "--clients", "--fabric", "tree", "--reorderings", "0", "--states", "300", "--json")
    assert called.code == 0, called.complained
    found = json.loads(called.said)
    assert [(one["fabric"], one["crashing"]) for one in found["explorations"]] == [("tree", node) for node in range(3)]
    assert [one["exhausted"] for one in found["explorations"]] == [False, True, True]
    assert found["states"] == sum(one["states"] for one in found["explorations"]) > 500


def test_the_bounds_of_an_exploration_with_a_client_are_said(command: Command) -> None:
    called = command("explore", "--clients", "--fabric", "cube", "--script", "connect", "--states", "20", "--returns")
    assert called.code == 0, called.complained
    said = " ".join(called.said.split())
    assert (
        "60 states; messages arrive in order but for 1 of them; 0 timers expire while messages are in transit" in said
    )
    assert "and returns" in said


def test_options_that_mean_nothing_are_refused(command: Command) -> None:
    for arguments, reason in (
        (("--returns",), "belong to --clients"),
        (("--clients", "--fabric", "ring"), "there is no fabric 'ring'"),
        (("--clients", "--script", "causal connect"), "write 'connect' or nothing"),
    ):
        called = command("explore", *arguments)
        assert called.code == 2 and reason in " ".join(called.complained.split())
