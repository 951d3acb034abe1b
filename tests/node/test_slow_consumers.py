"""What happens to a subscription whose application takes messages more slowly than they come."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from antiphon import Node, OverloadedError, SlowConsumerError, UsageError
from antiphon.api.outbox import OVERRUN, WAITING_BYTES, WAITING_MESSAGES
from tests.node.support import cluster, running, take, take_values, until


def is_slowed(node: Node) -> bool:
    """Whether a publisher of a node waits for room."""
    outbox = node._live.outboxes.get("room")
    return outbox is not None and outbox.waits > 0 and outbox.is_blocked


def test_block_slows_publishers_here_and_elsewhere_and_loses_nothing() -> None:
    window, limit, each = 4, 100, 5000

    async def test() -> None:
        async with cluster(3, window=window) as nodes:
            slow = await nodes[2].subscribe("room", limit=limit).ready()

            async def publish(node: Node) -> None:
                for number in range(each):
                    await node.publish("room", b"%d" % number + bytes(1024))

            publishers = [asyncio.create_task(publish(node)) for node in nodes]
            await until(lambda: nodes[2]._live.topics["room"].is_behind and all(is_slowed(node) for node in nodes))
            assert not any(publisher.done() for publisher in publishers)
            # A batch that waits holds no more than this many of these messages.
            assert limit <= slow._live.queued <= limit + 3 * window * (WAITING_BYTES // 1024 + 1)
            messages = await take(slow, 3 * each)
            await asyncio.gather(*publishers)
            for node in nodes:
                own = [int(message.value[:-1024]) for message in messages if message.publisher == node.identifier]
                assert own == list(range(each))
            assert slow.dropped == 0

    running(test)


def test_a_slow_subscription_that_ends_lets_the_publishers_go_on() -> None:
    async def test() -> None:
        async with cluster(2, window=4) as (here, there):
            slow = await there.subscribe("room", limit=10).ready()

            async def publish() -> None:
                for number in range(100_000):
                    await here.publish("room", b"%d" % number)

            publisher = asyncio.create_task(publish())
            await until(lambda: there._live.topics["room"].is_behind and is_slowed(here))
            assert not publisher.done()
            await slow.close()
            await publisher

    running(test)


@pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest"])
def test_dropping_keeps_the_ends_and_counts(policy: str) -> None:
    async def test() -> None:
        async with cluster(2) as (here, there):
            slow = await there.subscribe("room", policy=policy, limit=100).ready()
            witness = await there.subscribe("room").ready()
            for number in range(1000):
                await here.publish("room", b"%d" % number)
                if number % 10 == 9:
                    await here.flush()
            await take(witness, 1000)
            assert 0 < slow._live.queued <= 100
            assert slow.dropped == 1000 - slow._live.queued
            kept = [int(value) for value in await take_values(slow, slow._live.queued)]
            first = 0 if policy == "drop_newest" else 1000 - len(kept)
            assert kept == list(range(first, first + len(kept)))

    running(test)


def test_disconnect_ends_the_subscription_with_an_error_after_what_has_come() -> None:
    async def test() -> None:
        async with cluster(2) as (here, there):
            slow = await there.subscribe("room", policy="disconnect", limit=50).ready()
            quick = await there.subscribe("room").ready()
            for number in range(200):
                await here.publish("room", b"%d" % number)
                if number % 10 == 9:
                    await here.flush()
            await take(quick, 200)
            left = slow._live.queued
            assert 0 < left <= 50
            assert await take_values(slow, left) == [b"%d" % number for number in range(left)]
            with pytest.raises(SlowConsumerError, match="raise its limit"):
                await anext(aiter(slow))
            await slow.close()

    running(test)


def test_who_waits_for_a_subscription_hears_why_it_ended_before_it_was_ready() -> None:
    async def test() -> None:
        async with cluster(2) as (_, there):
            slow = there.subscribe("room", policy="disconnect")
            ready = asyncio.create_task(slow.ready())
            await asyncio.sleep(0)
            slow._live.fail(SlowConsumerError("it held too much on another topic"))
            slow._live.end()
            with pytest.raises(SlowConsumerError, match="another topic"):
                await ready

    running(test)


def test_a_disconnected_subscription_leaves_its_topic_and_its_node_can_be_closed() -> None:
    async def test() -> None:
        async with cluster(2) as (here, there):
            await there.subscribe("room", policy="disconnect", limit=1).ready()
            for _ in range(10):
                await here.publish("room", b"")
                await here.flush()
            await until(lambda: not there._live.topics["room"].is_wanted())
            await there.close()

    running(test)


def test_with_a_log_a_slow_subscription_slows_nobody_and_loses_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(1, data=str(tmp_path / "a"), durability="memory") as (node,):
            slow = await node.subscribe("room", limit=100).ready()
            for number in range(20_000):
                await node.publish("room", b"%d" % number)
            await node.flush()
            assert slow._live.queued <= 100 + 256
            assert await take_values(slow, 20_000) == [b"%d" % number for number in range(20_000)]
            await node.publish("room", b"live again")
            assert await take_values(slow, 1) == [b"live again"]

    running(test)


def test_several_topics_of_a_pattern_fall_back_to_the_log_together(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(1, data=str(tmp_path / "a"), durability="memory") as (node,):
            slow = await node.subscribe("orders.*", limit=10).ready()
            for number in range(3000):
                await node.publish(f"orders.{number % 3}", b"%d" % number)
                if number % 30 == 0:
                    await asyncio.sleep(0)
            await node.flush()
            messages = await take(slow, 3000)
            for remainder in range(3):
                own = [int(message.value) for message in messages if message.topic == f"orders.{remainder}"]
                assert own == list(range(remainder, 3000, 3))

    running(test)


def test_who_never_waits_is_refused_in_the_end_and_what_was_taken_arrives_once() -> None:
    async def test() -> None:
        async with cluster(2) as (here, there):
            subscription = await there.subscribe("room").ready()
            await here.publish("room", b"0")
            accepted = 1
            with suppress(OverloadedError):
                while accepted < 10_000_000:
                    here.publish("room", b"%d" % accepted)
                    accepted += 1
            assert accepted < WAITING_MESSAGES * OVERRUN + 64 * 1024
            for _ in range(1000):
                with pytest.raises(OverloadedError, match="await what publish returns"):
                    here.publish("room", b"refused")
            assert len(here._live.outboxes["room"]) <= WAITING_MESSAGES * OVERRUN + 1
            assert await take_values(subscription, accepted) == [b"%d" % number for number in range(accepted)]

    running(test)


def test_who_changes_the_order_all_the_time_is_slowed_too() -> None:
    async def test() -> None:
        async with cluster(2, window=2) as (here, there):
            slow = await there.subscribe("room", limit=10).ready()
            values = [b"%d" % number + bytes(2048) for number in range(1000)]

            async def publish() -> None:
                for number, value in enumerate(values):
                    await here.publish("room", value, order=("fifo", "causal")[number % 2])

            publisher = asyncio.create_task(publish())
            await until(lambda: there._live.topics["room"].is_behind and is_slowed(here))
            assert not publisher.done()
            assert await take_values(slow, 1000) == values
            await publisher

    running(test)


@pytest.mark.parametrize("arguments", [{"policy": "forget"}, {"limit": 0}, {"start": "yesterday"}, {"start": -1}])
def test_what_no_subscription_can_be_is_refused(arguments: dict[str, str]) -> None:
    async def test() -> None:
        async with cluster(1) as (node,):
            with pytest.raises(UsageError):
                node.subscribe("room", **arguments)  # type: ignore[arg-type]

    running(test)


def test_a_publisher_that_may_have_one_batch_under_way_does_not_wait_for_the_company_of_acknowledgements() -> None:
    """With a window of one every acknowledgement is waited for: each says that it is wanted, and is written at once."""

    async def test() -> None:
        async with cluster(3, window=1) as nodes:
            subscription = await nodes[2].subscribe("room").ready()
            for number in range(50):
                await nodes[0].publish("room", b"%d" % number, order=("causal", "fifo")[number % 2])
            assert [message.value for message in await take(subscription, 50)] == [b"%d" % n for n in range(50)]
            topic = nodes[2]._live.topic("room")
            assert topic.hurried_until > 0
            assert nodes[1]._live.topics.get("room") is None

    running(test)
