"""Total order on a cube of live nodes: one order per key for all, through joins and leaves, and clean traces."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pyarrow as pa

import antiphon
from antiphon import Message, Node, Subscription
from antiphon.audit.oracle import judge
from antiphon.audit.total_order import judge_total_order
from antiphon.trace.merging import merge_traces
from antiphon.trace.store import read_trace
from tests.node.support import cluster, running, subscribed, take

ORDERS = ("none", "fifo", "causal", "total")
EACH = 30


async def until_last(subscription: Subscription, last: int) -> list[Message]:
    """Messages until so many have come that are called last."""
    messages = []
    async for message in subscription:
        messages.append(message)
        last -= message.value == b"last"
        if last == 0:
            break
    return messages


def totals_about(messages: list[Message], key: bytes) -> list[bytes]:
    return [message.value for message in messages if message.order == "total" and key in message.keys]


async def publish(node: Node, order: str | None = None) -> None:
    """Messages of all orders, or of one, about one key or two."""
    for number in range(EACH):
        keys = ["anna", "ben", "clara"][number % 3 : number % 3 + 1 + number % 2]
        value = b"%d %d" % (node.identifier, number)
        await node.publish("room", value, order=order or ORDERS[number % 4], keys=keys)
        await asyncio.sleep(0)


def test_all_nodes_deliver_total_messages_about_a_key_in_one_order(tmp_path: Path) -> None:
    """Weaker ones are on the same side of them everywhere; the judges of traces find nothing."""
    traces = [tmp_path / f"{number}.arrow" for number in range(5)]

    async def test() -> list[list[Message]]:
        async with AsyncExitStack() as stack:
            nodes: list[Node] = []
            for trace in traces:
                join = [nodes[0].address] if nodes else []
                nodes.append(await stack.enter_async_context(antiphon.start(join=join, trace=str(trace))))
            subscriptions = await subscribed(nodes)
            await asyncio.gather(*(publish(node) for node in nodes))
            for node in nodes:
                await node.publish("room", b"last", order="total", keys=["anna", "ben", "clara"])
            return await asyncio.gather(*(until_last(each, len(nodes)) for each in subscriptions))

    lists = running(test)
    for messages in lists:
        assert len(messages) == len(traces) * (EACH + 1)
        for key in (b"anna", b"ben", b"clara"):
            assert totals_about(messages, key) == totals_about(lists[0], key)
    tables = [read_trace(trace) for trace in traces]
    findings = judge(merge_traces(tables), len(traces))
    assert findings.clean, str(findings)
    assert judge_total_order(pa.concat_tables(tables)) == (0, None)


def test_total_order_goes_on_when_its_keeper_leaves_and_others_join() -> None:
    """The first node keeps the claims; it hands them over when it goes."""

    async def test() -> None:
        async with AsyncExitStack() as stack:
            first = antiphon.start()
            nodes = [await first.__aenter__()]
            for _ in range(3):
                nodes.append(await stack.enter_async_context(antiphon.start(join=[nodes[0].address])))
            subscriptions = await subscribed(nodes[1:])
            publishers = [asyncio.create_task(publish(node, "total")) for node in nodes[1:]]
            await asyncio.sleep(0.05)
            await first.__aexit__(None, None, None)
            newcomer = await stack.enter_async_context(antiphon.start(join=[nodes[1].address]))
            late = (await subscribed([newcomer]))[0]
            await asyncio.gather(*publishers, publish(newcomer, "total"))
            present = [*nodes[1:], newcomer]
            for node in present:
                await node.publish("room", b"last", order="total", keys=["anna", "ben", "clara"])
            *lists, part = await asyncio.gather(*(until_last(each, len(present)) for each in [*subscriptions, late]))
            for key in (b"anna", b"ben", b"clara"):
                order = totals_about(lists[0], key)
                assert all(totals_about(messages, key) == order for messages in lists)
                seen = totals_about(part, key)
                assert seen == order[len(order) - len(seen) :]
            assert {len(messages) for messages in lists} == {4 * EACH + len(present)}

    running(test)


def test_the_four_orders_and_keys_pass_through_a_client() -> None:
    async def test() -> None:
        async with cluster(3) as nodes, antiphon.connect(nodes[1].address) as client:
            (subscription,) = await subscribed(nodes[2:])
            for order in ORDERS:
                await client.publish("room", order.encode(), order=order, key=b"anna")
            await client.publish("room", b"a transfer", order="total", keys=["ben", b"anna", 7])
            messages = await take(subscription, 5)
            assert [message.order for message in messages] == [*ORDERS, "total"]
            assert {message.keys for message in messages[:4]} == {(b"anna",)}
            assert messages[4].keys == (b"7", b"anna", b"ben")

    running(test)


def test_weaker_messages_about_many_keys_share_batches() -> None:
    """Who names another key with every message gets long batches all the same; a batch waits for all its keys."""

    async def test() -> None:
        async with cluster(2) as nodes:
            (subscription,) = await subscribed(nodes[1:])
            for number in range(200):
                nodes[0].publish("room", b"%d" % number, order="causal", key=b"%d" % (number % 7))
            messages = await take(subscription, 200)
            assert [message.value for message in messages] == [b"%d" % number for number in range(200)]
            assert [message.keys for message in messages] == [(b"%d" % (number % 7),) for number in range(200)]
            process = nodes[0]._live.process
            assert process is not None and process.publish(b"\0\0\0\0", nodes[0]._live.topic("room").number) < 20

    running(test)
