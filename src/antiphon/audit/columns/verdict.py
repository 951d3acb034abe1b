"""The judgement of one part of a trace: how often each promise was broken there, and the first example of each.

A part holds whole lanes (:mod:`antiphon.audit.columns.histories`), and of every topic in it all that was published. The
kinds of violations are those of :mod:`antiphon.audit.oracle`, where they are defined.
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
    Integers,
    Lanes,
    Rows,
)
from antiphon.audit.columns.incarnations import LifeSpans, own_lanes
from antiphon.audit.columns.missing import Excused, earlier_than, followed_by_any, last_by_source
from antiphon.audit.findings import KINDS
from antiphon.kernel.message import ORDER_NAMES, SOURCE_BITS, TOTAL, UNSPECIFIED
from antiphon.trace.contract import FINISHED, TOLD_NEVER, Contract


@dataclass(frozen=True)
class Example:
    """One violation: the delivery or the publication that is wrong, and where it can be another one that shows it."""

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
    """What was found in a part."""

    deliveries: int = 0
    publications: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    examples: dict[str, Example] = field(default_factory=dict)

    def add(self, count: int, example: Example) -> None:
        """Some violations of a kind, and the first of them."""
        self.counts[example.kind] += count
        known = self.examples.get(example.kind)
        if known is None or example.position < known.position:
            self.examples[example.kind] = example

    def add_all(self, other: Judgement) -> None:
        """What was found in another part."""
        self.deliveries += other.deliveries
        self.publications += other.publications
        for kind, count in other.counts.items():
            if count:
                self.add(count, other.examples[kind])


@dataclass(frozen=True)
class Rules:
    """What is asked of a run: the order where none is named, whether anything may be missing, who is judged."""

    default: int
    complete: bool = True
    leavers: bool = False
    causal: bool = True
    is_cut: bool = False
    """Whether the run ended before its time, so that what was under way may be missing."""
    stride: int = 0
    """By how much the numbers of lanes of one node differ; 0 where each has one."""
    mortal: frozenset[int] = frozenset()
    """The nodes whose publications may be lost with them."""
    told: str = TOLD_NEVER
    holes_in: int = UNSPECIFIED
    """When a publication that a node has said to be lost is excused (:mod:`antiphon.trace.contract`)."""

    @property
    def needs_whole_topics(self) -> bool:
        """Whether it must be known of all nodes of a topic what they know."""
        return self.is_cut or len(self.mortal) > 0

    @property
    def needs_followers(self) -> bool:
        """Whether it must be known which publications follow which."""
        return self.causal or self.leavers or self.needs_whole_topics


def rules_for(contract: Contract, stopped: str, spans: LifeSpans) -> Rules:
    """What is asked of a run by what was promised, how it ended, and who failed."""
    checks = contract.checks(stopped)
    return Rules(
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


def judge_part(rows: Rows, rules: Rules, columns: Mapping[tuple[int, int], bytes] | None = None) -> Judgement:
    """Judge the lanes of a part. ``columns`` are the first followers that other parts of the same topics found."""
    lanes = Lanes(own_lanes(rows, rules.stride), rules.default)
    judge = PartJudge(lanes, rules)
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
    """The same with nodes for their lanes in examples."""
    named = {}
    for kind, example in found.examples.items():
        source, witness = example.source % stride, example.witness_source
        witness = witness % stride if witness != NOBODY else NOBODY
        named[kind] = replace(example, node=example.node % stride, source=source, witness_source=witness)
    return replace(found, examples=named)


def judge_interval(rows: Rows, rules: Rules, since: int, older: Sequence[int]) -> Judgement:
    """Judge only the causal order of the deliveries from a position on; earlier rows say what led to them.

    The publications in ``older``, as keys, are passed over: not all of their rows are here.
    """
    keys = (rows.sequence << SOURCE_BITS) | rows.source
    rows = rows.taken(~np.isin(keys, np.array(older, np.int64)))
    judge = PartJudge(Lanes(rows, rules.default), rules)
    judge.find_late_causes({}, since)
    return Judgement(counts=judge.found.counts, examples=judge.found.examples)


class PartJudge:
    """Looks for the violations in one part."""

    def __init__(self, lanes: Lanes, rules: Rules) -> None:
        self._lanes = lanes
        self._rules = rules
        self._followers: Followers | None = None
        is_start = lanes.is_own & ~lanes.is_again & (lanes.order != TOTAL)
        asked = lanes.publications.start[(lanes.publications.order == TOTAL) & (lanes.publications.start != NEVER)]
        self.found = Judgement(len(lanes.delivery), int(is_start.sum() + lanes.rows.judged[asked].sum()))

    def _report(self, kind: str, wrong: Flags, detail: str, witness: tuple[int, int] | None = None) -> None:
        """Violations among the deliveries; the first in the order of the trace is the example."""
        places = np.flatnonzero(wrong)
        if len(places) > 0:
            first = int(places[np.argmin(self._lanes.delivery_time[places])])
            example = self._example(kind, first, detail, witness or (NOBODY, NOBODY))
            self.found.add(len(places), example)

    def _example(self, kind: str, delivery: int, detail: str, witness: tuple[int, int]) -> Example:
        rows = self._lanes.rows
        row = int(self._lanes.delivery_time[delivery])
        columns = (rows.topic, rows.node, rows.source, rows.sequence, rows.position)
        topic, node, source, sequence, position = (int(column[row]) for column in columns)
        return Example(kind, topic, node, source, sequence, position, *witness, detail)

    def find_duplicates_and_strangers(self) -> None:
        """Deliveries by who has them already, and by who is no member."""
        lanes = self._lanes
        self._report("duplicates", lanes.is_again, "delivered again")
        stranger = lanes.member_since[lanes.delivery] == NOBODY
        self._report("membership", stranger, "delivered by a node that is no member")

    def find_inventions(self) -> None:
        """Deliveries of what nobody published, and as of another order than was asked for."""
        lanes = self._lanes
        invented = ~lanes.is_again & ~lanes.is_own & lanes.is_early
        self._report("validity", invented, "delivered before anybody published it")
        # The publisher's own delivery says the order where nothing else did, and so cannot be wrong.
        asked = np.where(lanes.is_own, lanes.order_asked_for, lanes.order_known)
        other = (lanes.row_order != UNSPECIFIED) & (asked != UNSPECIFIED) & (lanes.row_order != asked)
        self._report("validity", ~lanes.is_again & other, "delivered as of another order than was asked for")

    def find_late_ones_of_a_source(self) -> None:
        """Deliveries after a later one of the same source."""
        lanes = self._lanes
        late = self._is_late
        places = np.flatnonzero(late)
        if len(places) > 0:
            first = int(places[np.argmin(lanes.delivery_time[places])])
            source = int(lanes.names.nodes[lanes.source_lane[first] % lanes.names.node_count])
            witness = (source, int(lanes.last[first]))
            self._report("fifo", late, f"delivered after publication {witness[1]} of that source", witness)

    @cached_property
    def _is_late(self) -> Flags:
        lanes = self._lanes
        return ~lanes.is_again & (lanes.sequence <= lanes.last)

    def find_late_causes(self, columns: Mapping[tuple[int, int], bytes], since: int = BEFORE_EVERYTHING) -> None:
        """Deliveries, from a position on, after something else that follows them."""
        lanes = self._lanes
        self._followers = followers = Followers(lanes)
        followers.look()
        followers.learn(columns)
        followers.close()
        known = known_too_early(lanes, followers) & ~self._is_late
        places = np.flatnonzero(known)
        places = places[lanes.rows.position[lanes.delivery_time[places]] >= since]
        if len(places) > 0:
            known = np.zeros(len(known), np.bool_)
            known[places] = True
            first = int(places[np.argmin(lanes.delivery_time[places])])
            self._report("causal", known, "delivered after something that follows it", self._witness(first))

    def _witness(self, delivery: int) -> tuple[int, int]:
        """The earliest publication that the node delivered before one that it follows."""
        lanes, followers = self._lanes, self._followers
        assert followers is not None, "there are followers where causal order is judged"
        names = lanes.names
        begin = int(np.searchsorted(lanes.delivery_lane, lanes.delivery_lane[delivery]))
        before = np.arange(begin, delivery)
        before = before[lanes.waits[before] & ~lanes.is_early[before]]
        column = followers.column_of(lanes.source_lane[before])
        before, column = before[column != NOBODY], column[column != NOBODY]
        numbers = followers.numbers[followers.offset[lanes.publication[delivery]] + column]
        follows = before[followers.reach[lanes.publication[before]] >= numbers]
        witness = int(follows[0])
        return int(names.nodes[lanes.source_lane[witness] % names.node_count]), int(lanes.sequence[witness])

    def find_losses(self) -> None:
        """What members were owed and never delivered."""
        lanes, publications, names = self._lanes, self._lanes.publications, self._lanes.names
        if len(lanes.lane) == 0:
            return
        ends = np.flatnonzero(np.append(lanes.begins[1:], True))
        ends = ends[lanes.member_since[ends] != NOBODY]
        since = lanes.time[lanes.member_since[ends]]
        topic = lanes.lane[ends] // names.node_count
        stride = len(lanes.rows) + 1
        started = publications.start != NEVER
        starts = np.sort(publications.topic[started] * stride + publications.start[started])
        owed = np.searchsorted(starts, (topic + 1) * stride) - np.searchsorted(starts, topic * stride + since, "right")
        has = self._delivered_since(lanes.lane[ends], since)
        lacking = owed - has
        for place in np.flatnonzero(lacking):
            row, begin = int(ends[place]), int(since[place])
            if self._rules.is_cut:
                # The last row of a lane counts too.
                self._judge_leaver(row, begin, int(NEVER), row + 1)
                continue
            missing = self._missing(row, begin, int(NEVER))
            lost = missing[~self._excused.at_end(int(lanes.lane[row]), missing)]
            if len(lost) > 0:
                self.found.add(len(lost), self._loss(int(lanes.lane[row]), lost, "owed and never delivered"))

    @cached_property
    def _excused(self) -> Excused:
        rules = self._rules
        return Excused(self._lanes, self._followers, rules.mortal, rules.told, rules.holes_in, rules.stride)

    def _delivered_since(self, members: Integers, since: Integers) -> Integers:
        """How much each of some lanes delivered of what started after a moment."""
        lanes = self._lanes
        if len(members) == 0:
            return np.zeros(0, np.int64)
        place = np.minimum(np.searchsorted(members, lanes.delivery_lane), len(members) - 1)
        counted = (members[place] == lanes.delivery_lane) & ~lanes.is_again & (lanes.start != NEVER)
        counted &= lanes.start > since[place]
        return np.bincount(place[counted], minlength=len(members))

    def _missing(self, row: int, since: int, until: int) -> Integers:
        """Publications that started in a time and that a lane had not delivered at one of its rows."""
        lanes, publications = self._lanes, self._lanes.publications
        lane = lanes.lane[row]
        first, last = publications.topic_begins[lane // lanes.names.node_count :][:2]
        owed = first + np.flatnonzero(
            (publications.start[first:last] > since) & (publications.start[first:last] < until)
        )
        begin, end = np.searchsorted(lanes.delivery, [lanes.lane_begin[row], row + 1])
        missing: Integers = owed[~np.isin(owed, lanes.publication[begin:end])]
        return missing

    def _loss(self, lane: int, lost: Integers, detail: str, witness: tuple[int, int] = (NOBODY, NOBODY)) -> Example:
        lanes, publications, names = self._lanes, self._lanes.publications, self._lanes.names
        place = int(lost[np.argmin(publications.start[lost])])
        source = int(names.nodes[publications.source_lane[place] % names.node_count])
        position = int(lanes.rows.position[publications.start[place]])
        topic, node = int(names.topics[lane // names.node_count]), int(names.nodes[lane % names.node_count])
        sequence = int(publications.sequence[place])
        return Example("completeness", topic, node, source, sequence, position, *witness, detail)

    def find_what_leavers_left_out(self) -> None:
        """What nodes that left had not delivered, though they delivered something that follows it."""
        lanes = self._lanes
        ended = lanes.event == UNSUBSCRIBED
        if not ended.any():
            return
        # What was asked for before the last end counts no more: look at the rows before each end.
        previous_end = np.append(NOBODY, lanes.last_row(ended)[:-1])
        previous_end = np.where(lanes.begins, NOBODY, previous_end)
        since = np.append(NOBODY, lanes.last_row(lanes.event == SUBSCRIBED)[:-1])
        asked = np.append(NOBODY, lanes.last_row(lanes.event == LEAVING)[:-1])
        for row in np.flatnonzero(ended):
            begin = max(int(previous_end[row]), int(lanes.lane_begin[row]) - 1)
            if since[row] > begin and asked[row] > begin:
                self._judge_leaver(int(row), int(lanes.time[since[row]]), int(lanes.time[asked[row]]), int(row))

    def _judge_leaver(self, row: int, since: int, asked: int, before: int) -> None:
        """What a lane had not delivered before a row, though something that follows it."""
        lanes = self._lanes
        missing = self._missing(row, since, asked)
        begin, end = np.searchsorted(lanes.delivery, [lanes.lane_begin[row], before])
        if len(missing) == 0 or begin == end:
            return
        delivered = np.arange(begin, end)
        waiting = delivered[lanes.waits[delivered]]
        last = last_by_source(lanes.source_lane[waiting], lanes.sequence[waiting])
        earlier = earlier_than(lanes, last, missing)
        followed = earlier | self._followed(missing, waiting[~lanes.is_early[waiting]])
        lost = missing[followed & ~self._excused.said(int(lanes.lane[row]), missing)]
        if len(lost) > 0:
            detail = "never delivered, though something that follows it was"
            self.found.add(len(lost), self._loss(int(lanes.lane[row]), lost, detail))

    def _followed(self, publications: Integers, deliveries: Integers) -> Flags:
        """Which publications of a topic are followed by any of some deliveries."""
        assert self._followers is not None, "there are followers where leavers are judged"
        return followed_by_any(self._lanes, self._followers, publications, deliveries)
