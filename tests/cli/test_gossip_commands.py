"""A gossip cluster from the command line: it outlives its founder, and a round of live torture finds nothing."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.cli.local_nodes import SECONDS, ended, first_line, started


def test_a_gossip_cluster_outlives_its_founder_and_takes_newcomers(tmp_path: Path, command: Command) -> None:
    traces = tmp_path / "traces"
    with started("up", "--fabric", "gossip", "-n", 4, "--port", 0, "--json", "--trace", traces) as up:
        nodes = first_line(up)["nodes"]
        left, right = nodes[1]["address"], nodes[2]["address"]
        with started("sub", "room", "--servers", left, "--count", 3, "--json") as sub:
            assert sub.stderr is not None
            assert sub.stderr.readline() == f"antiphon: subscribed to room at {left}\n"
            assert command("pub", "room", "one", "--servers", right).code == 0
            os.kill(nodes[0]["pid"], signal.SIGKILL)
            assert command("pub", "room", "two", "--order", "fifo", "--servers", right).code == 0
            with started("node", "--fabric", "gossip", "--join", right, "--json") as newcomer:
                address = first_line(newcomer)["address"]
                assert command("pub", "room", "three", "--servers", address).code == 0
                printed, _ = sub.communicate(timeout=SECONDS)
                assert ended(newcomer)[0] == 0
        assert [json.loads(line)["value"] for line in printed.splitlines()] == ["one", "two", "three"]
        code, complained = ended(up)
        assert code == 0
        assert "the others continue without it" in complained
    found = json.loads(command("audit", traces, "--json").said)
    assert found["verdict"] == "clean" and found["deliveries"] >= 3


@pytest.mark.campaign
def test_a_round_of_live_torture_finds_nothing(command: Command) -> None:
    called = command(
        "torture", "--live", "--fabric", "gossip", "--faults", "loss", "--nodes", 4, "--seconds", 1, "--json"
    )
    assert called.code == 0, called
    found = json.loads(called.said)
    assert (found["rounds"], found["kills"], found["founders_killed"], found["stuck"]) == (1, 4, 1, 0)
    assert found["newcomers"] > 0
    assert not any(found["violations"].values())
    assert 0 < found["messages"] < found["deliveries"]
