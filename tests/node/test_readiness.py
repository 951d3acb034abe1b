"""The barrier of readiness: whatever is published after it comes, on topics and on patterns, whoever publishes."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

import antiphon
from antiphon import Node, Subscription
from tests.node.support import cluster, running, take_values, until


async def hammer(node: Node, topic: str) -> None:
    """Publish numbers until cancelled."""
    for number in count():
        await node.publish(topic, b"%d" % number)
        await asyncio.sleep(0)


async def numbers_of(subscription: Subscription, wanted: int) -> dict[int, list[int]]:
    """The numbers that came, by publisher."""
    found: dict[int, list[int]] = {}
    taken = 0
    async for message in subscription:
        found.setdefault(message.publisher, []).append(int(message.value))
        taken += 1
        if taken == wanted:
            return found
    raise AssertionError("the subscription ended")


@pytest.mark.parametrize("pattern", ["room", "*", ">"])
def test_nothing_is_missed_from_readiness_on_while_others_publish_all_the_time(pattern: str) -> None:
    async def test() -> None:
        async with cluster(4) as nodes:
            publishers = [asyncio.create_task(hammer(node, "room")) for node in nodes[:3]]
            for _ in range(5):
                subscription = await nodes[3].subscribe(pattern).ready()
                # What has been published by now and will not come is no more than this.
                published = [
                    node._live.outboxes["room"].next_sequence + len(node._live.outboxes["room"]) for node in nodes[:3]
                ]
                found = await numbers_of(subscription, 2000)
                for node, limit in zip(nodes[:3], published, strict=True):
                    numbers = found[node.identifier]
                    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
                    assert numbers[0] <= limit
                await subscription.close()
            for publisher in publishers:
                publisher.cancel()

    running(test)


def test_the_first_message_of_a_new_topic_reaches_every_pattern() -> None:
    async def test() -> None:
        async with cluster(4) as nodes:
            patterns = ["orders.*", "orders.>", ">", "*.new", "orders.new"]
            subscriptions = [await node.subscribe(pattern).ready() for node in nodes for pattern in patterns]
            await nodes[1].publish("orders.new", b"first")
            for subscription in subscriptions:
                assert await take_values(subscription, 1) == [b"first"]
            others = [await nodes[0].subscribe(pattern).ready() for pattern in ("*", "orders", "orders.*.new")]
            await nodes[1].publish("orders.new", b"second")
            for subscription in subscriptions:
                assert await take_values(subscription, 1) == [b"second"]
            assert [subscription._live.queued for subscription in others] == [0, 0, 0]

    running(test)


def test_a_pattern_sees_the_topics_that_its_own_node_begins() -> None:
    async def test() -> None:
        async with cluster(1) as (alone,):
            subscription = await alone.subscribe("orders.>").ready()
            for number in range(10):
                await alone.publish(f"orders.{number}", b"first")
            assert await take_values(subscription, 10) == [b"first"] * 10

    running(test)


def test_nodes_that_begin_the_same_topics_at_once_reach_every_pattern() -> None:
    async def test() -> None:
        async with cluster(3) as nodes:
            subscriptions = [await node.subscribe("orders.*").ready() for node in nodes]
            for number in range(20):
                for node in nodes:
                    node.publish(f"orders.{number}", b"first")
            for subscription in subscriptions:
                assert await take_values(subscription, 60) == [b"first"] * 60

    running(test)


def test_a_newcomer_knows_the_topics_of_those_who_publish() -> None:
    async def test() -> None:
        async with cluster(3) as nodes:
            for number in range(10):
                await nodes[number % 3].publish(f"orders.{number}", b"before")
            async with antiphon.start(join=[nodes[1].address]) as newcomer:
                subscription = await newcomer.subscribe("orders.*").ready()
                for number in range(10):
                    await nodes[number % 3].publish(f"orders.{number}", b"after")
                assert await take_values(subscription, 10) == [b"after"] * 10

    running(test)


def test_a_pattern_that_has_ended_follows_no_new_topic() -> None:
    async def test() -> None:
        async with cluster(2) as (here, there):
            async with there.subscribe("orders.*") as subscription:
                await here.publish("orders.1", b"")
                await take_values(subscription, 1)
            await here.publish("orders.2", b"")
            await until(lambda: "orders.2" in there._live.topic_registry.names)
            topic = there._live.topics.get("orders.2")
            assert topic is None or not topic.is_wanted()
            assert not there._live.topics["orders.1"].is_wanted()

    running(test)


def test_readiness_of_a_subscription_that_is_closed_meanwhile_is_an_error() -> None:
    async def test() -> None:
        async with cluster(2) as (_, there):
            subscription = there.subscribe("room")
            waiting = asyncio.create_task(subscription.ready())
            await asyncio.sleep(0)
            await subscription.close()
            with pytest.raises(antiphon.ClosedError):
                await waiting

    running(test)
