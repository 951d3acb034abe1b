"""The settings of a simulated node: those of a live node with its defaults, and the table of its fabric."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.fabrics.fabric import HostNames, NodeChoices
from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.process import Environment, Process
from antiphon.membership import policies
from antiphon.membership.host import Place, microseconds
from antiphon.membership.membership import Membership

WINDOW: Final = 64
NAMES: Final = HostNames(str, str, hash)
"""Simulated nodes check no names, and no table of theirs names a topic."""


class NodeSettings(NamedTuple):
    """The settings of a simulated node; :class:`antiphon.membership.host.MembershipSettings`."""

    fabric: str
    join: list[str]
    founders: list[str]
    """The addresses of the founders, where a fabric has founders."""
    join_seconds: float = 15.0
    lost_seconds: float = 1.0
    forget_seconds: float = 600.0
    maximum_nodes: int = 64
    cluster: str = "antiphon"
    identifier: int | None = None

    def table(self) -> Any:
        """The table of the fabric."""
        return table_of(self.fabric, tuple(self.founders))


@cache
def table_of(fabric: str, founders: tuple[str, ...]) -> msgspec.Struct | None:
    """The table of a fabric with its defaults, and with founders if there are any; None if the fabric has none."""
    kind = FABRICS[fabric].implementation().table
    return None if kind is None else kind(**({"brokers": list(founders)} if founders else {}))


def new_membership(settings: NodeSettings, place: Place) -> Membership:
    """How a node finds the others."""
    return policies.new_membership(FABRICS[settings.fabric].membership, place, settings.table())


def new_process(settings: NodeSettings, environment: Environment, members: list[int]) -> Process:
    """The process of a node beside these others."""
    choices = NodeChoices("causal", WINDOW, microseconds(settings.forget_seconds), settings.table(), NAMES)
    return FABRICS[settings.fabric].implementation().new_process(choices, environment, members)
