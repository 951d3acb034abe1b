"""Turns a workload into a list of publications before the run begins.

Everything is drawn from one stream of the scenario's seed with integers only, so that all machines plan the same.
Exponential gaps are drawn by von Neumann's method (1951), which only compares random numbers and needs no logarithm:
the last digits of a logarithm differ between mathematical libraries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from antiphon.kernel.message import ORDER_NAMES, UNSPECIFIED
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.protocols import PROTOCOLS
from antiphon.simulator.scenario.scenario import ANY_TOPIC, OnceWorkload, RateWorkload, Scenario
from antiphon.simulator.scenario.subscriptions import PlannedMembers, Span, draw_nodes, subscribed_spans

WORKLOAD_STREAM = 3
"""The stream of random numbers; the engine uses 1 and 2."""

ORDER_STREAM = 8
"""A separate stream: the same publications are planned, whether or not they draw their orders."""

MAXIMUM_PUBLICATIONS = 5_000_000
"""The whole plan is in memory; at 200 bytes per publication, this many fit into 1 GiB."""

MEAN_BITS = 20
WORD_BITS = 32


class Words(Protocol):
    """A source of random words."""

    def word(self) -> int:
        """The next 32 random bits."""


class Planned(NamedTuple):
    """One planned publication."""

    at: int
    node: int
    payload: bytes
    topic: int = 0
    order: int = UNSPECIFIED
    keys: tuple[int, ...] = ()


def plan(scenario: Scenario) -> Iterator[Planned]:
    """All publications of a scenario: the listed ones, in the order of the file, then those of the workload."""
    for publication in scenario.publications:
        order = UNSPECIFIED if publication.order is None else ORDER_NAMES.index(publication.order)
        payload, keys = publication.payload.encode(), tuple(publication.keys)
        yield Planned(publication.at, publication.node, payload, publication.topic, order, keys)
    workload = scenario.workload
    if workload is None:
        return
    random = RandomStream(scenario.seed, ORDER_STREAM)
    for planned in plan_workload(scenario):
        drawn = planned
        if workload.orders:
            name = workload.orders[random.below(len(workload.orders))]
            drawn = drawn._replace(order=ORDER_NAMES.index(name))
        if workload.keys > 0:
            drawn = drawn._replace(keys=(int(random.below(workload.keys)),))
        yield drawn


def plan_workload(scenario: Scenario) -> Iterator[Planned]:
    """The publications of the workload, in the default order."""
    workload = scenario.workload
    random = RandomStream(scenario.seed, WORKLOAD_STREAM)
    if PROTOCOLS[scenario.protocol].has_topics:
        if isinstance(workload, OnceWorkload):
            yield from plan_once_on_topics(scenario, workload, random)
        elif isinstance(workload, RateWorkload):
            yield from plan_rate_on_topics(scenario, workload, random)
    elif isinstance(workload, OnceWorkload):
        yield from plan_once(workload, scenario.nodes, random)
    elif isinstance(workload, RateWorkload):
        yield from plan_rate(workload, scenario.nodes, random)


def plan_once(workload: OnceWorkload, node_count: int, random: RandomStream) -> Iterator[Planned]:
    """Some nodes, once each, at uniform times of the window, both ends included; equal times go by node."""
    payload = bytes(workload.payload_bytes)
    for node in draw_nodes(publisher_count(workload, node_count), node_count, random):
        yield Planned(workload.start + random.between(0, workload.window), node, payload)


def plan_once_on_topics(scenario: Scenario, workload: OnceWorkload, random: RandomStream) -> Iterator[Planned]:
    """Some of the nodes that are subscribed during the window, once each, at a uniform time while subscribed."""
    payload = bytes(workload.payload_bytes)
    chances: dict[int, list[tuple[int, list[Span]]]] = {}
    for node, topic, spans in subscribed_spans(scenario, workload.start, workload.start + workload.window):
        if workload.topic in (ANY_TOPIC, topic):
            chances.setdefault(node, []).append((topic, spans))
    if not chances:
        return
    nodes = list(chances)
    for position in draw_nodes(publisher_count(workload, len(nodes)), len(nodes), random):
        topics = chances[nodes[position]]
        topic, spans = topics[random.below(len(topics))]
        yield Planned(draw_moment(spans, random), nodes[position], payload, topic)


def draw_moment(spans: list[Span], random: RandomStream) -> int:
    """A uniform tick of some spans."""
    ticks = random.below(sum(span.last - span.first + 1 for span in spans))
    for span in spans:
        length = span.last - span.first + 1
        if ticks < length:
            return span.first + ticks
        ticks -= length
    raise AssertionError("the tick is in one of the spans")


def publisher_count(workload: OnceWorkload, node_count: int) -> int:
    """The number of publishing nodes: the share, rounded, but at least one."""
    return max(1, int(workload.share * node_count + 0.5))


def plan_rate(workload: RateWorkload, node_count: int, random: RandomStream) -> Iterator[Planned]:
    """A Poisson process of publications by random nodes."""
    payload = bytes(workload.payload_bytes)
    for at in rate_times(workload, random):
        yield Planned(at, random.below(node_count), payload)


def plan_rate_on_topics(scenario: Scenario, workload: RateWorkload, random: RandomStream) -> Iterator[Planned]:
    """A Poisson process of publications by random subscribers; at times without subscribers there is none."""
    payload = bytes(workload.payload_bytes)
    members = PlannedMembers(scenario)
    for at in rate_times(workload, random):
        topic = workload.topic
        if not isinstance(topic, int):
            topic = random.below(scenario.topic_count())
        members.advance(at)
        subscribed = members.of_topic[topic]
        if subscribed:
            yield Planned(at, subscribed[random.below(len(subscribed))], payload, topic)


def rate_times(workload: RateWorkload, random: RandomStream) -> Iterator[int]:
    """The times of a Poisson process: exponential gaps, added up exactly and only then rounded down to ticks."""
    mean = round(workload.mean_gap * (1 << MEAN_BITS))
    elapsed = 0
    number = 0
    while workload.count is None or number < workload.count:
        elapsed += draw_exponential(random) * mean
        at = workload.start + (elapsed >> (WORD_BITS + MEAN_BITS))
        if workload.until is not None and at >= workload.until:
            return
        yield at
        number += 1


def draw_exponential(random: Words) -> int:
    """An exponential number of mean 1, in units of 2**-32.

    A uniform ``x`` is kept with probability ``exp(-x)``: that is the probability that the run of decreasing numbers
    which begins with it has an odd length. Each rejected one adds 1.
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
