"""Clients that go on at another node: what they publish in order there follows what they had published before."""

from __future__ import annotations

import asyncio

from antiphon import Node
from antiphon.live.columns import Author, Columns
from antiphon.live.crossing import Crossing
from antiphon.live.seen import Seen
from antiphon.live.topics import LiveTopic
from tests.live.support import cluster, running

CLIENT = 77
KNOWN = [Seen([3])]
"""Others have the first three batches of the client."""


async def member(node: Node) -> LiveTopic:
    await node.subscribe("room").ready()
    return node.topic("room")


def hand_in(node: Node, serial: int) -> None:
    node.publish_columns("room", "causal", (), Columns(0, 0, [b"said"]), Author(CLIENT, serial))


def published_by(node: Node, topic: LiveTopic) -> int:
    """The number of the last batch that the node has published on its own account; those of clients count too."""
    return topic.seen.highest(node.identifier)


def test_before_the_first_fifo_batch_the_node_publishes_what_follows_all() -> None:
    async def test() -> None:
        async with cluster(1) as (node,):
            topic = await member(node)
            crossing = Crossing(node, topic, CLIENT, [], is_waited_for=True)
            counts = []
            for order in ("none", "fifo", "fifo", "causal"):
                crossing.bind(order)
                counts.append(published_by(node, topic))
            assert counts == [0, 1, 1, 1]
            # A batch that had come before is of another source: what follows has to be bound to it anew.
            hand_in(node, 4)
            await node.flush()
            assert await crossing.has_come(4)
            crossing.bind("fifo")
            assert published_by(node, topic) == 3

    running(test)


def test_what_follows_all_by_itself_needs_nothing_before_it() -> None:
    async def test() -> None:
        async with cluster(1) as (node,):
            topic = await member(node)
            crossing = Crossing(node, topic, CLIENT, [], is_waited_for=True)
            for order in ("total", "fifo"):
                crossing.bind(order)
            assert published_by(node, topic) == 0

    running(test)


def test_what_others_have_is_waited_for() -> None:
    async def test() -> None:
        async with cluster(1) as (node,):
            topic = await member(node)
            crossing = Crossing(node, topic, CLIENT, KNOWN, is_waited_for=True)
            waiting = asyncio.create_task(crossing.has_come(3))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            hand_in(node, 3)
            assert await waiting
            assert not await crossing.has_come(4), "nobody has that"

    running(test)


def test_what_does_not_come_in_time_is_published_again() -> None:
    async def test() -> None:
        async with cluster(1) as (node,):
            crossing = Crossing(node, await member(node), CLIENT, KNOWN, is_waited_for=True)
            crossing._wait_until = node.loop.time()
            assert not await crossing.has_come(2)

    running(test)


def test_who_has_become_a_member_since_waits_for_nothing() -> None:
    """It may count as past here."""

    async def test() -> None:
        async with cluster(1) as (node,):
            crossing = Crossing(node, await member(node), CLIENT, KNOWN, is_waited_for=False)
            assert await crossing.has_come(2)

    running(test)
