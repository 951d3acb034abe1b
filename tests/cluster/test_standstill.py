"""A process that stands still: others go on without it after ``lost_seconds``, and it comes back when it goes on.

Its machine answers all the while, so nothing but signs of life of the process itself tells the others.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import Node
from antiphon.membership.heartbeats import LOOK_SECONDS_AT_MOST, FailureDetector
from antiphon.node.local_cluster import free_addresses
from tests.node.support import Child, child, running, subscribed, until

LOST_SECONDS = 0.5
LOST_SECONDS_OF_TOTAL = 2.0
"""Total order on a cube excludes a node at once if it was silent for as long as it waits for a broken connection."""

STANDS_STILL_SECONDS = 2.5


@asynccontextmanager
async def three_and_a_witness(
    fabric: str, directory: Path, lost_seconds: float = LOST_SECONDS
) -> AsyncIterator[tuple[list[Node], Child]]:
    """Three nodes in this process and one in a process of its own, all with logs."""
    async with AsyncExitStack() as stack:
        addresses = free_addresses(4)
        table = directory / "tree.toml"
        table.write_text(f"[tree]\nbrokers = {addresses!r}\n")
        settings: dict[str, Any] = {"fabric": fabric, "lost_seconds": lost_seconds}
        if fabric == "tree":
            settings["tree"] = str(table)
        join = [] if fabric == "tree" else [addresses[0]]
        words = [f"{name}={value}" for name, value in settings.items()]
        words += [f"listen={addresses[3]}", f"data={directory / '3'}", *(f"join={address}" for address in join)]

        async def start(place: int) -> Node:
            own: dict[str, Any] = {
                "listen": addresses[place],
                "data": str(directory / str(place)),
                "join": join if place else [],
            }
            node = await antiphon.start(**settings, **own)
            stack.push_async_callback(node.close)
            return node

        if fabric == "tree":
            starting = [asyncio.create_task(start(place)) for place in range(3)]
            witness = await stack.enter_async_context(child("witness", *words))
            nodes = [await task for task in starting]
        else:
            nodes = [await start(place) for place in range(3)]
            witness = await stack.enter_async_context(child("witness", *words))
        yield nodes, witness


async def publish_until(
    enough: asyncio.Event, node: Node, order: str, number: int, published: list[bytes], waited: list[float]
) -> None:
    """Publish one after the other, and write down how long each publication had to wait."""
    loop = asyncio.get_running_loop()
    while not enough.is_set():
        value = b"%d %d" % (number, len(waited))
        before = loop.time()
        await node.publish("room", value, order=order)
        waited.append(loop.time() - before)
        published.append(value)
        await asyncio.sleep(0.01)


async def lines_of(witness: Child, lines: list[str]) -> None:
    while line := await witness.line():
        lines.append(line)


@pytest.mark.parametrize(
    ("fabric", "order"), [("cube", "causal"), ("cube", "total"), ("tree", "causal"), ("gossip", "causal")]
)
def test_publishers_do_not_wait_for_a_process_that_stands_still(fabric: str, order: str, tmp_path: Path) -> None:
    async def test() -> None:
        lost_seconds = LOST_SECONDS_OF_TOTAL if order == "total" else LOST_SECONDS
        async with (
            three_and_a_witness(fabric, tmp_path, lost_seconds) as (nodes, witness),
            asyncio.TaskGroup() as tasks,
        ):
            subscriptions = await subscribed(nodes)
            heard: list[list[bytes]] = [[] for _ in nodes]
            for subscription, values in zip(subscriptions, heard, strict=True):
                tasks.create_task(listen(subscription, values))
            said: list[str] = []
            tasks.create_task(lines_of(witness, said))
            await until(lambda: "ready" in said)
            published: list[list[bytes]] = [[] for _ in nodes]
            waited: list[list[float]] = [[] for _ in nodes]
            enough = asyncio.Event()
            publishing = [
                tasks.create_task(publish_until(enough, node, order, number, published[number], waited[number]))
                for number, node in enumerate(nodes)
            ]
            await asyncio.sleep(0.5)
            witness.process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(lost_seconds + 1.0)
            before = [len(each) for each in published]
            # They go on.
            await until(lambda: all(len(each) > count for each, count in zip(published, before, strict=True)))
            # Without detection they would have waited until the test lost its patience.
            assert max(map(max, waited)) < lost_seconds + 30.0
            witness.process.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.5)
            enough.set()
            await asyncio.wait(publishing)
            assert witness.process.stdin is not None
            witness.process.stdin.write(b"last words of the witness\n")
            for number, node in enumerate(nodes):
                await node.publish("room", b"last words of %d" % number)
                published[number].append(b"last words of %d" % number)
            everything = [*(value for each in published for value in each), b"last words of the witness"]
            await until(lambda: all(len(values) >= len(everything) for values in heard))
            await until(lambda: sum(line.startswith("heard") for line in said) >= len(everything))
            witness.process.stdin.close()
            there = [line.removeprefix("heard ").encode() for line in said if line.startswith("heard")]
            assert "missed" not in said
            for values in (*heard, there):
                assert sorted(values) == sorted(everything), "nothing is lost or doubled"
                for each in published:
                    assert [value for value in values if value in set(each)] == each, "nor out of order"
            for node in nodes:
                await node.close()

    running(test)


def test_a_contact_that_stands_still_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """The others try it again and again, and its machine lets them connect each time."""
    caplog.set_level(logging.INFO, "antiphon")

    def told(event: str) -> int:
        return sum((record.event, record.values.get("node")) == (event, 0) for record in caplog.records)  # type: ignore[attr-defined]

    async def test() -> None:
        settings: dict[str, Any] = {"fabric": "gossip", "lost_seconds": LOST_SECONDS}
        async with AsyncExitStack() as stack:
            words = [f"{name}={value}" for name, value in settings.items()]
            contact = await stack.enter_async_context(child("witness", *words))
            nodes = []
            for _ in range(2):
                nodes.append(await antiphon.start(join=[contact.address], **settings))
                stack.push_async_callback(nodes[-1].close)
            contact.process.send_signal(signal.SIGSTOP)
            await until(lambda: told("lost") == len(nodes))
            tried = [node._live.cluster._opened for node in nodes]
            await until(
                lambda: all(node._live.cluster._opened > before + 3 for node, before in zip(nodes, tried, strict=True))
            )
            assert (told("lost"), told("silent")) == (len(nodes), len(nodes))
            contact.process.send_signal(signal.SIGCONT)
            await until(lambda: told("found") == len(nodes))

    running(test)


async def listen(subscription: antiphon.Subscription, values: list[bytes]) -> None:
    async for messages in subscription.batches():
        values += [message.value for message in messages]


def looks(
    detector: FailureDetector, begin: float, end: float, heard: Callable[[float], int]
) -> tuple[list[float], float | None]:
    """When the only other node is asked for a sign, and when it is lost, if looks are on time."""
    asked: list[float] = []
    now = begin
    while now < end:
        now += detector.look_seconds
        silent = detector.poll(now, {7: heard(now)})
        if silent.lost:
            return asked, now
        if silent.asked:
            asked.append(now)
    return asked, None


def heard_until(end: float, now: float) -> int:
    return int(min(now, end) * 100)


def test_who_is_silent_is_asked_and_then_lost() -> None:
    """Not sooner than after ``lost_seconds``, and hardly later."""
    for lost_seconds in (0.5, 5.0, 60.0):
        detector = FailureDetector(lost_seconds, 0.0)
        heard = partial(heard_until, lost_seconds)
        asked, lost_at = looks(detector, 0.0, 3 * lost_seconds, heard)
        assert lost_at is not None
        assert 2 * lost_seconds <= lost_at <= 2 * lost_seconds + 2 * LOOK_SECONDS_AT_MOST
        assert 2 <= len(asked) <= 4 and asked[0] > lost_seconds


def test_who_is_heard_is_not_asked() -> None:
    assert looks(FailureDetector(5.0, 0.0), 0.0, 100.0, lambda now: int(now * 100)) == ([], None)


def test_who_stood_still_itself_takes_nobody_for_lost() -> None:
    """Others could not be heard meanwhile; they have the whole time again that they had left."""
    detector = FailureDetector(5.0, 0.0)
    assert looks(detector, 0.0, 2.0, lambda _: 0)[1] is None
    _, lost_at = looks(detector, 3600.0, 3610.0, lambda _: 0)
    assert lost_at is not None and 3602.0 < lost_at < 3604.0


def test_a_new_connection_counts_as_a_sign() -> None:
    detector = FailureDetector(5.0, 0.0)
    looks(detector, 0.0, 4.0, lambda _: 500)
    assert looks(detector, 4.0, 8.0, lambda _: 10)[1] is None
