"""The cube fabric: per-publisher spanning trees on a virtual hypercube."""

from antiphon.fabrics.cube.aggregation.packets import Packet, PacketFormat, Traffic
from antiphon.fabrics.cube.broadcast import SingleTreeBroadcast, TreeBroadcast
from antiphon.fabrics.cube.messages import Acknowledgement
from antiphon.fabrics.cube.topology import (
    Cube,
    FullCube,
    PartialCube,
    cluster,
    cluster_members,
    dimension_for,
    full_or_partial,
)

__all__ = [
    "Acknowledgement",
    "Cube",
    "FullCube",
    "Packet",
    "PacketFormat",
    "PartialCube",
    "SingleTreeBroadcast",
    "Traffic",
    "TreeBroadcast",
    "cluster",
    "cluster_members",
    "dimension_for",
    "full_or_partial",
]
