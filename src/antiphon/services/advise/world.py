"""Whole schedules of calls on the protocols of the product, in the simulator: several replicas, crashes, partitions.

A replica is an observer of the deliveries at a node; it applies them to a store in memory. Calls are published with the
orders and keys that the service declares. At the end all replicas that are left must have the same state, and no
invariant may have been broken on the way. This finds what pairs of calls do not show, and checks the model of
:mod:`antiphon.services.advise.pairs` against the real protocols.

On a tree messages of every order wait for a majority, as on the topics of services. On a cube weaker messages do not,
so a network falls apart there only if all operations have total order, or none has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from antiphon.fabrics.cube.fabric import CUBE
from antiphon.fabrics.tree.fabric import TREE
from antiphon.kernel.message import Publication
from antiphon.services.advise.pairs import Bench, State, keys_of
from antiphon.services.advise.values import Calls
from antiphon.services.calls import BoundCall
from antiphon.simulator.engine.engine import Engine, SimulatedApplication
from antiphon.simulator.scenario.run import Simulation
from antiphon.simulator.scenario.scenario import (
    CrashFault,
    Fault,
    LimitsTable,
    NetworkTable,
    NormalLaw,
    PartitionFault,
    PauseFault,
    PublishTable,
    ResumeFault,
    Scenario,
    TopicsTable,
)


class WorldSetUp(NamedTuple):
    """The protocol of live nodes, as the topics of services have it."""

    protocol: str
    options: dict[str, Any]
    all_wait_for_majority: bool


SET_UPS: Final = {
    CUBE.name: WorldSetUp("vcube-ps-lasting", {}, all_wait_for_majority=False),
    TREE.name: WorldSetUp("broker-tree", {"quorum": True, "quorum_delivery": True}, all_wait_for_majority=True),
}
FABRICS: Final = tuple(SET_UPS)

LEAST_NODES: Final = 3
MOST_NODES: Final = 5
MOST_CALLS: Final = 10
LONGEST_GAP: Final = 150
"""Ticks between calls, of which a hop takes 60."""
HOP_TICKS: Final = 60.0
DEVIATION_TICKS: Final = 40.0
LATEST_FAULT: Final = 600
LONGEST_FAULT: Final = 3000
OTHER_SEEDS: Final = 20
EVENT_LIMIT: Final = 400_000


@dataclass(frozen=True)
class PlannedCall:
    """A call, the node at which it is made, and the ticks since the call before it."""

    gap: int
    node: int
    call: BoundCall


@dataclass(frozen=True)
class PlannedFault:
    """A node that crashes for good or pauses, or nodes that are cut off."""

    kind: Literal["crash", "pause", "partition"]
    at: int
    ticks: int
    node: int

    def stops(self, node: int, nodes: int, now: int) -> bool:
        """Whether a node can make no calls now."""
        if self.kind == "partition" or self.node % nodes != node or now < self.at:
            return False
        return self.kind == "crash" or now <= self.at + self.ticks


@dataclass(frozen=True)
class Schedule:
    """Nodes, calls and faults."""

    fabric: str
    nodes: int
    calls: tuple[PlannedCall, ...]
    faults: tuple[PlannedFault, ...]
    seed: int

    def possible_faults(self) -> list[PlannedFault]:
        """The faults without those of a node that has another one."""
        first = {fault.node % self.nodes: fault for fault in reversed(self.faults)}
        return [fault for fault in self.faults if first[fault.node % self.nodes] is fault]

    def possible_calls(self) -> list[tuple[int, int, BoundCall]]:
        """The calls with their times and nodes, without those at a node that is down or stands still."""
        found, now = [], 0
        for planned in self.calls:
            now += planned.gap
            node = planned.node % self.nodes
            if not any(fault.stops(node, self.nodes, now) for fault in self.possible_faults()):
                found.append((now, node, planned.call))
        return found

    def lines(self) -> list[str]:
        """The schedule for people."""
        timed = [(at, f"{call} at node {node}") for at, node, call in self.possible_calls()]
        for fault in self.possible_faults():
            lasts = {
                "crash": "crashes",
                "pause": f"pauses for {fault.ticks}",
                "partition": f"is cut off for {fault.ticks}",
            }
            timed.append((fault.at, f"node {fault.node % self.nodes} {lasts[fault.kind]}"))
        timed.sort(key=lambda one: one[0])
        return [f"{self.fabric} of {self.nodes} nodes", *[f"at {at:4}: {what}" for at, what in timed]]


@dataclass(frozen=True)
class ScheduleOutcome:
    """What a schedule led to."""

    differing: tuple[int, int] | None
    """Two replicas with different states."""
    states: Mapping[int, State]
    """Of the replicas that are left."""
    histories: Mapping[int, list[str]]
    broken: tuple[str, int] | None
    """The first invariant that broke, and the replica."""
    is_judged: bool
    deliveries: int

    @property
    def has_failed(self) -> bool:
        """Whether replicas differ, or an invariant was broken."""
        return self.differing is not None or self.broken is not None


class Replicas(SimulatedApplication):
    """A replica at every node."""

    def __init__(
        self,
        bench: Bench,
        planned: list[tuple[int, int, BoundCall]],
        nodes: int,
        ignored: frozenset[str],
        sensible: bool,
    ) -> None:
        """``planned`` are the calls; with ``sensible`` only those are made that are, where they are made."""
        self._bench = bench
        self._calls = [call for _, _, call in planned]
        self._next = {node: [call for _, at_node, call in planned if at_node == node] for node in range(nodes)}
        self._ignored = ignored
        self._is_sensible = sensible
        self.states = {node: bench.empty() for node in range(nodes)}
        self.histories: dict[int, list[str]] = {node: [] for node in range(nodes)}
        self.broken: tuple[str, int] | None = None
        self.deliveries = 0

    def refuses(self, node: int) -> bool:
        # Asked once for each call, in the order of their times.
        call = self._next[node].pop(0)
        return self._is_sensible and not self._bench.after(self.states[node], call).is_sensible

    def delivered(self, engine: Engine, node: int, publication: Publication) -> None:
        call = self._calls[int(publication.payload)]
        state = self._bench.after(self.states[node], call)
        self.states[node] = state
        self.histories[node].append(str(call))
        self.deliveries += 1
        if state.broken is not None and state.broken not in self._ignored and self.broken is None:
            self.broken = state.broken, node


class World:
    """Draws and runs schedules of a service."""

    def __init__(
        self, bench: Bench, orders: Mapping[str, str], ignored: frozenset[str] = frozenset(), sensible: bool = False
    ) -> None:
        """``ignored`` are invariants that break in every order; with ``sensible`` callers look before they call."""
        self._bench = bench
        self._orders = orders
        self._ignored = ignored
        self._is_sensible = sensible
        self._is_mixed = len({order == "total" for order in orders.values()}) > 1

    def schedules(self, fabric: str, scales: Sequence[Calls]) -> SearchStrategy[Schedule]:
        """The schedules to draw."""
        return st.one_of([self._schedules(fabric, calls) for calls in scales])

    def _schedules(self, fabric: str, calls: Calls) -> SearchStrategy[Schedule]:
        node = st.integers(0, MOST_NODES - 1)
        call = st.one_of(list(calls.values()))
        planned = st.builds(PlannedCall, st.integers(0, LONGEST_GAP), node, call)
        may_part = SET_UPS[fabric].all_wait_for_majority or not self._is_mixed
        kinds = ["pause", "crash", *(["partition"] if may_part else [])]
        fault = st.builds(
            PlannedFault, st.sampled_from(kinds), st.integers(0, LATEST_FAULT), st.integers(1, LONGEST_FAULT), node
        )
        return st.builds(
            Schedule,
            st.just(fabric),
            st.integers(LEAST_NODES, MOST_NODES),
            st.lists(planned, min_size=2, max_size=MOST_CALLS).map(tuple),
            st.lists(fault, max_size=2, unique_by=lambda one: one.kind).map(tuple),
            st.integers(1, 1 << 20),
        )

    def run(self, schedule: Schedule) -> ScheduleOutcome:
        """Run a schedule to its end."""
        planned = schedule.possible_calls()
        if not planned:
            return ScheduleOutcome(None, {}, {}, None, False, 0)
        replicas = Replicas(self._bench, planned, schedule.nodes, self._ignored, self._is_sensible)
        simulation = Simulation(self.scenario(schedule), application=replicas)
        stopped = simulation.run()
        engine = simulation.engine
        left = [node for node in range(schedule.nodes) if engine.nodes[node].process is not None]
        states = {node: replicas.states[node] for node in left}
        differing = None
        for node in left[1:]:
            if states[node].contents() != states[left[0]].contents():
                differing = left[0], node
                break
        # Where a node says that it lacks something, its replica would take a snapshot of another one.
        is_judged = stopped == "finished" and engine.lost == 0
        return ScheduleOutcome(
            differing if is_judged else None,
            states,
            replicas.histories,
            replicas.broken,
            is_judged,
            replicas.deliveries,
        )

    def shortened(self, schedule: Schedule) -> Schedule:
        """A failing schedule without the calls and faults that make no difference.

        Leaving out something changes all delays after it, so each candidate is tried with a few other seeds.
        """
        place = len(schedule.calls)
        while place > 0:
            place -= 1
            fewer = schedule.calls[:place] + schedule.calls[place + 1 :]
            schedule = self._failing(replace(schedule, calls=fewer)) or schedule
        for place in reversed(range(len(schedule.faults))):
            fault = schedule.faults[:place] + schedule.faults[place + 1 :]
            schedule = self._failing(replace(schedule, faults=fault)) or schedule
        return schedule

    def _failing(self, candidate: Schedule) -> Schedule | None:
        for seed in (candidate.seed, *range(1, OTHER_SEEDS + 1)):
            tried = replace(candidate, seed=seed)
            if self.run(tried).has_failed:
                return tried
        return None

    def scenario(self, schedule: Schedule) -> Scenario:
        """A schedule as a scenario."""
        planned = schedule.possible_calls()
        keys = sorted({key for _, _, call in planned for key in keys_of(call)})
        publications = [
            PublishTable(
                at=at,
                node=node,
                order=self._orders[call.call.name],
                keys=[keys.index(key) for key in keys_of(call)],
                payload=str(number),
            )
            for number, (at, node, call) in enumerate(planned)
        ]
        set_up = SET_UPS[schedule.fabric]
        return Scenario(
            name="a schedule of calls",
            seed=schedule.seed,
            fabric=schedule.fabric,
            protocol=set_up.protocol,
            nodes=schedule.nodes,
            protocol_options=set_up.options,
            network=NetworkTable(
                delay=NormalLaw(mean=HOP_TICKS, deviation=DEVIATION_TICKS), detection=100, in_order=True
            ),
            topics=TopicsTable(count=1, members=[list(range(schedule.nodes))]),
            publications=publications,
            faults=[one for fault in schedule.possible_faults() for one in faults_of(fault, schedule.nodes)],
            limits=LimitsTable(events=EVENT_LIMIT),
        )


def faults_of(fault: PlannedFault, nodes: int) -> list[Fault]:
    """A fault of a schedule as faults of a scenario."""
    node, until = fault.node % nodes, fault.at + fault.ticks
    if fault.kind == "crash":
        return [CrashFault(at=fault.at, node=node)]
    if fault.kind == "pause":
        return [PauseFault(at=fault.at, node=node), ResumeFault(at=until, node=node)]
    others = [other for other in range(nodes) if other != node]
    return [PartitionFault(at=fault.at, until=until, groups=[[node], others])]
