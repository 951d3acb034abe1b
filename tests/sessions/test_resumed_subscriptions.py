"""Subscriptions that go on at another node: what the client lacks comes from others, or is told as missing."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import antiphon
from antiphon import (
    MissedMessagesError,
)
from tests.node.support import (
    child,
    cluster,
    hold_link,
    running,
    take_exactly,
    take_values,
    until,
)
from tests.node.test_push_back import BadDisk
from tests.sessions.support import (
    LONGER_SECONDS,
    crash,
    nodes_with_a_doomed_one,
    tree_with_a_doomed_broker,
    values_until,
)

ALL_ORDERS = ("none", "fifo", "causal", "total")


def test_a_new_node_that_was_no_member_gets_what_its_client_lacks_from_others(tmp_path: Path) -> None:
    """Only brokers 1 and 3 know the topic; whoever else the client comes to has to ask."""

    async def test() -> None:
        async with (
            tree_with_a_doomed_broker(tmp_path) as (doomed, nodes),
            antiphon.connect(doomed.address) as client,
        ):
            publisher = nodes[2]
            await (await publisher.subscribe("room").ready()).close()
            await publisher.publish("room", b"before")
            await asyncio.sleep(LONGER_SECONDS)
            own = await client.subscribe("room").ready()
            client._live._end.pool.learn([nodes[0].address])
            await doomed.kill()
            for number in range(100):
                await publisher.publish("room", b"%d" % number)
            await until(lambda: client.reconnects == 1)
            await publisher.publish("room", b"end")
            assert client.address == nodes[0].address
            assert await values_until(own, b"end") == [*(b"%d" % number for number in range(100)), b"end"]
            assert own.gaps == 0

    running(test)


@pytest.mark.parametrize("fabric", ["cube", "tree", "gossip"])
def test_nothing_is_told_as_missing_where_nothing_is(fabric: str, tmp_path: Path) -> None:
    """The client of the node that is killed was the first to subscribe, so no other node was a member for as long."""
    count = 400

    async def test() -> None:
        async with (
            nodes_with_a_doomed_one(fabric, tmp_path) as (doomed, nodes),
            antiphon.connect(doomed.address) as client,
        ):
            own = await client.subscribe("room").ready()
            await asyncio.sleep(LONGER_SECONDS)
            others = [await node.subscribe("room").ready() for node in nodes]
            for number in range(count):
                await nodes[number % 2].publish("room", b"%d" % number)
                if number == count // 2:
                    await doomed.kill()
                await asyncio.sleep(0.002)
            for subscription in (own, *others):
                values = [message.value for message in await take_exactly(subscription, count)]
                assert sorted(values, key=int) == [b"%d" % number for number in range(count)]
            assert client.reconnects == 1 and own.gaps == 0

    running(test)


def test_a_client_lacks_nothing_that_nobody_has_shown(tmp_path: Path) -> None:
    """Only the broker that is killed knew the topic: what it has not shown to its client nobody will ever see."""

    async def test() -> None:
        async with (
            tree_with_a_doomed_broker(tmp_path) as (doomed, nodes),
            antiphon.connect(doomed.address) as client,
        ):
            own = await client.subscribe("room").ready()
            await client.publish("room", b"first")
            assert await take_values(own, 1) == [b"first"]
            await doomed.kill()
            await until(lambda: client.reconnects == 1)
            await nodes[2].publish("room", b"end")
            assert await take_values(own, 1) == [b"end"]
            assert own.gaps == 0

    running(test)


def test_what_was_shown_elsewhere_before_its_node_was_a_member_comes_to_the_first_subscriber(tmp_path: Path) -> None:
    """The publisher became a member after the client, and the node that the client comes to after that."""

    async def test() -> None:
        async with (
            tree_with_a_doomed_broker(tmp_path) as (doomed, nodes),
            antiphon.connect(doomed.address) as client,
        ):
            own = await client.subscribe("room").ready()
            await asyncio.sleep(LONGER_SECONDS)
            publisher = nodes[2]
            await (await publisher.subscribe("room").ready()).close()
            client._live._end.pool.learn([nodes[0].address])
            doomed.process.send_signal(signal.SIGSTOP)
            for number in range(20):
                await publisher.publish("room", b"%d" % number)
                await asyncio.sleep(0)
            await doomed.kill()
            await until(lambda: client.reconnects == 1)
            await publisher.publish("room", b"end")
            assert client.address == nodes[0].address
            assert await values_until(own, b"end") == [*(b"%d" % number for number in range(20)), b"end"]
            assert own.gaps == 0

    running(test)


@pytest.mark.parametrize("fabric", ["cube", "tree"])
def test_where_nobody_has_kept_what_a_client_lacks_it_is_told(
    fabric: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node stood still for so long that the others have shown more than they keep."""
    monkeypatch.setattr("antiphon.sessions.replay_buffer.BATCHES_AT_MOST", 8)

    async def test() -> None:
        async with (
            nodes_with_a_doomed_one(fabric, tmp_path) as (doomed, nodes),
            antiphon.connect(doomed.address) as client,
        ):
            own = await client.subscribe("room").ready()
            told: list[str] = []
            pattern = await client.subscribe("*", when_missed=told.append).ready()
            await client.publish("room", b"first")
            assert await take_values(own, 1) == await take_values(pattern, 1) == [b"first"]
            await asyncio.sleep(LONGER_SECONDS)
            await (await nodes[2].subscribe("room").ready()).close()
            await nodes[2].publish("room", b"second")
            assert await take_values(own, 1) == await take_values(pattern, 1) == [b"second"]
            doomed.process.send_signal(signal.SIGSTOP)
            for number in range(32):
                await nodes[2].publish("room", b"%d" % number)
                await asyncio.sleep(0)
            await doomed.kill()
            await until(lambda: client.reconnects == 1)
            # What is published before the next node has subscribed is among what is missing.
            with pytest.raises(MissedMessagesError, match=r"room.*may be missing"):
                await take_values(own, 1)
            await until(lambda: told)
            await nodes[2].publish("room", b"end")
            assert (await values_until(own, b"end"))[-1] == (await values_until(pattern, b"end"))[-1] == b"end"
            assert (own.gaps, pattern.gaps, told) == (1, 1, ["room"])

    running(test)


def test_on_a_cube_a_new_node_that_was_no_member_gets_what_its_client_lacks_from_others() -> None:
    """Only the node that is killed and the publisher's know the topic, and one that has been a member for longer."""

    async def test() -> None:
        async with cluster(3) as nodes, child("serve", f"join={nodes[0].address}") as doomed:
            await nodes[1].subscribe("room").ready()
            await asyncio.sleep(LONGER_SECONDS)
            async with antiphon.connect(doomed.address) as client:
                own = await client.subscribe("room").ready()
                client._live._end.pool.learn([nodes[0].address])
                receipts = [nodes[2].publish("room", b"%d" % number, order="none") for number in range(50)]
                await doomed.kill()
                for number in range(50, 100):
                    await nodes[2].publish("room", b"%d" % number, order=ALL_ORDERS[number % 3])
                await asyncio.gather(*receipts)
                await until(lambda: client.reconnects == 1)
                assert client.address == nodes[0].address
                values = [message.value for message in await take_exactly(own, 100)]
                assert sorted(values, key=int) == [b"%d" % number for number in range(100)]
                await nodes[1].publish("room", b"end")
                assert await values_until(own, b"end") == [b"end"]
                assert own.gaps == 0

    running(test)


def test_on_a_cube_nobody_answers_for_what_it_has_not_delivered_itself() -> None:
    """The publisher is a member since after the client, and what it said last is on its way to the one who was before.

    For the client's next node it is past. So the one who is asked must have it before it answers.
    """

    async def test() -> None:
        async with cluster(4) as nodes:
            former, asked, publisher, following = nodes
            await asked.subscribe("room").ready()
            await asyncio.sleep(LONGER_SECONDS)
            async with antiphon.connect(former.address) as client:
                own = await client.subscribe("room").ready()
                await publisher.publish("room", b"first")
                assert await take_values(own, 1) == [b"first"]
                released = [hold_link(publisher._live.host.links[node.identifier]) for node in (former, asked)]
                await publisher.publish("room", b"second")
                client._live._end.pool.learn([following.address])
                crash(former)
                await until(lambda: "room" in following._live.topics and following._live.topics["room"].is_member())
                # Whoever answers at once has answered by now.
                await asyncio.sleep(LONGER_SECONDS)
                for release in released:
                    release()
                await asked.publish("room", b"third")
                assert await values_until(own, b"third") == [b"second", b"third"]
                assert client.address == following.address and own.gaps == 0

    running(test)


def test_on_a_cube_what_others_have_seen_is_not_taken_for_what_the_new_node_shows(tmp_path: Path) -> None:
    """No other node was a member for as long as the client was subscribed, and the publisher's disk is slow.

    So the new node learns first which batches the publisher has seen, and then which ones it has shown.
    """

    async def test() -> None:
        async with cluster(2) as (former, following), AsyncExitStack() as stack:
            start = antiphon.start(data=str(tmp_path / "data"), join=[former.address])
            publisher = await stack.enter_async_context(start)
            client = await stack.enter_async_context(antiphon.connect(former.address))
            own = await client.subscribe("room").ready()
            await asyncio.sleep(LONGER_SECONDS)
            await publisher.publish("room", b"first")
            assert await take_values(own, 1) == [b"first"]
            hold_link(publisher._live.host.links[former.identifier])
            disk = BadDisk(publisher._live.store)
            disk.seconds_per_commit = LONGER_SECONDS
            second = publisher.publish("room", b"second")
            client._live._end.pool.learn([following.address])
            crash(former)
            await until(lambda: client.reconnects == 1)
            await second
            disk.seconds_per_commit = 0.0
            await publisher.publish("room", b"third")
            assert await values_until(own, b"third") == [b"second", b"third"]
            assert client.address == following.address and own.gaps == 0

    running(test)


@pytest.mark.parametrize("fabric", ["cube", "tree", "gossip"])
def test_a_node_shows_no_ordered_message_behind_a_later_one_of_its_publisher(fabric: str) -> None:
    """As when a client hands both in at two nodes, and the first of them publishes the earlier one much later."""

    async def test() -> None:
        async with antiphon.start(fabric=fabric) as node, antiphon.connect(node.address) as client:
            own = await node.subscribe("room").ready()
            serials = client._live._end._serials
            for serial, order, value in ((3, "causal", b"third"), (1, "causal", b"first"), (2, "none", b"second")):
                serials["room"] = serial - 1
                await client.publish("room", value, order=order)
            serials["room"] = 3
            await client.publish("room", b"end")
            assert await values_until(own, b"end") == [b"third", b"second", b"end"]

    running(test)
