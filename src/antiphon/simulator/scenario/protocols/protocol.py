"""What a protocol says about itself, so that scenarios can name it, and what the processes of a run share."""

from __future__ import annotations

import typing
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from mypy_extensions import i64

from antiphon.fabrics.cube.topology import Cube
from antiphon.kernel.process import Environment, Process
from antiphon.simulator.scenario.scenario import NetworkTable


class Mistake(NamedTuple):
    """What is wrong with an option, and where in the table."""

    place: tuple[str | int, ...]
    complaint: str


class Waiting(typing.Protocol):
    """What decides when publications are delivered, as far as a run asks: how many had to wait, and still do."""

    @property
    def held_total(self) -> i64: ...
    @property
    def held_peak(self) -> i64: ...
    def waiting(self) -> i64: ...


@dataclass(frozen=True)
class Setting:
    """What all processes of a run have in common."""

    cube: Cube
    nodes: int
    order: str
    options: Any
    members: Sequence[Sequence[int]]
    """Per topic, who is a member from the start; nothing for protocols without topics."""
    mixed: bool = False
    """Whether publications choose their own orders."""
    total: bool = False
    """Whether any of them is total, or about keys."""
    absent: Collection[int] = ()
    """Who joins later."""
    loss: float = 0.0
    """The probability that a message is lost."""
    seed: int = 1
    later_lives: Collection[int] = ()
    """Who joins with the disk of a node that crashed."""


Builder = Callable[[Environment], Process]
"""Builds the process at one node."""


@dataclass(frozen=True)
class Protocol:
    """A protocol that scenarios can name."""

    fabric: str
    options: type[msgspec.Struct]
    prepare: Callable[[Setting], Builder]
    orders_of: Callable[[Process], Sequence[Waiting]]
    """The orders at one node, to ask them what had to wait."""
    orders: tuple[str, ...]
    """The orders that it can be run with."""
    node_options: tuple[str, ...] = ()
    """The options that name a node, which must exist."""
    mistake: Callable[[Any, int], Mistake | None] | None = None
    """Finds what the types of the options cannot exclude in a system of so many nodes."""
    misfit: Callable[[Any, int, NetworkTable], Mistake | None] | None = None
    """Finds options by which a system of so many nodes cannot have total order on a network."""
    has_topics: bool = False
    mixes_orders: bool = False
    """Whether each publication can have an order of its own."""
    has_keys: bool = False
    """Whether publications can be about keys, each of which has a total order of its own."""
    tolerates_faults: bool = True
    """Whether it is defined what happens when copies are lost or doubled, or nodes fail."""
    needs_connections: bool = False
    """Whether links must neither lose nor double nor reorder, as connections do, and nodes only crash or pause."""
    outlives_publishers: bool = False
    """Whether what a node published that fails is known to all who stay, or to nobody."""
    recovers: bool = False
    """Whether nodes that stay get everything although copies are lost and others fail."""
    agrees_probably: bool = False
    """Whether nodes get everything with high probability only, and order never breaks whatever fails."""
    remembers: bool = False
    """Whether a node that restarts goes on where it was, from its log."""
    holes_in: str | None = None
    """The order in which nodes may pass something over, and say so; weaker ones are complete."""
