"""Work in causal order: a message is handed out when everything that it follows is done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import antiphon
from antiphon import Client, Message, Node
from antiphon.api.batch_codec import decode_columns
from antiphon.api.columns import Follows
from antiphon.api.heard import TOPICS_AT_MOST, HeardTable, narrowed
from antiphon.streams.links import MessageLinks, PendingMessages
from tests.node.support import running
from tests.streams.test_live_streams import FABRICS, cluster, leader_of

HISTORY = [
    MessageLinks(1, 1),
    MessageLinks(1, 2),
    MessageLinks(2, 1, ((1, 1),)),
    MessageLinks(3, 1, ((1, 1),), is_narrowed=True),
    MessageLinks(3, 2, (), is_narrowed=True),
    MessageLinks(3, 3),
    MessageLinks(4, 1, ((9, 5), (3, 3))),
    MessageLinks(9, 5),
]


def test_a_message_waits_for_what_it_names_and_for_its_author_s_earlier_ones_unless_it_is_narrowed() -> None:
    done: set[int] = set()
    pending = PendingMessages(HISTORY.__getitem__, done.__contains__)
    for position in range(len(HISTORY)):
        pending.add(position)

    def awaited() -> list[int | None]:
        return [None if position in done else pending.first_awaited(position) for position in range(len(HISTORY))]

    # The last one is named by the one before it, and comes later: that cannot be waited for.
    assert awaited() == [None, 0, 0, 0, None, 4, 5, None]
    for position in (5, 0):
        done.add(position)
        pending.remove(position)
    # What follows everything of author 3 waits for the others of it, too.
    assert awaited() == [None, None, None, None, None, None, 4, None]
    done.add(4)
    assert pending.first_awaited(6) == 3, "a message that is done counts as such before it is removed"
    pending.remove(4)
    pending.remove(4)
    pending.pass_over(4)
    assert (pending.first_awaited(6), pending.first_awaited(7)) == (None, None)


def test_what_was_received_is_named_once_and_not_what_one_has_published_oneself() -> None:
    heard = HeardTable()
    for author, number in ((7, 3), (7, 2), (8, 1), (5, 9)):
        heard.note("room", author, number)
    follows = heard.take("room", me=5)
    assert follows == Follows({"": [7, 3, 8, 1]})
    assert heard.take("room", me=5) is None
    heard.note("room", 7, 4)
    heard.give_back("room", follows)
    assert heard.take("room", me=5) == Follows({"": [7, 4, 8, 1]})
    for number in range(TOPICS_AT_MOST + 1):
        heard.note(f"t{number}", 1, 1)
    assert len(heard.by_topic) == TOPICS_AT_MOST and "t0" not in heard.by_topic
    assert narrowed("room", [("room", 1, 2), ("other", 3, 4)]) == Follows({"": [1, 2], "other": [3, 4]}, True)


async def raw_follows(client: Client | Node, topic: str) -> list[Follows | None]:
    """What each message of a history says to follow."""
    found: list[Follows | None] = []
    async for message in client.history(topic, follow=False):
        columns = decode_columns(message._batch.payload)
        found.append(None if columns.follows is None else columns.follows[message._index])
    return found


def names(*messages: Message | antiphon.Receipt) -> list[int]:
    return [
        number
        for each in messages
        for number in (each.author, each.author_sequence if isinstance(each, Message) else each.sequence)
    ]


@pytest.mark.parametrize("fabric", FABRICS)
def test_messages_say_what_their_publisher_had_received(fabric: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path, fabric, count=2) as nodes, AsyncExitStack() as stack:
            ann, ben = [await stack.enter_async_context(antiphon.connect(node.address)) for node in nodes]
            await ann.topics.create("room", replicas=1)
            hears: list[AsyncIterator[Message]] = [
                aiter(await user.subscribe("room").ready()) for user in (ann, ben, nodes[0])
            ]
            question = await ann.publish("room", b"why?", acks="quorum")
            heard = [await asyncio.wait_for(anext(each), 90) for each in hears]
            answer = await ben.publish("room", b"because", acks="quorum")
            by_node = await nodes[0].publish("room", b"I see", acks="quorum")
            await ben.publish("room", b"and more", acks="quorum")
            await ben.publish("room", b"only this", after=[heard[0], answer], acks="quorum")
            await ann.publish("room", b"nothing", after=[], acks="quorum")
            found = await raw_follows(ann, "room")
            assert found[0] is None and found[1] == Follows({"": names(heard[1])})
            # The node's program had only taken the question; that its node had delivered more does not count.
            assert found[2] == Follows({"": names(heard[2])})
            assert found[3] is None, "its own messages need not be named"
            assert found[4] == Follows({"": [question.author, question.sequence, answer.author, answer.sequence]}, True)
            assert found[5] == Follows({}, True)
            assert by_node.author == nodes[0].identifier

    running(test)


@pytest.mark.parametrize("fabric", FABRICS)
def test_work_on_an_answer_begins_when_the_work_on_its_question_is_done(fabric: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path, fabric) as nodes, AsyncExitStack() as stack:
            asks, answers = [await stack.enter_async_context(antiphon.connect(node.address)) for node in nodes[1:]]
            await asks.topics.create("room", replicas=3)
            room = aiter(await answers.subscribe("room").ready())
            for number in range(2):
                await asks.publish("room", b"question %d" % number, acks="quorum")
                message = await asyncio.wait_for(anext(room), 90)
                assert message.value == b"question %d" % number
            await answers.publish("room", b"answer", acks="quorum")
            await answers.publish("room", b"aside", after=[], acks="quorum")
            workers = [
                await stack.enter_async_context(node.consume("room", "work", mode="causal")) for node in nodes[:2]
            ]

            async def next_of(count: int) -> dict[bytes, object]:
                found: dict[bytes, object] = {}
                while len(found) < count:
                    for worker in workers:
                        for message in await worker.fetch(8, timeout=0.2):
                            found[message.value] = message
                return found

            first = await next_of(2)
            assert set(first) == {b"question 0", b"aside"}
            # Giving a message back does not let those pass that follow it.
            await first[b"question 0"].nack()  # type: ignore[attr-defined]
            again = await next_of(1)
            assert set(again) == {b"question 0"}
            await again[b"question 0"].ack()  # type: ignore[attr-defined]
            second = await next_of(1)
            assert set(second) == {b"question 1"}
            for worker in workers:
                assert await worker.fetch(8, timeout=0.5) == []

            # The next leader keeps the order, too.
            killed = leader_of(nodes, "room")
            if killed is nodes[2]:
                await killed.abandon()
                for worker in workers:
                    assert await worker.fetch(8, timeout=0.5) == []
            await second[b"question 1"].ack()  # type: ignore[attr-defined]
            assert set(await next_of(1)) == {b"answer"}

    running(test)


def test_many_members_work_on_a_conversation_and_none_begins_too_early(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path, count=2) as nodes:
            await nodes[0].topics.create("room", replicas=1)
            done: set[bytes] = set()
            began: list[tuple[bytes, bytes | None]] = []

            async def work(node: Node) -> None:
                async with node.consume("room", "work", mode="causal", window=4) as messages:
                    async for message in messages:
                        before = message.headers.get("before")
                        assert before is None or before in done, f"{message.value} came before {before} was done"
                        began.append((message.value, before))
                        await asyncio.sleep(0.002)
                        done.add(message.value)
                        await message.ack()

            async def talk(node: Node, name: str, rounds: int) -> None:
                """Answers the last message of somebody else."""
                room = aiter(await node.subscribe("room").ready())
                last: bytes | None = None
                for number in range(rounds):
                    headers = None if last is None else {"before": last}
                    await node.publish("room", f"{name}{number}".encode(), headers=headers, acks="quorum")
                    last = (await asyncio.wait_for(anext(room), 90)).value

            workers = [asyncio.create_task(work(node)) for node in (*nodes, *nodes)]
            await asyncio.gather(talk(nodes[0], "a", 20), talk(nodes[1], "b", 20))
            async with asyncio.timeout(90):
                while len(done) < 40:
                    await asyncio.sleep(0.01)
                    assert not any(worker.done() for worker in workers), "a worker has failed"
            assert len(began) == 40 and any(before for _, before in began)
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    running(test)


def test_after_lists_messages_or_receipts(tmp_path: Path) -> None:
    async def test() -> None:
        async with antiphon.start(listen="127.0.0.1:0") as node:
            for wrong in ("text", [b"text"], 7):
                with pytest.raises(TypeError, match="after"):
                    node.publish("room", b"", after=wrong)  # type: ignore[arg-type]
            await node.publish("room", b"", after=[await node.publish("room", b"")])

    running(test)
