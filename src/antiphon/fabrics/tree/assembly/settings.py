"""The options of the broker tree: ``[protocol-options]`` of a scenario, and the table ``[tree]`` of live brokers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from antiphon.fabrics.options import Flag, Live, Positive, Seconds, from_live, live_table
from antiphon.fabrics.tree.options import TreeOptions
from antiphon.fabrics.tree.quorum import NOBODY, Council
from antiphon.fabrics.tree.topology import Overlay, regular_parents, wrong_parents
from antiphon.kernel.errors import UsageError
from antiphon.kernel.process import NO_NODE, UNBOUNDED

ALL_TOPICS: Final = ">"

Parent = Annotated[int, Meta(ge=-1, lt=1 << 22, description="the number of a node, or -1", examples=[0])]
Parents = Annotated[list[Parent], Meta(description="a parent for each node", examples=[[-1, 0, 0]])]
TwoOrMore = Annotated[int, Meta(ge=2, le=1 << 31, description="a number, 2 or more", examples=[8])]
Ticks = Annotated[int, Meta(ge=0, le=1 << 31, description="a number of ticks", examples=[50])]

DEFAULT: Final = TreeOptions()


class TreeTableOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the broker tree."""

    parents: Annotated[
        Parents | None,
        "The place of each broker's parent; -1 for the root. Without it each broker has `fan_out` children.",
        Live(),
    ] = None
    fan_out: Annotated[Positive, "How many children each broker has if `parents` is missing.", Live()] = 2
    total_degree: Annotated[
        TwoOrMore,
        "How many neighbours a broker takes before it refuses orphans, until no other broker takes them either.",
        Live(),
    ] = int(DEFAULT.total_degree)
    max_hops: Annotated[TwoOrMore, "How far a broker looks for a new parent before it asks any broker.", Live()] = int(
        DEFAULT.max_hops
    )
    ancestors_first: Annotated[Flag, "Ask brokers nearer to the root before siblings.", Live()] = (
        DEFAULT.ancestors_first
    )
    nearest_first: Annotated[Flag, "Ask brokers with the shortest measured round trip first.", Live()] = (
        DEFAULT.nearest_first
    )
    patience: Annotated[
        Positive,
        "A broker that was asked for a place and does not answer counts as refusing after this time.",
        Seconds(0.5),
    ] = int(DEFAULT.patience_ticks)
    collect: Annotated[
        Positive,
        "How often the root finds out what all brokers have; until then a message is stored and counts towards "
        "`window`.",
        Seconds(0.02),
    ] = int(DEFAULT.collect_ticks)
    strict_session: Annotated[
        Flag,
        "Ordered messages of a publisher wait for its own total messages before them, and for those that wait for a "
        "key.",
        Live(),
    ] = DEFAULT.strict_session
    quorum: Annotated[
        Flag,
        "Brokers may be cut off and come back, and others may join; total order then needs a majority of the council.",
        Live(default=True),
    ] = DEFAULT.quorum
    council: Annotated[
        Ticks,
        "How long after a change of the tree newcomers become members of the council; 0: never.",
        Seconds(2.0, most=86_400, least=0),
    ] = int(DEFAULT.council_ticks)
    absence: Annotated[
        Positive, "For how long the others store what a lost broker lacks.", Seconds(600.0, most=7 * 86_400)
    ] = int(DEFAULT.absence_ticks)
    quorum_delivery: Annotated[
        Flag,
        "Publications of every order wait for a majority, so that each total one follows the same past at all brokers.",
    ] = DEFAULT.quorum_delivery
    log: Annotated[
        int,
        Meta(ge=0, le=1 << 31, description="a number of publications", examples=[1000]),
        "How many publications of a topic are in the log of each broker, for brokers that were disconnected for "
        "longer; 0: no log.",
    ] = 0
    disk: Annotated[Flag, "Brokers have disks with which they restart as themselves; only with a quorum."] = False
    sync: Annotated[Ticks, "The time until a broker's write is on its disk."] = 0

    def overlay(self, nodes: int, absent: Collection[int] = ()) -> Overlay:
        """The tree in its first epoch, without nodes that join later."""
        listed = self.parents or regular_parents(nodes, self.fan_out)
        parents = {node: parent for node, parent in enumerate(listed) if node not in absent}
        council = Council(1, [sorted(parents)]) if self.quorum else NOBODY
        return Overlay(1, listed.index(int(NO_NODE)), parents, [], council)

    def process_options(self, order: str, window: int = UNBOUNDED, quorum_topics: Collection[int] = ()) -> TreeOptions:
        """The options of the process of each broker."""
        return TreeOptions(
            order,
            self.total_degree,
            self.max_hops,
            self.ancestors_first,
            self.patience,
            self.collect,
            self.strict_session,
            window,
            self.quorum,
            self.council,
            self.absence,
            self.nearest_first,
            self.quorum_delivery,
            quorum_topics,
        )


class TreeTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table ``[tree]`` of live brokers. A subclass has the options of :class:`TreeTableOptions` as well."""

    brokers: Annotated[list[str], "The addresses of the founders; their places in the list are their identifiers."] = []
    names: Annotated[
        list[str],
        "The names in the founders' certificates, in the same order: with TLS no other node takes their places.",
    ] = []
    quorum_delivery: Annotated[
        list[str],
        "The topics on which messages of every order wait for a majority before any broker delivers them "
        '([why](guarantees.md#quorum-delivery)); `[">"]` for all topics; all brokers need the same.',
    ] = []

    def behaviour(self) -> TreeTableOptions:
        """The options of all brokers, in ticks."""
        return from_live(TreeTableOptions, self)

    def process_options(self, order: str, window: int, topic_number: Callable[[str], int]) -> TreeOptions:
        """The options of the process of each broker."""
        topics = [topic_number(name) for name in self.quorum_delivery if name != ALL_TOPICS]
        behaviour = msgspec.structs.replace(self.behaviour(), quorum_delivery=ALL_TOPICS in self.quorum_delivery)
        return behaviour.process_options(order, window, topics)

    def check(self) -> None:
        """Refuse a table that describes no tree."""
        if len(set(self.brokers)) != len(self.brokers):
            raise UsageError("each broker of a tree has an address of its own; correct brokers")
        if self.names and len(self.names) != len(self.brokers):
            raise UsageError(f"there are {len(self.brokers)} brokers and {len(self.names)} names; name each once")
        parents = self.behaviour().parents
        wrong = None if parents is None else wrong_parents(parents, len(self.brokers))
        if wrong is not None:
            raise UsageError(f"the parents of the tree are wrong: {wrong}")
        self.behaviour().process_options("causal")


TREE_TABLE: Final = live_table(TreeTableOptions, TreeTable)
"""The table ``[tree]`` with all its options."""
