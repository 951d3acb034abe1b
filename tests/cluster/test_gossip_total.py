"""Total order on real sockets in gossip (EpTO beside BRISA): one sequence, wrong clocks, killed nodes, holes that are
told."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from librt.vecs import vec
from mypy_extensions import i64

import antiphon
from antiphon import MissedMessagesError, Node, Subscription
from antiphon.api.batch_codec import encode_columns
from antiphon.api.columns import NO_AUTHOR, Columns
from antiphon.audit.auditor import audit_files
from antiphon.audit.report import CLEAN
from antiphon.fabrics.gossip import Brisa
from antiphon.fabrics.gossip.epto.messages import Stamped
from antiphon.fabrics.gossip.epto.topic import TopicTotals
from antiphon.fabrics.gossip.messages import FetchResponse
from antiphon.runtime.clocks import wall_clock_us
from tests.cluster.test_gossip import gossip
from tests.node.support import Child, child, exact_values, running, subscribed, until

NODES = 16
KILLED = 2
STRANGER = 1 << 20
"""A publisher that is gone."""

QUICK = dict[str, float](assumed_nodes=NODES, round_seconds=0.03)


def wrong_by(seconds: float) -> Any:
    """A wall clock that is wrong."""
    return lambda: wall_clock_us() + int(seconds * 1_000_000)


def totals(node: Node, topic: str = "room") -> TopicTotals:
    assert isinstance(node._live.process, Brisa)
    found = node._live.process.group(node._live.topic(topic).number).delivery.totals
    assert found is not None
    return found


async def until_last_words(subscription: Subscription, count: int) -> list[bytes]:
    """Everything up to the last words of so many nodes."""
    values: list[bytes] = []
    async for message in subscription:
        values.append(message.value)
        count -= message.value.startswith(b"last")
        if count == 0:
            break
    return values


async def accepted_some(publisher: Child) -> None:
    for _ in range(3):
        assert (await publisher.line()).startswith("accepted")


def batch_of(value: bytes) -> bytes:
    """A message as it travels."""
    return encode_columns(Columns(1, wall_clock_us(), [value], None, None, None, None), NO_AUTHOR)


async def ended(publisher: Child) -> None:
    """Kill it, and read what it still had said."""
    await publisher.kill()
    while await publisher.line():
        pass


def test_sixteen_nodes_with_wrong_clocks_of_which_some_are_killed_deliver_one_sequence(tmp_path: Path) -> None:
    """Sections 5.2.2 and 5.2.5: clocks are wrong by up to a minute, and two publishers are killed in mid-sentence."""
    stays = NODES - KILLED

    async def talk(node: Node) -> None:
        for number in range(4):
            await node.publish("room", b"%d %d" % (node.identifier, number), order="total")
            await asyncio.sleep(0.02)

    async def test() -> None:
        async with AsyncExitStack() as stack:
            traces = iter(range(NODES))

            def start(**settings: Any) -> Any:
                trace = str(tmp_path / f"node-{next(traces)}.parquet")
                return antiphon.start(fabric="gossip", gossip=QUICK, trace=trace, leave_seconds=2.0, **settings)

            first = await stack.enter_async_context(start())
            others = [start(join=[first.address]) for _ in range(stays - 1)]
            nodes = [first, *await asyncio.gather(*(stack.enter_async_context(each) for each in others))]
            for place, node in enumerate(nodes):
                node._live.loop.clock_us = wrong_by(60.0 * (place - stays / 2) / stays)
            subscriptions = await subscribed(nodes)
            doomed = [
                await stack.enter_async_context(
                    child("publish", "fabric=gossip", "order=total", f"join={first.address}")
                )
                for _ in range(KILLED)
            ]
            await asyncio.gather(*(accepted_some(victim) for victim in doomed), *(talk(node) for node in nodes))
            await asyncio.gather(*(ended(victim) for victim in doomed))
            await asyncio.gather(*(talk(node) for node in nodes))
            for node in nodes:
                await node.publish("room", b"last", order="total")
            heard = await asyncio.gather(*(until_last_words(each, stays) for each in subscriptions))
            assert all(values == heard[0] for values in heard)
            of_those_who_stay = [value for value in heard[0] if b" " in value]
            assert len(of_those_who_stay) == stays * 8 and len(heard[0]) > stays * 9
            assert sum(node._live.topic("room").lost_batches for node in nodes) == 0

    running(test)
    found = audit_files(sorted(tmp_path.glob("*.parquet")))
    assert found.verdict == CLEAN and found.checks["total"].applies, found.checks


def test_orders_are_mixed_and_what_follows_a_total_message_comes_after_it() -> None:
    async def test() -> None:
        async with gossip(5, gossip=QUICK) as nodes:
            subscriptions = await subscribed(nodes)
            for number, order in enumerate(("total", "fifo", "causal", "none", "total", "causal")):
                await nodes[1].publish("room", b"%d" % number, order=order)
            for values in await asyncio.gather(*(exact_values(each, 6) for each in subscriptions)):
                # What has no order waits for nothing.
                assert [value for value in values if value != b"3"] == [b"0", b"1", b"2", b"4", b"5"]

    running(test)


def test_keys_and_total_order_are_taken_as_on_a_tree() -> None:
    """There is one order for all keys of a topic."""

    async def test() -> None:
        async with gossip(4, gossip=QUICK) as nodes:
            subscriptions = await subscribed(nodes)
            await asyncio.gather(
                *(
                    node.publish("room", b"%d" % node.identifier, order="total", keys=["anna", node.identifier])
                    for node in nodes
                )
            )
            heard = await asyncio.gather(*(exact_values(each, 4) for each in subscriptions))
            assert all(values == heard[0] for values in heard)

    running(test)


async def lose(nodes: list[Node], number: int) -> None:
    """Something comes with a stamp below the last delivered one; neighbours get it from each other."""
    late = Stamped(STRANGER, number, 0, batch_of(b"too late"), nodes[0]._live.topic("room").number, 0, vec[i64]())
    nodes[0]._live.loop.received(nodes[1].identifier, FetchResponse(late))
    nodes[0]._live.settle()
    await until(lambda: all(node._live.topic("room").lost_batches == number for node in nodes))


def test_a_hole_is_told_to_the_subscriber_in_its_place_and_nothing_is_reordered() -> None:
    """Section 5.2.2: what a node refuses because its turn is over is passed over, and the application hears of it."""

    async def test() -> None:
        async with gossip(3, gossip=QUICK) as nodes:
            subscriptions = await subscribed(nodes)
            await nodes[0].publish("room", b"before", order="total")
            for each in subscriptions:
                assert await exact_values(each, 1) == [b"before"]
            await lose(nodes, 1)
            await nodes[0].publish("room", b"after", order="total")
            for each in subscriptions:
                with pytest.raises(MissedMessagesError):
                    await exact_values(each, 1)
                assert await exact_values(each, 1) == [b"after"] and each.gaps == 1

    running(test)


def test_what_is_lost_after_a_hole_was_told_is_told_too() -> None:
    """Who was told may have looked elsewhere for the rest; what was published after that is not part of it."""

    async def test() -> None:
        async with gossip(3, gossip=QUICK) as nodes:
            subscriptions = await subscribed(nodes)
            await nodes[0].publish("room", b"before", order="total")
            for each in subscriptions:
                assert await exact_values(each, 1) == [b"before"]
            for number in (1, 2):
                await lose(nodes, number)
                for each in subscriptions:
                    with pytest.raises(MissedMessagesError):
                        await exact_values(each, 1)
                    assert each.gaps == number

    running(test)


def test_period_and_size_follow_from_measurements_and_the_application_sees_what_is_not_stable_yet() -> None:
    """Section 5.5, and the adaptation that the thesis leaves open."""

    async def test() -> None:
        table = dict[str, float](assumed_nodes=64, round_seconds=0.2, least_round_seconds=0.01)
        async with gossip(4, gossip=table) as nodes:
            subscriptions = await subscribed(nodes)
            await nodes[0].publish("room", b"why?", order="total")
            await until(lambda: len(nodes[2].tentative("room")) == 1)
            (early,) = nodes[2].tentative("room")
            assert [message.value for message in early.messages] == [b"why?"] and 0 <= early.stable <= 1
            assert await exact_values(subscriptions[2], 1) == [b"why?"]
            assert nodes[2].tentative("room") == [] and nodes[2].tentative("nowhere") == []

            async def talk() -> None:
                while any(totals(node).balls.ttl >= 6 for node in nodes):
                    await nodes[1].publish("room", b"go on", order="total")
                    await asyncio.sleep(0.05)

            assert totals(nodes[0]).balls.ttl == 6, "for 64 nodes"
            await talk()
            assert all(totals(node).rounds.period < 200_000 for node in nodes)

    running(test)
