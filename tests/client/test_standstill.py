"""Processes at the two ends of a client's connection that stand still, while their machines go on to answer."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

import antiphon
from antiphon import Message
from tests.cluster.test_standstill import LOST_SECONDS, STANDS_STILL_SECONDS, lines_of, three_and_a_witness
from tests.node.support import child, cluster, running, until

CLIENT = Path(__file__).with_name("client_child.py")
LARGE = bytes(200_000)


@pytest.mark.parametrize("fabric", ["cube", "tree", "gossip"])
def test_a_client_gives_up_a_node_that_stands_still(fabric: str, tmp_path: Path) -> None:
    """It goes on at another node with what its own has not answered, and nobody gets anything twice or too late."""

    async def test() -> None:
        async with three_and_a_witness(fabric, tmp_path) as (nodes, witness), asyncio.TaskGroup() as tasks:
            tasks.create_task(lines_of(witness, []))
            seen: list[bytes] = []
            heard: list[bytes] = []
            gaps: list[str] = []
            await nodes[0].subscribe("room", callback=lambda message: heard.append(message.value)).ready()
            client = await antiphon.connect(witness.address)
            await client.subscribe(
                "room", callback=lambda message: seen.append(message.value), when_missed=gaps.append
            ).ready()
            waited: list[float] = []
            loop = asyncio.get_running_loop()

            async def publish(count: int) -> None:
                for _ in range(count):
                    before = loop.time()
                    await client.publish("room", b"%d" % len(waited))
                    waited.append(loop.time() - before)

            await publish(20)
            witness.process.send_signal(signal.SIGSTOP)
            stopped_at = loop.time()
            await publish(20)
            assert LOST_SECONDS <= max(waited) < LOST_SECONDS + 30.0, "it gave up in time, and not too soon"
            assert client.reconnects == 1 and client.address in {node.address for node in nodes}
            await asyncio.sleep(max(0.0, STANDS_STILL_SECONDS - (loop.time() - stopped_at)))
            witness.process.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.5)
            await publish(20)
            everything = [b"%d" % number for number in range(60)]
            await until(lambda: len(heard) >= 60 and len(seen) >= 60)
            await asyncio.sleep(0.2)
            assert heard == everything and seen == everything and gaps == []
            await client.close()
            for node in nodes:
                await node.close()
            assert witness.process.stdin is not None
            witness.process.stdin.close()

    running(test)


def test_a_client_that_stood_still_itself_keeps_its_node() -> None:
    """As long as nobody waits for it, its node keeps it; and it does not take its node for silent when it goes on."""

    async def test() -> None:
        async with (
            cluster(2, lost_seconds=LOST_SECONDS) as nodes,
            child(nodes[0].address, "room", script=CLIENT) as listener,
            asyncio.TaskGroup() as tasks,
        ):
            said: list[str] = []
            tasks.create_task(lines_of(listener, said))
            await until(lambda: "ready" in said)
            listener.process.send_signal(signal.SIGSTOP)
            await nodes[1].publish("room", b"meanwhile")
            await asyncio.sleep(4 * LOST_SECONDS)
            assert len(nodes[0]._live.clients) == 1
            listener.process.send_signal(signal.SIGCONT)
            await until(lambda: len(said) >= 2)
            await asyncio.sleep(2 * LOST_SECONDS)
            assert said == ["ready", "heard 1 9"]
            assert listener.process.stdin is not None
            listener.process.stdin.close()

    running(test)


def test_a_client_that_stands_still_does_not_hold_publishers_up() -> None:
    """Its node gives it up when its subscription is full; it resumes when it goes on, and is told of the gap."""

    async def test() -> None:
        async with (
            cluster(2, lost_seconds=LOST_SECONDS) as nodes,
            child(nodes[0].address, "room", script=CLIENT) as listener,
            asyncio.TaskGroup() as tasks,
        ):
            said: list[str] = []
            tasks.create_task(lines_of(listener, said))
            await until(lambda: "ready" in said)
            listener.process.send_signal(signal.SIGSTOP)
            loop = asyncio.get_running_loop()
            waited: list[float] = []
            for _ in range(300):
                before = loop.time()
                await nodes[1].publish("room", LARGE)
                await nodes[1].flush()
                waited.append(loop.time() - before)
            await until(lambda: not nodes[0]._live.clients)
            assert max(waited) < LOST_SECONDS + 30.0
            listener.process.send_signal(signal.SIGCONT)
            await until(lambda: "moved" in said)
            await nodes[1].publish("room", b"last")
            await until(lambda: "heard 301 4" in said)
            numbers = [int(line.split()[1]) for line in said if line.startswith("heard")]
            assert numbers == sorted(set(numbers)), "nothing is doubled or out of order"
            assert len(numbers) == 301 or said.count("missed") == 1
            assert listener.process.stdin is not None
            listener.process.stdin.close()

    running(test)


def test_a_client_keeps_a_node_that_does_not_read_from_it() -> None:
    """A node that takes no more batches for the time being sends heartbeats, so its clients do not leave it."""

    async def test() -> None:
        async with cluster(1, lost_seconds=LOST_SECONDS, backlog_bytes=100_000) as nodes:
            slow = nodes[0].subscribe("room", policy="block", limit=1)
            await slow.ready()
            async with antiphon.connect(nodes[0].address) as client:
                publishings = [client.publish("room", LARGE) for _ in range(200)]
                await until(lambda: nodes[0]._live.backlogs.held_clients > 0)
                await asyncio.sleep(4 * LOST_SECONDS)
                assert nodes[0]._live.backlogs.held_clients > 0 and client.reconnects == 0
                taken: list[Message] = []
                async for message in slow:
                    taken.append(message)
                    if len(taken) == len(publishings):
                        break
                await asyncio.gather(*publishings)
                assert client.reconnects == 0

    running(test)
