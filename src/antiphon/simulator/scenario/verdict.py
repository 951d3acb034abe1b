"""Whether a simulated run kept what was promised to it (:mod:`antiphon.simulator.scenario.promises`).

The judge (:mod:`antiphon.audit.verdict`) knows no protocol and finds every breach of every promise. What the scenario
alone can tell is judged here. ``requests``: what the application asked for happened, once, and nothing else did.
``last words``: what is published long after everything is healed is accepted and delivered by all
(:mod:`antiphon.simulator.scenario.last_words`).
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from antiphon.audit.incarnations import without_unshown
from antiphon.audit.oracle import evidence
from antiphon.audit.requests import Requests, requests_in, starts_in
from antiphon.audit.verdict import Verdict, add_requests, judge_trace
from antiphon.simulator.scenario.incarnations import (
    changes_lives,
    crashing_nodes,
    failing_nodes,
)
from antiphon.simulator.scenario.last_words import LAST_WORDS, Asked, asked_in, last_words_of, unheard
from antiphon.simulator.scenario.promises import contract_of
from antiphon.simulator.scenario.protocols.registry import PROTOCOLS
from antiphon.simulator.scenario.scenario import Scenario
from antiphon.simulator.scenario.subscriptions import changes_by_time, first_members
from antiphon.trace.contract import (
    COMPLETENESS,
    FINISHED,
    REQUESTS,
)
from antiphon.trace.recorder import Recorder
from antiphon.trace.store import SCHEMA, to_batch

MAXIMUM_ROWS = 500_000
"""The oracle looks at a few hundred thousand deliveries per second; nobody should have to wait for it."""


MAXIMUM_CLOCK_ENTRIES = 1 << 25
"""The oracle keeps a clock of one entry per source for each node and each publication; this many take 256 MiB."""


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


def judge_table(scenario: Scenario, table: pa.Table, stopped: str, stuck: int) -> Verdict:
    """Judge the trace of a run, and whether what the application asked for happened."""
    rows = evidence(table)
    verdict = judge_trace(rows, contract_of(scenario), stopped, stuck)
    if REQUESTS in verdict.checks:
        add_requests(verdict, unmet_requests(scenario, requests_in(rows)))
    return verdict


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
