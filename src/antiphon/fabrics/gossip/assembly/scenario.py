"""The protocols of the gossip fabric in scenarios: their options, and the processes built from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from antiphon.fabrics.cube.topic import ORDERS
from antiphon.fabrics.cube.topology import full_or_partial
from antiphon.fabrics.gossip.assembly.settings import (
    BrisaTableOptions,
    FloodingOptions,
    GroupTableOptions,
    brisa_options,
)
from antiphon.fabrics.gossip.epto.topic import TotalOptions
from antiphon.fabrics.gossip.options import BrisaOptions
from antiphon.fabrics.gossip.process import Brisa
from antiphon.fabrics.protocol import Builder, DiskKind, DiskOptions, Mistake, Protocol, Setting
from antiphon.kernel.errors import UsageError
from antiphon.kernel.process import Environment, Process
from antiphon.kernel.randomness import RandomStream
from antiphon.orders.order import Order

DEFAULT_CONTACTS = 3

CLOCK_STREAM = 10
"""The random stream for the errors of clocks."""


def contacts_of(chosen: GroupTableOptions, nodes: int) -> list[int]:
    """The nodes through which others join."""
    return list(range(min(DEFAULT_CONTACTS, nodes))) if chosen.contacts is None else chosen.contacts


def gossip_options(setting: Setting) -> BrisaOptions:
    """The options of all processes of BRISA, or of flooding on the same overlay; a UsageError if they cannot work."""
    chosen: FloodingOptions = setting.options
    total = None
    if isinstance(chosen, BrisaTableOptions) and (setting.mixed or setting.order == "total"):
        total = total_options(chosen, setting.nodes, setting.loss, setting.seed)
    return brisa_options(chosen, contacts_of(chosen, setting.nodes), setting.order, setting.mixed, total)


def total_options(chosen: BrisaTableOptions, nodes: int, loss: float, seed: int) -> TotalOptions:
    """Total order on topics, as if all nodes took part in each."""
    errors = (RandomStream(seed, CLOCK_STREAM, node) for node in range(nodes))
    # Stamps are not negative: all clocks are ahead of the host's by the largest error.
    skews = [chosen.skew + int(each.between(-chosen.skew, chosen.skew)) for each in errors] if chosen.skew else []
    return TotalOptions(chosen.epto_options(nodes, loss), skews, chosen.granularity)


MakeOptions = Callable[[Setting], BrisaOptions]
MakeProcess = Callable[[Environment, Any], Brisa]


def gossip_builder(setting: Setting, options: BrisaOptions, make: MakeProcess) -> Builder:
    """A function that builds the process at one node; the first contact founds the topics, and all others join."""
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


def gossip_protocol(
    options: type[GroupTableOptions], make_options: MakeOptions, make: MakeProcess, **differences: Any
) -> Protocol:
    """Describe a protocol of the gossip fabric by its scenario options, its process options, and its process."""

    def prepare(setting: Setting) -> Builder:
        return gossip_builder(setting, make_options(setting), make)

    def mistake(chosen: GroupTableOptions, nodes: int) -> Mistake | None:
        for number, contact in enumerate(chosen.contacts or ()):
            if contact >= nodes:
                return Mistake(("contacts", number), f"there is no node {contact}; choose from 0 to {nodes - 1}")
        try:
            make_options(Setting(full_or_partial(nodes), nodes, "none", chosen, ()))
        except UsageError as error:
            return Mistake((), str(error))
        return None

    usual: dict[str, Any] = {"orders": ORDERS, "has_topics": True, "mixes_orders": True, "recovers": True}
    return Protocol(options, prepare, orders_of=orders_of_gossip, mistake=mistake, **{**usual, **differences})


def orders_of_gossip(process: Process) -> list[Order]:
    """The order of each topic that a node takes part in."""
    assert isinstance(process, Brisa), "asked about the gossip fabric"
    return process.orders()


def disks_of_gossip(options: BrisaTableOptions) -> DiskOptions | None:
    """Logs from which other nodes ask for single publications."""
    return DiskOptions(DiskKind.ASKED_LOG, options.log, nodes=options.log_nodes) if options.log > 0 else None
