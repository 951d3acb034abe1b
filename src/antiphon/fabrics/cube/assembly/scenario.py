"""Builds the processes of VCube-PS, topics on the cube, from a scenario."""

from __future__ import annotations

from typing import Final

from antiphon.fabrics.cube.aggregation.packets import PacketFormat
from antiphon.fabrics.cube.aggregation.process import AggregatingVCubePs
from antiphon.fabrics.cube.assembly.settings import LastingOptions, VCubePsOptions
from antiphon.fabrics.cube.fault_tolerant import FaultTolerantVCubePs
from antiphon.fabrics.cube.process import CubeProcess
from antiphon.fabrics.cube.topic import FaultOptions
from antiphon.fabrics.cube.topology import PartialCube, dimension_for
from antiphon.fabrics.cube.vcube_ps import Options, VCubePs
from antiphon.fabrics.cube.view import View
from antiphon.fabrics.protocol import Builder, DiskKind, DiskOptions, Mistake, Protocol, Setting
from antiphon.kernel.message import ORDER_NAMES
from antiphon.kernel.process import Environment, Process
from antiphon.orders.order import Order


def prepare_vcube_ps(setting: Setting) -> Builder:
    """Prepare topics over trees of subscribers; the members at the start know each other."""
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
    """The order of each topic that a node knows."""
    assert isinstance(process, CubeProcess), "asked about VCube-PS"
    return [topic.order for topic in process.topics()]


def prepare_lasting(setting: Setting) -> Builder:
    """Prepare the fault-tolerant form: every node expects all others, and is told which are down."""
    chosen: LastingOptions = setting.options
    options = Options(setting.order, chosen.window, True, chosen.bundle, False, True, setting.total)
    faults = FaultOptions(chosen.keep, chosen.compare, chosen.forget, chosen.exclude)
    dimension = dimension_for(setting.nodes)
    views = [View(dimension, [node for node in members if node not in setting.absent]) for members in setting.members]
    everybody = [node for node in range(setting.nodes) if node not in setting.later_incarnations]
    built: set[int] = set()

    def build(environment: Environment) -> FaultTolerantVCubePs:
        node = int(environment.identifier)
        # As with live nodes, a later incarnation and the others do not know each other at first.
        known = [node] if node in setting.later_incarnations else everybody
        process = FaultTolerantVCubePs(environment, PartialCube(dimension, known), options, faults)
        process.begin_counting_at(environment.now())
        if node in built:
            # Its log has its subscriptions.
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
    """Refuse a buffer smaller than the window, and a node that forgets before it compares."""
    if options.keep < options.window + options.bundle:
        least = options.window + options.bundle
        return Mistake(("keep",), f"fewer publications are kept than may be in transit; for example: keep = {least}")
    if options.forget < options.compare:
        return Mistake(
            ("forget",), f"a node must compare before it forgets; for example: forget = {100 * options.compare}"
        )
    return None


def disks_of_lasting(options: LastingOptions) -> DiskOptions | None:
    """Logs that survive crashes."""
    return DiskOptions(DiskKind.LASTING_LOG, options.log, options.sync) if options.log > 0 else None


VCUBE_PS: Final = Protocol(
    VCubePsOptions,
    prepare_vcube_ps,
    orders_of_vcube_ps,
    ORDER_NAMES,
    has_topics=True,
    mixes_orders=True,
    has_keys=True,
    has_spaces=True,
    tolerates_faults=False,
)
LASTING: Final = Protocol(
    LastingOptions,
    prepare_lasting,
    orders_of_vcube_ps,
    ORDER_NAMES,
    mistake=mistake_in_lasting,
    has_topics=True,
    mixes_orders=True,
    has_keys=True,
    has_spaces=True,
    needs_connections=True,
    outlives_publishers=True,
    recovers=True,
    remembers=True,
    disks=disks_of_lasting,
)
