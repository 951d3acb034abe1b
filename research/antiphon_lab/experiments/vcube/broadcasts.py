"""The model of chapter 5 of the thesis: everybody listens, some publish once, over one tree or many.

``N = 2**d`` nodes are all members. A share of them, chosen at random, publishes one message each at an integer time
uniform in ``[0, window]`` (section 5.6.3). A hop costs 1 tick in the sender's output queue, the propagation time, and
1 tick of processing. Two systems are run as published: :data:`VCUBE_PS`, whose members know each other, and
:data:`SRPT`, a single root per topic, drawn at random. As published, a node serves its children in ascending order of
cluster and acknowledgements cost nothing: only then does the mean queue of Table 5.1 come out. ``acknowledged`` charges
those of VCube-PS, as a real network would.

The broadcasts below the two systems stand apart: :data:`MANY_TREES` and :data:`ONE_TREE`, without order and, unless
``acknowledged``, without acknowledgements. They also serve the largest subtree first. As every node publishes once,
nothing waits for acknowledgements, and VCube-PS receives as :data:`MANY_TREES` does, but for copies of one tick that
change places. So they stand for it where a run of it takes too long.
"""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.engine.engine import Engine
from antiphon.simulator.scenario.run import Simulation
from antiphon.simulator.scenario.scenario import ConstantLaw, NetworkTable, OnceWorkload, Scenario
from antiphon.trace.recorder import Recorder

TRANSMISSION_TICKS = 1
PROCESSING_TICKS = 1
WINDOW_TICKS = 1000
MODEL: dict[str, object] = {
    "transmission_ticks": TRANSMISSION_TICKS,
    "processing_ticks": PROCESSING_TICKS,
    "window_ticks": WINDOW_TICKS,
    "acknowledgements": "free of charge, except in rows that say acknowledged",
    "children": "in ascending order of cluster, except in rows that say largest first",
    "latency": "of receptions, mean over receivers, without the publisher",
}

VCUBE_PS = "VCube-PS"
SRPT = "SRPT"
MANY_TREES = "a tree per publisher"
ONE_TREE = "one tree"
WITH_ONE_ROOT = (SRPT, ONE_TREE)

ROOT_STREAM = 101
"""Names the stream from which the root is drawn; the small numbers are the simulator's."""


@dataclass(frozen=True)
class BroadcastCase:
    """One simulation of the model."""

    trees: str
    nodes: int
    publisher_percent: int
    propagation_ticks: int
    acknowledged: bool = False
    largest_first: bool = False

    def __str__(self) -> str:
        variant = ", acknowledged" if self.acknowledged else ""
        variant += ", largest first" if self.largest_first else ""
        return f"{self.trees}, {self.nodes} nodes, {self.publisher_percent} % publish{variant}"


def hop_ticks(propagation_ticks: int) -> int:
    """The cost of one hop without waiting."""
    return TRANSMISSION_TICKS + propagation_ticks + PROCESSING_TICKS


def root_of(case: BroadcastCase, seed: int) -> int | None:
    """The single root, or None where every publisher has its own tree."""
    return int(RandomStream(seed, ROOT_STREAM).below(case.nodes)) if case.trees in WITH_ONE_ROOT else None


def protocol_of(case: BroadcastCase, seed: int) -> tuple[str, str, dict[str, object]]:
    """The protocol of a case with its order and options."""
    root = root_of(case, seed)
    if case.trees == VCUBE_PS:
        assert not case.largest_first, "as published, children are served in ascending order"
        return "vcube-ps-published", "causal", {}
    if case.trees == SRPT:
        assert not case.acknowledged, "a single root acknowledges nothing"
        return "srpt-s", "none", {"roots": [root], "largest_first": case.largest_first}
    options: dict[str, object] = {"acknowledge": case.acknowledged, "largest_first": case.largest_first}
    if root is None:
        return "broadcast", "best-effort", options
    return "single-tree", "best-effort", {**options, "root": root}


def scenario_of(case: BroadcastCase, seed: int) -> Scenario:
    """A case as a scenario, as in a scenario file."""
    protocol, order, options = protocol_of(case, seed)
    return Scenario(
        name=str(case),
        seed=seed,
        protocol=protocol,
        protocol_options=options,
        order=order,
        nodes=case.nodes,
        network=NetworkTable(
            delay=ConstantLaw(ticks=case.propagation_ticks),
            transmission=TRANSMISSION_TICKS,
            processing=PROCESSING_TICKS,
            charge_control=case.trees != VCUBE_PS or case.acknowledged,
        ),
        workload=OnceWorkload(share=case.publisher_percent / 100, window=WINDOW_TICKS),
    )


def simulate(case: BroadcastCase, seed: int, recorder: Recorder | None = None) -> Engine:
    """Run one case to its end."""
    simulation = Simulation(scenario_of(case, seed), recorder)
    stopped = simulation.run()
    assert stopped == "finished", "the limits of a scenario are far above what these take"
    return simulation.engine


def latency_of(case: BroadcastCase, seed: int) -> float:
    """The mean reception latency of one run, in ticks.

    It is the mean over all receivers and publications. The publisher's own delivery, which takes no time, does not
    count, nor does the copy that goes to a single root. Without an order a reception is a delivery.
    """
    engine = simulate(case, seed)
    if case.trees == VCUBE_PS:
        return int(engine.reception_ticks) / int(engine.receptions)
    return int(engine.latency_sum) / int(engine.deliveries - engine.own_deliveries)
