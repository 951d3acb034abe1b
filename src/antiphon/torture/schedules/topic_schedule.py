"""Random schedules for topics without failures: members join, leave and publish at the worst moments.

Copies overtake each other by far more than a round trip, wait in slow output queues, or arrive at a paused node. Other
schedules use :class:`Script` too, and add faults of their own.
"""

from __future__ import annotations

from collections.abc import Callable

from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.last_words import LONG_AFTER
from antiphon.simulator.scenario.scenario import (
    LimitsTable,
    NetworkTable,
    Scenario,
    TopicsTable,
)
from antiphon.torture.schedules.operations import (
    EVENT_LIMIT,
    KEY_STREAM,
    MIX_STREAM,
    MIXED,
    PAUSE,
    PUBLISH,
    SUBSCRIBE,
    TOTAL_ORDER,
    UNSUBSCRIBE,
    Operation,
    draw_delay,
    draw_members,
    draw_order,
    draw_totals,
    named_members,
    pick,
    with_operations,
)

SCHEDULE_STREAM = 6


AGGREGATION_STREAM = 8


LARGEST = 64


Move = Callable[[int], None]
"""Draws some operations on a topic."""


def draw_schedule(seed: int, order: str | None = None) -> Scenario:
    """The scenario of a seed. Without ``order`` it is drawn; every third schedule draws an order per publication.

    Every other one of those draws total order too, and keys.
    """
    random = RandomStream(seed, SCHEDULE_STREAM)
    nodes = draw_size(random)
    topic_count = pick(random, (1, 1, 1, 2, 2, 3))
    drawn_order = pick(random, ("causal", "causal", "fifo", "none"))
    scenario = Scenario(
        name=f"torture {seed}",
        seed=seed,
        protocol="vcube-ps",
        order=drawn_order if order in (None, MIXED) else order,
        nodes=nodes,
        protocol_options={
            "window": pick(random, (1, 2, 3, 64)),
            "largest_first": random.below(2) == 0,
            "bundle": pick(random, (1, 3, 64)),
            "directory": random.below(3) == 0,
            "aggregate": RandomStream(seed, AGGREGATION_STREAM).below(2) == 0,
        },
        network=draw_network(random),
        topics=TopicsTable(count=topic_count, members=[draw_members(nodes, random) for _ in range(topic_count)]),
        limits=LimitsTable(events=EVENT_LIMIT),
    )
    operations = Script(scenario, random).draw()
    mixing = RandomStream(seed, MIX_STREAM)
    keys = RandomStream(seed, KEY_STREAM)
    if order == MIXED or (order is None and mixing.below(3) == 0):
        operations = [draw_order(operation, mixing) for operation in operations]
        if keys.below(2) == 0:
            operations = draw_totals(operations, keys)
    elif order == TOTAL_ORDER:
        operations = draw_totals(operations, keys)
    return with_operations(scenario, operations)


def draw_size(random: RandomStream) -> int:
    """The number of nodes: mostly few, sometimes up to 64, rarely a power of two."""
    chance = random.below(100)
    if chance < 70:
        return int(random.between(2, 8))
    return int(random.between(9, 24) if chance < 92 else random.between(25, LARGEST))


def draw_network(random: RandomStream) -> NetworkTable:
    """A network that loses nothing and is bad in every other way."""
    late = random.below(2) == 0
    return NetworkTable(
        delay=draw_delay(random),
        transmission=pick(random, (0, 1, 1, 1, 10, 60)),
        processing=pick(random, (0, 1, 1, 20)),
        charge_control=random.below(3) > 0,
        reordering=pick(random, (0.05, 0.3, 0.9)) if late else 0.0,
        reordering_window=pick(random, (50, 500, 5000, 30_000)) if late else 0,
    )


class Script:
    """Draws operations on topics, one moment after the other."""

    def __init__(self, scenario: Scenario, random: RandomStream) -> None:
        self._random = random
        self._nodes = scenario.nodes
        self._topics = scenario.topic_count()
        self._members = [set(members) for members in named_members(scenario)]
        self._operations: list[Operation] = []
        self._now = 0
        # From everything at once to one thing after the other.
        self._gap = pick(random, (1, 10, 60, 300, 2000))

    def draw(self) -> list[Operation]:
        """All operations. Later draws may have made some of them impossible; those must be left out."""
        moves = pick(self._random, (self._mixed, self._restless, self._talkative))()
        self._come(0)
        self._publish(0)
        self._now += 1
        for _ in range(self._random.between(2, 20 + self._nodes)):
            self._now += 0 if self._random.below(3) == 0 else int(self._random.between(0, 2 * self._gap))
            pick(self._random, moves)(int(self._random.below(self._topics)))
        if self._random.below(2) == 0:
            self._roll_call()
        return self._operations

    def _mixed(self) -> tuple[Move, ...]:
        """All kinds of operations."""
        coming_and_going = (self._come, self._go, self._return, self._hesitate, self._crowd)
        return (*coming_and_going, self._publish, self._publish, self._talk, self._pause)

    def _restless(self) -> tuple[Move, ...]:
        """Members that leave and come back all the time, while others publish."""
        return (self._return, self._return, self._hesitate, self._come, self._go, self._talk, self._talk, self._publish)

    def _talkative(self) -> tuple[Move, ...]:
        """Members that publish, and sometimes a new subscriber."""
        return (self._talk, self._talk, self._talk, self._publish, self._come, self._return, self._pause)

    def _add(self, kind: int, node: int, topic: int, after: int = 0) -> None:
        self._operations.append(Operation(self._now + after, kind, node, topic))

    def _member(self, topic: int) -> int | None:
        members = sorted(self._members[topic])
        return pick(self._random, members) if members else None

    def _outsider(self, topic: int) -> int | None:
        outsiders = [node for node in range(self._nodes) if node not in self._members[topic]]
        return pick(self._random, outsiders) if outsiders else None

    def _publish(self, topic: int) -> None:
        """Some members publish, once or a few times."""
        for _ in range(self._random.between(1, 3)):
            node = self._member(topic)
            if node is not None:
                for _ in range(pick(self._random, (1, 1, 1, 5))):
                    self._add(PUBLISH, node, topic)

    def _talk(self, topic: int) -> None:
        """Members publish one after the other; some publications may answer the one before."""
        for number in range(self._random.between(2, 6)):
            node = self._member(topic)
            if node is not None:
                self._add(PUBLISH, node, topic, number * int(self._random.between(1, 150)))

    def _come(self, topic: int) -> None:
        """A node subscribes and may publish before its subscription is effective."""
        node = self._outsider(topic)
        if node is not None:
            self._add(SUBSCRIBE, node, topic)
            self._members[topic].add(node)
            for number in range(pick(self._random, (0, 1, 3))):
                self._add(PUBLISH, node, topic, number * int(self._random.between(0, 100)))

    def _go(self, topic: int) -> None:
        """A member unsubscribes and may have published just before."""
        node = self._member(topic)
        if node is not None:
            published = self._random.below(2) == 0
            if published:
                self._add(PUBLISH, node, topic)
            self._add(UNSUBSCRIBE, node, topic, 1 if published else 0)
            self._members[topic].remove(node)

    def _return(self, topic: int) -> None:
        """A member unsubscribes and subscribes again, at once or soon after."""
        node = self._member(topic)
        if node is not None:
            self._add(UNSUBSCRIBE, node, topic)
            self._add(SUBSCRIBE, node, topic, pick(self._random, (0, 0, 1, 50, 300)))

    def _hesitate(self, topic: int) -> None:
        """A node subscribes and unsubscribes, most likely before the subscription is effective."""
        node = self._outsider(topic)
        if node is not None:
            self._add(SUBSCRIBE, node, topic)
            self._add(UNSUBSCRIBE, node, topic, pick(self._random, (1, 1, 50, 400)))

    def _crowd(self, topic: int) -> None:
        """Several join or leave at the same time."""
        move = pick(self._random, (self._come, self._go, self._return))
        for _ in range(self._random.between(2, 2 + self._nodes // 4)):
            move(topic)

    def _pause(self, topic: int) -> None:
        """A node pauses."""
        until = self._now + pick(self._random, (5, 100, 1000, 10_000))
        self._operations.append(Operation(self._now, PAUSE, int(self._random.below(self._nodes)), topic, until))

    def _roll_call(self) -> None:
        """Long after everything has settled, some members publish: a node that is out of step misses one of these."""
        self._now += LONG_AFTER
        for topic in range(self._topics):
            self._talk(topic)
