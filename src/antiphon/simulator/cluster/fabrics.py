"""Which membership and which process a simulated node has, by its fabric: those of a live node with its defaults."""

from __future__ import annotations

from typing import Final, NamedTuple

from antiphon.fabrics.cube.fault_tolerant import LastingVCubePs
from antiphon.fabrics.cube.topic import FaultOptions, Options
from antiphon.fabrics.cube.topology import PartialCube, dimension_for
from antiphon.fabrics.gossip.epto.options import EptoOptions
from antiphon.fabrics.gossip.epto.topic import TotalOptions
from antiphon.fabrics.gossip.options import BrisaOptions
from antiphon.fabrics.gossip.process import Brisa
from antiphon.fabrics.gossip.sampling.hyparview import HyParViewOptions
from antiphon.fabrics.tree.broker import TreeBroker
from antiphon.fabrics.tree.options import TreeOptions
from antiphon.fabrics.tree.quorum import Council
from antiphon.fabrics.tree.topology import Overlay, overlay_of_newcomer, regular_parents
from antiphon.kernel.process import NO_NODE, Environment, Process
from antiphon.membership.cube_members import Companions
from antiphon.membership.host import Place, microseconds
from antiphon.membership.membership import Membership
from antiphon.membership.partial_view import EVERYBODY, Acquaintances
from antiphon.membership.tree_members import Brokers, Founders

WINDOW: Final = 64
CONTACTS: Final = 3


class NodeSettings(NamedTuple):
    """The settings of a simulated node; :class:`antiphon.membership.host.MembershipSettings`."""

    fabric: str
    join: list[str]
    founders: list[str]
    """The addresses in the table of a tree; none elsewhere."""
    join_seconds: float = 15.0
    lost_seconds: float = 1.0
    forget_seconds: float = 600.0
    maximum_nodes: int = 64
    cluster: str = "antiphon"


def new_membership(settings: NodeSettings, place: Place) -> Membership:
    """How a node finds the others."""
    if settings.fabric == "tree":
        return Brokers(place, Founders(settings.founders, []), True)
    if settings.fabric == "gossip":
        return Acquaintances(place, CONTACTS)
    return Companions(place)


def new_process(settings: NodeSettings, environment: Environment, members: list[int]) -> Process:
    """The process of a node that has its place beside these others; in gossip they are the contacts."""
    if settings.fabric == "tree":
        return new_broker(settings, environment, members)
    if settings.fabric == "gossip":
        return new_gossip(environment, members)
    me = int(environment.identifier)
    options = Options(order="causal", window=WINDOW, bundle=1, mixed=True, total=True)
    faults = FaultOptions(2 * WINDOW + 1, 100_000, microseconds(settings.forget_seconds), 2_000_000)
    process = LastingVCubePs(environment, PartialCube(dimension_for(me + 1), [me]), options, faults)
    if members:
        process.begin_as_newcomer()
    return process


def new_broker(settings: NodeSettings, environment: Environment, members: list[int]) -> TreeBroker:
    """A broker: a founder knows the first tree, a newcomer those who may know it."""
    founders = max(1, len(settings.founders))
    if environment.identifier < founders:
        parents = regular_parents(founders, 2)
        council = Council(1, [list(range(founders))])
        overlay = Overlay(1, parents.index(int(NO_NODE)), dict(enumerate(parents)), [], council)
    else:
        overlay = overlay_of_newcomer(int(environment.identifier), members)
    options = TreeOptions(
        patience_ticks=500_000,
        collect_ticks=20_000,
        window=WINDOW,
        quorum=True,
        council_ticks=2_000_000,
        absence_ticks=600_000_000,
        nearest_first=True,
    )
    return TreeBroker(environment, options, overlay)


def new_gossip(environment: Environment, contacts: list[int]) -> Brisa:
    """A process that takes part in the overlay of all nodes from its start; the first contact founds it."""
    epto = EptoOptions(
        64, period=50_000, clock="logical", patience=100, adapts=True, loss=0.1, carried=True, least_period=20_000
    )
    options = BrisaOptions(
        HyParViewOptions(4, 30, 2.0),
        contacts,
        "causal",
        True,
        1,
        "delay",
        1,
        0,
        100_000,
        8,
        64,
        1024,
        0,
        window=WINDOW,
        total=TotalOptions(epto, []),
        longest_wait=10_000_000,
    )
    process = Brisa(environment, options)
    if environment.identifier == contacts[0]:
        process.begin_as_contact(EVERYBODY, True)
    process.begin_as_member(EVERYBODY)
    return process
