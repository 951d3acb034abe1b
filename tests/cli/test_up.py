"""``antiphon up``: processes start together, are watched, and end together."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.kernel.errors import UsageError
from antiphon.node.local_cluster import free_ports
from tests.cli.conftest import Command
from tests.cli.local_nodes import SECONDS, ended, first_line, is_running, started


def test_a_cluster_starts_and_ends_as_one(tmp_path: Path) -> None:
    with started("up", "-n", 3, "--port", 0, "--json", "--metrics", "--trace", tmp_path / "traces") as up:
        about = first_line(up)
        nodes = about["nodes"]
        assert [(node["node"], node["process"]) for node in nodes] == [(0, 0), (1, 1), (2, 2)]
        assert about["servers"].split(",") == [node["address"] for node in nodes]
        assert len({node["metrics"] for node in nodes}) == 3
        assert all(is_running(node["pid"]) for node in nodes)
        assert ended(up, signal.SIGINT) == (0, "")
    assert not any(is_running(node["pid"]) for node in nodes)
    assert sorted(path.name for path in (tmp_path / "traces").iterdir()) == [f"node-{i}.parquet" for i in range(3)]


def test_a_node_that_dies_is_reported_and_the_last_ends_the_command() -> None:
    with started("up", "-n", 2, "--port", 0, "--json") as up:
        nodes = first_line(up)["nodes"]
        assert up.stderr is not None
        os.kill(nodes[1]["pid"], signal.SIGKILL)
        while "ended with exit code -9" not in (line := up.stderr.readline()):
            assert line, "the end of the node was not reported"
        assert line.startswith("antiphon: node 1 at ") and line.endswith("the others continue without it\n")
        os.kill(nodes[0]["pid"], signal.SIGKILL)
        _, complained = up.communicate(timeout=SECONDS)
        assert up.returncode == 1
        assert "node 0 at " in complained
        assert complained.endswith("antiphon: all nodes have ended\n")


def test_no_node_outlives_the_command_however_that_ends() -> None:
    with started("up", "-n", 2, "--port", 0, "--json") as up:
        nodes = first_line(up)["nodes"]
        up.kill()
        up.communicate(timeout=SECONDS)
        deadline = time.monotonic() + SECONDS
        while any(is_running(node["pid"]) for node in nodes):
            assert time.monotonic() < deadline, "a node goes on without anybody who could end it"
            time.sleep(0.05)


def test_a_command_that_is_stopped_while_it_starts_leaves_nothing_running() -> None:
    with started("up", "-n", 4, "--port", 0, "--log-level", "info") as up:
        assert up.stderr is not None
        assert "in the cluster" in up.stderr.readline()
        code, _ = ended(up)
        assert code == 0


def test_what_nodes_log_carries_the_number_of_their_process() -> None:
    with started("up", "-n", 2, "--port", 0, "--json", "--log-level", "info", "--log-json") as up:
        first_line(up)
        code, logged = ended(up)
    assert code == 0
    entered = [line for line in map(json.loads, logged.splitlines()) if line["event"] == "in the cluster"]
    assert sorted((line["process"], line["node"]) for line in entered) == [(0, 0), (1, 1)]


def test_people_get_a_table_and_a_line_for_clients() -> None:
    with started("up", "-n", 1, "--port", 0) as up:
        assert up.stdout is not None
        lines = [up.stdout.readline().split() for _ in range(3)]
        ended(up)
    assert lines[0] == ["node", "address", "process"]
    assert lines[2] == ["export", f"ANTIPHON_SERVERS={lines[1][1]}"]


def test_a_cluster_that_cannot_start_leaves_nothing_running(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with started("up", "-n", 2, "--port", 0, "--data", tmp_path / "file") as up:
        said, complained = up.communicate(timeout=SECONDS)
    assert (up.returncode, said) == (1, "")
    assert "process 0 ended with exit code" in complained


@pytest.fixture
def taken() -> Iterator[int]:
    """A port at which somebody listens while the test runs."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_port_that_was_asked_for_and_is_taken_is_refused(command: Command, taken: int) -> None:
    called = command("up", "-n", 1, "--port", taken)
    assert called.code == 2
    assert f"port {taken} is taken" in called.complained


def test_ports_that_were_not_asked_for_are_the_next_free_ones(taken: int) -> None:
    assert free_ports(taken, 1, is_fixed=False) > taken
    with pytest.raises(UsageError, match="no 65537 free ports"):
        free_ports(1, 65_537, is_fixed=False)


def test_disk_needs_a_directory(command: Command) -> None:
    called = command("up", "--durability", "disk")
    assert called.code == 2
    assert "--data" in called.complained


def test_nodes_that_come_back_with_their_data_have_the_numbers_of_their_directories(tmp_path: Path) -> None:
    """Others speak of them by another identifier, which the table shows besides."""
    headings = (["node", "address", "process"], ["node", "address", "process", "identifier"])
    for life, heading in enumerate(headings):
        with started("up", "-n", 2, "--port", 0, "--data", tmp_path) as up:
            assert up.stdout is not None
            lines = [up.stdout.readline().split() for _ in range(3)]
            assert lines[0] == heading
            assert [line[0] for line in lines[1:]] == ["0", "1"]
            assert [line[3:] for line in lines[1:]] == ([[], []] if life == 0 else [["2"], ["3"]])
            ended(up)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["node-0", "node-1"]
