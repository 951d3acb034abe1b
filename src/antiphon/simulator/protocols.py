"""Which fabrics, protocols and orders a scenario can name.

A protocol that is to be simulated is one entry of ``PROTOCOLS``: the fabric it belongs to, the options that it takes
from the table ``[protocol-options]`` of a scenario, what it can and cannot do, and a function that prepares a run and
answers with what builds its process at one node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec

from antiphon.fabrics.cube.aggregation import CausalAggregation
from antiphon.fabrics.cube.broadcast import SingleTreeBroadcast, TreeBroadcast
from antiphon.fabrics.cube.bundling import TimerBundling
from antiphon.fabrics.cube.directory import Directory
from antiphon.fabrics.cube.lasting import LastingVCubePs
from antiphon.fabrics.cube.packets import PacketBroadcast, PacketFormat
from antiphon.fabrics.cube.process import CubeProcess
from antiphon.fabrics.cube.published_delivery import PublishedDelivery
from antiphon.fabrics.cube.riding import RidingAggregation
from antiphon.fabrics.cube.srpt import SingleRootPerTopic, SrptOptions, brokers
from antiphon.fabrics.cube.topic import ORDERS as VCUBE_PS_ORDERS
from antiphon.fabrics.cube.topic import FaultOptions
from antiphon.fabrics.cube.topology import Cube, PartialCube, dimension_for
from antiphon.fabrics.cube.vcube_ps import Options, VCubePs
from antiphon.fabrics.cube.vcube_ps_aggregation import AggregatingVCubePs
from antiphon.fabrics.cube.vcube_ps_published import PublishedOptions, PublishedVCubePs
from antiphon.fabrics.cube.view import View
from antiphon.fabrics.gossip.brisa import Brisa
from antiphon.fabrics.tree.overlay import wrong_parents
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import ORDER_NAMES, TOTAL
from antiphon.kernel.process import Environment, Process
from antiphon.orders.fifo import Fifo, Unordered
from antiphon.orders.order import Order
from antiphon.orders.vectors import CausalVectors
from antiphon.simulator.epto_protocol import EptoTableOptions, check_epto, check_topics, epto_builder
from antiphon.simulator.epto_protocol import no_orders as no_orders_in_epto
from antiphon.simulator.gossip_protocols import PROCESSES, gossip_options
from antiphon.simulator.protocol_options import (
    AggregationTableOptions,
    BrisaTableOptions,
    BroadcastOptions,
    BrokerOptions,
    FloodingOptions,
    GroupTableOptions,
    LastingOptions,
    PlumtreeTableOptions,
    PublishedVCubePsOptions,
    SimpleGossipTableOptions,
    SimpleTreeTableOptions,
    SingleTreeOptions,
    SrptTableOptions,
    TagTableOptions,
    TimerOptions,
    VCubePsOptions,
)
from antiphon.simulator.published_tree_protocol import PublishedTreeOptions, published_tree_builder
from antiphon.simulator.scenario import NetworkTable
from antiphon.simulator.stan_protocol import StanTableOptions, stan_builder
from antiphon.simulator.stan_protocol import no_orders as no_orders_in_stan
from antiphon.simulator.tree_protocol import TreeTableOptions, tree_builder
from antiphon.simulator.tree_protocol import no_orders as no_orders_in_tree


class Mistake(NamedTuple):
    """What is wrong with an option, and where in the table."""

    place: tuple[str | int, ...]
    complaint: str


@dataclass(frozen=True)
class Setting:
    """What all processes of a run have in common."""

    cube: Cube
    nodes: int
    order: str
    options: Any
    members: Sequence[Sequence[int]]
    """Per topic, who is a member from the start; nothing for protocols without topics."""
    mixed: bool = False
    """Whether publications choose their own orders."""
    total: bool = False
    """Whether any of them is total, or about keys."""
    absent: Collection[int] = ()
    """Who joins later."""
    loss: float = 0.0
    """The probability that a message is lost."""
    seed: int = 1


Builder = Callable[[Environment], Process]
"""Builds the process at one node."""


@dataclass(frozen=True)
class Protocol:
    """A protocol that scenarios can name."""

    fabric: str
    options: type[msgspec.Struct]
    prepare: Callable[[Setting], Builder]
    orders_of: Callable[[Process], Sequence[Order | PublishedDelivery]]
    """The orders at one node, to ask them what had to wait."""
    orders: tuple[str, ...]
    """The orders that it can be run with."""
    node_options: tuple[str, ...] = ()
    """The options that name a node, which must exist."""
    mistake: Callable[[Any, int], Mistake | None] | None = None
    """Finds what the types of the options cannot exclude in a system of so many nodes."""
    misfit: Callable[[Any, int, NetworkTable], Mistake | None] | None = None
    """Finds options by which a system of so many nodes cannot have total order on a network."""
    has_topics: bool = False
    mixes_orders: bool = False
    """Whether each publication can have an order of its own."""
    has_keys: bool = False
    """Whether publications can be about keys, each of which has a total order of its own."""
    tolerates_faults: bool = True
    """Whether it is defined what happens when copies are lost or doubled, or nodes fail."""
    needs_connections: bool = False
    """Whether links must neither lose nor double nor reorder, as connections do, and nodes only crash or pause."""
    outlives_publishers: bool = False
    """Whether what a node published that fails is known to all who stay, or to nobody."""
    recovers: bool = False
    """Whether nodes that stay get everything although copies are lost and others fail."""
    agrees_probably: bool = False
    """Whether nodes get everything with high probability only, and order never breaks whatever fails."""
    remembers: bool = False
    """Whether a node that restarts goes on where it was, from its log."""
    holes_in: str | None = None
    """The order in which nodes may pass something over, and say so; weaker ones are complete."""


ORDERS: dict[str, Callable[[int], Order] | None] = {
    "best-effort": None,
    "none": Unordered,
    "fifo": Fifo,
    "causal": CausalVectors,
}
"""How a broadcast's order at a node is made from its number. Best effort has none: whatever arrives is delivered."""


def prepare_broadcast(setting: Setting) -> Builder:
    """Broadcasts over per-source trees."""
    options = setting.options

    def build(environment: Environment) -> TreeBroadcast:
        order = new_order(setting, environment)
        return TreeBroadcast(environment, setting.cube, order, options.acknowledge, options.largest_first)

    return build


def prepare_single_tree(setting: Setting) -> Builder:
    """Broadcasts over one tree."""
    options = setting.options

    def build(environment: Environment) -> SingleTreeBroadcast:
        order = new_order(setting, environment)
        return SingleTreeBroadcast(
            environment, setting.cube, options.root, order, options.acknowledge, options.largest_first
        )

    return build


def new_order(setting: Setting, environment: Environment) -> Order | None:
    """The order of a broadcast at one node."""
    make = ORDERS[setting.order]
    return None if make is None else make(environment.identifier)


def order_of_broadcast(process: Process) -> list[Order]:
    """The one order of a broadcast, if it has one."""
    assert isinstance(process, TreeBroadcast), "asked about a broadcast"
    return [] if process.order is None else [process.order]


def prepare_aggregation(setting: Setting) -> Builder:
    """Causal aggregation over per-source trees."""
    chosen: AggregationTableOptions = setting.options
    form = PacketFormat(chosen.largest_packet)
    if chosen.riders == "none":
        return lambda environment: CausalAggregation(environment, setting.cube, form)
    always = chosen.riders == "always"
    return lambda environment: RidingAggregation(
        environment, setting.cube, form, timer_ticks=chosen.timer, always=always
    )


def mistake_in_aggregation(options: AggregationTableOptions, _nodes: int) -> Mistake | None:
    """Who always waits needs a timer, and a timer is for those who wait."""
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


def prepare_vcube_ps(setting: Setting) -> Builder:
    """Topics over trees of subscribers; those that are members from the start know all others that are."""
    chosen: VCubePsOptions = setting.options
    options = Options(
        setting.order,
        chosen.window,
        chosen.largest_first,
        chosen.bundle,
        chosen.directory,
        setting.mixed,
        setting.total,
    )
    form = PacketFormat() if chosen.aggregate else None
    views = [View(setting.cube.dimension, members) for members in setting.members]
    topics_of: dict[int, list[int]] = {}
    for topic, members in enumerate(setting.members):
        for node in members:
            topics_of.setdefault(node, []).append(topic)

    def build(environment: Environment) -> CubeProcess:
        process = (
            VCubePs(environment, setting.cube, options)
            if form is None
            else AggregatingVCubePs(environment, setting.cube, options, form)
        )
        if options.directory:
            for topic, members in enumerate(setting.members):
                process.begin_as_home(topic, members)
        for topic in topics_of.get(environment.identifier, ()):
            process.begin_as_member(topic, views[topic])
        return process

    return build


def orders_of_vcube_ps(process: Process) -> list[Order]:
    """The order of each topic that a node has ever heard of."""
    assert isinstance(process, CubeProcess), "asked about VCube-PS"
    return [topic.order for topic in process.topics()]


def prepare_lasting(setting: Setting) -> Builder:
    """The same where nodes fail: everybody expects everybody, and hears who is not there."""
    chosen: LastingOptions = setting.options
    options = Options(setting.order, chosen.window, True, chosen.bundle, False, True, setting.total)
    faults = FaultOptions(chosen.keep, chosen.compare, chosen.forget, chosen.exclude)
    dimension = dimension_for(setting.nodes)
    views = [View(dimension, [node for node in members if node not in setting.absent]) for members in setting.members]
    built: set[int] = set()

    def build(environment: Environment) -> LastingVCubePs:
        node = int(environment.identifier)
        process = LastingVCubePs(environment, PartialCube(dimension, range(setting.nodes)), options, faults)
        process.begin_counting_at(environment.now())
        if node in built:
            # What it was a member of stands in its log.
            process.begin_as_newcomer()
            return process
        built.add(node)
        if node in setting.absent:
            process.begin_as_newcomer()
        for topic, members in enumerate(setting.members):
            if node in members and node not in setting.absent:
                process.begin_as_member(topic, views[topic])
            elif node in members:
                process.subscribe(topic)
        return process

    return build


def mistake_in_lasting(options: LastingOptions, _nodes: int) -> Mistake | None:
    """More is kept than may be under way, and nobody forgets before it has compared."""
    if options.keep < options.window + options.bundle:
        least = options.window + options.bundle
        return Mistake(("keep",), f"fewer are kept than may be under way; for example: keep = {least}")
    if options.forget < options.compare:
        return Mistake(
            ("forget",), f"nobody forgets before it has compared; for example: forget = {100 * options.compare}"
        )
    return None


def prepare_published(setting: Setting) -> Builder:
    """VCube-PS as published; those that are members from the start know all others that are."""
    chosen: PublishedVCubePsOptions = setting.options
    preset = PublishedOptions.minimal() if chosen.preset == "minimal" else PublishedOptions.as_printed()
    switches: dict[str, bool] = {}
    for field in msgspec.structs.fields(PublishedVCubePsOptions):
        if field.name != "preset":
            wanted = getattr(chosen, field.name)
            switches[field.name] = getattr(preset, field.name) if wanted is None else wanted
    options = PublishedOptions(**switches)
    views = [View(setting.cube.dimension, members) for members in setting.members]

    def build(environment: Environment) -> PublishedVCubePs:
        process = PublishedVCubePs(environment, setting.cube, options)
        for topic, view in enumerate(views):
            if view.contains(environment.identifier):
                process.begin_as_member(topic, view)
        return process

    return build


def deliveries_of_published(process: Process) -> list[PublishedDelivery]:
    """What decides about deliveries of each topic that a node has ever heard of."""
    assert isinstance(process, PublishedVCubePs), "asked about VCube-PS as published"
    return [topic.delivery for topic in process.topics()]


def prepare_srpt(setting: Setting) -> Builder:
    """A single root per topic; everybody knows from the start which members are below him."""
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
    """Brokers are a power of two and exist; roots are among those who form trees."""
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


def mistake_in_brisa(options: GroupTableOptions, nodes: int) -> Mistake | None:
    """Views, parents and trees fit together; contacts exist."""
    for number, contact in enumerate(options.contacts or ()):
        if contact >= nodes:
            return Mistake(("contacts", number), f"there is no node {contact}; choose from 0 to {nodes - 1}")
    try:
        gossip_options(options, nodes, "none", False)
    except UsageError as error:
        return Mistake((), str(error))
    return None


def prepare_brisa(setting: Setting) -> Builder:
    """Topics over emergent structures; the first contact founds the topics, once, and everybody else joins."""
    options = gossip_options(setting.options, setting.nodes, setting.order, setting.mixed, setting.loss, setting.seed)
    make = PROCESSES[type(options)]
    topics_of: dict[int, list[int]] = {}
    for topic, members in enumerate(setting.members):
        for node in members:
            topics_of.setdefault(node, []).append(topic)
    founders = {int(options.contacts[0])}

    def build(environment: Environment) -> Brisa:
        process = make(environment, options)
        node = int(environment.identifier)
        if node in options.contacts:
            for topic in range(len(setting.members)):
                process.begin_as_contact(topic, node in founders)
        founders.discard(node)
        for topic in topics_of.get(node, ()):
            process.begin_as_member(topic)
        return process

    return build


def orders_of_brisa(process: Process) -> list[Order]:
    """The order of each topic that a node takes part in."""
    assert isinstance(process, Brisa), "asked about BRISA"
    return process.orders()


def prepare_tree(setting: Setting) -> Builder:
    """A tree of brokers."""
    if isinstance(setting.options, PublishedTreeOptions):
        return published_tree_builder(setting.options, setting.nodes, setting.order, setting.members)
    return tree_builder(setting.options, setting.nodes, setting.order, setting.members, absent=setting.absent)


def mistake_in_tree(options: TreeTableOptions | PublishedTreeOptions, nodes: int) -> Mistake | None:
    """Parents form a tree."""
    wrong = None if options.parents is None else wrong_parents(options.parents, nodes)
    return None if wrong is None else Mistake(("parents",), f"{wrong}; for example: parents = [-1, 0, 0]")


def prepare_epto(setting: Setting) -> Builder:
    """Total order by gossip."""
    return epto_builder(setting.options, setting.nodes, setting.loss, setting.seed)


def misfit_of_epto(options: EptoTableOptions | BrisaTableOptions, nodes: int, network: NetworkTable) -> Mistake | None:
    """Events reach everybody, and not after they were taken for stable."""
    try:
        if isinstance(options, EptoTableOptions):
            check_epto(options, nodes, network)
        else:
            check_topics(options, nodes, network)
    except UsageError as error:
        return Mistake((), str(error))
    return None


def prepare_stan(setting: Setting) -> Builder:
    """Overlays of many topics that share links."""
    return stan_builder(setting.options, setting.members, setting.absent, setting.seed)


FABRICS = ("cube", "gossip", "tree")

BRISA = Protocol(
    "gossip",
    BrisaTableOptions,
    prepare_brisa,
    orders_of_brisa,
    VCUBE_PS_ORDERS,
    mistake=mistake_in_brisa,
    has_topics=True,
    mixes_orders=True,
    recovers=True,
)

BROKER_TREE = Protocol(
    "tree",
    TreeTableOptions,
    prepare_tree,
    no_orders_in_tree,
    ORDER_NAMES,
    mistake=mistake_in_tree,
    has_topics=True,
    mixes_orders=True,
    has_keys=True,
    needs_connections=True,
    outlives_publishers=True,
    recovers=True,
)

PROTOCOLS = {
    "broadcast": Protocol("cube", BroadcastOptions, prepare_broadcast, order_of_broadcast, tuple(ORDERS)),
    "single-tree": Protocol(
        "cube", SingleTreeOptions, prepare_single_tree, order_of_broadcast, tuple(ORDERS), node_options=("root",)
    ),
    "causal-aggregation": Protocol(
        "cube",
        AggregationTableOptions,
        prepare_aggregation,
        order_of_packets,
        ("causal",),
        mistake=mistake_in_aggregation,
        tolerates_faults=False,
    ),
    "timer-bundling": Protocol(
        "cube", TimerOptions, prepare_bundling, order_of_packets, ("causal",), tolerates_faults=False
    ),
    "vcube-ps": Protocol(
        "cube",
        VCubePsOptions,
        prepare_vcube_ps,
        orders_of_vcube_ps,
        ORDER_NAMES,
        has_topics=True,
        mixes_orders=True,
        has_keys=True,
        tolerates_faults=False,
    ),
    "vcube-ps-lasting": Protocol(
        "cube",
        LastingOptions,
        prepare_lasting,
        orders_of_vcube_ps,
        ORDER_NAMES,
        mistake=mistake_in_lasting,
        has_topics=True,
        mixes_orders=True,
        has_keys=True,
        needs_connections=True,
        outlives_publishers=True,
        recovers=True,
        remembers=True,
    ),
    "vcube-ps-published": Protocol(
        "cube",
        PublishedVCubePsOptions,
        prepare_published,
        deliveries_of_published,
        ("causal",),
        has_topics=True,
        tolerates_faults=False,
    ),
    "srpt-s": Protocol(
        "cube",
        SrptTableOptions,
        prepare_srpt,
        no_orders,
        ("none",),
        mistake=mistake_in_srpt,
        has_topics=True,
        tolerates_faults=False,
    ),
    "srpt-b": Protocol(
        "cube",
        BrokerOptions,
        prepare_srpt,
        no_orders,
        ("none",),
        mistake=mistake_in_srpt,
        has_topics=True,
        tolerates_faults=False,
    ),
    "brisa": replace(BRISA, orders=ORDER_NAMES, misfit=misfit_of_epto, holes_in=ORDER_NAMES[TOTAL]),
    "broker-tree": BROKER_TREE,
    "ginger-published": replace(BROKER_TREE, options=PublishedTreeOptions),
    "flooding": replace(BRISA, options=FloodingOptions),
    "plumtree": replace(BRISA, options=PlumtreeTableOptions),
    "simple-gossip": replace(BRISA, options=SimpleGossipTableOptions),
    "simple-tree": replace(BRISA, options=SimpleTreeTableOptions, tolerates_faults=False, recovers=False),
    "tag": replace(BRISA, options=TagTableOptions, recovers=False),
    "epto": Protocol(
        "gossip",
        EptoTableOptions,
        prepare_epto,
        no_orders_in_epto,
        ("total",),
        misfit=misfit_of_epto,
        agrees_probably=True,
    ),
    "stan": Protocol(
        "gossip",
        StanTableOptions,
        prepare_stan,
        no_orders_in_stan,
        ("none",),
        has_topics=True,
        agrees_probably=True,
    ),
}
