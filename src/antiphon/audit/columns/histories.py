"""A part of a trace, laid out for judging: its publications, and its lanes.

A *lane* is what one node saw of one topic, in its order. Everything here is columns: no step looks at rows one by one,
so millions of rows of thousands of lanes are laid out in seconds. The definitions are those of the judge of small
traces (:mod:`antiphon.audit.oracle`), with which the tests compare every verdict; the code is another.
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
"""Events by their place in the oracle's list of them."""

NEVER = np.iinfo(np.int64).max
NOBODY = -1
BEFORE_EVERYTHING = -1
"""The position of memberships that exist from the start."""

POSITION = "position"
"""The column of a trace that says in which order things happened."""

WORDS = {"event": EVENTS, "order": list(ORDER_NAMES)}
"""The columns of words that are judged, and how they are numbered."""


@dataclass(frozen=True)
class Rows:
    """Rows of a trace; ``position`` says in which order things happened.

    ``judged`` is false for rows that are only there to say what was published: another part judges them.
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
        """The same rows in the order in which things happened."""
        if np.all(self.position[1:] >= self.position[:-1]):
            return self
        return self.taken(np.argsort(self.position, kind="stable"))


def rows_of_table(table: pa.Table, everybody: int = 0) -> Rows:
    """The rows of a trace that are judged; positions are places in it.

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
    """Where a new group begins in a column in which groups stand together."""
    begins = np.ones(len(groups), np.bool_)
    begins[1:] = groups[1:] != groups[:-1]
    return begins


def maximum_before(values: Integers, begins: Flags) -> Integers:
    """For each row the maximum of those before it in its group; 0 for the first. Values are not negative."""
    if len(values) == 0:
        return values
    # Each group is lifted above all that came before it, so one running maximum serves them all.
    lift = (np.cumsum(begins) - 1) * (int(values.max()) + 1)
    running = np.maximum.accumulate(values + lift)
    before = np.zeros_like(values)
    before[1:] = running[:-1]
    return np.where(begins, 0, before - lift)


class Names:
    """Topics, nodes and publications of a part by small numbers."""

    def __init__(self, rows: Rows) -> None:
        self.topics = np.unique(rows.topic)
        self.nodes = np.unique(np.concatenate([np.unique(rows.node), np.unique(rows.source)]))
        self.node_count = max(1, len(self.nodes))
        self.span = int(rows.sequence.max(initial=0)) + 1
        assert len(self.topics) * self.node_count * self.span < 1 << 62, "the names of a part fit in a word"

    def topic(self, topics: Integers) -> Integers:
        """Places of topics."""
        return np.searchsorted(self.topics, topics)

    def node(self, nodes: Integers) -> Integers:
        """Places of nodes."""
        return np.searchsorted(self.nodes, nodes)

    def lane(self, topics: Integers, nodes: Integers) -> Integers:
        """Numbers of lanes, from places of topics and nodes; a publication's number is made of its source's lane."""
        return topics * self.node_count + nodes


class Publications:
    """What was published or asked for in a part, sorted by topic, source and number."""

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
        # Where nothing says what was asked for, the publisher's own delivery does.
        said = np.where(self.asked_at < self.start, self.asked_order, own_order)
        self.order = np.where(said != UNSPECIFIED, said, default)
        # What is total starts when it is asked for: it may come to its publisher later than to others.
        self.start = np.where(self.order == TOTAL, np.minimum(self.start, self.asked_at), self.start)
        self.default = default
        self.source_lane = self.identity // names.span
        self.sequence = self.identity % names.span
        self.topic = self.source_lane // names.node_count
        self.topic_begins = np.searchsorted(self.topic, np.arange(len(names.topics) + 1))

    def identities(self, rows: Rows) -> Integers:
        """The publications that rows are about, as numbers."""
        names = self._names
        return names.lane(names.topic(rows.topic), names.node(rows.source)) * names.span + rows.sequence

    def find(self, identities: Integers) -> Integers:
        """Places of publications; ``NOBODY`` for those that nobody published."""
        if len(self.identity) == 0:
            return np.full(len(identities), NOBODY, np.int64)
        places = np.minimum(np.searchsorted(self.identity, identities), len(self.identity) - 1)
        return np.where(self.identity[places] == identities, places, NOBODY)


class Lanes:
    """The judged rows of a part, lane by lane."""

    def __init__(self, rows: Rows, default: int) -> None:
        self.rows = rows = rows.in_order()
        self.names = names = Names(rows)
        self.publications = publications = Publications(rows, names, default)
        times = np.flatnonzero(rows.judged & (rows.event != PUBLISH))
        lanes = names.lane(names.topic(rows.topic[times]), names.node(rows.node[times]))
        grouped = np.argsort(lanes, kind="stable")
        self.time = times[grouped]
        self.lane = lanes[grouped]
        self.event = rows.event[self.time]
        self.begins = begins_of(self.lane)
        deliveries = np.flatnonzero(self.event == DELIVER)
        self.delivery = deliveries
        """Places of the deliveries among the rows; what follows has an entry for each of them."""
        self.delivery_time = self.time[deliveries]
        self.delivery_lane = self.lane[deliveries]
        own = rows.taken(self.delivery_time)
        self.identity = publications.identities(own)
        self.sequence = own.sequence
        self.row_order = own.order
        self.source_lane = self.identity // names.span
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
        """The order that the application had named for each delivered publication, or ``UNSPECIFIED``."""
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
        """Deliveries sorted so that those of one lane and source stand together, and where these begin."""
        streams = self.delivery_lane * self.names.node_count + self.source_lane % self.names.node_count
        if np.all(streams[1:] >= streams[:-1]):
            return np.arange(len(streams)), begins_of(streams)
        grouped = np.argsort(streams, kind="stable")
        return grouped, begins_of(streams[grouped])

    @cached_property
    def is_again(self) -> Flags:
        """Deliveries of what the node had delivered before."""
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
        """For each delivery the highest number of its source that waits and that the node had delivered before."""
        grouped, begins = self._streams
        last = np.empty(len(grouped), np.int64)
        last[grouped] = maximum_before(np.where(self.waits, self.sequence, 0)[grouped], begins)
        return last

    @cached_property
    def lane_begin(self) -> Integers:
        """For each row the place of the first row of its lane."""
        return np.maximum.accumulate(np.where(self.begins, np.arange(len(self.begins)), 0))

    def last_row(self, events: Flags) -> Integers:
        """For each row the place of the last row so far in its lane for which ``events`` is true, or ``NOBODY``."""
        if len(events) == 0:
            return np.zeros(0, np.int64)
        places = np.maximum.accumulate(np.where(events, np.arange(len(events)), NOBODY))
        return np.where(places >= self.lane_begin, places, NOBODY)

    @cached_property
    def member_since(self) -> Integers:
        """For each row the place of the row since which the node is a member of the topic, or ``NOBODY``."""
        ended = self.last_row(self.event == UNSUBSCRIBED)
        is_member = self.last_row(self.event == SUBSCRIBED) > ended
        if not is_member.any():
            return np.full(len(is_member), NOBODY, np.int64)
        # Who comes back says again that it is a member, and has been one all the time: the first row counts.
        subscribed = np.flatnonzero(self.event == SUBSCRIBED)
        after = np.searchsorted(subscribed, np.maximum(ended + 1, self.lane_begin))
        first = subscribed[np.minimum(after, len(subscribed) - 1)]
        return np.where(is_member, first, NOBODY)
