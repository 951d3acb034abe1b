"""The description of a protocol, so that scenarios can name it, and the setting that the processes of a run share."""

from __future__ import annotations

import typing
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import msgspec
from mypy_extensions import i64

from antiphon.fabrics.cube.topology import Cube
from antiphon.kernel.message import ORDER_NAMES
from antiphon.kernel.process import Environment, Process

SCENARIO_ORDERS = ("best-effort", *ORDER_NAMES)
"""The orders that scenarios can name."""


class Mistake(NamedTuple):
    """An error in an option, and its place in the table."""

    place: tuple[str | int, ...]
    complaint: str


class NetworkFigures(NamedTuple):
    """The figures of a network on which the agreement of an epidemic depends."""

    loss: float
    """The probability that a message is lost."""
    mean_delay_ticks: float


class DiskKind(Enum):
    """The contents of a simulated disk, and their owners."""

    LOG = "a log that a crash removes"
    ASKED_LOG = "a log from which other nodes ask for single publications"
    LASTING_LOG = "a log that survives a crash, with the node's subscriptions and records"
    JOURNAL = "a log and records with which a node restarts as itself"


class DiskOptions(NamedTuple):
    """The disks of all nodes: how many publications of a topic a log holds, and how many ticks a write takes."""

    kind: DiskKind
    log: int
    sync: int = 0
    nodes: Sequence[int] = ()
    """The nodes with disks; all if empty."""


class WaitingCounts(typing.Protocol):
    """The waiting publications of an order, as far as a run reports them: how many had to wait, and still do."""

    @property
    def held_total(self) -> i64: ...
    @property
    def held_peak(self) -> i64: ...
    def waiting(self) -> i64: ...


@dataclass(frozen=True)
class Setting:
    """The values that all processes of a run share."""

    cube: Cube
    nodes: int
    order: str
    options: Any
    members: Sequence[Sequence[int]]
    """Per topic, the members at the start; empty for protocols without topics."""
    mixed: bool = False
    """Whether publications choose their own orders."""
    total: bool = False
    """Whether any of them is total, or about keys."""
    absent: Collection[int] = ()
    """The nodes that join later."""
    loss: float = 0.0
    """The probability that a message is lost."""
    seed: int = 1
    later_incarnations: Collection[int] = ()
    """The nodes that join with the disk of a crashed one."""


Builder = Callable[[Environment], Process]
"""Builds the process at one node."""


@dataclass(frozen=True)
class Protocol:
    """A protocol that scenarios can name."""

    options: type[msgspec.Struct]
    prepare: Callable[[Setting], Builder]
    orders_of: Callable[[Process], Sequence[WaitingCounts]]
    """The orders at one node, which count waiting publications."""
    orders: tuple[str, ...]
    """The orders that the protocol supports."""
    node_options: tuple[str, ...] = ()
    """The options that name a node, which must exist."""
    mistake: Callable[[Any, int], Mistake | None] | None = None
    """Finds errors in the options, for a number of nodes, that their types cannot exclude."""
    misfit: Callable[[Any, int, NetworkFigures], Mistake | None] | None = None
    """Finds options with which a number of nodes cannot have total order on a network."""
    has_topics: bool = False
    mixes_orders: bool = False
    """Whether each publication can have an order of its own."""
    has_keys: bool = False
    """Whether publications can have keys, with a total order per key."""
    tolerates_faults: bool = True
    """Whether the protocol defines its behaviour when copies are lost or duplicated, or nodes fail."""
    needs_connections: bool = False
    """Whether links must neither lose nor duplicate nor reorder, as connections do, and nodes only crash or pause."""
    outlives_publishers: bool = False
    """Whether a publication of a failed node is delivered at all remaining nodes, or at none."""
    recovers: bool = False
    """Whether remaining nodes receive everything although copies are lost and other nodes fail."""
    agrees_probably: bool = False
    """Whether nodes receive everything only with high probability, while no fault breaks the order."""
    needs_quorum: bool = False
    """Whether it survives a partition, and a peer that was given up comes back, only with the option ``quorum``."""
    parents_option: str | None = None
    """The option that lists the parent of every node."""
    remembers: bool = False
    """Whether a restarted node continues from its log."""
    holes_in: str | None = None
    """The order in which nodes may pass over a publication, and report it; weaker orders are complete."""
    disks: Callable[[Any], DiskOptions | None] | None = None
    """The disks of nodes with some options; None where nodes have none."""
    has_spaces: bool = False
    """Whether its topics can be in spaces, with causal order across topics."""
    keeps_after_cut: bool = False
    """Whether a node that has lost a neighbour forgets nothing for a while, as far as ``buffer`` and ``log`` hold."""
    fabric: str = ""
    """The name of its fabric; the registry fills it in for protocols that a fabric lists."""
