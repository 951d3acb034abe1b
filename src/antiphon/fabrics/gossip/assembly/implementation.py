"""The code of the gossip fabric: its messages, its process on a live node, and its protocols in scenarios."""

from __future__ import annotations

from typing import Any, Final

from antiphon.fabrics.fabric import Implementation, NodeChoices, ProcessTraits
from antiphon.fabrics.gossip import messages
from antiphon.fabrics.gossip.assembly.epto_scenario import EPTO, misfit_of_topics
from antiphon.fabrics.gossip.assembly.scenario import disks_of_gossip, gossip_options, gossip_protocol
from antiphon.fabrics.gossip.assembly.settings import (
    EVERYBODY,
    GOSSIP_TABLE,
    BrisaTableOptions,
    FloodingOptions,
    GossipTable,
)
from antiphon.fabrics.gossip.epto import messages as epto
from antiphon.fabrics.gossip.process import Brisa
from antiphon.fabrics.gossip.sampling import hyparview
from antiphon.kernel.message import ORDER_NAMES, TOTAL
from antiphon.kernel.process import Environment, Process


def new_process(choices: NodeChoices, environment: Environment, contacts: list[int]) -> Process:
    """A process that takes part in the overlay of all nodes from its start; the first contact founds it."""
    table: GossipTable = choices.table
    process = Brisa(environment, table.process_options(choices.order, choices.window, contacts))
    if environment.identifier == contacts[0]:
        process.begin_as_contact(EVERYBODY, True)
    process.begin_as_member(EVERYBODY)
    return process


def traits(_table: Any) -> ProcessTraits:
    """The traits of a live node."""
    return ProcessTraits()


def check(choices: NodeChoices, _joins: bool) -> None:
    """Refuse a table with which no overlay emerges."""
    table: GossipTable = choices.table
    table.process_options("causal", choices.window, [0])


IMPLEMENTATION: Final = Implementation(
    messages={**messages.NUMBERED, **hyparview.NUMBERED, **epto.NUMBERED},
    protocols={
        "brisa": gossip_protocol(
            BrisaTableOptions,
            gossip_options,
            Brisa,
            orders=ORDER_NAMES,
            misfit=misfit_of_topics,
            holes_in=ORDER_NAMES[TOTAL],
            disks=disks_of_gossip,
            keeps_after_cut=True,
        ),
        "flooding": gossip_protocol(FloodingOptions, gossip_options, Brisa),
        "epto": EPTO,
    },
    new_process=new_process,
    traits=traits,
    table=GOSSIP_TABLE,
    check=check,
)
