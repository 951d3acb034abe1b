"""Finds the missing publications of a part that need not be delivered: the excuses, by columns.

The definitions are those of :class:`antiphon.audit.oracle.Excuses`; the implementation is independent.
"""

from __future__ import annotations

import numpy as np

from antiphon.audit.columns.happened_before import Followers
from antiphon.audit.columns.histories import LOST, NEVER, NOBODY, Flags, Histories, Integers
from antiphon.kernel.message import NONE
from antiphon.trace.contract import TOLD_ALWAYS, TOLD_FAILED, TOLD_UNKEPT


class TopicKnowledge:
    """The combined knowledge of all members of a topic at its end."""

    def __init__(self, histories: Histories, followers: Followers, topic: int) -> None:
        self._histories = histories
        names = histories.names
        ends = np.flatnonzero(np.append(histories.begins[1:], True))
        members = ends[
            (histories.member_since[ends] != NOBODY) & (histories.history[ends] // names.node_count == topic)
        ]
        here = np.flatnonzero(np.isin(histories.delivery_history, histories.history[members]))
        self.delivered = np.unique(histories.publication[here])
        waiting = here[histories.waits[here]]
        self._last = last_by_source(histories.source_history[waiting], histories.sequence[waiting])
        self._reach = furthest(histories, followers, topic, waiting[~histories.is_early[waiting]])
        self._followers = followers

    def has(self, publications: Integers) -> Flags:
        """Which publications of the topic a member has delivered, or something that follows them."""
        found = np.isin(publications, self.delivered)
        found |= earlier_than(self._histories, self._last, publications)
        found |= reached(self._followers, publications, self._reach)
        return found


class Excused:
    """The excused publications of a part, history by history."""

    def __init__(
        self,
        histories: Histories,
        followers: Followers | None,
        mortal: frozenset[int],
        told: str,
        holes_in: int,
        stride: int,
    ) -> None:
        self._histories = histories
        self._followers = followers
        self._told = told
        self._holes_in = holes_in
        names, publications = histories.names, histories.publications
        nodes = names.nodes if stride == 0 else names.nodes % stride
        is_mortal = np.isin(nodes, np.array(sorted(mortal), np.int64))
        self._is_mortal: Flags = is_mortal[publications.source_history % names.node_count]
        rows = histories.rows
        places = np.flatnonzero(rows.judged & (rows.event == LOST))
        said = rows.taken(places)
        self._said_by = names.history(names.topic(said.topic), names.node(said.node))
        self._said = publications.find(publications.identities(said))
        self._known: dict[int, TopicKnowledge] = {}

    def at_end(self, history: int, missing: Integers) -> Flags:
        """Which of the publications that a member misses at the end are excused."""
        excused = self.said(history, missing)
        mortal = np.flatnonzero(self._is_mortal[missing] & ~excused)
        if len(mortal) > 0:
            excused[mortal] = ~self._known_in(history // self._histories.names.node_count).has(missing[mortal])
        return excused

    def said(self, history: int, missing: Integers) -> Flags:
        """Which of them are excused by losses that the node reported."""
        lost = self._said[(self._said_by == history) & (self._said != NOBODY)]
        excused: Flags = np.zeros(len(missing), np.bool_)
        if len(lost) == 0:
            return excused
        publications, is_mortal = self._histories.publications, self._is_mortal[missing]
        may_be_said = publications.order[missing] == self._holes_in
        may_be_said |= (self._told == TOLD_ALWAYS) | (is_mortal & (self._told == TOLD_FAILED))
        if self._told == TOLD_UNKEPT and is_mortal.any():
            known = self._known_in(history // self._histories.names.node_count)
            may_be_said |= is_mortal & ~np.isin(missing, known.delivered)
        excused = may_be_said & np.isin(missing, lost)
        # A node that was told of a loss need not know what the lost publication followed.
        lost = lost[(publications.start[lost] != NEVER) & (publications.order[lost] != NONE)]
        if is_mortal.any() and len(lost) > 0:
            followers = self._with_followers()
            reach = furthest_of(self._histories, followers, history // self._histories.names.node_count, lost)
            excused |= is_mortal & reached(followers, missing, reach)
        return excused

    def _known_in(self, topic: int) -> TopicKnowledge:
        if topic not in self._known:
            self._known[topic] = TopicKnowledge(self._histories, self._with_followers(), topic)
        return self._known[topic]

    def _with_followers(self) -> Followers:
        assert self._followers is not None, "there are followers where publishers fail"
        return self._followers


def furthest(histories: Histories, followers: Followers, topic: int, deliveries: Integers) -> Integers:
    """For each source of a topic the last causal publication that some deliveries follow, or that is one of them."""
    return furthest_of(histories, followers, topic, histories.publication[deliveries])


def furthest_of(histories: Histories, followers: Followers, topic: int, publications: Integers) -> Integers:
    """The same for publications."""
    last = np.full(int(followers.width[topic]), NOBODY, np.int64)
    column = followers.column_of(histories.publications.source_history[publications])
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


def followed_by_any(histories: Histories, followers: Followers, publications: Integers, deliveries: Integers) -> Flags:
    """Which publications of a topic are followed by any of some deliveries."""
    topic = int(histories.publications.topic[publications[0]])
    return reached(followers, publications, furthest(histories, followers, topic, deliveries))


def earlier_than(histories: Histories, last: dict[int, int], publications: Integers) -> Flags:
    """Which publications have a number up to the last one of their source."""
    columns = histories.publications
    found = [columns.sequence[p] <= last.get(int(columns.source_history[p]), 0) for p in publications]
    return np.array(found, np.bool_)


def last_by_source(sources: Integers, sequences: Integers) -> dict[int, int]:
    """The highest number of each source."""
    names = np.unique(sources)
    highest = np.zeros(len(names), np.int64)
    np.maximum.at(highest, np.searchsorted(names, sources), sequences)
    return dict(zip(names.tolist(), highest.tolist(), strict=True))
