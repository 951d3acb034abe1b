"""Consumers beyond one topic and one start: patterns, times, ephemeral ones; looked at, and reset."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import antiphon
from antiphon import Client, PeerError, Position, UsageError
from antiphon.cli.streams.consumers import place_in
from antiphon.streams.commands import (
    Acknowledge,
    ConsumerSettings,
    CreateConsumer,
    JoinGroup,
    LeaveGroup,
    ResetConsumer,
    Return,
)
from antiphon.streams.consumers import ConsumerTable
from tests.node.support import running, take_values, until
from tests.streams.test_live_streams import FABRICS, cluster, leader_of, take


def test_a_consumer_is_reset_only_without_members_and_an_ephemeral_one_ends_with_its_last() -> None:
    table = ConsumerTable()
    table.apply(CreateConsumer("work", 0, ConsumerSettings()))
    table.apply(CreateConsumer("mine", 0, ConsumerSettings(is_ephemeral=True)))
    for name in ("work", "mine"):
        table.apply(JoinGroup(name, 1))
        table.apply(JoinGroup(name, 2))
    table.apply(Acknowledge("work", [0, 4]))
    table.apply(Return("work", 5))
    table.apply(ResetConsumer("work", 1))
    assert table.by_name["work"].done_below == 5, "members hold messages of before"
    for name in ("work", "mine"):
        table.apply(LeaveGroup(name, 1))
    assert set(table.by_name) == {"work", "mine"}
    for name in ("work", "mine"):
        table.apply(LeaveGroup(name, 2))
    assert set(table.by_name) == {"work"}
    assert table.by_name["work"].redelivered == 1
    copy = ConsumerTable()
    copy.restore(table.snapshot())
    assert copy.snapshot() == table.snapshot() and copy.by_name["work"].redelivered == 1
    table.pass_over(2)
    table.apply(ResetConsumer("work", 1))
    work = table.by_name["work"]
    assert (work.done_below, work.returns, work.redelivered) == (2, {}, 0), "not before what is kept"
    table.apply(ResetConsumer("gone", 1))


def test_a_place_is_written_as_an_end_a_position_or_a_time() -> None:
    assert (place_in("latest"), place_in("12")) == ("latest", 12)
    assert place_in("7-12") == Position(12, 7)
    assert place_in("2026-11-18T14:00:00+00:00") == datetime(2026, 11, 18, 14, tzinfo=UTC)
    with pytest.raises(UsageError, match="'soon' is no place"):
        place_in("soon")


@pytest.mark.parametrize("fabric", FABRICS)
def test_a_consumer_is_looked_at_and_reset_and_begins_at_times(fabric: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path, fabric) as nodes, antiphon.connect(nodes[0].address) as client:
            await client.topics.create("jobs", replicas=3)
            for number in range(3):
                await client.publish("jobs", b"%d" % number, acks="quorum")
            await asyncio.sleep(0.01)
            between = datetime.now(UTC)
            for number in range(3, 6):
                await client.publish("jobs", b"%d" % number, acks="quorum")
            work = await client.consume("jobs", "workers", ack_seconds=60, max_deliveries=9).ready()
            first, second = await work.fetch(2, timeout=90)
            await first.ack()
            await second.nack(delay_seconds=60)
            with pytest.raises(PeerError, match="has members; end its programs"):
                await client.topics.reset_consumer("jobs", "workers")
            status = next(each for node in nodes for each in node._live.status.figures()["consumers"])
            assert status == {
                "topic": "jobs",
                "consumer": "workers",
                "lag": 5,
                "handed_out": 5,
                "members": 1,
                "redelivered": 0,
                "missed": 0,
            }
            await work.close()

            async def info() -> tuple[int, ...]:
                (each,) = (await client.topics.describe("jobs")).consumers
                return (each.members, each.redelivered, each.done_below, each.ack_us, each.max_deliveries)

            async def come_back() -> bool:
                return (await info())[:2] == (0, 4)

            while not await come_back():
                await asyncio.sleep(0.02)
            assert await info() == (0, 4, 1, 60_000_000, 9), "the one that was given back waits"
            await client.topics.reset_consumer("jobs", "workers", between)
            again = await client.consume("jobs", "workers", ack_seconds=60, max_deliveries=9).ready()
            assert [message.value for message in await take(again, 3)] == [b"3", b"4", b"5"]
            await again.close()
            late = await client.consume("jobs", "late", start=between).ready()
            assert [message.value for message in await take(late, 3)] == [b"3", b"4", b"5"]
            assert [each.value async for each in client.history("jobs", between, follow=False)] == [b"3", b"4", b"5"]
            beyond = datetime.now(UTC) + timedelta(hours=1)
            assert [each async for each in client.history("jobs", beyond, follow=False)] == []
            with pytest.raises(PeerError, match="has no consumer 'nobody'"):
                await client.topics.reset_consumer("jobs", "nobody")
            with pytest.raises(UsageError, match="needs a time zone"):
                client.consume("jobs", "x", start=datetime(2026, 1, 1))
            await late.close()

    running(test)


def test_an_ephemeral_consumer_ends_with_its_program_also_when_the_leader_is_killed(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as nodes, AsyncExitStack() as stack:
            addresses = [node.address for node in nodes]
            client = await stack.enter_async_context(antiphon.connect(addresses))
            await client.topics.create("jobs", replicas=3)
            await client.publish("jobs", b"one", acks="quorum")
            mine = await stack.enter_async_context(client.consume("jobs"))
            assert [message.value for message in await take(mine, 1)] == [b"one"]
            with pytest.raises(UsageError, match="a consumer on a pattern has a name"):
                client.consume("jobs.*")

            async def consumers(asking: Client) -> list[bool]:
                return [each.is_ephemeral for each in (await asking.topics.describe("jobs")).consumers]

            assert await consumers(client) == [True]
            await leader_of(nodes, "jobs").abandon()
            await client.publish("jobs", b"two", acks="quorum")
            assert [message.value for message in await take(mine, 1)] == [b"two"]
            async with antiphon.connect(addresses) as other:
                await mine.close()
                while await consumers(other):
                    await asyncio.sleep(0.02)

    running(test)


@pytest.mark.parametrize("fabric", FABRICS)
def test_a_consumer_on_a_pattern_takes_topics_as_they_come_and_go(fabric: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path, fabric) as nodes, antiphon.connect(nodes[0].address) as client:
            for topic in ("jobs.a", "jobs.b", "other"):
                await client.topics.create(topic, replicas=3)
                await client.publish(topic, topic.encode(), acks="quorum")
            async with client.consume("jobs.*", "workers") as work:
                assert {message.value for message in await take(work, 2)} == {b"jobs.a", b"jobs.b"}
                assert await work.fetch(1, timeout=0.05) == []
                await client.topics.create("jobs.c", replicas=3)
                await client.publish("jobs.c", b"new", acks="quorum")
                assert [message.topic for message in await take(work, 1)] == ["jobs.c"]
                await client.topics.remove("jobs.a")
                await until(lambda: "jobs.a" not in work._members)  # type: ignore[attr-defined]
                await client.publish("jobs.b", b"more", acks="quorum")
                assert [message.value for message in await take(work, 1)] == [b"more"]
            room = await client.subscribe("other", start="earliest").ready()
            assert await take_values(room, 1) == [b"other"]

    running(test)
