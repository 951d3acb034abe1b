"""The judge of a live topic: it takes rows of the logs of all nodes, a few at a time, and finds violations at once.

Each log shows the deliveries of one node, in order, and the publications of its own application at the place where they
started. That is sufficient: a publication follows what its own node had delivered before it started, and what that
follows. The judge keeps a vector per log and never looks back, so its state grows with the number of publishers, and
not with time. It knows no protocol and shares no code with one.

It finds:

- ``duplicates``: a log has a publication twice.
- ``fifo``: a publication comes after a later one of its publisher that had to wait for it.
- ``causal``: a publication comes after something that follows it.
- ``total``: two logs have two total publications about the same key in different orders.

It cannot judge the past of publications of a node whose own log is not watched, or was not watched when it published;
the past of total publications beside the earlier ones of their publisher (they start when they are requested, which no
log shows); and the followers of publications without order.
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
"""A row whose start is missing in its publisher's log is judged without it after so many attempts."""

GAPS_AT_MOST = 1024
STARTS_AT_MOST = 4096
UNSETTLED_AT_MOST = 256
KEYS_AT_MOST = 16_384
"""Bounds of the state: gaps in the numbers of a publisher, starts of a publisher with different pasts, total
publications about a key that some log does not have yet, keys. Beyond these the oldest are forgotten, and not judged.
"""

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
    """A broken promise, and where it shows."""

    kind: str
    log: int
    offset: int
    publisher: int
    sequence: int
    text: str


class WatchedLog(msgspec.Struct):
    """The state of one log."""

    numbers: dict[int, NumberRanges] = {}
    last: Vector = {}
    """By publisher, the last publication that had to wait for those before it."""
    knows: Vector = {}
    """The deliveries, and what those follow."""
    because: dict[int, Identity] = {}
    """By publisher, the publication from which this knowledge comes."""
    waiting: list[Row] = []
    waited_calls: int = 0


class Starts(msgspec.Struct):
    """The pasts of the publications of one node: each holds from a number up to the next one."""

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
        """The past of a publication; empty if unknown."""
        place = bisect_right(self.firsts, sequence)
        return self.pasts[place - 1] if place > 0 else {}


class Agreement(msgspec.Struct):
    """The total publications about one key: their places in logs until all logs have them, and the last common one."""

    unsettled: list[tuple[Identity, dict[int, int]]] = []
    last: tuple[Identity, dict[int, int]] | None = None
    """The last one that all logs have."""


class OrderWatch(msgspec.Struct):
    """Judges one topic. ``own`` names the log in which a publisher's own publications start."""

    own: dict[int, int]
    logs: list[int]
    watched: dict[int, WatchedLog] = msgspec.field(default_factory=dict, name="lanes")
    """The state of each log. Stored watches have it under an older name."""
    starts: dict[int, Starts] = {}
    agreements: dict[bytes, Agreement] = {}
    judged: int = 0
    unknown_starts: int = 0

    def judge(self, rows: Iterable[Row]) -> list[Violation]:
        """Judge more rows; those of one log must come in the order of its offsets."""
        waiting: dict[int, deque[Row]] = {}
        for number in self.logs:
            waiting[number] = deque(self.watched.setdefault(number, WatchedLog()).waiting)
        for row in rows:
            waiting[row.log].append(row)
        found: list[Violation] = []
        has_moved = True
        while has_moved:
            has_moved = False
            for number, queue in waiting.items():
                has_moved |= self._turn(self.watched[number], queue, found)
        for number, queue in waiting.items():
            log = self.watched[number]
            log.waited_calls = log.waited_calls + 1 if queue and log.waiting[:1] == [queue[0]] else 0
            log.waiting = list(queue)
        return found

    def _turn(self, log: WatchedLog, queue: deque[Row], found: list[Violation]) -> bool:
        """Judge some rows of a log, up to one whose start is still missing; whether any was judged."""
        count = 0
        while queue and count < TURN_ROWS:
            if not self._is_known(queue[0]):
                if log.waited_calls < PATIENCE_CALLS:
                    break
                self._give_up(log, queue[0].publisher)
            self._judge_row(log, queue.popleft(), found)
            count += 1
        return count > 0

    def _is_known(self, row: Row) -> bool:
        """Whether the past of a publication is known, or never will be."""
        home = self.own.get(row.publisher)
        if row.order == NONE or home is None or home == row.log:
            return True
        starts = self.starts.get(row.publisher)
        return starts is not None and starts.seen_up_to >= row.sequence

    def _give_up(self, log: WatchedLog, publisher: int) -> None:
        """Wait no longer for starts that have been missing for long."""
        waited = [row.sequence for row in log.waiting if row.publisher == publisher]
        self.unknown_starts += len(waited)
        starts = self.starts.setdefault(publisher, Starts())
        starts.seen_up_to = max(starts.seen_up_to, *waited)
        log.waited_calls = 0

    def _judge_row(self, log: WatchedLog, row: Row, found: list[Violation]) -> None:
        self.judged += 1
        publisher, sequence = row.publisher, row.sequence
        if not log.numbers.setdefault(publisher, NumberRanges()).add(sequence, GAPS_AT_MOST):
            found.append(violation("duplicates", row, "delivered again"))
            return
        if sequence <= log.last.get(publisher, 0):
            found.append(violation("fifo", row, f"delivered after {log.last[publisher]} of node {publisher}"))
        elif sequence <= log.knows.get(publisher, 0):
            witness, number = log.because[publisher]
            found.append(violation("causal", row, f"delivered after {number} of node {witness}, which follows it"))
        if row.order == NONE:
            self._started(log, row, {})
            return
        past = self._started(log, row, self._followed(log, row))
        log.last[publisher] = max(sequence, log.last.get(publisher, 0))
        name = (publisher, sequence)
        for other, number in (*past.items(), name):
            if number > log.knows.get(other, 0):
                log.knows[other] = number
                log.because[other] = name
        if row.order == TOTAL:
            self._judge_total(row, found)

    def _followed(self, log: WatchedLog, row: Row) -> Vector:
        """The past of a publication, beside the earlier ones of its own publisher."""
        starts = self.starts.get(row.publisher)
        if self.own.get(row.publisher) == row.log and row.order == CAUSAL:
            return {other: number for other, number in log.knows.items() if other != row.publisher}
        if self.own.get(row.publisher) == row.log:
            # The past of those before it: the time of its request is unknown, or it waits for no more.
            return {} if starts is None or not starts.pasts else starts.pasts[-1]
        return {} if starts is None else starts.past_of(row.sequence)

    def _started(self, log: WatchedLog, row: Row, past: Vector) -> Vector:
        """Record the start of a publication where it starts; returns what it follows."""
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
            # A missing key differs from any key: it is empty, and keys get a prefix.
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
        # The most recently used key is the last.
        self.agreements[key] = agreement
        if len(self.agreements) > KEYS_AT_MOST:
            del self.agreements[next(iter(self.agreements))]
        return agreement


def violation(kind: str, row: Row, what: str) -> Violation:
    """A violation as a sentence."""
    name = f"publication {row.sequence} of node {row.publisher} at offset {row.offset} of log {row.log}"
    return Violation(kind, row.log, row.offset, row.publisher, row.sequence, f"{name}: {what}")


def disagreement(agreement: Agreement, row: Row) -> Identity | None:
    """Record the position of a total publication in a log; returns another one that two logs have on different sides of
    it.
    """
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
    """Forget publications that all logs have, except the last; and those that are too old."""
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
    """The stored judge, or a new one; nodes may have begun new incarnations since, with the same logs."""
    if kept is None:
        return OrderWatch(own=dict(own), logs=sorted(logs))
    watch = DECODER.decode(kept)
    watch.own |= own
    watch.logs = sorted({*watch.logs, *logs})
    return watch


def kept_of(watch: OrderWatch) -> bytes:
    """The state of a judge, to continue later."""
    return ENCODER.encode(watch)
