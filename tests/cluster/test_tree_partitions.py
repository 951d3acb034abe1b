"""A tree of brokers on real sockets whose connections break and come back, and which others join."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import antiphon
from antiphon import Node
from antiphon.audit.auditor import audit_files
from antiphon.audit.report import CLEAN
from antiphon.audit.total_order import judge_total_order
from antiphon.fabrics.tree.broker import TreeBroker
from antiphon.node.local_cluster import free_addresses
from antiphon.runtime.errors import JoinError
from antiphon.trace.store import read_trace
from tests.cluster.proxy import Proxy
from tests.node.support import exact_values, outcome, running, subscribed, take_values, tree, until

QUICK = {"patience_seconds": 0.1, "council_seconds": 0.3}


def broker(node: Node) -> TreeBroker:
    """The process of a node."""
    assert isinstance(node._live.process, TreeBroker)
    return node._live.process


def in_tree(nodes: list[Node]) -> bool:
    """Whether these brokers, and nobody else, are in one tree as all of them know it."""
    members = {node.identifier for node in nodes}
    return all(set(broker(node).view.overlay.parents) == members and broker(node).view.can_order for node in nodes)


@asynccontextmanager
async def behind_proxies(
    count: int, logs: Path | None = None, traces: Path | None = None, **options: Any
) -> AsyncIterator[tuple[list[Node], list[Proxy]]]:
    """Brokers that others reach through proxies only; with logs and traces, if there is a place for them."""
    async with AsyncExitStack() as stack:
        places = free_addresses(count)
        proxies = [await Proxy(place).start() for place in places]
        for proxy in proxies:
            stack.push_async_callback(proxy.close)
        table = {"brokers": [proxy.address for proxy in proxies], **QUICK, **options}
        data = [None if logs is None else str(logs / str(number)) for number in range(count)]
        written = [None if traces is None else str(traces / f"{number}.parquet") for number in range(count)]
        begun = [
            antiphon.start(fabric="tree", tree=table, listen=place, advertise=proxy.address, data=directory, trace=file)
            for place, proxy, directory, file in zip(places, proxies, data, written, strict=True)
        ]
        nodes = await asyncio.gather(*begun)
        for node in nodes:
            stack.push_async_callback(node.close)
        yield list(nodes), proxies


def test_a_connection_that_breaks_is_mended() -> None:
    async def test() -> None:
        async with tree(3, table=QUICK) as nodes:
            subscriptions = await subscribed(nodes)
            transport = nodes[0]._live.host.links[1]._transport
            assert transport is not None
            transport.abort()
            for number in range(50):
                await nodes[1].publish("room", b"%d" % number)
                await asyncio.sleep(0.001)
            await until(lambda: in_tree(nodes))
            await nodes[1].publish("room", b"end", order="total")
            values = [await exact_values(each, 51) for each in subscriptions]
            assert values[0][-1] == b"end" and all(each == values[0] for each in values)

    running(test)


@pytest.mark.parametrize("alone", [0, 4], ids=["the root", "a leaf"])
def test_a_broker_that_is_cut_off_orders_nothing_totally_and_catches_up(alone: int, tmp_path: Path) -> None:
    async def test() -> None:
        async with behind_proxies(5, traces=tmp_path) as (nodes, proxies):
            others = [node for node in nodes if node.identifier != alone]
            subscriptions = await subscribed(nodes)
            proxies[alone].cut()
            await until(lambda: in_tree(others) and not broker(nodes[alone]).view.can_order)
            with pytest.raises(antiphon.NoMajorityError, match=r"cannot order totally: brokers .* cannot be reached"):
                await nodes[alone].publish("room", b"no", order="total")
            await nodes[alone].publish("room", b"here", order="causal")
            await others[1].publish("room", b"there", order="total")
            await others[0].publish("room", b"too", order="causal")
            assert await take_values(subscriptions[alone], 1) == [b"here"]
            for number in range(5):
                if number != alone:  # both sides have shown what they have, before either learns of the other's
                    assert set(await take_values(subscriptions[number], 2)) == {b"there", b"too"}
            proxies[alone].mend()
            await until(lambda: in_tree(nodes))
            await nodes[alone].publish("room", b"again", order="total")
            for number, subscription in enumerate(subscriptions):
                values = await exact_values(subscription, 3 if number == alone else 2)
                assert values[-1] == b"again"
                assert set(values[:-1]) == ({b"there", b"too"} if number == alone else {b"here"})

    running(test)
    # No majority had what was published behind the cut, so it may be on either side of a total message.
    files = sorted(tmp_path.glob("*.parquet"))
    found = audit_files(files)
    assert (found.verdict, found.checks["total"].applies) == (CLEAN, True), found
    judged_strictly, _ = judge_total_order(pa.concat_tables([read_trace(file) for file in files]))
    assert judged_strictly == 1


SAID = [b"%d" % number for number in range(20)]


def has_forgotten(node: Node, topic: str) -> bool:
    """Whether nothing of a topic is in a broker's buffer any more."""
    stream = broker(node).topics.of(node._live.topic(topic).number)
    return len(stream.base) > 0 and not stream.items


async def speak_while_one_is_given_up(nodes: list[Node], proxies: list[Proxy]) -> None:
    """Broker 4 is cut off for so long that the others do not keep what they say for it, and comes back."""
    others = nodes[:4]
    proxies[4].cut()
    await until(lambda: in_tree(others) and not broker(nodes[4]).view.can_order)
    for number, value in enumerate(SAID):
        await others[number % 4].publish("room", value, order="total" if number % 3 == 0 else "causal")
    await until(lambda: all(not broker(node).view.current.absent and has_forgotten(node, "room") for node in others))
    proxies[4].mend()
    await until(lambda: in_tree(nodes))
    await nodes[4].publish("room", b"again", order="total")


def test_what_is_in_no_buffer_any_more_comes_from_the_log(tmp_path: Path) -> None:
    async def test() -> None:
        async with behind_proxies(5, tmp_path, absence_seconds=0.5) as (nodes, proxies):
            subscriptions = await subscribed(nodes)
            await speak_while_one_is_given_up(nodes, proxies)
            values = [await exact_values(subscription, len(SAID) + 1) for subscription in subscriptions]
            assert all(set(each) == {*SAID, b"again"} for each in values)
            totals = {*SAID[::3], b"again"}
            assert [value for value in values[4] if value in totals] == [
                value for value in values[3] if value in totals
            ]
            assert [node._live.topic("room").lost_batches for node in nodes] == [0] * 5

    running(test)


def test_what_nobody_has_kept_is_missed_where_it_would_have_come() -> None:
    async def test() -> None:
        async with behind_proxies(5, absence_seconds=0.5) as (nodes, proxies):
            subscriptions = await subscribed(nodes)
            await nodes[0].publish("room", b"before", order="total")
            assert [await exact_values(each, 1) for each in subscriptions] == [[b"before"]] * 5
            await speak_while_one_is_given_up(nodes, proxies)
            with pytest.raises(antiphon.MissedMessagesError, match="room"):
                await exact_values(subscriptions[4], 1)
            assert await exact_values(subscriptions[4], 1) == [b"again"]
            assert nodes[4]._live.topic("room").lost_batches >= len(SAID)

    running(test)


def test_a_tree_is_built_by_joining() -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            nodes = [await stack.enter_async_context(antiphon.start(fabric="tree", tree=QUICK))]
            for number in range(4):
                contact = nodes[number // 2].address
                joining = antiphon.start(fabric="tree", tree=QUICK, join=[contact])
                nodes.append(await stack.enter_async_context(joining))
            await until(lambda: in_tree(nodes))
            assert len({node.identifier for node in nodes}) == 5
            subscriptions = await subscribed(nodes)
            for node in nodes:
                await node.publish("room", b"%d" % node.identifier, order="total")
            orders = [await exact_values(each, 5) for each in subscriptions]
            assert all(order == orders[0] for order in orders)

    running(test)


def test_a_broker_that_crashed_returns_as_a_new_one() -> None:
    async def test() -> None:
        async with tree(4, table=QUICK) as nodes:
            table, address = nodes[0]._live.settings.table, nodes[3].address
            await nodes[3].close()
            await until(lambda: in_tree(nodes[:3]))
            async with antiphon.start(fabric="tree", tree=table, listen=address) as again:
                assert again.identifier > 3
                everybody = [*nodes[:3], again]
                await until(lambda: in_tree(everybody))
                subscriptions = await subscribed(everybody)
                await again.publish("room", b"back", order="total")
                assert [await take_values(each, 1) for each in subscriptions] == [[b"back"]] * 4

    running(test)


def test_two_brokers_that_crashed_return_at_the_same_time() -> None:
    """Both begin as founders and meet each other as such, before the others tell them that they are newcomers."""

    async def test() -> None:
        async with tree(5, table=QUICK) as nodes:
            table, addresses = nodes[0]._live.settings.table, [node.address for node in nodes[3:]]
            for node in nodes[3:]:
                await node.close()
            await until(lambda: in_tree(nodes[:3]))
            starting = [antiphon.start(fabric="tree", tree=table, listen=address) for address in addresses]
            again = await asyncio.gather(*starting)
            everybody = [*nodes[:3], *again]
            try:
                assert all(node.identifier > 4 for node in again)
                await until(lambda: in_tree(everybody))
                subscriptions = await subscribed(everybody)
                for node in everybody:
                    await node.publish("room", b"%d" % node.identifier, order="total")
                orders = [await exact_values(each, 5) for each in subscriptions]
                assert all(order == orders[0] for order in orders)
            finally:
                for node in again:
                    await node.close()

    running(test)


def test_somebody_joins_while_total_messages_pass() -> None:
    async def test() -> None:
        async with tree(3, table=QUICK) as nodes:
            subscriptions = await subscribed(nodes)

            async def publish(node: Node) -> None:
                for number in range(100):
                    await node.publish("room", b"%d %d" % (node.identifier, number), order="total")
                    await asyncio.sleep(0.002)

            publishers = [asyncio.create_task(publish(node)) for node in nodes]
            async with antiphon.start(fabric="tree", tree=QUICK, join=[nodes[2].address]) as newcomer:
                (fourth,) = await subscribed([newcomer])
                await newcomer.publish("room", b"mine", order="total")
                await asyncio.gather(*publishers)
                await nodes[0].publish("room", b"end", order="total")
                orders = [await exact_values(each, 302) for each in subscriptions]
                assert all(order == orders[0] for order in orders)
                later: list[bytes] = []
                async for message in fourth:
                    later.append(message.value)
                    if message.value == b"end":
                        break
                # It sees the end of what the others see.
                assert later == orders[0][-len(later) :] and b"mine" in later

    running(test)


def test_who_finds_nobody_to_join_says_whom_it_asked() -> None:
    (nobody,) = free_addresses(1)

    async def test() -> None:
        failure = await outcome(antiphon.start(fabric="tree", join=[nobody], join_seconds=0.5))
        assert isinstance(failure, JoinError) and nobody in str(failure)

    running(test)


def test_on_a_topic_with_quorum_delivery_a_lost_majority_refuses_every_order() -> None:
    """Two of three are gone: the third refuses every order there, and other topics go on."""

    async def test() -> None:
        async with tree(3, table={**QUICK, "quorum_delivery": ["room"]}) as nodes:
            subscriptions = await subscribed(nodes)
            for node in nodes:
                await node.publish("room", b"weak", order="causal")
            await nodes[2].publish("room", b"total", order="total")
            values = [await exact_values(each, 4) for each in subscriptions]
            assert all(each == values[0] for each in values)
            await asyncio.gather(nodes[0].close(), nodes[1].close())
            await until(lambda: not broker(nodes[2]).view.can_order)
            with pytest.raises(antiphon.NoMajorityError, match="every message on this topic needs one"):
                await nodes[2].publish("room", b"no", order="none")
            free = nodes[2].subscribe("elsewhere")
            await free.ready()
            await nodes[2].publish("elsewhere", b"yes", order="none")
            assert await take_values(free, 1) == [b"yes"]

    running(test)
