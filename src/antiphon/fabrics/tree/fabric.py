"""What the broker tree says about itself."""

from __future__ import annotations

from typing import Final

from antiphon.fabrics.fabric import Fabric

TREE: Final = Fabric(
    "tree",
    "as a binary tree of brokers",
    table="tree",
    needs_addresses=True,
    mixes_keys=False,
    has_barriers=True,
    is_secured=True,
)
