"""Last words: publications long after everything has healed must be accepted and delivered to all subscribers.

The check follows from the scenario alone, so that a schedule can be shrunk and replayed: a publication is a last word
if nothing but other publications happened for ``LONG_AFTER`` ticks. It must be accepted, and every node that is up and
subscribed must deliver it. Excuses that hold during faults do not hold here: no node may report it as lost.
:mod:`antiphon.torture.schedules.last_words` draws schedules that end in last words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from antiphon.simulator.scenario.protocols import PROTOCOLS
from antiphon.simulator.scenario.scenario import (
    CrashFault,
    DiskFault,
    JoinFault,
    LeaveFault,
    PartitionFault,
    PauseFault,
    PublishTable,
    RestartFault,
    ResumeFault,
    Scenario,
)
from antiphon.simulator.scenario.subscriptions import changes_by_time, first_members

LAST_WORDS = "last words"

LONG_AFTER = 100_000
"""Ticks after which nearly everything has settled."""

Asked = tuple[int, int, int, int]
"""An accepted publication: the time, the node, the topic and the number there."""


def last_words_of(scenario: Scenario) -> list[PublishTable]:
    """The publications that must be delivered, and before which nothing but publications happened for long."""
    protocol = PROTOCOLS[scenario.protocol]
    if protocol.agrees_probably or scenario.workload is not None:
        return []
    begin = quiet_since(scenario) + LONG_AFTER
    return [
        publication
        for publication in scenario.publications
        # Where an order allows holes they may be anywhere, and are reported.
        if publication.at >= begin and (publication.order or scenario.order) != protocol.holes_in
    ]


def quiet_since(scenario: Scenario) -> int:
    """The time at which the last fault or subscription change starts or ends."""
    ends = [fault.at for fault in scenario.faults]
    ends += [fault.until or 0 for fault in scenario.faults if isinstance(fault, PartitionFault | DiskFault)]
    ends += [change.at for change in (*scenario.subscriptions, *scenario.unsubscriptions)]
    return max(ends, default=0)


def listeners(scenario: Scenario) -> list[set[int]]:
    """Per topic, the nodes that are up and subscribed at the end."""
    away = set(scenario.absent_at_start())
    for _, fault in scenario.faults_by_time():
        if isinstance(fault, CrashFault | LeaveFault | PauseFault):
            away.update(fault.targets(scenario.nodes))
        elif isinstance(fault, RestartFault | JoinFault | ResumeFault):
            away.difference_update(fault.targets(scenario.nodes))
    if not PROTOCOLS[scenario.protocol].has_topics:
        return [set(range(scenario.nodes)) - away]
    members = [set(nodes) for nodes in first_members(scenario)]
    for change in changes_by_time(scenario):
        if change.subscribes:
            members[change.topic].add(change.node)
        else:
            members[change.topic].discard(change.node)
    return [nodes - away for nodes in members]


def asked_in(batch: pa.RecordBatch) -> Iterator[Asked]:
    """The accepted publications in some rows of a trace."""
    rows = batch.filter(pc.equal(batch["event"].cast(pa.string()), "publish"))
    columns = (rows.column(name).to_pylist() for name in ("time", "node", "topic", "sequence"))
    return ((at, node, topic or 0, sequence) for at, node, topic, sequence in zip(*columns, strict=True))


def unheard(scenario: Scenario, asked: Iterable[Asked], table: pa.Table) -> tuple[int, str]:
    """The number of last words that were refused or not delivered to a subscriber, and the first of them."""
    accepted: dict[tuple[int, int, int], list[int]] = {}
    for at, node, topic, sequence in asked:
        accepted.setdefault((at, node, topic), []).append(sequence)
    words = last_words_of(scenario)
    of_interest = {(word.topic, word.node) for word in words}
    delivered = deliveries_of(table, of_interest)
    owed_to = listeners(scenario)
    count, example = 0, ""
    for word in words:
        numbers = accepted.get((word.at, word.node, word.topic))
        if not numbers:
            count += 1
            example = example or f"the publication of node {word.node} at {word.at} was not accepted"
            continue
        name = (word.topic, word.node, numbers.pop(0))
        deaf = sorted(node for node in owed_to[word.topic] if (node, *name) not in delivered)
        deaf = [node for node in deaf if not is_late(scenario, table, node, name)]
        count += len(deaf)
        if deaf and not example:
            example = (
                f"node {deaf[0]} did not deliver publication {name[2]} of {word.node} on topic {word.topic}, which was "
                f"published at {word.at}, long after everything was healed"
            )
    return count, example


def is_late(scenario: Scenario, table: pa.Table, listener: int, name: tuple[int, int, int]) -> bool:
    """Whether a requested subscription became effective only after a publication.

    A subscription waits for the earlier publications of its node. Links may be so slow, or queues so long, that this
    takes longer than the silence before the last words. Another check requires that it becomes effective in the end. A
    member that only restarts has no such excuse.
    """
    wanted, source, number = name
    if all((change.node, change.topic) != (listener, wanted) for change in changes_by_time(scenario)):
        return False
    is_subscribed = False
    columns = (table[column].to_pylist() for column in ("event", "node", "topic", "sequence"))
    for event, node, topic, sequence in reversed(list(zip(*columns, strict=True))):
        if (event, node, topic or 0) == ("subscribed", listener, wanted):
            is_subscribed = True
        elif (event, topic or 0, node, sequence) == ("publish", wanted, source, number):
            return is_subscribed
    return False


def deliveries_of(table: pa.Table, wanted: set[tuple[int, int]]) -> set[tuple[int, int, int, int]]:
    """The deliveries of some sources on some topics: node, topic, source and number."""
    deliveries = table.filter(pc.equal(table["event"], "deliver"))
    columns = (deliveries[name].to_pylist() for name in ("node", "topic", "source", "sequence"))
    return {
        (node, topic or 0, source, sequence)
        for node, topic, source, sequence in zip(*columns, strict=True)
        if (topic or 0, source) in wanted
    }
