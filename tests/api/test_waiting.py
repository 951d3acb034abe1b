"""The queue of a subscription: gaps that nobody reads take no more memory, and none is lost."""

from __future__ import annotations

from antiphon.api.batch import Batch
from antiphon.api.batch_codec import encode_columns
from antiphon.api.columns import Columns
from antiphon.api.topic_state import LiveTopic
from antiphon.api.waiting import ENTRY_BYTES, Mark, WaitingBatches


def batch_in(topic: LiveTopic, number: int) -> Batch:
    return Batch(topic.name, 3, "fifo", number, encode_columns(Columns(0, 0, [b"value"])))


def shown(waiting: WaitingBatches) -> list[tuple[str, int | str]]:
    """What an application gets that reads all of it."""
    found: list[tuple[str, int | str]] = []
    while waiting.entries:
        topic, entry = waiting.take()
        if isinstance(entry, Batch):
            found.append((topic.name, entry.first_offset))
        else:
            found.append((topic.name, "gap" if entry.is_gap else "beginning"))
    return found


def test_gaps_that_nobody_reads_are_one_gap_until_something_comes_between_them() -> None:
    room, hall = LiveTopic("room"), LiveTopic("hall")
    waiting = WaitingBatches(1000)
    for _ in range(10_000):
        waiting.add_mark(room, Mark())
        waiting.add_mark(hall, Mark())
    assert waiting.bytes == 2 * ENTRY_BYTES
    waiting.add(room, batch_in(room, 1))
    for _ in range(10_000):
        waiting.add_mark(room, Mark())
        waiting.add_mark(hall, Mark())
    waiting.add_mark(hall, Mark({}))
    waiting.add_mark(hall, Mark())
    expected = [("room", "gap"), ("hall", "gap"), ("room", 1), ("room", "gap"), ("hall", "beginning"), ("hall", "gap")]
    assert shown(waiting) == expected
    assert waiting.bytes == 0 and waiting.messages == 0


def test_a_gap_is_told_again_to_who_has_read_the_last_one() -> None:
    room = LiveTopic("room")
    waiting = WaitingBatches(1000)
    for _ in range(3):
        waiting.add_mark(room, Mark())
        assert shown(waiting) == [("room", "gap")]
    waiting.add_mark(room, Mark())
    waiting.clear()
    waiting.add_mark(room, Mark())
    assert shown(waiting) == [("room", "gap")]


def test_gaps_stay_where_the_batches_between_them_were_dropped_and_become_one() -> None:
    room, hall = LiveTopic("room"), LiveTopic("hall")
    waiting = WaitingBatches(1)
    for number in range(1000):
        waiting.add_mark(room, Mark())
        waiting.add_mark(hall, Mark())
        marks = []
        while waiting.entries:
            topic, entry = waiting.take()
            if isinstance(entry, Mark):
                marks.append((topic, entry))
        waiting.put_back(marks)
        waiting.add(room, batch_in(room, number))
    assert len(waiting.entries) == 3
    assert shown(waiting) == [("room", "gap"), ("hall", "gap"), ("room", 999)]
