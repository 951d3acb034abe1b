"""Runs a scenario: builds it, runs it, and reports the result."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from antiphon.fabrics.cube.topology import Cube, PartialCube, dimension_for, full_or_partial
from antiphon.fabrics.gossip.process import Brisa
from antiphon.fabrics.protocol import DiskKind, DiskOptions, Setting, WaitingCounts
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import ORDER_NAMES, TOTAL, UNSPECIFIED
from antiphon.kernel.process import Environment, Process
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.engine import actions
from antiphon.simulator.engine.disks import (
    BrokerDisks,
    ContinueAction,
    CubeDisks,
    Disks,
    DiskSyncAction,
    DiskTroubleAction,
    GossipDisks,
)
from antiphon.simulator.engine.engine import Engine, SimulatedApplication
from antiphon.simulator.engine.events import NEVER
from antiphon.simulator.network.delays import ConstantDelay, Delay, LinkDelay, MatrixDelay, NormalDelay, QuantileDelay
from antiphon.simulator.network.network import NetworkModel, NetworkPartition
from antiphon.simulator.scenario.file import check_scenario
from antiphon.simulator.scenario.incarnations import returns_as_itself
from antiphon.simulator.scenario.promises import loses, promised_to, why_not_judged
from antiphon.simulator.scenario.protocols import PROTOCOLS
from antiphon.simulator.scenario.scenario import (
    BesideLives,
    ClockFault,
    ConstantLaw,
    CrashFault,
    DiskFault,
    JoinFault,
    LeaveFault,
    LinkLaw,
    MatrixLaw,
    NormalLaw,
    PartitionFault,
    PauseFault,
    QuantileLaw,
    RestartFault,
    ResumeFault,
    Scenario,
    Targeted,
    expand_nodes,
)
from antiphon.simulator.scenario.spaces import barriers_of, fabric_process, with_spaces
from antiphon.simulator.scenario.subscriptions import changes_by_time, first_members
from antiphon.simulator.scenario.verdict import Witness, agreement, judge_run
from antiphon.simulator.scenario.workload import plan
from antiphon.trace.recorder import Recorder

LINK_STREAM = 4
"""The random stream for the delays of links; the engine uses 1 and 2, the workload 3."""

EVENTS_PER_SLICE = 1 << 18
"""The interval of reports to a watcher. It is counted in events, so that watching changes no byte of the trace."""

Watcher = Callable[[int, int], None]
"""Called now and then with the number of events and the time in the run."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run."""

    scenario: str
    seed: int
    nodes: int
    stopped: str
    """``finished``, or the limit that ended the run: ``time limit`` or ``event limit``."""
    events: int
    end_time: int
    """The time of the last event."""
    planned: int
    """Publications that the scenario requested."""
    published: int
    """Publications that were made: the node was up and the run had not ended."""
    sent: int
    """Copies and acknowledgements."""
    dropped: int
    """Copies that were lost: by the network, by a partition, or because sender or receiver was down."""
    refused: int
    """Copies of publications that reached a node that was not a member of their topic."""
    deliveries: int
    expected_deliveries: int | None
    """Each publication at each node; unknown where nodes crash, join or leave."""
    lost: int
    """Deliveries that a node has given up and reported: publications that no node kept, or that arrived too late."""
    agreed: int | None
    owed: int | None
    """Where agreement is only probable: publications that all remaining nodes delivered, and that at least one did."""
    latency_mean: float | None
    """The mean over deliveries at other nodes than the publisher's; None if there are none."""
    latency_max: int | None
    held_total: int
    """Publications that had to wait for others before they could be delivered, added up over the nodes."""
    held_peak: int
    """The most publications that waited at one node at one time."""
    held_at_end: int
    """Publications that still waited at the end, at nodes that had not crashed."""
    recovered: int
    """How often a gossip node that had lost all parents in a structure received something from a new parent."""
    recovery_ticks: int
    """The total time of these recoveries, including the time until something was published."""
    longest_recovery: int
    violations: dict[str, int] | None
    """The number of violations of each promise that applies; null if the run was not judged."""
    judgement: str
    """The same as a sentence, with examples; or why there is no judgement."""
    trace: str | None
    trace_rows: int | None
    seconds: float
    events_per_second: float


class Simulation:
    """A scenario, built and ready to run once."""

    def __init__(
        self, scenario: Scenario, recorder: Recorder | None = None, application: SimulatedApplication | None = None
    ) -> None:
        """``application`` watches what nodes deliver; only where nodes have no disks, which would take its place."""
        check_scenario(scenario)
        self.scenario = scenario
        self.cube = build_cube(scenario)
        self._protocol = PROTOCOLS[scenario.protocol]
        options = msgspec.convert(scenario.protocol_options, self._protocol.options)
        members = first_members(scenario) if self._protocol.has_topics else []
        absent = scenario.absent_at_start()
        setting = Setting(
            self.cube,
            scenario.nodes,
            scenario.order,
            options,
            members,
            scenario.mixes_orders(),
            scenario.orders_totally(),
            absent,
            scenario.network.loss,
            scenario.seed,
            scenario.later_incarnations(),
        )
        self._build = with_spaces(self._protocol.prepare(setting), scenario, options)
        disks = None if self._protocol.disks is None else self._protocol.disks(options)
        # Every process that ever existed; its counters survive its node's crash.
        self._processes: list[Process] = []
        self.engine = Engine(
            scenario.nodes,
            build_network(scenario),
            self._build_process,
            scenario.seed,
            recorder,
            can_fail=len(scenario.faults) > 0,
            absent=absent,
            application=application_of(disks) or application,
            reconnects=self._protocol.remembers,
            knows_incarnations=disks is not None and disks.kind is DiskKind.JOURNAL,
        )
        schedule_faults(self.engine, scenario, self.cube)
        schedule_subscriptions(self.engine, scenario)
        self.planned = 0
        for at, node, payload, topic, order, keys in plan(scenario):
            # The trace records it: a total publication starts when it is requested, and not when its publisher delivers
            # it.
            chosen = int(TOTAL) if order == UNSPECIFIED and scenario.order == ORDER_NAMES[TOTAL] else order
            self.engine.at(at, actions.PublishAction(node, payload, topic, chosen, list(keys) if keys else None))
            self.planned += 1

    def _build_process(self, environment: Environment) -> Process:
        process = self._build(environment)
        self._processes.append(process)
        return process

    def stuck(self) -> int:
        """The amount of work that present processes have begun, or were asked for, and have not finished.

        Where all nodes are back, a node that still refuses total publications counts as stuck.
        """
        present = [node.process for node in self.engine.nodes if node.process is not None]
        unfinished = sum(int(process.unfinished()) for process in present)
        if len(present) < self.scenario.nodes or not returns_as_itself(self.scenario) or loses(self.scenario):
            return unfinished
        return unfinished + sum(process.refusal(TOTAL) is not None for process in present)

    def run(self, watch: Watcher | None = None) -> str:
        """Run to the end or to a limit; returns which."""
        engine = self.engine
        limits = self.scenario.limits
        collecting = gc.isenabled()
        # The engine leaves the garbage collector as it is; between slices the collector must not visit everything.
        gc.disable()
        try:
            while True:
                stopped = engine.run(limits.time, min(limits.events, engine.events + EVENTS_PER_SLICE))
                if stopped != "event limit" or engine.events >= limits.events:
                    return stopped
                if watch is not None:
                    watch(engine.events, engine.end_time)
        finally:
            if collecting:
                gc.enable()

    def result(self, stopped: str, seconds: float) -> Result:
        """The result of the run."""
        engine = self.engine
        scenario = self.scenario
        elsewhere = int(engine.deliveries - engine.own_deliveries)

        def orders_of(process: Process) -> list[WaitingCounts]:
            return [*self._protocol.orders_of(fabric_process(process)), *barriers_of(process)]

        orders = [order for process in self._processes for order in orders_of(process)]
        present = [node.process for node in engine.nodes if node.process is not None]
        members_stay = not self._protocol.has_topics and all(
            isinstance(fault, PauseFault | ResumeFault | BesideLives) for fault in scenario.faults
        )
        repairs = [each for process in self._processes if isinstance(process, Brisa) for each in process.repairs()]
        return Result(
            scenario=scenario.name,
            seed=scenario.seed,
            nodes=scenario.nodes,
            stopped=stopped,
            events=engine.events,
            end_time=engine.end_time,
            planned=self.planned,
            published=engine.published,
            sent=engine.sent,
            dropped=engine.dropped,
            refused=engine.unwanted,
            deliveries=engine.deliveries,
            expected_deliveries=engine.published * scenario.nodes if members_stay else None,
            lost=engine.lost,
            agreed=None,
            owed=None,
            latency_mean=int(engine.latency_sum) / elsewhere if elsewhere > 0 else None,
            latency_max=engine.latency_maximum if elsewhere > 0 else None,
            held_total=sum(order.held_total for order in orders),
            held_peak=max((order.held_peak for order in orders), default=0),
            held_at_end=sum(order.waiting() for process in present for order in orders_of(process)),
            recovered=sum(int(each.recovered) for each in repairs),
            recovery_ticks=sum(int(each.recovery_ticks) for each in repairs),
            longest_recovery=max((int(each.longest_recovery) for each in repairs), default=0),
            violations=None,
            judgement="not judged: there is no trace",
            trace=None,
            trace_rows=None,
            seconds=seconds,
            events_per_second=int(engine.events) / seconds if seconds > 0 else 0.0,
        )


def run_scenario(scenario: Scenario, trace: Path | None = None, watch: Watcher | None = None) -> Result:
    """Run a scenario and return its result; with ``trace``, write a trace file.

    Unless the level of the trace is counts, the run is judged, with or without a file.
    """
    check_scenario(scenario)
    reason = why_not_judged(scenario)
    witness = Witness(scenario.nodes) if reason is None else None
    if trace is None:
        result = timed(scenario, None if witness is None else witness.recorder, watch, witness)
    else:
        result = run_into_file(scenario, trace, watch, witness)
    return result if reason is None else msgspec.structs.replace(result, judgement=f"not judged: {reason}")


def run_into_file(scenario: Scenario, trace: Path, watch: Watcher | None, witness: Witness | None) -> Result:
    """Run a scenario and write its trace."""
    if scenario.trace.level == "counts":
        raise UsageError(
            "the level of the trace is counts, which has no rows; choose deliveries or everything, or no trace file"
        )
    if trace.is_dir():
        raise UsageError(f"{trace} is a directory; name a file in it, such as {trace / 'trace.parquet'}")
    from antiphon.trace.store import TraceWriter

    about = {"host": "simulator", "scenario": msgspec.to_builtins(scenario), **promised_to(scenario)}
    also = None if witness is None else witness.see
    with TraceWriter(trace, scenario.trace.level, about, also=also) as writer:
        result = timed(scenario, writer.recorder, watch, witness)
    return msgspec.structs.replace(result, trace=str(trace), trace_rows=writer.rows)


def timed(
    scenario: Scenario, recorder: Recorder | None, watch: Watcher | None, witness: Witness | None = None
) -> Result:
    """Run a scenario; the measured time excludes preparation and judgement."""
    simulation = Simulation(scenario, recorder)
    begun = time.perf_counter()
    stopped = simulation.run(watch)
    result = simulation.result(stopped, time.perf_counter() - begun)
    simulation.engine.record_end(stopped)
    if witness is None:
        return result
    violations, judgement = judge_run(scenario, witness, stopped, simulation.stuck())
    agreed, owed = agreement(scenario, witness)
    return msgspec.structs.replace(result, violations=violations, judgement=judgement, agreed=agreed, owed=owed)


def application_of(disks: DiskOptions | None) -> SimulatedApplication | None:
    """The disks of nodes, where they have any."""
    if disks is None:
        return None
    if disks.kind is DiskKind.LASTING_LOG:
        return CubeDisks(disks.log, disks.sync)
    if disks.kind is DiskKind.ASKED_LOG:
        return GossipDisks(disks.log, list(disks.nodes))
    return BrokerDisks(disks.log, disks.sync) if disks.kind is DiskKind.JOURNAL else Disks(disks.log)


def build_cube(scenario: Scenario) -> Cube:
    """The members of the trees at the start; one object that all processes of a run share."""
    if not scenario.changes_membership():
        return full_or_partial(scenario.nodes)
    cube = PartialCube(dimension_for(scenario.nodes))
    absent = scenario.absent_at_start()
    for node in range(scenario.nodes):
        if node not in absent:
            cube.add(node)
    return cube


def build_network(scenario: Scenario) -> NetworkModel:
    """The network that a scenario describes."""
    table = scenario.network
    return NetworkModel(
        build_delay(table.delay, scenario.seed),
        table.transmission,
        table.processing,
        table.charge_control,
        table.loss,
        table.duplication,
        table.reordering,
        table.reordering_window,
        table.detection,
        table.in_order,
        table.notices_pauses,
    )


def build_delay(law: ConstantLaw | NormalLaw | QuantileLaw | LinkLaw | MatrixLaw, seed: int) -> Delay:
    """The delays that a law describes."""
    if isinstance(law, ConstantLaw):
        return ConstantDelay(law.ticks)
    if isinstance(law, NormalLaw):
        return NormalDelay(law.mean, law.deviation)
    if isinstance(law, MatrixLaw):
        return MatrixDelay(law.rows)
    if isinstance(law, QuantileLaw):
        return QuantileDelay(law.points)
    # A separate seed keeps the streams of links apart from the engine's streams with the same small numbers.
    stream = RandomStream(seed, LINK_STREAM)
    return LinkDelay(build_delay(law.of, seed), stream.word() << 32 | stream.word(), law.symmetric)


def schedule_faults(engine: Engine, scenario: Scenario, cube: Cube) -> None:
    """Schedule all faults, and the reactions of a membership oracle to them."""
    members = cube if isinstance(cube, PartialCube) and scenario.changes_membership() else None
    for _, fault in scenario.faults_by_time():
        if isinstance(fault, PartitionFault):
            groups = [expand_nodes(group, scenario.nodes) for group in fault.groups]
            cut = NetworkPartition(
                fault.at, NEVER if fault.until is None else fault.until, groups, fault.one_way, fault.linked
            )
            engine.at(fault.at, actions.PartitionAction(cut))
            continue
        for node in fault.targets(scenario.nodes):
            if isinstance(fault, ClockFault):
                engine.at(fault.at, actions.JumpClockAction(node, fault.ticks))
            elif isinstance(fault, DiskFault):
                schedule_disk_fault(engine, fault, node)
            else:
                schedule_node_fault(engine, fault, node, members)
    if members is not None:
        schedule_detections(engine, scenario, members)


def schedule_disk_fault(engine: Engine, fault: DiskFault, node: int) -> None:
    """Schedule a disk fault and its end; a node whose log is refused is gone for good."""
    if fault.what in ("torn", "full"):
        engine.at(fault.at, DiskTroubleAction(node, fault.what == "full"))
        if fault.until is not None:
            engine.at(fault.until, DiskSyncAction(node, True))


def schedule_subscriptions(engine: Engine, scenario: Scenario) -> None:
    """Schedule all changes of subscriptions."""
    for change in changes_by_time(scenario):
        kind = actions.SubscribeAction if change.subscribes else actions.UnsubscribeAction
        engine.at(change.at, kind(change.node, change.topic))


def schedule_detections(engine: Engine, scenario: Scenario, members: PartialCube) -> None:
    """Let the oracle notice crashes, except of nodes that restart before that."""
    restarts: dict[int, int] = {}
    for _, fault in reversed(scenario.faults_by_time()):
        if isinstance(fault, RestartFault):
            restarts.update(dict.fromkeys(fault.targets(scenario.nodes), fault.at))
        elif isinstance(fault, CrashFault) and fault.detected_after is not None:
            noticed = fault.at + fault.detected_after
            for node in fault.targets(scenario.nodes):
                if noticed < restarts.get(node, NEVER):
                    engine.at(noticed, actions.ExpelAction(node, members))


def schedule_node_fault(engine: Engine, fault: Targeted, node: int, members: PartialCube | None) -> None:
    """Schedule a fault of one node; a starting node is a member before it does anything."""
    at = fault.at
    if isinstance(fault, JoinFault) and fault.continues is not None:
        engine.at(at, ContinueAction(node, fault.continues))
        return
    if members is not None and isinstance(fault, JoinFault | RestartFault):
        engine.at(at, actions.AdmitAction(node, members))
    engine.at(at, ACTIONS[type(fault)](node))
    if members is not None and isinstance(fault, LeaveFault):
        engine.at(at, actions.ExpelAction(node, members))


ACTIONS: dict[type[Targeted], type[actions.NodeAction]] = {
    CrashFault: actions.CrashAction,
    RestartFault: actions.RestartAction,
    PauseFault: actions.PauseAction,
    ResumeFault: actions.ResumeAction,
    JoinFault: actions.JoinAction,
    LeaveFault: actions.LeaveAction,
}
