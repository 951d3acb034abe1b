"""The description of a fabric by itself, so that no other module compares its name.

Each fabric describes itself in its folder, and :mod:`antiphon.fabrics.registry` lists the descriptions:

- ``fabric.py``: facts that hosts, judges, commands and the documentation ask for (:class:`Fabric`);
- ``assembly/settings.py``: its options, once for scenarios and live nodes (:mod:`antiphon.fabrics.options`);
- ``assembly/implementation.py``: its messages, its process, its protocols in scenarios (:class:`Implementation`).

The facts import no protocol: judges read them too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.fabrics.protocol import Protocol
from antiphon.kernel.message import ORDER_NAMES
from antiphon.kernel.process import Environment, Process


@dataclass(frozen=True)
class MembershipPolicy:
    """How nodes of a live cluster find each other. :mod:`antiphon.membership.policies` has the code of each."""

    name: str
    keeps_identity: bool
    """Whether a node that returns with its disk has its former identifier."""
    begins_apart: bool
    """Whether a newcomer and the others do not know each other at first."""
    is_full: bool
    """Whether each node knows all others."""
    has_founders: bool = False
    """Whether the first nodes know each other's addresses before they start."""


FULL_MESH: Final = MembershipPolicy("full mesh", keeps_identity=False, begins_apart=True, is_full=True)
FOUNDERS: Final = MembershipPolicy("founders", keeps_identity=True, begins_apart=False, is_full=True, has_founders=True)
PARTIAL_VIEW: Final = MembershipPolicy("partial view", keeps_identity=False, begins_apart=False, is_full=False)


class HostNames(NamedTuple):
    """A host's knowledge of addresses and topics; the checks raise a UsageError."""

    check_address: Callable[[str], object]
    check_topic: Callable[[str], object]
    topic_number: Callable[[str], int]


UNBOUNDED_BYTES: Final = 1 << 60


class NodeChoices(NamedTuple):
    """The settings of a live node that its process depends on; ``table`` is that of its fabric."""

    order: str
    window: int
    forget_ticks: int
    table: Any
    names: HostNames
    window_bytes: int = UNBOUNDED_BYTES
    """A publisher has so many bytes and one batch in transit on a topic."""


class ProcessTraits(NamedTuple):
    """The facts that a live node must know about the behaviour that its settings describe."""

    is_strict: bool = True
    """Whether ordered messages of a publisher wait for its own total messages before them."""
    asks_majority: bool = False
    """Whether messages of weaker orders may wait for a majority, too."""
    has_journal: bool = False
    """Whether the process keeps state on the disk for its next incarnation."""


def no_check(choices: NodeChoices, joins: bool) -> None:
    """Accept every table."""


@dataclass(frozen=True)
class Implementation:
    """The code of a fabric."""

    messages: Mapping[int, type[Any]]
    """Its messages by their numbers on the wire. A number stands for its class for ever, in logs too: a new class gets
    the next number that no fabric uses, and the number of a deleted one is not used again."""
    protocols: Mapping[str, Protocol]
    """Its protocols by the names that scenarios use."""
    new_process: Callable[[NodeChoices, Environment, list[int]], Process]
    """The process of a live node that joins the nodes of this list."""
    traits: Callable[[Any], ProcessTraits]
    """The traits of a live node with a table."""
    table: type[msgspec.Struct] | None = None
    """The table of settings that only this fabric has."""
    check: Callable[[NodeChoices, bool], None] = no_check
    """Refuses a table that cannot work; the second argument says whether the node joins others."""


@dataclass(frozen=True)
class Fabric:
    """One way in which publications travel: how a live cluster of it is set up, and what its hosts do for it."""

    name: str
    shape: str
    """How its nodes are connected, in words that complete "connected ..."."""
    survives: str
    """The faults after which nothing that was accepted is lost, as the guarantees list them."""
    total_order: str
    """What total order needs while nodes are missing."""
    membership: MembershipPolicy
    implementation: Callable[[], Implementation] = field(repr=False)
    """Loads the code."""
    orders: tuple[str, ...] = ORDER_NAMES
    has_table: bool = False
    """Whether live nodes have a table of settings for it, with its name (``Implementation.table``)."""
    has_keys: bool = True
    """Whether total order is per key, and needs a majority."""
    mixes_keys: bool = True
    """Whether messages about different keys may share a batch."""
    has_barriers: bool = False
    """Whether a message through the fabric tells that all before it have come; else processes say what is past."""
    keeps_checkpoints: bool = False
    """Whether a node that restarts goes on from what its log counted as past."""
    serves_from_log: bool = False
    """Whether buffers are so short that peers ask the log for what they miss."""
    may_pass_over: bool = False
    """Whether a node may pass a message over that nobody within reach has, and weaker messages overtake total ones."""
    has_spaces: bool = False
    """Whether topics can be in spaces, with causal order across topics."""
    has_identifier_trees: bool = False
    """Whether the tree of a publisher follows from the identifiers of the nodes."""
    is_secured: bool = False
    """Whether a trace says which epochs order totally."""
    may_lose_with_node: bool = False
    """Whether a message that a node has accepted may be lost with that node."""

    @property
    def needs_addresses(self) -> bool:
        """Whether its first nodes know each other's addresses before they start."""
        return self.membership.has_founders
