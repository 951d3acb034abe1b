"""Attackers with a token at the node that keeps histories: honest readers, publishers and members go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import antiphon
from antiphon import Client, Node
from antiphon.membership.messages import PROTOCOL_VERSION, Hello
from antiphon.node.acl import new_token, token_hash
from antiphon.node.gateway.client_session import ClientSession
from antiphon.sessions.client_messages import StreamRequest, StreamResponse
from antiphon.storage.group_commit import GroupCommit
from antiphon.storage.log import DurableLog
from antiphon.storage.stream_store import StreamStore
from antiphon.streams.commands import ConsumerSettings
from antiphon.streams.requests import (
    EARLIEST,
    LATEST,
    AttachConsumer,
    AwaitPosition,
    Done,
    Handed,
    PositionFound,
    ReadHistory,
    Request,
    Response,
    StreamFailure,
    decode_response,
    encode,
)
from antiphon.streams.service.disk_waits import DiskWait, WaitingForDisks
from antiphon.streams.service.open_waits import READERS_AT_MOST
from antiphon.streams.service.recent_positions import AwaitedPositions, PlacedBatch, RecentPositions
from tests.node.strangers import Attacker, attacking, frames
from tests.node.support import cluster, running, until

SHOP, BANK = new_token(), new_token()
RIGHTS = "".join(
    f"""
[clients.{name}]
token = "{token_hash(token)}"
publish = ["room.>"]
subscribe = ["room.>"]
consume = ["room.>"]
manage = ["room.>"]
"""
    for name, token in (("shop", SHOP), ("bank", BANK))
)
HELLO = Hello(PROTOCOL_VERSION, "antiphon", "attacker", "", token=SHOP)
TAG = StreamResponse.__struct_config__.tag


@asynccontextmanager
async def attacked(place: Path, count: int = 1) -> AsyncIterator[tuple[Node, Client, list[Attacker]]]:
    """A node with a history, an honest client, and connections of one that is not."""
    rights = place / "rights.toml"
    rights.write_text(RIGHTS)
    async with AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(cluster(1, data=str(place / "data"), rights=str(rights), insecure=True))
        honest = await stack.enter_async_context(antiphon.connect(nodes[0].address, token=BANK))
        await honest.topics.create("room.a", replicas=1)
        await until(lambda: any(each.is_open for each in gateway_of(nodes[0])._service.by_topic.values()))
        found = [await stack.enter_async_context(attacking(nodes[0])) for _ in range(count)]
        for number, attacker in enumerate(found):
            attacker.send(frames(msgspec.structs.replace(HELLO, instance=f"attacker-{number}")))
        yield nodes[0], honest, found


def ask(attacker: Attacker, *requests: Request) -> None:
    attacker.send(frames(*(StreamRequest(number, encode(each)) for number, each in enumerate(requests))))


async def answer(attacker: Attacker) -> Response:
    """The next answer about streams."""
    while (frame := await attacker.frame())[0] != TAG:
        pass
    return decode_response(frame[2])


def attach(
    member: int, held: list[tuple[int, int]] | None = None, ack_us: int = 30_000_000, window: int = 65_536
) -> AttachConsumer:
    settings = ConsumerSettings("any", ack_us, 0, 65_536)
    return AttachConsumer("room.a", "work", settings, EARLIEST, member, held or [], window)


def gateway_of(node: Node) -> Any:
    found = node._live._streams.gateway
    assert found is not None
    return found


def sessions(node: Node) -> list[ClientSession]:
    return [each for each in node._live.clients if isinstance(each, ClientSession)]


async def work(honest: Client, count: int) -> list[bytes]:
    """So many messages of the consumer, acknowledged."""
    values: list[bytes] = []
    async with honest.consume("room.a", "work", start="earliest") as consumption:
        while len(values) < count:
            for message in await consumption.fetch(count, timeout=60) or pytest.fail(f"only {values} came"):
                values.append(message.value)
                await message.ack()
    return values


@pytest.mark.parametrize("ack_us", [0, 1, 99_999, 1 << 60])
def test_leases_that_end_at_once_or_never_are_refused(tmp_path: Path, ack_us: int) -> None:
    async def test() -> None:
        async with attacked(tmp_path) as (_, honest, (attacker,)):
            ask(attacker, attach(1, ack_us=ack_us))
            refused = await answer(attacker)
            assert isinstance(refused, StreamFailure) and "leased for 0.1 to 86400 seconds" in refused.error
            await honest.publish("room.a", b"one")
            assert await work(honest, 1) == [b"one"]

    running(test)


def test_a_member_whose_connection_ends_before_it_has_joined_gets_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with attacked(tmp_path) as (node, honest, (attacker,)):
            ask(attacker, *(attach(number) for number in range(1, 40)))
            await until(lambda: len(gateway_of(node)._service.by_topic["room.a"].coordinator._awaited) > 0)
            attacker.writer.transport.abort()
            for number in range(20):
                await honest.publish("room.a", b"%d" % number)
            # Members that nobody is behind would hold half of them for 30 seconds.
            assert sorted(map(int, await work(honest, 20))) == list(range(20))
            assert gateway_of(node)._attached == {}

    running(test)


def test_nobody_holds_messages_that_are_not_there_yet(tmp_path: Path) -> None:
    async def test() -> None:
        async with attacked(tmp_path) as (_, honest, (attacker,)):
            ask(attacker, attach(1, held=[(position, 1) for position in range(1000)], window=0))
            assert await answer(attacker) == Done()
            for number in range(20):
                await honest.publish("room.a", b"%d" % number)
            assert sorted(map(int, await work(honest, 20))) == list(range(20))

    running(test)


def test_a_member_that_does_not_read_is_handed_no_more_than_a_bound(tmp_path: Path) -> None:
    async def test() -> None:
        async with attacked(tmp_path) as (node, honest, (attacker,)):
            for _ in range(80):
                honest.publish("room.a", bytes(500_000))
            await honest.flush()
            await until(lambda: len(node._live.clients) == 2)
            (session,) = (each for each in sessions(node) if each.holder.name == "shop")
            ask(attacker, attach(1))
            await until(lambda: session._writer.unwritten_bytes() > 1 << 20)
            most = 0
            for _ in range(50):
                most = max(most, session._writer.unwritten_bytes())
                await asyncio.sleep(0.01)
            assert most < 16 << 20
            # It reads, and gets everything.
            came = 0
            while came < 80:
                response = await answer(attacker)
                came += len(response.places) if isinstance(response, Handed) else 0

    running(test)


def test_readers_that_wait_have_a_bound_and_end_with_their_connection(tmp_path: Path) -> None:
    async def test() -> None:
        async with attacked(tmp_path) as (node, honest, (attacker,)):
            waiting = gateway_of(node)._history
            ask(attacker, *[ReadHistory("room.a", LATEST, 1 << 61, 1 << 61)] * (READERS_AT_MOST + 5))
            for _ in range(5):
                refused = await answer(attacker)
                assert isinstance(refused, StreamFailure) and "256 readers of this client wait" in refused.error
            assert sum(map(len, waiting._readers.values())) == READERS_AT_MOST == len(waiting._deadlines)
            ask(attacker, *[AwaitPosition("room.a", 7, 1 << 50, 1 << 61)] * 100)
            await until(lambda: len(gateway_of(node)._history._positions) == 1)
            (recent,) = gateway_of(node)._history._positions.values()
            await until(lambda: len(recent._waiting.get(7, {}).get(1 << 50, ())) == 100)
            await honest.publish("room.a", b"news", acks="quorum")
            assert [each.value async for each in honest.history("room.a", follow=False)] == [b"news"]
            attacker.writer.transport.abort()
            await until(lambda: recent._waiting == {} and not any(waiting._readers.values()))
            # Deadlines of a minute would keep the session, and the answers that it never read, for as long.
            assert len(waiting._deadlines) == 0

    running(test)


def test_a_history_is_read_also_where_there_are_many_entries_without_messages_in_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with attacked(tmp_path) as (_, honest, (attacker,)):
            await honest.publish("room.a", b"one", acks="quorum")
            for number in range(300):
                settings = ConsumerSettings()
                ask(attacker, AttachConsumer("room.a", f"c{number}", settings, LATEST, number, [], 1))
                await answer(attacker)
            await honest.publish("room.a", b"two", acks="quorum")
            assert [each.value async for each in honest.history("room.a", follow=False)] == [b"one", b"two"]
            assert await work(honest, 2) == [b"one", b"two"]

    running(test)


def test_a_step_after_a_commit_that_fails_stops_no_other(tmp_path: Path) -> None:
    def fail() -> None:
        raise ValueError("broken")

    async def test() -> None:
        raised = list[BaseException]()
        commit = GroupCommit(DurableLog.open(tmp_path / "log"), lambda: None, raised.append)
        store, called = StreamStore(tmp_path / "streams", commit), asyncio.Event()
        store.then(fail)
        store.then(called.set)
        async with asyncio.timeout(90):
            await called.wait()
        await commit.close()

    running(test)


def test_waiting_publishers_cost_a_batch_only_what_it_answers() -> None:
    recent, found = RecentPositions(), list[tuple[int, int]]()

    def note(position: int, jumps: list[int], entry: int) -> None:
        found.append((position, entry))

    def awaited(sequence: int) -> AwaitedPositions:
        return AwaitedPositions(7, sequence, 1, note, lambda _: None)

    ends = [recent.find(awaited(sequence)) for sequence in (3, 4, 4, 1 << 50)]
    assert all(ends)
    ends[2]()  # type: ignore[misc]
    recent.add(7, PlacedBatch(3, 2, 100, 9))
    assert sorted(found) == [(100, 9), (101, 9)]
    assert set(recent._waiting[7]) == {1 << 50}
    ends[3]()  # type: ignore[misc]
    assert recent._waiting == {}
    assert recent.find(awaited(4)) is None and found[-1] == (101, 9)


def test_publishers_that_wait_for_disks_are_looked_at_in_the_order_of_their_entries() -> None:
    waiting = WaitingForDisks()
    placed = PositionFound(1, 0, 0)
    waits = [DiskWait(placed, entry, until_us, lambda _: None) for entry, until_us in ((5, 100), (3, 300), (4, 200))]
    for wait in waits:
        waiting.add(wait)
    assert waiting.first() is waits[1]
    assert waiting.late(99) is None
    assert waiting.late(250) is waits[0]
    waits[0].end()
    waits[1].end()
    assert waiting.first() is waits[2]
    assert waiting.late(250) is waits[2] and waiting.late(1000) is None


def test_messages_of_several_batches_are_answered_together_with_their_positions() -> None:
    recent, found = RecentPositions(), list[tuple[int, list[int], int]]()

    def note(position: int, jumps: list[int], entry: int) -> None:
        found.append((position, jumps, entry))

    recent.add(7, PlacedBatch(1, 2, 10, 1))
    assert recent.find(AwaitedPositions(7, 2, 5, note, lambda _: None)) is not None
    recent.add(7, PlacedBatch(5, 2, 40, 4))
    assert found == []
    recent.add(7, PlacedBatch(3, 2, 12, 3))
    assert found == [(11, [3, 40], 4)]
    placed = PositionFound(1, *found[0][:1], 0, found[0][1])
    assert [placed.position_of(place) for place in range(5)] == [11, 12, 13, 40, 41]
    assert recent._waiting == {}
