"""Who publishes when: a workload turned into a list of publications before the run begins.

Everything is drawn from one stream of the scenario's seed with integers only, so that all machines plan the same.
Exponential gaps are drawn by von Neumann's method (1951), which only compares random numbers and needs no logarithm:
the last digits of a logarithm differ between mathematical libraries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario import OnceWorkload, RateWorkload, Scenario

WORKLOAD_STREAM = 3
"""Names the stream of random numbers; 1 and 2 are the engine's."""

MAXIMUM_PUBLICATIONS = 5_000_000
"""The whole plan is in memory; 200 bytes per publication keep this many within 1 GiB."""

MEAN_BITS = 20
WORD_BITS = 32


class Words(Protocol):
    """Where random words come from."""

    def word(self) -> int:
        """The next 32 random bits."""


class Planned(NamedTuple):
    """One publication to be."""

    at: int
    node: int
    payload: bytes


def plan(scenario: Scenario) -> Iterator[Planned]:
    """All publications of a scenario: those spelled out, in the order of the file, then those of the workload."""
    for publication in scenario.publications:
        yield Planned(publication.at, publication.node, publication.payload.encode())
    random = RandomStream(scenario.seed, WORKLOAD_STREAM)
    if isinstance(scenario.workload, OnceWorkload):
        yield from plan_once(scenario.workload, scenario.nodes, random)
    elif isinstance(scenario.workload, RateWorkload):
        yield from plan_rate(scenario.workload, scenario.nodes, random)


def plan_once(workload: OnceWorkload, node_count: int, random: RandomStream) -> Iterator[Planned]:
    """Some nodes, once each, at uniform times of the window, both ends included; equal times go by node."""
    payload = bytes(workload.payload_bytes)
    for node in draw_nodes(publisher_count(workload, node_count), node_count, random):
        yield Planned(workload.start + random.between(0, workload.window), node, payload)


def publisher_count(workload: OnceWorkload, node_count: int) -> int:
    """How many nodes publish: the share, rounded, but somebody does."""
    return max(1, int(workload.share * node_count + 0.5))


def draw_nodes(count: int, node_count: int, random: RandomStream) -> list[int]:
    """Different nodes, each as likely as any other, in ascending order."""
    nodes = list(range(node_count))
    if count < node_count:
        for position in range(count):
            other = random.between(position, node_count - 1)
            nodes[position], nodes[other] = nodes[other], nodes[position]
    return sorted(nodes[:count])


def plan_rate(workload: RateWorkload, node_count: int, random: RandomStream) -> Iterator[Planned]:
    """A Poisson process: exponential gaps, added up exactly and only then rounded down to ticks."""
    payload = bytes(workload.payload_bytes)
    mean = round(workload.mean_gap * (1 << MEAN_BITS))
    elapsed = 0
    number = 0
    while workload.count is None or number < workload.count:
        elapsed += draw_exponential(random) * mean
        at = workload.start + (elapsed >> (WORD_BITS + MEAN_BITS))
        if workload.until is not None and at >= workload.until:
            return
        yield Planned(at, random.below(node_count), payload)
        number += 1


def draw_exponential(random: Words) -> int:
    """An exponential number of mean 1, in units of 2**-32.

    A uniform ``x`` is kept with probability ``exp(-x)``: that is how likely the run of ever smaller numbers that begins
    with it has an odd length. Each one rejected adds 1.
    """
    whole = 0
    while True:
        first = smallest = random.word()
        is_odd = True
        while (following := random.word()) < smallest:
            smallest = following
            is_odd = not is_odd
        if is_odd:
            return (whole << WORD_BITS) | first
        whole += 1
