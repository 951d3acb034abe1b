"""The fabrics, protocols and orders that a scenario can name.

Each simulated protocol is one entry of ``PROTOCOLS``: its fabric, the options that it takes from the table
``[protocol-options]`` of a scenario, its capabilities, and a function that prepares a run and returns a builder of its
process at one node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol as Shape

from antiphon.fabrics.gossip.process import Brisa
from antiphon.fabrics.registry import FABRICS as REGISTERED
from antiphon.fabrics.tree.topology import wrong_parents
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import ORDER_NAMES, TOTAL
from antiphon.plugins import PROTOCOLS as PLUGGED
from antiphon.plugins import plugins
from antiphon.simulator.scenario.protocols.cube_broadcast import (
    ORDERS,
    order_of_broadcast,
    prepare_broadcast,
    prepare_single_tree,
)
from antiphon.simulator.scenario.protocols.cube_topics import (
    mistake_in_lasting,
    orders_of_vcube_ps,
    prepare_lasting,
    prepare_vcube_ps,
)
from antiphon.simulator.scenario.protocols.epto import EptoTableOptions, check_epto, check_topics, epto_builder
from antiphon.simulator.scenario.protocols.epto import no_orders as no_orders_in_epto
from antiphon.simulator.scenario.protocols.gossip import gossip_options, gossip_protocol
from antiphon.simulator.scenario.protocols.options import (
    BrisaTableOptions,
    BroadcastOptions,
    FloodingOptions,
    LastingOptions,
    SingleTreeOptions,
    VCubePsOptions,
)
from antiphon.simulator.scenario.protocols.protocol import Builder, Mistake, Protocol, Setting
from antiphon.simulator.scenario.protocols.tree import TreeTableOptions, tree_builder
from antiphon.simulator.scenario.protocols.tree import no_orders as no_orders_in_tree
from antiphon.simulator.scenario.scenario import NetworkTable


class HasParents(Shape):
    """Options with a list of parents."""

    @property
    def parents(self) -> list[int] | None: ...


def prepare_tree(setting: Setting) -> Builder:
    """Prepare a broker tree."""
    return tree_builder(setting.options, setting.nodes, setting.order, setting.members, absent=setting.absent)


def mistake_in_tree(options: HasParents, nodes: int) -> Mistake | None:
    """Refuse parents that do not form a tree."""
    wrong = None if options.parents is None else wrong_parents(options.parents, nodes)
    return None if wrong is None else Mistake(("parents",), f"{wrong}; for example: parents = [-1, 0, 0]")


def prepare_epto(setting: Setting) -> Builder:
    """Prepare EpTO."""
    return epto_builder(setting.options, setting.nodes, setting.loss, setting.seed)


def misfit_of_epto(options: EptoTableOptions | BrisaTableOptions, nodes: int, network: NetworkTable) -> Mistake | None:
    """Refuse options with which events do not reach all nodes, or reach them after they were considered stable."""
    try:
        if isinstance(options, EptoTableOptions):
            check_epto(options, nodes, network)
        else:
            check_topics(options, nodes, network)
    except UsageError as error:
        return Mistake((), str(error))
    return None


FABRICS = tuple(sorted(REGISTERED))

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
    needs_quorum=True,
    parents_option="parents",
)

OWN = {
    "broadcast": Protocol("cube", BroadcastOptions, prepare_broadcast, order_of_broadcast, tuple(ORDERS)),
    "single-tree": Protocol(
        "cube", SingleTreeOptions, prepare_single_tree, order_of_broadcast, tuple(ORDERS), node_options=("root",)
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
    "brisa": gossip_protocol(
        BrisaTableOptions,
        gossip_options,
        Brisa,
        orders=ORDER_NAMES,
        misfit=misfit_of_epto,
        holes_in=ORDER_NAMES[TOTAL],
    ),
    "broker-tree": BROKER_TREE,
    "flooding": gossip_protocol(FloodingOptions, gossip_options, Brisa),
    "epto": Protocol(
        "gossip",
        EptoTableOptions,
        prepare_epto,
        no_orders_in_epto,
        ("total",),
        misfit=misfit_of_epto,
        agrees_probably=True,
    ),
}
"""The protocols that come with the product."""


class Registry(Mapping[str, Protocol]):
    """The protocols by the names that scenarios use: those of the product, then those of other distributions."""

    def __getitem__(self, name: str) -> Protocol:
        return OWN[name] if name in OWN else self._plugged()[name]

    def __iter__(self) -> Iterator[str]:
        yield from OWN
        yield from self._plugged()

    def __len__(self) -> int:
        return len(OWN) + len(self._plugged())

    @staticmethod
    def _plugged() -> dict[str, Protocol]:
        return {name: found for more in plugins(PLUGGED).values() for name, found in more.items()}


PROTOCOLS = Registry()
