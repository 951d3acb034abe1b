"""Gossip on real sockets: links to few, orders of several publishers, crashes and newcomers, slow readers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import Node, PeerError, Subscription, UsageError
from antiphon.fabrics.gossip import Brisa
from antiphon.fabrics.gossip.assembly.settings import EVERYBODY
from antiphon.membership.address_book import BLOCKS_FIRST
from antiphon.membership.host import SECOND_US
from antiphon.membership.messages import PlaceResponse
from antiphon.membership.partial_view import RETRY, RETRY_US, PartialView
from antiphon.runtime.errors import JoinError
from tests.node.support import Child, child, cluster, exact_values, outcome, running, subscribed, take_values, until


@asynccontextmanager
async def gossip(count: int, **settings: Any) -> AsyncIterator[list[Node]]:
    """Nodes that joined through the first, at the same time."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(antiphon.start(fabric="gossip", **settings))
        starting = [antiphon.start(fabric="gossip", join=[first.address], **settings) for _ in range(count - 1)]
        others = await asyncio.gather(*(stack.enter_async_context(each) for each in starting))
        yield [first, *others]


def acquaintances(node: Node) -> PartialView:
    assert isinstance(node._live.cluster, PartialView)
    return node._live.cluster


def neighbours(node: Node, number: int) -> set[int]:
    assert isinstance(node._live.process, Brisa)
    if not node._live.process.takes_part(number):
        return set()
    return {int(peer) for peer in node._live.process.group(number).sampling.neighbours()}


def test_all_get_what_several_publish_each_in_its_order() -> None:
    each = 60

    async def publish(node: Node, order: str) -> None:
        for number in range(each):
            await node.publish("room", b"%d %d" % (node.identifier, number), order=order)
            await asyncio.sleep(0)

    async def test() -> None:
        async with gossip(8) as nodes:
            assert len({node.identifier for node in nodes}) == 8
            subscriptions = await subscribed(nodes)
            orders = ("none", "fifo", "causal")
            await asyncio.gather(*(publish(node, order) for node, order in zip(nodes, orders, strict=False)))
            heard = await asyncio.gather(*(exact_values(subscription, 3 * each) for subscription in subscriptions))
            for values in heard:
                assert sorted(values) == sorted(heard[0]) and len(set(values)) == 3 * each
                for node in nodes[1:3]:
                    own = [value for value in values if value.startswith(b"%d " % node.identifier)]
                    assert own == [b"%d %d" % (node.identifier, number) for number in range(each)]

    running(test)


def test_an_answer_never_comes_before_its_question() -> None:
    """Causal order with several publishers (barriers): node 1 answers what node 0 asks, node 2 answers the answer."""
    rounds = 40

    async def answer(node: Node, to: bytes, word: bytes) -> None:
        subscription = await node.subscribe("room").ready()
        left = rounds
        async for message in subscription:
            kind, number = message.value.split()
            if kind == to:
                await node.publish("room", word + b" " + number)
                left -= 1
                if left == 0:
                    break

    async def test() -> None:
        async with gossip(6) as nodes:
            subscriptions = await subscribed(nodes[3:])
            answering = [
                asyncio.create_task(answer(nodes[1], b"question", b"answer")),
                asyncio.create_task(answer(nodes[2], b"answer", b"thanks")),
            ]
            await until(
                lambda: all(node._live.topics["room"].is_member() for node in nodes[1:3] if "room" in node._live.topics)
            )
            await asyncio.gather(*(node.subscribe("room").ready() for node in nodes[1:3]))
            for number in range(rounds):
                await nodes[0].publish("room", b"question %d" % number)
                await asyncio.sleep(0)
            await asyncio.gather(*answering)
            for values in await asyncio.gather(*(exact_values(each, 3 * rounds) for each in subscriptions)):
                for number in range(rounds):
                    places = [values.index(b"%s %d" % (word, number)) for word in (b"question", b"answer", b"thanks")]
                    assert places == sorted(places)

    running(test)


def test_links_are_kept_to_neighbours_only() -> None:
    """16 nodes, views of at most 6: nobody has a link to all, and links that nobody needs are closed."""

    async def test() -> None:
        async with gossip(16, gossip={"active": 3}) as nodes:
            subscriptions = await subscribed(nodes[:8])
            await nodes[0].publish("room", b"hello")
            await asyncio.gather(*(exact_values(each, 1) for each in subscriptions))
            number = nodes[0]._live.topic("room").number

            def wanted(node: Node) -> set[int]:
                contacts = set(acquaintances(node).address_book.contacts())
                held = contacts - {node.identifier} if node.identifier in contacts else set()
                return neighbours(node, EVERYBODY) | neighbours(node, number) | held

            await until(lambda: all(set(node._live.host.links) == wanted(node) for node in nodes))
            # Two views, and for contacts the other contacts.
            assert max(len(node._live.host.links) for node in nodes) <= 6 + 6 + 2 < len(nodes) - 1

    running(test)


def test_round_trips_are_measured_and_shown() -> None:
    async def test() -> None:
        async with gossip(4) as nodes, antiphon.connect(nodes[3].address) as client:
            subscriptions = await subscribed(nodes)
            await nodes[0].publish("room", b"hello")
            await asyncio.gather(*(exact_values(each, 1) for each in subscriptions))

            async def round_trips() -> list[int]:
                return list((await client.status())["topics"]["room"]["neighbours"].values())

            while not (measured := await round_trips()) or min(measured) < 0:
                await asyncio.sleep(0.01)
            status = await client.status()
            assert status["contacts"] == [0, 1, 2]
            assert status["topics"]["room"]["parents"] != []

    running(test)


def test_a_client_and_patterns_as_on_other_fabrics() -> None:
    async def test() -> None:
        async with gossip(3) as nodes, antiphon.connect(nodes[1].address) as client:
            found = await nodes[2].subscribe("orders.>").ready()
            await client.publish("orders.europe", b"one")
            # Who subscribes by a pattern hears of a topic some time after its first message.
            while not found._live.queued and not any(topic.is_member() for topic in nodes[2]._live.topics.values()):
                await asyncio.sleep(0.01)
            await client.publish("orders.europe", b"two", order="fifo")
            assert (await take_values(found, 1))[-1] in (b"one", b"two")

    running(test)


@pytest.mark.parametrize("doomed", ["the founder", "somebody"])
def test_others_go_on_when_a_publisher_is_killed_and_a_newcomer_takes_part(doomed: str) -> None:
    """What the victim published comes to all who stay or to none; who comes later gets what is published then."""
    each = 100

    async def publish(node: Node) -> None:
        for number in range(each):
            await node.publish("room", b"%d %d" % (node.identifier, number))
            await asyncio.sleep(0.002)

    async def test() -> None:
        async with AsyncExitStack() as stack:
            victim = (
                await stack.enter_async_context(child("publish", "fabric=gossip")) if doomed == "the founder" else None
            )
            join = [victim.address] if victim is not None else []
            nodes = [await stack.enter_async_context(antiphon.start(fabric="gossip", join=join))]
            for _ in range(4):
                starting = antiphon.start(fabric="gossip", join=[nodes[0].address])
                nodes.append(await stack.enter_async_context(starting))
            subscriptions = await subscribed(nodes)
            if victim is None:
                victim = await stack.enter_async_context(child("publish", "fabric=gossip", f"join={nodes[0].address}"))
            publishers = [asyncio.create_task(publish(node)) for node in nodes]
            reading = asyncio.create_task(until_ended(victim))
            await heard_from(await nodes[0].subscribe("room").ready(), 300)
            await victim.kill()
            await reading
            newcomer = await stack.enter_async_context(antiphon.start(fabric="gossip", join=[nodes[2].address]))
            late = await newcomer.subscribe("room").ready()
            await asyncio.gather(*publishers)
            await newcomer.publish("room", b"end")
            heard = await asyncio.gather(
                *(until_quiet(one, node, 5 * each) for one, node in zip(subscriptions, nodes, strict=True))
            )
            survived = [sorted(value for value in values if b" " in value) for values in heard]
            assert all(values == survived[0] and len(values) == 5 * each for values in survived)
            lost = [[int(value) for value in values if value.isdigit()] for values in heard]
            # A founder publishes before anybody subscribes: they begin at different numbers, and end at the same.
            assert all(numbers == list(range(numbers[0], lost[0][-1] + 1)) for numbers in lost)
            assert b"end" in await until_quiet(late, newcomer)

    running(test)


async def until_ended(process: Child) -> None:
    """Read what a process says, so that it can go on saying it."""
    while await process.line():
        pass


async def heard_from(subscription: Subscription, count: int) -> None:
    """Wait for so many messages of the process, which are numbers."""
    async for message in subscription:
        if message.value.isdigit():
            count -= 1
            if count == 0:
                break
    await subscription.close()


async def until_quiet(subscription: Subscription, node: Node, owed: int = 0) -> list[bytes]:
    """Everything up to the end and what those say who stay, and whatever else there is when nothing is unfinished."""
    values: list[bytes] = []

    async def read() -> None:
        take = values.append
        async for message in subscription:
            take(message.value)

    def has_all() -> bool:
        assert node._live.process is not None
        complete = b"end" in values and sum(b" " in value for value in values) >= owed
        return complete and subscription._live.queued == 0 and node._live.process.unfinished() == 0

    reading = asyncio.create_task(read())
    quiet_since, count = time.monotonic(), 0
    # What a dead publisher said last may be on its way between others.
    while time.monotonic() - quiet_since < 1.0:
        await asyncio.sleep(0.05)
        assert not reading.done(), reading
        if not has_all() or len(values) != count:
            quiet_since, count = time.monotonic(), len(values)
    reading.cancel()
    return values


def test_who_reads_slowly_slows_publishers_and_loses_nothing() -> None:
    """A window of 4 batches, a reader that holds 10 messages and takes none: publishers wait."""
    total = 200

    async def test() -> None:
        async with gossip(4, window=4, gossip={"period_seconds": 0.02}) as nodes:
            slow = nodes[3].subscribe("room", limit=10)
            quick = await subscribed(nodes[1:3])
            await slow.ready()
            hearing = [asyncio.create_task(exact_values(each, total)) for each in quick]
            published = 0

            async def publish() -> None:
                nonlocal published
                for number in range(total):
                    await nodes[0].publish("room", b"%d" % number)
                    await nodes[0].flush()
                    published += 1

            publishing = asyncio.create_task(publish())
            await until(lambda: nodes[3]._live.topics["room"].is_behind)
            status = 0
            while status != published:
                status = published
                await asyncio.sleep(1.0)
            assert published < total, "the publisher was not slowed"
            assert await exact_values(slow, total) == [b"%d" % number for number in range(total)]
            await publishing
            await asyncio.gather(*hearing)

    running(test)


def test_what_was_delivered_is_in_the_log(tmp_path: Path) -> None:
    async def test() -> None:
        async with gossip(2) as nodes:
            starting = antiphon.start(fabric="gossip", join=[nodes[1].address], data=str(tmp_path))
            async with starting as keeper:
                subscription = await keeper.subscribe("room").ready()
                for number in range(5):
                    await nodes[0].publish("room", b"%d" % number)
                await exact_values(subscription, 5)
                before = keeper.identifier
            async with antiphon.start(fabric="gossip", join=[nodes[0].address], data=str(tmp_path)) as again:
                assert again.identifier != before
                values = await take_values(again.subscribe("room", start="earliest"), 5)
                assert values == [b"%d" % number for number in range(5)]

    running(test)


def test_contacts_are_replaced_when_they_go() -> None:
    async def test() -> None:
        async with gossip(6) as nodes:
            await subscribed(nodes)
            await until(lambda: all(acquaintances(node).address_book.contacts() == [0, 1, 2] for node in nodes))
            await asyncio.gather(*(node.close() for node in nodes[:2]))
            left = nodes[2:]
            await until(lambda: acquaintances(left[0]).address_book.contacts()[:1] == [2])
            await until(lambda: len(acquaintances(left[0]).address_book.contacts()) == 3)
            # The new ones take part in all topics, so that they can found none that exists.
            number = left[0]._live.topic("room").number
            contacts = acquaintances(left[0]).address_book.contacts()
            await until(lambda: all(neighbours(node, number) for node in left if node.identifier in contacts))
            async with antiphon.start(fabric="gossip", join=[left[3].address]) as newcomer:
                heard = await newcomer.subscribe("room").ready()
                await left[1].publish("room", b"after")
                assert await take_values(heard, 1) == [b"after"]

    running(test)


def test_contacts_that_lost_each_other_meet_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection breaks between two contacts that both live: each tries again, and the other counts again."""
    monkeypatch.setattr("antiphon.membership.partial_view.RETRY_US", (100_000, 200_000))

    async def test() -> None:
        async with gossip(4) as nodes:
            await until(lambda: all(acquaintances(node).address_book.contacts() == [0, 1, 2] for node in nodes))
            lost = nodes[1]._live.host.links[0]
            assert lost._transport is not None
            lost._transport.abort()
            await until(lambda: 0 in acquaintances(nodes[1]).lost_nodes)
            await until(lambda: acquaintances(nodes[1]).address_book.contacts()[:2] == [0, 1])

    running(test)


def test_a_contact_that_is_lost_after_a_long_calm_is_tried_again_soon() -> None:
    """In a calm nobody is tried for minutes; who is lost then must not wait for so long, as others forget meanwhile."""

    async def test() -> None:
        async with gossip(4) as nodes:
            await until(lambda: all(acquaintances(node).address_book.contacts() == [0, 1, 2] for node in nodes))
            calm = acquaintances(nodes[1])
            calm._retry_us = RETRY_US[1]
            calm._set_retry()
            lost = nodes[1]._live.host.links[0]
            assert lost._transport is not None
            lost._transport.abort()
            await until(lambda: 0 in calm.lost_nodes)
            assert (
                nodes[1]._live.host._timers[RETRY].when() <= asyncio.get_running_loop().time() + RETRY_US[0] / SECOND_US
            )

    running(test)


def test_when_all_contacts_are_lost_another_node_becomes_one() -> None:
    async def test() -> None:
        async with gossip(6, gossip={"contacts": 1}) as nodes:
            subscriptions = await subscribed(nodes[1:])
            await nodes[0].close()
            await until(lambda: any(acquaintances(node).address_book.contacts() != [0] for node in nodes[1:]))
            await until(lambda: any(acquaintances(node).address_book.is_first_contact() for node in nodes[1:]))
            async with antiphon.start(fabric="gossip", join=[nodes[3].address]) as newcomer:
                heard = await newcomer.subscribe("room").ready()
                await nodes[5].publish("room", b"after")
                assert await take_values(heard, 1) == [b"after"]
            assert await asyncio.gather(*(exact_values(each, 1) for each in subscriptions)) == [[b"after"]] * 5

    running(test)


def test_who_has_no_identifier_left_sends_newcomers_on() -> None:
    async def test() -> None:
        async with gossip(3) as nodes:
            address_book = acquaintances(nodes[2]).address_book
            address_book._first = address_book._end
            async with antiphon.start(fabric="gossip", join=[nodes[2].address]) as newcomer:
                assert newcomer.identifier not in [node.identifier for node in nodes]
                assert acquaintances(newcomer).address_book.contacts() == [0, 1, 2]

    running(test)


def test_a_node_of_another_fabric_is_told_so() -> None:
    async def test() -> None:
        async with cluster(1) as (cube,):
            starting = antiphon.start(fabric="gossip", join=[cube.address], join_seconds=0.5)
            error = await outcome(starting)
            assert isinstance(error, JoinError)
            assert "has no meaning in the fabric 'cube'" in str(error)

    running(test)


def test_nobody_there_is_said() -> None:
    async def test() -> None:
        error = await outcome(antiphon.start(fabric="gossip", join=["127.0.0.1:1"], join_seconds=0.4))
        assert isinstance(error, PeerError)
        assert "no node at 127.0.0.1:1 has taken this one in after 0.4 seconds" in str(error)

    running(test)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"fabric": "gossip", "aggregate": True}, "leave aggregate out"),
        ({"gossip": {}}, "choose that fabric"),
        ({"fabric": "gossip", "gossip": {"active": 1, "expansion": 1.0}}, "chain or a ring"),
        ({"fabric": "gossip", "gossip": {"active": 9, "passive": 3}}, "cannot replace"),
        ({"fabric": "gossip", "window": 4096}, "further ahead than a buffer"),
        ({"fabric": "gossip", "gossip": "no such file.toml"}, "cannot read"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(settings: dict[str, Any], complaint: str) -> None:
    async def test() -> None:
        with pytest.raises(UsageError, match=complaint):
            await antiphon.start(**settings)

    running(test)


def test_who_has_no_identifiers_left_draws_new_ones() -> None:
    """As after all are gone who had many to give: each generation has a 256th of the one before."""

    async def test() -> None:
        async with cluster(3, fabric="gossip") as nodes:
            for node in nodes:
                assert isinstance(node._live.cluster, PartialView)
                address_book = node._live.cluster.address_book
                address_book.take(PlaceResponse(node.identifier, 0, 0, address_book.appointments()))
            newcomers = []
            async with AsyncExitStack() as stack:
                for place in (1, 2):
                    starting = antiphon.start(fabric="gossip", join=[nodes[place].address])
                    newcomers.append(await stack.enter_async_context(starting))
                first, second = (newcomer.identifier for newcomer in newcomers)
                assert first != second and min(first, second) >= BLOCKS_FIRST
                subscriptions = await subscribed([*nodes, *newcomers])
                await newcomers[1].publish("room", b"hello", order="causal")
                assert [await take_values(each, 1) for each in subscriptions] == [[b"hello"]] * 5

    running(test)
