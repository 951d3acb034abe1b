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
from antiphon.api.streams.stream_api import SettledReceipt
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
