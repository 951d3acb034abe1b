"""Nodes with a data directory: what they keep, replay and promise."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import Node, PeerError, UsageError
from antiphon.api.lifecycle import Starting
from antiphon.storage.log import DurableLog
from tests.node.support import child, cluster, outcome, running, take, take_values, until


async def publish_numbers(node: Node, first: int, end: int, batch: int = 10) -> None:
    """Publish numbers on ``room``, so many per batch."""
    for number in range(first, end):
        waiting = node.publish("room", b"%d" % number)
        if number % batch == batch - 1:
            await waiting
    await node.flush()


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def joined_to(node: Node, directory: Path, **settings: Any) -> Starting[Node]:
    """Another node of a cluster, with a log."""
    return antiphon.start(join=[node.address], data=str(directory / "data"), **settings)


@pytest.mark.parametrize("durability", ["disk", "memory"])
def test_offsets_go_on_after_a_restart_and_all_can_be_replayed(tmp_path: Path, durability: str) -> None:
    async def test() -> None:
        data = str(tmp_path / "data")
        for life in range(3):
            async with antiphon.start(data=data, durability=durability) as node:
                live = await node.subscribe("room").ready()
                await publish_numbers(node, life * 100, life * 100 + 100)
                messages = await take(live, 100)
                assert [message.offset for message in messages] == list(range(life * 100, life * 100 + 100))
                replay = await node.subscribe("room", "earliest").ready()
                everything = await take(replay, life * 100 + 100)
                assert [message.value for message in everything] == numbers(0, life * 100 + 100)
                assert [message.offset for message in everything] == list(range(life * 100 + 100))

    running(test)


def test_a_replay_starts_where_it_is_told(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(1, data=str(tmp_path / "data")) as (node,):
            await publish_numbers(node, 0, 50)
            middle = datetime.now(UTC)
            # Times of the log have microseconds: what follows must not be appended in the same one.
            await asyncio.sleep(0.002)
            await publish_numbers(node, 50, 100)
            for start, first in ((0, 0), (7, 7), (99, 99), ("earliest", 0), (middle, 50)):
                async with node.subscribe("room", start) as subscription:
                    assert await take_values(subscription, 100 - first) == numbers(first, 100)

    running(test)


def test_latest_and_times_to_come_start_with_what_comes(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(1, data=str(tmp_path / "data")) as (node,):
            await publish_numbers(node, 0, 50)
            later = datetime.now(UTC) + timedelta(days=1)
            subscriptions = [await node.subscribe("room", start).ready() for start in ("latest", 50, later)]
            await publish_numbers(node, 50, 60)
            for subscription in subscriptions:
                assert await take_values(subscription, 10) == numbers(50, 60)
            ahead = await node.subscribe("room", 65).ready()
            await publish_numbers(node, 60, 70)
            assert await take_values(ahead, 5) == numbers(65, 70)

    running(test)


@pytest.mark.parametrize("durability", ["disk", "memory"])
def test_a_replay_while_others_publish_has_no_gap_and_no_duplicate(tmp_path: Path, durability: str) -> None:
    async def test() -> None:
        async with cluster(1) as (publisher,), joined_to(publisher, tmp_path, durability=durability) as node:
            await node.subscribe("room").ready()
            publishing = asyncio.create_task(publish_numbers(publisher, 0, 20_000, 100))
            await until(lambda: node._live.topics["room"].visible_offset > 500)
            subscriptions = [await node.subscribe("room", start).ready() for start in (0, "earliest", 317)]
            called: list[bytes] = []
            node.subscribe("room", "earliest", callback=lambda message: called.append(message.value))
            for subscription, first in zip(subscriptions, (0, 0, 317), strict=True):
                messages = await take(subscription, 20_000 - first)
                assert [message.value for message in messages] == numbers(first, 20_000)
                assert [message.offset for message in messages] == list(range(first, 20_000))
            await publishing
            await until(lambda: len(called) == 20_000)
            assert called == numbers(0, 20_000)

    running(test)


def test_a_pattern_replays_topics_that_only_the_log_knows(tmp_path: Path) -> None:
    async def test() -> None:
        data = str(tmp_path / "data")
        async with antiphon.start(data=data) as node:
            for topic in ("orders.1", "orders.2", "other"):
                await node.publish(topic, topic.encode())
        async with antiphon.start(data=data) as node:
            subscription = await node.subscribe("orders.*", "earliest").ready()
            assert sorted(await take_values(subscription, 2)) == [b"orders.1", b"orders.2"]

    running(test)


def test_a_start_that_retention_removed_is_an_error_that_names_the_earliest(tmp_path: Path) -> None:
    async def test() -> None:
        data = str(tmp_path / "data")
        async with antiphon.start(data=data) as node:
            for number in range(10):
                await node.publish("room", b"%d" % number + bytes(1000))
        async with antiphon.start(data=data, retention_bytes=3000) as node:
            log = node._live.store
            assert log is not None
            await until(lambda: log.earliest("room") > 0)
            earliest = await node.subscribe("room", "earliest").ready()
            kept = (await take(earliest, 1))[0].offset
            assert 5 < kept < 10
            removed = await node.subscribe("room", 0).ready()
            error = await outcome(anext(aiter(removed)))
            assert isinstance(error, UsageError) and f"still there is {kept}" in str(error)

    running(test)


def test_a_node_without_a_log_replays_nothing() -> None:
    async def test() -> None:
        async with cluster(1) as (node,):
            for start in (0, datetime.now(UTC)):
                with pytest.raises(UsageError, match="data directory"):
                    node.subscribe("room", start)
            # Another node may keep a history of the topic, so the answer comes later.
            with pytest.raises(UsageError, match="data directory"):
                await node.subscribe("room", "earliest").ready()

    running(test)


def test_a_data_directory_has_one_node_at_a_time(tmp_path: Path) -> None:
    async def test() -> None:
        data = str(tmp_path / "data")
        async with antiphon.start(data=data) as node:
            with pytest.raises((UsageError, PeerError)):
                await antiphon.start(data=data)
            await node.publish("room", b"still works")

    running(test)


class FailingDisk:
    """Lets the commits of a log fail until it is repaired."""

    def __init__(self, log: DurableLog) -> None:
        self._commit = log.commit
        self.failures = 0
        self.is_broken = True
        log.commit = self.commit  # type: ignore[method-assign]

    def commit(self) -> int:
        if self.is_broken:
            self.failures += 1
            raise PeerError("the disk is broken on purpose")
        return self._commit()


def test_while_the_disk_fails_publishers_wait_and_health_says_so(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(2) as (other, _), joined_to(other, tmp_path) as node:
            local = await node.subscribe("room").ready()
            remote = await other.subscribe("room").ready()
            assert node._live.status.troubles() == []
            assert node._live.store is not None
            disk = FailingDisk(node._live.store)
            waiting = node.publish("room", b"wait for me")
            await until(lambda: disk.failures >= 3)
            assert not waiting.done() and local._live.queued == 0
            assert node._live.status.troubles() == ["disk: the disk is broken on purpose"]
            disk.is_broken = False
            await waiting
            assert await take_values(local, 1) == await take_values(remote, 1) == [b"wait for me"]
            assert node._live.status.troubles() == []

    running(test)


def test_a_node_whose_disk_stays_broken_can_be_closed(tmp_path: Path) -> None:
    async def test() -> None:
        node = await antiphon.start(data=str(tmp_path / "data"), leave_seconds=0.5)
        await node.publish("room", b"on disk")
        assert node._live.store is not None
        disk = FailingDisk(node._live.store)
        waiting = asyncio.ensure_future(node.publish("room", b"never on disk"))
        await until(lambda: disk.failures >= 1)
        assert "broken on purpose" in str(await outcome(node.close()))
        assert isinstance(await outcome(waiting), PeerError)
        await node.until_stopped()

    running(test)


def test_what_fails_after_a_commit_stops_the_node_and_tells_all_who_wait(tmp_path: Path) -> None:
    async def test() -> None:
        node = await antiphon.start(data=str(tmp_path / "data"), leave_seconds=0.5)
        subscription = await node.subscribe("room").ready()
        await node.publish("room", b"good")
        assert node._live.disk.commit is not None

        def fail() -> None:
            raise ValueError("broken on purpose")

        node._live.disk.commit.then(fail)
        assert "broken on purpose" in str(await outcome(node.publish("room", b"never shown")))
        assert "broken on purpose" in str(await outcome(node.until_stopped()))
        assert await take_values(subscription, 1) == [b"good"]
        assert "broken on purpose" in str(await outcome(anext(aiter(subscription))))

    running(test)


def test_a_subscriber_with_a_log_holds_credit_until_the_disk_has_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(1, window=2) as (publisher,), joined_to(publisher, tmp_path) as node:
            subscription = await node.subscribe("room").ready()
            await publisher.publish("room", b"0")
            await take(subscription, 1)
            assert node._live.store is not None
            disk = FailingDisk(node._live.store)
            publishing = asyncio.create_task(publish_numbers(publisher, 1, 20_000, 1))
            await until(lambda: publisher._live.outboxes["room"].waits > 0 and disk.failures > 0)
            assert not publishing.done() and subscription._live.queued == 0
            disk.is_broken = False
            assert await take_values(subscription, 19_999) == numbers(1, 20_000)
            await publishing

    running(test)


@pytest.mark.parametrize("accepted_at_least", [1, 200])
def test_what_was_accepted_before_a_kill_is_in_the_log(tmp_path: Path, accepted_at_least: int) -> None:
    async def test() -> int:
        async with child("publish", f"data={tmp_path / 'data'}", "durability=disk") as node:
            for number in range(accepted_at_least):
                assert await node.line() == f"accepted {number}"
            await node.kill()
            accepted = accepted_at_least
            while line := await node.line():
                # The last line may be torn.
                accepted += line == f"accepted {accepted}"
            return accepted

    accepted = running(test)

    async def read() -> None:
        async with antiphon.start(data=str(tmp_path / "data")) as node:
            replay = await node.subscribe("room", "earliest").ready()
            assert await take_values_up_to(replay, accepted) == numbers(0, accepted)

    running(read)


async def take_values_up_to(subscription: antiphon.Subscription, count: int) -> list[bytes]:
    """So many values; more may follow."""
    values: list[bytes] = []
    async for message in subscription:
        values.append(message.value)
        if len(values) == count:
            break
    return values
