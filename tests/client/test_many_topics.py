"""A client that publishes on many topics at once, with more than may be under way."""

from __future__ import annotations

import pytest

import antiphon
from antiphon.sessions.client_end import ClientEnd
from antiphon.sessions.unacked import WINDOW
from tests.node.support import cluster, running

TOPICS = 10 * WINDOW


def test_room_for_one_topic_does_not_try_all_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each answer of the node costs more, the more topics wait."""
    asked: list[str] = []
    room = ClientEnd.room

    def count(self: ClientEnd, topic: str) -> int:
        asked.append(topic)
        return room(self, topic)

    monkeypatch.setattr(ClientEnd, "room", count)

    async def test() -> None:
        async with cluster(1) as nodes, antiphon.connect(nodes[0].address) as client:
            for number in range(TOPICS):
                client.publish(f"topic.{number}", b"x")
            await client.flush()

    running(test)
    assert len(set(asked)) == TOPICS
    assert len(asked) < 11 * TOPICS, len(asked)
