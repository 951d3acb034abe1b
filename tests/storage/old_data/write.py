"""Writes data directories, two per fabric, of a node that was closed and of one that was killed.

They stand for the data of users: today's code must open them and continue on them, whatever it calls things.
``version_1`` was written once. When the format gets something new, write another set and keep the old ones:

    python -m tests.storage.old_data.write NAME

writes ``NAME.tar.xz``, and ``NAME.json`` with what applications saw, beside this module.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import antiphon
from antiphon import Message, Node
from antiphon.api.batch_codec import encode_columns
from antiphon.api.columns import Columns
from antiphon.client.idempotent_producer import Lane, chained
from antiphon.sessions.client_messages import LaneOf, PublishRequest
from antiphon.sessions.writers import number_of

HERE = Path(__file__).parent
FABRICS = ("cube", "tree", "gossip")
CLUSTER = "old-data"
"""A name of its own, so that nobody else answers at the addresses that the nodes remember."""

EXPIRES_SECONDS = 60.0
"""Long enough to be seen while the directory is written, and over when a test reads it."""

ROWS = ([b"row 1", b"row 2"], [b"row 3"])
"""What the writer has written, piece by piece."""


@asynccontextmanager
async def two_nodes(fabric: str, data: str) -> AsyncIterator[list[Node]]:
    """A node with the data directory, and another one, except in a tree, whose brokers return under their addresses."""
    settings: dict[str, Any] = {"fabric": fabric, "cluster": CLUSTER}
    async with antiphon.start(data=data, durability="disk", keep=["room", "orders.*"], **settings) as node:
        if fabric == "tree":
            yield [node]
        else:
            async with antiphon.start(join=[node.address], **settings) as other:
                yield [node, other]


async def write_messages(nodes: list[Node]) -> None:
    """Messages of nodes, of a client and of a writer, with all that messages may have."""
    node, other = nodes[0], nodes[-1]
    for number in range(3):
        await node.publish("room", b"from the node %d" % number, order="causal")
        await other.publish("room", b"from the other %d" % number, order="fifo")
    async with antiphon.connect(node.address, cluster=CLUSTER) as client:
        await client.publish("orders.1", b"with headers", headers={"name": b"value"}, order="causal")
        total = "causal" if node._live.settings.fabric == "gossip" else "total"
        await client.publish("orders.1", b"with a key", key="anna", order=total)
        await client.publish("orders.2", b"with keys", keys=["anna", "ben"], order=total)
        await client.publish("orders.2", b"expires soon", ttl_seconds=EXPIRES_SECONDS, order="none")
        lane = await Lane.open(client._live, "query", 0, 0, "causal", ["room"])
        for rows in ROWS:
            await lane.write("room", Columns(1, 1, rows))
        await lane.finish()
        # Handed in once more, as if the answer had been lost: it takes a number and is not shown.
        digest = chained(0, "room", "causal", Columns(1, 1, ROWS[0]))
        payload = encode_columns(Columns(1, 1, ROWS[0]))
        again = LaneOf("query", 0, digest, 0)
        await client._live.request(
            lambda number: PublishRequest(number, "room", "causal", payload, (), number_of(0, 1), again)
        )


def described(message: Message) -> dict[str, Any]:
    """What an application sees of a message."""
    return {
        "value": message.value.decode(),
        "offset": message.offset,
        "keys": [key.decode() for key in message.keys],
        "headers": {name: value.decode() for name, value in message.headers.items()},
        "publisher": message.publisher,
        "sequence": message.sequence,
        "author": message.author,
        "author_sequence": message.author_sequence,
        "order": message.order,
        "timestamp_us": message.timestamp_us,
    }


async def messages_of(node: Node, topic: str, count: int) -> list[dict[str, Any]]:
    """The first messages of a topic, as an application sees them that reads it from the beginning."""
    found: list[dict[str, Any]] = []
    async for message in node.subscribe(topic, "earliest"):
        found.append(described(message))
        if len(found) == count:
            break
    return found


async def write_both(fabric: str, scratch: Path) -> dict[str, Any]:
    """Write the data directory of a node, and a copy of it as if the node had been killed; what applications saw."""
    data, killed = scratch / f"{fabric}-closed", scratch / f"{fabric}-killed"
    expected: dict[str, Any] = {"topics": {}}
    async with two_nodes(fabric, str(data)) as nodes:
        await write_messages(nodes)
        node = nodes[0]
        expected["identifier"] = node.identifier
        for topic, count in (("room", 9), ("orders.1", 2), ("orders.2", 2)):
            expected["topics"][topic] = await messages_of(node, topic, count)
        assert node._live.disk.commit is not None
        await node._live.disk.commit.until_committed()
        shutil.copytree(data, killed, ignore=shutil.ignore_patterns("*-shm"))
    return expected


def main(name: str) -> None:
    """Write the directories of all fabrics, packed, and what they hold."""
    expected: dict[str, Any] = {}
    with TemporaryDirectory() as scratch:
        for fabric in FABRICS:
            expected[fabric] = asyncio.run(write_both(fabric, Path(scratch)))
        with tarfile.open(HERE / f"{name}.tar.xz", "w:xz") as packed:
            for path in sorted(Path(scratch).glob("*/*")):
                packed.add(path, path.relative_to(scratch).as_posix(), filter=anonymous)
    (HERE / f"{name}.json").write_text(json.dumps(expected, indent=1) + "\n")


def anonymous(file: tarfile.TarInfo) -> tarfile.TarInfo:
    """A packed file without its owner."""
    file.uid = file.gid = 0
    file.uname = file.gname = ""
    return file


if __name__ == "__main__":
    main(sys.argv[1])
