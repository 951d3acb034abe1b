"""Scenarios of the broker tree for tests, and what came of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphon.simulator.scenario.run import Simulation, run_scenario
from antiphon.simulator.scenario.scenario import (
    ConstantLaw,
    CrashFault,
    Fault,
    LimitsTable,
    NetworkTable,
    NormalLaw,
    PublishTable,
    Scenario,
    SubscribeTable,
    TopicsTable,
)

EIGHT = [-1, 0, 0, 0, 1, 1, 2, 3]
"""The parents of the eight brokers of the published experiments (Figure 5.2)."""

STEADY = NetworkTable(delay=ConstantLaw(ticks=100), detection=200, in_order=True)
UNSTEADY = NetworkTable(delay=NormalLaw(mean=100, deviation=60), detection=200, in_order=True)


def publish(at: int, node: int, order: str, *keys: int, topic: int = 0) -> PublishTable:
    """One publication."""
    return PublishTable(at=at, node=node, topic=topic, order=order, keys=list(keys))


def crash(at: int, *nodes: int) -> Fault:
    """Brokers fail at the same time."""
    return CrashFault(at=at, nodes=list(nodes))


def tree(
    publications: Sequence[PublishTable],
    faults: Sequence[Fault] = (),
    parents: Sequence[int] = tuple(EIGHT),
    members: Sequence[Sequence[int]] | None = None,
    network: NetworkTable = STEADY,
    subscriptions: Sequence[SubscribeTable] = (),
    unsubscriptions: Sequence[SubscribeTable] = (),
    **options: Any,
) -> Scenario:
    """A scenario of the broker tree; without ``members`` all brokers subscribe to one topic."""
    everybody = [list(range(len(parents)))]
    # Who has failed says nothing more.
    down = {node: fault.at for fault in faults if isinstance(fault, CrashFault) for node in fault.targets(len(parents))}
    said = [one for one in publications if one.at < down.get(one.node, one.at + 1)]
    topics = [list(nodes) for nodes in (everybody if members is None else members)]
    return Scenario(
        name="a tree",
        fabric="tree",
        protocol="broker-tree",
        nodes=len(parents),
        protocol_options={"parents": list(parents), **options},
        network=network,
        topics=TopicsTable(count=len(topics), members=[*topics]),
        publications=said,
        subscriptions=list(subscriptions),
        unsubscriptions=list(unsubscriptions),
        faults=list(faults),
        limits=LimitsTable(events=200_000),
    )


def kept(scenario: Scenario) -> dict[str, int]:
    """Run a scenario that must come to its end; how often each promise was broken."""
    result = run_scenario(scenario)
    assert result.stopped == "finished", result.stopped
    assert result.violations is not None, result.judgement
    return {kind: count for kind, count in result.violations.items() if count > 0}


def run(scenario: Scenario) -> Simulation:
    """Run a scenario to its end, to look at the brokers afterwards."""
    simulation = Simulation(scenario)
    assert simulation.run() == "finished"
    return simulation


def run_until(scenario: Scenario, tick: int) -> Simulation:
    """Run a scenario up to a moment in the middle of it."""
    simulation = Simulation(scenario)
    simulation.engine.run(until=tick)
    return simulation
