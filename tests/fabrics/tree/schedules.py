"""Schedules for broker trees, spelled out: who publishes and who crashes when, over links of which delay.

The same schedule runs on Ginger as published and on the broker tree, in the simulator, and is judged by those who know
neither (``antiphon.trace``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc

from antiphon.fabrics.tree.broker import TreeBroker
from antiphon.kernel.process import NO_NODE
from antiphon.simulator.scenario.run import Simulation
from antiphon.simulator.scenario.scenario import (
    CrashFault,
    LimitsTable,
    MatrixLaw,
    NetworkTable,
    PublishTable,
    Scenario,
    TopicsTable,
)
from antiphon.simulator.scenario.verdict import Witness, judge_run

PUBLISHED = "ginger-published"
REPAIRED = "broker-tree"

EIGHT_BROKERS = (-1, 0, 0, 0, 1, 1, 2, 3)
"""The overlay of the experiments (figure 5.2): the parent of each broker."""

CLIENTS = ((4, 6, 7), (5, 6))
"""Per topic, the brokers at which a client of it is."""

LATENCIES = {(0, 1): 115, (0, 3): 240}
"""Milliseconds between regions; all other links have 37."""

LONG_ENOUGH = 1_000_000
"""No repair takes as long, in ticks; what has not happened by then never will."""

Said = tuple[int, int, str]
"""A publication: when, by whom, in which order; about key 1."""


@dataclass(frozen=True)
class Schedule:
    """What happens; ``members`` are the subscribers of each topic, and those of the topics without any publish none."""

    parents: Sequence[int]
    members: Sequence[Sequence[int]]
    publications: Sequence[PublishTable]
    crashes: Sequence[tuple[int, int]] = ()
    """When, and who."""
    delays: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """Of links, both ways, that are unlike the others."""
    delay: int = 10
    transmission: int = 0
    detection: int = 50
    total_degree: int = 3

    def scenario(self, protocol: str, **options: Any) -> Scenario:
        """As a scenario for one of the two protocols."""
        nodes = len(self.parents)
        rows = [[self.delay] * nodes for _ in range(nodes)]
        for (one, other), ticks in self.delays.items():
            rows[one][other] = rows[other][one] = ticks
        return Scenario(
            fabric="tree",
            protocol=protocol,
            nodes=nodes,
            protocol_options={"parents": list(self.parents), "total_degree": self.total_degree, **options},
            network=NetworkTable(
                delay=MatrixLaw(rows=rows),
                transmission=self.transmission,
                processing=0,
                detection=self.detection,
                in_order=True,
            ),
            topics=TopicsTable(count=len(self.members), members=[list(members) for members in self.members]),
            publications=list(self.publications),
            faults=[CrashFault(at=at, node=node) for at, node in self.crashes],
            limits=LimitsTable(time=LONG_ENOUGH),
        )

    def run(self, protocol: str, **options: Any) -> Outcome:
        """Run it."""
        return Outcome(self.scenario(protocol, **options))


def said(*publications: Said, keys: Sequence[int] = (1,), topic: int = 0) -> list[PublishTable]:
    """Publications about the same keys of one topic."""
    return [PublishTable(at=at, node=by, order=order, keys=list(keys), topic=topic) for at, by, order in publications]


def experiment(
    publications: Sequence[PublishTable], crashes: Sequence[tuple[int, int]], detection: int = 50, total_degree: int = 3
) -> Schedule:
    """A schedule on the overlay of the experiments; who has crashed publishes nothing any more."""
    crashed = {broker: at for at, broker in crashes}
    return Schedule(
        EIGHT_BROKERS,
        CLIENTS,
        [item for item in publications if item.at < crashed.get(item.node, LONG_ENOUGH)],
        crashes,
        LATENCIES,
        delay=37,
        transmission=1,
        detection=detection,
        total_degree=total_degree,
    )


def load(until: int, every: int = 50, start: int = 0) -> list[PublishTable]:
    """What the five clients of the experiments publish, each in turn eventual, causal and total, about two keys."""
    found = []
    for number, at in enumerate(range(start, until, every)):
        for topic, clients in enumerate(CLIENTS):
            for client in clients:
                order = ("none", "causal", "total")[(number + client) % 3]
                keys = [1, 2] if number % 5 == 0 else [1 + (number + client) % 2]
                found.append(PublishTable(at=at + client, node=client, topic=topic, order=order, keys=keys))
    return found


class Outcome:
    """What came of a scenario: the judgement, and the processes that are left."""

    def __init__(self, scenario: Scenario) -> None:
        witness = Witness(scenario.nodes)
        self.simulation = Simulation(scenario, witness.recorder)
        self.stopped = self.simulation.run()
        table = witness.table()
        assert table is not None, "little enough to be judged"
        violations, self.judgement = judge_run(scenario, witness, self.stopped, self.simulation.stuck())
        assert violations is not None, "little enough to be judged"
        self.violations: dict[str, int] = violations
        rows = table.filter(pc.equal(table["event"], "deliver"))
        columns = (rows[name].to_pylist() for name in ("node", "topic", "source", "sequence"))
        self._deliveries: list[tuple[int, int, int, int]] = list(zip(*columns, strict=True))

    @property
    def broken(self) -> set[str]:
        """The promises that were broken."""
        return {promise for promise, count in self.violations.items() if count}

    @property
    def is_clean(self) -> bool:
        """Whether every promise was kept, and among them that everything comes and nothing waits for ever."""
        assert {"total", "completeness", "stuck", "duplicates"} <= self.violations.keys(), "these were judged"
        return not self.broken

    def delivered(self, node: int, topic: int = 0) -> list[tuple[int, int]]:
        """Source and number of what a broker's application got, in order."""
        return [(source, sequence) for at, about, source, sequence in self._deliveries if (at, about) == (node, topic)]

    def process(self, node: int) -> Any:
        """The broker at a node that is up."""
        process = self.simulation.engine.nodes[node].process
        assert process is not None, f"node {node} is up"
        return process

    def parents(self) -> dict[int, int]:
        """The parent of each broker that is up."""
        return {
            int(node.identifier): parent_of(node.process)
            for node in self.simulation.engine.nodes
            if node.process is not None
        }

    def roots(self) -> list[int]:
        """Where the ways from all brokers that are up end, each once; a way that does not end has none."""
        parents = self.parents()
        found = set()
        for broker in parents:
            way = [broker]
            while parents.get(way[-1], NO_NODE) != NO_NODE and len(way) <= len(parents):
                way.append(parents[way[-1]])
            if len(way) <= len(parents):
                found.add(way[-1])
        return sorted(found)


def parent_of(process: Any) -> int:
    """The parent of a broker, of the protocol as published or of ours."""
    return int(process.view.parent if isinstance(process, TreeBroker) else process.parent)
