"""The judge of a live topic: rows of the logs of its nodes come a few at a time, and violations are found at once.

Each log shows what one node delivered, in that order, and what its own application published, at the place where it
started. That is all that is needed: what a publication follows is what its own node had delivered before it started,
and what that follows. The judge keeps a vector per log and never looks back, so what it keeps grows with the number of
publishers, and not with time. It knows no protocol and shares no code with one.

Found are:

- ``duplicates``: a log has a publication twice.
- ``fifo``: a publication comes after a later one of its publisher that had to wait for it.
- ``causal``: a publication comes after something that follows it.
- ``total``: two logs have two total publications about the same key in different orders.

What cannot be judged: what publications of a node follow whose own log is not watched, or was not watched yet when it
published; what those in total order follow beside what their publisher had published before (they start when they are
asked for, which no log shows); and what follows publications without order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from antiphon.audit.number_ranges import NumberRanges
from antiphon.kernel.message import CAUSAL, FIFO, NONE, TOTAL

TURN_ROWS = 64
"""Logs are read in turns of so many rows, so that none is far ahead of the others."""

PATIENCE_CALLS = 5
"""A row whose publisher's log does not show its start is judged without it after so many looks."""

GAPS_AT_MOST = 1024
STARTS_AT_MOST = 4096
UNSETTLED_AT_MOST = 256
KEYS_AT_MOST = 16_384
"""What is kept: holes in the numbers of a publisher, starts of a publisher that differ in what they follow, total
publications about a key that some log does not have yet, keys. Beyond that the oldest are forgotten, and not judged."""

Vector = dict[int, int]
Identity = tuple[int, int]
"""Publisher and sequence number."""


class Row(NamedTuple):
    """A message in a log."""

    log: int
    offset: int
    publisher: int
    sequence: int
    order: int
    keys: tuple[bytes, ...] = ()


class Violation(NamedTuple):
    """Something that is not as promised, where it shows."""

    kind: str
    log: int
    offset: int
    publisher: int
    sequence: int
    text: str


class Lane(msgspec.Struct):
    """One log: what it has shown so far."""

    numbers: dict[int, NumberRanges] = {}
    last: Vector = {}
    """By publisher, the last that had to wait for those before it."""
    knows: Vector = {}
    """What was delivered, and what that follows."""
    because: dict[int, Identity] = {}
    """By publisher, through which publication it is known how far."""
    waiting: list[Row] = []
    waited_calls: int = 0


class Starts(msgspec.Struct):
    """What the publications of one node follow: from a number on this, up to the next number."""

    seen_up_to: int = 0
    firsts: list[int] = []
    pasts: list[Vector] = []

    def add(self, sequence: int, past: Vector) -> None:
        """A publication has started."""
        self.seen_up_to = max(self.seen_up_to, sequence)
        if not self.pasts or self.pasts[-1] != past:
            self.firsts.append(sequence)
            self.pasts.append(dict(past))
            del self.firsts[:-STARTS_AT_MOST], self.pasts[:-STARTS_AT_MOST]

    def past_of(self, sequence: int) -> Vector:
        """What a publication follows; nothing if that is not known."""
        place = bisect_right(self.firsts, sequence)
        return self.pasts[place - 1] if place > 0 else {}


class Agreement(msgspec.Struct):
    """The total publications about one key: where logs have them that not all have, and how far all are."""

    unsettled: list[tuple[Identity, dict[int, int]]] = []
    last: tuple[Identity, dict[int, int]] | None = None
    """The last one that all logs have."""


class OrderWatch(msgspec.Struct):
    """Judges one topic. ``own`` says in which log a publisher's own publications start."""

    own: dict[int, int]
    logs: list[int]
    lanes: dict[int, Lane] = {}
    starts: dict[int, Starts] = {}
    agreements: dict[bytes, Agreement] = {}
    judged: int = 0
    unknown_starts: int = 0

    def judge(self, rows: Iterable[Row]) -> list[Violation]:
        """Look at more rows; those of one log come in the order of its offsets."""
        waiting: dict[int, deque[Row]] = {}
        for log in self.logs:
            lane = self.lanes.setdefault(log, Lane())
            waiting[log] = deque(lane.waiting)
        for row in rows:
            waiting[row.log].append(row)
        found: list[Violation] = []
        has_moved = True
        while has_moved:
            has_moved = False
            for log, queue in waiting.items():
                has_moved |= self._turn(self.lanes[log], queue, found)
        for log, queue in waiting.items():
            lane = self.lanes[log]
            lane.waited_calls = lane.waited_calls + 1 if queue and lane.waiting[:1] == [queue[0]] else 0
            lane.waiting = list(queue)
        return found

    def _turn(self, lane: Lane, queue: deque[Row], found: list[Violation]) -> bool:
        """Judge some rows of a log, up to one whose start is still to come; whether any was judged."""
        count = 0
        while queue and count < TURN_ROWS:
            if not self._is_known(queue[0]):
                if lane.waited_calls < PATIENCE_CALLS:
                    break
                self._give_up(lane, queue[0].publisher)
            self._judge_row(lane, queue.popleft(), found)
            count += 1
        return count > 0

    def _is_known(self, row: Row) -> bool:
        """Whether it is known what a publication follows, or never will be."""
        home = self.own.get(row.publisher)
        if row.order == NONE or home is None or home == row.log:
            return True
        starts = self.starts.get(row.publisher)
        return starts is not None and starts.seen_up_to >= row.sequence

    def _give_up(self, lane: Lane, publisher: int) -> None:
        """Wait no more for the starts of what has waited for long."""
        waited = [row.sequence for row in lane.waiting if row.publisher == publisher]
        self.unknown_starts += len(waited)
        starts = self.starts.setdefault(publisher, Starts())
        starts.seen_up_to = max(starts.seen_up_to, *waited)
        lane.waited_calls = 0

    def _judge_row(self, lane: Lane, row: Row, found: list[Violation]) -> None:
        self.judged += 1
        publisher, sequence = row.publisher, row.sequence
        if not lane.numbers.setdefault(publisher, NumberRanges()).add(sequence, GAPS_AT_MOST):
            found.append(violation("duplicates", row, "delivered again"))
            return
        if sequence <= lane.last.get(publisher, 0):
            found.append(violation("fifo", row, f"delivered after {lane.last[publisher]} of node {publisher}"))
        elif sequence <= lane.knows.get(publisher, 0):
            witness, number = lane.because[publisher]
            found.append(violation("causal", row, f"delivered after {number} of node {witness}, which follows it"))
        if row.order == NONE:
            self._started(lane, row, {})
            return
        past = self._started(lane, row, self._followed(lane, row))
        lane.last[publisher] = max(sequence, lane.last.get(publisher, 0))
        name = (publisher, sequence)
        for other, number in (*past.items(), name):
            if number > lane.knows.get(other, 0):
                lane.knows[other] = number
                lane.because[other] = name
        if row.order == TOTAL:
            self._judge_total(row, found)

    def _followed(self, lane: Lane, row: Row) -> Vector:
        """What a publication follows, beside what its own publisher had published before."""
        starts = self.starts.get(row.publisher)
        if self.own.get(row.publisher) == row.log and row.order == CAUSAL:
            return {other: number for other, number in lane.knows.items() if other != row.publisher}
        if self.own.get(row.publisher) == row.log:
            # What those before it follow: more is not known of when it was asked for, or it waits for no more.
            return {} if starts is None or not starts.pasts else starts.pasts[-1]
        return {} if starts is None else starts.past_of(row.sequence)

    def _started(self, lane: Lane, row: Row, past: Vector) -> Vector:
        """Note the start of a publication where it starts; what it follows."""
        if self.own.get(row.publisher) == row.log:
            starts = self.starts.setdefault(row.publisher, Starts())
            if row.order in (CAUSAL, TOTAL, FIFO):
                starts.add(row.sequence, past)
            else:
                starts.seen_up_to = max(starts.seen_up_to, row.sequence)
        return past

    # Total order.

    def _judge_total(self, row: Row, found: list[Violation]) -> None:
        for key in row.keys or (b"",):
            # Keys and their absence are told apart: no key is written as nothing, others with a mark before them.
            agreement = self._agreement(key if not row.keys else b"=" + key)
            other = disagreement(agreement, row)
            if other is not None:
                publisher, sequence = other
                found.append(
                    violation("total", row, f"delivered after {sequence} of node {publisher}, elsewhere before it")
                )
            settle(agreement, len(self.logs))

    def _agreement(self, key: bytes) -> Agreement:
        agreement = self.agreements.pop(key, None) or Agreement()
        # Which was used last stands last.
        self.agreements[key] = agreement
        if len(self.agreements) > KEYS_AT_MOST:
            del self.agreements[next(iter(self.agreements))]
        return agreement


def violation(kind: str, row: Row, what: str) -> Violation:
    """A violation, in a sentence."""
    name = f"publication {row.sequence} of node {row.publisher} at offset {row.offset} of log {row.log}"
    return Violation(kind, row.log, row.offset, row.publisher, row.sequence, f"{name}: {what}")


def disagreement(agreement: Agreement, row: Row) -> Identity | None:
    """Note where a log has a total publication; another one that two logs have on different sides of it."""
    name = (row.publisher, row.sequence)
    places = next((places for known, places in agreement.unsettled if known == name), None)
    if places is None:
        places = {}
        agreement.unsettled.append((name, places))
    places[row.log] = row.offset
    others = [(known, found) for known, found in agreement.unsettled if known != name and row.log in found]
    if agreement.last is not None:
        others.append(agreement.last)
    for known, found in others:
        is_after = row.offset > found[row.log]
        for log, offset in places.items():
            if log != row.log and log in found and (offset > found[log]) != is_after:
                return known
    return None


def settle(agreement: Agreement, log_count: int) -> None:
    """Forget what all logs have, but for how far they are; and what is too old."""
    while agreement.unsettled:
        is_whole = len(agreement.unsettled[0][1]) == log_count
        if not is_whole and len(agreement.unsettled) <= UNSETTLED_AT_MOST:
            return
        oldest = agreement.unsettled.pop(0)
        if is_whole:
            agreement.last = oldest


ENCODER = msgspec.msgpack.Encoder()
DECODER = msgspec.msgpack.Decoder(OrderWatch)


def watch_from(kept: bytes | None, own: Mapping[int, int], logs: Iterable[int]) -> OrderWatch:
    """The judge as it was when it was kept, or a new one; nodes may have begun new lives since, with the same logs."""
    if kept is None:
        return OrderWatch(own=dict(own), logs=sorted(logs))
    watch = DECODER.decode(kept)
    watch.own |= own
    watch.logs = sorted({*watch.logs, *logs})
    return watch


def kept_of(watch: OrderWatch) -> bytes:
    """All that a judge knows, to go on later."""
    return ENCODER.encode(watch)
