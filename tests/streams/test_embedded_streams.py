"""Topics with a history at nodes that run in the program: the same calls as at a client."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import antiphon
import antiphon.sync
from antiphon import Node
from tests.node.support import running, until
from tests.streams.test_live_streams import FABRICS, cluster, leader_of, take


@pytest.mark.parametrize("fabric", FABRICS)
def test_a_program_uses_topics_with_a_history_through_its_own_node(fabric: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path, fabric) as nodes, AsyncExitStack() as stack:
            bare = antiphon.start(listen="127.0.0.1:0", join=[nodes[0].address], fabric=fabric)
            nodes.append(await stack.enter_async_context(bare))
            await nodes[3].topics.create("orders", replicas=3)
            receipts = [await node.publish("orders", b"%d" % place, acks="quorum") for place, node in enumerate(nodes)]
            assert sorted(receipt.position for receipt in receipts) == [0, 1, 2, 3]

            async def history(node: Node) -> list[bytes]:
                return [message.value async for message in node.history("orders", follow=False)]

            histories = [await history(node) for node in nodes]
            assert all(each == histories[0] for each in histories) and len(histories[0]) == 4
            shared = [await stack.enter_async_context(node.consume("orders", "billing", window=1)) for node in nodes]
            found = [(await each.fetch(1, timeout=90))[0] for each in shared]
            assert sorted(message.position for message in found) == [0, 1, 2, 3], "each message went to one of them"
            await asyncio.gather(*(message.ack() for message in found))
            assert [each.name for each in await nodes[1].topics.list()] == ["orders"]

    running(test)


def test_a_member_in_a_node_goes_on_at_the_next_leader_and_its_own_end_frees_its_messages(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as nodes:
            await nodes[0].topics.create("jobs", replicas=3)
            for number in range(4):
                await nodes[0].publish("jobs", b"%d" % number, acks="quorum")
            killed = leader_of(nodes, "jobs")
            first, second = (node for node in nodes if node is not killed)
            work = await first.consume("jobs", "workers", window=2).ready()
            (held,) = await work.fetch(1, timeout=90)
            await killed.abandon()
            await asyncio.wait_for(held.ack(), 90)
            rest = await second.consume("jobs", "workers").ready()
            # One message is still in the hands of the first member, until its node ends.
            taken = await take(rest, 1)
            await first.abandon()
            await until(lambda: not second._live.cluster.peers())
            assert held.position not in {message.position for message in taken}
            with pytest.raises(antiphon.ClosedError):
                first.history("jobs")
            await rest.close()

    running(test)


def test_the_messages_of_a_member_whose_node_ended_go_to_others(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as nodes:
            await nodes[0].topics.create("jobs", replicas=3)
            await nodes[0].publish("jobs", b"work", acks="quorum")
            leader = leader_of(nodes, "jobs")
            ending, staying = (node for node in nodes if node is not leader)
            work = await ending.consume("jobs", "workers", ack_seconds=300).ready()
            (held,) = await work.fetch(1, timeout=90)
            other = await staying.consume("jobs", "workers", ack_seconds=300).ready()
            await ending.abandon()
            (again,) = await other.fetch(1, timeout=90)
            assert (again.position, again.delivery) == (held.position, held.delivery + 1)
            await other.close()

    running(test)


def test_a_node_without_streams_says_so(tmp_path: Path) -> None:
    async def test() -> None:
        async with antiphon.start(listen="127.0.0.1:0", data=str(tmp_path)) as node:
            with pytest.raises(antiphon.PeerError, match="has no history; make it with: antiphon topics create"):
                await node.topics.describe("nothing")

    running(test)


def test_a_program_without_async_runs_a_node(tmp_path: Path) -> None:
    with antiphon.sync.start(listen="127.0.0.1:0", data=str(tmp_path)) as node:
        node.topics.create("jobs", replicas=1)
        with antiphon.sync.connect(node.address) as client:
            client.publish("jobs", b"work", acks="quorum")
        message = next(node.consume("jobs", "workers"))
        message.ack()
        assert (message.value, [each.position for each in node.history("jobs")]) == (b"work", [0])
