"""Ride-along and hybrid aggregation: who waits for whom, why no circle closes, and what every schedule keeps."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.fabrics.cube import Cube, Traffic, cluster, full_or_partial
from antiphon.kernel import NO_NODE, Environment, ProtocolMessage, UsageError
from antiphon.simulator.explore.explorer import Operation, explore
from antiphon_lab.protocols.cube.causal_aggregation import CausalAggregation
from antiphon_lab.protocols.cube.packet_broadcast import PacketBroadcast
from antiphon_lab.protocols.cube.riding_aggregation import RidingOptions
from tests.fabrics.cube.trees import partial
from tests.research.protocols.cube.test_aggregation import publication
from tests.research.protocols.cube.test_aggregation_properties import Build, Run, check_whole, sizes, starts, wild
from tests.support import Notebook


def riding(timer_ticks: int = 0, always: bool = False) -> Build:
    options = RidingOptions(timer_ticks, always)
    return lambda environment, cube, traffic: CausalAggregation(environment, cube, None, traffic, riding=options)


BUILDS = {
    "ride-along": riding(),
    "ride-along for at most 30 ticks": riding(30),
    "hybrid of 30 ticks": riding(30, always=True),
}


class Alarm(Notebook):
    """An environment whose timers are set off by hand."""

    def __init__(self, identifier: int) -> None:
        super().__init__(identifier)
        self.timers: dict[int, int] = {}

    def set_timer(self, delay: int, name: int) -> int:
        self.timers[name] = delay
        return name

    def cancel_timer(self, handle: int) -> None:
        del self.timers[handle]

    def last(self, count: int) -> list[tuple[int, list[tuple[int, int]]]]:
        """What was sent last: to whom, and which publications."""
        return [(child, parts(message)) for child, message in self.sent[len(self.sent) - count :]]


def parts(message: ProtocolMessage) -> list[tuple[int, int]]:
    inside = getattr(message, "publications", [message])
    return [(one.source, one.sequence) for one in inside]


def test_a_rider_waits_for_what_is_held_back_from_the_same_child_only() -> None:
    """At node 4, (0,1) is held back from 5 because (2,1) is missing; (6,1) has nothing to do with either."""
    notebook = Alarm(4)
    process = CausalAggregation(notebook, full_or_partial(8), riding=RidingOptions())
    process.receive(0, publication((0, 1), (2, 1)))
    assert notebook.last(1) == [(6, [(0, 1)])]
    process.receive(6, publication((6, 1)))
    assert len(notebook.sent) == 1
    assert process.riders is not None and process.riders.count() == 1
    process.receive(6, publication((2, 1)))
    assert notebook.sent[1:] and notebook.last(1) == [(5, [(6, 1), (0, 1), (2, 1)])]
    assert process.unfinished() == 0
    process.publish(b"")
    assert notebook.last(3) == [(5, [(4, 1)]), (6, [(4, 1)]), (0, [(4, 1)])]


def test_a_rider_with_a_timer_leaves_without_what_it_waited_for() -> None:
    notebook = Alarm(4)
    process = CausalAggregation(notebook, full_or_partial(8), riding=RidingOptions(30))
    process.receive(0, publication((0, 1), (2, 1)))
    process.receive(6, publication((6, 1)))
    assert notebook.timers == {1: 30}
    process.expire(1)
    assert notebook.last(1) == [(5, [(6, 1)])]
    process.receive(6, publication((2, 1)))
    assert notebook.last(1) == [(5, [(0, 1), (2, 1)])]


def test_a_hybrid_waits_for_company_until_something_that_was_held_takes_it_along() -> None:
    notebook = Alarm(4)
    process = CausalAggregation(notebook, full_or_partial(8), riding=RidingOptions(30, always=True))
    process.receive(0, publication((0, 1), (2, 1)))
    assert notebook.sent == []
    process.receive(6, publication((2, 1)))
    assert notebook.last(1) == [(5, [(0, 1), (2, 1)])]
    process.expire(2)
    assert notebook.last(1) == [(6, [(0, 1)])]


def test_who_always_waits_needs_a_timer() -> None:
    with pytest.raises(UsageError, match="for at least 1 tick, not 0"):
        RidingOptions(always=True)


@pytest.mark.parametrize("cube", [full_or_partial(32), partial(4, [0, 1, 3, 6, 7, 9, 12, 14, 15])])
def test_whoever_has_a_child_in_a_cluster_gets_its_copy_from_a_cluster_above(cube: Cube) -> None:
    """The lemma that keeps waits from closing a circle: along a chain of waits the clusters rise."""
    for node in cube.members():
        for source in cube.members():
            parent = cube.parent_in_tree(node, source)
            if parent != NO_NODE:
                for child in cube.children_in_tree(node, source):
                    assert cluster(node, child) < cluster(node, parent)


class NodeWide(CausalAggregation):
    """The tempting rule: while anything is held back from anybody, everything waits; then all of it leaves."""

    def rides(self, s: int) -> bool:
        return self.holds_for(1)

    def receive(self, sender: int, message: ProtocolMessage) -> None:
        super().receive(sender, message)
        for s in range(1, self.cube.dimension + 1):
            assert self.riders is not None
            if not self.holds_for(1) and self.riders.buffers[s].publications:
                self.riders.depart(s, self.cube.first(self.me, s), [])


def node_wide(environment: Environment, cube: Cube, traffic: Traffic) -> PacketBroadcast:
    return NodeWide(environment, cube, None, traffic, riding=RidingOptions())


def test_riders_that_wait_per_node_wait_for_each_other_in_a_circle() -> None:
    """The same schedule ends with riders that wait per child, and gets stuck with riders that wait per node."""
    generator = random.Random(14)
    conversation = [(generator.randrange(300), generator.randrange(16)) for _ in range(20)]
    assert Run(16, conversation, wild(), riding(), 14).unfinished() == 0
    stuck = Run(16, conversation, wild(), node_wide, 14)
    waiting = [one for one in stuck.processes if isinstance(one, NodeWide) and one.holds_for(1)]
    assert len(waiting) > 1, "a circle has several nodes"
    assert stuck.unfinished() > 0


@pytest.mark.parametrize("name", BUILDS)
@settings(max_examples=25)
@given(nodes=sizes, starts=starts, seed=st.integers(0, 1000))
def test_each_once_per_edge_nothing_forgotten_no_deadlock_causal_order(
    name: str, nodes: int, starts: list[tuple[int, int]], seed: int
) -> None:
    run = Run(nodes, starts, wild(), BUILDS[name], seed)
    check_whole(run, nodes, starts)


def test_no_schedule_of_four_nodes_loses_or_blocks() -> None:
    """All schedules of three publications, two of them from one source, among four nodes."""
    cube = full_or_partial(4)

    def member(environment: Environment) -> CausalAggregation:
        environment.subscribed(0)
        return CausalAggregation(environment, cube, riding=RidingOptions())

    scripts: list[list[Operation]] = [[("publish", 0), ("publish", 0)], [("publish", 0)], [], []]
    found = explore(member, scripts)
    assert found.violation is None, found
    assert found.exhausted
    assert found.states == 769
