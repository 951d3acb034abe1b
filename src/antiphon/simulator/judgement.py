"""Which promises apply to a run, and whether it kept them.

The oracle (:mod:`antiphon.trace.oracle`) knows no protocol and finds every breach of every promise. Which of them were
made depends on the scenario: nobody promises completeness where copies are lost, or causal order under ``fifo``.
Three more are added here. ``requests``: what the application asked for happened, once, and nothing else did. ``stuck``:
a process began something and cannot finish it, though nothing is on its way any more. ``holes``: where an order has
holes, a node did not deliver something that it was owed and was not told so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from antiphon.kernel.message import CAUSAL, ORDER_NAMES
from antiphon.simulator.lives import (
    changes_lives,
    crashing_nodes,
    evidence_of_lives,
    failing_nodes,
    failing_publisher,
    separate_lives,
)
from antiphon.simulator.protocols import PROTOCOLS
from antiphon.simulator.scenario import (
    CrashFault,
    LeaveFault,
    PartitionFault,
    PauseFault,
    ResumeFault,
    Scenario,
    expand_nodes,
)
from antiphon.simulator.subscriptions import changes_by_time, first_members
from antiphon.simulator.workload import plan
from antiphon.trace.oracle import Loss, evidence, judge
from antiphon.trace.recorder import Recorder
from antiphon.trace.store import SCHEMA, to_batch
from antiphon.trace.total_order import judge_total_order

STUCK = "stuck"
HOLES = "holes"
TOTAL_ORDER = "total"
REQUESTS = "requests"

MAXIMUM_ROWS = 500_000
"""The oracle looks at a few hundred thousand deliveries per second; nobody should have to wait for it."""

MAXIMUM_CLOCK_ENTRIES = 1 << 25
"""The oracle keeps a clock of one entry per source for each node and each publication; this many take 256 MiB."""

PROMISES = {
    "none": ("duplicates", "validity"),
    "fifo": ("duplicates", "validity", "fifo"),
    "causal": ("duplicates", "validity", "fifo", "causal"),
    TOTAL_ORDER: ("duplicates", "validity", "fifo", "causal", TOTAL_ORDER),
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

    def _keep(self, words: object, loads: object, keys: object) -> None:
        self.see(to_batch(words, loads, keys, self.recorder.kind_names))

    def see(self, batch: pa.RecordBatch) -> None:
        """Take notice of rows of a trace."""
        if self._rows > MAXIMUM_ROWS:
            return
        rows = evidence_of_lives(pa.Table.from_batches([batch]))
        self._rows += rows.num_rows
        if self._rows > MAXIMUM_ROWS:
            self._tables.clear()
        else:
            self._tables.append(rows)

    def table(self) -> pa.Table | None:
        """What was seen; nothing if it was too much, or the oracle would need too much memory to look at it."""
        if self._rows > MAXIMUM_ROWS:
            return None
        table = pa.concat_tables(self._tables) if self._tables else evidence(SCHEMA.empty_table())
        starts = starts_in(table)
        sources = pc.count_distinct(starts["source"]).as_py()
        if (starts.num_rows + self._node_count) * sources > MAXIMUM_CLOCK_ENTRIES:
            return None
        return table


def starts_in(table: pa.Table) -> pa.Table:
    """The rows in which publications start: each is delivered by its own source first."""
    return table.filter(pc.and_(pc.equal(table["event"], "deliver"), pc.equal(table["node"], table["source"])))


def why_not_judged(scenario: Scenario) -> str | None:
    """Why there can be no judgement of a scenario, if so."""
    if scenario.trace.level == "counts":
        return "the level of the trace is counts"
    if scenario.order not in PROMISES:
        return f"{scenario.order} promises nothing"
    if changes_lives(scenario) and PROTOCOLS[scenario.protocol].agrees_probably:
        twice = publishes_in_two_lives(scenario)
        return None if twice is None else f"node {twice} publishes in two lives, and counts from 1 in each"
    if changes_lives(scenario):
        if not PROTOCOLS[scenario.protocol].recovers:
            return "what is promised to nodes that crash, join or leave is not defined"
        publisher = failing_publisher(scenario)
        if publisher is not None and not PROTOCOLS[scenario.protocol].outlives_publishers:
            return f"node {publisher} publishes, and what it publishes may be lost with it when it fails"
    return None


def promises_of(scenario: Scenario, stopped: str) -> tuple[str, ...]:
    """The promises that apply to a run that can be judged."""
    # Where orders are mixed, the oracle looks at each publication as its own order demands.
    promises = PROMISES[strongest(scenario)]
    if PROTOCOLS[scenario.protocol].has_topics:
        promises += ("membership",)
    if PROTOCOLS[scenario.protocol].agrees_probably:
        # Holes are allowed, and are counted; what a node published that stays it has delivered itself.
        promises += (HOLES,)
        return (*promises, REQUESTS, STUCK) if stopped == "finished" and not paused_for_ever(scenario) else promises
    if stopped == "finished" and not loses(scenario):
        promises += ("completeness", REQUESTS)
        promises += (HOLES,) if has_holes(scenario) else ()
        # Where copies are doubled, answers are, and a wave that was opened twice is not closed twice.
        promises += (STUCK,) if scenario.network.duplication == 0 else ()
    return promises


def has_holes(scenario: Scenario) -> bool:
    """Whether publications have an order in which something may be passed over."""
    order = PROTOCOLS[scenario.protocol].holes_in
    return order is not None and scenario.uses_order(order)


def strongest(scenario: Scenario) -> str:
    """The strongest order that a publication of a scenario may have."""
    return PROTOCOLS[scenario.protocol].orders[-1] if scenario.mixes_orders() else scenario.order


def loses(scenario: Scenario) -> bool:
    """Whether something may never arrive: copies are lost, or a node is paused for ever."""
    recovers = PROTOCOLS[scenario.protocol].recovers and not scenario.protocol_options.get("published", False)
    heals = PROTOCOLS[scenario.protocol].needs_connections or recovers
    if (scenario.network.loss > 0 and not recovers) or any(
        isinstance(fault, PartitionFault) and (fault.until is None or not heals) for fault in scenario.faults
    ):
        return True
    return paused_for_ever(scenario)


def any_partition(scenario: Scenario) -> bool:
    """Whether the network falls apart, for however long."""
    return any(isinstance(fault, PartitionFault) for fault in scenario.faults)


def paused_for_ever(scenario: Scenario) -> bool:
    """Whether a node does not go on after its last pause."""
    paused: set[int] = set()
    for _, fault in scenario.faults_by_time():
        if isinstance(fault, PauseFault | ResumeFault):
            targets = fault.targets(scenario.nodes)
            paused = paused.difference(targets) if isinstance(fault, ResumeFault) else paused.union(targets)
    return bool(paused)


def unmet_requests(scenario: Scenario, table: pa.Table, published: int) -> list[str]:
    """What the application asked for and did not get in a run that came to its end, or got and had not asked for."""
    complaints = []
    starts = starts_in(table)
    if PROTOCOLS[scenario.protocol].agrees_probably:
        # Who stays delivers its own: the validity of the thesis.
        stays = pa.array(sorted(set(range(scenario.nodes)) - failing_nodes(scenario)), pa.int64())
        starts = starts.filter(pc.is_in(starts["node"].cast(pa.int64()), stays))
        asked_for = table.filter(pc.equal(table["event"], "publish"))
        published = pc.sum(pc.is_in(asked_for["node"].cast(pa.int64()), stays)).as_py() or 0
    started = starts.num_rows
    # What is asked for where a node fails may never start.
    if started != published and (PROTOCOLS[scenario.protocol].agrees_probably or not changes_lives(scenario)):
        complaints.append(f"{published} publications were asked for, and {started} started")
    if not PROTOCOLS[scenario.protocol].has_topics:
        return complaints
    asked: dict[tuple[int, int], list[str]] = {}
    for topic, members in enumerate(first_members(scenario)):
        asked.update({(node, topic): ["subscribed"] for node in members})
    for change in changes_by_time(scenario):
        done = "subscribed" if change.subscribes else "unsubscribed"
        asked.setdefault((change.node, change.topic), []).append(done)
    happened: dict[tuple[int, int], list[str]] = {}
    changes = table.filter(pc.is_in(table["event"], pa.array(["subscribed", "unsubscribed"])))
    for event, node, topic in zip(*(changes[name].to_pylist() for name in ("event", "node", "topic")), strict=True):
        happened.setdefault((node, topic), []).append(event)
    failing = crashing_nodes(scenario)
    for node, topic in sorted(asked.keys() | happened.keys()):
        if node in failing:
            continue
        wanted, found = asked.get((node, topic), []), happened.get((node, topic), [])
        if wanted != found:
            complaints.append(f"node {node} was to be {wanted} on topic {topic}, one after the other, and was {found}")
    return complaints


def nodes_apart(scenario: Scenario) -> set[int]:
    """Who may have published on a side of a partition that was not asked when a total publication was completed.

    What they publish in a weaker order is in its place among total publications on their own side only. If the council
    may follow the partitions, nobody can say from outside which side is asked. The same holds for what somebody wrote
    into its log and told nobody before it crashed, if it comes back.
    """
    apart: set[int] = crashing_nodes(scenario) if PROTOCOLS[scenario.protocol].remembers else set()
    newcomers = scenario.absent_at_start()
    for fault in scenario.faults:
        if isinstance(fault, PartitionFault):
            if fault.linked != "apart":
                return set(range(scenario.nodes))
            group = set(expand_nodes(fault.groups[0], scenario.nodes))
            others = set(range(scenario.nodes)) - group
            voices, other_voices = len(group - newcomers), len(others - newcomers)
            apart |= group if voices < other_voices else others
            if voices == other_voices or scenario.protocol_options.get("council", 1) > 0:
                return set(range(scenario.nodes))
    return apart


def publishes_in_two_lives(scenario: Scenario) -> int | None:
    """A node that publishes before and after a crash or a leave, so that two publications have one name."""
    ends: dict[int, list[int]] = {}
    for _, fault in scenario.faults_by_time():
        if isinstance(fault, CrashFault | LeaveFault):
            for node in fault.targets(scenario.nodes):
                ends.setdefault(node, []).append(fault.at)
    lives: dict[int, set[int]] = {}
    for planned in plan(scenario):
        if planned.node in ends:
            lives.setdefault(planned.node, set()).add(sum(end <= planned.at for end in ends[planned.node]))
    return next((node for node, found in lives.items() if len(found) > 1), None)


def agreement(scenario: Scenario, witness: Witness) -> tuple[int | None, int | None]:
    """Publications that all nodes delivered that stay, and those that any of them did; nothing if it is promised."""
    table = witness.table()
    if table is None or not PROTOCOLS[scenario.protocol].agrees_probably:
        return None, None
    stay = members_that_stay(scenario)
    deliveries = table.filter(pc.equal(table["event"], "deliver"))
    delivered: dict[tuple[int, int, int], set[int]] = {}
    columns = (deliveries[name].to_pylist() for name in ("node", "topic", "source", "sequence"))
    for node, topic, source, sequence in zip(*columns, strict=True):
        if node in stay[topic]:
            delivered.setdefault((topic, source, sequence), set()).add(node)
    return sum(nodes == stay[topic] for (topic, _, _), nodes in delivered.items()), len(delivered)


def members_that_stay(scenario: Scenario) -> list[set[int]]:
    """Per topic, who is a member all the time and does not fail."""
    failing = failing_nodes(scenario)
    if not PROTOCOLS[scenario.protocol].has_topics:
        return [set(range(scenario.nodes)) - failing]
    stay = [set(members) - failing for members in first_members(scenario)]
    for change in changes_by_time(scenario):
        stay[change.topic].discard(change.node)
    return stay


def without_unshown(table: pa.Table, unshown: Sequence[tuple[int, int, int, int]]) -> pa.Table:
    """The same as if what was not shown had not been delivered then; it may have been later."""
    if not unshown:
        return table
    left = Counter(unshown)
    kept = []
    names = ("event", "node", "topic", "source", "sequence")
    for event, *delivery in zip(*(table[name].to_pylist() for name in names), strict=True):
        is_gone = event == "deliver" and left[tuple(delivery)] > 0
        left[tuple(delivery)] -= is_gone
        kept.append(not is_gone)
    return table.filter(pa.array(kept))


def may_pass_over(scenario: Scenario) -> bool:
    """Whether a node may be cut off for longer than others keep what it lacks, and then passes over it and says so."""
    protocol = PROTOCOLS[scenario.protocol]
    parted = any(isinstance(fault, PartitionFault) for fault in scenario.faults)
    return parted and protocol.recovers and not protocol.needs_connections


def without_total(table: pa.Table) -> pa.Table:
    """The same as if there had been no total publications."""
    is_total = pc.fill_null(pc.equal(table["order"].cast(pa.string()), TOTAL_ORDER), False)
    return table.filter(pc.invert(is_total))


def wrong_words(losses: Sequence[Loss], table: pa.Table, changing: set[int]) -> int:
    """How often something was said to be lost twice, or was delivered there all the same.

    Of nodes that fail or join all words are believed.
    """
    said = [loss for loss in losses if loss[0] not in changing]
    return len(said) - len(set(said) - deliveries_in(table))


def unspoken_holes(losses: Sequence[Loss], table: pa.Table, changing: set[int]) -> int:
    """How many numbers before the last that a node delivered of a source it neither delivered nor said to be lost."""
    had = {name for name in (*deliveries_in(table), *losses) if name[0] not in changing}
    last: dict[tuple[int, int, int], int] = {}
    for node, topic, source, sequence in had:
        last[node, topic, source] = max(sequence, last.get((node, topic, source), 0))
    return sum(last.values()) - len(had)


def deliveries_in(table: pa.Table) -> set[Loss]:
    """What was delivered: node, topic, source and number."""
    deliveries = table.filter(pc.equal(table["event"], "deliver"))
    columns = (deliveries[name].to_pylist() for name in ("node", "topic", "source", "sequence"))
    return {(node, topic or 0, source, sequence) for node, topic, source, sequence in zip(*columns, strict=True)}


def judge_run(
    scenario: Scenario,
    witness: Witness,
    stopped: str,
    published: int,
    stuck: int,
    losses: Sequence[Loss] = (),
    unshown: Sequence[tuple[int, int, int, int]] = (),
) -> tuple[dict[str, int] | None, str]:
    """How often each promise that applies was broken, and the same as a sentence.

    ``losses`` were said; ``unshown`` are deliveries that a disk lost before anybody was shown them.
    """
    promises = promises_of(scenario, stopped)
    table = witness.table()
    if table is None:
        return None, f"not judged: too much to look at (more than {MAXIMUM_ROWS} deliveries, or too many publishers)"
    table = without_unshown(table, unshown)
    everybody = not PROTOCOLS[scenario.protocol].has_topics
    # What its own publisher passes over has not started, and that was said.
    passed_over = sum(node == source for node, _, source, _ in losses)
    complaints = unmet_requests(scenario, table, published - passed_over)
    false = wrong_words(losses, table, crashing_nodes(scenario))
    if PROTOCOLS[scenario.protocol].agrees_probably:
        false += unspoken_holes(losses, table, crashing_nodes(scenario))
    mortal = failing_nodes(scenario)
    if PROTOCOLS[scenario.protocol].remembers:
        table = separate_lives(table, scenario.nodes, set(range(scenario.nodes)) - mortal)
    elif mortal:
        table = separate_lives(table, scenario.nodes)
    # Where weaker publications pass total ones, only these are in one order.
    apart = set(range(scenario.nodes)) if has_holes(scenario) else nodes_apart(scenario)
    circles, circle = judge_total_order(table, apart) if TOTAL_ORDER in promises else (0, None)
    # What is owed of those who failed depends on what waits for it.
    default = min(ORDER_NAMES.index(scenario.order), CAUSAL)
    findings = judge(table, scenario.nodes, everybody, "completeness" in promises, default, False, mortal, losses)
    counts = {**findings.counts, REQUESTS: len(complaints), STUCK: stuck, TOTAL_ORDER: circles, HOLES: false}
    examples = {REQUESTS: "".join(complaints[:1]), STUCK: "something was begun and cannot be finished"}
    examples[HOLES] = "what was said to be lost twice or was delivered all the same, or was passed over without a word"
    examples.update({**findings.examples, TOTAL_ORDER: circle or ""})
    owed = 0
    if HOLES in promises and "completeness" in promises:
        weaker = judge(without_total(table), scenario.nodes, everybody, True, default, False, mortal, losses)
        owed = findings.counts["completeness"] - weaker.counts["completeness"]
        counts["completeness"] = weaker.counts["completeness"]
        counts[HOLES] = max(0, owed - len(losses)) + false
        examples["completeness"] = weaker.examples.get("completeness", "")
        examples[HOLES] = (
            f"{owed} holes of which {len(losses)} were said, {false} of them twice or before they were delivered"
        )
    if PROTOCOLS[scenario.protocol].remembers:
        # Who fails for good may take with it what others have heard of; they say so. So may the sides of a partition
        # that begin to order totally without each other. Nobody speaks of another loss.
        is_torn = scenario.uses_order(TOTAL_ORDER) and any_partition(scenario)
        excused = sum(is_torn or source in mortal for _, _, source, _ in losses)
        wrong = len(losses) - excused + false
        counts["completeness"] = max(0, counts["completeness"] - excused) + wrong
        if wrong:
            examples["completeness"] = f"{wrong} were said to be lost, whose publishers live, or that were delivered"
    elif may_pass_over(scenario):
        counts["completeness"] = max(0, counts["completeness"] - max(0, len(losses) - owed))
    violations = {promise: counts[promise] for promise in promises}
    broken = [promise for promise in promises if violations[promise]]
    if not broken:
        return violations, f"nothing violated; checked: {', '.join(promises)}"
    return violations, "; ".join(f"{promise}: {violations[promise]}, such as {examples[promise]}" for promise in broken)
