"""Random schedules for spaces over the cube: several topics with causal order across them.

Members of few topics out of many carry relations to each other through topics that others do not see. Two kinds take
turns: nodes that do not fail, on networks where copies overtake each other by far; and connections that break, with
crashes for good, pauses and partitions.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from antiphon.kernel.message import CAUSAL, ORDER_NAMES
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.scenario import LimitsTable, NetworkTable, Scenario, TopicsTable
from antiphon.torture.schedules.cube import draw_crashes, draw_options, draw_partitions, draw_stall
from antiphon.torture.schedules.operations import (
    CRASH,
    EVENT_LIMIT,
    PAUSE,
    PUBLISH,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Operation,
    draw_connections,
    draw_members,
    pick,
    with_operations,
)
from antiphon.torture.schedules.topic_schedule import Move, Script, draw_network

SPACE_STREAM = 31
"""The stream of random numbers; other schedules use smaller numbers."""


def draw_space_schedule(seed: int) -> Scenario:
    """The scenario of a seed; all its publications are causal."""
    for attempt in count():
        random = RandomStream(seed, SPACE_STREAM, attempt)
        scenario = draw_faulty(seed, random) if seed % 2 else draw_faultless(seed, random)
        if scenario.publications:
            break
    return scenario


class SpaceScript(Script):
    """Draws conversations that go from topic to topic, beside what other schedules have."""

    def _mixed(self) -> tuple[Move, ...]:
        return (*super()._mixed(), self._wander, self._wander, self._wander)

    def _restless(self) -> tuple[Move, ...]:
        return (*super()._restless(), self._wander, self._wander, self._wander)

    def _talkative(self) -> tuple[Move, ...]:
        return (*super()._talkative(), self._wander, self._wander, self._wander)

    def _wander(self, topic: int) -> None:
        """Each publishes on one of its topics after it may have got what the one before published."""
        pause = pick(self._random, (1, 50, 150, 400))
        for number in range(self._random.between(2, 8)):
            node = self._member(topic)
            if node is None:
                return
            topic = pick(self._random, [each for each in range(self._topics) if node in self._members[each]])
            self._add(PUBLISH, node, topic, number * int(self._random.between(1, pause)))


def draw_spaces(nodes: int, random: RandomStream) -> TopicsTable:
    """Two to five topics, of which all or some are one space, or two."""
    topics = int(random.between(2, 5))
    members: list[list[int] | str] = [draw_members(nodes, random) for _ in range(topics)]
    cut = int(random.between(2, topics))
    spaces = [list(range(cut))]
    if topics - cut > 1 and random.below(2) == 0:
        spaces.append(list(range(cut, topics)))
    return TopicsTable(count=topics, members=members, spaces=spaces, acknowledge=pick(random, (0, 1, 100, 300, 3000)))


def draw_with_spaces(
    seed: int, random: RandomStream, protocol: str, nodes: int, options: dict[str, Any], network: NetworkTable
) -> Scenario:
    """A scenario with drawn spaces in which nothing happens yet."""
    return Scenario(
        name=f"spaces torture {seed}",
        seed=seed,
        protocol=protocol,
        order=ORDER_NAMES[CAUSAL],
        nodes=nodes,
        protocol_options=options,
        network=network,
        topics=draw_spaces(nodes, random),
        limits=LimitsTable(events=EVENT_LIMIT),
    )


def draw_faultless(seed: int, random: RandomStream) -> Scenario:
    """A network that loses nothing and is bad in every other way."""
    nodes = int(random.between(2, 9))
    options = {
        "window": pick(random, (1, 2, 3, 64)),
        "bundle": pick(random, (1, 3, 64)),
        "directory": random.below(3) == 0,
        "aggregate": random.below(3) == 0,
    }
    scenario = draw_with_spaces(seed, random, "vcube-ps", nodes, options, draw_network(random))
    return with_operations(scenario, SpaceScript(scenario, random).draw())


def draw_faulty(seed: int, random: RandomStream) -> Scenario:
    """Connections that break; nodes crash for good, pause, or are cut off for a while. Nobody comes or goes then."""
    nodes = int(random.between(2, 8))
    options, network = draw_options(random), draw_connections(random)
    scenario = draw_with_spaces(seed, random, "vcube-ps-lasting", nodes, options, network)
    operations = SpaceScript(scenario, random).draw()
    end = max((operation.at for operation in operations), default=0) + 1
    faults: list[Operation] = []
    if random.below(2) == 0:
        faults += [fault._replace(until=0) for fault in draw_crashes(nodes, end, random) if fault.kind == CRASH]
    if random.below(3) > 0:
        faults += [part for _ in range(pick(random, (1, 1, 2))) for part in draw_partitions(nodes, end, random)]
    faults += [draw_stall(nodes, end, random) for _ in range(pick(random, (0, 0, 1, 2)))]
    calm = [operation for operation in operations if operation.kind not in (PAUSE, SUBSCRIBE, UNSUBSCRIBE)]
    return with_operations(scenario, calm + faults)
