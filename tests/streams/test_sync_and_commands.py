"""Programs without ``async``, and commands: topics with a history, consumers, receipts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import antiphon
import antiphon.sync
from antiphon import Node
from antiphon.api.streams.position_waits import SettledReceipt
from antiphon.cli.streams.policy import changes_of, topics_in
from antiphon.sync import LoopThread


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    thread = LoopThread()

    async def begin() -> Node:
        return await antiphon.start(data=str(tmp_path))

    started = thread.run(begin())
    try:
        yield started
    finally:
        thread.run(started.close())
        thread.stop()


def test_a_program_without_async_publishes_consumes_and_reads_the_history(node: Node) -> None:
    with antiphon.sync.connect(node.address) as client:
        assert client.topics.create("jobs", replicas=1).connected == 1
        receipt = client.publish("jobs", b"first", acks="quorum")
        assert isinstance(receipt, SettledReceipt) and receipt.position == 0
        assert len(client.publish_many("jobs", [b"second", b"third"])) == 2
        work = client.consume("jobs", "workers")
        taken = []
        for _ in range(3):
            message = next(work)
            taken.append(message.value)
            message.ack()
        assert taken == [b"first", b"second", b"third"]
        assert [message.position for message in client.history("jobs")] == [0, 1, 2]
        assert client.topics.describe("jobs").consumers[0].lag == 0
    with pytest.raises(antiphon.ClosedError, match="connect again"):
        client.flush()


def said(*arguments: str) -> Any:
    """The JSON that a command prints."""
    command = [sys.executable, "-m", "antiphon", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_commands_make_list_describe_and_remove_topics_with_a_history(node: Node) -> None:
    servers = f"--servers={node.address}"
    made = said("topics", "create", "jobs", "--replicas", "1", servers)
    assert (made["name"], made["replicas"], made["connected"]) == ("jobs", 1, 1)
    with antiphon.sync.connect(node.address) as client:
        client.publish("jobs", b"work", acks="quorum")
        next(client.consume("jobs", "workers")).ack()
    assert [topic["name"] for topic in said("topics", "ls", servers)] == ["jobs"]
    found = said("topics", "info", "jobs", servers)
    assert (found["end"], found["consumers"][0]["name"]) == (1, "workers")
    assert said("consumers", "ls", "jobs", servers)[0]["done_below"] == 1
    assert said("consumers", "rm", "jobs", "workers", servers) == {"removed": "workers"}
    assert said("topics", "rm", "jobs", "--yes", servers) == {"removed": "jobs"}
    assert said("topics", "ls", servers) == []


def test_a_policy_is_set_by_commands_and_by_a_file_which_can_be_applied_again(node: Node, tmp_path: Path) -> None:
    servers = f"--servers={node.address}"
    options = ("--replicas", "1", "--retention-bytes", "10M", "--retention-time", "7d", "--hold", "3")
    made = said("topics", "create", "jobs", *options, "--replace-after", "5m", servers)["policy"]
    assert (made["retention_bytes"], made["retention_us"], made["hold"]) == (10 << 20, 7 * 86_400_000_000, 3)
    assert made["replace_us"] == 300_000_000
    changed = said("topics", "set", "jobs", "--retention-time", "0", servers)["policy"]
    assert (changed["retention_bytes"], changed["retention_us"]) == (10 << 20, 0)
    file = tmp_path / "topics.toml"
    file.write_text('[topics.jobs]\nretention_bytes = "20M"\n[topics.rooms]\nreplicas = 1\n')
    assert said("topics", "apply", str(file), servers) == {"jobs": "changed", "rooms": "created"}
    assert said("topics", "apply", str(file), servers) == {"jobs": "unchanged", "rooms": "unchanged"}
    with antiphon.sync.connect(node.address) as client:
        assert client.topics.describe("jobs").policy.retention_bytes == 20 << 20
        assert client.topics.set("jobs", retention_seconds=60).policy.retention_us == 60_000_000


def test_a_policy_that_cannot_be_is_refused_with_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(antiphon.UsageError, match="'ten' is no quantity; write a number and one of K, M, G, T"):
        changes_of(None, "ten", None, None, None)
    file = tmp_path / "topics.toml"
    for text, why in (
        ("topics = 3", "needs tables"),
        ("[topics.a]\nretention = 3", "unknown key 'retention'"),
        ("[topics.a]\nreplicas = true", "replicas of topic 'a' is a number"),
        ("[topics.a", "is no TOML file"),
    ):
        file.write_text(text)
        with pytest.raises(antiphon.UsageError, match=why):
            topics_in(file)
