"""Which fabrics, protocols and orders a scenario can name.

A protocol that is to be simulated is one entry of ``PROTOCOLS``: the fabric it belongs to, the options that it takes
from the table ``[protocol-options]`` of a scenario, what it can and cannot do, and a function that prepares a run and
answers with what builds its process at one node.
"""

from __future__ import annotations

from dataclasses import replace

from antiphon.fabrics.cube.topic import ORDERS as VCUBE_PS_ORDERS
from antiphon.fabrics.gossip.brisa import Brisa
from antiphon.fabrics.tree.overlay import wrong_parents
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import ORDER_NAMES, TOTAL
from antiphon.kernel.process import Environment, Process
from antiphon.orders.order import Order
from antiphon.simulator.scenario.protocols.cube_broadcast import (
    ORDERS,
    mistake_in_aggregation,
    order_of_broadcast,
    order_of_packets,
    prepare_aggregation,
    prepare_broadcast,
    prepare_bundling,
    prepare_single_tree,
)
from antiphon.simulator.scenario.protocols.cube_topics import (
    deliveries_of_published,
    mistake_in_lasting,
    mistake_in_srpt,
    no_orders,
    orders_of_vcube_ps,
    prepare_lasting,
    prepare_published,
    prepare_srpt,
    prepare_vcube_ps,
)
from antiphon.simulator.scenario.protocols.epto import EptoTableOptions, check_epto, check_topics, epto_builder
from antiphon.simulator.scenario.protocols.epto import no_orders as no_orders_in_epto
from antiphon.simulator.scenario.protocols.gossip import PROCESSES, gossip_options
from antiphon.simulator.scenario.protocols.options import (
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
from antiphon.simulator.scenario.protocols.protocol import Builder, Mistake, Protocol, Setting
from antiphon.simulator.scenario.protocols.published_tree import PublishedTreeOptions, published_tree_builder
from antiphon.simulator.scenario.protocols.stan import StanTableOptions, stan_builder
from antiphon.simulator.scenario.protocols.stan import no_orders as no_orders_in_stan
from antiphon.simulator.scenario.protocols.tree import TreeTableOptions, tree_builder
from antiphon.simulator.scenario.protocols.tree import no_orders as no_orders_in_tree
from antiphon.simulator.scenario.scenario import NetworkTable


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
