"""Retention on live nodes: the same beginning everywhere, space is freed, consumers are waited for and told."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import antiphon
from antiphon import RemovedError
from antiphon.streams.service.live_replica import LiveReplica
from tests.node.support import running, until
from tests.streams.test_live_streams import FABRICS, begun, cluster, leader_of, streams_of, values_of

VALUE = bytes(4000)


def replica_at(node: antiphon.Node, number: int) -> LiveReplica:
    replica: LiveReplica = streams_of(node).replicas[number]
    return replica


def stored(node: antiphon.Node, number: int) -> int:
    """How many publications of a stream are on the disk of a node."""
    return len(streams_of(node).store.content_names(number))


@pytest.mark.parametrize("fabric", FABRICS)
def test_old_messages_go_at_all_replicas_and_a_reader_of_them_is_told(fabric: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path, fabric) as nodes, antiphon.connect(nodes[0].address) as client:
            made = await client.topics.create("orders", retention_bytes=20_000)
            assert made.policy.retention_bytes == 20_000
            for _ in range(15):
                await client.publish("orders", VALUE, acks="quorum")
            replicas = [replica_at(node, made.generation) for node in nodes]
            await until(lambda: all(0 < each.kept().size <= 20_000 for each in replicas))
            await until(lambda: len({each.kept().earliest for each in replicas}) == 1)
            earliest = replicas[0].kept().earliest
            await until(lambda: all(stored(node, made.generation) == 15 - earliest for node in nodes))
            found = await client.topics.describe("orders")
            assert (found.earliest, found.end) == (earliest, 15) and found.bytes <= 20_000
            assert len(await values_of(client, "orders")) == 15 - earliest
            with pytest.raises(RemovedError, match=f"was removed by retention; the earliest one is {earliest}"):
                await values_of(client, "orders", 1)

            # Another policy, which outlives the leader.
            assert (await client.topics.set("orders", retention_bytes=0)).policy.replicas == 3
            for _ in range(8):
                await client.publish("orders", VALUE, acks="quorum")
            assert (await client.topics.describe("orders")).earliest == earliest

    running(test)


def test_what_a_consumer_has_not_done_is_kept_for_longer_and_then_told_as_missed(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path, count=1) as nodes, antiphon.connect(nodes[0].address) as client:
            made = await client.topics.create("jobs", replicas=1, retention_bytes=10_000, hold=4)
            replica = replica_at(nodes[0], made.generation)
            async with client.consume("jobs", "workers", window=1) as work:
                for _ in range(8):
                    await client.publish("jobs", VALUE, acks="quorum")
                (first,) = await work.fetch(1, timeout=90)
                replica._retention.advance()
                assert first.position == 0 and work.missed == 0
                await until(lambda: replica.kept().earliest == 0 and replica.kept().size > 30_000)
                for _ in range(8):
                    await client.publish("jobs", VALUE, acks="quorum")
                await until(lambda: 0 < replica.kept().size <= 40_000)
                await until(lambda: work.missed == replica.kept().earliest > 0)
                # It is gone: there is nothing to do again.
                await first.ack()
                (second,) = await work.fetch(1, timeout=90)
                assert second.position > 0
                await second.ack()
            (consumer,) = (await client.topics.describe("jobs")).consumers
            assert consumer.missed == work.missed

    running(test)


def test_a_replica_that_was_away_while_its_entries_went_begins_anew_and_fills_the_history(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as nodes, AsyncExitStack() as stack:
            client = await stack.enter_async_context(antiphon.connect(nodes[0].address))
            made = await client.topics.create("orders", retention_bytes=50_000)
            await client.publish("orders", VALUE, acks="quorum")
            away = next(node for node in nodes[1:] if node is not leader_of(nodes, "orders"))
            await away.abandon()
            for number in range(30):
                await client.publish("orders", b"%d" % number + VALUE, acks="quorum")
            leader = replica_at(leader_of(nodes, "orders"), made.generation)
            await until(lambda: leader.kept().size <= 50_000 and leader.replica.log.index.floor > 10)
            back = await begun(tmp_path / str(nodes.index(away)), "cube", stack, nodes[0].address)
            await until(lambda: made.generation in streams_of(back).replicas)
            log = replica_at(back, made.generation).replica.log
            await until(lambda: log.is_whole and log.held >= leader.replica.log.settled)
            await until(lambda: stored(back, made.generation) == stored(nodes[0], made.generation))
            # The one that came back can lead: it has everything.
            others = [node for node in nodes if node is not away]
            expected = await values_of(client, "orders")
            assert len(expected) == 31 - leader.kept().earliest
            other = await stack.enter_async_context(antiphon.connect(back.address))
            gone = leader_of(others, "orders")
            if gone.address != client.address:
                await gone.abandon()
            assert await values_of(other, "orders") == expected

    running(test)
