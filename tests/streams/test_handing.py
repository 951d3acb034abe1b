"""To whom the leader hands a message that came back."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from antiphon.streams.commands import ConsumerSettings
from antiphon.streams.consumers import Consumer
from antiphon.streams.handing import Handing
from antiphon.streams.links import MessageLinks


class OneStream:
    """A stream of some messages with one key, on a clock that a test moves; commands are settled at once."""

    def __init__(self, messages: int) -> None:
        self.end = messages
        self.clock_us = 0
        self.handed: list[tuple[int, int]] = []
        self.handing: Handing
        self._timers: list[tuple[int, Callable[[], object]]] = []

    def now_us(self) -> int:
        return self.clock_us

    def after(self, delay_us: int, call: Callable[[], object]) -> None:
        self._timers.append((self.clock_us + delay_us, call))

    def passes(self, until_us: int) -> None:
        self.clock_us = until_us
        due = [call for at_us, call in self._timers if at_us <= until_us]
        self._timers = [each for each in self._timers if each[0] > until_us]
        for call in due:
            call()

    def settled_end(self) -> int:
        return self.end

    def key_of(self, position: int) -> bytes:
        return b"key"

    def links(self, position: int) -> MessageLinks:
        return MessageLinks(1, position)

    def hand(self, member: int, position: int, delivery: int) -> None:
        self.handed.append((member, position))

    def settle_done(self, positions: list[int], done: Callable[[], object]) -> None:
        raise AssertionError("nobody acknowledges")

    def settle_return(self, position: int) -> None:
        self.handing.consumer.returns[position] = self.handing.consumer.returns.get(position, 0) + 1
        self.handing.returned(position)

    def bury(self, position: int, deliveries: int) -> None:
        raise AssertionError("nothing is buried")


def a_consumer(mode: str, messages: int = 1) -> OneStream:
    stream = OneStream(messages)
    settings = ConsumerSettings(mode, 1000)  # type: ignore[arg-type]
    stream.handing = Handing(Consumer("work", 0, settings), stream, is_new=True)
    return stream


@pytest.mark.parametrize("mode", ["any", "key", "causal"])
@pytest.mark.parametrize("members", [2, 3])
def test_a_message_whose_lease_ended_goes_to_another_member(mode: str, members: int) -> None:
    stream = a_consumer(mode)
    for member in range(members):
        stream.handing.attach(member, [], 4)
    for turn in range(1, 9):
        stream.passes(turn * 1000)
    holders = [member for member, _ in stream.handed]
    assert len(holders) == 9
    assert all(one != other for one, other in pairwise(holders)), holders
    assert set(holders) == set(range(members))


@pytest.mark.parametrize("mode", ["any", "key"])
def test_a_message_that_is_given_back_goes_to_the_only_member_that_has_room(mode: str) -> None:
    stream = a_consumer(mode)
    stream.handing.attach(1, [], 4)
    stream.handing.attach(2, [], 0)
    stream.handing.give_back(1, 0)
    assert stream.handed == [(1, 0), (1, 0)]


def test_a_key_leaves_a_member_that_does_nothing_though_its_leases_end_one_after_the_other() -> None:
    stream = a_consumer("key")
    stream.handing.attach(1, [], 4)
    stream.passes(500)
    stream.end = 2
    stream.handing.advance()
    stream.handing.attach(2, [], 4)
    for end_us in (1000, 1500, 2000):
        stream.passes(end_us)
    assert stream.handed == [(1, 0), (1, 1), (2, 0), (2, 1)]


def test_members_take_turns() -> None:
    stream = a_consumer("any", 9)
    for member in range(3):
        stream.handing.attach(member, [], 0)
    for member in range(3):
        stream.handing._members[member].window = 4
    stream.handing.advance()
    assert sorted(member for member, _ in stream.handed) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("mode", ["any", "key", "causal"])
def test_what_comes_back_before_all_members_were_heard_is_handed_out_behind_what_is_before_it(mode: str) -> None:
    """A member of the former leader's time holds the last message, and gives it back before anything is in view."""
    stream = OneStream(3)
    consumer = Consumer("work", 0, ConsumerSettings(mode, 1000))  # type: ignore[arg-type]
    consumer.members.update({1: None, 2: None})
    stream.handing = Handing(consumer, stream, is_new=False)
    stream.handing.attach(1, [(2, 1)], 4)
    stream.handing.give_back(1, 2)
    assert stream.handed == [], "member 2 may hold the others"
    stream.handing.attach(2, [], 4)
    stream.passes(10)
    positions = [position for _, position in stream.handed]
    assert positions == [0] if mode == "causal" else sorted(positions) == positions == [0, 1, 2]
