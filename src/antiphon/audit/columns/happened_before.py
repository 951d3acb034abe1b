"""Which publications follow which, with a state per publisher instead of one per pair of messages.

Publications of a topic are numbered in the order of their starts. For every publication ``p`` and every source ``s``
one number is kept: the *first follower*, the first causal publication of ``s`` that follows ``p``. All later waiting
publications of ``s`` follow ``p`` too, so this is sufficient. Where ``s`` delivered everything it should, its own
history gives the number: it is the next causal publication that ``s`` started after it had delivered ``p``.
Publications that ``s`` knew without having delivered them, because it subscribed later or lost them, are found through
the first followers of ``p`` at other sources (:meth:`Followers.close`).

A node then delivers ``p`` too late if it has delivered, of some source, the first follower of ``p`` or a later one.
Only deliveries of publications that started before an earlier delivery of the node need to be checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from antiphon.audit.columns.histories import NEVER, NOBODY, Flags, Histories, Integers, begins_of, maximum_before
from antiphon.kernel.message import CAUSAL, FIFO, NONE, TOTAL

Numbers = npt.NDArray[np.int32]

NO_FOLLOWER = np.iinfo(np.int32).max
ENTRIES_PER_CHUNK = 1 << 21
"""The number of entries of the running maximum per chunk: small enough for a processor's cache."""

ENTRIES_TO_CLOSE = 1 << 26
"""Topics that can be closed completely in about a second are; others are closed only where there are gaps."""


class Followers:
    """The first followers of all publications of a part, topic by topic."""

    def __init__(self, histories: Histories) -> None:
        self._histories = histories
        names, publications = histories.names, histories.publications
        is_causal = (publications.order >= CAUSAL) & (publications.start != NEVER)
        self.source_histories = np.unique(publications.source_history[is_causal])
        """The sources with followers, as histories; each has a column among those of its topic."""
        topics = self.source_histories // names.node_count
        self.width = np.bincount(topics, minlength=len(names.topics))
        self.first_column = np.cumsum(self.width) - self.width
        self.offset = np.zeros(len(publications.identity) + 1, np.int64)
        np.cumsum(self.width[publications.topic], out=self.offset[1:])
        # Indices of publications in the order of their starts, topic by topic, and the number of each in its topic.
        self._by_start = np.lexsort((publications.start, publications.topic))
        self.rank = np.empty(len(self._by_start), np.int64)
        self.rank[self._by_start] = np.arange(len(self._by_start))
        self.rank -= publications.topic_begins[publications.topic]
        self.numbers: Numbers = np.full(int(self.offset[-1]), NO_FOLLOWER, np.int32)
        self.reach = self._reach(is_causal)
        """The rank of a causal publication that follows the same as this one; ``NOBODY`` if it follows nothing."""

    def _reach(self, is_causal: Flags) -> Integers:
        """A fifo publication follows what the causal one before it follows; a later one may have started earlier."""
        publications = self._histories.publications
        places = np.arange(len(is_causal))
        last = np.maximum.accumulate(np.where(is_causal, places, NOBODY)) if len(places) > 0 else places
        last = np.append(NOBODY, last[:-1])[: len(places)]
        last = np.where((last != NOBODY) & self._same_source(last, places), last, NOBODY)
        is_fifo = publications.order == FIFO
        odd = np.flatnonzero(is_fifo & (last != NOBODY) & (publications.start[last] > publications.start))
        for place in odd:
            before = int(last[place])
            while before != NOBODY and publications.start[before] > publications.start[place]:
                before = int(last[before])
            last[place] = before
        return np.where(is_fifo, np.where(last != NOBODY, self.rank[last], NOBODY), self.rank)

    def _same_source(self, some: Integers, others: Integers) -> Flags:
        histories = self._histories.publications.source_history
        same: Flags = histories[some] == histories[others]
        return same

    def column_of(self, source_histories: Integers) -> Integers:
        """The columns of sources in their topics, or ``NOBODY``."""
        if len(self.source_histories) == 0:
            return np.full(len(source_histories), NOBODY, np.int64)
        places = np.minimum(np.searchsorted(self.source_histories, source_histories), len(self.source_histories) - 1)
        found = self.source_histories[places] == source_histories
        return np.where(found, places - self.first_column[source_histories // self._histories.names.node_count], NOBODY)

    def block(self, topic: int) -> Numbers:
        """The publications of a topic by its sources, to be changed in place."""
        first, last = self._histories.publications.topic_begins[topic : topic + 2]
        width = int(self.width[topic])
        return self.numbers[self.offset[first] : self.offset[last]].reshape(-1, width)

    def scan(self) -> None:
        """Learn from the publishers among the judged histories."""
        histories = self._histories
        if len(self.source_histories) == 0 or len(histories.delivery) == 0:
            return
        column = self.column_of(histories.delivery_history)
        times, starts = self._starts()
        useful = np.flatnonzero((column != NOBODY) & ~histories.is_again & (histories.publication != NOBODY))
        if len(starts) == 0:
            return
        stride = len(histories.rows) + 1
        following = np.searchsorted(
            times, histories.delivery_history[useful] * stride + histories.delivery_time[useful], "right"
        )
        inside = following < len(starts)
        useful, following = useful[inside], starts[following[inside]]
        same = histories.delivery_history[useful] == histories.publications.source_history[following]
        useful, following = useful[same], following[same]
        self.numbers[self.offset[histories.publication[useful]] + column[useful]] = self.rank[following]

    def _starts(self) -> tuple[Integers, Integers]:
        """The start times of causal and total publications of the judged publishers, and the publications."""
        histories, publications = self._histories, self._histories.publications
        own = np.flatnonzero(histories.is_own & ~histories.is_again & (histories.order == CAUSAL))
        total = np.flatnonzero(
            (publications.order == TOTAL)
            & (publications.start != NEVER)
            & np.isin(publications.source_history, np.unique(histories.delivery_history))
        )
        stride = len(histories.rows) + 1
        times = np.append(
            histories.delivery_history[own] * stride + histories.delivery_time[own],
            publications.source_history[total] * stride + publications.start[total],
        )
        in_order = np.argsort(times, kind="stable")
        return times[in_order], np.append(histories.publication[own], total)[in_order]

    def columns(self) -> Iterator[tuple[int, int, bytes]]:
        """The knowledge from the judged histories, for other parts: topic, source and the numbers of the column."""
        names = self._histories.names
        for history in np.unique(self._histories.delivery_history):
            column = int(self.column_of(np.array([history]))[0])
            if column != NOBODY:
                topic = int(history) // names.node_count
                numbers = np.ascontiguousarray(self.block(topic)[:, column])
                yield int(names.topics[topic]), int(names.nodes[history % names.node_count]), numbers.tobytes()

    def learn(self, columns: Mapping[tuple[int, int], bytes]) -> None:
        """Take over the knowledge of other parts."""
        names = self._histories.names
        for (topic_name, source_name), numbers in columns.items():
            topic = int(np.searchsorted(names.topics, topic_name))
            history = names.history(np.array([topic]), names.node(np.array([source_name])))
            column = int(self.column_of(history)[0])
            assert column != NOBODY, "all parts of a topic know the same sources"
            self.block(topic)[:, column] = np.frombuffer(numbers, np.int32)

    def is_ahead(self) -> Flags:
        """Publications with a follower that started before them; there are none unless one was invented."""
        ahead = np.zeros(len(self.rank), np.bool_)
        for topic in np.flatnonzero(self.width):
            first, last = self._histories.publications.topic_begins[topic : topic + 2]
            ahead[first:last] = (self.block(int(topic)) < self.rank[first:last, None]).any(axis=1)
        return ahead

    def close(self) -> None:
        """Add what publishers knew without having delivered it."""
        for topic in np.flatnonzero(self.width):
            self._spread_to_earlier(int(topic))
            rows = self._rows_to_close(int(topic))
            while len(rows) > 0 and self._close_once(int(topic), rows):
                self._spread_to_earlier(int(topic))

    def _spread_to_earlier(self, topic: int) -> None:
        """A node that knows a waiting publication knows the earlier ones of its source."""
        publications = self._histories.publications
        block = self.block(topic)
        first, last = publications.topic_begins[topic : topic + 2]
        edges = np.flatnonzero(begins_of(publications.source_history[first:last]))
        for begin, end in zip(edges, [*edges[1:], last - first], strict=True):
            numbers = block[begin:end]
            waits = publications.order[first + begin : first + end] != NONE
            known = np.where(waits[:, None], numbers, NO_FOLLOWER)
            np.minimum(numbers, np.minimum.accumulate(known[::-1], axis=0)[::-1], out=numbers)

    def _rows_to_close(self, topic: int) -> Integers:
        """Publications with followers that some later source seems not to know."""
        block = self.block(topic)
        has_follower = (block != NO_FOLLOWER).any(axis=1)
        if block.size * block.shape[1] <= ENTRIES_TO_CLOSE:
            return np.flatnonzero(has_follower)
        publications = self._histories.publications
        first, last = publications.topic_begins[topic : topic + 2]
        start = publications.start[first:last]
        is_causal = (publications.order[first:last] >= CAUSAL) & (start != NEVER)
        last_start = np.zeros(block.shape[1], np.int64)
        columns = self.column_of(publications.source_history[first:last][is_causal])
        np.maximum.at(last_start, columns, start[is_causal])
        gaps = (block == NO_FOLLOWER) & (start[:, None] < last_start[None, :])
        return np.flatnonzero(has_follower & gaps.any(axis=1))

    def _close_once(self, topic: int, rows: Integers) -> bool:
        """Apply transitivity once: a follower of a follower is a follower. Returns whether that changed anything."""
        block = self.block(topic)
        begin = self._histories.publications.topic_begins[topic]
        changed = False
        for column in range(block.shape[1]):
            numbers = block[rows, column].astype(np.int64)
            has = numbers != NO_FOLLOWER
            followers = self._by_start[begin + numbers[has]] - begin
            before = block[rows[has]]
            through = block[followers]
            # A node that knew of a follower before it started did not know what it follows.
            after = np.minimum(before, np.where(through > numbers[has, None], through, NO_FOLLOWER))
            if (after < before).any():
                block[rows[has]] = after
                changed = True
        return changed


def late_deliveries(histories: Histories, followers: Followers) -> Flags:
    """Deliveries of publications that started before an earlier delivery of the node, where they can have followers."""
    starts = np.where(histories.is_early, 0, histories.start + 1)
    begins = begins_of(histories.delivery_history)
    late = histories.is_early | (maximum_before(starts, begins) > starts)
    late |= followers.is_ahead()[histories.publication]
    has_followers = followers.width[histories.delivery_history // histories.names.node_count] > 0
    found: Flags = ~histories.is_again & has_followers & (histories.publication != NOBODY) & late
    return found


def known_too_early(histories: Histories, followers: Followers) -> Flags:
    """Deliveries of publications with a follower that the node had delivered before."""
    found = np.zeros(len(histories.delivery), np.bool_)
    if len(followers.source_histories) == 0:
        return found
    late = late_deliveries(histories, followers)
    if not late.any():
        return found
    # Whole histories, because the maximum runs over all their rows; narrow topics first.
    rows = np.flatnonzero(np.isin(histories.delivery_history, np.unique(histories.delivery_history[late])))
    width = followers.width[histories.delivery_history[rows] // histories.names.node_count]
    rows = rows[np.argsort(width, kind="stable")]
    width = np.sort(width)
    column = followers.column_of(histories.source_history[rows])
    counts = histories.waits[rows] & ~histories.is_early[rows] & (column != NOBODY)
    # Each history is lifted above the ones before it, so that the running maximum begins anew.
    rank = followers.reach[histories.publication[rows]] + 1
    lift = (np.cumsum(begins_of(histories.delivery_history[rows])) - 1) * (len(followers.rank) + 1)
    carried = np.zeros(0, np.int64)
    begin = 0
    while begin < len(rows):
        end = min(len(rows), begin + max(1, ENTRIES_PER_CHUNK // int(width[begin])))
        widest = int(width[end - 1])
        end = min(end, begin + max(1, ENTRIES_PER_CHUNK // widest))
        widest = int(width[end - 1])
        seen = np.zeros((end - begin + 1, widest), np.int64)
        seen[0, : len(carried)] = carried
        chunk = np.flatnonzero(counts[begin:end])
        seen[chunk + 1, column[begin + chunk]] = rank[begin + chunk] + lift[begin + chunk]
        np.maximum.accumulate(seen, axis=0, out=seen)
        carried = seen[-1].copy()
        asked = np.flatnonzero(late[rows[begin:end]])
        places = rows[begin + asked]
        delivered = seen[asked] - lift[begin + asked, None] - 1
        found[places] = (delivered >= first_followers(histories, followers, places, widest)).any(axis=1)
        begin = end
    return found


def first_followers(histories: Histories, followers: Followers, deliveries: Integers, widest: int) -> Integers:
    """The first followers of delivered publications at the sources of their topics, side by side."""
    publications = histories.publication[deliveries]
    columns = np.arange(widest)
    width = followers.width[histories.delivery_history[deliveries] // histories.names.node_count]
    places = followers.offset[publications][:, None] + np.minimum(columns[None, :], width[:, None] - 1)
    numbers = followers.numbers[places].astype(np.int64)
    return np.where(columns[None, :] < width[:, None], numbers, NEVER)
