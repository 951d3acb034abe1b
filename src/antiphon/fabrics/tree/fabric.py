"""The description of the broker tree by itself."""

from __future__ import annotations

from typing import Final

from antiphon.fabrics.fabric import FOUNDERS, Fabric, Implementation


def implementation() -> Implementation:
    """Load the code of the broker tree."""
    from antiphon.fabrics.tree.assembly.implementation import IMPLEMENTATION

    return IMPLEMENTATION


TREE: Final = Fabric(
    "tree",
    "as a binary tree of brokers",
    survives="crashes, restarts and pauses of any brokers, partitions, slow and full disks",
    total_order="per key; continues where a majority of the council is connected",
    membership=FOUNDERS,
    implementation=implementation,
    has_table=True,
    mixes_keys=False,
    has_barriers=True,
    is_secured=True,
)
