"""Thin clients: the same calls as at a node, through one."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

import antiphon
from antiphon import Client, ClosedError, Message, PeerError, UsageError
from antiphon.client.client import LiveClient
from antiphon.sessions.client_messages import AHEAD
from tests.node.support import child, cluster, outcome, running, take, take_values, until


def test_clients_of_different_nodes_hear_each_other() -> None:
    async def test() -> None:
        async with (
            cluster(3) as nodes,
            antiphon.connect(nodes[1].address) as here,
            antiphon.connect(nodes[2].address) as there,
        ):
            subscription = await there.subscribe("room").ready()
            own = await here.subscribe("room").ready()
            for number in range(1000):
                await here.publish("room", b"%d" % number, key=b"k", headers={"n": b"%d" % number}, order="fifo")
            messages = await take(subscription, 1000)
            assert [message.value for message in messages] == [b"%d" % number for number in range(1000)]
            assert [message.sequence for message in messages] == list(range(1, 1001))
            last = messages[-1]
            assert (last.key, last.headers, last.order, last.publisher, last.topic, last.offset) == (
                b"k", {"n": b"999"}, "fifo", nodes[1].identifier, "room", 999,
            )  # fmt: skip
            assert len(await take(own, 1000)) == 1000

    running(test)


def test_messages_of_a_client_follow_what_it_has_seen() -> None:
    async def test() -> None:
        async with cluster(2) as nodes:
            witness = await nodes[0].subscribe("room").ready()
            async with antiphon.connect(nodes[0].address) as asking, antiphon.connect(nodes[1].address) as answering:

                def answer(message: Message) -> None:
                    if message.value.startswith(b"question"):
                        answering.publish("room", message.value.replace(b"question", b"answer"))

                await answering.subscribe("room", callback=answer).ready()
                for number in range(100):
                    await asking.publish("room", b"question %d" % number)
                values = await take_values(witness, 200)
                for number in range(100):
                    assert values.index(b"question %d" % number) < values.index(b"answer %d" % number)

    running(test)


def test_a_client_that_starts_ahead_of_the_log_says_nothing_wrong_of_what_it_skips(tmp_path: Path) -> None:
    """It gets batches from before its start, and takes no message of them."""

    async def test() -> None:
        async with cluster(1, data=str(tmp_path / "data")) as (node,), antiphon.connect(node.address) as client:
            subscription = await client.subscribe("room", 5).ready()
            taking = asyncio.create_task(take_values(subscription, 1))
            for number in range(6):
                await node.publish("room", b"%d" % number)
                await until(lambda: not node._live.topics["room"].is_behind)
            assert await taking == [b"5"]
            await client.status()
            assert (client.reconnects, node._live.refused_connections) == (0, 0)

    running(test)


def test_a_publication_is_accepted_when_the_node_has_it_on_disk(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(1, data=str(tmp_path / "data")) as (node,), antiphon.connect(node.address) as client:
            receipt = client.publish("room", b"why?")
            assert not receipt.done()
            await receipt
            assert node._live.store is not None and node._live.store.pending_bytes == 0
            assert node._live.store.latest("room") == 1

    running(test)


@pytest.mark.parametrize("start", ["earliest", 10, "time"])
def test_clients_replay(tmp_path: Path, start: str | int) -> None:
    async def test() -> None:
        before = datetime.now(UTC)
        async with cluster(1, data=str(tmp_path / "data")) as (node,), antiphon.connect(node.address) as client:
            for number in range(100):
                await client.publish("room", b"%d" % number)
            subscription = client.subscribe("room", before if start == "time" else start)
            first = start if isinstance(start, int) else 0
            assert await take_values(subscription, 100 - first) == [b"%d" % number for number in range(first, 100)]

    running(test)


def test_mistakes_of_a_client_are_told_to_it() -> None:
    async def test() -> None:
        async with cluster(1) as (node,), antiphon.connect(node.address) as client:
            with pytest.raises(UsageError):
                client.publish("a..b", b"")
            with pytest.raises(TypeError):
                client.publish("room", "text")  # type: ignore[call-overload]
            with pytest.raises(UsageError):
                client.subscribe("room", policy="explode")
            replay = client.subscribe("room", "earliest")
            with pytest.raises(PeerError, match="keeps no log"):
                await replay.ready()
            with pytest.raises(PeerError, match="keeps no log"):
                await anext(aiter(client.subscribe("room", 3)))
            await client.publish("room", b"the client goes on")

    running(test)


def test_whoever_cannot_connect_is_told_why() -> None:
    async def test() -> None:
        with pytest.raises(PeerError, match=r"127\.0\.0\.1:1: .*antiphon up"):
            await antiphon.connect("127.0.0.1:1")
        async with cluster(1) as (node,):
            with pytest.raises(PeerError, match="cluster 'antiphon'"):
                await antiphon.connect(node.address, cluster="another")

    running(test)


async def everything_fails(client: Client) -> None:
    """Whatever a client without a node is asked for is answered with an error."""
    with pytest.raises(ClosedError):
        client.publish("room", b"")
    with pytest.raises(ClosedError):
        client.publish("another", b"")
    with pytest.raises(ClosedError):
        client.subscribe("room")
    with pytest.raises(ClosedError):
        await client.status()


@pytest.mark.parametrize("how", ["close", "kill"])
def test_when_its_node_goes_a_client_learns_it_everywhere(how: str) -> None:
    async def test() -> None:
        async with child("serve") as node, antiphon.connect(node.address, reconnect_seconds=0.2) as client:
            subscription = await client.subscribe("room").ready()
            pattern = await client.subscribe("*").ready()
            await client.publish("room", b"before")
            assert await take_values(subscription, 1) == await take_values(pattern, 1) == [b"before"]
            waiting = [asyncio.ensure_future(anext(aiter(each))) for each in (subscription, pattern)]
            if how == "kill":
                await node.kill()
            else:
                assert node.process.stdin is not None
                node.process.stdin.close()
            for each in waiting:
                assert isinstance(await outcome(each), (PeerError, StopAsyncIteration))
            await until(lambda: client._live._failure is not None)
            await everything_fails(client)

    running(test)


def test_what_is_in_flight_when_the_node_dies_is_not_accepted() -> None:
    async def test() -> None:
        async with child("serve") as node, antiphon.connect(node.address, reconnect_seconds=0.2) as client:
            await client.publish("room", b"")
            receipts = [client.publish("room", b"in flight") for _ in range(10)]
            await node.kill()
            # Some may have been accepted before the end came; the others say so, and nothing is left waiting.
            errors = [await outcome(receipt) for receipt in receipts]
            assert all(error is None or isinstance(error, ClosedError) for error in errors)
            await until(lambda: client._live._failure is not None)
            with pytest.raises(ClosedError):
                client.publish("room", b"too late")

    running(test)


def test_a_client_that_was_closed_says_so_and_sent_what_it_was_given() -> None:
    async def test() -> None:
        async with cluster(1) as (node,):
            subscription = await node.subscribe("room").ready()
            async with antiphon.connect(node.address) as client:
                for number in range(5000):
                    client.publish("room", b"%d" % number)
            assert await take_values(subscription, 5000) == [b"%d" % number for number in range(5000)]
            await everything_fails(client)
            await until(lambda: not node._live.clients)

    running(test)


def test_status() -> None:
    async def test() -> None:
        async with cluster(2) as nodes, antiphon.connect(nodes[1].address) as client:
            await client.publish("room", b"")
            status = await client.status()
            assert (status["node"], status["address"], status["clients"]) == (nodes[1].identifier, nodes[1].address, 1)
            assert status["peers"] == [{"node": nodes[0].identifier, "address": nodes[0].address}]
            assert status["topics"]["room"]["delivered_messages"] == 1
            assert status["troubles"] == []

    running(test)


def test_many_clients_of_one_node() -> None:
    async def test() -> None:
        async with cluster(2) as nodes:
            clients = await asyncio.gather(*(antiphon.connect(nodes[place % 2].address) for place in range(60)))
            subscriptions = [await client.subscribe("room").ready() for client in clients]
            assert [len(node._live.clients) for node in nodes] == [30, 30]
            await asyncio.gather(*(client.publish("room", b"%d" % place) for place, client in enumerate(clients)))
            for subscription in subscriptions:
                assert sorted(await take_values(subscription, 60)) == sorted(b"%d" % place for place in range(60))
            await asyncio.gather(*(client.close() for client in clients))
            await until(lambda: not any(node._live.topics["room"].sinks for node in nodes))

    running(test)


@pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest", "disconnect"])
def test_a_client_that_never_takes_anything_stops_nobody_else(policy: str) -> None:
    async def test() -> None:
        async with (
            cluster(1) as (node,),
            antiphon.connect(node.address) as stubborn,
            antiphon.connect(node.address) as eager,
        ):
            never_read = await stubborn.subscribe("room", policy=policy, limit=1000).ready()
            read = await eager.subscribe("room").ready()

            async def publish() -> None:
                for number in range(60_000):
                    await node.publish("room", b"%d" % number)

            publishing = asyncio.create_task(publish())
            assert await take_values(read, 60_000) == [b"%d" % number for number in range(60_000)]
            await publishing
            held = node._live.topics["room"].sinks
            if policy == "disconnect":
                await until(lambda: len(held) == 1)
                with pytest.raises(PeerError, match="take them faster"):
                    await take(never_read, 60_000)
            else:
                assert sum(sink.dropped for sink in held) > 0  # type: ignore[attr-defined]

    running(test)


def test_a_client_that_takes_slowly_slows_publishers_and_loses_nothing() -> None:
    async def test() -> None:
        async with cluster(2) as nodes, antiphon.connect(nodes[1].address) as client:
            slow = await client.subscribe("room", limit=1000).ready()

            async def publish() -> None:
                for number in range(100_000):
                    await nodes[0].publish("room", b"%d" % number)

            publishing = asyncio.create_task(publish())
            await until(lambda: nodes[1]._live.topics["room"].is_behind and nodes[0]._live.outboxes["room"].is_blocked)
            assert not publishing.done()
            assert await take_values(slow, 100_000) == [b"%d" % number for number in range(100_000)]
            await publishing

    running(test)


def test_a_callback_gets_more_than_may_be_ahead_of_it() -> None:
    """What it has taken is told to the node, which sends no more than so much ahead."""
    count = AHEAD + 1000

    async def test() -> None:
        async with antiphon.start() as node, await antiphon.connect(node.address) as client:
            heard: list[bytes] = []
            await client.subscribe("room", callback=lambda message: heard.append(message.value)).ready()
            for number in range(count):
                await node.publish("room", b"%d" % number)
            await until(lambda: len(heard) == count)
            assert heard == [b"%d" % number for number in range(count)]

    running(test)


def test_a_session_that_is_in_use_is_not_given_to_another_connection() -> None:
    """The claimant is told what to do, and the client that has the session loses nothing."""

    async def test() -> None:
        async with cluster(1) as (node,), antiphon.connect(node.address) as client:
            heard = await client.subscribe("room").ready()
            claimant = LiveClient(node.address)
            claimant._instance = client._live._instance
            with pytest.raises(PeerError, match=r"this session is in use.*connect as a new client"):
                await claimant.start()
            await claimant.abandon()
            await asyncio.sleep(1.5)
            await client.publish("room", b"still here")
            assert await take_values(heard, 1) == [b"still here"] and client.reconnects == 0

    running(test)
