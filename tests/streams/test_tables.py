"""Compacted histories and tables: the newest message of each key survives retention, at every replica."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import antiphon
from antiphon import ClosedError, PeerError
from antiphon.streams.entries import DATA, IndexEntry
from antiphon.streams.leaders.leading import PAYLOAD_BYTES, fitting
from antiphon.streams.retention import LastValue, LastValues, newest_of
from tests.node.support import running, take_values, until
from tests.streams.test_live_streams import FABRICS, begun, cluster, leader_of, streams_of


def test_the_newest_message_of_each_key_stays_in_the_order_of_positions() -> None:
    entries = [IndexEntry(1, DATA, 0, 2, 1, 1), IndexEntry(1, DATA, 2, 0), IndexEntry(1, DATA, 2, 3, 1, 2)]
    keys = {0: [b"a", b"b"], 2: [b"a", b"", b"c"]}
    found = newest_of(entries, lambda entry: keys[entry.position])
    assert found == {b"a": (entries[2], 0), b"b": (entries[0], 1), b"c": (entries[2], 2)}
    assert newest_of(entries, lambda _: None) is None
    values = LastValues([LastValue(b"a", 2, payload=b"xx"), LastValue(b"b", 1, payload=b"x")])
    assert (values.size, [value.position for value in values.after(0, 0)]) == (5, [1])
    assert [value.position for value in values.after(2, 100)] == [2]
    values.apply([LastValue(b"a", 7, payload=b"x"), LastValue(b"b", 8)])
    assert values.size == 2
    copy = LastValues.restored(values.snapshot())
    assert copy.after(0, 100) == values.after(0, 100) == [LastValue(b"a", 7, payload=b"x")]
    assert LastValues.restored(b"").by_key == {}


def test_one_message_to_a_replica_has_no_more_entries_than_fit() -> None:
    long = IndexEntry(1, DATA, 0, payload=bytes(PAYLOAD_BYTES))
    assert fitting([long, long]) == [long]
    assert fitting([]) == []


@pytest.mark.parametrize("fabric", FABRICS)
def test_a_table_is_the_same_for_everybody_and_whole_after_retention(fabric: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path, fabric) as nodes, AsyncExitStack() as stack:
            client = await stack.enter_async_context(antiphon.connect([node.address for node in nodes]))
            made = await client.topics.create("prices", replicas=3, retention_bytes=4000, compact=True)
            assert made.policy.compact
            table = await stack.enter_async_context(client.table("prices"))
            assert await table.get("k0") is None and len(table) == 0
            changes = table.changes()
            first = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(0)
            for number in range(120):
                await client.publish(
                    "prices", b"%d" % number + bytes(100), key=f"k{number % 30 if number > 30 else number}"
                )
            await client.publish("prices", b"", key="k7")
            last = await client.publish("prices", b"new", key="k8", acks="quorum")
            newest = await table.get("k8", after=last)
            assert newest is not None and (newest.value, newest.position) == (b"new", last.position)
            assert await table.get("k7") is None and len(table) == 30
            assert (await first).value.startswith(b"0\0")
            second = await anext(changes)
            assert second.value.startswith(b"1\0") and second.position == 1
            replicas = [streams_of(node).by_topic["prices"] for node in nodes]
            await until(lambda: all(0 < each.kept().size <= 4000 for each in replicas))
            await until(lambda: len({each.kept().earliest for each in replicas}) == 1)
            assert all(len(each.replica.log.last_values.by_key) >= 20 for each in replicas)
            await leader_of(nodes, "prices").abandon()
            # A reader that comes now has the same.
            other = await stack.enter_async_context(antiphon.connect(client.address))
            again = await stack.enter_async_context(other.table("prices"))
            before, after = table.items(), again.items()
            assert {key: (each.value, each.position) for key, each in before.items()} == {
                key: (each.value, each.position) for key, each in after.items()
            }
            positions = [int(message.position or 0) async for message in other.history("prices", follow=False)]
            assert positions == sorted(set(positions)) and positions[-1] == last.position
            # Reading goes on from any position, removed or not, and nothing counts as missed.
            room = other.subscribe("prices", start=antiphon.Position(1, last.generation))
            assert (await take_values(room, 1))[0][:3].rstrip(b"\0").isdigit() and room.gaps == 0
            await table.close()
            with pytest.raises(ClosedError):
                await table.get("k8")
            with pytest.raises(PeerError, match="has no history"):
                await other.table("nothing").ready()

    running(test)


def test_a_replica_that_was_away_gets_the_newest_values_with_a_snapshot(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as nodes, AsyncExitStack() as stack:
            client = await stack.enter_async_context(antiphon.connect([node.address for node in nodes]))
            await client.topics.create("prices", replicas=3, retention_bytes=2000, compact=True)
            await client.publish("prices", b"first", acks="quorum")
            leader = leader_of(nodes, "prices")
            away = next(node for node in nodes if node is not leader)
            place = nodes.index(away)
            await away.abandon()
            for number in range(60):
                await client.publish("prices", b"%d" % number + bytes(100), key=f"k{number % 20}")
            (live,) = [each for each in streams_of(leader).replicas.values() if each.topic == "prices"]
            await until(lambda: 0 < live.kept().size <= 2000)
            live.replica.log.compact()
            back = await begun(tmp_path / str(place), "cube", stack, leader.address)
            await until(lambda: streams_of(back).by_topic["prices"].kept() == live.kept())
            mine = streams_of(back).by_topic["prices"].replica.log.last_values
            assert mine.by_key == live.replica.log.last_values.by_key and len(mine.by_key) == 20

    running(test)
