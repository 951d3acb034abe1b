"""Judges one part of a trace: the number of violations of each promise, and the first example of each.

A part has whole histories (:mod:`antiphon.audit.columns.histories`), and all publications of each of its topics.
:mod:`antiphon.audit.oracle` defines the kinds of violations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from antiphon.audit.columns.happened_before import Followers, known_too_early
from antiphon.audit.columns.histories import (
    BEFORE_EVERYTHING,
    LEAVING,
    NEVER,
    NOBODY,
    SUBSCRIBED,
    UNSUBSCRIBED,
    Flags,
    Histories,
    Integers,
    Rows,
)
from antiphon.audit.columns.incarnations import IncarnationSpans, own_incarnations
from antiphon.audit.columns.missing import Excused, earlier_than, followed_by_any, last_by_source
from antiphon.audit.findings import KINDS
from antiphon.kernel.message import ORDER_NAMES, SOURCE_BITS, TOTAL, UNSPECIFIED
from antiphon.trace.contract import FINISHED, TOLD_NEVER, Contract


@dataclass(frozen=True)
class Example:
    """One violation: the wrong delivery or publication and, where there is one, another publication that shows it."""

    kind: str
    topic: int
    node: int
    source: int
    sequence: int
    position: int
    witness_source: int = NOBODY
    witness_sequence: int = NOBODY
    detail: str = ""


@dataclass
class Judgement:
    """The violations in a part."""

    deliveries: int = 0
    publications: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    examples: dict[str, Example] = field(default_factory=dict)

    def add(self, count: int, example: Example) -> None:
        """Add violations of a kind, and the first of them."""
        self.counts[example.kind] += count
        known = self.examples.get(example.kind)
        if known is None or example.position < known.position:
            self.examples[example.kind] = example

    def add_all(self, other: Judgement) -> None:
        """Add the violations of another part."""
        self.deliveries += other.deliveries
        self.publications += other.publications
        for kind, count in other.counts.items():
            if count:
                self.add(count, other.examples[kind])


@dataclass(frozen=True)
class JudgeRules:
    """The rules of a judgement: the default order, whether publications may be missing, and which nodes are judged."""

    default: int
    complete: bool = True
    leavers: bool = False
    causal: bool = True
    is_cut: bool = False
    """Whether the run ended early, so that publications in transit may be missing."""
    stride: int = 0
    """The difference between the numbers of two incarnations of a node; 0 where each node has one."""
    mortal: frozenset[int] = frozenset()
    """The nodes whose publications may be lost with them."""
    told: str = TOLD_NEVER
    holes_in: int = UNSPECIFIED
    """When a reported loss excuses a publication (:mod:`antiphon.trace.contract`)."""

    @property
    def needs_whole_topics(self) -> bool:
        """Whether the knowledge of all nodes of a topic is needed."""
        return self.is_cut or len(self.mortal) > 0

    @property
    def needs_followers(self) -> bool:
        """Whether the happened-before relation is needed."""
        return self.causal or self.leavers or self.needs_whole_topics


def rules_for(contract: Contract, stopped: str, spans: IncarnationSpans) -> JudgeRules:
    """The rules that follow from the promises, the end of the run, and the failed nodes."""
    checks = contract.checks(stopped)
    return JudgeRules(
        ORDER_NAMES.index(contract.default),
        "completeness" in checks,
        contract.leavers,
        "causal" in checks,
        stopped != FINISHED,
        spans.stride if spans.ends else 0,
        spans.mortal,
        contract.told,
        UNSPECIFIED if contract.holes_in is None else ORDER_NAMES.index(contract.holes_in),
    )


def judge_part(rows: Rows, rules: JudgeRules, columns: Mapping[tuple[int, int], bytes] | None = None) -> Judgement:
    """Judge the histories of a part. ``columns`` are the first followers that other parts of the same topics found."""
    histories = Histories(own_incarnations(rows, rules.stride), rules.default)
    judge = PartJudge(histories, rules)
    judge.find_duplicates_and_strangers()
    judge.find_inventions()
    judge.find_late_ones_of_a_source()
    if rules.needs_followers:
        judge.find_late_causes(columns or {})
    if rules.complete:
        judge.find_losses()
    if rules.leavers:
        judge.find_what_leavers_left_out()
    return judge.found if rules.stride == 0 else in_nodes(judge.found, rules.stride)


def in_nodes(found: Judgement, stride: int) -> Judgement:
    """The judgement with node numbers instead of incarnations in its examples."""
    named = {}
    for kind, example in found.examples.items():
        source, witness = example.source % stride, example.witness_source
        witness = witness % stride if witness != NOBODY else NOBODY
        named[kind] = replace(example, node=example.node % stride, source=source, witness_source=witness)
    return replace(found, examples=named)


def judge_interval(rows: Rows, rules: JudgeRules, since: int, older: Sequence[int]) -> Judgement:
    """Judge only the causal order of the deliveries from a position on; earlier rows are their past.

    The publications in ``older``, as keys, are skipped: not all of their rows are here.
    """
    keys = (rows.sequence << SOURCE_BITS) | rows.source
    rows = rows.taken(~np.isin(keys, np.array(older, np.int64)))
    judge = PartJudge(Histories(rows, rules.default), rules)
    judge.find_late_causes({}, since)
    return Judgement(counts=judge.found.counts, examples=judge.found.examples)


class PartJudge:
    """Finds the violations in one part."""

    def __init__(self, histories: Histories, rules: JudgeRules) -> None:
        self._histories = histories
        self._rules = rules
        self._followers: Followers | None = None
        is_start = histories.is_own & ~histories.is_again & (histories.order != TOTAL)
        asked = histories.publications.start[
            (histories.publications.order == TOTAL) & (histories.publications.start != NEVER)
        ]
        self.found = Judgement(len(histories.delivery), int(is_start.sum() + histories.rows.judged[asked].sum()))

    def _report(self, kind: str, wrong: Flags, detail: str, witness: tuple[int, int] | None = None) -> None:
        """Add violations among the deliveries; the first in the order of the trace is the example."""
        places = np.flatnonzero(wrong)
        if len(places) > 0:
            first = int(places[np.argmin(self._histories.delivery_time[places])])
            example = self._example(kind, first, detail, witness or (NOBODY, NOBODY))
            self.found.add(len(places), example)

    def _example(self, kind: str, delivery: int, detail: str, witness: tuple[int, int]) -> Example:
        rows = self._histories.rows
        row = int(self._histories.delivery_time[delivery])
        columns = (rows.topic, rows.node, rows.source, rows.sequence, rows.position)
        topic, node, source, sequence, position = (int(column[row]) for column in columns)
        return Example(kind, topic, node, source, sequence, position, *witness, detail)

    def find_duplicates_and_strangers(self) -> None:
        """Find deliveries by nodes that have the publication already, and by nodes that are not members."""
        histories = self._histories
        self._report("duplicates", histories.is_again, "delivered again")
        stranger = histories.member_since[histories.delivery] == NOBODY
        self._report("membership", stranger, "delivered by a node that is not a member")

    def find_inventions(self) -> None:
        """Find deliveries of publications that no node published, or in another order than requested."""
        histories = self._histories
        invented = ~histories.is_again & ~histories.is_own & histories.is_early
        self._report("validity", invented, "delivered before it was published")
        # The publisher's own delivery gives the order where nothing else did, so it cannot be wrong.
        asked = np.where(histories.is_own, histories.order_asked_for, histories.order_known)
        other = (histories.row_order != UNSPECIFIED) & (asked != UNSPECIFIED) & (histories.row_order != asked)
        self._report("validity", ~histories.is_again & other, "delivered in another order than requested")

    def find_late_ones_of_a_source(self) -> None:
        """Find deliveries after a later publication of the same source."""
        histories = self._histories
        late = self._is_late
        places = np.flatnonzero(late)
        if len(places) > 0:
            first = int(places[np.argmin(histories.delivery_time[places])])
            source = int(histories.names.nodes[histories.source_history[first] % histories.names.node_count])
            witness = (source, int(histories.last[first]))
            self._report("fifo", late, f"delivered after publication {witness[1]} of that source", witness)

    @cached_property
    def _is_late(self) -> Flags:
        histories = self._histories
        return ~histories.is_again & (histories.sequence <= histories.last)

    def find_late_causes(self, columns: Mapping[tuple[int, int], bytes], since: int = BEFORE_EVERYTHING) -> None:
        """Find deliveries, from a position on, after something else that follows them."""
        histories = self._histories
        self._followers = followers = Followers(histories)
        followers.scan()
        followers.learn(columns)
        followers.close()
        known = known_too_early(histories, followers) & ~self._is_late
        places = np.flatnonzero(known)
        places = places[histories.rows.position[histories.delivery_time[places]] >= since]
        if len(places) > 0:
            known = np.zeros(len(known), np.bool_)
            known[places] = True
            first = int(places[np.argmin(histories.delivery_time[places])])
            self._report("causal", known, "delivered after something that follows it", self._witness(first))

    def _witness(self, delivery: int) -> tuple[int, int]:
        """The earliest publication that the node delivered before one that it follows."""
        histories, followers = self._histories, self._followers
        assert followers is not None, "there are followers where causal order is judged"
        names = histories.names
        begin = int(np.searchsorted(histories.delivery_history, histories.delivery_history[delivery]))
        before = np.arange(begin, delivery)
        before = before[histories.waits[before] & ~histories.is_early[before]]
        column = followers.column_of(histories.source_history[before])
        before, column = before[column != NOBODY], column[column != NOBODY]
        numbers = followers.numbers[followers.offset[histories.publication[delivery]] + column]
        follows = before[followers.reach[histories.publication[before]] >= numbers]
        witness = int(follows[0])
        return int(names.nodes[histories.source_history[witness] % names.node_count]), int(histories.sequence[witness])

    def find_losses(self) -> None:
        """Find publications that members should have delivered and never did."""
        histories, publications, names = self._histories, self._histories.publications, self._histories.names
        if len(histories.history) == 0:
            return
        ends = np.flatnonzero(np.append(histories.begins[1:], True))
        ends = ends[histories.member_since[ends] != NOBODY]
        since = histories.time[histories.member_since[ends]]
        topic = histories.history[ends] // names.node_count
        stride = len(histories.rows) + 1
        started = publications.start != NEVER
        starts = np.sort(publications.topic[started] * stride + publications.start[started])
        owed = np.searchsorted(starts, (topic + 1) * stride) - np.searchsorted(starts, topic * stride + since, "right")
        has = self._delivered_since(histories.history[ends], since)
        lacking = owed - has
        for place in np.flatnonzero(lacking):
            row, begin = int(ends[place]), int(since[place])
            if self._rules.is_cut:
                # The last row of a history counts too.
                self._judge_leaver(row, begin, int(NEVER), row + 1)
                continue
            missing = self._missing(row, begin, int(NEVER))
            lost = missing[~self._excused.at_end(int(histories.history[row]), missing)]
            if len(lost) > 0:
                self.found.add(len(lost), self._loss(int(histories.history[row]), lost, "never delivered"))

    @cached_property
    def _excused(self) -> Excused:
        rules = self._rules
        return Excused(self._histories, self._followers, rules.mortal, rules.told, rules.holes_in, rules.stride)

    def _delivered_since(self, members: Integers, since: Integers) -> Integers:
        """How many publications each of some histories delivered that started after a moment."""
        histories = self._histories
        if len(members) == 0:
            return np.zeros(0, np.int64)
        place = np.minimum(np.searchsorted(members, histories.delivery_history), len(members) - 1)
        counted = (members[place] == histories.delivery_history) & ~histories.is_again & (histories.start != NEVER)
        counted &= histories.start > since[place]
        return np.bincount(place[counted], minlength=len(members))

    def _missing(self, row: int, since: int, until: int) -> Integers:
        """Publications that started in a time span and that a history had not delivered at one of its rows."""
        histories, publications = self._histories, self._histories.publications
        history = histories.history[row]
        first, last = publications.topic_begins[history // histories.names.node_count :][:2]
        owed = first + np.flatnonzero(
            (publications.start[first:last] > since) & (publications.start[first:last] < until)
        )
        begin, end = np.searchsorted(histories.delivery, [histories.history_begin[row], row + 1])
        missing: Integers = owed[~np.isin(owed, histories.publication[begin:end])]
        return missing

    def _loss(self, history: int, lost: Integers, detail: str, witness: tuple[int, int] = (NOBODY, NOBODY)) -> Example:
        histories, publications, names = self._histories, self._histories.publications, self._histories.names
        place = int(lost[np.argmin(publications.start[lost])])
        source = int(names.nodes[publications.source_history[place] % names.node_count])
        position = int(histories.rows.position[publications.start[place]])
        topic, node = int(names.topics[history // names.node_count]), int(names.nodes[history % names.node_count])
        sequence = int(publications.sequence[place])
        return Example("completeness", topic, node, source, sequence, position, *witness, detail)

    def find_what_leavers_left_out(self) -> None:
        """Find publications that leaving nodes had not delivered, though they delivered something that follows them."""
        histories = self._histories
        ended = histories.event == UNSUBSCRIBED
        if not ended.any():
            return
        # Requests before the last end do not count any more: look at the rows before each end.
        previous_end = np.append(NOBODY, histories.last_row(ended)[:-1])
        previous_end = np.where(histories.begins, NOBODY, previous_end)
        since = np.append(NOBODY, histories.last_row(histories.event == SUBSCRIBED)[:-1])
        asked = np.append(NOBODY, histories.last_row(histories.event == LEAVING)[:-1])
        for row in np.flatnonzero(ended):
            begin = max(int(previous_end[row]), int(histories.history_begin[row]) - 1)
            if since[row] > begin and asked[row] > begin:
                self._judge_leaver(int(row), int(histories.time[since[row]]), int(histories.time[asked[row]]), int(row))

    def _judge_leaver(self, row: int, since: int, asked: int, before: int) -> None:
        """Find publications that a history had not delivered before a row, though it delivered something that follows
        them.
        """
        histories = self._histories
        missing = self._missing(row, since, asked)
        begin, end = np.searchsorted(histories.delivery, [histories.history_begin[row], before])
        if len(missing) == 0 or begin == end:
            return
        delivered = np.arange(begin, end)
        waiting = delivered[histories.waits[delivered]]
        last = last_by_source(histories.source_history[waiting], histories.sequence[waiting])
        earlier = earlier_than(histories, last, missing)
        followed = earlier | self._followed(missing, waiting[~histories.is_early[waiting]])
        lost = missing[followed & ~self._excused.said(int(histories.history[row]), missing)]
        if len(lost) > 0:
            detail = "never delivered, though something that follows it was"
            self.found.add(len(lost), self._loss(int(histories.history[row]), lost, detail))

    def _followed(self, publications: Integers, deliveries: Integers) -> Flags:
        """Which publications of a topic are followed by any of some deliveries."""
        assert self._followers is not None, "there are followers where leavers are judged"
        return followed_by_any(self._histories, self._followers, publications, deliveries)
