"""Traces of live nodes that are killed and started again: what is known is judged, and what is not known is said."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

import antiphon
from antiphon.audit.auditor import audit_files, files_in
from antiphon.audit.report import CLEAN
from tests.cli.local_nodes import ended, first_line, started

MESSAGES = 40


async def publish_some(servers: str, order: str, count: int = MESSAGES) -> None:
    async with antiphon.connect(servers) as client:
        for number in range(count):
            await client.publish("room", f"{order} {number}".encode(), order=order)
        await client.flush()


async def publish_for_a_while(servers: str) -> None:
    """Longer than rows wait to be written."""
    for order in ("fifo", "causal", "total"):
        await publish_some(servers, order)
        await asyncio.sleep(0.3)


@pytest.mark.parametrize("fabric", ["cube", "gossip"])
def test_a_node_that_was_killed_and_came_back_is_judged_by_what_is_known(tmp_path: Path, fabric: str) -> None:
    """Node 1 is killed after it has published; another life of it publishes and leaves with the others."""
    traces, data = tmp_path / "traces", tmp_path / "data"
    node = ("node", "--listen", "127.0.0.1:0", "--fabric", fabric, "--json", "--keep", "room", "--log-level", "error")
    with started(*node, "--trace", traces / "a.parquet") as first:
        address = first_line(first)["address"]
        joining = (*node, "--join", address, "--trace", traces / "b.parquet", "--data", data)
        with started(*joining) as second:
            antiphon.run(publish_for_a_while(first_line(second)["address"]))
            os.kill(second.pid, signal.SIGKILL)
            second.wait()
        with started(*joining) as again:
            antiphon.run(publish_some(first_line(again)["address"], "causal"))
            assert ended(again)[0] == 0
        assert ended(first)[0] == 0
    files = files_in([traces])
    assert sorted(file.name for file in files) == [".b.life-1.partial", "a.parquet", "b.parquet"]
    found = audit_files(files)
    assert found.verdict == CLEAN, found
    assert found.messages >= 3 * MESSAGES
    assert [text for text in found.unjudged if "was killed, or still runs" in text]
