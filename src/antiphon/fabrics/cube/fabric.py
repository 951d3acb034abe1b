"""The description of the cube."""

from __future__ import annotations

from typing import Final

from antiphon.fabrics.fabric import FULL_MESH, Fabric, Implementation


def implementation() -> Implementation:
    """Load the code of the cube."""
    from antiphon.fabrics.cube.assembly.implementation import IMPLEMENTATION

    return IMPLEMENTATION


CUBE: Final = Fabric(
    "cube",
    "as a cube",
    survives="crashes, restarts and pauses of any nodes, partitions, slow and full disks",
    total_order="per key; continues where a majority of the voters is connected",
    membership=FULL_MESH,
    implementation=implementation,
    keeps_checkpoints=True,
    has_spaces=True,
    has_identifier_trees=True,
)
