"""Several trees beside what the thesis of M. Matos argues about and does not measure: two rivals, and reused trees.

**Thicket and SplitStream** (section 4.4): BRISA leaves it to chance in how many trees of a stream a process has
children. Both rivals arrange that most processes have children in a single tree: Thicket in an overlay like BRISA's
(:mod:`antiphon_lab.protocols.gossip.thicket`), SplitStream by the digits of identifiers in a ring
(:mod:`antiphon_lab.protocols.gossip.splitstream`). All run the stream of Figures 4.13 to 4.16.

**Reuse** (section 4.2.8): a publisher that is near the root of a tree of somebody else publishes on that one, upwards
too, and begins none of its own. The thesis gives no depth up to which this pays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from antiphon.fabrics.gossip.options import BrisaOptions
from antiphon.fabrics.gossip.sampling.hyparview import HyParViewOptions
from antiphon.kernel.message import ProtocolMessage
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.engine.actions import PublishAction
from antiphon_lab.experiments.brisa.hops import NODE_BYTES, NUMBER_BYTES, position_bytes
from antiphon_lab.experiments.brisa.model import (
    CONSTRUCTION,
    CONTACTS,
    DRAIN_MS,
    GAP_MS,
    MODEL,
    SETTLING_MS,
    Counts,
    Growth,
    StreamCase,
    StreamMeasures,
    measured,
)
from antiphon_lab.protocols.gossip.pastry import PastryState
from antiphon_lab.protocols.gossip.splitstream import SplitStreamOptions
from antiphon_lab.protocols.gossip.splitstream_messages import StripeAccept, StripeDrop, StripePublish
from antiphon_lab.protocols.gossip.thicket import LoadedAnnounce, ThicketOptions
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Results, Row, promised
from antiphon_lab.reproduction.figures import Axis, Figure, Series

BRISA, THICKET, SPLITSTREAM = "BRISA", "Thicket", "SplitStream"
SYSTEMS = (BRISA, THICKET, SPLITSTREAM)
TREES = (1, 2, 4, 8)
VIEW = 8
MESSAGES = 80
FANOUT, SPARE_LOAD = 5, 2
"""As in the evaluation of Thicket: 5 trees, a fanout of 5, and at most 7 children. SplitStream has the same limit."""

PUBLISHERS_STREAM = 170
PUBLISHERS = 32
MESSAGES_EACH = 10
REUSE_DEPTHS = (0, 1, 2, 3, 4)
REUSE_VIEW = 4


@dataclass(frozen=True)
class TreesCase(StreamCase):
    """A stream over several trees, of one of the systems."""

    system: str = BRISA

    def __str__(self) -> str:
        return f"{self.system}, {self.nodes} nodes, view {self.active}, {self.trees} trees"

    def options(self) -> BrisaOptions:
        """How all nodes behave."""
        if self.system == BRISA:
            return super().options()
        fanout = max(FANOUT, self.trees)
        contacts = range(min(CONTACTS, self.nodes))
        if self.system == SPLITSTREAM:
            return SplitStreamOptions(self.trees, fanout + SPARE_LOAD, contacts=contacts, order="none", join_window=0)
        view = HyParViewOptions(self.active, expansion=self.expansion)
        return ThicketOptions(
            view, self.trees, fanout, fanout + SPARE_LOAD, contacts=contacts, order="none", join_window=0
        )


class TreesCounts(Counts):
    """The messages of the rivals are larger than those of BRISA, and some have a publication in them."""

    def note(self, sender: int, receiver: int, message: ProtocolMessage) -> None:
        super().note(sender, receiver, message)
        more = more_bytes(message)
        self.bytes_received[receiver] += more
        self.bytes_sent[sender] += more
        if isinstance(message, StripePublish) and message.publication.sequence > CONSTRUCTION:
            self.copies_received[receiver] += 1
            self.copies_sent[sender] += 1


def more_bytes(message: ProtocolMessage) -> int:
    """Bytes beside those of a message with a name and a number."""
    if isinstance(message, LoadedAnnounce):
        return NUMBER_BYTES + 2
    if isinstance(message, PastryState | StripeDrop):
        return NODE_BYTES * len(message.nodes)
    return position_bytes(message.position) if isinstance(message, StripeAccept) else 0


def measure_trees(case: TreesCase, seed: int) -> StreamMeasures:
    """Let a system grow and a stream go through it."""
    growth = Growth(case, seed)
    growth.counts = TreesCounts(case.nodes)
    return measured(growth, case)


@dataclass(frozen=True)
class ReuseCase(StreamCase):
    """Several publishers, each with trees of its own unless a tree is near enough."""

    reuse_depth: int = 0

    @property
    def publishers(self) -> int:
        """How many nodes publish."""
        return min(PUBLISHERS, self.nodes)

    def __str__(self) -> str:
        return f"{self.nodes} nodes, {self.publishers} publishers, reuse up to depth {self.reuse_depth}"

    def options(self) -> BrisaOptions:
        """How all nodes behave."""
        return BrisaOptions(
            HyParViewOptions(self.active, expansion=self.expansion),
            range(min(CONTACTS, self.nodes)),
            order="none",
            reuse_depth=self.reuse_depth,
            join_window=0,
        )


@dataclass(frozen=True)
class ReuseMeasures:
    """The results of a run. ``roots`` begin a tree, ``structures`` are those that a node knows, on average."""

    roots: int
    structures: float
    latency_ms: float
    copies: float
    missing: int


def measure_reuse(case: ReuseCase, seed: int) -> ReuseMeasures:
    """One publisher after the other begins to publish, so that trees are there when the next one looks for one."""
    growth = Growth(case, seed)
    random = RandomStream(seed, PUBLISHERS_STREAM)
    publishers: list[int] = []
    while len(publishers) < case.publishers:
        node = random.below(case.nodes)
        if node not in publishers:
            publishers.append(node)
    start = growth.grown_at + SETTLING_MS
    for place, node in enumerate(publishers):
        for number in range(case.messages):
            growth.engine.at(start + (place + number * case.publishers) * case.gap_ms, PublishAction(node))
    growth.engine.run(start - 1)
    growth.is_counting = True
    growth.engine.run(start + case.publishers * case.messages * case.gap_ms + DRAIN_MS)
    groups = [growth.brisa_of(node).group(0) for node in range(case.nodes)]
    receipts = growth.receipts
    deliveries = sum(receipts.count)
    due = case.publishers * case.messages * case.nodes
    copies = deliveries - case.publishers * case.messages + sum(int(group.duplicates) for group in groups)
    used = {int(structure.root) for group in groups for structure in group.trees.structures.values()}
    return ReuseMeasures(
        roots=len(used),
        structures=float(np.mean([len(group.trees.structures) for group in groups])),
        latency_ms=sum(receipts.delay_sum) / deliveries,
        copies=copies / due,
        missing=due - deliveries,
    )


def tree_cases(nodes: int) -> list[TreesCase]:
    """All systems with every number of trees."""
    return [TreesCase(nodes, MESSAGES, VIEW, trees=trees, system=system) for trees in TREES for system in SYSTEMS]


def interior(found: StreamMeasures) -> np.ndarray:
    """In how many trees each node but the source has children."""
    trees: np.ndarray = (found.children > 0).sum(axis=0)[found.others]
    return trees


def loads(found: StreamMeasures) -> np.ndarray:
    """The children of each node but the source, over all trees."""
    children: np.ndarray = found.children.sum(axis=0)[found.others]
    return children


QUANTITIES: dict[str, tuple[str, Callable[[StreamMeasures], float]]] = {
    "without children in any tree": ("% of nodes", lambda found: float(100 * np.mean(interior(found) == 0))),
    "with children in a single tree": ("% of nodes", lambda found: float(100 * np.mean(interior(found) == 1))),
    "with children in more than one": ("% of nodes", lambda found: float(100 * np.mean(interior(found) > 1))),
    "deviation of children over nodes": ("children", lambda found: float(loads(found).std())),
    "most children of a node": ("children", lambda found: float(loads(found).max())),
    "copies of each message per node": (
        "copies",
        lambda found: float(np.mean(found.copies_received) / (MESSAGES - 10)),
    ),
    "bytes without payload per node and message": (
        "bytes",
        lambda found: float(np.mean(found.bytes_received) / MESSAGES),
    ),
    "mean reception delay": ("ms", lambda found: float(found.reception[found.others].mean())),
}


def compare_trees(plan: Plan, results: Results[TreesCase, StreamMeasures]) -> Iterator[Finding]:
    """The work of nodes in several trees, by system."""
    for nodes in plan.sizes:
        cases = tree_cases(nodes)
        yield promised(
            f"missing deliveries, {nodes} nodes", [found.missing for case in cases for found in results.of(case)]
        )
        for label, (unit, quantity) in QUANTITIES.items():
            for case in cases:
                yield Row(
                    f"{label}, {case.trees} trees, {case.system}, {nodes} nodes", unit, results.sample(case, quantity)
                )
        yield loads_figure(nodes, results)
    yield Note(
        "Thicket needs its announcements: the first pushes end at leaves, and the other nodes are reached by grafts, "
        "500 ms later. Its mean delays hold these; BRISA's trees are what is left of a flood that reached all nodes."
    )
    yield Note(
        "In SplitStream each publication first goes to the root of its stripe, by one to three hops, and comes down to "
        "its publisher as well. Its trees are there before the stream begins, and nobody fails in these runs: the "
        "price of its structure under churn is not seen here."
    )


def loads_figure(nodes: int, results: Results[TreesCase, StreamMeasures]) -> Figure:
    """The distribution of children."""
    series = []
    for variant, trees in enumerate(TREES):
        for system in SYSTEMS:
            case = TreesCase(nodes, MESSAGES, VIEW, trees=trees, system=system)

            def share(found: StreamMeasures, most: int) -> float:
                return float(100 * np.mean(loads(found) <= most))

            points = tuple(
                results.sample(case, lambda found, most=most: share(found, most)).point(most)  # type: ignore[misc]
                for most in range(0, 33, 2)
            )
            series.append(Series(f"{system}, {trees} trees", system, points, "steps", variant))
    return Figure(
        "loads",
        f"Children over all trees, {nodes} nodes, view {VIEW}",
        Axis("children"),
        Axis("nodes with no more", "%"),
        tuple(series),
    )


SEVERAL_TREES: Experiment[TreesCase, StreamMeasures] = Experiment(
    name="brisa/several-trees",
    document="not measured in the thesis of M. Matos: section 4.4 argues about Thicket and SplitStream",
    description="BRISA, Thicket and SplitStream: how several trees share the work among nodes",
    default=Plan((256,), repetitions=3, large_repetitions=3),
    full=Plan((512,), repetitions=10, large_repetitions=10, full=True),
    parameters={
        **MODEL,
        "messages": MESSAGES,
        "view": VIEW,
        "trees": TREES,
        THICKET: f"fanout {FANOUT}, or as many as trees; {SPARE_LOAD} children more before a node refuses",
        SPLITSTREAM: f"{FANOUT + SPARE_LOAD} children, or {SPARE_LOAD} more than trees",
    },
    cases=lambda plan: [case for nodes in plan.sizes for case in tree_cases(nodes)],
    measure=measure_trees,
    compare=compare_trees,
    meaning="Do several trees share the work if nobody arranges it? The thesis says that the randomness of the overlay "
    "is enough. Its rivals, which arrange it, show what is possible: nearly every node has children, most in a single "
    "tree, and no node has many. Thicket pays with announcements on all other links, and with the time until a "
    "publication that did not come is requested. SplitStream pays with a ring that has to be kept, and with a way to "
    "the root of each tree before anything comes down.",
)


def reuse_cases(nodes: int) -> list[ReuseCase]:
    """Every depth."""
    return [ReuseCase(nodes, MESSAGES_EACH, REUSE_VIEW, reuse_depth=depth) for depth in REUSE_DEPTHS]


def compare_reuse(plan: Plan, results: Results[ReuseCase, ReuseMeasures]) -> Iterator[Finding]:
    """Fewer trees against longer ways."""
    for nodes in plan.sizes:
        cases = reuse_cases(nodes)
        yield promised(
            f"missing deliveries, {nodes} nodes", [found.missing for case in cases for found in results.of(case)]
        )
        for case in cases:
            about = f"reuse up to depth {case.reuse_depth}, {nodes} nodes"
            yield Row(f"publishers with a tree, {about}", "trees", results.sample(case, lambda found: found.roots))
            yield Row(f"structures at a node, {about}", "trees", results.sample(case, lambda found: found.structures))
            yield Row(f"mean delay, {about}", "ms", results.sample(case, lambda found: found.latency_ms))
            yield Row(f"copies per node, {about}", "copies", results.sample(case, lambda found: found.copies))
        yield Figure(
            "reuse",
            f"Trees and delays by the depth up to which trees are reused, {nodes} nodes",
            Axis("depth", "hops"),
            Axis("trees at a node; delay / 10 ms"),
            (
                Series(
                    "trees at a node",
                    "BRISA tree",
                    tuple(
                        results.sample(case, lambda found: found.structures).point(case.reuse_depth) for case in cases
                    ),
                ),
                Series(
                    "mean delay / 10 ms",
                    "heavy tail",
                    tuple(
                        results.sample(case, lambda found: found.latency_ms / 10).point(case.reuse_depth)
                        for case in cases
                    ),
                ),
            ),
        )


REUSE: Experiment[ReuseCase, ReuseMeasures] = Experiment(
    name="brisa/reuse",
    document="not measured in the thesis of M. Matos: section 4.2.8 describes it",
    description="BRISA: publishers that use trees of others, by the depth up to which they do",
    default=Plan((128,), repetitions=3, large_repetitions=3),
    full=Plan((512,), repetitions=10, large_repetitions=10, full=True),
    parameters={
        **MODEL,
        "view": REUSE_VIEW,
        "publishers": PUBLISHERS,
        "messages_each": MESSAGES_EACH,
        "gap_ms": GAP_MS,
        "reuse_depth": REUSE_DEPTHS,
    },
    cases=lambda plan: [case for nodes in plan.sizes for case in reuse_cases(nodes)],
    measure=measure_reuse,
    compare=compare_reuse,
    meaning="What does a publisher save that uses the tree of another? Every tree is state at every node, and its "
    "first publication is a flood. A publication on a foreign tree goes up to its root as well, so its way is longer. "
    "The depth up to which trees are reused chooses between the two.",
)
