"""Subscribers of every policy and limit that come, lag, close and vanish: their topics go on without them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import Client, Node, PeerError, SlowConsumerError, Subscription
from antiphon.api.subscription import POLICIES
from tests.node.support import cluster, running, take_exactly, until

LIMITS = (1, 7, 1000)
LOGS = (None, "memory", "disk")
BURST = 400
"""Messages of each publisher while the subscriber lags: more than a window of one holds, and than most limits."""

TOGETHER = 20
"""So many are published between two for which their publisher waits."""

STANDS_STILL_SECONDS = 90.0

Ending = Callable[[Client | None, Subscription], Awaitable[None]]


async def close(_: Client | None, subscription: Subscription) -> None:
    await subscription.close()


async def close_and_leave(client: Client | None, subscription: Subscription) -> None:
    """The end of the subscription and that of the connection arrive together."""
    await subscription.close()
    if client is not None:
        await client.abandon()


async def vanish(client: Client | None, subscription: Subscription) -> None:
    """The connection breaks; at a node, whoever had it forgets the subscription and closes it without a word."""
    if client is None:
        await subscription.__aexit__(None, None, None)
        return
    connection = client._live._connection
    assert connection is not None and connection.transport is not None
    client._live._end.reconnect_us = 0
    connection.transport.abort()


ENDINGS: tuple[Ending, ...] = (close, close_and_leave, vanish)


async def publish_many(place: Any, topic: str, name: str, count: int = BURST, together: int = TOGETHER) -> None:
    for number in range(count):
        receipt = place.publish(topic, f"{name} {number}".encode() + bytes(100))
        if number % together == 0:
            await receipt
    await place.flush()


async def one_subscriber(
    nodes: list[Node], topic: str, through_client: bool, policy: str, limit: int, end: Ending
) -> None:
    """It subscribes, takes a little, lags while both nodes publish, and ends; then the topic must go on."""
    here, there = nodes
    client = await antiphon.connect(here.address, reconnect_seconds=0.0) if through_client else None
    place: Any = client or here
    slow = await place.subscribe(topic, policy=policy, limit=limit).ready()
    bursts = [
        asyncio.create_task(publish_many(node, topic, f"{publisher}"))
        for publisher, node in enumerate((here, there, here, there))
    ]
    with suppress(PeerError):
        await take_exactly(slow, 1)
    # Until the publishers wait for it, if they do: the others come to their end.
    live = here._live.topics[topic]
    await until(lambda: live.is_behind or all(burst.done() for burst in bursts))
    await end(client, slow)
    # Those who waited go on, a newcomer publishes, and a newcomer gets all of it.
    fresh = await there.subscribe(topic).ready()
    async with antiphon.connect(here.address) as newcomer:
        last = [f"last {number}".encode() + bytes(100) for number in range(20)]
        for value in last:
            await newcomer.publish(topic, value)
    await asyncio.gather(*bursts)
    seen: list[bytes] = []
    async for message in fresh:
        if message.value.startswith(b"last"):
            seen.append(message.value)
        if len(seen) == len(last):
            break
    assert seen == last
    await fresh.close()
    assert live.behind == () and not live.is_behind and slow not in live.sinks
    if client is not None:
        await client.abandon()


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("through_client", [False, True], ids=["node", "client"])
def test_a_topic_goes_on_after_a_subscriber_of_any_kind_has_ended(
    tmp_path: Path, log: str | None, through_client: bool
) -> None:
    async def test() -> None:
        settings: dict[str, Any] = {"window": 1}
        if log is not None:
            settings |= {"data": str(tmp_path / "here"), "durability": log}
        async with antiphon.start(**settings) as here, antiphon.start(join=[here.address], window=1) as there:

            async def one(policy: str, limit: int, end: Ending) -> None:
                topic = f"{policy}.{limit}.{end.__name__}"
                try:
                    async with asyncio.timeout(STANDS_STILL_SECONDS):
                        await one_subscriber([here, there], topic, through_client, policy, limit, end)
                except TimeoutError:
                    raise AssertionError(f"{topic}: the topic stands still") from None

            await asyncio.gather(*(one(*kind) for kind in product(POLICIES, LIMITS, ENDINGS)))

    running(test)


def test_a_topic_goes_on_when_a_subscriber_ends_for_which_six_publishers_wait() -> None:
    """With more waiting than the limit, what the publishers sent when it ended used to be pushed to it once more."""

    async def test() -> None:
        async with cluster(1) as (node,):
            slow = await node.subscribe("room", limit=1000).ready()
            clients = [await antiphon.connect(node.address) for _ in range(6)]

            publishers = [asyncio.create_task(publish_many(client, "room", "", 3000, 3000)) for client in clients]
            await until(
                lambda: node._live.topics["room"].is_behind and len(node._live.outboxes["room"]) >= 2 * slow._live.limit
            )
            await slow.close()
            await asyncio.gather(*publishers)
            assert not node._live.topics["room"].is_behind
            for client in clients:
                await client.close()

    running(test)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("log", [None, "disk"])
def test_topics_go_on_whatever_subscribers_come_lag_close_and_vanish(
    tmp_path: Path, seed: int, log: str | None
) -> None:
    """Many at once, on one topic and by a pattern, drawn at random, while publishers publish all the time."""
    chance = random.Random(seed)

    async def subscriber(nodes: list[Node], topics: list[str]) -> None:
        node = chance.choice(nodes)
        client = await antiphon.connect(node.address, reconnect_seconds=0.0) if chance.random() < 0.6 else None
        pattern = chance.choice([*topics, "room.*"])
        place: Any = client or node
        policy, limit = chance.choice(POLICIES), chance.choice((1, 3, 50, 5000))
        subscription = place.subscribe(pattern, policy=policy, limit=limit)
        # It may hold too much on one topic before it has the other.
        with suppress(SlowConsumerError):
            await subscription.ready()
        for _ in range(chance.randint(0, 3)):
            with suppress(PeerError, TimeoutError):
                async with asyncio.timeout(0.05):
                    await take_exactly(subscription, chance.randint(1, 30))
            await asyncio.sleep(chance.uniform(0.0, 0.05))
        await chance.choice(ENDINGS)(client, subscription)
        if client is not None:
            await client.abandon()

    async def test() -> None:
        topics = ["room.1", "room.2"]
        settings: dict[str, Any] = {} if log is None else {"data": str(tmp_path / "data"), "durability": log}
        async with antiphon.start(window=2, **settings) as here, antiphon.start(join=[here.address], window=2) as there:
            nodes = [here, there]
            publishing = [
                asyncio.create_task(publish_many(node, topic, "all the time", 2000))
                for node in nodes
                for topic in topics
            ]
            await asyncio.gather(*(subscriber(nodes, topics) for _ in range(30)))
            await asyncio.gather(*publishing)
            for node, topic in product(nodes, topics):
                fresh = await node.subscribe(topic).ready()
                for publisher in nodes:
                    await publisher.publish(topic, b"last")
                assert [message.value for message in await take_exactly(fresh, 2)] == [b"last", b"last"]
                await fresh.close()
                assert node._live.topics[topic].behind == ()

    running(test)
