"""Which promises apply to a run, and whether it kept them.

The judge (:mod:`antiphon.trace.judge`) knows no protocol and finds every breach of every promise. Which of them were
made depends on the scenario: nobody promises completeness where copies are lost, or causal order under ``fifo``. That
is said here, and written into the trace (:mod:`antiphon.trace.contract`). ``requests`` is judged here: what the
application asked for happened, once, and nothing else did. ``stuck``: a process began something and cannot finish it,
though nothing is on its way any more. ``holes``: a node said something to be lost that it delivered, or said it twice,
or of a publication that cannot be lost. ``last words``: what is published long after everything is healed is accepted
and delivered by all (:mod:`antiphon.simulator.last_words`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from antiphon.fabrics.gossip.recovery import KEEP_ALL_PERIODS
from antiphon.kernel.message import CAUSAL, ORDER_NAMES
from antiphon.simulator.last_words import LAST_WORDS, Asked, asked_in, last_words_of, unheard
from antiphon.simulator.lives import (
    changes_lives,
    crashing_nodes,
    failing_nodes,
    failing_publisher,
    returns_as_itself,
)
from antiphon.simulator.protocol_options import BrisaTableOptions
from antiphon.simulator.protocols import PROTOCOLS
from antiphon.simulator.scenario import (
    CrashFault,
    LeaveFault,
    PartitionFault,
    PauseFault,
    ResumeFault,
    Scenario,
)
from antiphon.simulator.subscriptions import changes_by_time, first_members
from antiphon.simulator.workload import plan
from antiphon.trace.contract import (
    COMPLETENESS,
    FINISHED,
    HOLES,
    PROMISED,
    REQUESTS,
    STUCK,
    TOLD_ALWAYS,
    TOLD_FAILED,
    TOLD_NEVER,
    TOTAL_ORDER,
    UNJUDGED,
    Contract,
)
from antiphon.trace.judge import Verdict, judge_trace
from antiphon.trace.lives import without_unshown
from antiphon.trace.oracle import evidence
from antiphon.trace.recorder import Recorder
from antiphon.trace.store import SCHEMA, to_batch

__all__ = ["HOLES", "REQUESTS", "STUCK", "TOTAL_ORDER"]
"""Names of promises, for those who look for them here."""

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
        self.asked: list[Asked] = []
        """The publications that were accepted, with their times."""
        self.recorder = Recorder(False, self._keep)
        """For runs that are written nowhere else."""

    def _keep(self, words: object, loads: object, keys: object) -> None:
        self.see(to_batch(words, loads, keys, self.recorder.kind_names))

    def see(self, batch: pa.RecordBatch) -> None:
        """Take notice of rows of a trace."""
        if self._rows > MAXIMUM_ROWS:
            return
        self.asked += asked_in(batch)
        rows = evidence(pa.Table.from_batches([batch]))
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
    if standing_still(scenario) and not heals:
        return True
    return paused_for_ever(scenario)


def any_partition(scenario: Scenario) -> bool:
    """Whether the network falls apart, for however long, or a node stands still and is lost to others."""
    return any(isinstance(fault, PartitionFault) for fault in scenario.faults) or bool(standing_still(scenario))


def standing_still(scenario: Scenario) -> set[int]:
    """Who is paused for so long that others count it as lost: as if a partition were between it and all others."""
    if not scenario.network.notices_pauses:
        return set()
    since: dict[int, int] = {}
    found: set[int] = set()
    for _, fault in scenario.faults_by_time():
        if isinstance(fault, PauseFault):
            since.update(dict.fromkeys(fault.targets(scenario.nodes), fault.at))
        elif isinstance(fault, ResumeFault | CrashFault):
            for node in fault.targets(scenario.nodes):
                if node in since and fault.at - since.pop(node) >= scenario.network.detection:
                    found.add(node)
    return found | set(since)


def paused_for_ever(scenario: Scenario) -> bool:
    """Whether a node does not go on after its last pause."""
    paused: set[int] = set()
    for _, fault in scenario.faults_by_time():
        if isinstance(fault, PauseFault | ResumeFault):
            targets = fault.targets(scenario.nodes)
            paused = paused.difference(targets) if isinstance(fault, ResumeFault) else paused.union(targets)
    return bool(paused)


@dataclass(frozen=True)
class Requests:
    """What a trace says about what the application asked for, and what came of it."""

    asked: Mapping[int, int]
    """How many publications each node was asked for."""
    started: Mapping[int, int]
    """How many of each have started."""
    passed_over: int
    """How many their own publishers have said to be lost."""
    changes: Sequence[tuple[str, int, int]]
    """``subscribed`` or ``unsubscribed``, node and topic, one after the other."""


def requests_in(rows: pa.Table) -> Requests:
    """The same from the rows of a trace that are judged."""
    is_own = pc.equal(rows["node"], rows["source"])
    asked = rows.filter(pc.equal(rows["event"], "publish"))
    changes = rows.filter(pc.is_in(rows["event"], pa.array(["subscribed", "unsubscribed"])))
    return Requests(
        Counter(asked["node"].to_pylist()),
        Counter(starts_in(rows)["node"].to_pylist()),
        pc.sum(pc.and_(pc.equal(rows["event"], "lost"), is_own)).as_py() or 0,
        list(zip(*(changes[name].to_pylist() for name in ("event", "node", "topic")), strict=True)),
    )


def unmet_requests(scenario: Scenario, requests: Requests) -> list[str]:
    """What the application asked for and did not get in a run that came to its end, or got and had not asked for."""
    complaints = []
    is_probable = PROTOCOLS[scenario.protocol].agrees_probably
    # Where agreement is probable, who stays delivers its own: the validity of the thesis.
    gone = failing_nodes(scenario) if is_probable else set()
    started, published = (
        sum(count for node, count in counts.items() if node not in gone)
        for counts in (requests.started, requests.asked)
    )
    # What its own publisher passes over has not started, and that was said.
    published -= 0 if is_probable else requests.passed_over
    # What is asked for where a node fails may never start.
    if started != published and (is_probable or not changes_lives(scenario)):
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
    for event, node, topic in requests.changes:
        happened.setdefault((node, topic), []).append(event)
    failing = crashing_nodes(scenario)
    for node, topic in sorted(asked.keys() | happened.keys()):
        if node in failing:
            continue
        wanted, found = asked.get((node, topic), []), happened.get((node, topic), [])
        if wanted != found:
            complaints.append(f"node {node} was to be {wanted} on topic {topic}, one after the other, and was {found}")
    return complaints


def waits_for_majority(scenario: Scenario) -> bool:
    """Whether publications of every order wait for a majority before anybody delivers them."""
    return bool(scenario.protocol_options.get("quorum_delivery", False))


def nodes_apart(scenario: Scenario) -> set[int]:
    """Who may have published on a side of a partition that was not asked when a total publication was completed.

    What they publish in a weaker order is in its place among total publications on their own side only, and nobody can
    say from outside which side is asked; brokers of a tree do say so. The same holds for what somebody wrote into its
    log and told nobody before it crashed, if it comes back.
    """
    if scenario.protocol_options.get("quorum", False):
        return set()
    if any_partition(scenario):
        return set(range(scenario.nodes))
    return crashing_nodes(scenario) if PROTOCOLS[scenario.protocol].remembers else set()


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


def may_pass_over(scenario: Scenario) -> bool:
    """Whether a node may be cut off for longer than others keep what it lacks, and then passes over it and says so."""
    protocol = PROTOCOLS[scenario.protocol]
    parted = any_partition(scenario) and protocol.recovers and not protocol.needs_connections
    return parted and not all_fits_buffers(scenario)


def all_fits_buffers(scenario: Scenario) -> bool:
    """Whether nodes that live all the time keep all that anybody lacks, in buffers or logs: nothing is lost then.

    Nodes of BRISA that have lost a neighbour forget nothing for ``KEEP_ALL_PERIODS``, as far as it fits.
    """
    if scenario.protocol != "brisa":
        return False
    options = msgspec.convert(scenario.protocol_options, BrisaTableOptions)
    published = Counter((planned.node, planned.topic) for planned in plan(scenario))
    # Publishers live, and are asked themselves.
    has_log = options.log >= published.total()
    unlogged = [name for name in published if not has_log or name[0] not in (options.log_nodes or (name[0],))]
    cuts = [fault for fault in scenario.faults if isinstance(fault, PartitionFault)]
    is_short = all(cut.until is not None and cut.until - cut.at < KEEP_ALL_PERIODS * options.period for cut in cuts)
    is_kept = is_short and not changes_lives(scenario)
    return all(is_kept and published[name] <= options.buffer for name in unlogged)


def whose_losses(scenario: Scenario) -> str:
    """Whose publications a node may say to be lost instead of delivering them."""
    if PROTOCOLS[scenario.protocol].remembers:
        # Who fails for good may take with it what others have heard of; they say so. So may the sides of a partition
        # that begin to order totally without each other. Nobody speaks of another loss.
        return TOLD_ALWAYS if scenario.uses_order(TOTAL_ORDER) and any_partition(scenario) else TOLD_FAILED
    return TOLD_ALWAYS if may_pass_over(scenario) else TOLD_NEVER


def contract_of(scenario: Scenario) -> Contract:
    """What is promised to a run that can be judged, as its trace says it."""
    protocol = PROTOCOLS[scenario.protocol]
    told = whose_losses(scenario)
    # Where orders are mixed, the oracle looks at each publication as its own order demands.
    always = PROMISES[strongest(scenario)]
    always += ("membership",) if protocol.has_topics else ()
    always += (HOLES,) if protocol.agrees_probably or has_holes(scenario) or told != TOLD_NEVER else ()
    at_end: tuple[str, ...] = ()
    if protocol.agrees_probably:
        # Holes are allowed, and are counted; what a node published that stays it has delivered itself.
        at_end = () if paused_for_ever(scenario) else (REQUESTS, STUCK)
    elif not loses(scenario):
        at_end = (COMPLETENESS, REQUESTS)
        # Where copies are doubled, answers are, and a wave that was opened twice is not closed twice.
        at_end += (STUCK,) if scenario.network.duplication == 0 else ()
    return Contract(
        scenario.fabric,
        scenario.protocol,
        nodes=scenario.nodes,
        everybody=not protocol.has_topics,
        # What is owed of those who failed depends on what waits for it.
        default=ORDER_NAMES[min(ORDER_NAMES.index(scenario.order), CAUSAL)],
        always=always,
        at_end=at_end,
        remembers=protocol.remembers,
        told=told,
        holes_in=TOTAL_ORDER if has_holes(scenario) else None,
        counts_all=protocol.agrees_probably,
        apart=tuple(sorted(nodes_apart(scenario))),
        # Where weaker publications pass total ones, only these are in one order.
        weaker_pass=has_holes(scenario),
        secured=bool(scenario.protocol_options.get("quorum", False)) and not waits_for_majority(scenario),
        all_asked=waits_for_majority(scenario),
        returns=returns_as_itself(scenario),
    )


def promised_to(scenario: Scenario) -> dict[str, Any]:
    """What the metadata of a trace says about what was promised, or why nothing can be judged."""
    reason = why_not_judged(scenario)
    return {PROMISED: contract_of(scenario).as_metadata()} if reason is None else {UNJUDGED: reason}


def judge_table(scenario: Scenario, table: pa.Table, stopped: str, stuck: int) -> Verdict:
    """Judge the trace of a run, and whether what the application asked for happened."""
    rows = evidence(table)
    verdict = judge_trace(rows, contract_of(scenario), stopped, stuck)
    judge_requests(verdict, scenario, rows)
    return verdict


def judge_requests(verdict: Verdict, scenario: Scenario, rows: pa.Table) -> None:
    """Add whether what the application asked for happened, if that was promised."""
    if REQUESTS in verdict.checks:
        complaints = unmet_requests(scenario, requests_in(rows))
        verdict.counts[REQUESTS] = len(complaints)
        verdict.examples[REQUESTS] = "".join(complaints[:1])


def judge_run(scenario: Scenario, witness: Witness, stopped: str, stuck: int) -> tuple[dict[str, int] | None, str]:
    """How often each promise that applies was broken, and the same as a sentence."""
    table = witness.table()
    if table is None:
        return None, f"not judged: too much to look at (more than {MAXIMUM_ROWS} deliveries, or too many publishers)"
    verdict = judge_table(scenario, table, stopped, stuck)
    if stopped == FINISHED and COMPLETENESS in verdict.checks and last_words_of(scenario):
        verdict.checks += (LAST_WORDS,)
        found = unheard(scenario, witness.asked, without_unshown(table))
        verdict.counts[LAST_WORDS], verdict.examples[LAST_WORDS] = found
    violations = {promise: verdict.counts[promise] for promise in verdict.checks}
    broken = verdict.broken()
    if not broken:
        return violations, f"nothing violated; checked: {', '.join(verdict.checks)}"
    return violations, "; ".join(
        f"{promise}: {violations[promise]}, such as {verdict.examples[promise]}" for promise in broken
    )
