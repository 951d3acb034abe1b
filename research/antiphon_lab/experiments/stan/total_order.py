"""Total order inside one topic over StaN's overlays: does agreement survive views of 9 to 14?

The thesis of M. Matos names the combination of StaN and EpTO and leaves open whether it works (section 6.1). EpTO
draws ``2 e ln n / ln ln n`` new receivers every round from all members. A view of StaN has only ``ln n + 4.6`` entries,
and when StaN has come to rest they are always the same. Here EpTO runs as in its own experiments
(:mod:`antiphon_lab.experiments.epto.runs`), and only the source of peers differs:

* **everybody**: all members, as its analysis assumes;
* **random views**: the first views of the members, for good;
* **StaN**: the views at StaN's fixed point;
* **StaN, one drawn**: the same, but in every round one entry is a new member, drawn from all.

Agreement is the share of members that deliver everything. Order is never in danger: it follows from the keys alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from antiphon.fabrics.gossip.epto.analysis import published_fanout, published_ttl
from antiphon.fabrics.gossip.epto.options import EptoOptions
from antiphon.fabrics.gossip.sampling.known_nodes import KnownNodes
from antiphon.fabrics.gossip.sampling.service import (
    Connections,
    Neighbourhood,
    PeerSampling,
    SamplingMessage,
    draw_some,
)
from antiphon.kernel.process import Environment
from antiphon.torture.rates import wilson
from antiphon_lab.experiments.epto.runs import MODEL, EptoCase, EptoOutcome, EptoRun
from antiphon_lab.experiments.stan.runs import key_of
from antiphon_lab.protocols.gossip.stan_options import view_size
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Results, Row, Sample
from antiphon_lab.reproduction.figures import Axis, Figure, Series
from antiphon_lab.universes.stan_links import TopicMembers, aligned_views, random_views

EVERYBODY, RANDOM, STAN, STIRRED = "everybody", "random views", "StaN", "StaN, one drawn"
PEERS = (EVERYBODY, RANDOM, STAN, STIRRED)
RATE = 0.1
LONGER = (0, 2, 4)
"""The number of relays beyond the published one."""


@dataclass(frozen=True)
class PeersCase(EptoCase):
    """EpTO with peers of some source, and ``longer`` relays more than published."""

    peers: str = EVERYBODY
    longer: int = 0

    def __str__(self) -> str:
        text = f"{super().__str__()}, peers from {self.peers}"
        return f"{text}, {self.longer} relays more" if self.longer else text

    def options(self) -> EptoOptions:
        """The published options, except for the relays; a node that knows fewer peers than the fanout sends to all of
        them.
        """
        return EptoOptions(
            self.nodes,
            fanout=int(published_fanout(self.nodes)),
            ttl=int(published_ttl(self.nodes)) + self.longer,
            period=self.period,
            drift=self.drift,
            clock=self.clock,
            persists=self.persists,
            agreement=0.0,
        )


class GivenView(PeerSampling):
    """A view that was made elsewhere. If it is stirred, one entry is drawn again from all members in every round."""

    def __init__(self, environment: Environment, view: list[int], everybody: KnownNodes | None) -> None:
        super().__init__(environment, 0, Connections(environment), Neighbourhood())
        self._view = view
        self._everybody = everybody

    def neighbours(self) -> list[int]:
        return self._view

    def sample(self, count: int) -> list[int]:
        return draw_some(self.random, self._view, count)

    def tick(self) -> None:
        if self._everybody is None:
            return
        nodes = self._everybody.nodes
        node = int(nodes[self.random.below(len(nodes))])
        if node != self.me and node not in self._view:
            self._view[-1] = node

    def join(self, contact: int) -> None:
        """The view is there."""

    def receive(self, sender: int, message: SamplingMessage) -> None:
        raise AssertionError("a view that was given sends nothing")


class PeersRun(EptoRun):
    """A system with peers of some source."""

    def __init__(self, case: PeersCase, seed: int) -> None:
        self._case = case
        self._views = views_of(case, seed)
        super().__init__(case, seed)

    def peers_of(self, environment: Environment) -> PeerSampling:
        if self._case.peers == EVERYBODY:
            return super().peers_of(environment)
        everybody = self.known if self._case.peers == STIRRED else None
        return GivenView(environment, self._views[int(environment.identifier)], everybody)


def views_of(case: PeersCase, seed: int) -> list[list[int]]:
    """The views of all members of one topic."""
    members = np.arange(case.nodes)
    topics = TopicMembers(np.array([0, case.nodes]), members, case.nodes)
    of = np.zeros(case.nodes, np.int64)
    if case.peers == RANDOM:
        views = random_views(topics, members, of, seed)
    else:
        views = aligned_views(topics, members, of, key_of(seed))
    ends = np.searchsorted(views.place, np.arange(1, case.nodes))
    return [part.tolist() for part in np.split(views.neighbour, ends)]


def measure(case: PeersCase, seed: int) -> EptoOutcome:
    """Run a case once."""
    return PeersRun(case, seed).run()


def cases(plan: Plan) -> list[PeersCase]:
    """All sources with the published number of relays; the small views also with more, and with balls that persist."""
    found = []
    for size in plan.sizes:
        found += [PeersCase(size, RATE, peers=peers) for peers in PEERS]
        found += [PeersCase(size, RATE, peers=STAN, longer=longer) for longer in LONGER[1:]]
        found.append(PeersCase(size, RATE, peers=STAN, persists=True))
    return found


def compare(plan: Plan, results: Results[PeersCase, EptoOutcome]) -> Iterator[Finding]:
    """Agreement and delay by source of peers."""
    for case in cases(plan):
        agreeing = results.sample(case, lambda outcome: 100 * outcome.hole_free_share)
        yield Row(f"members that deliver everything, {case}", "%", agreeing)
        members = case.nodes * len(agreeing.values)
        bound = Sample((100 * wilson(round(agreeing.mean / 100 * members), members)[0],))
        yield Row(f"at least, with 95 % confidence, {case}", "%", bound)
        yield Row(f"deliveries, {case}", "%", results.sample(case, lambda outcome: 100 * outcome.delivered_share))
        yield Row(f"out of order, {case}", "pairs", results.sample(case, lambda outcome: float(outcome.disorders)))
        yield Row(f"delay, {case}", "ticks", results.sample(case, lambda outcome: outcome.ordered_ticks))
    for size in plan.sizes:
        yield agreement_figure(size, results)
    views = ", ".join(f"{view_size(size)} of {size}" for size in plan.sizes)
    yield Note(
        f"Views: {views}. EpTO asks for {', '.join(str(int(published_fanout(size))) for size in plan.sizes)} receivers "
        "per round, so a node sends each ball to its whole view, the same nodes every time."
    )


def agreement_figure(size: int, results: Results[PeersCase, EptoOutcome]) -> Figure:
    """Agreement by source."""
    points = tuple(
        results.sample(PeersCase(size, RATE, peers=peers), lambda outcome: 100 * outcome.hole_free_share).point(place)
        for place, peers in enumerate(PEERS)
    )
    return Figure(
        f"agreement-{size}",
        f"Members that deliver everything, {size} members",
        Axis("peers from", categories=PEERS),
        Axis("members", "%"),
        (Series("EpTO", "EpTO", points, "bars"),),
        caption="Not published: the thesis leaves it open.",
    )


TOTAL_ORDER: Experiment[PeersCase, EptoOutcome] = Experiment(
    name="stan/total-order",
    document="not published: our own; the thesis of M. Matos leaves it open (section 6.1)",
    description="EpTO inside a topic over StaN's small views: does agreement survive?",
    default=Plan((100,), repetitions=1, large_repetitions=1),
    full=Plan((100, 200, 500), repetitions=20, large_repetitions=20, full=True),
    parameters={**MODEL, "views": "see the cases", "rate": RATE, "more_relays": LONGER},
    cases=cases,
    measure=measure,
    compare=compare,
    meaning="EpTO counts on new receivers in every round, and StaN always has the same few. Whether its agreement "
    "survives that is measured here: how many deliveries are holes, with views as they are, with one receiver that is "
    "drawn anew, and with two more relays.",
)
