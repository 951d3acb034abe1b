"""Causal order across topics at live nodes, on sockets with a virtual clock and links that are slow on request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Sequence

import pytest

from antiphon.api.batch import Message
from antiphon.client.handle import Client
from antiphon.kernel.errors import UsageError
from antiphon.node.handle import Node
from antiphon.node.settings import settings_from
from antiphon.testing import Cluster, with_cluster

SHOP = {"shop": ["orders.>", "payments.>"]}


async def first(messages: AsyncIterable[Message], count: int) -> list[bytes]:
    """The values of the first messages of a subscription."""
    found: list[bytes] = []
    async for message in messages:
        found.append(message.value)
        if len(found) == count:
            break
    return found


async def heard_at_the_slow_node(cluster: Cluster, users: Sequence[Client | Node]) -> list[bytes]:
    """An order and, on another topic, its payment, at a node to which the order takes the longer way."""
    anna, ben, clara = users
    everything = await clara.subscribe(">").ready()
    orders = await ben.subscribe("orders.new").ready()
    await anna.publish("orders.new", b"before")
    await ben.publish("payments.done", b"before")
    await first(everything, 2)
    await first(orders, 1)
    cluster.delay(0, 2, 2.0)
    await anna.publish("orders.new", b"order")
    assert await first(orders, 1) == [b"order"]
    await ben.publish("payments.done", b"paid")
    return await asyncio.wait_for(first(everything, 2), 60)


@with_cluster(nodes=3, spaces=SHOP)
async def test_a_payment_never_comes_before_its_order(cluster: Cluster) -> None:
    assert await heard_at_the_slow_node(cluster, cluster.nodes) == [b"order", b"paid"]


@with_cluster(nodes=3)
async def test_without_a_space_it_does(cluster: Cluster) -> None:
    assert await heard_at_the_slow_node(cluster, cluster.nodes) == [b"paid", b"order"]


@with_cluster(nodes=3, spaces={"shop": ["orders.>"]})
async def test_topics_outside_the_space_wait_for_nothing(cluster: Cluster) -> None:
    assert await heard_at_the_slow_node(cluster, cluster.nodes) == [b"paid", b"order"]


@with_cluster(nodes=3, spaces=SHOP)
async def test_clients_get_the_order_of_their_node(cluster: Cluster) -> None:
    clients = [await cluster.connect(node) for node in range(3)]
    assert await heard_at_the_slow_node(cluster, clients) == [b"order", b"paid"]


@with_cluster(nodes=3, spaces=SHOP)
async def test_nobody_waits_for_a_topic_without_a_subscription(cluster: Cluster) -> None:
    anna, ben, clara = cluster.nodes
    payments = await clara.subscribe("payments.done").ready()
    orders = await ben.subscribe("orders.new").ready()
    cluster.delay(0, 2, 2.0)
    await anna.publish("orders.new", b"order")
    await first(orders, 1)
    await ben.publish("payments.done", b"paid")
    assert await asyncio.wait_for(first(payments, 1), 1.5) == [b"paid"]


@with_cluster(nodes=2, spaces=SHOP)
async def test_total_order_is_refused_in_a_space(cluster: Cluster) -> None:
    anna, _ = cluster.nodes
    with pytest.raises(UsageError, match="not available on topics of a space"):
        await anna.publish("orders.new", b"order", order="total")
    await anna.publish("others", b"fine", order="total")


@with_cluster(nodes=3, spaces=SHOP, durable=True)
async def test_a_node_returns_with_its_log(cluster: Cluster) -> None:
    _, ben, clara = cluster.nodes
    everything = await clara.subscribe(">").ready()
    await ben.publish("orders.new", b"1")
    await ben.publish("payments.done", b"2")
    assert await first(everything, 2) == [b"1", b"2"]
    await cluster.crash(1)
    await ben_publishes_again(cluster)
    assert await asyncio.wait_for(first(everything, 2), 60) == [b"3", b"4"]


async def ben_publishes_again(cluster: Cluster) -> None:
    await cluster.restart(1)
    ben = cluster.nodes[1]
    await ben.publish("orders.new", b"3")
    await ben.publish("payments.done", b"4")


@pytest.mark.parametrize(
    ("spaces", "fabric", "complaint"),
    [
        (SHOP, "tree", "the fabric 'tree' has no spaces"),
        ({"a": ["orders.>"], "b": ["*.paid"]}, "cube", "a topic is in one space at most"),
        ({"a": ["orders..new"]}, "cube", "is no topic"),
    ],
)
def test_spaces_that_cannot_be_are_refused(spaces: dict[str, list[str]], fabric: str, complaint: str) -> None:
    values = {
        "spaces": spaces,
        "fabric": fabric,
        **({"tree": {"brokers": ["127.0.0.1:7400"]}} if fabric == "tree" else {}),
    }
    with pytest.raises(UsageError, match=complaint):
        settings_from(values, "a test")


def test_patterns_that_share_no_topic_may_be_in_two_spaces() -> None:
    assert settings_from({"spaces": {"a": ["orders.>"], "b": ["payments.*", "orders"]}}, "a test").spaces
