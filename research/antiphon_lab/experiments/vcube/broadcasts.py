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

from dataclasses import dataclass

from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.run import Result, timed
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
    "latency": "mean over receivers, without the publisher",
}

MANY_TREES = "VCube-PS"
ONE_TREE = "SRPT"

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
    return int(RandomStream(seed, ROOT_STREAM).below(case.nodes)) if case.trees == ONE_TREE else None


def scenario_of(case: BroadcastCase, seed: int) -> Scenario:
    """A case as a scenario, as in a scenario file."""
    options: dict[str, object] = {"acknowledge": case.acknowledged, "largest_first": case.largest_first}
    root = root_of(case, seed)
    if root is not None:
        options["root"] = root
    return Scenario(
        name=str(case),
        seed=seed,
        protocol="broadcast" if root is None else "single-tree",
        protocol_options=options,
        order="best-effort",
        nodes=case.nodes,
        network=NetworkTable(
            delay=ConstantLaw(ticks=case.propagation_ticks),
            transmission=TRANSMISSION_TICKS,
            processing=PROCESSING_TICKS,
        ),
        workload=OnceWorkload(share=case.publisher_percent / 100, window=WINDOW_TICKS),
    )


def simulate(case: BroadcastCase, seed: int, recorder: Recorder | None = None) -> Result:
    """Run one case to its end."""
    result = timed(scenario_of(case, seed), recorder, None)
    assert result.stopped == "finished", "the limits of a scenario are far above what these take"
    return result


def latency_of(case: BroadcastCase, seed: int) -> float:
    """The mean reception latency of one run, in ticks.

    It is the mean over all receivers and publications; the publisher's own delivery, which takes no time, does not
    count. Without an order a publication is delivered when it is received.
    """
    latency = simulate(case, seed).latency_mean
    assert latency is not None, "somebody publishes and others receive"
    return latency
