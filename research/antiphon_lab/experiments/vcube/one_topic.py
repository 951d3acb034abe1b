"""One topic and its members, over each of the systems that chapter 5 of the thesis compares.

A **group** is drawn at random: the members of the topic, the member that publishes, and the node that is the root where
there is a single one. All systems get the same group for the same seed. Members know each other from the start, so
nothing is sent before the first publication.

A hop costs 1 tick in the sender's output queue, 100 of propagation and 1 of processing (thesis, section 5.6.1). As
published, acknowledgements cost nothing; ``charged`` makes them wait in the output queue like everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from antiphon.audit.findings import Findings
from antiphon.audit.oracle import judge
from antiphon.fabrics.cube.topology import full_or_partial
from antiphon.fabrics.cube.vcube_ps import Options, VCubePs
from antiphon.fabrics.cube.view import View
from antiphon.kernel.process import Environment, Process
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.engine.engine import Engine, SimulatedApplication
from antiphon.simulator.network.delays import ConstantDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon.simulator.scenario.subscriptions import draw_nodes
from antiphon.trace.store import MemoryTrace
from antiphon_lab.protocols.cube.srpt import SingleRootPerTopic, SrptOptions
from antiphon_lab.protocols.cube.vcube_ps_published import PublishedVCubeOptions, PublishedVCubePs

TRANSMISSION_TICKS = 1
PROPAGATION_TICKS = 100
PROCESSING_TICKS = 1
HOP_TICKS = TRANSMISSION_TICKS + PROPAGATION_TICKS + PROCESSING_TICKS

MODEL: dict[str, object] = {
    "transmission_ticks": TRANSMISSION_TICKS,
    "propagation_ticks": PROPAGATION_TICKS,
    "processing_ticks": PROCESSING_TICKS,
}

PUBLISHED = "VCube-PS"
REPAIRED = "VCube-PS repaired"
ONE_ROOT = "SRPT"

TOPIC = 0

GROUP_STREAM = 102
"""Names the stream from which groups are drawn; the small numbers are the simulator's, 101 draws the root elsewhere."""

Build = Callable[[Environment], Process]


@dataclass(frozen=True)
class Group:
    """The participants. ``members`` are in ascending order, and ``publisher`` is one of them."""

    nodes: int
    members: tuple[int, ...]
    publisher: int
    root: int

    @property
    def outsiders(self) -> list[int]:
        """The nodes that are no members, ascending."""
        present = set(self.members)
        return [node for node in range(self.nodes) if node not in present]

    def view(self) -> View:
        """The view of every member at the start."""
        return View(full_or_partial(self.nodes).dimension, self.members)


def draw_group(nodes: int, member_count: int, seed: int) -> Group:
    """Members, publisher and root, each choice as likely as any other."""
    random = RandomStream(seed, GROUP_STREAM)
    members = draw_nodes(member_count, nodes, random)
    publisher = members[random.below(member_count)]
    return Group(nodes, tuple(members), publisher, int(random.below(nodes)))


def as_published(group: Group, switches: Mapping[str, bool] | None = None) -> Build:
    """VCube-PS as published; ``switches`` are those :class:`PublishedVCubeOptions` that differ from ``minimal``."""
    cube = full_or_partial(group.nodes)
    view = group.view()
    options = PublishedVCubeOptions(**(switches or {}))

    def build(environment: Environment) -> Process:
        process = PublishedVCubePs(environment, cube, options)
        if view.contains(environment.identifier):
            process.begin_as_member(TOPIC, view)
        return process

    return build


def as_repaired(group: Group, options: Options | None = None) -> Build:
    """VCube-PS repaired, with its defaults where no options are given."""
    cube = full_or_partial(group.nodes)
    view = group.view()
    chosen = Options() if options is None else options

    def build(environment: Environment) -> Process:
        process = VCubePs(environment, cube, chosen)
        if chosen.directory:
            process.begin_as_home(TOPIC, group.members)
        if view.contains(environment.identifier):
            process.begin_as_member(TOPIC, view)
        return process

    return build


def with_one_root(group: Group) -> Build:
    """A single root per topic (SRPT); a non-member on the path to a member knows that too."""
    view = group.view()
    options = SrptOptions(full_or_partial(group.nodes), group.nodes, [group.root])

    def build(environment: Environment) -> Process:
        process = SingleRootPerTopic(environment, options)
        if view.contains(environment.identifier):
            process.begin_as_member(TOPIC, view)
        else:
            process.begin_as_relay(TOPIC, view)
        return process

    return build


class TopicRun:
    """A simulated system with a trace in memory, ready for actions. ``level`` is that of the trace."""

    def __init__(
        self,
        group: Group,
        build: Build,
        seed: int,
        charged: bool,
        level: str = "everything",
        application: SimulatedApplication | None = None,
    ) -> None:
        self.group = group
        self.trace = MemoryTrace(level)
        network = NetworkModel(
            ConstantDelay(PROPAGATION_TICKS), TRANSMISSION_TICKS, PROCESSING_TICKS, charge_control=charged
        )
        self.engine = Engine(group.nodes, network, build, seed, self.trace.recorder, application=application)

    def finish(self) -> None:
        """Run until nothing is left to do."""
        stopped = self.engine.run()
        assert stopped == "finished", "a run without limits ends when nothing is left"

    def latency(self) -> float:
        """The mean latency of deliveries at other nodes than the publisher's, in ticks."""
        engine = self.engine
        elsewhere = int(engine.deliveries - engine.own_deliveries)
        assert elsewhere > 0, "a publication has somebody to go to"
        return int(engine.latency_sum) / elsewhere

    def reception_latency(self) -> float:
        """The mean age at which copies of publications arrive, in ticks since the application asked to publish."""
        assert self.engine.receptions > 0, "a publication has somebody to go to"
        return int(self.engine.reception_ticks) / int(self.engine.receptions)

    def start_delay(self) -> float:
        """How long publications waited at their publishers for earlier ones, in ticks."""
        return int(self.engine.start_ticks) / int(self.engine.own_deliveries)

    def judgement(self) -> Findings:
        """The verdict of the oracle, which knows no protocol, on the run."""
        return judge(self.trace.table(), self.group.nodes)
