"""The cube fabric: per-publisher spanning trees on a virtual hypercube."""

from antiphon.fabrics.cube.aggregation import AggregationOptions, CausalAggregation
from antiphon.fabrics.cube.broadcast import SingleTreeBroadcast, TreeBroadcast
from antiphon.fabrics.cube.bundling import SingleTreeAggregation, TimerBundling
from antiphon.fabrics.cube.messages import Acknowledgement
from antiphon.fabrics.cube.packets import Packet, PacketBroadcast, PacketFormat, Traffic
from antiphon.fabrics.cube.riding import RidingAggregation
from antiphon.fabrics.cube.srpt import SingleRootPerTopic, SrptOptions, brokers
from antiphon.fabrics.cube.topology import (
    Cube,
    FullCube,
    PartialCube,
    cluster,
    cluster_members,
    dimension_for,
    full_or_partial,
)
from antiphon.fabrics.cube.vcube_ps_published import PublishedOptions, PublishedVCubePs

__all__ = [
    "Acknowledgement",
    "AggregationOptions",
    "CausalAggregation",
    "Cube",
    "FullCube",
    "Packet",
    "PacketBroadcast",
    "PacketFormat",
    "PartialCube",
    "PublishedOptions",
    "PublishedVCubePs",
    "RidingAggregation",
    "SingleRootPerTopic",
    "SingleTreeAggregation",
    "SingleTreeBroadcast",
    "SrptOptions",
    "TimerBundling",
    "Traffic",
    "TreeBroadcast",
    "brokers",
    "cluster",
    "cluster_members",
    "dimension_for",
    "full_or_partial",
]
