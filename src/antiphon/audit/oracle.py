"""The judge of a run: which publications follow which, and which nodes must deliver them.

The oracle is told what the application could see, in the order of events: effective and ended subscriptions, started
publications, deliveries. It knows no protocol and shares no code with one. It keeps its own vector clock per node and
publication and reports violations of ``duplicates``, ``fifo``, ``causal``, ``validity``, ``membership`` and
``completeness``, which :mod:`antiphon.trace.quantities` defines.

A publication starts when its own publisher delivers it. A total one starts when the application requests it, and so do
all where they wait for a majority (``all_asked``). Its past depends on its requested order: without order it
follows nothing; in fifo order it follows all earlier ones of its source, and what these follow; in causal or total
order it follows everything that its publisher had delivered before it started, and what that follows. Where all
publications are causal this is Lamport's happened-before, per topic. Where no request is recorded, as in traces of live
nodes, the order is the one in which its publisher delivered it; where no order is known, a publication is judged as a
causal one.

Where nodes crash, leave or restart, a "node" is one of its incarnations (:mod:`antiphon.audit.incarnations`). A
publication of a failed node may be lost with it, and a reported loss may be excused, each publication by its name
(:class:`Excuses`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from operator import itemgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from antiphon.audit.findings import NO_EXCUSES, Excuses, Findings, Loss
from antiphon.audit.incarnations import ENDS, STARTS, Incarnations, incarnations_of
from antiphon.audit.number_ranges import NumberRanges
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import CAUSAL, FIFO, NONE, ORDER_NAMES, TOTAL, UNSPECIFIED
from antiphon.trace.contract import TOLD_ALWAYS, TOLD_FAILED, TOLD_UNKEPT
from antiphon.trace.schema import COLUMNS, KEYS, ORDER, PEER, VALUE

EVENTS = ["publish", "deliver", "subscribed", "unsubscribe", "unsubscribed", "lost"]
"""The events that a judgement needs."""


BESIDES = [*STARTS, *ENDS, "unshown", "stuck", "end", "epoch"]
"""Further events that it needs: where nodes join and leave, where majorities decide, and at the end of a run."""


Clock = npt.NDArray[np.int64]


Identity = tuple[int, int]
"""Source and number of a publication."""


class Past:
    """A set of publications: a clock with a number per source up to which it has all, and single ones beyond."""

    def __init__(self, clock: Clock, loose: dict[int, NumberRanges], columns: dict[int, int]) -> None:
        self.clock = clock
        self.loose = loose
        self._columns = columns

    def copy(self) -> Past:
        """A copy of the set."""
        return Past(self.clock.copy(), {source: found.copy() for source, found in self.loose.items()}, self._columns)

    def holds(self, publication: Identity) -> bool:
        """Whether a publication is in the set."""
        source, sequence = publication
        return sequence <= self.clock[self._columns[source]] or (
            source in self.loose and sequence in self.loose[source]
        )

    def add(self, publication: Identity) -> None:
        """Add one publication."""
        source, sequence = publication
        column = self._columns[source]
        if sequence > self.clock[column] + 1:
            self.loose.setdefault(source, NumberRanges()).add(sequence)
            return
        self.clock[column] = max(sequence, int(self.clock[column]))
        self._tighten(source)

    def add_up_to(self, publication: Identity) -> None:
        """Add a publication and all earlier ones of its source."""
        source, sequence = publication
        column = self._columns[source]
        self.clock[column] = max(sequence, int(self.clock[column]))
        self._tighten(source)

    def add_all(self, other: Past) -> None:
        """Add another set."""
        np.maximum(self.clock, other.clock, out=self.clock)
        for source, numbers in other.loose.items():
            self.loose.setdefault(source, NumberRanges()).add_all(numbers)
        for source in list(self.loose):
            self._tighten(source)

    def _tighten(self, source: int) -> None:
        """Advance the clock over publications without a gap."""
        loose = self.loose.get(source)
        if loose is not None:
            column = self._columns[source]
            self.clock[column] = loose.remove_up_to(int(self.clock[column]))
            if not loose.ranges:
                del self.loose[source]

    def __str__(self) -> str:
        loose = [(source, numbers.ranges) for source, numbers in sorted(self.loose.items())]
        return f"{self.clock.tolist()} {loose}"


class TopicOracle:
    """Judges one topic. Times are positions in the sequence of events; ``columns`` are the indices of sources in
    clocks.

    ``default`` is the order of publications without a requested one. Of publications of ``silent`` nodes, only the
    deliveries at others are known. With ``all_asked`` publications of every order start when they are requested.
    """

    def __init__(
        self,
        topic: int,
        columns: dict[int, int],
        findings: Findings,
        default: int = CAUSAL,
        silent: Container[int] = (),
        stride: int = 0,
        excuses: Excuses = NO_EXCUSES,
        all_asked: bool = False,
    ) -> None:
        self._silent = silent
        self._stride = stride
        self._all_asked = all_asked
        self._topic = topic
        self._columns = columns
        self._findings = findings
        self._default = default
        self._position = 0
        self.member_since: dict[int, int] = {}
        self._leaving_since: dict[int, int] = {}
        self.started_at: dict[Identity, int] = {}
        self._asked: dict[Identity, int] = {}
        self._home: dict[Identity, int] = {}
        # The past of each publication; one in fifo order shares the past of the causal one before it at its source. A
        # total one starts when it is requested, and others that were requested earlier may start after it.
        self._followed_by: dict[Identity, Past] = {}
        self._last_causal: dict[int, list[tuple[int, Past]]] = {}
        # Per node: its deliveries and what those follow; its deliveries alone; by source the last waiting one.
        self._knows: dict[int, Past] = {}
        self._delivered: dict[int, set[Identity]] = {}
        self._last: dict[tuple[int, int], int] = {}
        self._lost: dict[int, set[Identity]] = {}
        self.excuse(excuses)

    def excuse(self, excuses: Excuses) -> None:
        """Set the publications that need not be delivered."""
        self._excuses = excuses
        for node, topic, source, sequence in excuses.losses:
            if topic == self._topic:
                self._lost.setdefault(node, set()).add((source, sequence))

    def _node(self, incarnation: int) -> int:
        """The node of an incarnation."""
        return incarnation % self._stride if self._stride else incarnation

    def change(self, event: str, node: int) -> None:
        """A subscription begins or ends; losses were passed before."""
        if event == "subscribed":
            self.subscribed(node)
        elif event == "unsubscribe":
            self.leaving(node)
        elif event == "unsubscribed":
            self.unsubscribed(node)

    def subscribed(self, node: int) -> None:
        """A subscription is effective; a restarted node announces it again, and was a member all the time."""
        self._position += 1
        self.member_since.setdefault(node, self._position)

    def leaving(self, node: int) -> None:
        """The application requests the end of a subscription."""
        self._leaving_since[node] = self._position

    def unsubscribed(self, node: int) -> None:
        """A subscription ends: publications in transit need not arrive any more, unless one was left out."""
        since = self.member_since.pop(node, None)
        asked_at = self._leaving_since.pop(node, None)
        knows = self._knows.get(node)
        if since is not None and asked_at is not None and knows is not None:
            # A publisher that knows of the leave does not send to this node any more.
            self._find_left_out(node, knows, since, asked_at)

    def _find_left_out(self, node: int, knows: Past, since: int, until: int) -> None:
        """Find publications of a time span that were not delivered, though something that follows them was."""
        seen = self._delivered.get(node, set())
        unknowable = self._unknowable(node)
        for publication, start in reversed(self.started_at.items()):
            if start <= since:
                break
            if start <= until and publication not in seen and knows.holds(publication):
                if self._is_excused(node, publication, unknowable):
                    continue
                name = self._name(node, publication)
                self._findings.add("completeness", f"{name}: never delivered, though something that follows it was")

    def published(self, source: int, sequence: int, order: int, incarnation: int | None = None) -> None:
        """The application requests a publication of an order; it need not start at once, unless it is total."""
        publication = (source, sequence)
        home = self._home.setdefault(publication, source if incarnation is None else incarnation)
        self._asked[publication] = order
        if (order == TOTAL or self._all_asked) and publication not in self.started_at:
            self._start(publication, self._knows.setdefault(home, self._nothing()))

    def delivered(self, node: int, source: int, sequence: int, order: int = UNSPECIFIED) -> None:
        """A node delivers a publication as one of ``order``; at its own source it starts then."""
        findings = self._findings
        findings.deliveries += 1
        publication = (source, sequence)
        name = self._name(node, publication)
        if node not in self.member_since:
            findings.add("membership", f"{name}: delivered by a node that is not a member")
        seen = self._delivered.setdefault(node, set())
        if publication in seen:
            findings.add("duplicates", f"{name}: delivered again")
            return
        seen.add(publication)
        knows = self._knows.setdefault(node, self._nothing())
        if sequence <= self._last.get((node, source), 0):
            findings.add("fifo", f"{name}: delivered after publication {self._last[node, source]} of that source")
        elif knows.holds(publication):
            findings.add("causal", f"{name}: delivered after something that follows it")
        asked = self._asked.get(publication, UNSPECIFIED)
        if order != UNSPECIFIED and asked not in (UNSPECIFIED, order):
            findings.add("validity", f"{name}: published in order {ORDER_NAMES[asked]}, not {ORDER_NAMES[order]}")
        # It starts in the incarnation of its publisher that was asked for it, if any was.
        is_own = self._node(node) == source and self._home.setdefault(publication, node) == node
        if order != UNSPECIFIED and (is_own or source in self._silent):
            # Where no request is recorded, the publisher's own delivery gives the order, or the first delivery.
            self._asked.setdefault(publication, order)
        if publication not in self.started_at:
            if is_own:
                self._start(publication, knows)
            else:
                findings.add("validity", f"{name}: delivered before it was published")
        self._learn(node, publication, knows)

    def _learn(self, node: int, publication: Identity, knows: Past) -> None:
        """A node has delivered a publication: it knows that one, and what it follows."""
        if self._order_of(publication) == NONE:
            knows.add(publication)
            return
        source, sequence = publication
        self._last[node, source] = max(sequence, self._last.get((node, source), 0))
        if node != source and publication in self._followed_by:
            knows.add_all(self._followed_by[publication])
        # A waiting publication waits for the earlier ones of its source.
        knows.add_up_to(publication)

    def _start(self, publication: Identity, knows: Past) -> None:
        self._position += 1
        self._findings.publications += 1
        self.started_at[publication] = self._position
        order = self._order_of(publication)
        source, sequence = publication
        causal = self._last_causal.setdefault(source, [])
        if order in (CAUSAL, TOTAL):
            past = self._followed_by[publication] = knows.copy()
            insort(causal, (sequence, past), key=itemgetter(0))
        elif order == FIFO:
            place = bisect_left(causal, sequence, key=itemgetter(0))
            if place > 0:
                self._followed_by[publication] = causal[place - 1][1]

    def _order_of(self, publication: Identity) -> int:
        asked = self._asked.get(publication, UNSPECIFIED)
        return self._default if asked == UNSPECIFIED else asked

    def _nothing(self) -> Past:
        return Past(np.zeros(len(self._columns), np.int64), {}, self._columns)

    def _name(self, node: int, publication: Identity) -> str:
        source, sequence = publication
        life = node // self._stride + 1 if self._stride else 1
        where = f"node {self._node(node)}" + (f" in incarnation {life}" if life > 1 else "")
        return f"publication {sequence} of node {source} on topic {self._topic} at {where}"

    def owed(self) -> list[tuple[int, Identity]]:
        """The publications that each member must still deliver: members since before their start that have not
        delivered them.
        """
        lacking = []
        for node, since in self.member_since.items():
            seen = self._delivered.get(node, set())
            lacking += [(node, p) for p, start in self.started_at.items() if start > since and p not in seen]
        return lacking

    def finish(self) -> None:
        """The run has ended: publications that were not delivered, and are not excused, are lost."""
        known = [self._knows[node] for node in self.member_since if node in self._knows]
        unknowable = {node: self._unknowable(node) for node in self._lost}
        for node, publication in self.owed():
            if publication[0] in self._excuses.mortal and not self._must_be_known(publication, known):
                continue
            if not self._is_excused(node, publication, unknowable.get(node, [])):
                self._findings.add("completeness", f"{self._name(node, publication)}: never delivered")

    def _must_be_known(self, publication: Identity, known: Sequence[Past]) -> bool:
        """Whether a member has delivered a publication or something that follows it."""
        if self._excuses.loose:
            return self._is_kept(publication)
        return any(knows.holds(publication) for knows in known)

    def cut_off(self) -> None:
        """The run ended early. Publications in transit need not arrive, unless something that follows them did."""
        for node, since in self.member_since.items():
            if node in self._knows:
                self._find_left_out(node, self._knows[node], since, self._position)

    def _unknowable(self, node: int) -> list[Past]:
        """The pasts of the publications that a node has reported as lost."""
        return [self._followed_by[lost] for lost in sorted(self._lost.get(node, ())) if lost in self._followed_by]

    def _is_excused(self, node: int, publication: Identity, unknowable: Sequence[Past]) -> bool:
        excuses = self._excuses
        is_of_mortal = publication[0] in excuses.mortal
        if publication in self._lost.get(node, ()):
            may_be_said = excuses.told == TOLD_ALWAYS or (excuses.told == TOLD_FAILED and is_of_mortal)
            may_be_said |= excuses.told == TOLD_UNKEPT and is_of_mortal and not self._is_kept(publication)
            if may_be_said or self._order_of(publication) == excuses.holes_in:
                return True
        return is_of_mortal and any(past.holds(publication) for past in unknowable)

    def _is_kept(self, publication: Identity) -> bool:
        """Whether a member has delivered a publication."""
        return any(publication in self._delivered.get(node, ()) for node in self.member_since)

    def state(self) -> str:
        """The state that further judgement depends on, as text."""
        known = {node: str(past) for node, past in sorted(self._knows.items())}
        followed = {publication: str(past) for publication, past in sorted(self._followed_by.items())}
        delivered = {node: sorted(seen) for node, seen in sorted(self._delivered.items())}
        asked = sorted(self._asked.items())
        return f"{sorted(self.member_since)} {known} {followed} {asked} {delivered} {sorted(self.owed())}"


class Oracle:
    """Judges all topics of a run. ``sources`` are the nodes that may publish, if not all may.

    ``default`` is the order of publications without a requested one. ``silent`` nodes publish and have no rows of their
    own.
    """

    def __init__(
        self,
        node_count: int,
        sources: Iterable[int] | None = None,
        default: int = CAUSAL,
        silent: Container[int] = (),
        stride: int = 0,
        excuses: Excuses = NO_EXCUSES,
        all_asked: bool = False,
    ) -> None:
        self._silent = silent
        self._stride = stride
        self._all_asked = all_asked
        self._excuses = excuses
        # Clocks have an entry per source and not per node: often one node of thousands publishes.
        self._columns = {source: column for column, source in enumerate(sources or range(node_count))}
        self._default = default
        self._topics: dict[int, TopicOracle] = {}
        self.findings = Findings()

    def topic(self, topic: int) -> TopicOracle:
        """The judge of one topic."""
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = TopicOracle(
                topic,
                self._columns,
                self.findings,
                self._default,
                self._silent,
                self._stride,
                self._excuses,
                self._all_asked,
            )
        return found

    def topics_of(self, incarnation: int) -> list[TopicOracle]:
        """The topics of which an incarnation is a member now."""
        return [topic for topic in self._topics.values() if incarnation in topic.member_since]

    def finish(self, mortal: Container[int] | None = None) -> Findings:
        """The judgement at the end of a run; a publication of a ``mortal`` node may be lost with it."""
        for judge_topic in self._topics.values():
            if mortal is not None:
                judge_topic.excuse(replace(self._excuses, mortal=mortal))
            judge_topic.finish()
        return self.findings

    def cut_off(self) -> Findings:
        """The judgement of a run that ended early."""
        for judge_topic in self._topics.values():
            judge_topic.cut_off()
        return self.findings

    def state(self) -> str:
        """The state that further judgement depends on, as text."""
        return "|".join(f"{name}:{topic.state()}" for name, topic in sorted(self._topics.items()))


def evidence(table: pa.Table) -> pa.Table:
    """The rows and columns of a trace that a judgement needs."""
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise UsageError(f"a trace has the columns {', '.join(COLUMNS)}; {missing} is missing")
    seen = table.select(COLUMNS)
    events = seen["event"].cast(pa.string())
    orders = table[ORDER].cast(pa.string()) if ORDER in table.column_names else pa.nulls(len(seen), pa.string())
    seen = seen.set_column(0, "event", events).append_column(ORDER, orders)
    for name in (KEYS, VALUE, PEER):
        if name in table.column_names:
            seen = seen.append_column(name, table[name])
    return seen.filter(pc.is_in(events, pa.array([*EVENTS, *BESIDES])))


def losses_in(rows: pa.Table, incarnations: npt.NDArray[np.int64]) -> list[Loss]:
    """The losses that incarnations reported, in order."""
    places = np.flatnonzero(pc.equal(rows["event"], "lost").to_numpy(zero_copy_only=False))
    said = rows.take(pa.array(places))
    columns = (said[name].to_pylist() for name in ("topic", "source", "sequence"))
    return list(zip(incarnations[places].tolist(), *columns, strict=True))


def judge(
    table: pa.Table,
    node_count: int,
    everybody: bool = False,
    complete: bool = True,
    default: int = CAUSAL,
    leavers: bool = False,
    incarnations: Incarnations | None = None,
    excuses: Excuses = NO_EXCUSES,
    is_cut: bool = False,
    all_asked: bool = False,
) -> Findings:
    """Judge a trace. ``everybody`` if all nodes are members of everything; ``complete`` if nothing may be missing.

    ``default`` is the order of publications without a requested one. ``leavers`` if leaving nodes are judged too; then
    the order of each publication must be known, because what follows what depends on it. ``incarnations`` has the rows
    in which incarnations end; without it no node fails. ``excuses`` are the publications that need not be delivered,
    with losses by incarnation. If the run ``is_cut``, publications in transit at its end may be missing. With
    ``all_asked`` publications of every order start when they are requested.
    """
    rows = evidence(table)
    about = rows.filter(pc.is_in(rows["event"], pa.array(["publish", "deliver"])))
    sources = pc.unique(about["source"]).to_pylist()
    silent = frozenset(sources) - frozenset(pc.unique(rows["node"]).to_pylist())
    stride = 0 if incarnations is None else incarnations.stride
    oracle = Oracle(node_count, sorted(sources), default, silent, stride, excuses, all_asked)
    of_rows = rows["node"].to_pylist() if incarnations is None else incarnations_of(rows, incarnations).tolist()
    ends = frozenset() if incarnations is None else incarnations.ends
    columns = (rows[name].to_pylist() for name in ["event", "topic", "source", "sequence", ORDER])
    for place, (incarnation, event, topic, source, sequence, order_name) in enumerate(
        zip(of_rows, *columns, strict=True)
    ):
        if event in BESIDES:
            for judge_topic in oracle.topics_of(incarnation) if place in ends else ():
                judge_topic.unsubscribed(incarnation)
            continue
        judge_topic = oracle.topic(topic)
        if everybody and not judge_topic.member_since:
            for member in range(node_count):
                judge_topic.subscribed(member)
        order = UNSPECIFIED if order_name is None else ORDER_NAMES.index(order_name)
        if event == "deliver":
            judge_topic.delivered(incarnation, source, sequence, order)
        elif event == "publish":
            judge_topic.published(source, sequence, order, incarnation)
        elif event != "unsubscribe" or leavers:
            judge_topic.change(event, incarnation)
    if not complete:
        return oracle.findings
    return oracle.cut_off() if is_cut else oracle.finish()
