"""Publishing and subscribing at nodes of one cluster."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

import antiphon
from antiphon import ClosedError, Message, Node, UsageError
from antiphon.api.publisher import BESIDE_BYTES_AT_MOST, VALUE_BYTES_AT_MOST
from antiphon.runtime.errors import WrongTypeError
from tests.node.support import cluster, outcome, running, take, take_values, until


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_what_every_node_publishes_every_node_gets_in_order(count: int) -> None:
    async def test() -> None:
        async with cluster(count) as nodes:
            subscriptions = [await node.subscribe("room").ready() for node in nodes]
            for number in range(20):
                for place, node in enumerate(nodes):
                    await node.publish("room", b"%d %d" % (place, number))
                await asyncio.sleep(0)
            for subscription in subscriptions:
                messages = await take(subscription, 20 * count)
                for place, node in enumerate(nodes):
                    own = [message for message in messages if message.publisher == node.identifier]
                    assert [message.value for message in own] == [b"%d %d" % (place, number) for number in range(20)]
                    assert [message.sequence for message in own] == list(range(1, 21))
                assert [message.offset for message in messages] == list(range(20 * count))

    running(test)


def test_a_message_says_everything_about_itself() -> None:
    async def test() -> None:
        async with cluster(2) as (here, there):
            subscription = await there.subscribe("room").ready()
            before = datetime.now(UTC)
            await here.publish("room", b"plain")
            await here.publish("room", b"why?", key=b"k", headers={"a": b"1"}, order="fifo")
            plain, full = await take(subscription, 2)
            assert (plain.topic, plain.value, plain.key, plain.headers) == ("room", b"plain", None, {})
            assert (full.topic, full.value, full.key, full.headers) == ("room", b"why?", b"k", {"a": b"1"})
            assert (plain.publisher, plain.sequence, plain.order, plain.offset) == (here.identifier, 1, "causal", 0)
            assert (full.publisher, full.sequence, full.order, full.offset) == (here.identifier, 2, "fifo", 1)
            # Both have the same clock here; it has microseconds, a float of seconds since 1970 almost.
            assert before.timestamp() - 0.001 <= full.timestamp.timestamp() <= datetime.now(UTC).timestamp() + 0.001
            assert repr(full) == f"Message('room', b'why?', publisher={here.identifier}, sequence=2)"

    running(test)


def test_an_answer_never_comes_before_its_question() -> None:
    async def test() -> None:
        async with cluster(4) as nodes:
            heard: dict[Node, list[bytes]] = {node: [] for node in nodes}

            def answering(node: Node, place: int) -> None:
                def answer(message: Message) -> None:
                    heard[node].append(message.value)
                    depth = len(message.value)
                    if depth < 30 and depth % len(nodes) == place:
                        node.publish("room", message.value + b".")

                node.subscribe("room", callback=answer)

            for place, node in enumerate(nodes):
                answering(node, place)
            for node in nodes:
                await node.subscribe("room").ready()
            for _ in range(10):
                await nodes[0].publish("room", b".")
                await asyncio.sleep(0)
            # Each question of one dot begins a chain, whose values have one dot more each.
            await until(lambda: all(len(values) == 10 * 30 for values in heard.values()))
            for values in heard.values():
                counts = [0] * 32
                for value in values:
                    counts[len(value)] += 1
                    assert len(value) == 1 or counts[len(value) - 1] >= counts[len(value)]

    running(test)


def test_callbacks_iterators_and_batches_get_the_same() -> None:
    async def test() -> None:
        async with cluster(2) as (here, there):
            called: list[bytes] = []
            awaited: list[bytes] = []

            async def slowly(message: Message) -> None:
                await asyncio.sleep(0)
                awaited.append(message.value)

            there.subscribe("room", callback=lambda message: called.append(message.value))
            there.subscribe("room", callback=slowly)
            batches = await there.subscribe("room").ready()
            iterator = await there.subscribe("room").ready()
            sent = [b"%d" % number for number in range(1000)]
            for value in sent:
                await here.publish("room", value)
            assert await take_values(batches, 1000) == sent
            iterated: list[bytes] = []
            async for message in iterator:
                iterated.append(message.value)
                if len(iterated) == 1000:
                    break
            assert iterated == sent
            await until(lambda: len(awaited) == 1000)
            assert called == awaited == sent

    running(test)


def test_a_callback_that_fails_costs_nothing_but_its_message(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with cluster(1) as (node,):
            good: list[bytes] = []

            def sync(message: Message) -> None:
                if message.value == b"bad":
                    raise ValueError("this one is bad")
                good.append(message.value)

            async def asynchronous(message: Message) -> None:
                sync(message)

            node.subscribe("room", callback=sync)
            await node.subscribe("room", callback=asynchronous).ready()
            for value in (b"1", b"bad", b"2"):
                await node.publish("room", value)
            await until(lambda: len(good) == 4)
            assert sorted(good) == [b"1", b"1", b"2", b"2"]

    running(test)
    assert [record.__dict__.get("event") for record in caplog.records].count("a callback failed") == 2


def test_whoever_stops_within_a_batch_goes_on_with_the_next_message() -> None:
    async def test() -> None:
        async with cluster(1) as (node,):
            subscription = await node.subscribe("room").ready()
            for number in range(10):
                node.publish("room", b"%d" % number)
            first = [message.value async for message in limited(subscription, 3)]
            assert first == [b"0", b"1", b"2"]
            assert await take_values(subscription, 7) == [b"%d" % number for number in range(3, 10)]

    async def limited(subscription: antiphon.Subscription, count: int):  # type: ignore[no-untyped-def]
        taken = 0
        async for message in subscription:
            yield message
            taken += 1
            if taken == count:
                return

    running(test)


def test_two_subscriptions_to_a_topic_end_apart() -> None:
    async def test() -> None:
        async with cluster(2) as (here, there):
            first = await there.subscribe("room").ready()
            second = await there.subscribe("room").ready()
            await here.publish("room", b"both")
            assert await take_values(first, 1) == await take_values(second, 1) == [b"both"]
            await first.close()
            await first.close()
            await here.publish("room", b"one")
            assert await take_values(second, 1) == [b"one"]
            assert [message async for message in first] == []
            await second.close()
            topic = there._live.topics["room"]
            assert not topic.is_wanted() and topic.joined is None

    running(test)


def test_who_unsubscribes_and_subscribes_at_once_gets_what_comes_after() -> None:
    async def test() -> None:
        async with cluster(3) as nodes:
            for round_number in range(15):
                subscription = await nodes[1].subscribe("room").ready()
                await nodes[0].publish("room", b"%d" % round_number)
                assert await take_values(subscription, 1) == [b"%d" % round_number]
                await subscription.close()
            # Ended before it had begun.
            hasty = nodes[2].subscribe("room")
            await hasty.close()
            again = await nodes[2].subscribe("room").ready()
            await nodes[0].publish("room", b"last")
            assert await take_values(again, 1) == [b"last"]

    running(test)


@pytest.mark.parametrize("name", ["", ".", "a..b", "a.*", "a.>", "with space", "x" * 256, "a*", "\n", 7, None])
def test_nobody_publishes_to_what_is_no_topic(name: str) -> None:
    async def test() -> None:
        async with cluster(1) as (node,):
            with pytest.raises((UsageError, TypeError)):
                node.publish(name, b"")
            await node.publish("room", b"the node goes on")

    running(test)


@pytest.mark.parametrize("name", ["", "a..b", ">.a", "a.>.b", "x" * 256, "*a"])
def test_nobody_subscribes_to_what_is_no_pattern(name: str) -> None:
    async def test() -> None:
        async with cluster(1) as (node,):
            with pytest.raises(UsageError):
                node.subscribe(name)

    running(test)


def test_wrong_types_are_told_to_who_uses_them_and_reach_nobody_else() -> None:
    async def test() -> None:
        async with cluster(2) as (here, there):
            subscription = await there.subscribe("room").ready()
            wrong: list[dict[str, object]] = [
                {"value": "text"},
                {"value": 7},
                {"value": None},
                {"value": b"", "key": 1.5},
                {"value": b"", "keys": 7},
                {"value": b"", "headers": {"a": "text"}},
                {"value": b"", "headers": {1: b""}},
                {"value": b"", "headers": [b""]},
                {"value": b"", "ttl_seconds": "4"},
            ]
            for arguments in wrong:
                with pytest.raises(WrongTypeError):
                    here.publish("room", **arguments)  # type: ignore[call-overload]
            for ttl_seconds in (0, -1, float("nan"), float("inf")):
                with pytest.raises(UsageError):
                    here.publish("room", b"", ttl_seconds=ttl_seconds)
            for order in ("best", "", "Causal"):
                with pytest.raises(UsageError):
                    here.publish("room", b"", order=order)
            with pytest.raises(UsageError):
                here.publish("room", bytes(VALUE_BYTES_AT_MOST + 1))
            with pytest.raises(UsageError):
                here.publish("room", b"", key=bytes(BESIDE_BYTES_AT_MOST + 1))
            await here.publish("room", bytearray(b"right"))
            await here.publish("room", memoryview(b"right too"))
            assert await take_values(subscription, 2) == [b"right", b"right too"]

    running(test)


def test_a_closed_node_says_so() -> None:
    async def test() -> None:
        async with cluster(1) as (node,):
            subscription = await node.subscribe("room").ready()
            await node.publish("room", b"")
            await node.close()
            for topic in ("room", "another"):
                with pytest.raises(ClosedError):
                    node.publish(topic, b"too late")
                with pytest.raises(ClosedError):
                    node.subscribe(topic)
            assert [message.value async for message in subscription] == []
            await node.close()

    running(test)


def test_what_was_accepted_before_a_close_arrives() -> None:
    async def test() -> None:
        async with cluster(2) as (here, there):
            subscription = await there.subscribe("room").ready()
            for number in range(3000):
                here.publish("room", b"%d" % number)
            await here.close()
            assert await take_values(subscription, 3000) == [b"%d" % number for number in range(3000)]

    running(test)


def test_a_node_that_fails_tells_all_who_wait() -> None:
    async def test() -> None:
        async with cluster(1) as (node,):
            with_topic = await node.subscribe("room").ready()
            without_topic = await node.subscribe("nothing.*").ready()
            await node.publish("room", b"last")
            node._live.fail(UsageError("broken on purpose"))
            await node.close()
            assert await take_values(with_topic, 1) == [b"last"]
            for subscription in (with_topic, without_topic):
                error = await outcome(anext(aiter(subscription)))
                assert "broken on purpose" in str(error)
            with pytest.raises(UsageError, match="broken on purpose"):
                node.publish("room", b"")

    running(test)


def test_messages_expire() -> None:
    async def test() -> None:
        async with cluster(2) as (here, there):
            subscription = await there.subscribe("room").ready()
            here.publish("room", b"stays")
            here.publish("room", b"goes", ttl_seconds=0.001)
            here.publish("room", b"stays long", ttl_seconds=3600)
            await until(lambda: subscription._live.queued == 3)
            await asyncio.sleep(0.01)
            assert await take_values(subscription, 2) == [b"stays", b"stays long"]
            assert subscription.expired == 1

    running(test)


@pytest.mark.parametrize("size", [5 << 20, VALUE_BYTES_AT_MOST])
def test_large_values_arrive_whole(size: int) -> None:
    async def test() -> None:
        async with cluster(2) as (here, there):
            subscription = await there.subscribe("room").ready()
            value = bytes(range(256)) * (size // 256)
            for _ in range(2):
                await here.publish("room", value, key=b"large", headers={"a": bytes(1000)})
                (message,) = await take(subscription, 1)
                assert message.value == value and message.key == b"large"

    running(test)


def test_orders_chosen_per_message_keep_the_sequence_of_a_publisher_that_orders() -> None:
    async def test() -> None:
        async with cluster(3) as nodes:
            subscription = await nodes[2].subscribe("room").ready()
            orders = ["none", "fifo", "causal", "causal", "fifo"]
            for number in range(500):
                await nodes[0].publish("room", b"%d" % number, order=orders[number % 5])
            messages = await take(subscription, 500)
            assert sorted(message.sequence for message in messages) == list(range(1, 501))
            ordered = [message.sequence for message in messages if message.order != "none"]
            assert ordered == sorted(ordered)
            assert all(message.order == orders[(message.sequence - 1) % 5] for message in messages)
            assert all(message.value == b"%d" % (message.sequence - 1) for message in messages)

    running(test)


@pytest.mark.parametrize("with_log", [False, True])
def test_a_batch_that_cannot_be_read_stops_nobody(tmp_path: Path, with_log: bool) -> None:
    async def test() -> None:
        data = str(tmp_path / "data") if with_log else None
        # One of another node would have been refused when it came (test_hostile).
        async with antiphon.start(data=data) as node:
            called: list[bytes] = []
            await node.subscribe("room", callback=lambda message: called.append(message.value)).ready()
            await node.publish("room", b"before")
            assert node._live.process is not None
            node._live.process.publish(b"\x01\x00\x00\x00garbage", node._live.topics["room"].number, 2)
            await node.publish("room", b"after")
            await until(lambda: called == [b"before", b"after"])
            assert node._live.failure is None

    running(test)
