"""Positions: where a subscription goes on, at any node, and what it is told where it cannot."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import antiphon
from antiphon import Client, Message, Node, Subscription, UsageError
from antiphon.streams.position import Position
from tests.node.support import running, until
from tests.streams.test_live_streams import FABRICS, cluster, leader_of


async def taken(subscription: Subscription, count: int) -> list[Message]:
    messages = aiter(subscription)
    return [await asyncio.wait_for(anext(messages), 90) for _ in range(count)]


def test_a_position_is_a_number_that_knows_its_history() -> None:
    position = Position(1200, 7)
    assert (position, str(position), f"{position}", position.generation) == (1200, "7-1200", "7-1200", 7)
    for same in (Position.parse("7-1200"), copy.copy(position), pickle.loads(pickle.dumps(position))):
        assert (same, same.generation) == (1200, 7)
    for wrong in ("7", "-7", "7-", "a-b", "7-1-2"):
        with pytest.raises(UsageError, match="written like 7-1200"):
            Position.parse(wrong)


@pytest.mark.parametrize("fabric", FABRICS)
def test_a_subscription_goes_on_behind_a_position_at_any_node(fabric: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path, fabric) as nodes, AsyncExitStack() as stack:
            bare = antiphon.start(listen="127.0.0.1:0", join=[nodes[0].address], fabric=fabric)
            nodes.append(await stack.enter_async_context(bare))
            await nodes[0].topics.create("room", replicas=2)
            for number in range(6):
                await nodes[number % 4].publish("room", b"%d" % number, acks="quorum")
            first = await taken(await nodes[1].subscribe("room", "earliest").ready(), 4)
            assert [message.value for message in first] == [b"0", b"1", b"2", b"3"]
            seen = first[-1].position
            assert seen is not None and seen == 3 and seen.generation > 0
            clients = [await stack.enter_async_context(antiphon.connect(node.address)) for node in nodes]
            users: list[Node | Client] = [*nodes, *clients]
            for user in users:
                later = await taken(user.subscribe("room", start=seen), 2)
                assert [(message.position, message.value) for message in later] == [(4, b"4"), (5, b"5")]
                everything = await user.subscribe("room", "earliest").ready()
                assert [each.value for each in await taken(everything, 6)] == [b"%d" % number for number in range(6)]
                await everything.close()

            # What is published later comes, too, and what came at once has a position as well.
            live = await nodes[3].subscribe("room").ready()
            follower = await clients[3].subscribe("room", start=Position(0, seen.generation)).ready()
            await nodes[2].publish("room", b"6")
            (message,) = await taken(live, 1)
            assert message.position is None and await nodes[3].position_of(message) == 6
            assert [each.position for each in await taken(follower, 6)] == [1, 2, 3, 4, 5, 6]

    running(test)


def test_a_subscription_from_a_position_goes_on_when_the_leader_is_killed(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as nodes:
            await nodes[0].topics.create("room")
            receipt = await nodes[0].publish("room", b"0", acks="quorum")
            killed = leader_of(nodes, "room")
            first, second = (node for node in nodes if node is not killed)
            subscription = await first.subscribe("room", start=receipt.position).ready()
            await killed.abandon()
            await second.publish("room", b"1", acks="quorum")
            (message,) = await taken(subscription, 1)
            assert (message.value, message.position) == (b"1", 1)

    running(test)


def test_a_reader_that_is_slow_holds_nobody_up_and_gets_everything(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path, count=1) as (node,):
            await node.topics.create("room", replicas=1)
            slow = await node.subscribe("room", "earliest", limit=10).ready()
            for number in range(100):
                await node.publish("room", b"%d" % number, acks="quorum")
            await until(lambda: slow.waiting > 0)
            assert slow.waiting <= 10
            assert [message.value for message in await taken(slow, 100)] == [b"%d" % number for number in range(100)]
            seen: list[Message] = []
            called = node.subscribe("room", "earliest", callback=seen.append)
            await until(lambda: len(seen) == 100)
            await called.close()
            await node.publish("room", b"late", acks="quorum")
            assert called.is_closed and len(seen) == 100

    running(test)


def test_a_position_of_an_earlier_history_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path, count=1) as (node,):
            await node.topics.create("room", replicas=1)
            old = (await node.publish("room", b"old", acks="quorum")).position
            await node.topics.remove("room")
            await node.topics.create("room", replicas=1)
            await node.publish("room", b"new", acks="quorum")
            refusal = f"generation {old.generation}, an earlier history of 'room' that was removed"
            with pytest.raises(antiphon.PeerError, match=refusal):
                await node.subscribe("room", start=old).ready()
            with pytest.raises(antiphon.PeerError, match=refusal):
                await taken(node.subscribe("room", start=old), 1)
            with pytest.raises(antiphon.PeerError, match=refusal):
                await anext(aiter(node.history("room", old)))
            with pytest.raises(antiphon.PeerError, match=refusal):
                await node.consume("room", "workers", start=old).ready()
            assert [each.value for each in await taken(node.subscribe("room", "earliest"), 1)] == [b"new"]

    running(test)


def test_where_there_is_no_history_earliest_means_the_log_of_the_node(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path, count=1) as (node,), antiphon.connect(node.address) as client:
            await node.publish("room", b"logged")
            for user in (node, client):
                (message,) = await taken(user.subscribe("room", "earliest"), 1)
                assert (message.value, message.position) == (b"logged", None)
        async with antiphon.start(listen="127.0.0.1:0") as bare:
            with pytest.raises(UsageError, match="keeps no log to start from"):
                await bare.subscribe("room", "earliest").ready()
        async with antiphon.start(listen="127.0.0.1:0", fabric="gossip") as gossip:
            with pytest.raises(UsageError, match="keeps no log to start from"):
                await gossip.subscribe("room", "earliest").ready()
            with pytest.raises(antiphon.PeerError, match="on a cube or a tree"):
                await gossip.topics.list()

    running(test)


def test_the_command_sub_goes_on_behind_a_position(tmp_path: Path) -> None:
    async def test() -> str:
        async with cluster(tmp_path, count=1) as (node,):
            await node.topics.create("room", replicas=1)
            positions = [(await node.publish("room", b"%d" % number, acks="quorum")).position for number in range(3)]
            command = [sys.executable, "-m", "antiphon", "sub", "room", f"--servers={node.address}", "--json"]
            command += [f"--start={positions[1]}", "--count=1"]
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
            return done.stdout

    assert json.loads(running(test))["position"].endswith("-2")
