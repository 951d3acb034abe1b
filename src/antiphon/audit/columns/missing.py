"""What of a part need not be delivered, though it is missing: the excuses, by columns.

The definitions are those of :class:`antiphon.audit.oracle.Excuses`; the code is another.
"""

from __future__ import annotations

import numpy as np

from antiphon.audit.columns.happened_before import Followers
from antiphon.audit.columns.histories import LOST, NEVER, NOBODY, Flags, Integers, Lanes
from antiphon.kernel.message import NONE
from antiphon.trace.contract import TOLD_ALWAYS, TOLD_FAILED


class Known:
    """What the members of a topic know at its end, all together."""

    def __init__(self, lanes: Lanes, followers: Followers, topic: int) -> None:
        self._lanes = lanes
        names = lanes.names
        ends = np.flatnonzero(np.append(lanes.begins[1:], True))
        members = ends[(lanes.member_since[ends] != NOBODY) & (lanes.lane[ends] // names.node_count == topic)]
        here = np.flatnonzero(np.isin(lanes.delivery_lane, lanes.lane[members]))
        self._delivered = np.unique(lanes.publication[here])
        waiting = here[lanes.waits[here]]
        self._last = last_by_source(lanes.source_lane[waiting], lanes.sequence[waiting])
        self._reach = furthest(lanes, followers, topic, waiting[~lanes.is_early[waiting]])
        self._followers = followers

    def has(self, publications: Integers) -> Flags:
        """Which publications of the topic a member has delivered, or something that follows them."""
        found = np.isin(publications, self._delivered)
        found |= earlier_than(self._lanes, self._last, publications)
        found |= reached(self._followers, publications, self._reach)
        return found


class Excused:
    """What is excused in a part, lane by lane."""

    def __init__(
        self,
        lanes: Lanes,
        followers: Followers | None,
        mortal: frozenset[int],
        told: str,
        holes_in: int,
        stride: int,
    ) -> None:
        self._lanes = lanes
        self._followers = followers
        self._told = told
        self._holes_in = holes_in
        names, publications = lanes.names, lanes.publications
        nodes = names.nodes if stride == 0 else names.nodes % stride
        is_mortal = np.isin(nodes, np.array(sorted(mortal), np.int64))
        self._is_mortal: Flags = is_mortal[publications.source_lane % names.node_count]
        rows = lanes.rows
        places = np.flatnonzero(rows.judged & (rows.event == LOST))
        said = rows.taken(places)
        self._said_by = names.lane(names.topic(said.topic), names.node(said.node))
        self._said = publications.find(publications.identities(said))
        self._known: dict[int, Known] = {}

    def at_end(self, lane: int, missing: Integers) -> Flags:
        """Which of the publications that a member lacks at the end are excused."""
        excused = self.said(lane, missing)
        mortal = np.flatnonzero(self._is_mortal[missing] & ~excused)
        if len(mortal) > 0:
            excused[mortal] = ~self._known_in(lane // self._lanes.names.node_count).has(missing[mortal])
        return excused

    def said(self, lane: int, missing: Integers) -> Flags:
        """Which of them because of what the node has said to be lost."""
        lost = self._said[(self._said_by == lane) & (self._said != NOBODY)]
        excused: Flags = np.zeros(len(missing), np.bool_)
        if len(lost) == 0:
            return excused
        publications, is_mortal = self._lanes.publications, self._is_mortal[missing]
        may_be_said = publications.order[missing] == self._holes_in
        may_be_said |= (self._told == TOLD_ALWAYS) | (is_mortal & (self._told == TOLD_FAILED))
        excused = may_be_said & np.isin(missing, lost)
        # Who was told that something is lost need not know what that followed.
        lost = lost[(publications.start[lost] != NEVER) & (publications.order[lost] != NONE)]
        if is_mortal.any() and len(lost) > 0:
            followers = self._with_followers()
            reach = furthest_of(self._lanes, followers, lane // self._lanes.names.node_count, lost)
            excused |= is_mortal & reached(followers, missing, reach)
        return excused

    def _known_in(self, topic: int) -> Known:
        if topic not in self._known:
            self._known[topic] = Known(self._lanes, self._with_followers(), topic)
        return self._known[topic]

    def _with_followers(self) -> Followers:
        assert self._followers is not None, "there are followers where publishers fail"
        return self._followers


def furthest(lanes: Lanes, followers: Followers, topic: int, deliveries: Integers) -> Integers:
    """For each source of a topic the last causal publication that some deliveries follow as it does."""
    return furthest_of(lanes, followers, topic, lanes.publication[deliveries])


def furthest_of(lanes: Lanes, followers: Followers, topic: int, publications: Integers) -> Integers:
    """The same for publications."""
    last = np.full(int(followers.width[topic]), NOBODY, np.int64)
    column = followers.column_of(lanes.publications.source_lane[publications])
    publications, column = publications[column != NOBODY], column[column != NOBODY]
    np.maximum.at(last, column, followers.reach[publications])
    return last


def reached(followers: Followers, publications: Integers, last: Integers) -> Flags:
    """Which publications of a topic are followed by one that is known, or by an earlier one of its source."""
    if len(last) == 0 or len(publications) == 0:
        return np.zeros(len(publications), np.bool_)
    numbers = followers.numbers[followers.offset[publications][:, None] + np.arange(len(last))[None, :]]
    found: Flags = (numbers <= last[None, :]).any(axis=1)
    return found


def followed_by_any(lanes: Lanes, followers: Followers, publications: Integers, deliveries: Integers) -> Flags:
    """Which publications of a topic are followed by any of some deliveries."""
    topic = int(lanes.publications.topic[publications[0]])
    return reached(followers, publications, furthest(lanes, followers, topic, deliveries))


def earlier_than(lanes: Lanes, last: dict[int, int], publications: Integers) -> Flags:
    """Which publications have a number up to the last one of their source."""
    columns = lanes.publications
    found = [columns.sequence[p] <= last.get(int(columns.source_lane[p]), 0) for p in publications]
    return np.array(found, np.bool_)


def last_by_source(sources: Integers, sequences: Integers) -> dict[int, int]:
    """The highest number of each source."""
    names = np.unique(sources)
    highest = np.zeros(len(names), np.int64)
    np.maximum.at(highest, np.searchsorted(names, sources), sequences)
    return dict(zip(names.tolist(), highest.tolist(), strict=True))
