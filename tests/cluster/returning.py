"""What tests of nodes share that are killed and come back with their logs: whether total order works, and commands."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import Client, Node, NoMajorityError
from antiphon.kernel.message import TOTAL
from tests.node.support import until

ORDERS = ("none", "fifo", "causal", "total")


async def total_works(publisher: Node | Client, seconds: float = 90.0) -> None:
    """Publish in total order until that is accepted."""
    async with asyncio.timeout(seconds):
        while True:
            try:
                await publisher.publish("room", b"again", order="total", key=b"anna")
                return
            except NoMajorityError:
                await asyncio.sleep(0.1)


async def is_refused(node: Node, missing: str) -> None:
    """Wait until a node knows that there is no majority; then it says so, and who is missing."""
    await until(lambda: node._live.process is not None and node._live.process.refusal(TOTAL) is not None)
    with pytest.raises(NoMajorityError, match=missing + r".* cannot be reached.*back with their logs"):
        await node.publish("room", b"?", order="total", key=b"anna")


async def antiphon_command(*words: str) -> dict[str, Any]:
    """What a command prints as JSON."""
    environment = {**os.environ, "PYTHONPATH": str(Path(antiphon.__file__).parent.parent)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "antiphon", *words, stdout=asyncio.subprocess.PIPE, env=environment
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0, words
    found: dict[str, Any] = json.loads(printed)
    return found
