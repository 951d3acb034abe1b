"""A part of a trace, arranged for judging: its publications, and its histories.

A *history* has the rows of one node about one topic, in order. Everything here is columnar: no step loops over rows, so
millions of rows of thousands of histories are arranged in seconds. The definitions are those of the judge of small
traces (:mod:`antiphon.audit.oracle`); the implementation is independent, and tests compare every verdict.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from antiphon.audit.oracle import EVENTS
from antiphon.kernel.message import NONE, ORDER_NAMES, TOTAL, UNSPECIFIED

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

PUBLISH, DELIVER, SUBSCRIBED, LEAVING, UNSUBSCRIBED, LOST = range(len(EVENTS))
"""Events by their index in the oracle's list."""

NEVER = np.iinfo(np.int64).max
NOBODY = -1
BEFORE_EVERYTHING = -1
"""The position of memberships that exist from the start."""

POSITION = "position"
"""The column of a trace with the order of events."""

WORDS = {"event": EVENTS, "order": list(ORDER_NAMES)}
"""The judged columns of words, and how their words are numbered."""


@dataclass(frozen=True)
class Rows:
    """Rows of a trace; ``position`` gives their order.

    ``judged`` is false for rows that only tell what was published: another part judges them.
    """

    topic: Integers
    node: Integers
    source: Integers
    sequence: Integers
    event: Integers
    order: Integers
    position: Integers
    judged: Flags

    def __len__(self) -> int:
        return len(self.topic)

    def taken(self, places: Integers | Flags) -> Rows:
        """Some of the rows."""
        return Rows(*(getattr(self, field.name)[places] for field in fields(self)))

    def in_order(self) -> Rows:
        """The same rows in the order of events."""
        if np.all(self.position[1:] >= self.position[:-1]):
            return self
        return self.taken(np.argsort(self.position, kind="stable"))


def rows_of_table(table: pa.Table, everybody: int = 0) -> Rows:
    """The judged rows of a trace; positions are row numbers.

    ``everybody`` is the number of nodes where all are members of everything from the start.
    """
    events, orders = (pc.index_in(table[name].cast(pa.string()), pa.array(names)) for name, names in WORDS.items())
    places = np.flatnonzero(pc.is_valid(events).to_numpy())
    chosen = table.select(["topic", "node", "source", "sequence"]).take(pa.array(places))
    topic, node, source, sequence = (chosen[name].to_numpy().astype(np.int64) for name in chosen.column_names)
    event = events.to_numpy()[places].astype(np.int64)
    order = pc.fill_null(orders, UNSPECIFIED).to_numpy()[places].astype(np.int64)
    topics = np.repeat(np.unique(topic), everybody)
    nodes = np.tile(np.arange(everybody), len(np.unique(topic)))
    nothing = np.zeros(len(nodes), np.int64)
    return Rows(
        np.append(topics, topic),
        np.append(nodes, node),
        np.append(nodes, source),
        np.append(nothing, sequence),
        np.append(nothing + SUBSCRIBED, event),
        np.append(nothing + UNSPECIFIED, order),
        np.append(nothing + BEFORE_EVERYTHING, places),
        np.ones(len(nodes) + len(places), np.bool_),
    )


def begins_of(groups: Integers) -> Flags:
    """Where a new group begins in a column in which groups are contiguous."""
    begins = np.ones(len(groups), np.bool_)
    begins[1:] = groups[1:] != groups[:-1]
    return begins


def maximum_before(values: Integers, begins: Flags) -> Integers:
    """For each row the maximum of the rows before it in its group; 0 for the first. Values are not negative."""
    if len(values) == 0:
        return values
    # Each group is lifted above all groups before it, so one running maximum serves them all.
    lift = (np.cumsum(begins) - 1) * (int(values.max()) + 1)
    running = np.maximum.accumulate(values + lift)
    before = np.zeros_like(values)
    before[1:] = running[:-1]
    return np.where(begins, 0, before - lift)


class Names:
    """Small numbers for topics, nodes and publications of a part."""

    def __init__(self, rows: Rows) -> None:
        self.topics = np.unique(rows.topic)
        self.nodes = np.unique(np.concatenate([np.unique(rows.node), np.unique(rows.source)]))
        self.node_count = max(1, len(self.nodes))
        self.span = int(rows.sequence.max(initial=0)) + 1
        assert len(self.topics) * self.node_count * self.span < 1 << 62, "the names of a part fit in a word"

    def topic(self, topics: Integers) -> Integers:
        """Indices of topics."""
        return np.searchsorted(self.topics, topics)

    def node(self, nodes: Integers) -> Integers:
        """Indices of nodes."""
        return np.searchsorted(self.nodes, nodes)

    def history(self, topics: Integers, nodes: Integers) -> Integers:
        """Numbers of histories, from indices of topics and nodes; a publication's number contains its source's."""
        return topics * self.node_count + nodes


class Publications:
    """The publications and requests of a part, sorted by topic, source and number."""

    def __init__(self, rows: Rows, names: Names, default: int) -> None:
        self._names = names
        times = np.arange(len(rows))
        is_own = (rows.event == DELIVER) & (rows.node == rows.source)
        is_asked = rows.event == PUBLISH
        context = rows.taken(is_own | is_asked)
        identities = self.identities(context)
        self.identity = np.unique(identities)
        count = len(self.identity)
        own, asked = context.event == DELIVER, context.event == PUBLISH
        places = np.searchsorted(self.identity, identities)
        self.start = np.full(count, NEVER)
        own_order = np.full(count, UNSPECIFIED, np.int64)
        # The first of several wins: it is written last.
        self.start[places[own][::-1]] = times[is_own][::-1]
        own_order[places[own][::-1]] = context.order[own][::-1]
        self.asked_order = np.full(count, UNSPECIFIED, np.int64)
        self.asked_order[places[asked]] = context.order[asked]
        self.asked_at = np.full(count, NEVER)
        self.asked_at[places[asked][::-1]] = times[is_asked][::-1]
        self.own_order = own_order
        # Where no row has the requested order, the publisher's own delivery gives it.
        said = np.where(self.asked_at < self.start, self.asked_order, own_order)
        self.order = np.where(said != UNSPECIFIED, said, default)
        # A total publication starts when it is requested: it may reach its publisher later than other nodes.
        self.start = np.where(self.order == TOTAL, np.minimum(self.start, self.asked_at), self.start)
        self.default = default
        self.source_history = self.identity // names.span
        self.sequence = self.identity % names.span
        self.topic = self.source_history // names.node_count
        self.topic_begins = np.searchsorted(self.topic, np.arange(len(names.topics) + 1))

    def identities(self, rows: Rows) -> Integers:
        """The publications that rows are about, as numbers."""
        names = self._names
        return names.history(names.topic(rows.topic), names.node(rows.source)) * names.span + rows.sequence

    def find(self, identities: Integers) -> Integers:
        """Indices of publications; ``NOBODY`` for those that no node published."""
        if len(self.identity) == 0:
            return np.full(len(identities), NOBODY, np.int64)
        places = np.minimum(np.searchsorted(self.identity, identities), len(self.identity) - 1)
        return np.where(self.identity[places] == identities, places, NOBODY)


class Histories:
    """The judged rows of a part, history by history."""

    def __init__(self, rows: Rows, default: int) -> None:
        self.rows = rows = rows.in_order()
        self.names = names = Names(rows)
        self.publications = publications = Publications(rows, names, default)
        times = np.flatnonzero(rows.judged & (rows.event != PUBLISH))
        histories = names.history(names.topic(rows.topic[times]), names.node(rows.node[times]))
        grouped = np.argsort(histories, kind="stable")
        self.time = times[grouped]
        self.history = histories[grouped]
        self.event = rows.event[self.time]
        self.begins = begins_of(self.history)
        deliveries = np.flatnonzero(self.event == DELIVER)
        self.delivery = deliveries
        """Indices of the deliveries among the rows; the following columns have an entry for each of them."""
        self.delivery_time = self.time[deliveries]
        self.delivery_history = self.history[deliveries]
        own = rows.taken(self.delivery_time)
        self.identity = publications.identities(own)
        self.sequence = own.sequence
        self.row_order = own.order
        self.source_history = self.identity // names.span
        self.is_own = own.node == own.source
        self.publication = publications.find(self.identity)
        self.start = self._of_publication(publications.start, NEVER)
        self.is_early = self.start > self.delivery_time
        """Delivered before it was published, or never published."""

    def _of_publication(self, column: Integers, otherwise: int) -> Integers:
        if len(column) == 0:
            return np.full(len(self.publication), otherwise)
        return np.where(self.publication == NOBODY, otherwise, column[self.publication])

    @cached_property
    def order_asked_for(self) -> Integers:
        """The order that the application requested for each delivered publication, or ``UNSPECIFIED``."""
        asked_order = self._of_publication(self.publications.asked_order, UNSPECIFIED)
        asked_order[~self._is_asked_for] = UNSPECIFIED
        return asked_order

    @cached_property
    def order_known(self) -> Integers:
        """The order of each delivered publication as far as it was known at that moment, or ``UNSPECIFIED``."""
        own_order = self._of_publication(self.publications.own_order, UNSPECIFIED)
        return np.where(self._is_asked_for | self.is_early, self.order_asked_for, own_order)

    @cached_property
    def _is_asked_for(self) -> Flags:
        return self._of_publication(self.publications.asked_at, NEVER) < self.delivery_time

    @cached_property
    def order(self) -> Integers:
        """The order by which each delivery is judged."""
        order = self.order_known.copy()
        order[order == UNSPECIFIED] = self.publications.default
        return order

    @cached_property
    def _streams(self) -> tuple[Integers, Flags]:
        """Deliveries sorted so that those of one history and source are contiguous, and where these begin."""
        streams = self.delivery_history * self.names.node_count + self.source_history % self.names.node_count
        if np.all(streams[1:] >= streams[:-1]):
            return np.arange(len(streams)), begins_of(streams)
        grouped = np.argsort(streams, kind="stable")
        return grouped, begins_of(streams[grouped])

    @cached_property
    def is_again(self) -> Flags:
        """Deliveries of publications that the node had delivered before."""
        grouped, begins = self._streams
        sequence = self.sequence[grouped]
        suspicious = (sequence <= maximum_before(sequence, begins)) & ~begins
        found = np.zeros(len(sequence), np.bool_)
        if suspicious.any():
            stream = np.cumsum(begins)
            inside = np.flatnonzero(np.isin(stream, stream[suspicious]))
            by_number = inside[np.lexsort((inside, sequence[inside], stream[inside]))]
            same = (np.diff(sequence[by_number]) == 0) & (np.diff(stream[by_number]) == 0)
            found[by_number[1:][same]] = True
        again = np.empty_like(found)
        again[grouped] = found
        return again

    @cached_property
    def waits(self) -> Flags:
        """First deliveries of publications that wait for others."""
        waits: Flags = (self.order > NONE) & ~self.is_again
        return waits

    @cached_property
    def last(self) -> Integers:
        """For each delivery the highest waiting number of its source that the node had delivered before."""
        grouped, begins = self._streams
        last = np.empty(len(grouped), np.int64)
        last[grouped] = maximum_before(np.where(self.waits, self.sequence, 0)[grouped], begins)
        return last

    @cached_property
    def history_begin(self) -> Integers:
        """For each row the index of the first row of its history."""
        return np.maximum.accumulate(np.where(self.begins, np.arange(len(self.begins)), 0))

    def last_row(self, events: Flags) -> Integers:
        """For each row the index of the last row so far in its history for which ``events`` is true, or ``NOBODY``."""
        if len(events) == 0:
            return np.zeros(0, np.int64)
        places = np.maximum.accumulate(np.where(events, np.arange(len(events)), NOBODY))
        return np.where(places >= self.history_begin, places, NOBODY)

    @cached_property
    def member_since(self) -> Integers:
        """For each row the index of the row since which the node is a member of the topic, or ``NOBODY``."""
        ended = self.last_row(self.event == UNSUBSCRIBED)
        is_member = self.last_row(self.event == SUBSCRIBED) > ended
        if not is_member.any():
            return np.full(len(is_member), NOBODY, np.int64)
        # A restarted node announces its membership again, and was a member all the time: the first row counts.
        subscribed = np.flatnonzero(self.event == SUBSCRIBED)
        after = np.searchsorted(subscribed, np.maximum(ended + 1, self.history_begin))
        first = subscribed[np.minimum(after, len(subscribed) - 1)]
        return np.where(is_member, first, NOBODY)
