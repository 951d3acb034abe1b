"""Replicas that are gone are replaced, publishers wait for all disks, and any node with a disk begins the directory."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import antiphon
from tests.node.support import running, until
from tests.streams.test_live_streams import begun, cluster, leader_of, streams_of, values_of


def test_a_replica_that_is_gone_is_replaced_and_gets_its_place_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path, count=4) as nodes, AsyncExitStack() as stack:
            client = await stack.enter_async_context(antiphon.connect(nodes[0].address))
            made = await client.topics.create("orders", replicas=3, replace_seconds=1)
            number = made.generation
            for value in range(10):
                receipt = await client.publish("orders", b"%d" % value, acks="all")
            assert (receipt.position, receipt.disks) == (9, 3)
            keepers = [node for node in nodes if number in streams_of(node).replicas]
            (spare,) = [node for node in nodes if node not in keepers]
            gone = next(node for node in keepers if node not in (nodes[0], leader_of(nodes, "orders")))
            await gone.abandon()
            await until(lambda: number in streams_of(spare).replicas)
            log = streams_of(spare).replicas[number].replica.log
            mine = streams_of(spare).identity
            await until(lambda: mine in log.replicas.voters and len(log.replicas.voters) == 3)
            receipt = await client.publish("orders", b"10", acks="all")
            assert receipt.disks == 3
            # The one that was gone returns: the substitute goes.
            back = await begun(tmp_path / str(nodes.index(gone)), "cube", stack, nodes[0].address)
            await until(lambda: number not in streams_of(spare).replicas)
            others = [node for node in (*keepers, back) if node is not gone]
            leader = streams_of(leader_of(others, "orders")).replicas[number].replica
            assert streams_of(back).identity in leader.log.replicas.voters
            assert await values_of(client, "orders") == [b"%d" % value for value in range(11)]

    running(test)


def test_a_topic_waits_for_nodes_that_come_later_and_a_publisher_is_told_how_many_disks_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.api.streams.stream_api.ALL_SECONDS", 0.5)

    async def test() -> None:
        async with cluster(tmp_path, count=1) as nodes, AsyncExitStack() as stack:
            client = await stack.enter_async_context(antiphon.connect(nodes[0].address))
            made = await client.topics.create("orders", replicas=2)
            assert made.connected == 1
            with pytest.raises(antiphon.PeerError, match="at position 0 of 'orders', on 1 of 2 disks"):
                await client.publish("orders", b"first", acks="all")
            await begun(tmp_path / "later", "cube", stack, nodes[0].address)
            replica = streams_of(nodes[0]).replicas[made.generation].replica
            await until(lambda: len(replica.log.replicas.voters) == 2)
            assert (await client.publish("orders", b"second", acks="quorum")).disks == 2

    running(test)


def test_a_node_with_a_disk_begins_the_list_of_topics_if_the_first_node_has_none(tmp_path: Path) -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(antiphon.start(listen="127.0.0.1:0"))
            second = await begun(tmp_path, "cube", stack, first.address)
            client = await stack.enter_async_context(antiphon.connect(second.address))
            creating = asyncio.create_task(client.topics.create("orders", replicas=1))
            await asyncio.sleep(0.2)
            await client.topics.found()
            assert (await creating).connected == 1
            assert (await client.publish("orders", b"first", acks="quorum")).position == 0
            with pytest.raises(antiphon.PeerError, match="this cluster has a list of topics"):
                await client.topics.found()

    running(test)
