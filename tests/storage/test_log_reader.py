"""What a node knows of its log when it comes back: what is in it, shown or not, and what is not."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import antiphon
from antiphon import Node
from antiphon.api.columns import Author, Columns
from antiphon.api.topic_names import topic_number
from antiphon.kernel.message import publication_key
from antiphon.node.settings import Settings
from antiphon.sessions.dedup import LoggedPublications, counts_in
from antiphon.storage.checkpoint import fact_of
from antiphon.storage.log_reader import passed_over_log
from tests.node.support import pieces_of, running, take_values

ROOM = topic_number("room")


async def say_twice(node: Node) -> None:
    """A batch of a client that was handed in at two nodes."""
    for _ in range(2):
        node._live.publish_columns("room", "causal", (), Columns(0, 0, [b"said"]), Author(77, 1))
    await node.flush()
    await node._live.disk.until_shown()


def test_what_no_subscriber_was_shown_counts_as_past_in_the_next_life(tmp_path: Path) -> None:
    async def test() -> None:
        async with antiphon.start(data=str(tmp_path)) as node:
            await node.subscribe("room").ready()
            before = node.identifier
            await say_twice(node)
            # That of the beginning.
            assert node._live.store is not None
            note = node._live.store.get(fact_of("room"))
            assert note
        async with antiphon.start(data=str(tmp_path)) as node:
            # As if the node had died, and not left.
            assert node._live.store is not None
            node._live.store.put(fact_of("room"), note)
            await node.subscribe("room").ready()
            assert node.identifier != before
            assert node._live.process is not None
            counted = [int(key) for key in node._live.process.frontier_keys(ROOM)]
            assert int(publication_key(before, 2)) in counted
            assert node._live.loop.log.was_logged(ROOM, before, 2) and not node._live.loop.log.was_logged(
                ROOM, before, 3
            )

    running(test)


def test_the_log_of_what_no_subscriber_was_shown_is_no_topic(tmp_path: Path) -> None:
    async def test() -> None:
        async with antiphon.start(data=str(tmp_path)) as node:
            await node.subscribe("room").ready()
            await say_twice(node)
            assert node._live.store is not None and node._live.store.latest(passed_over_log("room")) == 1
        async with antiphon.start(data=str(tmp_path)) as node:
            assert node._live.topic_registry.names == {"room"}

    running(test)


def test_what_came_before_the_membership_is_known_not_to_be_in_the_log(tmp_path: Path) -> None:
    async def test() -> None:
        async with antiphon.start() as first:
            for number in range(5):
                await first.publish("room", str(number).encode())
            settings = Settings(data=str(tmp_path), join=[first.address])
            async with antiphon.start(settings) as second:
                messages = await second.subscribe("room").ready()
                assert second._live.process is not None
                past = counts_in(second._live.process.frontier_keys(ROOM))[first.identifier]
                await first.publish("room", b"five")
                assert await take_values(messages, 1) == [b"five"]
                await second._live.disk.until_shown()
                assert not second._live.loop.log.was_logged(ROOM, first.identifier, past)
                assert second._live.loop.log.was_logged(ROOM, first.identifier, past + 1)
                assert second._live.store is not None
                note = second._live.store.get(fact_of("room"))
                assert note
            async with antiphon.start(settings) as again:
                # As if the node had died, and not left.
                assert again._live.store is not None
                again._live.store.put(fact_of("room"), note)
                await again.subscribe("room").ready()
                assert not again._live.loop.log.was_logged(ROOM, first.identifier, past)
                assert again._live.loop.log.was_logged(ROOM, first.identifier, past + 1)
                assert not again._live.loop.log.was_logged(ROOM, first.identifier, past + 2)

    running(test)


def test_who_left_and_comes_back_knows_what_its_log_holds(tmp_path: Path) -> None:
    async def test() -> None:
        before = []
        for _ in range(3):
            async with antiphon.start(data=str(tmp_path)) as node:
                await node.subscribe("room").ready()
                await say_twice(node)
                before.append(node.identifier)
                for identifier in before:
                    assert node._live.loop.log.was_logged(ROOM, identifier, 1) and node._live.loop.log.was_logged(
                        ROOM, identifier, 2
                    )
                    assert not node._live.loop.log.was_logged(ROOM, identifier, 3)
                assert node._live.process is not None
                assert len(counts_in(node._live.process.frontier_keys(ROOM))) == 1, "it is a member anew"

    running(test)


def test_a_log_without_a_checkpoint_may_hold_everything(tmp_path: Path) -> None:
    async def test() -> None:
        async with antiphon.start(data=str(tmp_path)) as node:
            await node.publish("room", b"said")
            await node._live.disk.until_shown()
            before = node.identifier
        for _ in range(2):
            async with antiphon.start(data=str(tmp_path)) as node:
                assert node._live.store is not None
                node._live.store.put(fact_of("room"), b"")
                await node.publish("room", b"more")
                assert node._live.loop.log.was_logged(ROOM, before, 1), "it is, and nobody says so"
                await node._live.disk.until_shown()

    running(test)


def test_what_a_log_holds_of_another_cluster_is_nothing_that_anybody_lacks(tmp_path: Path) -> None:
    """Sources of different clusters have the same numbers."""

    async def test() -> None:
        async with antiphon.start(data=str(tmp_path)) as alone:
            await alone.subscribe("room").ready()
            await say_twice(alone)
            before = alone.identifier
        async with antiphon.start() as other:
            assert other.identifier == before
            async with antiphon.start(Settings(data=str(tmp_path), join=[other.address])) as node:
                messages = await node.subscribe("room").ready()
                assert (
                    not node._live.loop.log.was_logged(ROOM, before, 1)
                    and pieces_of(node._live.loop.log.log_reader(ROOM)) == []
                )
                await other.publish("room", b"said here")
                assert await take_values(messages, 1) == [b"said here"]
                assert pieces_of(node._live.loop.log.log_reader(ROOM)) == [[1]]

    running(test)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 12)), unique=True), st.lists(st.integers(0, 12), min_size=4)
)
def test_a_checkpoint_says_all_that_the_log_has_held(appended: list[tuple[int, int]], counts: list[int]) -> None:
    logged = LoggedPublications()
    for source, sequence in appended:
        logged.add(source, sequence)
    keys = [int(publication_key(source, count)) for source, count in enumerate(counts[:4]) if count > 0]
    restored = LoggedPublications()
    restored.restore(keys, logged.unlike(keys), True)
    for source in range(4):
        for sequence in range(1, 14):
            assert restored.has(source, sequence) == ((source, sequence) in appended)
