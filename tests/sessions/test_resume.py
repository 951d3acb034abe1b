"""Clients that go on at another node: what they publish in order there follows what they had published before."""

from __future__ import annotations

import asyncio

import pytest

from antiphon import Node
from antiphon.api.batch import Batch
from antiphon.api.columns import Author, Columns
from antiphon.api.topic_state import LiveTopic
from antiphon.node.gateway.session_host import future_of
from antiphon.sessions.dedup import numbers_from
from antiphon.sessions.host import FabricTraits
from antiphon.sessions.resume import KNOWN_US, ResumedTopic
from antiphon.sessions.steps import start
from tests.node.support import cluster, outcome, running

CLIENT = 77
KNOWN = [numbers_from([3])]
"""Others have the first three batches of the client."""


async def member(node: Node) -> LiveTopic:
    await node.subscribe("room").ready()
    return node._live.topic("room")


def has_come(resumed: ResumedTopic[Batch], serial: int) -> asyncio.Future[bool]:
    return future_of(start(resumed.has_come(serial)))


def hand_in(node: Node, serial: int) -> None:
    node._live.publish_columns("room", "causal", (), Columns(0, 0, [b"said"]), Author(CLIENT, serial))


def test_the_first_fifo_batch_follows_all_and_the_others_follow_it() -> None:
    async def test() -> None:
        async with cluster(1) as (node,):
            resumed = ResumedTopic(node._live.sessions, await member(node), CLIENT, [])
            orders = [resumed.order_of(order) for order in ("none", "fifo", "fifo", "causal", "total", "none")]
            assert orders == ["none", "causal", "fifo", "causal", "total", "none"]
            # A batch that had come before is of another source: what follows has to be bound to it anew.
            hand_in(node, 4)
            await node.flush()
            assert await has_come(resumed, 4)
            assert [resumed.order_of("fifo"), resumed.order_of("fifo")] == ["causal", "fifo"]

    running(test)


def test_what_sticks_to_a_total_batch_need_not_be_causal() -> None:
    async def test() -> None:
        async with cluster(1) as (node,):
            resumed = ResumedTopic(node._live.sessions, await member(node), CLIENT, [])
            assert [resumed.order_of("total"), resumed.order_of("fifo")] == ["total", "fifo"]

    running(test)


def test_what_others_have_is_waited_for() -> None:
    async def test() -> None:
        async with cluster(1) as (node,):
            topic = await member(node)
            resumed = ResumedTopic(node._live.sessions, topic, CLIENT, KNOWN)
            waiting = has_come(resumed, 3)
            await asyncio.sleep(0.1)
            assert not waiting.done()
            hand_in(node, 3)
            assert await waiting
            assert not await has_come(resumed, 4), "nobody has that"

    running(test)


@pytest.mark.parametrize("fabric", ["gossip", "cube"])
def test_what_does_not_come_in_time_is_published_again_in_gossip_and_elsewhere_told(fabric: str) -> None:
    async def test() -> None:
        async with cluster(1, fabric=fabric) as (node,):
            resumed = ResumedTopic(node._live.sessions, await member(node), CLIENT, KNOWN)
            resumed._wait_until_us = 0
            if fabric == "gossip":
                assert not await has_come(resumed, 2)
            else:
                assert "may yet come" in str(await outcome(has_come(resumed, 2)))

    running(test)


def test_gossip_publishes_again_while_others_still_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that have seen the batch wait at their nodes, and what they publish there must follow it."""

    async def test() -> None:
        async with cluster(1, fabric="gossip") as (node,):
            resumed = ResumedTopic(node._live.sessions, await member(node), CLIENT, KNOWN)
            waits_elsewhere_until_us = node._live.sessions.host.now_us() + KNOWN_US
            assert resumed.has_time()
            later_us = waits_elsewhere_until_us - 10_000_000
            monkeypatch.setattr(node._live.sessions.host, "now_us", lambda: later_us)
            assert not resumed.has_time()
            assert not await has_come(resumed, 2), "it is handed over now"

    running(test)


def test_who_does_not_know_what_is_past_waits_for_nothing() -> None:
    """As on a tree: it may be past here."""

    async def test() -> None:
        async with cluster(1) as (node,):
            node._live.sessions.traits = FabricTraits(has_barriers=True, counts_past=False, publishes_again=False)
            resumed = ResumedTopic(node._live.sessions, await member(node), CLIENT, KNOWN)
            assert await has_come(resumed, 2)

    running(test)
