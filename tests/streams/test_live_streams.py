"""Streams on live nodes: one history, receipts that survive, consumers that go on when their leader is killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

import antiphon
from antiphon import Client, Node, UsageError
from antiphon.api.streams.consumption import ConsumedMessage, Consumption
from antiphon.runtime.errors import LostTurnError
from tests.node.support import running, until

FABRICS = ("cube", "tree")


@asynccontextmanager
async def cluster(directory: Path, fabric: str = "cube", count: int = 3) -> AsyncIterator[list[Node]]:
    """Nodes with data directories; those that a test has ended stay ended."""
    async with AsyncExitStack() as stack:
        nodes = [await begun(directory / "0", fabric, stack)]
        for number in range(1, count):
            nodes.append(await begun(directory / str(number), fabric, stack, nodes[0].address))
        await until(lambda: all(len(streams_of(node).candidates()) == count for node in nodes))
        yield nodes


async def begun(data: Path, fabric: str, stack: AsyncExitStack, *join: str) -> Node:
    started = antiphon.start(listen="127.0.0.1:0", join=list(join), data=str(data), fabric=fabric)
    return await stack.enter_async_context(started)


def streams_of(node: Node):  # type: ignore[no-untyped-def]
    service = node._live._members.streams
    assert service is not None
    return service


def leader_of(nodes: list[Node], topic: str) -> Node:
    """The node that leads the history of a topic."""
    leaders = [
        node
        for node in nodes
        if not node._live._lifecycle.is_closing
        and any(each.is_open and each.topic == topic for each in streams_of(node).replicas.values())
    ]
    return leaders[0]


async def take(consumption: Consumption, count: int) -> list[ConsumedMessage]:
    """So many messages, each acknowledged."""
    taken: list[ConsumedMessage] = []
    while len(taken) < count:
        found = await consumption.fetch(count - len(taken), timeout=90)
        assert found, "messages must come"
        await asyncio.gather(*(message.ack() for message in found))
        taken += found
    return taken


async def values_of(client: Client, topic: str, start: str | int = "earliest") -> list[bytes]:
    return [message.value async for message in client.history(topic, start, follow=False)]


@pytest.mark.parametrize("fabric", FABRICS)
def test_the_history_and_a_consumer_go_on_when_the_leader_is_killed_and_it_returns(fabric: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path, fabric) as nodes, AsyncExitStack() as stack:
            client = await stack.enter_async_context(antiphon.connect([node.address for node in nodes]))
            topic = await client.topics.create("orders", replicas=3)
            assert topic.connected == 3
            for number in range(10):
                receipt = await client.publish("orders", b"%d" % number, acks="quorum")
                assert receipt.position == number and receipt.disks >= 2
            work = await stack.enter_async_context(client.consume("orders", "billing"))
            first = await take(work, 6)
            killed = leader_of(nodes, "orders")
            if client.address == killed.address:
                # How a client continues when its own node is killed is tested elsewhere.
                await work.close()
                other = next(node for node in nodes if node is not killed)
                client = await stack.enter_async_context(antiphon.connect(other.address))
                work = await stack.enter_async_context(client.consume("orders", "billing"))
            await killed.abandon()
            for number in range(10, 20):
                receipt = await client.publish("orders", b"%d" % number, acks="quorum")
                assert receipt.position == number
            rest = await take(work, 14)
            assert sorted(message.position for message in (*first, *rest)) == list(range(20))
            expected = [b"%d" % number for number in range(20)]
            assert await values_of(client, "orders") == expected

            # It returns with its disk, and catches up.
            others = [node for node in nodes if node is not killed]
            data = tmp_path / str(nodes.index(killed))
            back = await begun(data, fabric, stack, others[0].address)
            number = topic.generation
            leader = leader_of(others, "orders")
            settled = streams_of(leader).replicas[number].replica.log
            await until(lambda: streams_of(back).replicas[number].replica.log.held >= settled.settled)
            await leader.abandon()
            assert await values_of(client, "orders", 15) == expected[15:]

    running(test)


def test_every_node_serves_the_same_history_also_one_without_a_disk(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as nodes, AsyncExitStack() as stack:
            bare = antiphon.start(listen="127.0.0.1:0", join=[nodes[0].address])
            nodes.append(await stack.enter_async_context(bare))
            clients = [await stack.enter_async_context(antiphon.connect(node.address)) for node in nodes]
            await clients[3].topics.create("room", replicas=2)
            receipts = [
                await client.publish("room", b"%d" % place, acks="quorum") for place, client in enumerate(clients)
            ]
            assert sorted(receipt.position for receipt in receipts) == [0, 1, 2, 3]
            histories = [await values_of(client, "room") for client in clients]
            assert all(history == histories[0] for history in histories) and len(histories[0]) == 4
            assert [topic.name for topic in await clients[1].topics.list()] == ["room"]

    running(test)


def test_members_share_the_messages_and_those_of_a_key_stay_in_order(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as nodes, AsyncExitStack() as stack:
            client = await stack.enter_async_context(antiphon.connect(nodes[0].address))
            await client.topics.create("jobs")
            members = [await stack.enter_async_context(antiphon.connect(node.address)) for node in nodes[:2]]
            seen: list[tuple[int, bytes, bytes]] = []

            async def work(place: int, member: Client) -> None:
                async with member.consume("jobs", "workers", mode="key", window=4) as consumption:
                    async for message in consumption:
                        seen.append((place, message.key, message.value))
                        await message.ack()

            workers = [asyncio.create_task(work(place, member)) for place, member in enumerate(members)]
            await asyncio.gather(
                *(client.publish("jobs", b"%d" % number, key=f"k{number % 5}") for number in range(60))
            )
            await until(lambda: len(seen) == 60)
            for key in {key for _, key, _ in seen}:
                values = [int(value) for _, each, value in seen if each == key]
                assert values == sorted(values), "in the order of the history"
            assert {place for place, _, _ in seen} == {0, 1}, "both have worked"
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    running(test)


def test_a_message_that_is_not_acknowledged_comes_again_and_then_goes_to_the_dead_letters(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path, count=1) as nodes, antiphon.connect(nodes[0].address) as client:
            await client.topics.create("jobs", replicas=1)
            dead = await client.subscribe("jobs.dead").ready()
            await client.publish("jobs", b"work", acks="quorum")
            async with client.consume("jobs", "workers", max_deliveries=3, ack_seconds=0.5) as work:
                (first,) = await work.fetch(1, timeout=90)
                await first.nack()
                (second,) = await work.fetch(1, timeout=90)
                assert (first.delivery, second.delivery) == (1, 2)
                # Its time passes: another delivery, the last one.
                (third,) = await work.fetch(1, timeout=90)
                assert third.delivery == 3
                letter = await asyncio.wait_for(anext(aiter(dead)), 90)
                assert letter.value == b"work" and letter.headers["antiphon-consumer"] == b"workers"
                while (await client.topics.describe("jobs")).consumers[0].lag:
                    await asyncio.sleep(0.01)

    running(test)


def test_an_acknowledgement_that_comes_too_late_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path, count=1) as nodes, antiphon.connect(nodes[0].address) as client:
            await client.topics.create("jobs", replicas=1)
            await client.publish("jobs", b"work", acks="quorum")
            async with antiphon.connect(nodes[0].address) as other:
                slow = await client.consume("jobs", "workers", ack_seconds=0.5).ready()
                (late,) = await slow.fetch(1, timeout=90)
                quick = await other.consume("jobs", "workers", ack_seconds=0.5, window=1).ready()
                await slow.set_window(0)
                (again,) = await quick.fetch(1, timeout=90)
                assert again.delivery > late.delivery
                with pytest.raises(LostTurnError, match="another member"):
                    await late.ack()
                await again.ack()
                await quick.close()
                await slow.close()

    running(test)


def test_what_cannot_be_is_refused_with_one_sentence(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path, count=1) as nodes, antiphon.connect(nodes[0].address) as client:
            with pytest.raises(antiphon.PeerError, match="has no history; make it with: antiphon topics create"):
                await client.topics.describe("nothing")
            found = await client.topics.create("jobs", replicas=3)
            assert (found.replicas, found.connected) == (3, 1), "it says how many nodes are missing"
            async with client.consume("jobs", "workers", ack_seconds=5):
                with pytest.raises(antiphon.PeerError, match="has other settings"):
                    await client.consume("jobs", "workers", ack_seconds=6).ready()
            with pytest.raises(UsageError, match="'earliest', 'latest' or a position"):
                client.consume("jobs", "workers", start="yesterday")
            with pytest.raises(UsageError, match="'one', 'quorum' or 'all'"):
                client.publish("jobs", b"", acks="most")
            await client.topics.remove("jobs")
            again = await client.topics.create("jobs", replicas=1)
            assert again.generation > found.generation
            assert await values_of(client, "jobs") == []

    running(test)
