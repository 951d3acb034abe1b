"""Histories as files: everything of a message is in them, they are whole or not there, and an import goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import antiphon
from antiphon import Client
from antiphon.cli.streams.backup import ORIGIN, exported, imported
from antiphon.cli.streams.backup_files import BackupFile, BackupRecord, complete
from tests.node.support import running

KINDS = ("jsonl", "parquet")
BINARY = bytes(range(256))


@asynccontextmanager
async def clients(directory: Path, count: int = 1) -> AsyncIterator[list[Client]]:
    """Clients of so many clusters, of one node each."""
    async with (
        antiphon.start(data=str(directory / "first")) as first,
        antiphon.start(data=str(directory / "second")) as second,
    ):
        nodes = [first, second][:count]
        found = [await antiphon.connect(node.address) for node in nodes]
        try:
            yield found
        finally:
            for client in found:
                await client.close()


async def published(client: Client, topic: str = "orders") -> list[Any]:
    """Messages with everything that a message can have."""
    await client.topics.create(topic, replicas=1, retention_bytes=1 << 30)
    options: list[dict[str, Any]] = [
        {"value": BINARY, "order": "causal", "key": BINARY, "headers": {"kind": BINARY, "é": b""}},
        {"value": b"", "order": "fifo"},
        {"value": b"several", "order": "causal", "keys": ["b", "a"]},
        {"value": b"total", "order": "total", "key": "x"},
        {"value": b"loose", "order": "none"},
        {"value": b"lives", "order": "causal", "ttl_seconds": 3600},
        *({"value": b"%d" % number, "order": "causal", "key": number % 3} for number in range(300)),
    ]
    return [await client.publish(topic, acks="quorum", **each) for each in options]


def without_origin(record: BackupRecord) -> tuple[Any, ...]:
    headers = {name: value for name, value in record.headers.items() if name != ORIGIN}
    return (record.value, record.key, record.keys, headers, record.expires_us // 1_000_000)


@pytest.mark.parametrize("kind", KINDS)
def test_everything_comes_back_in_another_cluster(kind: Any, tmp_path: Path) -> None:
    async def test() -> None:
        async with clients(tmp_path, 2) as (first, second):
            receipts = await published(first)
            done = await exported(first, "orders", tmp_path / "out", kind)
            file = BackupFile(Path(done["file"]))
            original = list(file.records())
            assert [(each.position, each.author, each.author_sequence) for each in original] == [
                (int(each.position), each.author, each.sequence) for each in receipts
            ]
            assert file.messages == done["messages"] == len(receipts) == file.header.end
            assert {each.order for each in original} == {"none", "fifo", "causal", "total"}
            assert (await imported(second, file, "orders"))["messages"] == len(original)
            again = await exported(second, "orders", tmp_path / "again", kind)
            copy = list(BackupFile(Path(again["file"])).records())
            assert [without_origin(each) for each in copy] == [without_origin(each) for each in original]
            assert [each.headers[ORIGIN].decode().split() for each in copy] == [
                [
                    f"{file.header.generation}-{was.position}",
                    *map(str, (was.author, was.author_sequence, was.order, was.timestamp_us)),
                ]
                for was in original
            ]
            assert (await second.topics.describe("orders")).policy.retention_bytes == 1 << 30

    running(test)


def test_an_import_that_was_interrupted_goes_on_and_one_that_is_done_does_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with clients(tmp_path, 2) as (first, second):
            await published(first)
            done = await exported(first, "orders", tmp_path / "out", "jsonl")
            path = Path(done["file"])
            whole = BackupFile(path)
            # As if it had ended after some: a file of the same history with fewer messages.
            lines = path.read_bytes().splitlines(keepends=True)
            part = tmp_path / "part.jsonl"
            part.write_bytes(b"".join([*lines[:101], msgspec.json.encode({"messages": 100}) + b"\n"]))
            assert (await imported(second, BackupFile(part), "orders"))["messages"] == 100
            found = await imported(second, whole, "orders")
            assert (found["messages"], found["earlier"]) == (whole.messages - 100, 100)
            assert (await imported(second, whole, "orders"))["messages"] == 0
            values = [each.value async for each in second.history("orders", follow=False)]
            assert values == [each.value for each in whole.records()]
            await second.publish("orders", b"of somebody else", acks="quorum")
            with pytest.raises(antiphon.UsageError, match="has messages that are not of"):
                await imported(second, whole, "orders")

    running(test)


def test_an_export_while_others_publish_ends_where_the_history_was(tmp_path: Path) -> None:
    async def test() -> None:
        async with clients(tmp_path) as (client,):
            await published(client)
            before = (await client.topics.describe("orders")).end
            more = [client.publish("orders", b"%d" % number, acks="quorum") for number in range(2000)]
            done = await exported(client, "orders", tmp_path / "out", "jsonl")
            for each in more:
                await each
            assert before <= done["messages"] <= before + 2000
            positions = [each.position for each in BackupFile(Path(done["file"])).records()]
            assert positions == list(range(done["messages"]))
            with pytest.raises(antiphon.UsageError, match="is there already"):
                await exported(client, "orders", tmp_path / "out", "jsonl")
            with pytest.raises(antiphon.PeerError, match="has no history"):
                await exported(client, "nothing", tmp_path / "out", "jsonl")

    running(test)


def test_what_is_damaged_or_cut_off_is_refused_before_anything_is_imported(tmp_path: Path) -> None:
    async def test() -> str:
        async with clients(tmp_path) as (client,):
            await published(client)
            found = {kind: await exported(client, "orders", tmp_path / "out", kind) for kind in ("jsonl", "parquet")}
            return str(found["parquet"]["file"])

    parquet = Path(running(test))
    lines = (tmp_path / "out" / "orders.jsonl").read_bytes().splitlines(keepends=True)
    swapped = [*lines[:5], lines[6], lines[5], *lines[7:]]
    for content, why in (
        (b"".join(lines[:-1]), "the number of messages, is missing"),
        (b"".join(lines[:-1])[:-20], "no complete export"),
        (b"".join([*lines[:9], *lines[10:]]), "it has 305 of 306 messages"),
        (b"".join(swapped), "is damaged: position 4 cannot be behind 5"),
        (b'{"topic":"orders"}\n', "line 1"),
        (b"", "line 1"),
    ):
        path = tmp_path / "bad.jsonl"
        path.write_bytes(content)
        with pytest.raises(antiphon.UsageError, match=why):
            BackupFile(path)
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(parquet.read_bytes()[:-40])
    with pytest.raises(antiphon.UsageError, match="no complete Parquet file"):
        BackupFile(cut)
    with pytest.raises(antiphon.UsageError, match="cannot read"):
        BackupFile(tmp_path / "missing.jsonl")
    complete(cut, tmp_path / "named.parquet")
    assert not cut.exists() and [each.name for each in (tmp_path / "out").iterdir() if "part" in each.name] == []
