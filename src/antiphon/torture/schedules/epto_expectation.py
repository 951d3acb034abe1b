"""How likely an event of EpTO reaches everybody, played through apart from the protocol.

In the theory (:mod:`antiphon.fabrics.gossip.epto.analysis`) all nodes have their rounds at the same moment, and
whoever knows an event relays it until ``ttl`` rounds have passed. In truth rounds are at random moments of a period,
and a copy that comes shortly before its receiver's round is relayed at once. Each relay counts one more, and the larger
of two counts is kept, so on a chain of such chances the count runs ahead of the rounds that have passed. If nodes
stopped when the count has come to ``ttl`` (``by_count``), fewer rounds would spread the event than the theory has;
where fanout and ttl are just enough that costs agreement. Here and in the protocol a node relays in as many rounds as
the event was short of ``ttl`` when it came first. That copy may be a quick one too, so something of the difference is
left.

One event is played, round by round, in the order of time. Nothing of this knows the protocol's code.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.scenario import Scenario

PLAY_STREAM = 22
"""Names the stream of random numbers."""

PLAYS = 10
"""How often the event of a schedule is played; a campaign has many schedules."""

TICKS = 1000
"""Of a period."""

ARRIVAL, ROUND = 0, 1


class Moment(NamedTuple):
    """What happens next: a copy arrives at a node that has been relayed so often, or a node has a round."""

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
        # Of those who relay the event, how often it had been relayed, and in how many more rounds they do so; who has.
        self._relays: dict[int, int] = {}
        self._left: dict[int, int] = {}
        self._finished: set[int] = set()
        self.knows: set[int] = set()
        self._moments: list[Moment] = []

    def run(self) -> bool:
        """Whether the event of one node reaches everybody."""
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
        """A node has something to relay, from its next round on."""
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
        """So many others, each set as likely as any."""
        chosen: set[int] = set()
        while len(chosen) < self._fanout:
            other = int(self._random.below(self._nodes))
            if other != node:
                chosen.add(other)
        return chosen


def reaching(
    nodes: int, fanout: int, ttl: int, loss: float, delay: int, random: RandomStream, plays: int, by_count: bool = False
) -> float:
    """In which share of plays an event reaches everybody."""
    return sum(Play(nodes, fanout, ttl, loss, delay, random, by_count).run() for _ in range(plays)) / plays


def expected_of(scenario: Scenario, delay: int, period: int) -> float:
    """How likely a publication of a calm schedule reaches everybody."""
    options = scenario.protocol_options
    random = RandomStream(scenario.seed, PLAY_STREAM)
    ticks = max(1, delay * TICKS // period)
    return reaching(scenario.nodes, options["fanout"], options["ttl"], scenario.network.loss, ticks, random, PLAYS)
