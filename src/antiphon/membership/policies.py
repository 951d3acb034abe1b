"""The code of each membership policy that a fabric can name (:class:`antiphon.fabrics.fabric.MembershipPolicy`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from antiphon.fabrics.fabric import FOUNDERS, FULL_MESH, PARTIAL_VIEW, MembershipPolicy
from antiphon.membership.cube_members import CubeMembers
from antiphon.membership.host import Place
from antiphon.membership.membership import Membership
from antiphon.membership.partial_view import PartialView
from antiphon.membership.tree_members import Founders, TreeMembers


def with_founders(place: Place, table: Any) -> Membership:
    """Founders know each other by the addresses in the table; others join if a quorum counts them."""
    return TreeMembers(place, Founders(table.brokers, table.names), table.quorum)


POLICIES: Final[dict[str, Callable[[Place, Any], Membership]]] = {
    FULL_MESH.name: lambda place, _table: CubeMembers(place),
    FOUNDERS.name: with_founders,
    PARTIAL_VIEW.name: lambda place, table: PartialView(place, table.contacts),
}
"""Each makes the membership of a node from its place and the table of its fabric."""


def new_membership(policy: MembershipPolicy, place: Place, table: Any) -> Membership:
    """How a node finds the others."""
    return POLICIES[policy.name](place, table)
