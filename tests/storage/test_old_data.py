"""Data directories that earlier versions have written are read, and nodes continue on them."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon.api.batch import Batch
from antiphon.api.columns import Columns
from antiphon.client.idempotent_producer import ConflictError, Lane
from antiphon.kernel.message import ORDER_NAMES
from antiphon.storage.log import DurableLog
from antiphon.transport.codec import Codec
from tests.archives import SAFELY
from tests.node.support import running
from tests.storage.old_data.write import CLUSTER, FABRICS, HERE, ROWS, described, messages_of

VERSIONS = sorted(path.name.split(".")[0] for path in HERE.glob("*.tar.xz"))
ENDS = ("closed", "killed")


def unpacked(version: str, directory: str, scratch: Path) -> str:
    """One of the directories, to be used and spoiled."""
    with tarfile.open(HERE / f"{version}.tar.xz") as packed:
        members = [member for member in packed.getmembers() if member.name.startswith(f"{directory}/")]
        assert members, f"{version} has no {directory}"
        packed.extractall(scratch, members=members, **SAFELY)
    return str(scratch / directory)


def expected(version: str, fabric: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / f"{version}.json").read_text())[fabric]
    return found


def all_versions(test: Any) -> Any:
    for name, values in (("version", VERSIONS), ("fabric", FABRICS), ("end", ENDS)):
        test = pytest.mark.parametrize(name, values)(test)
    return test


@all_versions
def test_the_log_holds_every_message_as_it_was(version: str, fabric: str, end: str, tmp_path: Path) -> None:
    codec = Codec()
    with DurableLog.open(unpacked(version, f"{fabric}-{end}", tmp_path)) as log:
        for topic, wanted in expected(version, fabric)["topics"].items():
            found: list[dict[str, Any]] = []
            for entry in log.read_between(topic, 0, log.latest(topic)):
                publication = codec.decode_publication(entry.batch)
                order = ORDER_NAMES[publication.order]
                batch = Batch(topic, publication.source, order, entry.first_offset, publication.payload)
                found += [described(message) for message in batch.messages()]
            assert found == wanted


@all_versions
def test_a_node_continues(version: str, fabric: str, end: str, tmp_path: Path) -> None:
    async def test() -> None:
        data = unpacked(version, f"{fabric}-{end}", tmp_path)
        wanted = expected(version, fabric)
        async with antiphon.start(fabric=fabric, data=data, cluster=CLUSTER, durability="disk", keep=["room"]) as node:
            if fabric == "tree":
                assert node.identifier == wanted["identifier"], "a broker returns as who it was"
            else:
                assert node.identifier > wanted["identifier"], "each life has an identifier of its own"
            for topic, messages in wanted["topics"].items():
                valid = [message for message in messages if message["value"] != "expires soon"]
                assert await messages_of(node, topic, len(valid)) == valid
                await node.publish(topic, b"afterwards")
                (*_, last) = await messages_of(node, topic, len(valid) + 1)
                assert (last["value"], last["offset"]) == ("afterwards", len(messages))

    running(test)


@all_versions
def test_the_state_of_a_writer_continues(version: str, fabric: str, end: str, tmp_path: Path) -> None:
    async def test() -> None:
        data = unpacked(version, f"{fabric}-{end}", tmp_path)
        async with (
            antiphon.start(fabric=fabric, data=data, cluster=CLUSTER, keep=["room"]) as node,
            antiphon.connect(node.address, cluster=CLUSTER) as client,
        ):
            again = await Lane.open(client._live, "query", 0, 0, "causal", ["room"])
            for rows in ROWS:
                await again.write("room", Columns(1, 1, rows))
            await again.finish()
            assert again.skipped == len(ROWS), "what is in the log is not written again"
            other = await Lane.open(client._live, "query", 0, 0, "causal", ["room"])
            await other.write("room", Columns(1, 1, ROWS[0]))
            with pytest.raises(ConflictError):
                await other.write("room", Columns(1, 1, [b"something else"]))

    running(test)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_killed_node_of_a_cube_continues_from_its_checkpoint(version: str, tmp_path: Path) -> None:
    async def test() -> None:
        data = unpacked(version, "cube-killed", tmp_path)
        async with antiphon.start(data=data, cluster=CLUSTER, keep=["room"]) as node:
            assert node._live.process is not None
            topic = node._live.topics["room"]
            # Six of the node itself, one of which was passed over, and three of the other node.
            assert [topic.logged.has(0, number) for number in (1, 6, 7)] == [True, True, False]
            assert [topic.logged.has(1, number) for number in (1, 3, 4)] == [True, True, False]
            counted = {int(key) for key in node._live.process.frontier_keys(topic.number)}
            assert counted, "what an earlier life has delivered is past"

    running(test)
