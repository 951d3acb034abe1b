"""The gossip fabric's description of itself."""

from __future__ import annotations

from typing import Final

from antiphon.fabrics.fabric import PARTIAL_VIEW, Fabric, Implementation


def implementation() -> Implementation:
    """Load the code of the gossip fabric."""
    from antiphon.fabrics.gossip.assembly.implementation import IMPLEMENTATION

    return IMPLEMENTATION


GOSSIP: Final = Fabric(
    "gossip",
    "by gossip",
    survives="crashes, restarts and pauses of nodes, partitions, slow and full disks; messages that only a crashed "
    "node had accepted may be lost with it",
    total_order="one order of all messages; continues without a majority, and names each hole",
    membership=PARTIAL_VIEW,
    implementation=implementation,
    has_table=True,
    has_keys=False,
    serves_from_log=True,
    may_pass_over=True,
    may_lose_with_node=True,
)
