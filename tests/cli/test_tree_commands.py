"""A tree of brokers from the command line: it outlives its root, and a round of live torture finds nothing."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from antiphon.audit.auditor import audit_files
from antiphon.kernel.message import TOTAL as TOTAL_ORDER
from antiphon.torture.live.rounds.listeners import FIFO, LOST, TOTAL, TWICE, ClientRecord, judge_listeners, name_of
from antiphon.torture.live.rounds.round import AGREEMENT, RoundFigures, judge
from antiphon.trace.recorder import DELIVER
from antiphon.trace.store import TraceWriter
from tests.cli.conftest import Command
from tests.cli.local_nodes import SECONDS, ended, first_line, started


def test_a_tree_outlives_its_root(tmp_path: Path, command: Command) -> None:
    """The root is killed between two messages; the audit of the others' traces finds one order."""
    traces = tmp_path / "traces"
    with started("up", "--fabric", "tree", "-n", 3, "--port", 0, "--json", "--trace", traces) as up:
        nodes = first_line(up)["nodes"]
        assert [node["node"] for node in nodes] == [0, 1, 2]
        left, right = nodes[1]["address"], nodes[2]["address"]
        with started("sub", "room", "--servers", left, "--count", 3, "--json") as sub:
            assert sub.stderr is not None
            assert sub.stderr.readline() == f"antiphon: subscribed to room at {left}\n"
            total = ("--order", "total", "--servers", right)
            assert command("pub", "room", "one", "--key", "anna", *total).code == 0
            os.kill(nodes[0]["pid"], signal.SIGKILL)
            assert command("pub", "room", "two", "three", "--key", "anna", "--key", "ben", *total).code == 0
            printed, _ = sub.communicate(timeout=SECONDS)
        messages = [json.loads(line) for line in printed.splitlines()]
        assert [(message["value"], message["order"]) for message in messages] == [
            ("one", "total"), ("two", "total"), ("three", "total"),
        ]  # fmt: skip
        assert [(message.get("key"), message.get("keys")) for message in messages] == [
            ("anna", None), (None, ["anna", "ben"]), (None, ["anna", "ben"]),
        ]  # fmt: skip
        status = json.loads(command("top", "--once", "--json", "--servers", f"{left},{right}").said)
        assert len(status["nodes"]) == 2
        code, complained = ended(up)
        assert code == 0
        assert "node 0 at" in complained and "the others continue without it" in complained
    called = command("audit", traces, "--json")
    assert called.code == 0
    found = json.loads(called.said)
    assert found["checks"]["total"] == {"applies": True, "violations": 0, "example": None, "story": []}
    assert (found["messages"], found["deliveries"]) == (3, 6)


def test_a_subscriber_of_a_broker_that_is_told_to_stop_goes_on_elsewhere(command: Command) -> None:
    with started("up", "--fabric", "tree", "-n", 3, "--port", 0, "--json") as up:
        nodes = first_line(up)["nodes"]
        left, right = nodes[1]["address"], nodes[2]["address"]
        with started("sub", "room", "--servers", left, "--count", 2) as sub:
            assert sub.stderr is not None
            assert sub.stderr.readline() == f"antiphon: subscribed to room at {left}\n"
            assert command("pub", "room", "one", "--servers", left).code == 0
            os.kill(nodes[1]["pid"], signal.SIGTERM)
            assert up.stderr is not None
            assert any("exit code 0; the others continue without it" in line for line in up.stderr)
            moved = sub.stderr.readline()
            assert moved.startswith("antiphon: the node is gone; continuing at ") and left not in moved
            assert command("pub", "room", "two", "--servers", right).code == 0
            printed, complained = sub.communicate(timeout=SECONDS)
            assert (sub.returncode, printed, complained) == (0, "one\ntwo\n", "")
        assert ended(up)[0] == 0


@pytest.mark.slow
def test_a_round_of_live_torture_finds_nothing(command: Command) -> None:
    called = command(
        "torture", "--live", "--fabric", "tree", "--faults", "loss", "--nodes", 4, "--seconds", 1, "--json"
    )
    assert called.code == 0, called
    found = json.loads(called.said)
    assert (found["rounds"], found["kills"], found["founders_killed"], found["stuck"]) == (1, 1, 1, 0)
    assert not any(found["violations"].values())
    assert 0 < found["messages"] < found["deliveries"]


def test_what_only_some_survivors_delivered_is_a_disagreement(tmp_path: Path) -> None:
    """Node 9 is dead and left no trace; node 1 lacks the second thing that it published."""
    for node, count in ((0, 2), (1, 1)):
        with TraceWriter(tmp_path / f"node-{node}.parquet", "deliveries", {"host": "live"}) as writer:
            writer.recorder.record_run(10, DELIVER, node, 9, 1, count, 4, 0, TOTAL_ORDER)
    figures = RoundFigures()
    judge(figures, tmp_path, ["node-0", "node-1"], audit_files)
    assert figures.violations[AGREEMENT] == 1 and figures.has_failed
    assert figures.examples[0] == "round 0: node-1 lacks publication 2 of node 9 on topic 4"


class Heard:
    """A message as a listener sees it."""

    def __init__(self, value: bytes, order: str = "total", keys: tuple[bytes, ...] = (b"anna",)) -> None:
        self.value, self.order, self.keys, self.topic = value, order, keys, "bank"


def listener_of(*heard: Heard) -> ClientRecord:
    listener = ClientRecord()
    for message in heard:
        listener.hear(message)  # type: ignore[arg-type]
    return listener


def test_what_clients_saw_is_judged() -> None:
    first, second, other = (name_of(*name) for name in ((1, 1, 0), (1, 2, 0), (2, 1, 0)))
    right = [Heard(first), Heard(other), Heard(second), Heard(b"last 1 on bank")]
    accepted = [first, second, other]
    assert not any(judge_listeners([listener_of(*right), listener_of(*right)], accepted).values())
    wrong = {
        LOST: [right[0], right[2], right[3]],
        TWICE: [Heard(other, "none"), *right],
        FIFO: [Heard(second, "fifo"), Heard(first, "fifo"), Heard(other, "fifo")],
        TOTAL: [right[1], right[0], *right[2:]],
    }
    for check, heard in wrong.items():
        found = judge_listeners([listener_of(*right), listener_of(*heard)], accepted)
        assert found[check], check
    told = listener_of(right[0])
    told.gaps.append("bank")
    assert not any(judge_listeners([listener_of(*right), told], accepted).values())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["torture", "--live", "--faults", "loss"], "a cube does not support rounds that lose nodes for good"),
        (["torture", "--live", "--faults", "rain"], "there are no faults rain; choose from kill, power,"),
        (["torture", "--live", "--without-logs", "--faults", "crowd,kill"], "nodes without logs do not survive kill"),
    ],
)
def test_misuse_is_explained(command: Command, arguments: list[str], complaint: str) -> None:
    called = command(*arguments)
    assert (called.code, called.said) == (2, "")
    assert complaint in called.complained


def test_a_file_without_a_tree_is_explained(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "tree.toml"
    path.write_text("[wood]\n")
    called = command("node", "--fabric", "tree", "--tree", path)
    assert (called.code, called.said) == (2, "")
    assert "has no table [tree]" in called.complained
