"""The cost of a message does not grow with the number of topics: these tests count steps, not seconds."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

import pytest

import antiphon
from antiphon.api.topic_state import LiveTopic
from antiphon.cli.output import is_compiled
from antiphon.membership.membership import Membership
from antiphon.membership.messages import Control
from antiphon.node.loop import NodeLoop
from tests.node.support import running


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often nodes ask a topic for room."""
    counts = {"room": 0}
    room = NodeLoop.room

    def counted_room(loop: NodeLoop, topic: LiveTopic) -> int:
        counts["room"] += 1
        return room(loop, topic)

    monkeypatch.setattr(NodeLoop, "room", counted_room)
    return counts


async def take_all(subscription: antiphon.Subscription, count: int) -> None:
    """Take so many messages."""
    received = 0
    async for _ in subscription:
        received += 1
        if received == count:
            return


async def steps_per_topic(topics: int, counted: dict[str, int]) -> dict[str, float]:
    """Publish once on each of so many new topics, for a subscriber of all of them at another node."""
    counted.update(room=0)
    async with antiphon.start() as anna, antiphon.start(join=[anna.address]) as ben:
        everything = await ben.subscribe(">").ready()
        for number in range(topics):
            await anna.publish(f"topic.{number}", b"hello")
        await take_all(everything, topics)
    return {name: count / topics for name, count in counted.items()}


def test_a_new_topic_costs_as_many_steps_whatever_the_number_of_topics(counted: dict[str, int]) -> None:
    async def test() -> None:
        few = await steps_per_topic(100, counted)
        many = await steps_per_topic(800, counted)
        # Before, each turn of the loop asked every topic that waited: eight times as many topics, eight times the cost.
        assert many["room"] < 2 * few["room"] + 10
        assert few["room"] >= 1, "every new topic asks"

    running(test)


def test_new_topics_of_one_turn_are_announced_together_and_nobody_asks_who_was_there_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    tell = Membership.send_control

    def counted_tell(membership: Membership, identifier: int, control: Control) -> None:
        told.append(type(control).__name__)
        tell(membership, identifier, control)

    monkeypatch.setattr(Membership, "send_control", counted_tell)

    async def test() -> None:
        async with antiphon.start() as anna, antiphon.start(join=[anna.address]) as ben:
            everything = await ben.subscribe(">").ready()
            told.clear()
            tasks = len(asyncio.all_tasks())
            for number in range(200):
                anna.publish(f"topic.{number}", b"hello")
            assert len(asyncio.all_tasks()) == tasks, "no task for a topic"
            await take_all(everything, 200)
            assert told.count("TopicAnnouncement") == 1
            assert told.count("TopicAnnouncementAck") == 200
            # On a topic without a past, there is nothing to learn from others.
            assert told.count("FrontierRequest") == 0

    running(test)


def test_a_topic_at_rest_takes_little_memory() -> None:
    """Bytes that Python has allocated, for two nodes; the message of each topic, which both keep, is part of them."""
    topics = 400

    async def test() -> None:
        async with antiphon.start() as anna, antiphon.start(join=[anna.address]) as ben:
            everything = await ben.subscribe(">").ready()
            await anna.publish("before", b"hello")
            await take_all(everything, 1)
            gc.collect()
            tracemalloc.start()
            try:
                for number in range(topics):
                    anna.publish(f"topic.{number}", b"hello")
                await take_all(everything, topics)
                gc.collect()
                used, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            # Before, it took 11,000. Tables have room for more, and instances of plain classes have dictionaries.
            assert used / topics / 2 < (4_500 if is_compiled() else 9_000)

    running(test)
