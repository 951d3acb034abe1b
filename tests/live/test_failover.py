"""Clients whose node goes: they find another one, and nobody notices more than a pause."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

import antiphon
from antiphon import Client, ClosedError, Message, MissedMessagesError, Node, Subscription
from tests.live.support import Child, child, cluster, free_addresses, outcome, running, take_values, tree, until

ALL_ORDERS = ("none", "fifo", "causal", "total")


@asynccontextmanager
async def tree_with_a_doomed_broker(tmp_path: Path, count: int = 4) -> AsyncIterator[tuple[Child, list[Node]]]:
    """Broker 1 is a process of its own, which can be killed; the others are here."""
    addresses = free_addresses(count)
    path = tmp_path / "tree.toml"
    path.write_text(f"[tree]\nbrokers = {addresses}\n")
    async with AsyncExitStack() as stack:
        doomed = child("serve", "fabric=tree", f"tree={path}", f"listen={addresses[1]}")
        others = [
            antiphon.start(fabric="tree", tree=str(path), listen=address)
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


@pytest.mark.parametrize("order", ["causal", "total"])
def test_what_a_client_publishes_comes_once_and_in_order_although_its_broker_is_killed(
    order: str, tmp_path: Path
) -> None:
    count = 400

    async def test() -> None:
        async with (
            tree_with_a_doomed_broker(tmp_path) as (doomed, nodes),
            antiphon.connect(doomed.address) as client,
        ):
            moved: list[str] = []
            client._on_reconnect = moved.append
            heard = [await node.subscribe("room").ready() for node in nodes]
            own = await client.subscribe("room").ready()
            for number in range(count):
                await client.publish("room", b"%d" % number, order=order, key=b"anna")
                if number == count // 2:
                    doomed.process.kill()
            await client.publish("room", b"end", order="total", key=b"anna")
            expected = [*(b"%d" % number for number in range(count)), b"end"]
            for subscription in (*heard, own):
                assert await values_until(subscription, b"end") == expected
            assert client.reconnects == 1
            assert moved == [client.address] and client.address in {node.address for node in nodes}

    running(test)


def test_many_in_flight_in_all_orders_are_neither_lost_nor_doubled(tmp_path: Path) -> None:
    """Nobody waits for acceptance, so many batches of all orders are under way when the broker is killed."""
    count = 3000

    async def test() -> None:
        async with (
            tree_with_a_doomed_broker(tmp_path) as (doomed, nodes),
            antiphon.connect(doomed.address) as client,
        ):
            heard = [await node.subscribe("room").ready() for node in nodes]
            own = await client.subscribe("room").ready()
            receipts = []
            for number in range(count):
                order = ALL_ORDERS[number // 7 % 4]
                receipts.append(client.publish("room", b"%d" % number, order=order, keys=[number % 5]))
                if number % 50 == 0:
                    await asyncio.sleep(0.002)
                if number == count // 2:
                    doomed.process.kill()
            await asyncio.gather(*receipts)
            await client.publish("room", b"end", order="total", keys=range(5))
            for subscription in (*heard, own):
                values = await values_until(subscription, b"end")
                assert len(values) == count + 1
                assert set(values) == {*(b"%d" % number for number in range(count)), b"end"}

    running(test)
