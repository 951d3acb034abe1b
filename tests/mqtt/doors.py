"""Clusters with a door at each node, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import antiphon
from antiphon.mqtt import MqttDoor, serve
from antiphon.node.handle import Node
from tests.mqtt.raw_client import close_all


@asynccontextmanager
async def doors(count: int = 1, **settings: Any) -> AsyncIterator[tuple[list[Node], list[MqttDoor]]]:
    """A cluster, with a door at each node; ``settings`` are those of the doors."""
    async with AsyncExitStack() as stack:
        nodes: list[Node] = []
        served: list[MqttDoor] = []
        for _ in range(count):
            join = [nodes[0].address] if nodes else []
            nodes.append(await stack.enter_async_context(antiphon.start(join=join)))
            served.append(await stack.enter_async_context(serve(nodes[-1], "127.0.0.1:0", **settings)))
        try:
            yield nodes, served
        finally:
            await close_all()


async def settled() -> None:
    """Until doors have heard of each other: fifty turns of the loop of all nodes, stretched where it is busy."""
    for _ in range(50):
        await asyncio.sleep(0.002)


def with_door(test: Callable[[str], Awaitable[None]]) -> Callable[[], None]:
    """Run a test with the address of one door."""

    async def run() -> None:
        async with doors() as (_, (door,)):
            await test(door.address)

    def called() -> None:
        antiphon.run(run())

    called.__name__, called.__doc__ = test.__name__, test.__doc__
    return called
