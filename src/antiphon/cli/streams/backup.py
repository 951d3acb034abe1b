"""``antiphon topics export`` and ``import``: histories as files, and back, also into another cluster."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

import msgspec
import typer

import antiphon
from antiphon.api.batch import Batch, Message
from antiphon.api.streams.starts import place_of
from antiphon.api.streams.topics import PolicyChanges
from antiphon.cli import output, running
from antiphon.cli.streams.backup_files import (
    SUFFIXES,
    BackupFile,
    BackupHeader,
    BackupRecord,
    complete,
    write_error,
    writer_for,
)
from antiphon.client.handle import Client
from antiphon.kernel.errors import PeerError, UsageError
from antiphon.streams.position import Position
from antiphon.streams.requests import Policy, TopicInfo

ORIGIN: Final = "antiphon-origin"
"""The header of an imported message: its former position, author, the author's number, order and time."""

WINDOW: Final = 1024
"""So many messages are under way when one is imported."""

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]
FileKind = Literal["jsonl", "parquet"]


@running.with_access()
def export_topics(
    topics: Annotated[list[str] | None, typer.Argument(metavar="[TOPIC]...", help="The topics.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All topics with a history.")] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The directory for the files, one for each topic.")] = Path(),
    kind: Annotated[FileKind, typer.Option("--format", help="Lines of JSON, or Parquet.")] = "jsonl",
    *,
    access: running.ServerAccess,
    json: Json = False,
) -> None:
    """Write the histories of topics to files, each up to where it is now; programs go on meanwhile.

    A file gets its name when it is complete. Example: antiphon topics export orders --out backup
    """
    if every == bool(topics):
        raise UsageError("name topics, or give --all")

    async def export() -> list[dict[str, Any]]:
        async with await running.connect_to_any(access) as client:
            names = [each.name for each in await client.topics.list()] if every else list(topics or ())
            return [await exported(client, name, out, kind) for name in names]

    show(antiphon.run(export()), json, "exported {messages:,} messages of {topic!r} to {file}")


@running.with_access()
def import_topics(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of an export.", show_default=False)],
    topic: Annotated[str | None, typer.Option(metavar="NAME", help="Another name for the topic of one file.")] = None,
    *,
    access: running.ServerAccess,
    json: Json = False,
) -> None:
    """Publish the messages of exported files again, in their order, into histories that have nothing else.

    An import that was interrupted goes on where it was. Example: antiphon topics import backup/orders.jsonl
    """
    if topic is not None and len(files) > 1:
        raise UsageError("--topic names the topic of one file; import the files one by one")
    # All are looked at before anything is published.
    found = [BackupFile(path) for path in files]

    async def bring() -> list[dict[str, Any]]:
        async with await running.connect_to_any(access) as client:
            return [await imported(client, each, topic or each.header.topic) for each in found]

    show(
        antiphon.run(bring()), json, "imported {messages:,} messages of {file} into {topic!r} ({earlier:,} were there)"
    )


def show(outcomes: list[dict[str, Any]], as_json: bool, sentence: str) -> None:
    """Print what was done."""
    if as_json:
        output.print_json(outcomes)
        return
    for outcome in outcomes:
        typer.echo(sentence.format(**outcome))


# Exporting.


async def exported(client: Client, topic: str, out: Path, kind: FileKind) -> dict[str, Any]:
    """Write the history of one topic, up to where it is now."""
    info = await client.topics.describe(topic)
    header = BackupHeader(topic, info.generation, info.end, msgspec.structs.asdict(info.policy))
    final = out / f"{quote(topic, safe='')}{SUFFIXES[kind]}"
    temporary = final.with_name(f"{final.name}.part")
    if final.exists():
        raise UsageError(f"{final} is there already; remove it, or choose another --out")
    count = 0
    try:
        out.mkdir(parents=True, exist_ok=True)
        writer = writer_for(kind, temporary, header)
        try:
            async for batch in batches_before(client, topic, info):
                records = [each for each in records_of(batch) if each.position < info.end]
                writer.add(records)
                count += len(records)
            writer.finish()
        finally:
            writer.close()
        complete(temporary, final)
    except OSError as error:
        raise write_error(final, error) from error
    finally:
        temporary.unlink(missing_ok=True)
    return {"topic": topic, "file": str(final), "messages": count, "end": str(Position(info.end, info.generation))}


async def batches_before(client: Client, topic: str, info: TopicInfo) -> AsyncIterator[Batch]:
    """The batches of a history that begin before its end as it is known."""
    if info.earliest >= info.end:
        return
    async for piece in client._live.streams.api.pieces(topic, place_of("earliest"), follow=False):
        if piece.end.generation != info.generation:
            raise PeerError(f"the history of {topic!r} was removed and made again meanwhile; export it again")
        for batch in piece.batches:
            if batch.first_offset < info.end:
                yield batch
        if piece.end >= info.end:
            return


def records_of(batch: Batch) -> Iterator[BackupRecord]:
    """The messages of a batch of a history."""
    columns, order, author = batch.columns, batch.order, int(batch.author)
    for place, message in enumerate(batch.messages(batch.first_offset)):
        yield BackupRecord(
            int(message.offset),
            author,
            int(message.author_sequence),
            order,
            int(message.timestamp_us),
            message.value,
            message.key,
            None if columns.about is None else list(columns.about),
            message.headers,
            0 if columns.expires_us is None else columns.expires_us[place],
        )


# Importing.


async def imported(client: Client, file: BackupFile, topic: str) -> dict[str, Any]:
    """Publish the messages of a file that are not there yet."""
    known = {each.name for each in await client.topics.list()}
    if topic not in known:
        await client.topics.create(topic, **changes_for(file.header.policy))
    after = await resumed_at(client, file, topic)
    count = earlier = expired = 0
    under_way: list[Any] = []
    order = ""
    for record in file.records():
        if record.position <= after:
            earlier += 1
            continue
        ttl_seconds = None if not record.expires_us else record.expires_us / 1e6 - time.time()
        if ttl_seconds is not None and ttl_seconds <= 0:
            expired += 1
            continue
        if order != record.order or len(under_way) >= WINDOW:
            # Messages of one order keep their sequence; those of another one might pass them.
            await settled(under_way)
            order = record.order
        under_way.append(published(client, topic, record, file.header.generation, ttl_seconds))
        count += 1
    await settled(under_way)
    return {"topic": topic, "file": str(file.path), "messages": count, "earlier": earlier, "expired": expired}


def published(client: Client, topic: str, record: BackupRecord, generation: int, ttl_seconds: float | None) -> Any:
    """A message on its way into another history."""
    was = (f"{generation}-{record.position}", record.author, record.author_sequence, record.order, record.timestamp_us)
    return client.publish(
        topic,
        record.value,
        # Without any order nothing would keep the sequence.
        order="fifo" if record.order == "none" else record.order,
        key=record.key,
        keys=record.keys,
        headers={**record.headers, ORIGIN: " ".join(str(each) for each in was).encode()},
        ttl_seconds=ttl_seconds,
        acks="quorum",
    )


async def settled(under_way: list[Any]) -> None:
    """Wait until all are on the disks of a majority."""
    waiting, under_way[:] = under_way[:], []
    for each in waiting:
        await each


async def resumed_at(client: Client, file: BackupFile, topic: str) -> int:
    """The position of the last message of a file that a history has already; -1 if it has nothing.

    It must be the last one of the history: otherwise messages of others are in it.
    """
    info = await client.topics.describe(topic)
    if info.end == 0:
        return -1
    last: Message | None = None
    if info.end > info.earliest:
        last = await anext(client.history(topic, Position(info.end - 1, info.generation), follow=False), None)
    if last is not None:
        origin = last.headers.get(ORIGIN, b"")
        for record in file.records():
            was = f"{file.header.generation}-{record.position} {record.author} {record.author_sequence} ".encode()
            if origin.startswith(was) and last.value == record.value:
                return record.position
    raise UsageError(
        f"the history of {topic!r} has messages that are not of {file.path}; import it with another name (--topic), or "
        f"remove that history (antiphon topics rm {topic})"
    )


def changes_for(policy: dict[str, int | float | bool]) -> PolicyChanges:
    """The policy of a file; what a later version has added is left out."""
    found = Policy(**{name: policy[name] for name in Policy.__struct_fields__ if name in policy})  # type: ignore[arg-type]
    return PolicyChanges(
        replicas=found.replicas,
        retention_bytes=found.retention_bytes,
        retention_seconds=found.retention_us / 1e6,
        hold=found.hold,
        replace_seconds=found.replace_us / 1e6,
        compact=found.compact,
    )
