"""Nodes that live on a thread of their own, beside a test that waits for Spark."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import uvloop

import antiphon
from antiphon import Node

PATIENCE_SECONDS = 300.0

Result = TypeVar("Result")


class Nodes:
    """A loop on a thread, and the nodes on it."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._nodes: list[Node] = []

    def do(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do something on the loop, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)

    def start(self, **settings: Any) -> Node:
        """Start a node; it joins those that are there, unless it is told otherwise."""
        settings.setdefault("join", [self._nodes[0].address] if self._nodes else [])

        async def begin() -> Node:
            return await antiphon.start(leave_seconds=5.0, **settings)

        node = self.do(begin())
        self._nodes.append(node)
        return node

    def cluster(self, count: int, directory: Path, topics: Sequence[str], **settings: Any) -> list[Node]:
        """Nodes with logs that keep some topics."""
        return [
            self.start(data=str(directory / f"node-{place}"), keep=list(topics), **settings) for place in range(count)
        ]

    def stop(self, node: Node) -> None:
        """Stop one node."""
        self._nodes.remove(node)
        self.do(node.close())

    def publish(self, node: Node, topic: str, values: Sequence[bytes], **how: Any) -> None:
        """Publish messages; when this returns they are on the disks of all nodes that keep the topic."""

        async def publish() -> None:
            keepers = [each for each in self._nodes if each._live.store is not None]
            before = {each: each._live.store.durable_end(topic) for each in keepers if each._live.store is not None}
            for receipt in [node.publish(topic, value, **how) for value in values]:
                await receipt
            for each, end in before.items():
                while each._live.store is not None and each._live.store.durable_end(topic) < end + len(values):
                    await asyncio.sleep(0.002)

        self.do(publish())

    def close(self) -> None:
        """Close all nodes and the loop."""
        for node in reversed(self._nodes):
            self.do(node.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
