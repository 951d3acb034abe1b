"""Clients that wait until a node has what they have seen: the node looks at each number once, however often it asks."""

from __future__ import annotations

from typing import Any

from antiphon.sessions.client_messages import FollowRequest
from antiphon.sessions.resume import CaughtUp


class Seen:
    """The batches that have come, or publications that count as past; it counts how often it is asked."""

    def __init__(self) -> None:
        self.of: dict[int, int] = {}
        self.looks = 0

    def highest(self, author: int) -> int:
        self.looks += 1
        return self.of.get(author, 0)

    def has_range(self, publisher: int, first: int, last: int) -> bool:
        self.looks += 1
        return self.of.get(publisher, 0) >= last


class Topic:
    """A topic at a node."""

    def __init__(self) -> None:
        self.seen = Seen()


def waiting(message: FollowRequest, past: Seen | None = None) -> tuple[Any, Seen]:
    topic: Any = Topic()
    counted: Any = None if past is None else lambda: past
    return CaughtUp(topic, message, counted), topic.seen


def test_a_node_that_asks_again_looks_only_at_what_has_not_come() -> None:
    has_come, seen = waiting(FollowRequest(1, "room", dict.fromkeys(range(8000), 1) | {9000: 5}))
    seen.of = dict.fromkeys(range(8000), 1)
    assert not has_come()
    assert seen.looks == 8001
    for _ in range(100):
        assert not has_come()
    assert seen.looks == 8101
    seen.of[9000] = 5
    assert has_come()
    assert has_come()


def test_a_client_that_has_seen_nothing_waits_for_nothing() -> None:
    has_come, _ = waiting(FollowRequest(1, "room", {}))
    assert has_come()


def test_what_counts_as_past_is_not_waited_for_and_looked_at_once() -> None:
    past = Seen()
    gaps = [bound for number in range(2, 4000, 2) for bound in (number, number)]
    has_come, _ = waiting(FollowRequest(1, "room", {7: 3}, {1: [4000, *gaps], 2: [10]}), past)
    past.of = {1: 4000}
    assert not has_come()
    looks = past.looks
    assert looks == 2001, "the intervals of the first, and the second"
    for _ in range(100):
        assert not has_come()
    assert past.looks == looks + 100
    past.of[2] = 10
    assert has_come()


def test_without_publications_nothing_counts_as_past() -> None:
    past = Seen()
    past.of = {1: 1 << 40}
    has_come, seen = waiting(FollowRequest(1, "room", {7: 3}), past)
    assert not has_come()
    seen.of[7] = 3
    assert has_come()
