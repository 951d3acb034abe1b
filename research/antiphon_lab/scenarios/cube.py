"""The laboratory's protocols on the cube in scenarios: their options, and the processes built from them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from antiphon.fabrics.cube.aggregation.packets import PacketFormat
from antiphon.fabrics.cube.directory import Directory
from antiphon.fabrics.cube.fabric import CUBE
from antiphon.fabrics.cube.view import View
from antiphon.fabrics.options import Flag, NodeNumber
from antiphon.fabrics.protocol import Builder, Mistake, Protocol, Setting
from antiphon.kernel.process import Environment, Process
from antiphon.orders.order import Order
from antiphon_lab.protocols.cube.causal_aggregation import CausalAggregation
from antiphon_lab.protocols.cube.packet_broadcast import PacketBroadcast
from antiphon_lab.protocols.cube.published_delivery import PublishedDelivery
from antiphon_lab.protocols.cube.riding_aggregation import RidingOptions
from antiphon_lab.protocols.cube.srpt import SingleRootPerTopic, SrptOptions, brokers
from antiphon_lab.protocols.cube.timer_bundling import TimerBundling
from antiphon_lab.protocols.cube.vcube_ps_published import PublishedVCubeOptions, PublishedVCubePs


class PacketOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a broadcast that puts several publications into one packet."""

    largest_packet: Annotated[int, Meta(ge=21, le=1 << 31, description="a number of bytes", examples=[1500])] = 1500
    """The most bytes that a packet may have, its header of 20 included."""


class AggregationTableOptions(PacketOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of causal aggregation."""

    riders: Literal["none", "held", "always"] = "none"
    """Whether publications that could leave wait for others: never, while one is held back from the same neighbour, or
    always.
    """
    timer: Annotated[int, Meta(ge=0, le=1 << 31, description="a number of ticks, 0 for none", examples=[10])] = 0
    """How long riders wait at most; 0 for as long as something is held back."""


class TimerOptions(PacketOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of bundles that wait for a timer."""

    timer: Annotated[int, Meta(ge=1, le=1 << 31, description="a number of ticks, 1 or more", examples=[50])] = 50
    """How long the first publication of a bundle waits for others."""


class PublishedVCubePsOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of VCube-PS as published: a preset, and switches that differ from it."""

    preset: Literal["minimal", "as-printed"] = "minimal"
    """The listing with minimal corrections, or at its word."""
    single_sender: Flag | None = None
    prunes_barriers: Flag | None = None
    waits_for_unheard: Flag | None = None
    inner_nodes_introduce_themselves: Flag | None = None
    whole_view_in_acknowledgements: Flag | None = None
    leaves_keep_payload: Flag | None = None
    matches_acknowledgements: Flag | None = None
    forgets_last_deliveries: Flag | None = None
    updates_whole_view: Flag | None = None
    keeps_tombstones: Flag | None = None
    joins_when_started: Flag | None = None
    leaves_when_started: Flag | None = None
    forgets_barrier: Flag | None = None
    relays_learn: Flag | None = None


class SrptTableOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a single root per topic."""

    roots: Annotated[list[NodeNumber], Meta(description="a list of nodes", examples=[[5, 9]])] | None = None
    """The roots of the topics, one after the other and from the beginning again; without it they are scattered."""
    largest_first: Flag = False
    """Whether the child with the largest subtree is served first instead of last."""


class BrokerOptions(SrptTableOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a single root per topic where the trees consist of brokers."""

    brokers: Annotated[int, Meta(ge=1, le=1 << 22, description="a power of two", examples=[32])] = 32
    """How many of the nodes, from 0 up, are brokers."""


def prepare_aggregation(setting: Setting) -> Builder:
    """Causal aggregation over per-source trees."""
    chosen: AggregationTableOptions = setting.options
    form = PacketFormat(chosen.largest_packet)
    riding = None if chosen.riders == "none" else RidingOptions(chosen.timer, chosen.riders == "always")
    return lambda environment: CausalAggregation(environment, setting.cube, form, riding=riding)


def mistake_in_aggregation(options: AggregationTableOptions, _nodes: int) -> Mistake | None:
    """Refuse constant waiting without a timer, and a timer without waiting."""
    if options.riders == "always" and options.timer == 0:
        return Mistake(("timer",), "riders that always wait need a time to wait for; for example: timer = 10")
    if options.riders == "none" and options.timer > 0:
        return Mistake(("timer",), 'a timer is for riders; choose riders = "held" or "always", or leave it out')
    return None


def prepare_bundling(setting: Setting) -> Builder:
    """Bundles that wait for a timer, over per-source trees."""
    options = setting.options
    form = PacketFormat(options.largest_packet)
    return lambda environment: TimerBundling(environment, setting.cube, form, timer_ticks=options.timer)


def order_of_packets(process: Process) -> list[Order]:
    """The one order of a broadcast in packets."""
    assert isinstance(process, PacketBroadcast), "asked about a broadcast in packets"
    return [process.order]


def prepare_published(setting: Setting) -> Builder:
    """VCube-PS as published; those that are members from the start know all others that are."""
    chosen: PublishedVCubePsOptions = setting.options
    preset = PublishedVCubeOptions.minimal() if chosen.preset == "minimal" else PublishedVCubeOptions.as_printed()
    switches: dict[str, bool] = {}
    for field in msgspec.structs.fields(PublishedVCubePsOptions):
        if field.name != "preset":
            wanted = getattr(chosen, field.name)
            switches[field.name] = getattr(preset, field.name) if wanted is None else wanted
    options = PublishedVCubeOptions(**switches)
    views = [View(setting.cube.dimension, members) for members in setting.members]

    def build(environment: Environment) -> PublishedVCubePs:
        process = PublishedVCubePs(environment, setting.cube, options)
        for topic, view in enumerate(views):
            if view.contains(environment.identifier):
                process.begin_as_member(topic, view)
        return process

    return build


def deliveries_of_published(process: Process) -> list[PublishedDelivery]:
    """The delivery rule of each topic that a node knows."""
    assert isinstance(process, PublishedVCubePs), "asked about VCube-PS as published"
    return [topic.delivery for topic in process.topics()]


def prepare_srpt(setting: Setting) -> Builder:
    """A single root per topic; every node knows from the start which members are below it."""
    chosen: SrptTableOptions = setting.options
    tree = brokers(chosen.brokers) if isinstance(chosen, BrokerOptions) else setting.cube
    homes = Directory(tree)
    scattered = [int(homes.home_of(topic)) for topic in range(len(setting.members))]
    options = SrptOptions(tree, setting.nodes, chosen.roots or scattered, chosen.largest_first)
    views = [View(setting.cube.dimension, members) for members in setting.members]

    def build(environment: Environment) -> SingleRootPerTopic:
        process = SingleRootPerTopic(environment, options)
        for topic, view in enumerate(views):
            if view.contains(environment.identifier):
                process.begin_as_member(topic, view)
            else:
                process.begin_as_relay(topic, view)
        return process

    return build


def mistake_in_srpt(options: SrptTableOptions, nodes: int) -> Mistake | None:
    """Check that brokers are a power of two and exist, and that roots are in the tree."""
    in_tree, who = nodes, "nodes"
    if isinstance(options, BrokerOptions):
        in_tree, who = options.brokers, "brokers"
        if in_tree & (in_tree - 1) or in_tree > nodes:
            fitting = 1 << (min(in_tree, nodes).bit_length() - 1)
            complaint = f"expected a power of two, at most the {nodes} nodes, not {in_tree}"
            return Mistake(("brokers",), f"{complaint}; for example: brokers = {fitting}")
    if options.roots is not None and not options.roots:
        return Mistake(("roots",), "expected at least one node; leave this out to have the roots scattered")
    for number, root in enumerate(options.roots or ()):
        if root >= in_tree:
            complaint = f"node {root} cannot be a root: it is none of the {in_tree} {who}"
            return Mistake(("roots", number), f"{complaint}; choose from 0 to {in_tree - 1}")
    return None


def no_orders(process: Process) -> list[Order]:
    """Nothing ever waits where nothing is ordered."""
    assert isinstance(process, SingleRootPerTopic), "asked about SRPT"
    return []


PROTOCOLS = {
    "causal-aggregation": Protocol(
        AggregationTableOptions,
        prepare_aggregation,
        order_of_packets,
        ("causal",),
        mistake=mistake_in_aggregation,
        tolerates_faults=False,
        fabric=CUBE.name,
    ),
    "timer-bundling": Protocol(
        TimerOptions, prepare_bundling, order_of_packets, ("causal",), tolerates_faults=False, fabric=CUBE.name
    ),
    "vcube-ps-published": Protocol(
        PublishedVCubePsOptions,
        prepare_published,
        deliveries_of_published,
        ("causal",),
        has_topics=True,
        tolerates_faults=False,
        fabric=CUBE.name,
    ),
    "srpt-s": Protocol(
        SrptTableOptions,
        prepare_srpt,
        no_orders,
        ("none",),
        mistake=mistake_in_srpt,
        has_topics=True,
        tolerates_faults=False,
        fabric=CUBE.name,
    ),
    "srpt-b": Protocol(
        BrokerOptions,
        prepare_srpt,
        no_orders,
        ("none",),
        mistake=mistake_in_srpt,
        has_topics=True,
        tolerates_faults=False,
        fabric=CUBE.name,
    ),
}
