"""Clusters with a node that can be killed, for tests of clients that outlive it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import antiphon
from antiphon import (
    Message,
    Node,
    Subscription,
)
from antiphon.node.local_cluster import free_addresses
from tests.node.support import (
    Child,
    child,
    cluster,
)

LONGER_SECONDS = 0.5
"""Nodes that were members so much longer than a client was subscribed can be sure of it, on a busy machine too."""


@asynccontextmanager
async def tree_with_a_doomed_broker(
    tmp_path: Path, count: int = 4, has_disks: bool = False
) -> AsyncIterator[tuple[Child, list[Node]]]:
    """Broker 1 is a process of its own, which can be killed; the others are here."""
    addresses = free_addresses(count)
    path = tmp_path / "tree.toml"
    path.write_text(f"[tree]\nbrokers = {addresses}\n")
    async with AsyncExitStack() as stack:
        data = [f"data={tmp_path / 'doomed'}"] if has_disks else []
        doomed = child("serve", "fabric=tree", f"tree={path}", f"listen={addresses[1]}", *data)
        others = [
            antiphon.start(
                fabric="tree", tree=str(path), listen=address, data=str(tmp_path / str(place)) if has_disks else None
            )
            for place, address in enumerate(addresses)
            if place != 1
        ]
        process, nodes = await asyncio.gather(
            stack.enter_async_context(doomed), asyncio.gather(*(stack.enter_async_context(other) for other in others))
        )
        yield process, list(nodes)


async def values_until(subscription: Subscription | AsyncIterator[Message], last: bytes) -> list[bytes]:
    """Everything up to the last word."""
    values: list[bytes] = []
    async for message in subscription:
        values.append(message.value)
        if message.value == last:
            return values
    raise AssertionError("the subscription ended before the last word")


@asynccontextmanager
async def nodes_with_a_doomed_one(fabric: str, tmp_path: Path) -> AsyncIterator[tuple[Child, list[Node]]]:
    """One node is a process of its own, which can be killed; the others are here."""
    async with AsyncExitStack() as stack:
        if fabric == "tree":
            yield await stack.enter_async_context(tree_with_a_doomed_broker(tmp_path))
            return
        nodes = await stack.enter_async_context(cluster(3, fabric=fabric))
        doomed = await stack.enter_async_context(child("serve", f"fabric={fabric}", f"join={nodes[0].address}"))
        yield doomed, nodes


def crash(node: Node) -> None:
    """Cut a node of this process off from everybody, as if its process had been killed."""
    assert node._live._server is not None
    node._live._server.close()
    ends = [*(link._transport for link in node._live.host.links.values())]
    ends += [connection.transport for connection in node._live.host.incoming()]
    for transport in ends:
        if transport is not None:
            transport.abort()
