"""The rows of a run as columns of numbers, sorted so that questions about a moment or a message are quick.

A run may have a million rows. Everything here is done on whole columns, once; a question then looks at a few rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

NOTHING: Final = -1
"""Stands for a value that a row does not have."""

DENSE_RANGE: Final = 8
"""Values are numbered by marking while their range is at most so many times as wide as they are many."""

EVENTS: Final = (
    "publish", "deliver", "send", "receive", "drop", "duplicate", "crash", "restart", "join", "leave", "pause",
    "resume", "subscribe", "subscribed", "unsubscribe", "unsubscribed", "lost", "stuck", "end", "expire", "batch",
    "epoch", "unshown",
)  # fmt: skip
"""The events of a trace, by the numbers that this package gives them."""

EVENT_NUMBER: Final = {name: number for number, name in enumerate(EVENTS)}
PUBLISH: Final = EVENT_NUMBER["publish"]
DELIVER: Final = EVENT_NUMBER["deliver"]
SEND: Final = EVENT_NUMBER["send"]
RECEIVE: Final = EVENT_NUMBER["receive"]
DROP: Final = EVENT_NUMBER["drop"]
CRASH: Final = EVENT_NUMBER["crash"]
LOST: Final = EVENT_NUMBER["lost"]
DUPLICATE: Final = EVENT_NUMBER["duplicate"]

LIFE_EVENTS: Final = tuple(EVENT_NUMBER[name] for name in ("crash", "restart", "join", "leave", "pause", "resume"))
"""Events that begin or end a stretch in which a node works."""


@dataclass(frozen=True)
class MessageName:
    """A message as traces name it: its topic, its publisher, and its number there."""

    topic: int
    source: int
    sequence: int


@dataclass(frozen=True)
class Copies:
    """The copies that nodes sent to each other: the rows of both ends, and whether the copy was lost."""

    send: Numbers
    arrival: Numbers
    """The row of the arrival or of the loss; -1 if the run ended before."""
    is_lost: Flags
    carries: Flags
    """Whether the copy brings a publication, and not only an acknowledgement or a question between nodes."""


class RunIndex:
    """One run, ready for questions. Rows are named by their place in the history."""

    def __init__(self, table: pa.Table, about: dict[str, Any]) -> None:
        self.about: Final = about
        time = plain(table, "time")
        # A merged history may hold a row back for its cause; on a real axis it stands where its clock said.
        order = np.argsort(time, kind="stable") if np.any(np.diff(time) < 0) else None

        def column(name: str) -> Numbers:
            found = plain(table, name)
            return found if order is None else found[order]

        self.time: Final = time if order is None else time[order]
        self.event: Final = self._words(table, "event", order, EVENT_NUMBER)
        self.node: Final = column("node")
        self.peer: Final = column("peer")
        self.source: Final = column("source")
        self.sequence: Final = column("sequence")
        self.topic: Final = column("topic")
        self.value: Final = column("value")
        self.carried: Final = column("carried")
        kinds = {name: number for number, name in enumerate(words_in(table, "message"))}
        self.kind_names: Final = list(kinds)
        self.kind: Final = self._words(table, "message", order, kinds)
        orders = {name: number for number, name in enumerate(words_in(table, "order"))}
        self.order_names: Final = list(orders)
        self.order: Final = self._words(table, "order", order, orders)
        reasons = {name: number for number, name in enumerate(words_in(table, "reason"))}
        self.reason_names: Final = list(reasons)
        self.reason: Final = self._words(table, "reason", order, reasons)

    @staticmethod
    def _words(table: pa.Table, name: str, order: Numbers | None, numbers: dict[str, int]) -> Numbers:
        """A column of words as numbers."""
        if name not in table.column_names:
            return np.full(len(table), NOTHING, np.int64)
        chunks = []
        for chunk in table[name].chunks:
            coded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
            known = [NOTHING if word is None else numbers.get(word, NOTHING) for word in coded.dictionary.to_pylist()]
            # The last entry stands for rows without a word.
            numbering = np.array([*known, NOTHING], np.int64)
            chunks.append(numbering[pc.fill_null(coded.indices.cast(pa.int64()), len(known)).to_numpy()])
        whole = np.concatenate(chunks) if chunks else np.zeros(0, np.int64)
        return whole if order is None else whole[order]

    def __len__(self) -> int:
        return len(self.time)

    @property
    def first_time(self) -> int:
        """The time of the first row."""
        return int(self.time[0]) if len(self) else 0

    @property
    def last_time(self) -> int:
        """The time of the last row."""
        return int(self.time[-1]) if len(self) else 0

    @cached_property
    def nodes(self) -> list[int]:
        """The nodes of the run."""
        return [int(node) for node in np.unique(self.node)]

    @cached_property
    def topic_numbers(self) -> list[int]:
        """The topics of the run."""
        return [int(topic) for topic in np.unique(self.topic) if topic >= 0]

    @cached_property
    def lanes(self) -> Numbers:
        """The line of each row in the picture: the place of its node among all nodes."""
        return np.searchsorted(np.array(self.nodes, np.int64), self.node)

    @cached_property
    def has_copies(self) -> bool:
        """Whether the trace has a row for each copy, and not only for what applications see."""
        return bool(np.any(self.event == SEND))

    @cached_property
    def message(self) -> Numbers:
        """The number of the message that a row is about, the same for all its rows; -1 if it is about none."""
        has = self.source >= 0
        places = np.flatnonzero(has)
        sequences, how_many = dense(self.sequence[places])
        topics, _ = dense(self.topic[places])
        sources = self.source[places]
        wide = int(sources.max(initial=0)) + 1
        # Live nodes number topics and messages widely; places among those in use keep the key within 64 bits.
        numbers, _ = dense((topics * wide + sources) * how_many + sequences)
        found = np.full(len(self), NOTHING, np.int64)
        found[places] = numbers
        return found

    def sorted_rows(self, event: int) -> tuple[Numbers, Numbers]:
        """The rows of an event by their messages, in the order of time: the messages, and the rows beside them."""
        if event not in self._sorted:
            rows = np.flatnonzero(self.event == event)
            messages = self.message[rows]
            order = np.argsort(messages, kind="stable")
            self._sorted[event] = messages[order], rows[order]
        return self._sorted[event]

    @cached_property
    def _sorted(self) -> dict[int, tuple[Numbers, Numbers]]:
        return {}

    def rows_of(self, message: int, event: int) -> Numbers:
        """The rows of an event that are about one message, in the order of time."""
        messages, rows = self.sorted_rows(event)
        return rows[np.searchsorted(messages, message) : np.searchsorted(messages, message, side="right")]

    def number_of(self, name: MessageName) -> int:
        """The number of a message; -1 if the run has none of that name."""
        for event in (DELIVER, PUBLISH, LOST):
            _, rows = self.sorted_rows(event)
            is_it = (self.source[rows] == name.source) & (self.sequence[rows] == name.sequence)
            found = rows[is_it & (self.topic[rows] == name.topic)]
            if len(found):
                return int(self.message[found[0]])
        return NOTHING

    def name_of(self, row: int) -> MessageName:
        """The message that a row is about."""
        return MessageName(int(self.topic[row]), int(self.source[row]), int(self.sequence[row]))

    @cached_property
    def births(self) -> tuple[Numbers, Numbers]:
        """The messages that a publisher began in this run, in the order of their numbers, and the rows where it did."""
        is_own = (self.event == DELIVER) & (self.node == self.source)
        rows = np.flatnonzero((self.event == PUBLISH) | is_own)
        # A message begins with the first of its publisher's rows.
        messages, first = np.unique(self.message[rows], return_index=True)
        return messages, rows[first]

    def birth_of(self, message: int) -> int:
        """The row with which a message began; -1 if its publisher's rows are missing."""
        messages, rows = self.births
        place = int(np.searchsorted(messages, message))
        return int(rows[place]) if place < len(messages) and messages[place] == message else NOTHING

    @cached_property
    def birth_rows(self) -> Numbers:
        """For each delivery, in the order of rows, where its message began; -1 if unknown."""
        messages, rows = self.births
        found = np.full(len(self), NOTHING, np.int64)
        deliveries = np.flatnonzero(self.event == DELIVER)
        places = np.searchsorted(messages, self.message[deliveries])
        places = np.minimum(places, max(len(messages) - 1, 0))
        if len(messages):
            is_known = messages[places] == self.message[deliveries]
            found[deliveries] = np.where(is_known, rows[places], NOTHING)
        return found

    @cached_property
    def held(self) -> Numbers:
        """For each delivery, how long its node had the message already; -1 for other rows, and where it is unknown."""
        found = np.full(len(self), NOTHING, np.int64)
        arrivals = np.flatnonzero((self.event == RECEIVE) & (self.carried > 0))
        deliveries = np.flatnonzero((self.event == DELIVER) & (self.node != self.source))
        if not len(arrivals) or not len(deliveries):
            return found
        wide = int(self.node.max()) + 1
        key = self.message * wide + self.node
        keys, first = np.unique(key[arrivals], return_index=True)
        places = np.minimum(np.searchsorted(keys, key[deliveries]), len(keys) - 1)
        begun = self.time[arrivals[first[places]]]
        is_known = (keys[places] == key[deliveries]) & (begun <= self.time[deliveries])
        found[deliveries] = np.where(is_known, self.time[deliveries] - begun, NOTHING)
        return found

    @cached_property
    def waiting(self) -> tuple[Numbers, Numbers]:
        """Messages that a member received and never delivered: the rows of their arrivals, and how long they waited.

        A node that delivers nothing on a topic only forwards, and does not wait. A crash ends the wait.
        """
        nothing = np.zeros(0, np.int64), np.zeros(0, np.int64)
        arrivals = np.flatnonzero((self.event == RECEIVE) & (self.carried > 0) & (self.node != self.source))
        if not len(arrivals):
            return nothing
        wide = int(self.node.max()) + 1
        key = self.message * wide + self.node
        keys, first = np.unique(key[arrivals], return_index=True)
        arrivals = arrivals[first]
        ended = np.flatnonzero((self.event == DELIVER) | (self.event == LOST))
        deliveries = np.flatnonzero(self.event == DELIVER)
        membership = self.topic * wide + self.node
        is_waiting = ~np.isin(keys, key[ended]) & np.isin(membership[arrivals], membership[deliveries])
        rows = np.sort(arrivals[is_waiting])
        crashes = np.flatnonzero(self.event == CRASH)
        until = np.full(len(rows), self.last_time, np.int64)
        for crash in crashes[::-1]:
            until[(self.node[rows] == self.node[crash]) & (rows < crash)] = self.time[crash]
        return rows, until

    @cached_property
    def copies(self) -> Copies:
        """The copies that nodes sent, each with its arrival: the n-th of a kind on a link arrives n-th."""
        sends = np.flatnonzero(self.event == SEND)
        ends = np.flatnonzero((self.event == RECEIVE) | (self.event == DROP))
        wide = int(max(self.node.max(initial=0), self.peer.max(initial=0))) + 2
        kinds = len(self.kind_names) + 1
        what = (self.message + 1) * kinds + self.kind + 1
        send_keys = (what[sends] * wide + self.node[sends]) * wide + self.peer[sends] + 1
        end_keys = (what[ends] * wide + self.peer[ends]) * wide + self.node[ends] + 1
        by_send = np.argsort(send_keys, kind="stable")
        by_end = np.argsort(end_keys, kind="stable")
        sends, send_keys = sends[by_send], send_keys[by_send]
        ends, end_keys = ends[by_end], end_keys[by_end]
        rank = np.arange(len(sends)) - np.searchsorted(send_keys, send_keys)
        place = np.searchsorted(end_keys, send_keys) + rank
        is_met = place < np.searchsorted(end_keys, send_keys, side="right")
        arrival = np.where(is_met, ends[np.minimum(place, max(len(ends) - 1, 0))] if len(ends) else NOTHING, NOTHING)
        in_time = np.argsort(sends)
        sends, arrival = sends[in_time], arrival[in_time]
        is_lost = (arrival >= 0) & (self.event[arrival] == DROP)
        return Copies(sends, arrival, is_lost, self.carried[sends] > 0)


def plain(table: pa.Table, name: str) -> Numbers:
    """A column of numbers; -1 stands for null, and for all of a column that an older trace lacks."""
    if name not in table.column_names:
        return np.full(len(table), NOTHING, np.int64)
    found: Numbers = pc.fill_null(table[name].cast(pa.int64()), NOTHING).to_numpy()
    return found


def words_in(table: pa.Table, name: str) -> list[str]:
    """The words of a column."""
    if name not in table.column_names:
        return []
    found: set[str] = set()
    for chunk in table[name].chunks:
        words = chunk.dictionary if pa.types.is_dictionary(chunk.type) else pc.unique(chunk)
        found.update(word for word in words.to_pylist() if word is not None)
    return sorted(found)


def dense(values: Numbers) -> tuple[Numbers, int]:
    """Each value as its place among all of them, and how many there are."""
    if not len(values):
        return values, 1
    low, high = int(values.min()), int(values.max())
    if high - low < DENSE_RANGE * len(values):
        # Marking what is there is several times as fast as sorting.
        is_used = np.zeros(high - low + 1, np.bool_)
        is_used[values - low] = True
        places = np.cumsum(is_used) - 1
        return places[values - low], int(places[-1]) + 1
    used, places = np.unique(values, return_inverse=True)
    return places.astype(np.int64), len(used)
