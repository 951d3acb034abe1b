"""Links: nothing lost and nothing out of order over a network that does both, and both ends agree when they break."""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random

import pytest

from antiphon.maelstrom.links import FrameLinks, LinkOptions
from antiphon.maelstrom.protocol import Frame
from antiphon.maelstrom.timers import HostTimers

MS = 1000
SECOND = 1_000_000


class Pair:
    """Two ends, 0 and 1, and a network between them."""

    def __init__(self, seed: int = 1, loss: float = 0.0, doubling: float = 0.0, spread_us: int = 0) -> None:
        self.now_us = 0
        self.is_cut = False
        self.one_way: int | None = None
        self.sent = 0
        # At each end, in order: messages, and what was said about the other end.
        self.seen: list[list[bytes | str]] = [[], []]
        self._random = Random(seed)
        self._loss, self._doubling, self._spread_us = loss, doubling, spread_us
        self._wire: list[tuple[int, int, int, Frame]] = []
        self.timers = HostTimers(lambda: self.now_us)
        self.ends = [self._end(place) for place in range(2)]

    def _end(self, place: int) -> FrameLinks:
        seen = self.seen[place]
        return FrameLinks(
            self.timers,
            LinkOptions(),
            lambda _, frame: self._send(place, frame),
            lambda _, message: seen.append(message),
            lambda _: seen.append("lost"),
            lambda _: seen.append("found"),
        )

    def _send(self, place: int, frame: Frame) -> None:
        for _ in range(2 if self._random.random() < self._doubling else 1):
            self.sent += 1
            delay = 100 * MS + (self._random.randrange(self._spread_us) if self._spread_us else 0)
            heappush(self._wire, (self.now_us + delay, self.sent, 1 - place, frame))

    def send(self, place: int, text: str) -> None:
        self.ends[place].to(1 - place).send(text.encode())
        self.settle()

    def watch(self) -> None:
        for place in range(2):
            self.ends[place].to(1 - place).watch()
        self.settle()

    def settle(self) -> None:
        for end in self.ends:
            end.settle()

    def run_until(self, end_us: int) -> None:
        while True:
            dues = [due for due in (self.timers.next_us(), self._wire[0][0] if self._wire else None) if due is not None]
            if not dues or min(dues) > end_us:
                break
            self.now_us = max(self.now_us, min(dues))
            while self._wire and self._wire[0][0] <= self.now_us:
                _, _, place, frame = heappop(self._wire)
                if not self.is_cut and self.one_way != place and self._random.random() >= self._loss:
                    self.ends[place].to(1 - place).receive(frame)
                    self.settle()
            self.timers.run_due()
            self.settle()
        self.now_us = end_us


def texts(seen: list[bytes | str]) -> list[str]:
    return [entry.decode() for entry in seen if isinstance(entry, bytes)]


@pytest.mark.parametrize("seed", range(5))
def test_everything_comes_once_and_in_order_however_bad_the_network_is(seed: int) -> None:
    pair = Pair(seed, loss=0.3, doubling=0.2, spread_us=300 * MS)
    random = Random(seed)
    expected: list[list[str]] = [[], []]
    for number in range(300):
        pair.run_until(pair.now_us + random.randrange(30 * MS))
        place = random.randrange(2)
        pair.send(place, f"{place}:{number}")
        expected[1 - place].append(f"{place}:{number}")
    pair.run_until(pair.now_us + 60 * SECOND)
    # A link breaks only when nothing is heard for long; here something always is.
    assert pair.seen == [[text.encode() for text in expected[0]], [text.encode() for text in expected[1]]]


def test_the_first_message_after_a_rest_leaves_at_once_and_others_leave_together() -> None:
    pair = Pair()
    for number in range(20):
        pair.send(0, str(number))
    pair.run_until(99 * MS)
    assert pair.sent == 2
    pair.run_until(100 * MS)
    assert texts(pair.seen[1]) == ["0"]
    pair.run_until(150 * MS)
    assert texts(pair.seen[1]) == [str(number) for number in range(20)]
    pair.run_until(10 * SECOND)
    # Two frames, and one acknowledgement of both.
    assert pair.sent == 3


def test_what_a_short_partition_takes_comes_soon_after_it_and_nobody_is_told() -> None:
    pair = Pair()
    pair.watch()
    for number in range(100):
        pair.run_until(number * 20 * MS)
        pair.is_cut = 500 <= number * 20 < 1500
        pair.send(0, str(number))
    pair.run_until(2500 * MS)
    assert pair.seen == [[], [str(number).encode() for number in range(100)]]


def test_a_stalled_link_sends_next_to_nothing() -> None:
    pair = Pair()
    pair.is_cut = True
    for number in range(1500):
        pair.send(0, str(number))
        pair.run_until(pair.now_us + 1 * MS)
        if number == 1000:
            # The first frame is late.
            before = pair.sent
    assert pair.sent - before <= 500 / 150 + 1
    pair.is_cut = False
    pair.run_until(5 * SECOND)
    assert texts(pair.seen[1]) == [str(number) for number in range(1500)]


def test_a_link_that_is_silent_for_too_long_breaks_for_both_ends_and_is_found_again() -> None:
    pair = Pair()
    pair.watch()
    pair.send(0, "before")
    pair.run_until(SECOND)
    pair.is_cut = True
    pair.send(0, "lost with the link")
    pair.send(1, "this one too")
    pair.run_until(10 * SECOND)
    assert pair.seen == [["lost"], [b"before", "lost"]]
    pair.is_cut = False
    pair.run_until(12 * SECOND)
    pair.send(0, "after")
    pair.run_until(13 * SECOND)
    assert pair.seen == [["lost", "found"], [b"before", "lost", "found", b"after"]]


def test_an_end_that_did_not_notice_is_told_by_the_other() -> None:
    """Only what end 0 sends gets through: end 0 gives up, and end 1, which hears it all the time, must know."""
    pair = Pair()
    pair.watch()
    pair.one_way = 0
    pair.run_until(20 * SECOND)
    assert pair.seen[0][0] == "lost"
    assert pair.seen[1][0] == "lost"
    pair.one_way = None
    pair.run_until(30 * SECOND)
    assert pair.seen[0][-1] == pair.seen[1][-1] == "found"
    pair.send(0, "after")
    pair.send(1, "after")
    pair.run_until(31 * SECOND)
    assert texts(pair.seen[0]) == texts(pair.seen[1]) == ["after"]


@pytest.mark.parametrize("seed", range(20))
def test_between_two_breaks_nothing_is_missing(seed: int) -> None:
    """What one end gets between two losses is a run of what the other sent, from its beginning, without gaps."""
    random = Random(seed)
    pair = Pair(seed, loss=0.1, spread_us=200 * MS)
    pair.watch()
    for number in range(400):
        pair.run_until(pair.now_us + random.randrange(200 * MS))
        if random.random() < 1 / 40:
            pair.is_cut = not pair.is_cut
        place = random.randrange(2)
        pair.send(place, f"{number}")
    pair.is_cut = False
    pair.run_until(pair.now_us + 20 * SECOND)
    for place in range(2):
        pair.send(place, "last")
    pair.run_until(pair.now_us + 20 * SECOND)
    for seen in pair.seen:
        assert seen[-1] == b"last"
        numbers = [int(text) for text in texts(seen)[:-1]]
        assert numbers == sorted(set(numbers))
        assert seen.count("lost") == seen.count("found")


def test_a_node_that_stood_still_takes_no_peer_for_lost() -> None:
    """Silence counts only as far as this node was awake to hear, as on live nodes."""
    pair = Pair()
    pair.watch()
    pair.run_until(3 * SECOND)
    pair.now_us += 3600 * SECOND
    pair.timers.run_due()
    pair.settle()
    pair.run_until(pair.now_us + 5 * SECOND)
    assert pair.seen == [[], []]


def test_a_silent_peer_is_asked_a_few_times_and_then_lost() -> None:
    pair = Pair()
    pair.watch()
    pair.run_until(SECOND)
    pair.is_cut = True
    before = pair.sent
    pair.run_until(int(3.5 * SECOND))
    assert pair.seen == [["lost"], ["lost"]]
    pair.is_cut = False
    pair.run_until(5 * SECOND)
    assert pair.seen == [["lost", "found"], ["lost", "found"]]
    assert pair.sent - before < 40
