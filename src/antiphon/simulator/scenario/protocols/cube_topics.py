"""Topics on the cube: how the processes of VCube-PS and of its baselines are built from a scenario."""

from __future__ import annotations

import msgspec

from antiphon.fabrics.cube.directory import Directory
from antiphon.fabrics.cube.lasting import LastingVCubePs
from antiphon.fabrics.cube.packets import PacketFormat
from antiphon.fabrics.cube.published_delivery import PublishedDelivery
from antiphon.fabrics.cube.rerouting import FaultOptions
from antiphon.fabrics.cube.srpt import SingleRootPerTopic, SrptOptions, brokers
from antiphon.fabrics.cube.topology import PartialCube, dimension_for
from antiphon.fabrics.cube.vcube_ps import Options, VCubePs
from antiphon.fabrics.cube.vcube_ps_aggregation import AggregatingVCubePs
from antiphon.fabrics.cube.vcube_ps_published import PublishedOptions, PublishedVCubePs
from antiphon.fabrics.cube.view import View
from antiphon.kernel.process import Environment, Process
from antiphon.orders.order import Order
from antiphon.simulator.scenario.protocols.options import (
    BrokerOptions,
    LastingOptions,
    PublishedVCubePsOptions,
    SrptTableOptions,
    VCubePsOptions,
)
from antiphon.simulator.scenario.protocols.protocol import Builder, Mistake, Setting


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

    def build(environment: Environment) -> VCubePs:
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
    assert isinstance(process, VCubePs), "asked about VCube-PS"
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
