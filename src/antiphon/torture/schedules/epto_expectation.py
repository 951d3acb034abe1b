"""The probability that an EpTO event reaches all nodes, from a game that shares no code with the protocol.

In the theory (:mod:`antiphon.fabrics.gossip.epto.analysis`) all nodes have their rounds at the same moment, and a node
that knows an event relays it until ``ttl`` rounds have passed. In reality rounds are at random moments of a period, and
a copy that arrives shortly before its receiver's round is relayed at once. Each relay increments a count, and a node
keeps the larger of two counts, so along a chain of such copies the count grows faster than the number of rounds. If
nodes stopped at a count of ``ttl`` (``by_count``), the event would spread for fewer rounds than in the theory; where
fanout and ttl are just sufficient, that costs agreement. Here and in the protocol a node relays in as many rounds as
the event was short of ``ttl`` when its first copy arrived. That first copy may be a fast one too, so a part of the
difference remains.

The game plays one event, round by round, in the order of time.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.scenario import Scenario

PLAY_STREAM = 22
"""The stream of random numbers."""

PLAYS = 10
"""The number of plays per schedule; a campaign has many schedules."""

TICKS = 1000
"""Ticks of a period."""

ARRIVAL, ROUND = 0, 1


class Moment(NamedTuple):
    """The next thing to happen: a copy with a number of relays arrives at a node, or a node has a round."""

    at: int
    kind: int
    node: int
    relays: int


class Play:
    """One event in a system whose rounds are not in step; messages take ``delay`` ticks."""

    def __init__(
        self,
        nodes: int,
        fanout: int,
        ttl: int,
        loss: float,
        delay: int,
        random: RandomStream,
        by_count: bool = False,
    ) -> None:
        self._nodes = nodes
        self._by_count = by_count
        self._fanout = min(fanout, nodes - 1)
        self._ttl = ttl
        self._loss = loss
        self._delay = delay
        self._random = random
        self._phases = [int(random.below(TICKS)) for _ in range(nodes)]
        # By relaying node: the relay count, and the number of rounds left. Then the nodes that have the event.
        self._relays: dict[int, int] = {}
        self._left: dict[int, int] = {}
        self._finished: set[int] = set()
        self.knows: set[int] = set()
        self._moments: list[Moment] = []

    def run(self) -> bool:
        """Play once; whether the event of one node reaches all nodes."""
        random = self._random
        publisher, begun = int(random.below(self._nodes)), int(random.below(TICKS))
        self.knows.add(publisher)
        self._begin(publisher, begun, 0)
        while self._moments:
            moment = heapq.heappop(self._moments)
            if moment.kind == ROUND:
                self._round(moment)
            else:
                self._arrive(moment)
        return len(self.knows) == self._nodes

    def _begin(self, node: int, now: int, relays: int) -> None:
        """Let a node relay the event from its next round on."""
        if node not in self._relays:
            waits = (self._phases[node] - now) % TICKS or TICKS
            heapq.heappush(self._moments, Moment(now + waits, ROUND, node, 0))
            self._left[node] = self._ttl - relays
        self._relays[node] = max(relays, self._relays.get(node, 0))

    def _arrive(self, moment: Moment) -> None:
        self.knows.add(moment.node)
        if moment.relays < self._ttl and moment.node not in self._finished:
            self._begin(moment.node, moment.at, moment.relays)

    def _round(self, moment: Moment) -> None:
        node, at = moment.node, moment.at
        self._relays[node] += 1
        relays = self._relays[node]
        for other in self._others(node):
            if not self._random.chance(self._loss):
                heapq.heappush(self._moments, Moment(at + self._delay, ARRIVAL, other, relays))
        self._left[node] = self._ttl - relays if self._by_count else self._left[node] - 1
        if self._left[node] > 0:
            heapq.heappush(self._moments, Moment(at + TICKS, ROUND, node, 0))
        else:
            del self._relays[node]
            self._finished.add(node)

    def _others(self, node: int) -> set[int]:
        """A random set of ``fanout`` other nodes."""
        chosen: set[int] = set()
        while len(chosen) < self._fanout:
            other = int(self._random.below(self._nodes))
            if other != node:
                chosen.add(other)
        return chosen


def reaching(
    nodes: int, fanout: int, ttl: int, loss: float, delay: int, random: RandomStream, plays: int, by_count: bool = False
) -> float:
    """The share of plays in which an event reaches all nodes."""
    return sum(Play(nodes, fanout, ttl, loss, delay, random, by_count).run() for _ in range(plays)) / plays


def expected_of(scenario: Scenario, delay: int, period: int) -> float:
    """The probability that a publication of a calm schedule reaches all nodes."""
    options = scenario.protocol_options
    random = RandomStream(scenario.seed, PLAY_STREAM)
    ticks = max(1, delay * TICKS // period)
    return reaching(scenario.nodes, options["fanout"], options["ttl"], scenario.network.loss, ticks, random, PLAYS)
