"""Which promises apply to a run, and whether it kept them.

The oracle (:mod:`antiphon.trace.oracle`) knows no protocol and finds every breach of every promise. Which of them were
made depends on the scenario: nobody promises completeness where copies are lost, or causal order under ``fifo``.
``stuck`` is added here: something that a process began and cannot finish, though nothing is on its way any more.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from antiphon.simulator.protocols import PROTOCOLS
from antiphon.simulator.scenario import NodeFault, PartitionFault, PauseFault, ResumeFault, Scenario
from antiphon.trace.oracle import Findings, evidence, judge
from antiphon.trace.recorder import Recorder
from antiphon.trace.store import to_batch

STUCK = "stuck"

MAXIMUM_ROWS = 500_000
"""The oracle looks at a few hundred thousand deliveries per second; nobody should have to wait for it."""

MAXIMUM_CLOCK_ENTRIES = 1 << 25
"""The oracle keeps a clock of one entry per node for each node and each publication; this many take 256 MiB."""

PROMISES = {
    "none": ("duplicates", "validity"),
    "fifo": ("duplicates", "validity", "fifo"),
    "causal": ("duplicates", "validity", "fifo", "causal"),
}
"""What each order promises on any network."""


class Witness:
    """Keeps what the oracle must see of a run, while it is little enough."""

    def __init__(self, node_count: int) -> None:
        self._node_count = node_count
        self._tables: list[pa.Table] = []
        self._rows = 0
        self.recorder = Recorder(False, self._keep)
        """For runs that are written nowhere else."""

    def _keep(self, words: object) -> None:
        self.see(to_batch(words, self.recorder.kind_names))

    def see(self, batch: pa.RecordBatch) -> None:
        """Take notice of rows of a trace."""
        rows = evidence(pa.Table.from_batches([batch]))
        self._rows += rows.num_rows
        if self._rows > MAXIMUM_ROWS:
            self._tables.clear()
        else:
            self._tables.append(rows)

    def findings(self, everybody: bool, complete: bool) -> Findings | None:
        """What the oracle found; nothing if there was too much to look at."""
        if self._rows > MAXIMUM_ROWS:
            return None
        if not self._tables:
            return Findings()
        table = pa.concat_tables(self._tables)
        at_source = pc.and_(pc.equal(table["event"], "deliver"), pc.equal(table["node"], table["source"]))
        publications = pc.sum(at_source).as_py() or 0
        if (publications + self._node_count) * self._node_count > MAXIMUM_CLOCK_ENTRIES:
            return None
        return judge(table, self._node_count, everybody, complete)


def why_not_judged(scenario: Scenario) -> str | None:
    """Why there can be no judgement of a scenario, if so."""
    if scenario.trace.level == "counts":
        return "the level of the trace is counts"
    if scenario.order not in PROMISES:
        return f"{scenario.order} promises nothing"
    if any(not isinstance(fault, PauseFault | ResumeFault | PartitionFault) for fault in scenario.faults):
        return "what is promised to nodes that crash, join or leave is not defined"
    if scenario.nodes**2 > MAXIMUM_CLOCK_ENTRIES:
        return f"with more than {int(MAXIMUM_CLOCK_ENTRIES**0.5)} nodes it would need too much memory"
    return None


def promises_of(scenario: Scenario, stopped: str) -> tuple[str, ...]:
    """The promises that apply to a run that can be judged."""
    promises = PROMISES[scenario.order]
    if PROTOCOLS[scenario.protocol].has_topics:
        promises += ("membership",)
    if stopped == "finished" and not loses(scenario):
        promises += ("completeness",)
        # Where copies are doubled, answers are, and a wave that was opened twice is not closed twice.
        promises += (STUCK,) if scenario.network.duplication == 0 else ()
    return promises


def loses(scenario: Scenario) -> bool:
    """Whether something may never arrive: copies are lost, or a node is paused for ever."""
    if scenario.network.loss > 0 or any(isinstance(fault, PartitionFault) for fault in scenario.faults):
        return True
    paused: set[int] = set()
    for _, fault in scenario.faults_by_time():
        if isinstance(fault, NodeFault):
            targets = fault.targets(scenario.nodes)
            paused = paused.difference(targets) if isinstance(fault, ResumeFault) else paused.union(targets)
    return bool(paused)


def judge_run(scenario: Scenario, witness: Witness, stopped: str, stuck: int) -> tuple[dict[str, int] | None, str]:
    """How often each promise that applies was broken, and the same as a sentence."""
    promises = promises_of(scenario, stopped)
    findings = witness.findings(not PROTOCOLS[scenario.protocol].has_topics, "completeness" in promises)
    if findings is None:
        return None, f"not judged: too much to look at (more than {MAXIMUM_ROWS} deliveries, or too many publications)"
    counts = {**findings.counts, STUCK: stuck}
    examples = {**findings.examples, STUCK: "work that was begun and cannot be finished"}
    violations = {promise: counts[promise] for promise in promises}
    broken = [promise for promise in promises if violations[promise]]
    if not broken:
        return violations, f"nothing violated; checked: {', '.join(promises)}"
    return violations, "; ".join(
        f"{promise} violated {violations[promise]} times: {examples[promise]}" for promise in broken
    )
