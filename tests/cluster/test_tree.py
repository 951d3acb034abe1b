"""A tree of brokers on real sockets: total order per key, crashes survived, and who is lost stays lost."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import Node, PeerError, Subscription, UsageError
from antiphon.membership.introductions import Introductions
from antiphon.membership.messages import PROTOCOL_VERSION, Hello, Peer, PeerAddresses
from antiphon.membership.tree_members import TreeMembers
from antiphon.node.local_cluster import free_addresses
from antiphon.node.settings import Settings
from antiphon.runtime.errors import JoinError
from antiphon.torture.live.campaign import SETTLE_SECONDS
from antiphon.transport.links import split_address
from tests.node.strangers import Attacker, attacking, frames
from tests.node.support import (
    child,
    exact_values,
    outcome,
    running,
    subscribed,
    take,
    take_values,
    tree,
    until,
)


def test_all_brokers_deliver_total_messages_in_one_order() -> None:
    each = 50

    async def publish(node: Node) -> None:
        for number in range(each):
            await node.publish("room", b"%d %d" % (node.identifier, number), order="total", keys=["anna", number % 3])
            await asyncio.sleep(0)

    async def test() -> None:
        async with tree(5) as nodes:
            subscriptions = await subscribed(nodes)
            await asyncio.gather(*(publish(node) for node in nodes))
            orders = await asyncio.gather(*(exact_values(each_, 5 * each) for each_ in subscriptions))
            assert all(order == orders[0] for order in orders)
            for node in nodes:
                own = [value for value in orders[0] if value.startswith(b"%d " % node.identifier)]
                assert own == [b"%d %d" % (node.identifier, number) for number in range(each)]

    running(test)


def test_the_four_orders_and_keys_pass_through_a_client() -> None:
    async def test() -> None:
        async with tree(3) as nodes, antiphon.connect(nodes[1].address) as client:
            (subscription,) = await subscribed(nodes[2:])
            for order in ("none", "fifo", "causal", "total"):
                await client.publish("room", order.encode(), order=order, key=b"anna")
            messages = await take(subscription, 4)
            assert [message.order for message in messages] == ["none", "fifo", "causal", "total"]
            assert {(message.key, message.keys) for message in messages} == {(b"anna", (b"anna",))}

    running(test)


def test_subscribers_see_all_keys_of_a_message() -> None:
    async def test() -> None:
        async with tree(2) as nodes, antiphon.connect(nodes[1].address) as client:
            subscriptions = [*await subscribed(nodes), await client.subscribe("room").ready()]
            await client.publish("room", b"a transfer", order="total", keys=["ben", b"anna", 7])
            await client.publish("room", b"about nothing", order="total")
            for subscription in subscriptions:
                transfer, nothing = await take(subscription, 2)
                assert (transfer.keys, transfer.key) == ((b"7", b"anna", b"ben"), None)
                assert (nothing.keys, nothing.key) == ((), None)

    running(test)


def test_a_topic_is_found_by_a_pattern() -> None:
    async def test() -> None:
        async with tree(3) as nodes:
            (subscription,) = await subscribed(nodes[2:], "orders.>")
            await nodes[0].publish("orders.europe", b"one", order="total")
            assert await take_values(subscription, 1) == [b"one"]

    running(test)


@pytest.mark.parametrize("victim", [0, 1], ids=["the root", "a broker between others"])
def test_survivors_of_a_kill_agree_and_go_on(victim: int, tmp_path: Path) -> None:
    """The victim is a process of its own and publishes as fast as it can when it is killed."""
    addresses = free_addresses(5)
    path = tmp_path / "tree.toml"
    path.write_text(f"[tree]\nbrokers = {addresses}\nparents = [-1, 0, 0, 1, 1]\n")
    each = 100

    async def publish(node: Node) -> None:
        for number in range(each):
            await node.publish("room", b"%d %d" % (node.identifier, number), order="total", keys=["anna"])
            await asyncio.sleep(0.001)

    async def test() -> None:
        async with AsyncExitStack() as stack:
            doomed = child("publish", "fabric=tree", f"tree={path}", f"listen={addresses[victim]}", "order=total")
            others = [
                antiphon.start(fabric="tree", tree=str(path), listen=address)
                for place, address in enumerate(addresses)
                if place != victim
            ]
            # No broker is ready before all are there.
            process, nodes = await asyncio.gather(
                stack.enter_async_context(doomed),
                asyncio.gather(*(stack.enter_async_context(other) for other in others)),
            )
            subscriptions = await subscribed(nodes)
            publishers = [asyncio.create_task(publish(node)) for node in nodes]
            while not (await process.line()).startswith("accepted 20"):
                pass
            await process.kill()
            await asyncio.gather(*publishers)
            await nodes[-1].publish("room", b"end", order="total", keys=["anna", "ben"])
            orders = await asyncio.gather(*(until_end(each_, len(nodes) * each) for each_ in subscriptions))
            # What the victim published comes to all survivors or to none, and at the same place for all.
            assert all(order == orders[0] for order in orders)
            survived = [value for value in orders[0] if b" " in value]
            assert len(survived) == len(nodes) * each
            assert all(victim in node._live.cluster.lost_nodes for node in nodes)

    running(test)


async def until_end(subscription: Subscription, wanted: int) -> list[bytes]:
    """Values until the last word and all that the survivors published have come."""
    values: list[bytes] = []
    named = 0
    async for message in subscription:
        values.append(message.value)
        named += 1 if b" " in message.value else 0
        if b"end" in values and named == wanted:
            return values
    raise AssertionError("the subscription ended before the last word")


@pytest.mark.parametrize("order", ["causal", "total"])
def test_a_broker_that_is_closed_has_sent_what_it_published(order: str) -> None:
    count = 2000

    async def test() -> None:
        async with tree(4) as nodes:
            subscriptions = await subscribed([nodes[0], nodes[2], nodes[3]])
            for number in range(count):
                await nodes[1].publish("room", b"%d" % number + bytes(500), order=order)
            await nodes[1].close()
            for subscription in subscriptions:
                assert await exact_values(subscription, count) == [
                    b"%d" % number + bytes(500) for number in range(count)
                ]

    running(test)


def test_without_a_quorum_who_counts_as_failed_is_told_and_stops() -> None:
    async def test() -> None:
        async with tree(3, table={"quorum": False}) as (root, left, right):
            transport = root._live.host.links[1]._transport
            assert transport is not None
            transport.abort()
            failure = await outcome(left.until_stopped())
            assert isinstance(failure, PeerError) and "counts as failed" in str(failure)
            subscriptions = await subscribed([root, right])
            await right.publish("room", b"on", order="total")
            assert [await take_values(each, 1) for each in subscriptions] == [[b"on"], [b"on"]]

    running(test)


def test_without_a_quorum_a_new_life_of_a_lost_broker_is_not_admitted() -> None:
    async def test() -> None:
        async with tree(3, table={"quorum": False}) as nodes:
            table, address = nodes[0]._live.settings.table, nodes[2].address
            await nodes[2].close()
            await until(lambda: all(node._live.cluster.lost_nodes == [2] for node in nodes[:2]))
            failure = await outcome(antiphon.start(Settings(fabric="tree", table=table, listen=address)))
            assert isinstance(failure, JoinError) and "cannot return" in str(failure)

    running(test)


async def restarted(node: Node) -> Node:
    """A broker that has ended without a word, in its next life."""
    await node._live._shut()
    return await antiphon.start(node._live.settings)


def test_nobody_is_believed_who_begins_as_a_founder_of_a_tree_that_runs() -> None:
    """It is sent away to ask for a place; what it had said before it heard so does not count."""

    async def test() -> None:
        async with tree(3) as nodes, await restarted(nodes[2]) as again:
            founder = Peer("a new life", nodes[1].address, 2)
            hello = Hello(PROTOCOL_VERSION, again._live.settings.cluster, founder.instance, founder.address)
            async with attacking(again) as stranger:
                stranger.send(frames(hello, PeerAddresses([founder])))
                await stranger.reader.read()
            assert again._live.cluster.identifier_of(founder.instance) is None
            # Before a broker has a place it believes whoever gives it one.
            assert isinstance(again._live.cluster, TreeMembers)
            giver, other, newcomer = Peer("giver", "g:1", 0), Peer("other", "o:1", 1), Peer("newcomer", "n:1", 7)
            said = [(founder, founder), (giver, giver), (giver, other), (newcomer, newcomer)]
            introductions = Introductions()
            introductions.known_before = [(speaker.instance, peer) for speaker, peer in said]
            assert introductions.trusted(giver.instance, again._live.cluster._founders) == [giver, other, newcomer]

    running(test)


def test_who_has_not_heard_from_the_other_founders_does_not_say_that_it_is_one() -> None:
    """A connection on which it is sent away may break before it has read that, and it comes again."""
    here, there = free_addresses(2)
    said: list[int] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        listener = Attacker(reader, writer)
        with closing(writer), suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                said.append((await listener.frame())[0])

    async def test() -> None:
        async with await asyncio.start_server(listen, *split_address(there)):
            alone = antiphon.start(fabric="tree", tree={"brokers": [here, there]}, listen=here, join_seconds=0.5)
            assert isinstance(await outcome(alone), JoinError)
        assert set(said) == {Hello.__struct_config__.tag}

    running(test)


def test_who_has_not_heard_from_the_other_founders_gives_no_places() -> None:
    """It may be one that comes back to a tree that runs, and its identifiers those of an earlier life."""
    here, there = free_addresses(2)
    table = {"brokers": [here, there]}

    async def test() -> None:
        alone, newcomer = await asyncio.gather(
            outcome(antiphon.start(fabric="tree", tree=table, listen=here, join_seconds=1.0)),
            outcome(antiphon.start(fabric="tree", join=[here], join_seconds=0.5)),
        )
        assert isinstance(alone, JoinError) and there in str(alone)
        assert isinstance(newcomer, JoinError) and here in str(newcomer)

    running(test)


def test_brokers_that_return_at_the_same_time_all_find_a_place() -> None:
    async def test() -> None:
        async with tree(5) as nodes, AsyncExitStack() as stack:
            for both in ((1, 2), (2, 3)):
                # Those who are there become the council first, so that a majority of it stays.
                await asyncio.sleep(SETTLE_SECONDS)
                for place, node in zip(
                    both, await asyncio.gather(*(restarted(nodes[each]) for each in both)), strict=True
                ):
                    nodes[place] = await stack.enter_async_context(node)
            subscriptions = await subscribed(nodes)
            await nodes[0].publish("room", b"on", order="causal")
            assert [await take_values(each, 1) for each in subscriptions] == [[b"on"]] * 5

    running(test)


def test_a_tree_that_is_not_complete_says_who_is_missing() -> None:
    here, there = free_addresses(2)

    async def test() -> None:
        starting = antiphon.start(fabric="tree", tree={"brokers": [here, there]}, listen=here, join_seconds=0.3)
        failure = await outcome(starting)
        assert isinstance(failure, JoinError) and there in str(failure)

    running(test)


def test_on_disk_a_total_message_is_accepted_when_its_place_is_known(tmp_path: Path) -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            addresses = free_addresses(2)
            begun = [
                antiphon.start(fabric="tree", tree={"brokers": addresses}, listen=address, data=str(tmp_path / name))
                for address, name in zip(addresses, "ab", strict=True)
            ]
            nodes = await asyncio.gather(*(stack.enter_async_context(each) for each in begun))
            for number in range(20):
                await nodes[1].publish("room", b"%d" % number, order="total", key=b"anna")
                assert nodes[1]._live.topics["room"].end_offset == number + 1
            replayed = await take(nodes[1].subscribe("room", "earliest"), 20)
            assert [message.value for message in replayed] == [b"%d" % number for number in range(20)]
            assert {(message.order, message.key) for message in replayed} == {("total", b"anna")}

    running(test)


def test_a_slow_subscriber_slows_publishers_elsewhere_and_loses_nothing() -> None:
    window, count = 4, 3000

    async def test() -> None:
        async with tree(3, window=window) as nodes:
            slow = await nodes[2].subscribe("room", limit=10).ready()

            async def publish() -> None:
                for number in range(count):
                    await nodes[1].publish("room", b"%d" % number + bytes(1024))

            publisher = asyncio.create_task(publish())
            await until(lambda: nodes[2]._live.topics["room"].is_behind and nodes[1]._live.outboxes["room"].is_blocked)
            assert not publisher.done()
            values = await exact_values(slow, count)
            await publisher
            assert values == [b"%d" % number + bytes(1024) for number in range(count)]

    running(test)


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({"tree": {"brokers": ["127.0.0.1:7400"]}}, "for the fabric 'tree'"),
        ({"fabric": "tree", "tree": {"brokers": ["127.0.0.1:1", "127.0.0.1:1"]}}, "address of its own"),
        ({"fabric": "tree", "tree": {"brokers": ["a:1", "b:1"], "parents": [1, 0]}}, "one root"),
        ({"fabric": "tree", "tree": {"quorum": False}, "join": ["b:1"]}, "nobody joins a tree without a quorum"),
        ({"fabric": "tree", "aggregate": True}, "leave aggregate out"),
        ({"fabric": "tree", "tree": {"brokers": ["a:1"], "depth": 3}}, "unknown field"),
        ({"fabric": "tree", "tree": "no such file.toml"}, "cannot read"),
    ],
)
def test_a_tree_that_cannot_be_is_refused(settings: dict[str, Any], wrong: str) -> None:
    with pytest.raises(UsageError, match=wrong):
        antiphon.start(**settings)


def test_a_broker_that_is_not_in_its_tree_is_refused() -> None:
    async def test() -> None:
        failure = await outcome(antiphon.start(fabric="tree", tree={"brokers": ["127.0.0.1:1"]}))
        assert isinstance(failure, UsageError) and "not among the brokers" in str(failure)

    running(test)
