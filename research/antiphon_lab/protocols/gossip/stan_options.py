"""How StaN is configured, and where a node finds the first member of a topic."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.fabrics.gossip.sampling.known_nodes import KnownNodes
from antiphon.kernel.errors import UsageError
from antiphon.kernel.process import NO_NODE
from antiphon.kernel.randomness import RandomStream
from antiphon_lab.protocols.gossip.scamp import ScampOptions
from antiphon_lab.protocols.gossip.simple_gossip import needed_view

NOTHING, SOURCES, WALKS = "nothing", "sources", "walks"
LEARNING: Final = (NOTHING, SOURCES, WALKS)
"""What visited nodes learn from a walk: nothing, as published; its sender; or all nodes that it has met."""

CROSSPOST, SIMPLE = "crosspost", "simple"
FLOODS: Final = (CROSSPOST, SIMPLE)


@final
class StanOptions:
    """The behaviour of all nodes of a system.

    Every ``period`` ticks a node sends a walk of ``hops`` hops into each of its topics. ``learning`` is what visited
    nodes learn from a walk. ``random_slots`` entries of each view stay as they were drawn, and are not chosen by
    weight. A view of less than ``refill`` entries takes more from the findings of its walk. After ``patience`` rounds
    without a change a node sends no more walks until something changes; 0 for never. Nodes are ``in_step`` if all
    rounds begin at multiples of the period. ``flood``: whether an event that is posted to several topics crosses each
    link once. ``remembered`` is the number of last events of which a node recognises copies. ``key`` decides the
    ranking of all nodes. ``scamp`` is for nodes that join existing overlays.
    """

    def __init__(
        self,
        hops: i64 = 4,
        period: i64 = 30_000,
        learning: str = SOURCES,
        random_slots: i64 = 0,
        refill: i64 = 5,
        patience: i64 = 8,
        in_step: bool = False,
        flood: str = CROSSPOST,
        remembered: i64 = 4096,
        key: i64 = 0,
        scamp: ScampOptions | None = None,
    ) -> None:
        if learning not in LEARNING:
            raise UsageError(f"there is no learning {learning!r}; choose from {', '.join(LEARNING)}")
        if flood not in FLOODS:
            raise UsageError(f"there is no flood {flood!r}; choose from {', '.join(FLOODS)}")
        for name, value, least in (
            ("hops", hops, 0),
            ("period", period, 1),
            ("random_slots", random_slots, 0),
            ("refill", refill, 0),
            ("patience", patience, 0),
            ("remembered", remembered, 1),
            ("key", key, 0),
        ):
            if value < least:
                raise UsageError(f"{name} must be at least {least}, not {value}")
        self.hops: Final[i64] = hops
        self.period: Final[i64] = period
        self.learns_sources: Final[bool] = learning != NOTHING
        self.learns_walks: Final[bool] = learning == WALKS
        self.random_slots: Final[i64] = random_slots
        self.refill: Final[i64] = refill
        self.patience: Final[i64] = patience
        self.in_step: Final[bool] = in_step
        self.shares_links: Final[bool] = flood == CROSSPOST
        self.remembered: Final[i64] = remembered
        self.key: Final[i64] = key
        self.scamp: Final[ScampOptions] = ScampOptions(1) if scamp is None else scamp


def view_size(members: int) -> int:
    """How many others each member of a topic knows, so that its overlay holds together (section 3.3.3)."""
    return 0 if members < 2 else needed_view(members)


@final
class Rendezvous:
    """The place where a node that joins a topic finds a member of it.

    StaN does not define how a node outside of a topic finds one (section 3.4 names TERA for it). This one is shared by
    all nodes of a simulated system and is told by nodes that subscribe; failed nodes may still be listed.
    """

    def __init__(self, topics: int) -> None:
        self._members: Final[list[KnownNodes]] = [KnownNodes() for _ in range(topics)]

    def enter(self, topic: i64, node: i64) -> None:
        """A node becomes a member; perhaps it was one before a crash that was never noticed."""
        if not self._members[topic].contains(node):
            self._members[topic].add(node)

    def leave(self, topic: i64, node: i64) -> None:
        """A node is no member any more."""
        if self._members[topic].contains(node):
            self._members[topic].remove(node)

    def count(self, topic: i64) -> i64:
        """How many are listed."""
        return len(self._members[topic].nodes)

    def contact(self, topic: i64, me: i64, random: RandomStream) -> i64:
        """A random member other than the asking node; NO_NODE if there is none."""
        nodes = self._members[topic].nodes
        others = len(nodes) - 1 if self._members[topic].contains(me) else len(nodes)
        if others < 1:
            return NO_NODE
        while True:
            node = nodes[random.below(len(nodes))]
            if node != me:
                return node
