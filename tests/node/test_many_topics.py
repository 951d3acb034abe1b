"""The cost of a message does not grow with the number of topics: these tests count steps, not seconds."""

from __future__ import annotations

import pytest

import antiphon
from antiphon.api.topic_state import LiveTopic
from antiphon.node.loop import NodeLoop
from tests.node.support import running


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often nodes ask a topic for room, and whether its subscribers are behind."""
    counts = {"room": 0, "behind": 0}
    room = NodeLoop.room

    def counted_room(loop: NodeLoop, topic: LiveTopic) -> int:
        counts["room"] += 1
        return room(loop, topic)

    def counted_behind(topic: LiveTopic) -> bool:
        counts["behind"] += 1
        return bool(topic.behind)

    monkeypatch.setattr(NodeLoop, "room", counted_room)
    monkeypatch.setattr(LiveTopic, "is_behind", property(counted_behind, lambda _topic, _value: None), raising=False)
    return counts


async def steps_per_topic(topics: int, counted: dict[str, int]) -> dict[str, float]:
    """Publish once on each of so many new topics, for a subscriber of all of them at another node."""
    counted.update(room=0, behind=0)
    async with antiphon.start() as anna, antiphon.start(join=[anna.address]) as ben:
        everything = await ben.subscribe(">").ready()
        for number in range(topics):
            await anna.publish(f"topic.{number}", b"hello")
        received = 0
        async for _ in everything:
            received += 1
            if received == topics:
                break
    return {name: count / topics for name, count in counted.items()}


def test_a_new_topic_costs_as_many_steps_whatever_the_number_of_topics(counted: dict[str, int]) -> None:
    async def test() -> None:
        few = await steps_per_topic(100, counted)
        many = await steps_per_topic(800, counted)
        # Before, each turn of the loop asked every topic that waited: eight times as many topics, eight times the cost.
        assert many["room"] < 2 * few["room"] + 10
        assert many["behind"] < 2 * few["behind"] + 10

    running(test)
