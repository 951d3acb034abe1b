"""A live cube whose nodes are killed, return with their logs, stand still, and are cut off."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import antiphon
from antiphon import Node, Subscription
from antiphon.api.columns import Author, Columns
from antiphon.api.topic_names import client_number
from antiphon.api.topic_state import LiveTopic
from antiphon.fabrics.cube.fault_tolerant import FaultTolerantVCubePs
from antiphon.membership import joining
from antiphon.membership.address_book import BLOCKS_FIRST
from antiphon.membership.cube_members import CubeMembers
from antiphon.membership.host import Timer
from antiphon.membership.messages import PlaceResponse
from antiphon.membership.retries import RETRY
from antiphon.node.settings import Settings
from antiphon.sessions.dedup import LoggedPublications
from antiphon.storage.checkpoint import BATCHES_PER_CHECKPOINT
from antiphon.storage.log_formats import Entry
from tests.cluster.proxy import behind_proxies
from tests.cluster.returning import total_works
from tests.node.support import Child, child, cluster, exact_values, pieces_of, running, subscribed, take_values, until


def present(node: Node) -> set[int]:
    """With whom a node is together, as its process knows it."""
    assert isinstance(node._live.process, FaultTolerantVCubePs), "nodes of a cube last"
    return {int(peer) for peer in node._live.process.presence.present}


async def values_until(subscription: Subscription, is_enough: Callable[[list[bytes]], bool]) -> list[bytes]:
    """What comes, one after the other, until it is enough."""
    values: list[bytes] = []
    async for message in subscription:
        values.append(message.value)
        if is_enough(values):
            break
    return values


async def listen_to(process: Child) -> None:
    """Read what a process says, which would stand still if nobody did."""
    while await process.line():
        pass


def test_nobody_waits_for_a_member_that_is_killed() -> None:
    """More than a window of messages is accepted and delivered after a member is gone that nobody waits for."""

    async def test() -> None:
        async with cluster(3, window=4) as nodes, child("publish", f"join={nodes[0].address}") as victim:
            subscriptions = await subscribed(nodes)
            assert await victim.line()
            await victim.kill()
            for number in range(500):
                await nodes[1].publish("room", b"own %d" % number)
            expected = [b"own %d" % number for number in range(500)]
            for subscription in subscriptions:
                seen = await values_until(subscription, lambda values: values.count(expected[-1]) == 1)
                assert [value for value in seen if value.startswith(b"own")] == expected

    running(test)


def test_nodes_that_are_given_several_places_are_known_by_the_one_that_they_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A newcomer asks the next node when an answer is late. If others took it for a node that it is not, they would
    wait for the answers of that one: total order would stand still, and locks of the dead would never be given up."""
    monkeypatch.setattr(joining, "ASK_US", 1000)

    async def test() -> None:
        async with cluster(3) as nodes, AsyncExitStack() as stack:
            given: list[PlaceResponse] = []
            for node in nodes:
                assert isinstance(node._live.cluster, CubeMembers)
                give = node._live.cluster.address_book.give
                monkeypatch.setattr(
                    node._live.cluster.address_book, "give", lambda *asked, give=give: noted(given, give(*asked))
                )
            starting = [antiphon.start(join=[node.address for node in nodes]) for _ in range(6)]
            for newcomer in await asyncio.gather(*map(stack.enter_async_context, starting)):
                nodes.append(newcomer)
            await until(lambda: all(present(node) == others(nodes, node) for node in nodes))
            await asyncio.gather(*(total_works(node) for node in nodes))
            assert all(present(node) == others(nodes, node) for node in nodes)
            assert len({place.identifier for place in given}) > 6, "no newcomer was given more than one place"

    running(test)


def others(nodes: list[Node], node: Node) -> set[int]:
    """The identifiers of all but one."""
    return {other.identifier for other in nodes if other is not node}


def noted(given: list[PlaceResponse], place: PlaceResponse | None) -> PlaceResponse | None:
    """The place that a node gives, which is written down."""
    given += [] if place is None else [place]
    return place


def test_what_a_dead_publisher_said_last_is_known_to_all_or_to_nobody() -> None:
    async def test() -> None:
        async with cluster(4) as nodes, child("publish", f"join={nodes[0].address}") as victim:
            subscriptions = await subscribed(nodes)
            heard_first = [await anext(aiter(subscription)) for subscription in subscriptions]
            await victim.kill()
            await until(lambda: all(len(present(node)) == 3 for node in nodes))
            for node in nodes:
                await node.publish("room", b"end", order="causal")
            heard: list[list[bytes]] = []
            for subscription in subscriptions:
                values = await values_until(subscription, lambda values: values.count(b"end") == 4)
                heard.append([value for value in values if value != b"end"])
            # Subscriptions began at different moments; from then on all have the same, in order, up to the same end.
            lines = [[int(m.value), *map(int, values)] for m, values in zip(heard_first, heard, strict=True)]
            assert len({line[-1] for line in lines}) == 1
            for line in lines:
                assert line == list(range(line[0], line[-1] + 1))

    running(test)


def test_who_restarts_with_its_log_gets_what_it_missed_before_anything_newer(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(3, data=None) as nodes:
            stays = await subscribed(nodes)
            first = await antiphon.start(join=[nodes[0].address], data=str(tmp_path / "x"))
            await first.subscribe("room").ready()
            for number in range(20):
                await nodes[number % 3].publish("room", b"%d" % number, order="causal")
            await until(lambda: first._live.topics["room"].end_offset == 20)
            await first._live.disk.until_shown()
            await first._live._shut()
            for number in range(20, 40):
                await nodes[number % 3].publish("room", b"%d" % number, order="causal")
            async with antiphon.start(join=[nodes[1].address], data=str(tmp_path / "x")) as again:
                assert again.identifier != first.identifier
                everything = again.subscribe("room", start="earliest")
                await everything.ready()
                await nodes[0].publish("room", b"40", order="causal")
                values = await take_values(everything, 41)
                assert sorted(map(int, values)) == list(range(41))
                assert values[-1] == b"40"
                # What it says now follows what its earlier life had seen.
                await again.publish("room", b"41", order="causal")
                for subscription in stays:
                    assert (await take_values(subscription, 42))[-1] == b"41"

    running(test)


def test_who_restarts_with_its_log_knows_what_clients_had_handed_in_and_reads_little_for_that(tmp_path: Path) -> None:
    count = 2 * BATCHES_PER_CHECKPOINT + 10

    async def test() -> None:
        async with antiphon.start(data=str(tmp_path)) as node, antiphon.connect(node.address) as client:
            for _ in range(count):
                await client.publish("room", b"said")
            await node._live.disk.until_shown()
            store, before = node._live.store, node._live.topics["room"]
            assert store is not None and node._live.loop.checkpoints is not None
            next_life = LiveTopic("room")
            next_life.logged = LoggedPublications()
            next_life.end_offset = before.end_offset
            read: list[int] = []
            read_between = store.read_between

            def counted(topic: str, offset: int, end: int) -> list[Entry]:
                found = read_between(topic, offset, end)
                read.append(len(found))
                return found

            store.read_between = counted  # type: ignore[method-assign]
            node._live.loop.checkpoints.of(next_life)
            assert next_life.seen.ranges() == before.seen.ranges() == {client_number(client._live._instance): [count]}
            assert sum(read) < BATCHES_PER_CHECKPOINT

    running(test)


def test_who_comes_back_gets_copies_too_that_are_in_no_log(tmp_path: Path) -> None:
    """A client hands in a batch at two nodes: it is shown once, and its second number is not to be waited for."""

    async def test() -> None:
        async with antiphon.start(data=str(tmp_path)) as node:
            await node.subscribe("room").ready()
            for _ in range(2):
                node._live.publish_columns("room", "causal", (), Columns(0, 0, [b"said"]), Author(77, 1))
            await node.flush()
            topic = node._live.topics["room"]
            assert topic.repeated_batches == 1 and topic.end_offset == 1
            assert node._live.loop.log.was_logged(topic.number, node.identifier, 2)
            assert not node._live.loop.log.was_logged(topic.number, node.identifier, 3)
            assert pieces_of(node._live.loop.log.log_reader(topic.number)) == [[2], [1]]

    running(test)


def test_what_only_a_dead_node_had_on_its_disk_comes_back_with_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with behind_proxies(3) as (nodes, _):
            subscriptions = await subscribed(nodes)
            settings = Settings(data=str(tmp_path / "x"), join=[nodes[0].address])
            lonely = await antiphon.start(settings)
            await lonely.publish("room", b"heard")
            for subscription in subscriptions:
                assert await take_values(subscription, 1) == [b"heard"]
            # Nothing of what it says now leaves its machine.
            for link in lonely._live.host.links.values():
                link.abort()
            await lonely.publish("room", b"on disk only")
            await lonely._live._shut()
            async with antiphon.start(settings) as again:
                await again.subscribe("room").ready()
                for subscription in subscriptions:
                    assert await take_values(subscription, 1) == [b"on disk only"]

    running(test)


@pytest.mark.parametrize("parted", [(3,), (0,), (0, 1, 2, 3)], ids=["one", "who all came through", "everybody"])
def test_both_sides_of_a_partition_go_on_and_exchange_what_they_missed(parted: tuple[int, ...]) -> None:
    async def test() -> None:
        async with behind_proxies(4) as (nodes, proxies):
            subscriptions = await subscribed(nodes)
            await nodes[2].publish("room", b"before")
            assert [await exact_values(each, 1) for each in subscriptions] == [[b"before"]] * 4
            for place in parted:
                proxies[place].cut()
            await until(lambda: all(not present(nodes[place]) for place in parted))
            for node in nodes:
                for number in range(10):
                    await node.publish("room", b"%d alone %d" % (node.identifier, number), order="causal")
            for place in parted:
                proxies[place].mend()
            await until(lambda: all(len(present(node)) == 3 for node in nodes))
            await nodes[0].publish("room", b"after", order="causal")
            values = [await exact_values(each, 41) for each in subscriptions]
            assert all(sorted(each) == sorted(values[0]) for each in values)
            for each in values:
                for node in nodes:
                    own = [value for value in each if value.startswith(b"%d alone" % node.identifier)]
                    assert own == [b"%d alone %d" % (node.identifier, number) for number in range(10)]
                last = b"%d alone 9" % nodes[0].identifier
                assert each.index(last) < each.index(b"after")

    running(test)


def test_without_logs_those_who_miss_more_than_is_kept_are_told_and_go_on() -> None:
    """Nobody has what was said first while one was cut off; what came after it is not held for ever."""
    count = 200

    async def test() -> None:
        async with behind_proxies(3, window=4) as (nodes, proxies):
            *others, _ = await subscribed(nodes)
            proxies[2].cut()
            await until(lambda: not present(nodes[2]) and all(len(present(node)) == 1 for node in nodes[:2]))
            for number in range(count):
                await nodes[2].publish("room", b"%d" % number, order="causal")
                # Each is a batch of its own.
                await nodes[2].flush()
            proxies[2].mend()
            await until(lambda: all(len(present(node)) == 2 for node in nodes))
            await nodes[2].publish("room", b"after", order="causal")
            for subscription in others:
                with pytest.raises(antiphon.MissedMessagesError):
                    await take_values(subscription, 1)
                values = await values_until(subscription, lambda values: values[-1] == b"after")
                assert 2 <= len(values) < count
                assert values[:-1] == [b"%d" % number for number in range(count + 1 - len(values), count)]

    running(test)


def test_who_is_taken_in_by_one_who_is_cut_off_finds_the_others_by_itself() -> None:
    """Nobody else would ever hear of it if the one who took it in did not come back."""

    async def test() -> None:
        async with behind_proxies(3) as (nodes, proxies):
            proxies[0].cut()
            await until(lambda: not present(nodes[0]))
            async with antiphon.start(join=[nodes[0]._live.settings.listen]) as newcomer:
                others = {nodes[1].identifier, nodes[2].identifier}
                await until(lambda: present(newcomer) == others)
                assert all(newcomer.identifier in present(node) for node in nodes[1:])

    running(test)


def test_who_was_cut_off_is_told_of_those_who_joined_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with behind_proxies(3) as (nodes, proxies):
            proxies[2].cut()
            await until(lambda: not present(nodes[2]))
            async with antiphon.start(join=[nodes[0]._live.settings.listen]) as newcomer:
                # It does not look for the one that is cut off by itself.
                assert isinstance(newcomer._live.cluster, CubeMembers)
                monkeypatch.setattr(newcomer._live.cluster, "_retry_later", lambda *_: None)
                for peer in tuple(newcomer._live.cluster._retries._next_us):
                    newcomer._live.host.cancel_timer(Timer(RETRY, peer))
                proxies[2].mend()
                await until(lambda: newcomer.identifier in present(nodes[2]))

    running(test)


def test_a_node_that_stood_still_does_no_harm(tmp_path: Path) -> None:
    """It is taken for lost, wakes up, and goes on; what it says then is heard, once and in order."""

    async def test() -> None:
        async with (
            cluster(3, lost_seconds=1.0) as nodes,
            child("publish", f"join={nodes[0].address}", f"data={tmp_path}") as sleeper,
        ):
            subscriptions = await subscribed(nodes)
            assert await sleeper.line()
            listening = asyncio.create_task(listen_to(sleeper))
            sleeper.process.send_signal(signal.SIGSTOP)
            await until(lambda: all(len(present(node)) == 2 for node in nodes))
            await nodes[0].publish("room", b"meanwhile")
            sleeper.process.send_signal(signal.SIGCONT)
            await until(lambda: all(len(present(node)) == 3 for node in nodes))
            for subscription in subscriptions:
                values = await values_until(subscription, lambda values: b"meanwhile" in values[:-200])
                own = [int(value) for value in values if value != b"meanwhile"]
                assert own == list(range(own[0], own[0] + len(own)))
            listening.cancel()

    running(test)


def test_who_comes_back_with_an_empty_disk_is_a_new_node(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(2) as nodes:
            stays = await subscribed(nodes)
            first = await antiphon.start(join=[nodes[0].address], data=str(tmp_path / "one"))
            await first.publish("room", b"old")
            await asyncio.gather(*(take_values(subscription, 1) for subscription in stays))
            await first._live._shut()
            async with antiphon.start(join=[nodes[0].address], data=str(tmp_path / "two")) as other:
                assert other.identifier not in (first.identifier, *(node.identifier for node in nodes))
                heard = other.subscribe("room")
                await heard.ready()
                await other.publish("room", b"new")
                assert await take_values(heard, 1) == [b"new"]
                for subscription in stays:
                    assert await take_values(subscription, 1) == [b"new"]

    running(test)


def test_who_has_no_identifiers_left_takes_new_ones_with_the_others() -> None:
    """As after all are gone who had many to give."""

    async def test() -> None:
        async with cluster(3) as nodes:
            for node in nodes:
                assert isinstance(node._live.cluster, CubeMembers), "nodes of a cube"
                node._live.cluster.address_book.take(
                    PlaceResponse(node.identifier, 0, 0, [], node._live.cluster.address_book.founding)
                )
            async with antiphon.start(join=[nodes[1].address]) as newcomer:
                assert newcomer.identifier >= BLOCKS_FIRST
                async with antiphon.start(join=[nodes[2].address]) as another:
                    assert another.identifier >= BLOCKS_FIRST and another.identifier != newcomer.identifier
                    subscriptions = await subscribed([*nodes, newcomer, another])
                    await another.publish("room", b"hello", order="causal")
                    assert [await take_values(each, 1) for each in subscriptions] == [[b"hello"]] * 5

    running(test)


def test_total_order_goes_on_when_the_keeper_is_killed() -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            keeper = await stack.enter_async_context(child("listen"))
            nodes = [await stack.enter_async_context(antiphon.start(join=[keeper.address])) for _ in range(3)]
            subscriptions = await subscribed(nodes)
            for number in range(10):
                await nodes[number % 3].publish("room", b"%d" % number, order="total", keys=["anna"])
            await keeper.kill()
            for number in range(10, 20):
                await nodes[number % 3].publish("room", b"%d" % number, order="total", keys=["anna"])
            lists = [await take_values(subscription, 20) for subscription in subscriptions]
            assert lists == [lists[0]] * 3 and sorted(map(int, lists[0])) == list(range(20))

    running(test)
