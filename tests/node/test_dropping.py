"""Clients whose subscriptions drop messages: they are told how many, order holds, also at their next node."""

from __future__ import annotations

from typing import Any

import pytest

import antiphon
from antiphon import Client, MissedMessagesError, Node, Subscription
from antiphon.api.batch import Batch
from antiphon.api.batch_codec import encode_columns
from antiphon.api.columns import Columns
from antiphon.api.subscription import LiveSubscription
from antiphon.api.topic_state import LiveTopic
from antiphon.node.gateway import client_relay as relay
from tests.node.support import cluster, outcome, running, take_exactly, until

POLICIES = ("drop_oldest", "drop_newest")


async def publish(place: Any, name: str, first: int, end: int, order: str = "causal") -> None:
    """So many messages, each in a batch of its own."""
    for number in range(first, end):
        await place.publish("room", f"{name}{number}".encode(), order=order)
        await place.flush()


async def values_until(subscription: Subscription, last: bytes) -> list[bytes]:
    values: list[bytes] = []
    while last not in values:
        values += [message.value for message in await take_exactly(subscription, 1)]
    return values


def sink_of(node: Node) -> LiveSubscription:
    """The subscription at the node that serves a client; the client has nobody else here."""
    (found,) = [
        sink
        for sink in node._live.topics["room"].sinks
        if isinstance(sink, LiveSubscription) and sink.policy in POLICIES
    ]
    return found


@pytest.mark.parametrize("policy", POLICIES)
def test_a_client_is_told_how_many_messages_were_dropped(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is ahead of it came; then as many wait as fit, and the others are dropped."""
    monkeypatch.setattr(relay, "AHEAD_AT_MOST", 5)

    async def test() -> None:
        async with cluster(1) as (node,), antiphon.connect(node.address) as client:
            slow = await client.subscribe("room", policy=policy, limit=10).ready()
            await publish(node, "", 0, 5)
            await until(lambda: slow._live.queued == 5)
            await publish(node, "", 5, 100)
            await until(lambda: sink_of(node).dropped == 85)
            assert slow.dropped == 0
            waited = range(90, 100) if policy == "drop_oldest" else range(5, 15)
            values = [message.value for message in await take_exactly(slow, 15)]
            assert values == [b"%d" % number for number in (*range(5), *waited)]
            assert slow.dropped == 85

    running(test)


async def move(client: Client, to: Node) -> None:
    """The connection breaks, and the client finds another node."""
    connection = client._live._connection
    assert connection is not None and connection.transport is not None
    connection.transport.abort()
    await until(lambda: client.address == to.address and client.is_up)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_was_dropped_does_not_come_at_the_next_node_behind_what_follows_it(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another author's answer to a dropped question has come: the question must not come after it any more."""
    monkeypatch.setattr(relay, "AHEAD_AT_MOST", 1)

    async def test() -> None:
        async with cluster(2, keep=["room"]) as (here, there):
            client = await antiphon.connect([here.address, there.address])
            slow = await client.subscribe("room", policy=policy, limit=1).ready()
            await publish(here, "ahead ", 0, 1)
            await until(lambda: slow._live.queued == 1)
            await publish(here, "question ", 0, 3)
            await until(lambda: there._live.topics["room"].delivered_messages == 4)
            await publish(there, "answer ", 0, 1)
            await until(lambda: sink_of(here).dropped == 3)
            last = b"answer 0" if policy == "drop_oldest" else b"question 0"
            assert await values_until(slow, last) == [b"ahead 0", last]
            assert slow.dropped == 3
            await move(client, there)
            await publish(there, "more ", 0, 1)
            assert await values_until(slow, b"more 0") == [b"more 0"]
            # The next node counts from 0 again.
            assert slow.dropped == 3 and slow.gaps == 0
            await client.close()

    running(test)


def test_what_is_missing_is_told_though_what_stood_behind_it_is_dropped() -> None:
    async def test() -> None:
        async with cluster(1) as (node,):
            slow = await node.subscribe("room", policy="drop_oldest", limit=2).ready()
            topic = node._live.topics["room"]
            slow._live.push(topic, batch_of(topic, 1))
            slow._live.miss(topic)
            for number in range(2, 6):
                slow._live.push(topic, batch_of(topic, number))
            assert slow.dropped == 3
            assert isinstance(await outcome(take_exactly(slow, 1)), MissedMessagesError)
            assert [message.value for message in await take_exactly(slow, 2)] == [b"4", b"5"]

    running(test)


def batch_of(topic: LiveTopic, number: int) -> Batch:
    return Batch(topic.name, 0, "causal", number, encode_columns(Columns(number, 0, [b"%d" % number])), sequence=number)
