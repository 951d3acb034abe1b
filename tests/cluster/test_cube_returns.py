"""Nodes of a cube that are killed and come back with their logs: they have new identifiers, and keep their votes."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import antiphon
from antiphon import Node
from antiphon.node.local_cluster import free_addresses
from tests.cluster.returning import ORDERS, antiphon_command, is_refused, total_works
from tests.node.support import Child, child, exact_values, running, subscribed, take_values, until


class Cube:
    """A cube of which some nodes are in processes of their own, to be killed, and the others in this one."""

    def __init__(self, stack: AsyncExitStack, directory: Path, killed: int, others: int) -> None:
        self._stack = stack
        self._directory = directory
        addresses = free_addresses(killed + others)
        self.killed, self.others = addresses[:killed], addresses[killed:]
        self.children: list[Child] = []

    def _data(self, address: str) -> str:
        return str(self._directory / address.rpartition(":")[2])

    async def start(self) -> list[Node]:
        """Start all nodes, those first that may be killed; gives those of this process."""
        await self.bring_back(self.killed[0])
        begun = [
            antiphon.start(listen=address, data=self._data(address), join=self.killed[:1], leave_seconds=0.3)
            for address in self.others
        ]
        return [await self._stack.enter_async_context(each) for each in begun]

    async def bring_back(self, contact: str) -> None:
        """Start the nodes that may be killed, with the logs that they have."""
        self.children = await asyncio.gather(*(self._serve(address, contact) for address in self.killed))

    async def _serve(self, address: str, contact: str) -> Child:
        join = [] if address == contact else [f"join={contact}"]
        node = child("serve", f"listen={address}", f"data={self._data(address)}", *join)
        return await self._stack.enter_async_context(node)

    async def kill(self) -> None:
        """Kill them as kill -9 does."""
        await asyncio.gather(*(each.kill() for each in self.children))


def test_what_only_a_log_holds_after_all_nodes_were_killed_comes_to_clients_once(tmp_path: Path) -> None:
    """The subscriber's node had not shown it, and the publisher hands it in again where the log has it already."""

    async def test() -> None:
        async with AsyncExitStack() as stack:
            cube = Cube(stack, tmp_path, 2, 0)
            await cube.start()
            first, second = cube.killed
            subscriber = await stack.enter_async_context(antiphon.connect([second, first], reconnect_seconds=30))
            publisher = await stack.enter_async_context(antiphon.connect([first, second], reconnect_seconds=30))
            heard = await subscriber.subscribe("room").ready()
            await publisher.publish("room", b"question")
            assert await take_values(heard, 1) == [b"question"]
            cube.children[1].process.send_signal(signal.SIGSTOP)
            await publisher.publish("room", b"answer")
            await cube.kill()
            await cube.bring_back(first)
            assert await take_values(heard, 1) == [b"answer"]
            await publisher.publish("room", b"thanks")
            assert await take_values(heard, 1) == [b"thanks"] and heard.gaps == 0
            everything = await publisher.subscribe("room", start="earliest").ready()
            assert await exact_values(everything, 3) == [b"question", b"answer", b"thanks"]

    running(test)


async def all_vote(nodes: list[Node], count: int) -> None:
    """Wait until all nodes count so many voters, and reach them."""

    def is_so(node: Node) -> bool:
        figures = node._live.cluster.figures()
        return len(figures["council"]) == count and not figures["missing"] and bool(figures["orders_totally"])

    await until(lambda: all(is_so(node) for node in nodes))


def test_half_of_a_cube_and_more_returns_and_everything_works_again(tmp_path: Path) -> None:
    """Also for a client that had to change its node, in every order, and for a second time; without an operator."""

    async def test() -> None:
        async with AsyncExitStack() as stack:
            cube = Cube(stack, tmp_path, 3, 2)
            nodes = await cube.start()
            await subscribed(nodes)
            # The keeper, which has the lowest number, is among those who are killed.
            client = await stack.enter_async_context(antiphon.connect([cube.killed[0], *cube.others]))
            for number in range(5):
                await client.publish("room", b"%d" % number, order="total", key=b"anna")
            for topic in ("hall", "court"):
                await all_vote(nodes, 5)
                await cube.kill()
                await is_refused(nodes[0], "nodes ")
                await cube.bring_back(cube.others[0])
                await total_works(nodes[0], 60)
                await total_works(client, 60)
                subscriptions = await subscribed(nodes, topic)
                for order in ORDERS:
                    await client.publish(topic, order.encode(), order=order, key=b"anna")
                for subscription in subscriptions:
                    assert await take_values(subscription, 4) == [each.encode() for each in ORDERS]
            await all_vote(nodes, 5)

    running(test)


@pytest.mark.parametrize("count", [1, 3])
def test_all_nodes_return_and_nothing_that_is_said_then_is_too_late(tmp_path: Path, count: int) -> None:
    """Nobody is left who knows how far the places of total messages had come, but it is on their disks."""

    async def test() -> None:
        async with AsyncExitStack() as stack:
            cube = Cube(stack, tmp_path, count, 0)
            for life in range(2):
                await cube.bring_back(cube.killed[0])
                async with antiphon.connect(cube.killed) as client:
                    subscription = await client.subscribe("room").ready()
                    for number in range(3):
                        await total_works(client, 60)
                        said = b"%d %d" % (life, number)
                        await client.publish("room", said, order="total", key=b"anna")
                        assert await take_values(subscription, 2) == [b"again", said]
                    await cube.kill()
                    await client.abandon()

    running(test)


def test_an_operator_dismisses_nodes_that_are_gone_for_good(tmp_path: Path) -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            cube = Cube(stack, tmp_path, 2, 2)
            nodes = await cube.start()
            await total_works(nodes[0], 60)
            await all_vote(nodes, 4)
            await cube.kill()
            await is_refused(nodes[0], "nodes ")
            at = ("--servers", nodes[0].address, "--json")
            before = await antiphon_command("dismiss", *at)
            assert len(before["council"]) == 4 and len(before["missing"]) == 2 and not before["orders_totally"]
            after = await antiphon_command("dismiss", *map(str, before["missing"]), "--yes", *at)
            left = sorted(set(before["council"]) - set(before["missing"]))
            assert after == {"council": left, "missing": [], "orders_totally": True}
            await total_works(nodes[0], 60)
            await total_works(nodes[1], 60)

    running(test)
