"""The code of the broker tree: its messages, its process on a live node, and its protocol in scenarios."""

from __future__ import annotations

from typing import Final

from antiphon.fabrics.fabric import Implementation, NodeChoices, ProcessTraits
from antiphon.fabrics.tree.assembly.scenario import BROKER_TREE
from antiphon.fabrics.tree.assembly.settings import ALL_TOPICS, TREE_TABLE, TreeTable
from antiphon.fabrics.tree.broker import TreeBroker
from antiphon.fabrics.tree.messages import NUMBERED
from antiphon.fabrics.tree.topology import overlay_of_newcomer
from antiphon.kernel.errors import UsageError
from antiphon.kernel.process import Environment, Process


def new_process(choices: NodeChoices, environment: Environment, members: list[int]) -> Process:
    """The broker of a node: a founder knows the first tree, a newcomer knows nodes that may know the tree."""
    table: TreeTable = choices.table
    founders = max(1, len(table.brokers))
    me = int(environment.identifier)
    overlay = table.behaviour().overlay(founders) if me < founders else overlay_of_newcomer(me, members)
    options = table.process_options(choices.order, choices.window, choices.names.topic_number)
    return TreeBroker(environment, options, overlay)


def traits(table: TreeTable) -> ProcessTraits:
    """The traits of a live node."""
    behaviour = table.behaviour()
    return ProcessTraits(behaviour.strict_session, len(table.quorum_delivery) > 0, behaviour.quorum)


def check(choices: NodeChoices, joins: bool) -> None:
    """Refuse a table that describes no tree, or a tree that nobody can join."""
    table: TreeTable = choices.table
    for address in table.brokers:
        choices.names.check_address(address)
    for name in table.quorum_delivery:
        if name != ALL_TOPICS:
            choices.names.check_topic(name)
    table.check()
    if joins and not table.behaviour().quorum:
        raise UsageError("nobody joins a tree without a quorum: leave out join, or write quorum = true in [tree]")


IMPLEMENTATION: Final = Implementation(
    messages=NUMBERED,
    protocols={"broker-tree": BROKER_TREE},
    new_process=new_process,
    traits=traits,
    table=TREE_TABLE,
    check=check,
)
