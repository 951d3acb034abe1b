"""What differs between fabrics at a live node: its process, the messages that it understands, and who belongs to it."""

from __future__ import annotations

from typing import Final

from antiphon.fabrics.cube.fault_tolerant import LastingVCubePs
from antiphon.fabrics.cube.topic import FaultOptions, Options
from antiphon.fabrics.cube.topology import PartialCube, dimension_for
from antiphon.fabrics.gossip.process import Brisa
from antiphon.fabrics.tree.broker import TreeBroker
from antiphon.fabrics.tree.topology import overlay_of_newcomer
from antiphon.kernel.process import Environment, Process
from antiphon.membership.cube_members import Companions
from antiphon.membership.host import Place
from antiphon.membership.membership import Membership
from antiphon.membership.partial_view import EVERYBODY, Acquaintances
from antiphon.membership.tree_members import Brokers, Founders
from antiphon.node.gossip_settings import GossipTable
from antiphon.node.settings import Settings
from antiphon.node.tree_settings import TreeTable

KEPT_BESIDE: Final = 64
"""So many batches of each publisher are kept in memory beyond those that may be under way."""

LARGEST_BATCH_BYTES: Final = 16 << 20
"""More than one message of the largest size, with everything around it."""

COMPARE_TICKS: Final = 100_000
"""How often members of a topic compare what they have while something is wrong, in microseconds."""

EXCLUDE_TICKS: Final = 2_000_000
"""How long total order on a cube waits for a node that cannot be reached, in microseconds: until all have noticed."""


def new_membership(settings: Settings, place: Place) -> Membership:
    """How a node finds the others."""
    if isinstance(settings.tree, TreeTable):
        return Brokers(place, Founders(settings.tree.brokers, settings.tree.names), settings.tree.quorum)
    if isinstance(settings.gossip, GossipTable):
        return Acquaintances(place, settings.gossip.contacts)
    return Companions(place)


def new_process(settings: Settings, environment: Environment, members: list[int]) -> Process:
    """The process of a node that has its place beside these others; in gossip they are the contacts."""
    if isinstance(settings.tree, TreeTable):
        founders = max(1, len(settings.tree.brokers))
        is_founder = environment.identifier < founders
        overlay = settings.tree.overlay() if is_founder else overlay_of_newcomer(int(environment.identifier), members)
        return TreeBroker(environment, settings.tree.options(settings.order, settings.window), overlay)
    if isinstance(settings.gossip, GossipTable):
        return new_gossip(settings, settings.gossip, environment, members)
    process = new_cube(settings, environment, cube_options(settings))
    if members:
        process.begin_as_newcomer()
    return process


def cube_options(settings: Settings) -> Options:
    """How the process of a node of a cube behaves."""
    # A batch is one publication, and waiting messages make batches longer: the process needs no bundles of them.
    return Options(order=settings.order, window=settings.window, bundle=1, mixed=True, total=True)


def new_cube(settings: Settings, environment: Environment, options: Options) -> LastingVCubePs:
    """A process that hears of others when they are there."""
    alone = PartialCube(dimension_for(int(environment.identifier) + 1), [int(environment.identifier)])
    keep = settings.window + options.bundle + KEPT_BESIDE
    # A publisher has `window_bytes` and one batch under way at most. Other nodes may have other settings.
    keep_bytes = 3 * settings.window_bytes + LARGEST_BATCH_BYTES
    forget_ticks = int(settings.forget_seconds * 1_000_000)
    faults = FaultOptions(keep, COMPARE_TICKS, forget_ticks, EXCLUDE_TICKS, keep_bytes)
    return LastingVCubePs(environment, alone, options, faults)


def new_gossip(settings: Settings, table: GossipTable, environment: Environment, contacts: list[int]) -> Brisa:
    """A process that takes part in the overlay of all nodes from its start; the first contact founds it."""
    process = Brisa(environment, table.options(settings.order, settings.window, contacts))
    if environment.identifier == contacts[0]:
        process.begin_as_contact(EVERYBODY, True)
    process.begin_as_member(EVERYBODY)
    return process
