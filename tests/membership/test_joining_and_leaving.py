"""Nodes that join, leave, return and die, while others publish."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import antiphon
from antiphon import JoinError, Node, UsageError
from tests.node.support import child, cluster, running, take, take_values, until


def identifiers(node: Node) -> list[int]:
    """Who is in the cluster, as one node sees it, itself included."""
    return sorted(
        [node.identifier, *(peer.identifier for peer in node._live.cluster.peers() if peer.identifier is not None)]
    )


async def everybody_hears_everybody(nodes: list[Node]) -> None:
    """Whatever any of these publishes all of them get, and they agree on who is there."""
    expected = sorted(node.identifier for node in nodes)
    # A newcomer is in as soon as one of the others has let it in; these tell each other.
    await until(lambda: [identifiers(node) for node in nodes] == [expected] * len(nodes))
    subscriptions = [await node.subscribe("roll.call").ready() for node in nodes]
    for node in nodes:
        await node.publish("roll.call", b"here")
    for subscription in subscriptions:
        assert sorted(message.publisher for message in await take(subscription, len(nodes))) == expected


@pytest.mark.parametrize("through", [0, 1, 2])
def test_a_node_joins_through_any_node(through: int) -> None:
    async def test() -> None:
        async with cluster(3) as nodes:
            async with antiphon.start(join=[nodes[through].address]) as newcomer:
                await everybody_hears_everybody([*nodes, newcomer])
            await until(lambda: all(len(identifiers(node)) == 3 for node in nodes))

    running(test)


@pytest.mark.parametrize("count", [2, 3, 6])
def test_several_nodes_join_at_once(count: int) -> None:
    async def test() -> None:
        async with cluster(2) as nodes, AsyncExitStack() as stack:
            newcomers = [
                stack.enter_async_context(antiphon.start(join=[nodes[place % 2].address])) for place in range(count)
            ]
            await everybody_hears_everybody([*nodes, *await asyncio.gather(*newcomers)])

    running(test)


def test_addresses_where_nobody_listens_are_passed_over() -> None:
    async def test() -> None:
        async with cluster(1) as (node,):
            unused = "127.0.0.1:1"
            async with antiphon.start(join=[unused, node.address]) as newcomer:
                await everybody_hears_everybody([node, newcomer])

    running(test)


def test_who_finds_nobody_gives_up_with_a_clear_error() -> None:
    async def test() -> None:
        with pytest.raises(JoinError, match=r"127\.0\.0\.1:1 .*check that the cluster is up"):
            await antiphon.start(join=["127.0.0.1:1"], join_seconds=0.4)

    running(test)


def test_who_is_of_another_cluster_is_told_so() -> None:
    async def test() -> None:
        async with cluster(1) as (node,):
            with pytest.raises(JoinError, match="this node is of cluster 'antiphon', the other end of 'another'"):
                await antiphon.start(join=[node.address], join_seconds=0.4, cluster="another")
            assert identifiers(node) == [node.identifier]

    running(test)


def test_a_cluster_that_is_full_says_so() -> None:
    async def test() -> None:
        async with cluster(2, maximum_nodes=2) as nodes:
            with pytest.raises(JoinError, match="2 nodes, its maximum"):
                await antiphon.start(join=[nodes[1].address], join_seconds=0.4)
            await everybody_hears_everybody(nodes)

    running(test)


def test_an_address_that_is_taken_is_refused() -> None:
    async def test() -> None:
        async with cluster(1) as (node,):
            with pytest.raises(UsageError, match="choose another address"):
                await antiphon.start(listen=node.address)

    running(test)


def test_identifiers_are_never_given_twice() -> None:
    async def test() -> None:
        async with cluster(2) as nodes:
            seen = [node.identifier for node in nodes]
            for _ in range(3):
                async with antiphon.start(join=[nodes[0].address]) as visitor:
                    seen.append(visitor.identifier)
            assert len(set(seen)) == 5

    running(test)


def test_a_node_returns_with_its_data_under_another_identifier(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(2) as nodes:
            data = str(tmp_path / "data")
            async with antiphon.start(join=[nodes[0].address], data=data) as first:
                await everybody_hears_everybody([*nodes, first])
            async with antiphon.start(join=[nodes[1].address], data=data) as second:
                assert second.identifier > first.identifier
                await everybody_hears_everybody([*nodes, second])

    running(test)


def test_nothing_is_lost_for_those_who_stay_while_others_come_and_go() -> None:
    async def test() -> None:
        async with cluster(3) as nodes:
            subscriptions = [await node.subscribe("room").ready() for node in nodes]
            is_over = False
            published = [0, 0, 0]

            async def publish(place: int) -> None:
                while not is_over:
                    await nodes[place].publish("room", b"%d" % published[place])
                    published[place] += 1
                    await asyncio.sleep(0)

            publishers = [asyncio.create_task(publish(place)) for place in range(3)]
            visits = 0
            for round_number in range(5):
                async with antiphon.start(join=[nodes[round_number % 3].address]) as visitor:
                    heard = await visitor.subscribe("room").ready()
                    await visitor.publish("room", b"visitor")
                    visits += 1
                    async for message in heard:
                        if message.publisher == visitor.identifier:
                            break
            is_over = True
            await asyncio.gather(*publishers)
            for subscription in subscriptions:
                messages = await take(subscription, sum(published) + visits)
                for place, node in enumerate(nodes):
                    own = [int(message.value) for message in messages if message.publisher == node.identifier]
                    assert own == list(range(published[place]))

    running(test)


def test_the_oldest_node_leaves_and_others_still_join() -> None:
    async def test() -> None:
        async with cluster(3) as nodes:
            await nodes[0].close()
            async with antiphon.start(join=[nodes[2].address]) as newcomer:
                await everybody_hears_everybody([*nodes[1:], newcomer])

    running(test)


def test_all_leave_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with cluster(5) as nodes:
            for node in nodes:
                await node.subscribe("room").ready()
                await node.publish("room", b"goodbye")
            await asyncio.gather(*(node.close() for node in nodes))

    running(test)
    assert "left without a farewell" not in [record.__dict__.get("event") for record in caplog.records]


def test_the_last_message_of_a_leaver_arrives() -> None:
    async def test() -> None:
        async with cluster(4) as nodes:
            subscriptions = [await node.subscribe("room").ready() for node in nodes[1:]]
            for number in range(500):
                nodes[0].publish("room", b"%d" % number)
            await nodes[0].close()
            for subscription in subscriptions:
                assert await take_values(subscription, 500) == [b"%d" % number for number in range(500)]

    running(test)


def test_a_node_whose_only_contact_dies_gives_up() -> None:
    async def test() -> None:
        async with child("serve") as contact:
            address = contact.address
            await contact.kill()
            with pytest.raises(JoinError):
                await antiphon.start(join=[address], join_seconds=0.4)

    running(test)


def test_the_death_of_a_node_is_seen_by_all(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with cluster(2) as nodes, child("serve", f"join={nodes[0].address}") as other:
            await until(lambda: all(len(identifiers(node)) == 3 for node in nodes))
            await other.kill()
            await until(lambda: all(len(node._live.cluster.lost_nodes) == 1 for node in nodes))
            assert all(len(identifiers(node)) == 2 for node in nodes)

    running(test)
