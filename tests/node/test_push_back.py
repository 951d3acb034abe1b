"""Large messages, slow disks and full ones: publishers wait, those who do not are refused, and the node lives."""

from __future__ import annotations

import asyncio
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import Node, OverloadedError, PeerError, SlowConsumerError, UsageError
from antiphon.api.batch import Batch
from antiphon.api.batch_codec import encode_columns
from antiphon.api.columns import Columns
from antiphon.api.topic_state import BytesInFlight
from antiphon.membership.heartbeats import FailureDetector
from antiphon.node import status
from antiphon.node.gateway import client_relay as relay
from antiphon.node.loop import NodeLoop
from antiphon.node.settings import settings_from
from antiphon.sessions import backlog
from antiphon.sessions.backlog import Backlog, Backlogs
from antiphon.sessions.client_messages import PublishRequest, SubscribeRequest
from antiphon.sessions.unacked import KEPT_BYTES_AT_MOST, WINDOW_BYTES, UnackedBatch, UnackedBatches
from antiphon.storage.log import DurableLog
from antiphon.transport.links import split_address
from tests.node.strangers import attacking, frames
from tests.node.support import child, cluster, outcome, running, take_exactly, tree, until
from tests.node.test_hostile import CLIENT

KIB, MIB = 1 << 10, 1 << 20
PENDING = 2 * MIB
"""What may wait for the disk in these tests; messages are of 100 kB, so it is twenty of them."""

DURABILITIES = ("disk", "memory")


class BadDisk:
    """A disk that is slow, full or well: what it does to the commits of a log."""

    def __init__(self, log: DurableLog | None) -> None:
        assert log is not None
        self._log, self._commit, self._append = log, log.commit, log.append
        self.seconds_per_commit = 0.0
        self._may_commit = threading.Event()
        self._may_commit.set()
        self.is_full = False
        self.failures = 0
        self.largest_pending = 0
        self.largest_batch = 0
        log.commit = self.commit  # type: ignore[method-assign]
        log.append = self.append  # type: ignore[assignment, method-assign]

    def append(self, topic: str, count: int, at_us: int, batch: bytes, fact: tuple[str, bytes] | None = None) -> int:
        self.largest_batch = max(self.largest_batch, len(batch))
        offset = self._append(topic, count, at_us, batch, fact)
        self.largest_pending = max(self.largest_pending, self._log.pending_bytes)
        return offset

    @contextmanager
    def held(self) -> Iterator[None]:
        """Commit nothing meanwhile."""
        self._may_commit.clear()
        try:
            yield
        finally:
            self._may_commit.set()

    def commit(self) -> int:
        # This is the thread of commits; the node runs on meanwhile.
        self._may_commit.wait()
        time.sleep(self.seconds_per_commit)
        if self.is_full:
            self.failures += 1
            raise PeerError("the disk is full on purpose")
        return self._commit()


def value_of(name: str, number: int, size: int = 100 * KIB) -> bytes:
    return f"{name} {number} ".encode() + bytes(size)


async def publish_some(place: Any, name: str, count: int, topic: str = "room", size: int = 100 * KIB) -> None:
    for number in range(count):
        await place.publish(topic, value_of(name, number, size))


async def heard(subscription: antiphon.Subscription, count: int) -> set[tuple[str, int]]:
    """Whose messages come, and which; each once."""
    names = [message.value.split(b" ", 2)[:2] for message in await take_exactly(subscription, count)]
    found = {(name.decode(), int(number)) for name, number in names}
    assert len(found) == count
    return found


async def publish_until_refused(node: Node, name: str) -> int:
    """Do not wait for anything, as a careless publisher; how many were taken before one was refused."""
    taken = 0
    with suppress(OverloadedError):
        while taken < 100_000:
            node.publish("room", value_of(name, taken))
            taken += 1
            if taken % 10 == 0:
                await asyncio.sleep(0)
    assert taken < 100_000, "nobody pushed back"
    return taken


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_full_disk_makes_publishers_wait_and_the_node_lives(tmp_path: Path, durability: str) -> None:
    """Twenty publishers that wait, half of them clients, and one that does not."""

    async def test() -> None:
        settings = {"data": str(tmp_path / "data"), "durability": durability, "pending_bytes": PENDING}
        async with cluster(1, **settings) as (node,):
            everything = await node.subscribe("room").ready()
            clients = [await antiphon.connect(node.address) for _ in range(10)]
            await node.publish("room", b"before")
            disk = BadDisk(node._live.store)
            disk.is_full = True
            places: list[Any] = [*clients, *[node] * 10]
            waiting = [asyncio.create_task(publish_some(each, f"p{at}", 10)) for at, each in enumerate(places)]
            careless = await publish_until_refused(node, "careless")
            await until(lambda: disk.failures >= 2)
            assert not any(each.done() for each in waiting) and node._live.failure is None
            assert disk.largest_pending <= PENDING + 200 * KIB
            figures = node._live.status.figures()
            assert "the disk is full on purpose" in figures["troubles"][0]
            assert "the disk" in figures["topics"]["room"]["blocked_by"][0]
            disk.is_full = False
            await asyncio.gather(*waiting)
            expected = {(f"p{at}", number) for at in range(20) for number in range(10)}
            expected |= {("careless", number) for number in range(careless)}
            assert (await take_exactly(everything, 1))[0].value == b"before"
            assert await heard(everything, len(expected)) == expected
            for client in clients:
                await client.close()
            assert node._live.status.troubles() == []
        async with antiphon.start(data=str(tmp_path / "data")) as node:
            kept = await node.subscribe("room", 1).ready()
            assert await heard(kept, len(expected)) == expected

    running(test)


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_slow_disk_makes_publishers_wait_and_the_node_lives(tmp_path: Path, durability: str) -> None:
    """In the mode ``memory`` a message is accepted at once, as long as not too many of them wait for the disk."""

    async def test() -> None:
        settings = {"data": str(tmp_path / "data"), "durability": durability, "pending_bytes": MIB}
        async with cluster(1, **settings) as (node,):
            everything = await node.subscribe("room").ready()
            store = node._live.store
            assert store is not None
            disk = BadDisk(store)
            disk.seconds_per_commit = 0.05
            async with antiphon.connect(node.address) as client:
                with disk.held():
                    places = enumerate([client, node] * 10)
                    publishing = [asyncio.create_task(publish_some(place, f"p{at}", 10)) for at, place in places]
                    await until(lambda: store.pending_bytes >= MIB)
                    late = asyncio.create_task(publish_some(node, "late", 1))
                    await until(lambda: node._live.outboxes["room"].is_blocked)
                    assert "the disk" in node._live.status.figures()["topics"]["room"]["blocked_by"][0]
                    assert not late.done() and not any(each.done() for each in publishing)
                await asyncio.gather(*publishing, late)
            # Below the bound the node and its client may each begin one more batch.
            assert disk.largest_pending < MIB + 2 * disk.largest_batch
            assert node._live.failure is None
            expected = {("late", 0)} | {(f"p{at}", each) for at in range(20) for each in range(10)}
            assert await heard(everything, len(expected)) == expected

    running(test)


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("fabric", ["cube", "tree", "gossip"])
def test_a_slow_disk_elsewhere_slows_those_who_send_to_it(tmp_path: Path, durability: str, fabric: str) -> None:
    """A node cannot refuse what others have published; they wait for its acknowledgements, in bytes too."""
    window_bytes = MIB
    settings: dict[str, Any] = {"window_bytes": window_bytes, "pending_bytes": PENDING}
    kept: dict[str, Any] = {"data": str(tmp_path / "data"), "durability": durability}

    async def check(here: Node, there: Node) -> None:
        everything = await there.subscribe("room").ready()
        disk = BadDisk(there._live.store)
        await here.publish("room", value_of("here", 0))
        disk.is_full = True
        publishing = asyncio.create_task(publish_from(here, 1, 400))
        await until(lambda: disk.failures >= 3 and here._live.outboxes["room"].is_blocked)
        await asyncio.sleep(0.2)
        assert there._live.failure is None and not publishing.done() and there._live.store is not None
        assert there._live.store.pending_bytes <= PENDING + window_bytes + 600 * KIB
        disk.is_full = False
        await publishing
        assert await heard(everything, 400) == {("here", number) for number in range(400)}
        assert there._live.status.troubles() == here._live.status.troubles() == []

    async def publish_from(node: Node, first: int, end: int) -> None:
        for number in range(first, end):
            await node.publish("room", value_of("here", number))

    async def test() -> None:
        if fabric == "tree":
            async with (
                tree(2, **settings) as brokers,
                antiphon.start(fabric="tree", join=[brokers[0].address], **settings, **kept) as there,
            ):
                await check(brokers[1], there)
            return
        settings["fabric"] = fabric
        async with antiphon.start(**settings) as here, antiphon.start(join=[here.address], **settings, **kept) as there:
            await check(here, there)

    running(test)


def test_clients_that_wait_are_never_refused_however_large_their_messages() -> None:
    """More than an outbox takes from those who do not wait: one large message fills it."""

    async def test() -> None:
        async with cluster(1) as (node,):
            slow = await node.subscribe("room", limit=1).ready()
            clients = [await antiphon.connect(node.address) for _ in range(8)]
            publishing = [
                asyncio.create_task(publish_some(each, f"c{at}", 3, size=3 * MIB)) for at, each in enumerate(clients)
            ]
            await until(lambda: node._live.topics["room"].is_behind and node._live.outboxes["room"].is_full)
            await asyncio.sleep(0.1)
            found = await heard(slow, 24)
            assert await asyncio.gather(*(outcome(each) for each in publishing)) == [None] * 8
            assert found == {(f"c{at}", number) for at in range(8) for number in range(3)}
            for client in clients:
                await client.close()

    running(test)


def test_a_client_that_does_not_wait_is_refused_with_the_error_that_is_promised() -> None:
    async def test() -> None:
        async with cluster(1) as (node,), antiphon.connect(node.address) as client:
            slow = await node.subscribe("room", limit=1).ready()

            async def publish() -> None:
                for number in range(1000):
                    client.publish("room", value_of("c", number))
                    await asyncio.sleep(0)

            assert type(await outcome(publish())) is OverloadedError
            await slow.close()

    running(test)


def test_what_a_node_refuses_reaches_its_clients_as_the_same_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OverloadedError("on purpose")

    async def test() -> None:
        async with cluster(1) as (node,), antiphon.connect(node.address) as client:
            monkeypatch.setattr(node._live, "publish_columns", refuse)
            assert type(await outcome(client.publish("room", b""))) is OverloadedError
            monkeypatch.undo()
            monkeypatch.setattr(relay, "AHEAD_AT_MOST", 1)
            slow = await client.subscribe("room", policy="disconnect", limit=1).ready()
            ready = node._live.topics["room"].sinks[0]
            for _ in range(3):
                ready.push(node._live.topics["room"], batch_of())
            assert type(await outcome(take_exactly(slow, 10))) is SlowConsumerError

    running(test)


def batch_of() -> Batch:
    return Batch("room", 0, "causal", 0, encode_columns(Columns(1, 0, [b"1", b"2"])))


def test_a_client_that_publishes_what_it_subscribes_to_does_not_wait_for_itself() -> None:
    """What its subscription has taken is read from it, though all together have handed in more than may wait."""

    async def test() -> None:
        async with cluster(1, backlog_bytes=MIB) as (node,):
            clients = [await antiphon.connect(node.address) for _ in range(3)]
            subscriptions = [await client.subscribe("room", limit=1).ready() for client in clients]

            publishing = [
                asyncio.create_task(publish_some(client, f"{at}.{each}", 6, size=2 * MIB))
                for at, client in enumerate(clients)
                for each in range(2)
            ]
            await until(lambda: node._live.topics["room"].is_behind and node._live.backlogs.bytes > MIB)
            found = await asyncio.gather(*(heard(each, 36) for each in subscriptions))
            await asyncio.gather(*publishing)
            assert (
                found == [{(f"{at}.{each}", number) for at in range(3) for each in range(2) for number in range(6)}] * 3
            )
            await until(lambda: node._live.backlogs.bytes == 0 and node._live.backlogs.held_clients == 0)
            for client in clients:
                await client.close()

    running(test)


def test_a_client_that_vanishes_while_it_is_not_read_from_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its subscription holds the topic on which its own batches wait, so nothing else would ever happen to it."""
    monkeypatch.setattr(backlog, "CLIENT_BYTES_AT_MOST", 64 * KIB)
    # With one message ahead of it nothing more is written to it either.
    monkeypatch.setattr(relay, "AHEAD_AT_MOST", 1)

    async def test() -> None:
        async with cluster(1) as (node,):
            batch = encode_columns(Columns(1, 0, [bytes(32 * KIB)] * 2))
            async with attacking(node) as attacker:
                wanted = SubscribeRequest(1, "room", "latest", False, "block", 1)
                attacker.send(frames(CLIENT, wanted))
                await until(lambda: "room" in node._live.topics and node._live.topics["room"].sinks)
                attacker.send(
                    frames(*(PublishRequest(each, "room", "causal", batch, (), each) for each in range(1, 4)))
                )
                await until(lambda: node._live.topics["room"].is_behind)
                await asyncio.sleep(0.2)
            # Keepalive would notice it after a minute.
            async with asyncio.timeout(40.0):
                await until(lambda: not node._live.clients)
            assert not node._live.topics["room"].is_behind and node._live.backlogs.bytes == 0
            await node.publish("room", b"goes on")

    running(test)


@pytest.mark.parametrize("durability", DURABILITIES)
def test_large_messages_on_a_disk_that_is_really_full_and_well_again(tmp_path: Path, durability: str) -> None:
    """No file of the process may grow; its memory stays bounded while eight clients want to hand in twice as much."""

    async def test() -> None:
        arguments = (f"data={tmp_path / 'data'}", f"durability={durability}", f"pending_bytes={8 * MIB}")
        async with child("serve", *arguments) as node:
            clients = [await antiphon.connect(node.address) for _ in range(8)]
            everything = await clients[0].subscribe("room").ready()
            await clients[0].publish("room", value_of("before", 0))
            before = resident_bytes(node.process.pid)
            limit_files(node.process.pid, 4096)
            publishing = [
                asyncio.create_task(publish_some(each, f"c{at}", 3, size=4 * MIB)) for at, each in enumerate(clients)
            ]
            await asyncio.sleep(1.0)
            assert node.process.returncode is None and not all(each.done() for each in publishing)
            grown = resident_bytes(node.process.pid) - before
            limit_files(node.process.pid, resource.RLIM_INFINITY)
            assert await asyncio.gather(*(outcome(each) for each in publishing)) == [None] * 8
            expected = {(f"c{at}", number) for at in range(8) for number in range(3)} | {("before", 0)}
            assert await heard(everything, len(expected)) == expected
            # One message of each client, and what waits for the disk, in about three copies.
            assert grown < 3 * (8 * 4 + 8 + 4) * MIB, f"{grown} bytes more"
            for client in clients:
                await client.close()
            assert node.process.returncode is None

    running(test)


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def limit_files(pid: int, size: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


# Who blocks a topic.


def test_status_says_for_whom_publishers_wait() -> None:
    async def test() -> None:
        async with cluster(2, window=1) as (here, there), antiphon.connect(there.address) as client:
            slow = await client.subscribe("room", limit=1).ready()
            publishing = asyncio.create_task(publish_some(here, "here", 400, size=64 * KIB))
            await until(lambda: there._live.topics["room"].is_behind and here._live.outboxes["room"].is_blocked)
            blamed = there._live.status.figures()["topics"]["room"]
            assert blamed["subscriptions_behind"] == 1
            assert "the subscription to 'room' of client 127.0.0.1:" in blamed["blocked_by"][0]
            assert "its limit is 1" in blamed["blocked_by"][0]
            await until(lambda: here._live.status.figures()["topics"]["room"]["blocked_by"] != [])
            figures = here._live.status.figures()["topics"]["room"]
            assert "other nodes" in figures["blocked_by"][0] and figures["bytes_under_way"] > 0
            await until(lambda: here._live.status.figures()["topics"]["room"]["blocked_seconds"] > 0.05)
            await slow.close()
            await publishing
            for node in (here, there):
                figures = node._live.status.figures()["topics"]["room"]
                assert (figures["blocked_by"], figures["blocked_seconds"]) == ([], 0.0)

    running(test)


def test_a_node_on_which_a_topic_is_blocked_by_nobody_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """That must not be; where it is after all, health says so."""
    monkeypatch.setattr(status, "STALLED_SECONDS", 0.05)
    room, stands_still = NodeLoop.room, [True]
    monkeypatch.setattr(NodeLoop, "room", lambda *given: 0 if stands_still[0] else room(*given))

    async def test() -> None:
        async with cluster(1, metrics="127.0.0.1:0") as (node,):
            waiting = node.publish("room", b"waits for nobody")
            await node.subscribe("room").ready()
            await until(lambda: node._live.status.troubles() != [])
            assert "topic 'room': 1 messages have waited" in node._live.status.troubles()[0]
            reader, writer = await asyncio.open_connection(*split_address(node.metrics_address))
            writer.write(b"GET /health HTTP/1.1\r\n\r\n")
            assert b" 503 " in await reader.readline()
            writer.close()
            stands_still[0] = False
            node._live.settle()
            await waiting
            assert node._live.status.troubles() == []

    running(test)


# The parts.


def test_what_is_under_way_is_what_was_published_last() -> None:
    under_way = BytesInFlight(10)
    for size in (20, 30):
        under_way.add(size)
    for count, expected in ((5, 60), (3, 60), (2, 50), (1, 30), (0, 0), (0, 0)):
        under_way.keep(count)
        assert under_way.bytes == expected


def kept_batch(number: int, size: int) -> UnackedBatch:
    return UnackedBatch(number, "room", number, "causal", bytes(size), (), None)


def test_a_client_has_no_more_under_way_than_a_node_reads_from_it() -> None:
    """The largest message beside a full window is less than the bound at which a node would not read from it."""
    kept = UnackedBatches()
    number = 0
    while kept.room() > 0:
        number += 1
        kept.add(kept_batch(number, 10 * MIB))
    assert number == 2 and WINDOW_BYTES + 12 * MIB < backlog.CLIENT_BYTES_AT_MOST
    first = kept.on_ack(1)
    assert first is not None and kept.room() > 0
    # Accepted, but not safe: it is kept, up to another bound.
    while kept.room() > 0:
        number += 1
        kept.add(kept_batch(number, 10 * MIB))
        kept.on_ack(number)
    assert (number - 1) * 10 * MIB < KEPT_BYTES_AT_MOST <= number * 10 * MIB
    kept.connection_lost()
    again = 0
    while kept.next_again("room") is not None:
        again += 1
    assert again == 2
    kept.clear()
    assert kept.room() > 0 and kept._bytes == 0 and kept._bytes_in_flight == 0


class Line:
    """The connection of a client that remembers why it is not read from, and what heartbeats it was sent."""

    def __init__(self) -> None:
        self.reasons: set[str] = set()
        self.heard = 0
        self.heartbeats: list[str] = []

    def hold(self, reason: str) -> None:
        self.reasons.add(reason)

    def release(self, reason: str) -> None:
        self.reasons.discard(reason)

    def bytes_received(self) -> int:
        return self.heard

    def request_heartbeat(self) -> None:
        self.heartbeats.append("request")

    def send_heartbeat(self) -> None:
        self.heartbeats.append("response")

    def give_up(self) -> None:
        self.heartbeats.append("given up")


def test_all_clients_together_have_a_bound_and_none_of_them_waits_for_its_own_word() -> None:
    together = Backlogs(100)
    lines = [Line() for _ in range(3)]
    backlogs = [Backlog(together, line, line) for line in lines]
    steps: list[tuple[Callable[[], None], list[bool]]] = [
        (lambda: backlogs[0].add(60), [False, False, False]),
        (lambda: backlogs[1].add(60), [False, True, False]),
        (lambda: backlogs[2].add(0), [False, True, False]),
        (lambda: backlogs[0].add(1), [True, True, False]),
        (backlogs[1].await_word, [True, False, False]),
        (lambda: backlogs[1].add(1), [True, False, False]),
        (backlogs[1].on_word_taken, [True, False, False]),
        (lambda: backlogs[1].add(1), [True, True, False]),
        (lambda: backlogs[0].remove(60), [True, True, False]),
        (backlogs[1].end, [False, True, False]),
        (lambda: backlogs[0].remove(1), [False, True, False]),
    ]
    for step, expected in steps:
        step()
        assert [bool(line.reasons) for line in lines] == expected
    assert together.bytes == 0 and together.held_clients == 0


def test_the_bound_of_all_clients_holds_only_owners_with_more_than_their_share() -> None:
    together = Backlogs(100)
    greedy, modest = Line(), Line()
    Backlog(together, greedy, greedy, "shop").add(150)
    backlog = Backlog(together, modest, modest, "bank")
    assert greedy.reasons
    backlog.add(40)
    assert not modest.reasons
    backlog.add(20)
    assert modest.reasons, "there are two, and it has more than half"


def test_heartbeats_are_exchanged_where_something_waits() -> None:
    """A client that is not read from hears its node; a silent client that holds others up is asked and given up."""
    together = Backlogs(100)
    lines = [Line() for _ in range(4)]
    backlogs = [Backlog(together, line, line) for line in lines]
    detector = FailureDetector(1.0, 0.0)
    started: list[bool] = []
    together.when_waiting = lambda: started.append(True)
    assert not together.are_waiting()
    backlogs[0].add(100)
    backlogs[1].await_word()
    backlogs[2].await_word()
    assert together.are_waiting() and len(started) == 3
    given_up = []
    for look in range(1, 12):
        lines[2].heard += 1
        given_up += together.poll(look * detector.look_seconds, detector)
    assert given_up == [lines[1], lines[1], lines[1]]
    assert lines[0].heartbeats == ["response"] * 11
    assert lines[1].heartbeats == ["request"] * 3
    assert lines[2].heartbeats == [] and lines[3].heartbeats == []
    backlogs[0].remove(100)
    backlogs[1].end()
    backlogs[2].on_word_taken()
    assert not together.are_waiting()


@pytest.mark.parametrize("name", ["window_bytes", "pending_bytes", "backlog_bytes"])
def test_bounds_are_positive(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} must be positive"):
        settings_from({name: 0}, "a test")
