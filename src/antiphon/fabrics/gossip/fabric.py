"""What the gossip fabric says about itself."""

from __future__ import annotations

from typing import Final

from antiphon.fabrics.fabric import Fabric

GOSSIP: Final = Fabric(
    "gossip",
    "by gossip",
    has_keys=False,
    table="gossip",
    serves_from_log=True,
    may_pass_over=True,
    may_lose_with_node=True,
)
