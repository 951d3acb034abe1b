"""Retained messages: all doors that have heard the same agree, and filters find what they match."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from antiphon.mqtt.envelope import Envelope
from antiphon.mqtt.retained import RetainedMessage, RetainedTable
from antiphon.mqtt.topics import filter_matches

TOPICS = ["a", "a/b", "a/b/c", "a/", "/a", "$x/y", "b"]


class Clock:
    def __init__(self) -> None:
        self.now_us = 1_000_000

    def __call__(self) -> int:
        return self.now_us


def table(door: int = 1, clock: Clock | None = None) -> RetainedTable:
    return RetainedTable(door, clock or Clock())


def known(one: RetainedTable) -> dict[str, bytes]:
    return {each.topic: each.payload for pattern in ("#", "$x/#") for each in one.matching(pattern)}


RECORDS = st.lists(
    st.tuples(st.sampled_from(TOPICS), st.integers(0, 4), st.integers(0, 2), st.sampled_from([b"", b"1", b"2"])),
    max_size=12,
    unique_by=lambda record: record[:3],
)


@given(RECORDS, st.integers(0, 99))
def test_doors_agree_whatever_the_order_in_which_they_heard(
    records: list[tuple[str, int, int, bytes]], seed: int
) -> None:
    messages = [RetainedMessage(topic, stamp, door, payload, Envelope()) for topic, stamp, door, payload in records]
    clock = Clock()
    clock.now_us = 0
    one, other = table(1, clock), table(2, clock)
    for each in messages:
        one.merge(each)
    Random(seed).shuffle(messages)
    for each in messages:
        other.merge(each)
    assert known(one) == known(other)
    last = {each.topic: each for each in sorted(messages, key=lambda each: (each.stamp_us, each.door))}
    assert known(one) == {topic: each.payload for topic, each in last.items() if each.payload}
    assert one.count == len(known(one))


@given(
    st.sets(st.sampled_from(TOPICS)),
    st.sampled_from(["#", "a/#", "+", "+/b", "a/+", "a/+/c", "+/+", "$x/#", "$x/+", "a"]),
)
def test_a_filter_finds_what_it_matches(topics: set[str], mqtt_filter: str) -> None:
    one = table()
    for topic in topics:
        one.merge(one.stamped(topic, b"x", Envelope(), ()))
    found = [each.topic for each in one.matching(mqtt_filter)]
    assert sorted(found) == sorted(topic for topic in topics if filter_matches(mqtt_filter, topic))


def test_an_answer_is_later_than_what_it_answers_whatever_the_clocks_say() -> None:
    fast, slow = Clock(), Clock()
    fast.now_us, slow.now_us = 9_000_000, 1_000_000
    one, other = table(1, fast), table(2, slow)
    first = one.stamped("t", b"first", Envelope(), ())
    other.merge(first)
    answer = other.stamped("t", b"answer", Envelope(), ())
    assert answer.wins_over(first)
    one.merge(first)
    assert one.merge(answer)
    assert known(one) == {"t": b"answer"}


def test_an_old_message_does_not_come_back_after_its_removal() -> None:
    one = table()
    old = one.stamped("t", b"old", Envelope(), ())
    removal = one.stamped("t", b"", Envelope(), ())
    assert one.merge(old)
    assert one.merge(removal)
    assert not one.merge(old)
    assert known(one) == {}
    assert [each.topic for each in one.messages()] == ["t"]


def test_removals_are_forgotten_in_the_end() -> None:
    clock = Clock()
    one = table(1, clock)
    one.merge(one.stamped("t", b"", Envelope(), ()))
    clock.now_us += 2 * 3_600_000_000
    one.merge(one.stamped("u", b"", Envelope(), ()))
    assert [each.topic for each in one.messages()] == ["u"]


def test_a_message_that_has_expired_is_not_found() -> None:
    clock = Clock()
    one = table(1, clock)
    one.merge(one.stamped("t", b"x", Envelope(message_expiry_seconds=10), ()))
    clock.now_us += 9_000_000
    assert known(one) == {"t": b"x"}
    clock.now_us += 1_000_000
    assert known(one) == {}
    assert one.count == 0
