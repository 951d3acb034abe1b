"""The calendar gives events in the order of their times, and events of equal time in the order of their scheduling."""

from __future__ import annotations

from heapq import heappop, heappush

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.simulator.engine.calendar import RING_SIZE, STRIDE, Calendar
from tests.support import lists_up_to

# How far ahead an event is scheduled: the present tick, the near future, both sides of the ring's end, far beyond.
AHEAD = st.one_of(
    st.integers(0, 3),
    st.integers(0, 200),
    st.sampled_from([turn * RING_SIZE + more for turn in (1, 2, 3) for more in (-1, 0, 1)]),
    st.integers(0, 1 << 40),
)


class Driver:
    """A calendar that is worked through as the engine does it, beside a heap of (time, number) pairs."""

    def __init__(self) -> None:
        self.calendar = Calendar()
        self.heap: list[tuple[int, int]] = []
        self.scheduled = 0
        self.found: list[tuple[int, int]] = []
        self.expected: list[tuple[int, int]] = []

    def schedule(self, ahead: int) -> None:
        """Put the next event into both."""
        time = int(self.calendar.now) + ahead
        self.scheduled += 1
        self.calendar.schedule(time, "target", "sender", self.scheduled)
        heappush(self.heap, (time, self.scheduled))

    def work_through_next(self, followers: list[int]) -> bool:
        """Handle all events of the next tick; each takes one of ``followers`` and schedules it. False at the end."""
        time = self.calendar.next_time()
        if time < 0:
            return False
        bucket = self.calendar.advance(time)
        position = 0
        while position < len(bucket):
            what = bucket[position + 2]
            assert isinstance(what, int)
            assert bucket[position : position + 2] == ["target", "sender"]
            self.found.append((int(time), what))
            self.expected.append(heappop(self.heap))
            position += STRIDE
            if followers:
                self.schedule(followers.pop())
        self.calendar.clear_bucket(time)
        return True


@given(st.lists(AHEAD, min_size=1, max_size=8), lists_up_to(60, AHEAD), lists_up_to(20, AHEAD))
def test_events_come_out_as_from_a_sorted_list(first: list[int], followers: list[int], between: list[int]) -> None:
    """Scheduled at the beginning, by events, for the present tick, and between two runs."""
    driver = Driver()
    for ahead in first:
        driver.schedule(ahead)
    while driver.work_through_next(followers):
        assert driver.found == driver.expected
        if between:
            driver.schedule(between.pop())
    assert driver.heap == []
    assert len(driver.found) == driver.scheduled
    assert driver.found == driver.expected


def times_of(calendar: Calendar) -> list[tuple[int, list[object]]]:
    """Empty a calendar: per tick, what was to be done."""
    ticks: list[tuple[int, list[object]]] = []
    while (time := calendar.next_time()) >= 0:
        bucket = calendar.advance(time)
        ticks.append((int(time), bucket[2::STRIDE]))
        calendar.clear_bucket(time)
    return ticks


def test_events_of_equal_time_keep_their_order() -> None:
    calendar = Calendar()
    for number in range(5):
        calendar.schedule(7, None, None, number)
    assert times_of(calendar) == [(7, [0, 1, 2, 3, 4])]


def test_what_was_far_when_scheduled_comes_before_what_was_near() -> None:
    """Both are for one tick; the far one went into the dictionary, the near one into the ring, later."""
    calendar = Calendar()
    meeting = RING_SIZE + 10
    calendar.schedule(meeting, None, None, "far, first")
    calendar.schedule(20, None, None, "on the way")
    calendar.schedule(meeting, None, None, "far, second")
    calendar.advance(calendar.next_time())
    calendar.clear_bucket(20)
    calendar.schedule(meeting, None, None, "near")
    assert times_of(calendar) == [(meeting, ["far, first", "far, second", "near"])]


def test_a_bucket_grows_while_it_is_worked_through() -> None:
    calendar = Calendar()
    calendar.schedule(3, None, None, "first")
    bucket = calendar.advance(3)
    calendar.schedule(3, None, None, "now")
    assert bucket[2::STRIDE] == ["first", "now"]


def test_a_far_bucket_grows_while_it_is_worked_through() -> None:
    calendar = Calendar()
    calendar.schedule(5 * RING_SIZE, None, None, "first")
    bucket = calendar.advance(calendar.next_time())
    calendar.schedule(5 * RING_SIZE, None, None, "now")
    assert bucket[2::STRIDE] == ["first", "now"]


def test_two_times_that_share_a_slot_of_the_ring_stay_apart() -> None:
    calendar = Calendar()
    for turn in (2, 0, 1):
        calendar.schedule(5 + turn * RING_SIZE, None, None, turn)
    assert times_of(calendar) == [(5, [0]), (5 + RING_SIZE, [1]), (5 + 2 * RING_SIZE, [2])]


def test_a_tick_can_be_used_again_after_it_was_worked_through() -> None:
    """As when a run has stopped and something is scheduled for the very moment."""
    calendar = Calendar()
    calendar.schedule(4, None, None, "before")
    assert times_of(calendar) == [(4, ["before"])]
    calendar.schedule(4, None, None, "after")
    assert times_of(calendar) == [(4, ["after"])]


def test_an_empty_calendar_says_so() -> None:
    assert Calendar().next_time() == -1


def test_the_past_is_over() -> None:
    calendar = Calendar()
    calendar.schedule(9, None, None, "now")
    calendar.advance(9)
    with pytest.raises(AssertionError, match="cannot be scheduled in the past"):
        calendar.schedule(8, None, None, "too late")
