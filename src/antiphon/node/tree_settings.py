"""The tree of brokers that a system begins with: who is there, and who is whose parent.

A TOML file with a table ``[tree]``, the same for all brokers; a broker finds itself in it by its address.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import msgspec

from antiphon.api.topic_names import checked_name, topic_number
from antiphon.fabrics.tree.options import TreeOptions
from antiphon.fabrics.tree.quorum import NOBODY, Council
from antiphon.fabrics.tree.topology import Overlay, regular_parents, wrong_parents
from antiphon.kernel.errors import UsageError
from antiphon.kernel.process import NO_NODE
from antiphon.runtime.toml_config import read_table
from antiphon.transport.links import split_address

Positive = Annotated[int, msgspec.Meta(ge=1)]
ALL_TOPICS: Final = ">"
Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]


class TreeTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table ``[tree]``."""

    brokers: list[str] = []
    """The addresses of the founders; their places in the list are their identifiers. None: who does not join founds."""

    names: list[str] = []
    """The names in the certificates of the founders, in the same order: with TLS nobody else may take their places."""

    parents: list[int] | None = None
    """The place of each broker's parent in the list, -1 for the root."""

    fan_out: Positive = 2
    """How many children each broker has where no parents are named."""

    total_degree: Positive = 8
    """How many neighbours a broker takes before it refuses orphans, until nobody else takes them either."""

    max_hops: Positive = 3
    """How far a broker looks for a new parent before it asks anybody."""

    ancestors_first: bool = False
    """Whether those nearer to the root are asked before siblings, instead of the nearest first."""

    nearest_first: bool = True
    """Whether those are asked first who answer first, by measured round trips."""

    strict_session: bool = True
    """Whether what a publisher publishes in order waits for its own total messages before it."""

    patience_seconds: Seconds = 0.5
    """After how long a broker that was asked for a place and does not answer counts as refusing."""

    collect_seconds: Seconds = 0.02
    """How often the root finds out what all have got; until then it is kept, and counts as under way."""

    quorum: bool = True
    """Whether brokers may be cut off and come back, and others join: total order then needs a majority. Without it a
    broker that is lost counts as failed for good, and the last one goes on."""

    council_seconds: Annotated[float, msgspec.Meta(ge=0, le=86400)] = 2.0
    """How long after a change of the tree those who are there become the council, which votes; 0: never."""

    absence_seconds: Annotated[float, msgspec.Meta(gt=0, le=7 * 86400)] = 600.0
    """For how long what a lost broker lacks is kept for it."""

    quorum_delivery: list[str] = []
    """The topics on which messages of every order wait for a majority before anybody sees them; ">" is all topics."""

    def checked(self) -> TreeTable:
        """The same; an error says why it is no tree."""
        for address in self.brokers:
            split_address(address)
        if len(set(self.brokers)) != len(self.brokers):
            raise UsageError("each broker of a tree has an address of its own; correct brokers")
        if self.names and len(self.names) != len(self.brokers):
            raise UsageError(f"there are {len(self.brokers)} brokers and {len(self.names)} names; name each once")
        wrong = None if self.parents is None else wrong_parents(self.parents, len(self.brokers))
        if wrong is not None:
            raise UsageError(f"the parents of the tree are wrong: {wrong}")
        for name in self.quorum_delivery:
            if name != ALL_TOPICS:
                checked_name(name)
        self.options("causal", 1)
        return self

    def overlay(self) -> Overlay:
        """The tree in its first epoch."""
        parents = self.parents or regular_parents(max(1, len(self.brokers)), self.fan_out)
        council = Council(1, [list(range(len(parents)))]) if self.quorum else NOBODY
        return Overlay(1, parents.index(int(NO_NODE)), dict(enumerate(parents)), [], council)

    def options(self, order: str, window: int) -> TreeOptions:
        """How brokers behave, in ticks of live nodes, which are microseconds."""
        return TreeOptions(
            order,
            self.total_degree,
            self.max_hops,
            self.ancestors_first,
            int(self.patience_seconds * 1_000_000),
            int(self.collect_seconds * 1_000_000),
            self.strict_session,
            window,
            self.quorum,
            int(self.council_seconds * 1_000_000),
            int(self.absence_seconds * 1_000_000),
            self.nearest_first,
            ALL_TOPICS in self.quorum_delivery,
            [topic_number(name) for name in self.quorum_delivery if name != ALL_TOPICS],
        )


def read_tree(path: Path) -> TreeTable:
    """The table ``[tree]`` of a TOML file."""
    return read_table(path, "tree", TreeTable, "names the brokers")
