"""Clients whose node goes: they find another one, and nobody notices more than a pause."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

import pytest

import antiphon
from antiphon import (
    ClosedError,
    Message,
    Node,
    OverloadedError,
    PeerError,
    UsageError,
)
from antiphon.api.columns import Author, Columns
from antiphon.api.topic_names import client_number
from antiphon.node.gateway.session_host import future_of
from antiphon.node.local_cluster import free_addresses
from antiphon.sessions.client_messages import FollowRequest
from antiphon.sessions.steps import start
from tests.node.support import (
    child,
    cluster,
    hold_link,
    outcome,
    running,
    take_exactly,
    take_values,
    tree,
    until,
)
from tests.sessions.support import (
    LONGER_SECONDS,
    crash,
    tree_with_a_doomed_broker,
    values_until,
)

Nodes = AbstractAsyncContextManager[list[Node]]
ALL_ORDERS = ("none", "fifo", "causal", "total")
ROOMS = ("red", "green", "blue")


@pytest.mark.parametrize(
    ("order", "brokers", "has_disks"),
    [("causal", 4, False), ("total", 4, False), ("causal", 2, False), ("total", 3, True)],
)
def test_what_a_client_publishes_comes_once_and_in_order_although_its_broker_is_killed(
    order: str, brokers: int, has_disks: bool, tmp_path: Path
) -> None:
    count = 400 if not has_disks else 100

    async def test() -> None:
        async with (
            tree_with_a_doomed_broker(tmp_path, brokers, has_disks) as (doomed, nodes),
            antiphon.connect(doomed.address) as client,
        ):
            moved: list[str] = []
            client._live._on_reconnect = moved.append
            heard = [await node.subscribe("room").ready() for node in nodes]
            await asyncio.sleep(LONGER_SECONDS)
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
            heard = [await node.subscribe("*").ready() for node in nodes]
            for topic in ROOMS:
                await nodes[0].publish(topic, b"open")
            await asyncio.sleep(LONGER_SECONDS)
            own = await client.subscribe("*").ready()
            receipts = []
            for number in range(count):
                order = ALL_ORDERS[number // 7 % 4]
                room = ROOMS[number % 3]
                receipts.append(client.publish(room, b"%d" % number, order=order, keys=[number % 5]))
                if number % 50 == 0:
                    await asyncio.sleep(0.002)
                if number == count // 2:
                    doomed.process.kill()
            await asyncio.gather(*receipts)
            for subscription in (*heard, own):
                opened = 0 if subscription is own else len(ROOMS)
                values = [message.value for message in await take_exactly(subscription, count + opened)]
                assert sorted(values[opened:]) == sorted(b"%d" % number for number in range(count))
            assert own.gaps == 0

    running(test)


def test_what_a_client_publishes_follows_what_it_saw_at_the_node_that_is_gone(tmp_path: Path) -> None:
    """Each answer is published at another node than that at which the question was seen, and nobody hears it first."""
    count = 60

    async def test() -> None:
        async with (
            tree_with_a_doomed_broker(tmp_path, 5) as (doomed, nodes),
            antiphon.connect(doomed.address) as answering,
        ):
            heard = [await node.subscribe("room").ready() for node in nodes]

            def answer(message: Message) -> None:
                if message.value.startswith(b"question"):
                    answering.publish("room", message.value.replace(b"question", b"answer"))

            await answering.subscribe("room", callback=answer).ready()
            for number in range(count):
                await nodes[number % 4].publish("room", b"question %d" % number)
                if number == count // 2:
                    await doomed.kill()
                await asyncio.sleep(0.001)
            for subscription in heard:
                values = [message.value for message in await take_exactly(subscription, 2 * count)]
                for number in range(count):
                    assert values.index(b"question %d" % number) < values.index(b"answer %d" % number)

    running(test)


@pytest.mark.parametrize("fabric", [tree, cluster])
def test_clients_of_a_node_that_leaves_notice_nothing(fabric: Callable[[int], Nodes]) -> None:
    """No other node knows the topic when this one is told to stop; the client finds all at its next one."""
    count = 300

    async def test() -> None:
        async with fabric(4) as nodes, antiphon.connect(nodes[1].address) as client:
            own = await client.subscribe("room").ready()
            told: list[str] = []
            client._live._on_reconnect = told.append
            leaving: asyncio.Task[None] | None = None
            for number in range(count):
                await client.publish("room", b"%d" % number, order=ALL_ORDERS[number % 3 + 1], key=b"anna")
                if number == count // 2:
                    leaving = asyncio.create_task(nodes[1].close())
            assert leaving is not None
            await leaving
            await client.publish("room", b"end", order="total", key=b"anna")
            assert await values_until(own, b"end") == [*(b"%d" % number for number in range(count)), b"end"]
            assert own.gaps == 0 and told == [client.address] != [nodes[1].address]

    running(test)


def test_on_a_cube_clients_of_a_node_that_leaves_go_on() -> None:
    count = 200

    async def test() -> None:
        async with cluster(3) as nodes:
            heard = [await node.subscribe("room").ready() for node in (nodes[0], nodes[2])]
            await asyncio.sleep(LONGER_SECONDS)
            async with antiphon.connect(nodes[1].address) as client:
                own = await client.subscribe("room").ready()
                for number in range(count):
                    await client.publish("room", b"%d" % number)
                    if number == count // 2:
                        await nodes[1].close()
                for subscription in (*heard, own):
                    values = [message.value for message in await take_exactly(subscription, count)]
                    assert values == [b"%d" % number for number in range(count)]
                assert client.reconnects == 1 and own.gaps == 0

    running(test)


@pytest.mark.parametrize("fabric", ["cube", "gossip"])
def test_nobody_waits_for_what_came_before_its_node_was_a_member(fabric: str) -> None:
    """All nodes are replaced twice since a client saw a message whose author is silent; then it publishes."""

    async def test() -> None:
        async with AsyncExitStack() as stack:
            node = await stack.enter_async_context(antiphon.start(fabric=fabric))
            client = await stack.enter_async_context(antiphon.connect(node.address))
            own = await client.subscribe("room").ready()
            async with antiphon.connect(node.address) as silent:
                await silent.publish("room", b"question")
            assert await take_values(own, 1) == [b"question"]
            for moves in (1, 2):
                following = await stack.enter_async_context(antiphon.start(fabric=fabric, join=[node.address]))
                heard = await following.subscribe("room").ready()
                await node.close()
                await until(lambda moves=moves: client.reconnects == moves)  # type: ignore[misc]
                node = following
            past = client._live._end.past_of("room")
            assert list(past.values()) == [1] and past.keys() != {client_number(client._live._instance)}
            resumed = await future_of(start(node._live.sessions.follow(1, FollowRequest(1, "room", past))))
            assert resumed.failure is None
            await client.publish("room", b"answer")
            assert await take_values(heard, 1) == await take_values(own, 1) == [b"answer"]
            assert own.gaps == 0
            await client.close()

    running(test)


def test_a_client_takes_the_first_of_several_nodes_that_answers() -> None:
    async def test() -> None:
        async with cluster(1) as (node,):
            nobody = free_addresses(1)[0]
            async with antiphon.connect(f"{nobody}, {node.address}") as client:
                assert client.address == node.address
            async with antiphon.connect([nobody, node.address]) as client:
                assert client.address == node.address
            failure = await outcome(antiphon.connect([nobody, "127.0.0.1:1"]))
            assert isinstance(failure, PeerError) and nobody in str(failure) and "127.0.0.1:1:" in str(failure)
        with pytest.raises(UsageError, match="needs the address"):
            await antiphon.connect(" , ")
        with pytest.raises(UsageError, match="is no address"):
            await antiphon.connect(["127.0.0.1:1", "nowhere"])

    running(test)


def test_who_finds_no_other_node_says_what_was_tried() -> None:
    async def test() -> None:
        async with child("serve") as node:
            client = await antiphon.connect(node.address, reconnect_seconds=0.3)
            subscription = await client.subscribe("room").ready()
            await node.kill()
            failure = await outcome(take_values(subscription, 1))
            assert isinstance(failure, ClosedError)
            assert f"the node at {node.address} is gone" in str(failure)
            assert f"cannot connect to a node at {node.address}" in str(failure)
            await client.close()

    running(test)


def test_what_waits_while_there_is_no_node_is_bounded_and_goes_on() -> None:
    """The node comes back at its address as another one: what was published meanwhile is handed in there."""

    async def test() -> None:
        address = free_addresses(1)[0]
        async with child("serve", f"listen={address}") as node, antiphon.connect(address) as client:
            await client.publish("room", b"before")
            await node.kill()
            receipts = [client.publish("room", b"%d" % number) for number in range(1000)]
            failure = None
            while failure is None:
                try:
                    receipts += [client.publish("room", bytes(100))]
                except OverloadedError as error:
                    failure = error
            async with child("serve", f"listen={address}"):
                await asyncio.gather(*receipts)
                assert (await client.status())["topics"]["room"]["delivered_messages"] >= len(receipts)

    running(test)


def test_what_only_an_orphan_has_comes_before_what_its_reader_publishes_elsewhere() -> None:
    """Broker 1 shows its client a message of its child 3 and dies before the root has it. The client answers at 2."""

    async def test() -> None:
        async with (
            tree(4, table={"parents": [-1, 0, 0, 1]}) as nodes,
            antiphon.connect(nodes[1].address) as client,
        ):
            heard = [await nodes[place].subscribe("room").ready() for place in (0, 2, 3)]
            own = await client.subscribe("room").ready()
            hold_link(nodes[1]._live.host.links[0])
            await nodes[3].publish("room", b"question")
            assert await take_values(own, 1) == [b"question"]
            client._live._end.pool.learn([nodes[2].address])
            # The orphan is the last to notice, when the client is at its new broker already.
            noticing = nodes[3]._live._members.link_lost
            nodes[3]._live._members.link_lost = lambda peer: asyncio.get_running_loop().call_later(0.3, noticing, peer)  # type: ignore[assignment]
            crash(nodes[1])
            await client.publish("room", b"answer")
            assert client.address == nodes[2].address
            for subscription in heard:
                values = [message.value for message in await take_exactly(subscription, 2)]
                assert values == [b"question", b"answer"]

    running(test)


def test_a_batch_that_is_handed_in_at_two_nodes_is_delivered_once() -> None:
    """As when a connection breaks and the client is faster than what it had handed in before."""
    anna = client_number("anna")

    async def test() -> None:
        async with tree(3) as nodes:
            heard = [await node.subscribe("room").ready() for node in nodes]
            for node in (nodes[1], nodes[2]):
                for serial in (1, 2):
                    columns = Columns(1, 1, [b"%d" % serial])
                    node._live.publish_columns("room", "causal", (), columns, Author(anna, serial))
            for node in nodes:
                await node.publish("room", b"end of %d" % node.identifier)
            for subscription in heard:
                values = [message.value for message in await take_exactly(subscription, 5)]
                assert [value for value in values if b"end" not in value] == [b"1", b"2"]
                assert len([value for value in values if b"end" in value]) == 3
            await until(lambda: [node._live.topics["room"].repeated_batches for node in nodes] == [2, 2, 2])

    running(test)


def test_what_was_delivered_before_a_new_node_was_a_member_is_not_published_again() -> None:
    """The client does not know that its message is safe; its new broker finds out by asking."""

    async def test() -> None:
        async with tree(4) as nodes, antiphon.connect(nodes[1].address) as client:
            nodes[1]._live.sessions.safety._poll = lambda: None  # type: ignore[method-assign]
            first = await nodes[3].subscribe("room").ready()
            await client.publish("room", b"first", order="total", key=b"anna")
            assert await take_values(first, 1) == [b"first"]
            late = await nodes[2].subscribe("room").ready()
            client._live._end.pool.learn([nodes[2].address])
            crash(nodes[1])
            await client.publish("room", b"second", order="total", key=b"anna")
            assert client.address == nodes[2].address
            assert await take_values(first, 1) == await take_values(late, 1) == [b"second"]

    running(test)
