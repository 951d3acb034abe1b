"""The model of chapter 5 of the thesis: everybody listens, some publish once, over one tree or many.

``N = 2**d`` nodes are all members. A share of them, chosen at random, publishes one message each at an integer time
uniform in ``[0, window]`` (section 5.6.3). A hop costs 1 tick in the sender's output queue, the propagation time, and
1 tick of processing. ``one tree`` sends every publication to a root chosen at random, which broadcasts it over its own
tree (SRPT, single root per topic); ``many trees`` lets every publisher broadcast over its own (VCube-PS with complete
views). As published, a node serves its children in ascending order of cluster and acknowledgements cost nothing:
only then does the mean queue of Table 5.1 come out. Here they are then not sent at all, which gives the same
receptions. ``acknowledged`` charges them, as a real network would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from antiphon.fabrics.cube import SingleTreeBroadcast, TreeBroadcast, full_or_partial
from antiphon.kernel.process import Environment, Process
from antiphon.kernel.randomness import RandomStream
from antiphon.lab.metrics import mean_latency
from antiphon.simulator.actions import Publish
from antiphon.simulator.engine import Engine
from antiphon.simulator.network import ConstantDelay, Network
from antiphon.trace.recorder import Recorder

TRANSMISSION_TICKS = 1
PROCESSING_TICKS = 1
WINDOW_TICKS = 1000
MODEL: dict[str, object] = {
    "transmission_ticks": TRANSMISSION_TICKS,
    "processing_ticks": PROCESSING_TICKS,
    "window_ticks": WINDOW_TICKS,
    "acknowledgements": "free of charge, except in rows that say otherwise",
    "children": "in ascending order of cluster, except in rows that say otherwise",
    "latency": "mean over receivers, without the publisher",
}

MANY_TREES = "VCube-PS"
ONE_TREE = "SRPT"

PUBLISHER_STREAM = 101
START_STREAM = 102
ROOT_STREAM = 103


@dataclass(frozen=True)
class Broadcasts:
    """One simulation of the model."""

    trees: str
    nodes: int
    publisher_percent: int
    propagation_ticks: int
    acknowledged: bool = False
    largest_first: bool = False

    def __str__(self) -> str:
        variant = ", acknowledgements charged" if self.acknowledged else ""
        variant += ", largest first" if self.largest_first else ""
        return f"{self.trees}, {self.nodes} nodes, {self.publisher_percent} % publish{variant}"


def hop_ticks(propagation_ticks: int) -> int:
    """What one hop costs where nothing waits."""
    return TRANSMISSION_TICKS + propagation_ticks + PROCESSING_TICKS


def root_of(case: Broadcasts, seed: int) -> int | None:
    """The single root, or None where every publisher has its own tree."""
    return int(RandomStream(seed, ROOT_STREAM).below(case.nodes)) if case.trees == ONE_TREE else None


def publishers(case: Broadcasts, seed: int) -> list[int]:
    """Who publishes: a share of the nodes, at least one, chosen uniformly; in ascending order."""
    identifiers = list(range(case.nodes))
    count = max(1, case.nodes * case.publisher_percent // 100)
    random = RandomStream(seed, PUBLISHER_STREAM)
    for place in range(count):
        other = place + int(random.below(case.nodes - place))
        identifiers[place], identifiers[other] = identifiers[other], identifiers[place]
    return sorted(identifiers[:count])


def simulate(case: Broadcasts, seed: int, recorder: Recorder | None = None) -> Engine:
    """Run one case to its end."""
    network = Network(ConstantDelay(case.propagation_ticks), TRANSMISSION_TICKS, PROCESSING_TICKS)
    engine = Engine(case.nodes, network, process_builder(case, seed), seed, recorder)
    start = RandomStream(seed, START_STREAM)
    for identifier in publishers(case, seed):
        engine.at(start.between(0, WINDOW_TICKS), Publish(identifier))
    reason = engine.run()
    assert reason == "finished", "nothing limits this run"
    return engine


def process_builder(case: Broadcasts, seed: int) -> Callable[[Environment], Process]:
    """What runs at every node of a case."""
    cube = full_or_partial(case.nodes)
    root = root_of(case, seed)

    def build(environment: Environment) -> Process:
        if root is None:
            return TreeBroadcast(environment, cube, None, case.acknowledged, case.largest_first)
        return SingleTreeBroadcast(environment, cube, root, None, case.acknowledged, case.largest_first)

    return build


def latency_of(case: Broadcasts, seed: int) -> float:
    """The mean reception latency of one run, in ticks."""
    return mean_latency(simulate(case, seed))
