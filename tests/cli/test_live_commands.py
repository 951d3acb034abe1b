"""``antiphon pub``, ``sub``, ``top`` and ``audit`` with a real cluster of three processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from antiphon.cli.pub import GROUPS_IN_FLIGHT, LOAD_GROUP
from antiphon.cli.running import ServerAccess
from antiphon.cli.top import Picture, Watcher, at_quotas_in
from antiphon.node.acl import new_token, token_hash
from tests.cli.conftest import Command
from tests.cli.local_nodes import SECONDS, ended, first_line, started


@dataclass
class Cluster:
    """Where the nodes of a running cluster are."""

    servers: list[str]
    pids: list[int]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes with logs."""
    data = tmp_path_factory.mktemp("cluster")
    with started("up", "-n", 3, "--port", 0, "--json", "--data", data, "--durability", "memory") as up:
        nodes = first_line(up)["nodes"]
        yield Cluster([node["address"] for node in nodes], [node["pid"] for node in nodes])
        assert ended(up) == (0, "")


def piped(text: bytes, *arguments: object) -> subprocess.CompletedProcess[bytes]:
    """A command with something on standard input."""
    command = [sys.executable, "-m", "antiphon", *map(str, arguments)]
    return subprocess.run(command, input=text, capture_output=True, timeout=SECONDS, check=False)


def test_what_is_published_at_one_node_is_printed_at_another(cluster: Cluster, command: Command) -> None:
    first, second, _ = cluster.servers
    with started("sub", "room", "--servers", first, "--count", 3, "--json") as sub:
        assert sub.stderr is not None
        assert sub.stderr.readline() == f"antiphon: subscribed to room at {first}\n"
        options = ("--key", "k", "--header", "lang=en", "--ttl", "600", "--order", "fifo")
        called = command("pub", "room", "why?", "because", "--servers", second, *options)
        assert (called.code, called.said) == (0, "")
        assert f"2 messages accepted by {second} in " in called.complained
        binary = piped(b"\xff\xfe\n", "pub", "room", "--servers", second)
        assert binary.returncode == 0
        printed, _ = sub.communicate(timeout=SECONDS)
        assert sub.returncode == 0
    messages = [json.loads(line) for line in printed.splitlines()]
    assert [message.get("value") for message in messages] == ["why?", "because", None]
    assert [message["sequence"] for message in messages] == [1, 2, 3]
    assert [message["offset"] for message in messages] == [0, 1, 2]
    assert [message["order"] for message in messages] == ["fifo", "fifo", "causal"]
    assert messages[0]["key"] == "k"
    assert messages[0]["headers"] == {"lang": "en"}
    assert messages[2]["value_base64"] == "//4="


def test_lines_of_standard_input_are_messages_and_the_log_gives_them_back(cluster: Cluster, command: Command) -> None:
    lines = [f"line {number}" for number in range(3000)]
    done = piped("\n".join(lines).encode(), "pub", "lines", "--servers", cluster.servers[0], "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["accepted"] == 3000
    read = command("sub", "lines", "--servers", cluster.servers[0], "--start", "earliest", "--count", 3000)
    assert read.code == 0
    assert read.said.splitlines() == lines
    read = command("sub", "lines", "--servers", cluster.servers[0], "--start", 2990, "--count", 5)
    assert read.said.splitlines() == lines[2990:2995]
    read = command("sub", "lines", "--servers", cluster.servers[0], "--start", "2020-01-31T12:00", "--count", 2)
    assert read.said.splitlines() == lines[:2]


def test_a_pattern_prints_topics_too(cluster: Cluster, command: Command) -> None:
    with started("sub", "orders.*", "--servers", cluster.servers[2], "--count", 2) as sub:
        assert sub.stderr is not None
        sub.stderr.readline()
        for topic in ("orders.new", "orders.old"):
            assert command("pub", topic, "1", "--servers", cluster.servers[1]).code == 0
        printed, _ = sub.communicate(timeout=SECONDS)
    assert sorted(printed.splitlines()) == ["orders.new\t1", "orders.old\t1"]


def test_a_load_arrives_whole_and_a_quiet_subscriber_counts_it(cluster: Cluster, command: Command) -> None:
    with started("sub", "load", "--servers", cluster.servers[1], "--count", 20_000, "--quiet") as sub:
        assert sub.stderr is not None
        sub.stderr.readline()
        called = command("pub", "load", "--servers", cluster.servers[0], "--count", 20_000, "--size", 50, "--json")
        result = json.loads(called.said)
        assert (called.code, result["accepted"], called.complained) == (0, 20_000, "")
        printed, counted = sub.communicate(timeout=SECONDS)
    assert (sub.returncode, printed) == (0, "")
    assert "20,000 messages in " in counted.splitlines()[-1]


def test_a_load_keeps_its_rate(cluster: Cluster, command: Command) -> None:
    called = command("pub", "slow", "--servers", cluster.servers[0], "--count", 30, "--rate", 100, "--json")
    result = json.loads(called.said)
    # The last of 30 is due 0.29 seconds after the first; a busy machine may be later, never earlier.
    assert result["accepted"] == 30
    assert result["seconds"] > 0.28


def test_top_shows_every_node_and_topic(cluster: Cluster, command: Command) -> None:
    command("pub", "shown", "x", "--servers", cluster.servers[1])
    called = command("top", "--once", "--interval", 0.1, "--json", "--servers", cluster.servers[2])
    picture = json.loads(called.said)
    assert [node["node"] for node in picture["nodes"]] == [0, 1, 2]
    assert [node["address"] for node in picture["nodes"]] == cluster.servers
    assert "shown" in picture["nodes"][1]["topics"]
    assert (called.code, picture["unreachable"]) == (0, [])
    plain = command("top", "--once", "--interval", 0.1, "--servers", cluster.servers[2]).said
    assert plain.startswith(f"node 0 {cluster.servers[0]}: ")
    for node in picture["nodes"]:
        others = set(cluster.servers) - {node["address"]}
        assert set(node["round_trips_ms"]) == others
        assert all(0 < milliseconds < 60_000 for milliseconds in node["round_trips_ms"].values())
    assert "\n  shown: 0 delivered/s" in plain


def test_place_finds_out_how_far_live_nodes_are(cluster: Cluster, command: Command) -> None:
    called = command("place", "--live", "--servers", cluster.servers[1], "--json")
    assert called.code == 0
    found = json.loads(called.said)
    assert (found["places"], found["estimated_delays"]) == (3, 0)
    assert {row["place"] for row in found["identifiers"]} == set(cluster.servers)
    assert set(found["now"]["longest_way"]) <= set(cluster.servers)
    assert 0 < found["chosen"]["mean_ms"] <= found["now"]["mean_ms"] < 60_000


def test_rates_are_differences_over_time() -> None:
    watcher = Watcher(ServerAccess("127.0.0.1:1", "antiphon"))
    zeros = dict.fromkeys(("delivered_messages", "published", "delivered_bytes", "publisher_waits"), 0)
    gauges = {"lag": 3, "dropped": 1, "unsent": 2}

    def status(count: int) -> dict[str, Any]:
        topics = {"a": {**zeros, **gauges, "delivered_messages": count}, "b": {**zeros, **gauges, "published": count}}
        sizes = dict.fromkeys(("clients", "bytes_uncommitted", "bytes_unwritten"), 0)
        return {"node": 4, "address": "here:1", "topics": topics, "troubles": ["disk: full"], **sizes}

    assert watcher._figures(status(100), 0.0).total.delivered_per_second == 0
    figures = watcher._figures(status(300), 2.0)
    assert figures.topics["a"].delivered_per_second == 100
    assert figures.topics["b"].published_per_second == 100
    assert (figures.total.lag, figures.total.dropped, figures.total.unsent) == (3, 2, 4)
    assert figures.troubles == ["disk: full"]


def test_top_names_clients_at_a_quota() -> None:
    watcher = Watcher(ServerAccess("127.0.0.1:1", "antiphon"))

    def status(topics: int, slowed: int) -> dict[str, Any]:
        sizes = dict.fromkeys(("clients", "bytes_uncommitted", "bytes_unwritten"), 0)
        hits = {"messages_per_second": slowed}
        shop = {"topics": topics, "memory": 5, "bounds": {"topics": 7, "memory": 100}, "hits": hits}
        return {"node": 4, "address": "here:1", "topics": {}, "troubles": [], **sizes, "quotas": {"shop": shop}}

    def lines(topics: int, slowed: int) -> list[str]:
        return at_quotas_in(Picture(1.0, [watcher._figures(status(topics, slowed), 1.0)], []))

    watcher._figures(status(0, 10), 0.0)
    assert lines(6, 10) == []
    assert lines(7, 10) == ["node 4: client shop is at its quota topics (7 of 7)"]
    assert lines(6, 13) == ["node 4: client shop is at its quota messages_per_second, 3 times refused or slowed"]


MISUSES = {
    "nothing listens": (["pub", "room", "x", "--servers", "127.0.0.1:1"], 1, "cannot connect to a node at 127.0.0.1:1"),
    "none of two listens": (["sub", "room", "--servers", "127.0.0.1:1,127.0.0.1:2"], 1, "none of 2 nodes answers"),
    "top of nothing": (["top", "--servers", "127.0.0.1:1"], 1, "check that one runs there (antiphon up)"),
    "no servers": (["top", "--servers", " , "], 2, "--servers names no node"),
    "a bad start": (["sub", "room", "--start", "tomorrow"], 2, "not at 'tomorrow'"),
    "a bad header": (["pub", "room", "x", "--header", "odd"], 2, "a header is NAME=VALUE, not 'odd'"),
    "a rate of nothing": (["pub", "room", "--rate", "5"], 2, "give the number of messages with --count"),
    "values and a load": (["pub", "room", "x", "--count", "5"], 2, "give either values or --count"),
    "a rate of zero": (["pub", "room", "--count", "5", "--rate", "0"], 2, "a rate is positive"),
    "no interval": (["top", "--interval", "0"], 2, "an interval is positive"),
}


@pytest.mark.parametrize(("arguments", "code", "complaint"), MISUSES.values(), ids=MISUSES.keys())
def test_misuse_is_explained(command: Command, arguments: list[str], code: int, complaint: str) -> None:
    called = command(*arguments)
    assert (called.code, called.said) == (code, "")
    assert complaint in called.complained


def test_a_topic_that_cannot_be_is_refused(cluster: Cluster, command: Command) -> None:
    called = command("pub", "orders.*", "x", "--servers", cluster.servers[0])
    assert called.code == 2
    assert "orders.*" in called.complained


def test_servers_can_come_from_the_environment(
    cluster: Cluster, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_SERVERS", f"127.0.0.1:1,{cluster.servers[1]}")
    assert f"accepted by {cluster.servers[1]}" in command("pub", "room", "x").complained


def test_a_reader_that_has_seen_enough_ends_the_command(cluster: Cluster) -> None:
    with started("sub", "endless", "--servers", cluster.servers[0]) as sub:
        assert sub.stderr is not None
        assert sub.stdout is not None
        sub.stderr.readline()
        sub.stdout.close()
        sub.stdout = None
        piped(b"1\n", "pub", "endless", "--servers", cluster.servers[0])
        _, complained = sub.communicate(timeout=SECONDS)
        assert (sub.returncode, complained) == (0, "")


def test_commands_say_when_their_node_is_gone() -> None:
    with started("node", "--json") as node:
        address = first_line(node)["address"]
        with (
            started("sub", "room", "--servers", address, "--reconnect", 0.5) as sub,
            started("pub", "room", "--servers", address, "--count", 10**9, "--reconnect", 0) as pub,
        ):
            # While a message is made, at most the groups in flight and the one before them are not known as accepted.
            assert sub.stdout is not None
            while int(sub.stdout.readline().split(maxsplit=1)[0]) <= LOAD_GROUP * (GROUPS_IN_FLIGHT + 2):
                pass
            node.kill()
            gone = f"the node at {address} is gone, and no other was found in 0.5 seconds"
            ended_at_once = f"the connection to the node at {address} has ended"
            for process, complaint in ((sub, gone), (pub, ended_at_once)):
                _, complained = process.communicate(timeout=SECONDS)
                assert process.returncode == 1
                assert complaint in " ".join(complained.split())
                assert "Traceback" not in complained
            assert "messages had been accepted before this" in complained


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The traces of a run in which two nodes published in different orders and a third listened."""
    directory = tmp_path_factory.mktemp("traces")
    with started("up", "-n", 3, "--port", 0, "--json", "--trace", directory) as up:
        servers = [node["address"] for node in first_line(up)["nodes"]]
        with started("sub", "room", "--servers", servers[2], "--count", 600, "--quiet") as sub:
            assert sub.stderr is not None
            sub.stderr.readline()
            for server, order in ((servers[0], "causal"), (servers[1], "none"), (servers[0], "fifo")):
                assert piped(b"x\n" * 200, "pub", "room", "--servers", server, "--order", order).returncode == 0
            sub.communicate(timeout=SECONDS)
        assert ended(up) == (0, "")
    return directory


def test_an_audit_of_a_live_run_finds_nothing(traces: Path, command: Command) -> None:
    called = command("audit", traces, "--json")
    found = json.loads(called.said)
    assert (called.code, found["verdict"], found["messages"], found["missing_nodes"]) == (0, "clean", 600, [])
    # Node 1 began to publish when 200 messages had been published.
    assert found["deliveries"] == 3 * 600 - 200
    applies = {name for name, check in found["checks"].items() if check["applies"]}
    assert applies == {"completeness", "duplicates", "fifo", "causal", "validity", "membership"}
    assert found["checks"]["total"] == {"applies": False, "violations": 0, "example": None, "story": []}
    plain = command("audit", *traces.iterdir())
    assert (plain.code, plain.said.splitlines()[-1]) == (0, "nothing violated")


def test_total_order_on_a_cube_of_processes_passes_the_audit(tmp_path: Path, command: Command) -> None:
    """Two nodes publish at the same time about a key that they share, one of them also in a weaker order."""
    with started("up", "-n", 3, "--port", 0, "--json", "--trace", tmp_path) as up:
        servers = [node["address"] for node in first_line(up)["nodes"]]
        with started("sub", "room", "--servers", servers[2], "--count", 300, "--quiet") as sub:
            assert sub.stderr is not None
            sub.stderr.readline()
            total = ("--order", "total", "--key", "anna", "--count", 100, "--rate", 500)
            with started("pub", "room", "--servers", servers[0], *total, "--key", "ben") as pub:
                assert piped(b"", "pub", "room", "--servers", servers[1], *total).returncode == 0
                weaker = piped(b"x\n" * 100, "pub", "room", "--servers", servers[1], "--order", "none", "--key", "ben")
                assert weaker.returncode == 0
                pub.communicate(timeout=SECONDS)
            sub.communicate(timeout=SECONDS)
        assert ended(up) == (0, "")
    called = command("audit", tmp_path, "--json")
    found = json.loads(called.said)
    assert (called.code, found["verdict"], found["messages"]) == (0, "clean", 300)
    assert found["checks"]["total"] == {"applies": True, "violations": 0, "example": None, "story": []}


def test_an_audit_without_a_publisher_says_what_it_cannot_tell(traces: Path, command: Command) -> None:
    silent = [path for path in traces.iterdir() if pq.read_table(path)["node"][0].as_py() == 1]
    called = command("audit", *(path for path in traces.iterdir() if path not in silent), "--json")
    found = json.loads(called.said)
    assert (called.code, found["missing_nodes"]) == (0, [1])
    assert not found["checks"]["validity"]["applies"]


def test_an_audit_finds_what_was_lost(traces: Path, command: Command, tmp_path: Path) -> None:
    for path in traces.iterdir():
        table = pq.read_table(path)
        if table["node"][0].as_py() == 2:
            is_lost = pc.and_(pc.equal(table["source"], 0), pc.equal(table["sequence"], 7))
            table = table.filter(pc.invert(is_lost))
        pq.write_table(table, tmp_path / path.name)
    called = command("audit", tmp_path, "--json")
    found = json.loads(called.said)
    assert (called.code, found["verdict"]) == (1, "violated")
    assert found["checks"]["completeness"]["violations"] == 1
    assert "publication 7 of node 0" in found["checks"]["completeness"]["example"]
    plain = command("audit", tmp_path)
    assert plain.code == 1
    assert "1 violations, such as publication 7 of node 0" in " ".join(plain.said.split())


def test_an_audit_of_nothing_is_misuse(command: Command, tmp_path: Path) -> None:
    called = command("audit", tmp_path)
    assert called.code == 2
    assert "nodes write theirs when they leave" in called.complained


EXAMPLES = Path(__file__).parents[2] / "examples" / "scenarios"


@pytest.mark.parametrize(("name", "code"), [("topics", 0), ("published", 1), ("lossy", 0), ("crash", 2)])
def test_simulated_runs_are_judged_by_what_their_scenario_promises(
    command: Command, tmp_path: Path, name: str, code: int
) -> None:
    trace = tmp_path / "trace.parquet"
    command("simulate", EXAMPLES / f"{name}.toml", "--trace", trace)
    called = command("audit", trace, "--json")
    assert called.code == code
    if code == 2:
        assert "the protocol defines no promise to nodes that crash, join or leave" in called.complained
    else:
        checks = json.loads(called.said)["checks"]
        assert checks["completeness"]["applies"] == (name != "lossy")
        assert (checks["fifo"]["violations"] > 0) == (name == "published")


def test_the_processes_of_the_cluster_are_all_there_at_the_end(cluster: Cluster) -> None:
    """Nothing that the commands did has cost a node."""
    for pid in cluster.pids:
        os.kill(pid, 0)


def test_refusals_are_told_and_are_exit_code_1(command: Command, tmp_path: Path) -> None:
    """A client that may neither publish nor subscribe is told so, and not that it is subscribed before."""
    token = new_token()
    (tmp_path / "shop.token").write_text(token)
    rights = tmp_path / "rights.toml"
    rights.write_text(f'[clients.shop]\ntoken = "{token_hash(token)}"\npublish = ["shop"]\n')
    with started("node", "--json", "--rights", rights, "--insecure", "--log-level", "error") as node:
        access = ("--servers", first_line(node)["address"], "--token-file", tmp_path / "shop.token")
        assert command("pub", "shop", "1", *access).code == 0
        called = command("pub", "prices", "1", "2", "3", *access)
        said = " ".join(called.complained.split())
        assert called.code == 1
        assert "3 of 3 messages published since the last flush were not accepted: client 'shop' may not publish" in said
        for _ in range(3):
            called = command("sub", "prices", *access)
            assert called.code == 1 and "may not subscribe to 'prices'" in called.complained
            assert "subscribed to" not in called.complained
