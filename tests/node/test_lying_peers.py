"""A node of the cluster that lies: it loses its connection, and ends no process nor takes its processor or memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

import antiphon
from antiphon import Node
from antiphon.api.batch_codec import encode_columns
from antiphon.api.columns import Columns
from antiphon.fabrics.cube.repair.messages import REQUEST, REQUEST_TO_ALL, Digest, Unavailable
from antiphon.kernel.message import CAUSAL, NONE, ProtocolMessage, publication_key
from antiphon.kernel.process import Process
from antiphon.orders.order import Ordered
from antiphon.sessions.peer_messages import ReplayRequest
from antiphon.torture.hostile.liar import Liar
from antiphon.torture.hostile.lies import Lies
from tests.node.support import cluster, exact_values, running, tree, until

HUGE = (1 << 41) - 1
FORGED = encode_columns(Columns(1, 0, [b"forged"]))
STANDSTILL_SECONDS = 2.0
"""Other nodes would count a node as lost that stood still for five; lies that go through all numbers take hours."""


@asynccontextmanager
async def lied_to(fabric: str = "cube", **settings: Any) -> AsyncIterator[tuple[Node, Node]]:
    """An honest node, and one that has passed every handshake and is about to lie; both are members of a topic."""
    async with cluster(2, fabric=fabric, **settings) as (honest, liar):
        for node in (honest, liar):
            await node.subscribe("room").ready()
        await honest.publish("room", b"before")
        await liar.publish("room", b"an honest beginning")
        yield honest, liar
        assert honest._live.failure is None, "no peer ends a process"


def say(liar: Node, *frames: bytes) -> None:
    """Send frames to the other node, over the link that the two use anyway."""
    (link,) = liar._live.host.links.values()
    for frame in frames:
        link.send(frame)
    link.flush()


def lie(liar: Node, *messages: ProtocolMessage) -> None:
    """Send messages of the protocol that no node would send."""
    say(liar, *(bytes(liar._live.loop.codec.encode(message)) for message in messages))


async def longest_standstill(seconds: float) -> float:
    """How much processor time the nodes, which share an event loop, used between two of its turns at most."""
    longest, until_time = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < until_time:
        begun = time.process_time()
        await asyncio.sleep(0.01)
        longest = max(longest, time.process_time() - begun)
    return longest


async def still_works(node: Node, fabric: str = "cube") -> None:
    """A topic that nobody has lied about works, between the node and a newcomer."""
    async with antiphon.start(join=[node.address], fabric=fabric, leave_seconds=0.2) as other:
        messages = await other.subscribe("other").ready()
        await node.publish("other", b"works")
        assert await exact_values(messages, 1) == [b"works"]


def keys(*names: tuple[int, int]) -> Any:
    """Publications up to these, as a set."""
    from librt.vecs import vec
    from mypy_extensions import i64

    return vec[i64]([publication_key(source, number) for source, number in names])


def lies_about(topic: int, honest: int, liar: int) -> dict[str, Sequence[ProtocolMessage]]:
    """Each of the lies that took the processor of a node, ended its process or blocked it."""
    nothing, far = keys(), keys((honest, HUGE), (liar, HUGE), (77, HUGE))

    def forged(source: int, number: int, order: int, past: Any = nothing) -> Ordered:
        return Ordered(source, number, 0, FORGED, past, topic, order)

    return {
        "a huge sequence": [forged(liar, HUGE, NONE), forged(liar, HUGE - 1, CAUSAL)],
        "a forged publication": [forged(honest, number, CAUSAL) for number in (2, 50, HUGE)],
        "dependencies that never were": [forged(liar, 2, CAUSAL, far)],
        "gone": [Unavailable(liar, topic, far)],
        "having everything": [
            Digest(liar, 1, topic, nothing, far, asks, True, 3) for asks in (REQUEST, REQUEST_TO_ALL)
        ],
        "lacking everything": [
            forged(liar, HUGE, NONE),
            Digest(liar, 1, topic, nothing, nothing, REQUEST, True, 3),
            Digest(liar, 1, topic, nothing, nothing, REQUEST_TO_ALL, True, 3),
        ],
    }


@pytest.mark.parametrize("lie_of", list(lies_about(0, 0, 1)))
def test_no_lie_about_numbers_takes_the_processor_of_a_node(lie_of: str) -> None:
    async def test() -> None:
        async with lied_to() as (honest, liar):
            topic = honest._live.topics["room"].number
            lie(liar, *lies_about(topic, honest.identifier, liar.identifier)[lie_of])
            assert await longest_standstill(1.5) < STANDSTILL_SECONDS
            await still_works(honest)

    running(test)


def test_a_message_that_nothing_handles_costs_its_sender_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    """It ended the process of whoever got it, and then that of the next one."""

    async def test() -> None:
        async with lied_to() as (honest, liar):
            process = honest._live.process
            assert process is not None
            topic = honest._live.topics["room"].number
            # A member that says it answers a question of this node, which has asked nothing of it.
            lies = Lies("cube", 3, [honest.identifier, liar.identifier], [topic])
            for _ in range(3000):
                if honest._live.loop.unhandled_errors > 0 or not liar._live.host.links:
                    break
                say(liar, lies.message()[1])
                await asyncio.sleep(0)
            await until(lambda: honest._live.refused_connections > 0)
            await still_works(honest)

    running(test)


def test_a_message_that_fails_where_it_is_handled_costs_its_sender_the_connection() -> None:
    async def test() -> None:
        async with lied_to() as (honest, liar):
            loop: Any = honest._live.loop
            process, topic = loop.process, honest._live.topics["room"].number

            class Failing(Process):
                def receive(self, sender: int, message: ProtocolMessage) -> None:
                    loop.process = process
                    raise KeyError("what no correct peer says")

            loop.process = Failing(process.environment)
            lie(liar, Unavailable(liar.identifier, topic, keys()))
            await until(lambda: honest._live.refused_connections > 0)
            assert loop.unhandled_errors > 0 and honest._live.failure is None
            await still_works(honest)

    running(test)


def test_a_list_of_nothing_is_refused() -> None:
    async def test() -> None:
        async with lied_to() as (honest, liar):
            request = ReplayRequest(1, "room", 0, [], 5, 0, {7: [1], 8: [1]})
            frame = msgspec.msgpack.encode(request).replace(
                msgspec.msgpack.encode({7: [1], 8: [1]}), b"\x82\x07\x90\x08\x90"
            )
            say(liar, frame)
            await until(lambda: honest._live.refused_connections == 1)
            assert honest._live.loop.unhandled_errors == 0

    running(test)


def test_a_timer_that_fails_is_run_again() -> None:
    """Peers can leave something behind at which a later step fails; what is done from time to time must go on."""

    async def test() -> None:
        async with cluster(1) as (node,):
            process = node._live.process
            assert process is not None
            environment: Any = process.environment
            calls = []

            class Failing(Process):
                def expire(self, name: int) -> None:
                    calls.append(name)
                    if len(calls) == 1:
                        raise KeyError("what a peer has said")

            loop: Any = node._live.loop
            loop.process, honest = Failing(environment), loop.process
            environment.set_timer(0, 12345)
            await until(lambda: len(calls) > 1)
            loop.process = honest
            assert set(calls) >= {12345}
            assert loop.unhandled_errors == 1 and node._live.failure is None

    running(test)


@pytest.mark.parametrize("fabric", ["cube", "gossip", "tree"])
def test_random_lies_end_no_process(fabric: str) -> None:
    """Each message is right by its form; the same seed sends the same."""

    async def test() -> None:
        brokers = tree(2) if fabric == "tree" else cluster(2, fabric=fabric)
        async with brokers as nodes:
            for node in nodes:
                await node.subscribe("room").ready()
            liar = Liar(fabric, 11, nodes[0].address)
            watching = asyncio.ensure_future(longest_standstill(4.0))
            await liar.lie(4.0)
            assert liar.sent.total() > 20
            # The liar shares this loop, and makes long messages on it.
            assert await watching < 2 * STANDSTILL_SECONDS
            assert [node._live.failure for node in nodes] == [None, None]

    running(test)
