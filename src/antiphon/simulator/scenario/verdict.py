"""Judges whether a simulated run kept its promises (:mod:`antiphon.simulator.scenario.promises`).

The judge of traces (:mod:`antiphon.audit.verdict`) knows no protocol and finds every broken promise. This module adds
the checks that need the scenario. ``requests``: every request of the application took effect once, and nothing else
did. ``last words``: publications long after healing are accepted and delivered by all
(:mod:`antiphon.simulator.scenario.last_words`).
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from antiphon.audit.incarnations import without_unshown
from antiphon.audit.oracle import evidence
from antiphon.audit.requests import RequestCounts, requests_in, starts_in
from antiphon.audit.verdict import Verdict, add_requests, judge_trace
from antiphon.simulator.scenario.incarnations import (
    changes_lives,
    crashing_nodes,
    failing_nodes,
)
from antiphon.simulator.scenario.last_words import LAST_WORDS, Asked, asked_in, last_words_of, unheard
from antiphon.simulator.scenario.promises import contract_of
from antiphon.simulator.scenario.protocols import PROTOCOLS
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
"""The oracle checks a few hundred thousand deliveries per second; more would take too long."""


MAXIMUM_CLOCK_ENTRIES = 1 << 25
"""The oracle keeps a clock of one entry per source for each node and each publication; this many take 256 MiB."""


class Witness:
    """Keeps the rows of a run that the oracle needs, up to a limit."""

    def __init__(self, node_count: int) -> None:
        self._node_count = node_count
        self._tables: list[pa.Table] = []
        self._rows = 0
        self.asked: list[Asked] = []
        """The accepted publications, with their times."""
        self.recorder = Recorder(False, self._keep)
        """For runs without a trace file."""

    def _keep(self, words: object, loads: object, keys: object) -> None:
        self.see(to_batch(words, loads, keys, self.recorder.kind_names))

    def see(self, batch: pa.RecordBatch) -> None:
        """Keep the relevant rows of a batch of a trace."""
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
        """The rows so far; None if there were too many, or the oracle would need too much memory."""
        if self._rows > MAXIMUM_ROWS:
            return None
        table = pa.concat_tables(self._tables) if self._tables else evidence(SCHEMA.empty_table())
        starts = starts_in(table)
        sources = pc.count_distinct(starts["source"]).as_py()
        if (starts.num_rows + self._node_count) * sources > MAXIMUM_CLOCK_ENTRIES:
            return None
        return table


def unmet_requests(scenario: Scenario, requests: RequestCounts) -> list[str]:
    """Requests of the application that a finished run did not fulfil, and effects that it did not request."""
    complaints = []
    is_probable = PROTOCOLS[scenario.protocol].agrees_probably
    # Where agreement is only probable, a remaining node delivers its own publications: the validity of the thesis.
    gone = failing_nodes(scenario) if is_probable else set()
    started, published = (
        sum(count for node, count in counts.items() if node not in gone)
        for counts in (requests.started, requests.asked)
    )
    # A publication that its own publisher passed over has not started; that was reported.
    published -= 0 if is_probable else requests.passed_over
    # A request to a failing node may never start.
    if started != published and (is_probable or not changes_lives(scenario)):
        complaints.append(f"{published} publications were requested, and {started} started")
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
    """The publications that all remaining nodes delivered, and those that at least one did; None if agreement is
    promised.
    """
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
    """Per topic, the nodes that are members all the time and do not fail."""
    failing = failing_nodes(scenario)
    if not PROTOCOLS[scenario.protocol].has_topics:
        return [set(range(scenario.nodes)) - failing]
    stay = [set(members) - failing for members in first_members(scenario)]
    for change in changes_by_time(scenario):
        stay[change.topic].discard(change.node)
    return stay


def judge_table(scenario: Scenario, table: pa.Table, stopped: str, stuck: int) -> Verdict:
    """Judge the trace of a run, and whether the application's requests were fulfilled."""
    rows = evidence(table)
    verdict = judge_trace(rows, contract_of(scenario), stopped, stuck)
    if REQUESTS in verdict.checks:
        add_requests(verdict, unmet_requests(scenario, requests_in(rows)))
    return verdict


def judge_run(scenario: Scenario, witness: Witness, stopped: str, stuck: int) -> tuple[dict[str, int] | None, str]:
    """The number of violations of each promise that applies, and the same as a sentence."""
    table = witness.table()
    if table is None:
        return None, f"not judged: too large (more than {MAXIMUM_ROWS} deliveries, or too many publishers)"
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
