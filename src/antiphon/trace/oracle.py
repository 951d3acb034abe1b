"""The judge of a run: what truly happened before what, and who was owed what.

The oracle is told what the application could see, in the order in which it happened: subscriptions taking effect and
ending, publications starting, deliveries. It knows no protocol and shares no code with one. It keeps its own vector
clock per node and publication and reports

* ``duplicates``: a node delivered a publication twice;
* ``fifo``: a node delivered a publication after a later one of the same source;
* ``causal``: a node delivered a publication after one that it happened before;
* ``validity``: a node delivered what nobody published, or before it was published;
* ``membership``: a node delivered something of a topic of which it was no member;
* ``completeness``: a node that was a member when a publication started, and stayed one, never delivered it.

A publication starts when its own publisher delivers it. Happened-before is Lamport's, per topic: a publication follows
everything that its publisher had delivered before it started, and what that follows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from antiphon.kernel.errors import UsageError

KINDS = ("duplicates", "fifo", "causal", "validity", "membership", "completeness")

COLUMNS = ["event", "node", "topic", "source", "sequence"]
EVENTS = ["deliver", "subscribed", "unsubscribed"]
"""What of a trace is needed to judge it."""

Clock = npt.NDArray[np.int64]


@dataclass
class Findings:
    """What the oracle found: how often, and the first example of each kind."""

    deliveries: int = 0
    publications: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, example: str) -> None:
        """One more violation."""
        self.counts[kind] += 1
        self.examples.setdefault(kind, example)

    @property
    def clean(self) -> bool:
        """Whether nothing was violated."""
        return not any(self.counts.values())

    def __str__(self) -> str:
        if self.clean:
            return f"{self.deliveries} deliveries of {self.publications} publications, nothing violated"
        return "; ".join(f"{kind}: {self.counts[kind]}, such as {text}" for kind, text in self.examples.items())


class TopicOracle:
    """One topic. Times are positions in the sequence of events; ``columns`` are the places of sources in clocks."""

    def __init__(self, topic: int, columns: dict[int, int], findings: Findings) -> None:
        self._topic = topic
        self._columns = columns
        self._findings = findings
        self._position = 0
        self.member_since: dict[int, int] = {}
        self.started_at: dict[tuple[int, int], int] = {}
        self._clock_of: dict[tuple[int, int], Clock] = {}
        # Per node: what its deliveries tell to have happened; and what it delivered, by source, with the last one.
        self._knows: dict[int, Clock] = {}
        self._delivered: dict[int, set[tuple[int, int]]] = {}
        self._last: dict[tuple[int, int], int] = {}

    def subscribed(self, node: int) -> None:
        """A subscription takes effect."""
        self._position += 1
        self.member_since[node] = self._position

    def unsubscribed(self, node: int) -> None:
        """A subscription ends."""
        self.member_since.pop(node, None)

    def delivered(self, node: int, source: int, sequence: int) -> None:
        """A node delivers a publication; at its own source that is the start of it."""
        findings = self._findings
        findings.deliveries += 1
        publication = (source, sequence)
        name = f"publication {sequence} of node {source} on topic {self._topic} at node {node}"
        if node not in self.member_since:
            findings.add("membership", f"{name}: delivered by a node that is no member")
        seen = self._delivered.setdefault(node, set())
        if publication in seen:
            findings.add("duplicates", f"{name}: delivered again")
            return
        seen.add(publication)
        knows = self._knows.get(node)
        if knows is None:
            knows = self._knows[node] = np.zeros(len(self._columns), np.int64)
        if sequence <= self._last.get((node, source), 0):
            findings.add("fifo", f"{name}: delivered after publication {self._last[node, source]} of that source")
        elif sequence <= knows[self._columns[source]]:
            findings.add("causal", f"{name}: delivered after something that follows it")
        self._last[node, source] = max(sequence, self._last.get((node, source), 0))
        if node == source:
            self._start(publication, knows)
        elif publication in self._clock_of:
            np.maximum(knows, self._clock_of[publication], out=knows)
        else:
            findings.add("validity", f"{name}: delivered before anybody published it")

    def _start(self, publication: tuple[int, int], knows: Clock) -> None:
        self._position += 1
        self._findings.publications += 1
        source, sequence = publication
        column = self._columns[source]
        knows[column] = max(sequence, int(knows[column]))
        self._clock_of[publication] = knows.copy()
        self.started_at[publication] = self._position

    def owed(self) -> list[tuple[int, tuple[int, int]]]:
        """Who still lacks what: members since before a publication started that have not delivered it."""
        lacking = []
        for node, since in self.member_since.items():
            seen = self._delivered.get(node, set())
            lacking += [(node, p) for p, start in self.started_at.items() if start > since and p not in seen]
        return lacking

    def finish(self) -> None:
        """Nothing more will happen: whatever is still owed is lost."""
        for node, (source, sequence) in self.owed():
            name = f"publication {sequence} of node {source} on topic {self._topic} at node {node}"
            self._findings.add("completeness", f"{name}: owed and never delivered")

    def state(self) -> str:
        """What the future judgement depends on, as text."""
        clocks = {node: clock.tolist() for node, clock in sorted(self._knows.items())}
        starts = {publication: clock.tolist() for publication, clock in sorted(self._clock_of.items())}
        delivered = {node: sorted(seen) for node, seen in sorted(self._delivered.items())}
        return f"{sorted(self.member_since)} {clocks} {starts} {delivered} {sorted(self.owed())}"


class Oracle:
    """Judges all topics of a run. ``sources`` are those who may publish, if that is known not to be everybody."""

    def __init__(self, node_count: int, sources: Iterable[int] | None = None) -> None:
        # Clocks have an entry per source and not per node: it is often one node of thousands that publishes.
        self._columns = {source: column for column, source in enumerate(sources or range(node_count))}
        self._topics: dict[int, TopicOracle] = {}
        self.findings = Findings()

    def topic(self, topic: int) -> TopicOracle:
        """The judge of one topic."""
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = TopicOracle(topic, self._columns, self.findings)
        return found

    def finish(self) -> Findings:
        """The judgement, when nothing more can happen."""
        for topic in self._topics.values():
            topic.finish()
        return self.findings

    def state(self) -> str:
        """What the future judgement depends on, as text."""
        return "|".join(f"{name}:{topic.state()}" for name, topic in sorted(self._topics.items()))


def evidence(table: pa.Table) -> pa.Table:
    """The rows and columns of a trace that a judgement needs."""
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise UsageError(f"a trace has the columns {', '.join(COLUMNS)}; {missing} is missing")
    seen = table.select(COLUMNS)
    events = seen["event"].cast(pa.string())
    return seen.set_column(0, "event", events).filter(pc.is_in(events, pa.array(EVENTS)))


def judge(table: pa.Table, node_count: int, everybody: bool = False, complete: bool = True) -> Findings:
    """Judge a trace. ``everybody`` if all nodes are members of everything; ``complete`` if the run came to its end."""
    rows = evidence(table)
    delivered = rows.filter(pc.equal(rows["event"], "deliver"))
    oracle = Oracle(node_count, sorted(pc.unique(delivered["source"]).to_pylist()))
    columns = (rows[name].to_pylist() for name in rows.column_names)
    for event, node, topic, source, sequence in zip(*columns, strict=True):
        judge_topic = oracle.topic(topic)
        if everybody and not judge_topic.member_since:
            for member in range(node_count):
                judge_topic.subscribed(member)
        if event == "deliver":
            judge_topic.delivered(node, source, sequence)
        elif event == "subscribed":
            judge_topic.subscribed(node)
        else:
            judge_topic.unsubscribed(node)
    return oracle.finish() if complete else oracle.findings
