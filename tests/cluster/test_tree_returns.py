"""Brokers of a tree that are killed and come back with their logs: they keep their identity and their vote."""

from __future__ import annotations

import asyncio
import shutil
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import antiphon
from antiphon import Node, NoMajorityError
from antiphon.node.local_cluster import free_addresses
from tests.cluster.returning import ORDERS, antiphon_command, is_refused, total_works
from tests.node.support import Child, child, running, subscribed, take_exactly, take_values, until


class Tree:
    """A tree of which some brokers are in processes of their own, to be killed, and the others in this one."""

    def __init__(self, stack: AsyncExitStack, directory: Path, killed: int, others: int) -> None:
        self._stack = stack
        self._directory = directory
        addresses = free_addresses(killed + others)
        self.killed, self.others = addresses[:killed], addresses[killed:]
        self.table = directory / "tree.toml"
        listed = ", ".join(f'"{address}"' for address in addresses)
        self.table.write_text(f"[tree]\nbrokers = [{listed}]\npatience_seconds = 0.1\ncouncil_seconds = 0.3\n")
        self.children: list[Child] = []

    def data(self, address: str) -> str:
        """The directory of a broker."""
        return str(self._directory / address.rpartition(":")[2])

    async def start(self) -> list[Node]:
        """Start all brokers; gives those of this process."""
        begun = [
            antiphon.start(
                fabric="tree", tree=str(self.table), listen=address, data=self.data(address), leave_seconds=0.3
            )
            for address in self.others
        ]
        returning = asyncio.create_task(self.bring_back())
        nodes = await asyncio.gather(*(self._stack.enter_async_context(each) for each in begun))
        await returning
        return nodes

    async def bring_back(self, first: int = 0) -> None:
        """Start the brokers that may be killed, or all but the first, with the logs that they have."""
        self.children = await asyncio.gather(
            *(
                self._stack.enter_async_context(
                    child(
                        "serve", "fabric=tree", f"tree={self.table}", f"listen={address}", f"data={self.data(address)}"
                    )
                )
                for address in self.killed[first:]
            )
        )

    async def kill(self) -> None:
        """Kill them as kill -9 does."""
        await asyncio.gather(*(each.kill() for each in self.children))


@pytest.mark.parametrize(("killed", "others"), [(3, 2), (2, 2)])
def test_half_of_a_tree_and_more_returns_and_everything_works_again(tmp_path: Path, killed: int, others: int) -> None:
    """Also for a client that had to change its broker, in every order; without an operator."""

    async def test() -> None:
        async with AsyncExitStack() as stack:
            brokers = Tree(stack, tmp_path, killed, others)
            nodes = await brokers.start()
            # The root, which has the lowest number, is among those who are killed.
            client = await stack.enter_async_context(antiphon.connect([brokers.killed[0], *brokers.others]))
            for number in range(5):
                await client.publish("room", b"%d" % number, order="total", key=b"anna")
            await brokers.kill()
            await is_refused(nodes[0], "brokers 0, 1")
            async with antiphon.connect(brokers.others) as other:
                with pytest.raises(NoMajorityError, match="cannot be reached"):
                    await other.publish("room", b"?", order="total", key=b"anna")
            await brokers.bring_back()
            await total_works(nodes[0])
            async with asyncio.timeout(90):
                await total_works(client)
                subscriptions = await subscribed(nodes, "hall")
                for order in ORDERS:
                    await client.publish("hall", order.encode(), order=order, key=b"anna")
                for subscription in subscriptions:
                    assert await take_values(subscription, 4) == [each.encode() for each in ORDERS]
            for node in nodes:
                assert {peer.identifier for peer in node._live.cluster.peers()} | {node.identifier} == set(
                    range(killed + others)
                )

    running(test)


def test_what_only_a_log_holds_after_all_brokers_were_killed_comes_to_clients_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The subscriber's broker had not shown it, and the publisher hands it in again where the log has it already."""

    async def test() -> None:
        async with AsyncExitStack() as stack:
            brokers = Tree(stack, tmp_path, 2, 0)
            await brokers.start()
            first, second = brokers.killed
            subscriber = await stack.enter_async_context(antiphon.connect([second, first], reconnect_seconds=30))
            # Its broker tells it of the other one, which may be up before.
            monkeypatch.setattr("antiphon.sessions.server_pool.ServerPool.learn", lambda *_: None)
            publisher = await stack.enter_async_context(antiphon.connect(first, reconnect_seconds=30))
            heard = await subscriber.subscribe("room").ready()
            await publisher.publish("room", b"question")
            assert await take_values(heard, 1) == [b"question"]
            brokers.children[1].process.send_signal(signal.SIGSTOP)
            await publisher.publish("room", b"answer")
            await brokers.kill()
            await brokers.bring_back()
            assert await take_values(heard, 1) == [b"answer"]
            await publisher.publish("room", b"thanks")
            assert await take_values(heard, 1) == [b"thanks"] and heard.gaps == 0
            everything = await publisher.subscribe("room", start="earliest").ready()
            found = [(message.offset, message.value) for message in await take_exactly(everything, 3)]
            assert found == [(0, b"question"), (1, b"answer"), (2, b"thanks")]

    running(test)


def test_what_only_the_log_of_a_returned_broker_holds_comes_to_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its publisher hands it in again at that broker, which is killed before any other broker hears of it."""
    monkeypatch.setattr("antiphon.sessions.unacked.UnackedBatches.safe", lambda *_: None)
    monkeypatch.setattr("antiphon.sessions.server_pool.ServerPool.learn", lambda *_: None)

    async def test() -> None:
        async with AsyncExitStack() as stack:
            brokers = Tree(stack, tmp_path, 1, 2)
            nodes = await brokers.start()
            publisher = await stack.enter_async_context(antiphon.connect(brokers.killed[0], reconnect_seconds=30))
            await publisher.publish("room", b"question")
            await brokers.kill()
            heard = await subscribed(nodes)
            await brokers.bring_back()
            for subscription in heard:
                assert await take_values(subscription, 1) == [b"question"]
            await publisher.publish("room", b"thanks")
            everything = await publisher.subscribe("room", start="earliest").ready()
            found = [(message.offset, message.value) for message in await take_exactly(everything, 2)]
            assert found == [(0, b"question"), (1, b"thanks")]
            await publisher.abandon()

    running(test)


def test_without_a_majority_a_client_that_changed_its_broker_loses_nothing_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its new broker cannot catch up with what it saw. It and the broker's other clients go on all the same."""
    monkeypatch.setattr("antiphon.sessions.node_end.KNOWN_US", 2_000_000)
    # The client does not hear that the other brokers have its message; and on this topic there are no others.
    monkeypatch.setattr("antiphon.sessions.unacked.UnackedBatches.safe", lambda *_: None)

    async def test() -> None:
        async with AsyncExitStack() as stack:
            brokers = Tree(stack, tmp_path, 2, 2)
            nodes = await brokers.start()
            client = await stack.enter_async_context(antiphon.connect(brokers.killed[0]))
            await client.publish("room", b"accepted")
            await brokers.kill()
            heard = await nodes[0].subscribe("room").ready(), await nodes[1].subscribe("room").ready()
            await until(lambda: client.reconnects == 1)
            new = next(node for node in nodes if node.address == client.address)
            async with asyncio.timeout(1.5):
                # The barrier of the client may be under way here; it cannot get its place.
                await new.publish("room", b"meanwhile", order="causal")
            await client.publish("room", b"later", order="causal")
            for subscription in heard:
                assert await take_values(subscription, 3) == [b"meanwhile", b"accepted", b"later"]
            await client.abandon()

    running(test)


def test_a_broker_that_lost_its_log_is_somebody_new(tmp_path: Path) -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            brokers = Tree(stack, tmp_path, 1, 2)
            nodes = await brokers.start()
            await total_works(nodes[0])
            await brokers.kill()
            data = Path(brokers.data(brokers.killed[0]))
            shutil.rmtree(data)
            await brokers.bring_back()
            await until(lambda: any((peer.identifier or 0) > 2 for peer in nodes[0]._live.cluster.peers()))
            await total_works(nodes[0])

    running(test)


def test_a_broker_that_returns_meets_somebody_new_where_a_founder_was_once(tmp_path: Path) -> None:
    """It knows two brokers by one address. Two connections to the one that lives there are two lives of its own there,
    so the newcomer used to break off both, again and again."""

    async def test() -> None:
        async with AsyncExitStack() as stack:
            brokers = Tree(stack, tmp_path, 2, 3)
            nodes = await brokers.start()
            # For a total message all brokers vote, so after it they have on disk who they are.
            await total_works(nodes[0])
            for each in brokers.children:
                await each.kill()
            begin = antiphon.start(
                fabric="tree",
                tree=str(brokers.table),
                listen=brokers.killed[0],
                data=str(tmp_path / "empty"),
                leave_seconds=0.3,
            )
            newcomer = await stack.enter_async_context(begin)
            assert newcomer.identifier > 4
            for _ in range(2):
                # In its first life after that it hears of the newcomer, in the next one it remembers it.
                await brokers.bring_back(1)
                await until(lambda: any(peer.identifier == 1 for peer in newcomer._live.cluster.peers()))
                lost_before = newcomer._live.cluster.lost_nodes.count(1)
                await asyncio.sleep(1.5)
                assert newcomer._live.cluster.lost_nodes.count(1) <= lost_before + 1
                await total_works(nodes[0])
                await total_works(newcomer)
                await brokers.children[-1].kill()

    running(test)


def test_an_operator_dismisses_brokers_that_are_gone_for_good(tmp_path: Path) -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            brokers = Tree(stack, tmp_path, 2, 2)
            nodes = await brokers.start()
            await total_works(nodes[0])
            await brokers.kill()
            await is_refused(nodes[0], "brokers 0, 1")
            at = ("--servers", nodes[0].address, "--json")
            before = await antiphon_command("dismiss", *at)
            assert before == {"council": [0, 1, 2, 3], "missing": [0, 1], "orders_totally": False}
            after = await antiphon_command("dismiss", "0", "1", "--yes", *at)
            assert after == {"council": [2, 3], "missing": [], "orders_totally": True}
            await total_works(nodes[1])

    running(test)
