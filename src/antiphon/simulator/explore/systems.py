"""Small systems of the fault-tolerant cube, of which every schedule is followed, with a crash at every step.

They have two or three nodes, one or two publications, a subscription. Each system is explored once for each of its
nodes: the node crashes for good, or crashes and restarts with its log (:mod:`antiphon.simulator.explore.crashes`
defines a schedule). The larger systems have more schedules than can be explored; ``state_limit`` ends them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from antiphon.fabrics.cube.fault_tolerant import FaultTolerantVCubePs
from antiphon.fabrics.cube.topic import FaultOptions, Options
from antiphon.fabrics.cube.topology import PartialCube, dimension_for
from antiphon.fabrics.cube.view import View
from antiphon.kernel.process import Environment
from antiphon.simulator.explore.crashes import CrashingEnvironment, Failure, explore_failure
from antiphon.simulator.explore.explorer import Operation

PUBLISH: Operation = ("publish", 0)
SUBSCRIBE: Operation = ("subscribe", 0)
UNSUBSCRIBE: Operation = ("unsubscribe", 0)

COUNTERS_PER_INCARNATION = 1000
"""The number of subscription numbers reserved for each incarnation of a node."""


@dataclass(frozen=True)
class SmallSystem:
    """The members of topic 0 at the start, and the operations of each node."""

    name: str
    members: tuple[int, ...]
    scripts: tuple[tuple[Operation, ...], ...]


SMALL_SYSTEMS = (
    SmallSystem("2 nodes, 1 publication", (0, 1), ((PUBLISH,), ())),
    SmallSystem("2 nodes, 2 publications of one", (0, 1), ((PUBLISH, PUBLISH), ())),
    SmallSystem("2 nodes, 2 publications", (0, 1), ((PUBLISH,), (PUBLISH,))),
    SmallSystem("2 nodes, a newcomer", (0,), ((PUBLISH,), (SUBSCRIBE,))),
    SmallSystem("2 nodes, one leaves", (0, 1), ((PUBLISH,), (UNSUBSCRIBE,))),
    SmallSystem("3 nodes, 1 publication", (0, 1, 2), ((PUBLISH,), (), ())),
    SmallSystem("3 nodes, 2 publications", (0, 1, 2), ((PUBLISH,), (PUBLISH,), ())),
    SmallSystem("3 nodes, a newcomer", (0, 1), ((PUBLISH,), (), (SUBSCRIBE,))),
)


class Explored(msgspec.Struct, frozen=True):
    """The result of exploring one system with one kind of failure."""

    system: str
    failing: int
    returns: bool
    states: int
    transitions: int
    ends: int
    exhausted: bool
    violation: str | None
    schedule: tuple[str, ...]
    seconds: float


def lasting_builder(system: SmallSystem) -> Callable[[Environment], FaultTolerantVCubePs]:
    """Builds processes that expect all others; a restarted process is told which nodes are up."""
    nodes = len(system.scripts)
    dimension = dimension_for(nodes)
    view = View(dimension, system.members)

    def build(environment: Environment) -> FaultTolerantVCubePs:
        assert isinstance(environment, CrashingEnvironment), "only where nodes fail"
        node, incarnation = int(environment.identifier), environment.incarnation
        cube = PartialCube(dimension, range(nodes) if incarnation == 0 else [node])
        process = FaultTolerantVCubePs(environment, cube, Options(mixed=True, bundle=1), FaultOptions())
        process.begin_counting_at(COUNTERS_PER_INCARNATION * incarnation)
        if incarnation == 0 and node in system.members:
            process.begin_as_member(0, view)
        return process

    return build


def explore_lasting(system: SmallSystem, failure: Failure, state_limit: int = 1_000_000) -> Explored:
    """Follow all schedules of a system in which one node fails."""
    begun = time.perf_counter()
    found = explore_failure(lasting_builder(system), system.scripts, failure, state_limit)
    return Explored(
        system.name,
        failure.node,
        failure.returns,
        found.states,
        found.transitions,
        found.ends,
        found.exhausted,
        found.violation,
        found.schedule,
        time.perf_counter() - begun,
    )


def failures_of(system: SmallSystem, rounds: int, early_timers: int) -> Iterator[Failure]:
    """Each node fails for good, and each restarts; three nodes are told of connections in one step then."""
    for node in range(len(system.scripts)):
        for returns in (False, True):
            yield Failure(node, returns, rounds, early_timers, in_one_step=returns and len(system.scripts) > 2)
