"""What clients ask a node about its durable log: which topics, from where to where, and ranges of them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import antiphon
from antiphon import Client, Node, PeerError
from antiphon.api.batch_codec import decode_columns
from antiphon.client.remote_log import RemoteLog
from antiphon.node.gateway.client_requests import LOG_REQUESTS_AT_MOST
from antiphon.sessions.client_messages import RangeRequest
from antiphon.transport.codec import Codec
from tests.node.support import outcome, running, until


async def fill(node: Node, topic: str, count: int) -> None:
    """Publish messages, each in a batch of its own; they are on disk afterwards."""
    for number in range(count):
        await node.publish(topic, b"%d" % number)


async def read_all(client: Client, log: int, topic: str, end: int, most_bytes: int) -> tuple[list[bytes], int]:
    """The values of a range, and in how many answers they came."""
    values: list[bytes] = []
    position = answers = 0
    while position < end:
        answer = await RemoteLog(client._live).range(log, topic, position, end, most_bytes)
        for first, count, recorded in answer.batches:
            columns = decode_columns(Codec().decode_publication(recorded).payload)
            assert (first, count) == (len(values), len(columns.values))
            values += columns.values
        position = answer.next_offset
        answers += 1
    return values, answers


def test_a_log_is_read_in_chunks_of_the_size_that_is_asked_for(tmp_path: Path) -> None:
    async def test() -> None:
        async with antiphon.start(data=str(tmp_path), keep=["room"]) as node, antiphon.connect(node.address) as client:
            await fill(node, "room", 40)
            logs = await RemoteLog(client._live).topics()
            assert (logs.log, logs.node) == (node._live.log_server.number, node.identifier)
            [bounds] = logs.topics
            assert (bounds.topic, bounds.first, bounds.end) == ("room", 0, 40)
            wanted = [b"%d" % number for number in range(40)]
            assert await read_all(client, logs.log, "room", 40, 1 << 20) == (wanted, 1)
            # One batch at least is in every answer, however little is asked for.
            assert await read_all(client, logs.log, "room", 40, 1) == (wanted, 40)

    running(test)


def test_the_number_of_a_log_stays_with_its_directory(tmp_path: Path) -> None:
    async def number_in(directory: Path) -> int:
        async with antiphon.start(data=str(directory), keep=["room"]) as node, antiphon.connect(node.address) as client:
            await fill(node, "room", 1)
            return (await RemoteLog(client._live).topics()).log

    async def test() -> None:
        one, again = await number_in(tmp_path / "one"), await number_in(tmp_path / "one")
        assert one == again > 0
        assert await number_in(tmp_path / "other") != one

    running(test)


def test_only_what_is_on_disk_is_told_of(tmp_path: Path) -> None:
    """Otherwise an offset could come to stand for another message after a crash."""

    async def test() -> None:
        async with (
            antiphon.start(data=str(tmp_path), keep=["room"], durability="memory") as node,
            antiphon.connect(node.address) as client,
        ):
            store = node._live.store
            assert store is not None
            await fill(node, "room", 3)
            await until(lambda: store.durable_end("room") == 3)
            store.append("room", 1, 1, b"in memory only")
            [bounds] = (await RemoteLog(client._live).topics(["room"])).topics
            assert (bounds.end, store.latest("room")) == (3, 4)

    running(test)


def test_times_are_found_in_the_log(tmp_path: Path) -> None:
    async def test() -> None:
        async with antiphon.start(data=str(tmp_path), keep=["room"]) as node, antiphon.connect(node.address) as client:
            await fill(node, "room", 3)
            store = node._live.store
            assert store is not None
            last_us = store.read("room", 2, 1)[0].appended_at_us
            [bounds] = (await RemoteLog(client._live).topics(["room"], [0, last_us, last_us + 1])).topics
            assert bounds.at_times == [0, 2, 3]

    running(test)


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    async def test() -> None:
        async with antiphon.start(data=str(tmp_path), keep=["room"]) as node, antiphon.connect(node.address) as client:
            await fill(node, "room", 3)
            log = node._live.log_server.number
            wrong = [((log + 1, "room", 0), "does not have log"), ((log, "side", 0), "no topic 'side'")]
            wrong.append(((log, "room", 4), "has no offset 4 on disk; the latest is 3"))
            for (number, topic, offset), complaint in wrong:
                error = await outcome(RemoteLog(client._live).range(number, topic, offset, 9, 1000))
                assert isinstance(error, PeerError) and complaint in str(error)
            # A node without a log says so.
        async with antiphon.start() as node, antiphon.connect(node.address) as client:
            logs = await RemoteLog(client._live).topics(["room"])
            assert (logs.log, logs.topics) == (0, [])

    running(test)


def test_the_node_goes_on_while_its_log_is_read(tmp_path: Path, monkeypatch: Any) -> None:
    async def test() -> None:
        async with antiphon.start(data=str(tmp_path), keep=["room"]) as node, antiphon.connect(node.address) as client:
            await fill(node, "room", 3)
            store = node._live.store
            assert store is not None
            gate = threading.Event()
            read = store.read_durable

            def read_slowly(*arguments: Any) -> Any:
                gate.wait()
                return read(*arguments)

            monkeypatch.setattr(store, "read_durable", read_slowly)
            reading = asyncio.ensure_future(
                RemoteLog(client._live).range(node._live.log_server.number, "room", 0, 3, 1 << 20)
            )
            # Publishing, committing and answering go on.
            await fill(node, "room", 2)
            assert (await client.status())["topics"]["room"]["end_offset"] == 5
            assert not reading.done()
            gate.set()
            assert [count for _, count, _ in (await reading).batches] == [1, 1, 1]

    running(test)


def test_who_asks_without_end_and_takes_no_answer_is_cut_off(tmp_path: Path) -> None:
    async def test() -> None:
        async with antiphon.start(data=str(tmp_path), keep=["room"]) as node:
            client = await antiphon.connect(node.address, reconnect_seconds=0.0)
            await fill(node, "room", 3)
            for number in range(1000, 1000 + LOG_REQUESTS_AT_MOST + 1):
                client._live.send(RangeRequest(number, node._live.log_server.number, "room", 0, 3, 1000))
            client._live.settle()
            await until(lambda: not client.is_up)
            assert node._live.failure is None
            await client.abandon()

    running(test)
