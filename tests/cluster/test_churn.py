"""Nodes that do everything at once, by chance: join, leave, subscribe, end subscriptions, publish. The audit judges."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

import antiphon
from antiphon import Node, Subscription
from antiphon.audit.auditor import audit_files
from tests.node.support import running

TOPICS = ("red", "green.a", "green.b")
PATTERNS = (*TOPICS, "green.*", "*", ">")
STEPS = 120
NODES_AT_MOST = 7


class World:
    """A cluster in which anything may happen next."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory
        self._random = random.Random(seed)
        self._nodes: list[Node] = []
        self._subscriptions: dict[Node, list[Subscription]] = {}
        self._busy: list[asyncio.Task[object]] = []
        self.traces: list[Path] = []

    async def run(self) -> None:
        """All steps, each begun before the one before it has come to its end; then everybody leaves, one by one."""
        try:
            await self._take_steps()
            while self._nodes:
                await self._nodes.pop(self._random.randrange(len(self._nodes))).close()
        finally:
            await asyncio.gather(*(node.close() for node in self._subscriptions), return_exceptions=True)

    async def _take_steps(self) -> None:
        await self._start()
        await self._start()
        for _ in range(STEPS):
            self._busy.append(asyncio.create_task(self._step()))
            if self._random.random() < 0.5:
                await asyncio.sleep(0)
            if self._random.random() < 0.1:
                await self._all_done()
        await self._all_done()

    async def _all_done(self) -> None:
        busy, self._busy = self._busy, []
        await asyncio.gather(*busy)

    async def _step(self) -> None:
        node = self._random.choice(self._nodes)
        action = self._random.choices(["publish", "subscribe", "end", "join", "leave"], [60, 15, 12, 5, 4])[0]
        if action == "publish":
            await self._publish(node)
        elif action == "subscribe":
            await self._subscribe(node)
        elif action == "end" and self._subscriptions[node]:
            await self._subscriptions[node].pop().close()
        elif action == "join" and len(self._nodes) < NODES_AT_MOST:
            await self._start()
        elif action == "leave" and len(self._nodes) > 2:
            self._nodes.remove(node)
            await node.close()

    async def _start(self) -> None:
        path = self._directory / f"trace-{len(self.traces)}.arrow"
        self.traces.append(path)
        # Some of these may leave before they are asked.
        join = [node.address for node in self._random.sample(self._nodes, len(self._nodes))]
        window = self._random.choice([1, 4, 64])
        node = await antiphon.start(join=join, trace=str(path), window=window, leave_seconds=5.0)
        self._nodes.append(node)
        self._subscriptions[node] = []

    async def _publish(self, node: Node) -> None:
        topic, order = self._random.choice(TOPICS), self._random.choice(["causal", "causal", "fifo", "none"])
        for _ in range(self._random.choice([1, 1, 5, 300])):
            if node not in self._nodes:
                return
            await node.publish(topic, b"", order=order)

    async def _subscribe(self, node: Node) -> None:
        subscription = node.subscribe(self._random.choice(PATTERNS), callback=lambda _: None)
        self._subscriptions[node].append(subscription)
        if self._random.random() < 0.5 and node in self._nodes:
            try:
                await subscription.ready()
            except antiphon.ClosedError:
                # It, or its node, was closed meanwhile.
                assert subscription not in self._subscriptions[node] or node not in self._nodes


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_nothing_is_lost_or_out_of_order(
    tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, seed)
    running(world.run)
    assert "left without a farewell" not in [record.__dict__.get("event") for record in caplog.records]
    found = audit_files([trace for trace in world.traces if trace.exists()])
    assert all(trace.exists() for trace in world.traces)
    assert {name: check.example for name, check in found.checks.items() if check.violations} == {}
    assert found.messages > 0 and found.missing_nodes == []
