"""A node finds others that do not find it yet: three members, one of which was away, and a newcomer."""

from __future__ import annotations

from collections import deque

import pytest

from antiphon.fabrics.cube.fault_tolerant import FaultTolerantVCubePs
from antiphon.fabrics.cube.repair.unsettled import COMPARING
from antiphon.fabrics.cube.topic import FaultOptions, Options
from antiphon.fabrics.cube.topology import PartialCube
from antiphon.fabrics.cube.total_order.calm import EXCLUDING
from antiphon.fabrics.cube.view import View
from antiphon.kernel.message import CAUSAL, FIFO, NONE, TOTAL, ProtocolMessage
from tests.fabrics.cube.test_lasting import Notebook

NODES = range(4)
LATE, NEWCOMER = 2, 3


class ReturnedNotebook(Notebook):
    """The host of a node whose log says that it was a member, and that it had delivered nothing."""

    def restored_frontier(self, topic: int) -> list[int] | None:
        return []


class Cube:
    """Four nodes of a cube, with links on which messages arrive when the test says so."""

    def __init__(self) -> None:
        self.notes: dict[int, Notebook] = {}
        self.processes: dict[int, FaultTolerantVCubePs] = {}
        self._links: dict[tuple[int, int], deque[ProtocolMessage]] = {}
        for node in NODES:
            self._begin(node, Notebook(node), is_member=node != NEWCOMER)

    def _begin(self, node: int, notes: Notebook, is_member: bool) -> None:
        self.notes[node] = notes
        cube = PartialCube(2, NODES)
        process = FaultTolerantVCubePs(notes, cube, Options(mixed=True, total=True, bundle=1), FaultOptions())
        self.processes[node] = process
        if is_member:
            process.begin_as_member(0, View(2, [0, 1, 2]))
        process.start()

    def settle(self) -> None:
        """Everything arrives."""
        while True:
            for node in NODES:
                for target, message in self.notes[node].sent:
                    self._links.setdefault((node, target), deque()).append(message)
                self.notes[node].sent.clear()
            link = next((each for each, on_way in self._links.items() if on_way), None)
            if link is None:
                return
            sender, target = link
            self.processes[target].receive(sender, self._links[link].popleft())

    def crash(self, node: int) -> None:
        """A node ends, and what is under way to it and from it is gone."""
        self.settle()
        for other in NODES:
            if other != node:
                self.processes[other].peer_lost(node)
        self.settle()
        for link in self._links:
            if node in link:
                self._links[link].clear()
        self.advance()

    def advance(self) -> None:
        """Total order waits no longer for those that are out of reach."""
        for node in NODES:
            self.notes[node].time += 100_000
        for node in NODES:
            self.processes[node].expire(EXCLUDING)
        self.settle()

    def start_again(self, node: int) -> None:
        """It returns with its log, and finds all others, which do not find it yet."""
        self._begin(node, ReturnedNotebook(node), is_member=False)
        self.processes[node].begin_counting_at(1)
        self.processes[node].subscribe(0)
        self.settle()

    def round(self, node: int) -> None:
        """A node compares with others."""
        self.processes[node].expire(COMPARING)
        self.settle()


ORDERS = pytest.mark.parametrize("order", [NONE, FIFO, CAUSAL], ids=["none", "fifo", "causal"])


def a_newcomer_speaks_before_the_others_find_the_late_one(cube: Cube, order: int) -> None:
    """The newcomer counts a total message as past, so it cannot give it, and its own one belongs behind it."""
    cube.round(LATE)
    before = list(cube.notes[1].delivered)
    number = len(before) + 1
    cube.processes[0].publish_about([5], b"", 0, TOTAL)
    cube.settle()
    assert cube.notes[1].delivered == [*before, (0, number)], "the others go on without it"
    assert cube.notes[LATE].delivered == before
    cube.processes[NEWCOMER].subscribe(0)
    cube.settle()
    cube.processes[NEWCOMER].publish_about([5], b"", 0, order)
    cube.settle()
    for _ in range(3):
        cube.round(LATE)
    for node in (0, 1):
        cube.processes[node].peer_found(LATE)
        cube.settle()
    for _ in range(3):
        for node in NODES:
            cube.round(node)
    for node in (0, 1, LATE):
        assert cube.notes[node].delivered == [*before, (0, number), (NEWCOMER, 1)], node


@ORDERS
def test_a_node_that_returns_waits_until_all_have_found_it(order: int) -> None:
    cube = Cube()
    cube.crash(LATE)
    cube.start_again(LATE)
    cube.processes[NEWCOMER].peer_found(LATE)
    cube.settle()
    a_newcomer_speaks_before_the_others_find_the_late_one(cube, order)


@ORDERS
def test_a_node_that_was_cut_off_waits_until_all_have_found_it(order: int) -> None:
    cube = Cube()
    for node in (0, 1):
        cube.processes[node].peer_lost(LATE)
        cube.processes[LATE].peer_lost(node)
    cube.settle()
    cube.advance()
    cube.processes[0].publish_about([5], b"", 0, TOTAL)
    cube.settle()
    assert cube.notes[1].delivered == [(0, 1)] and cube.notes[LATE].delivered == []
    for node in (0, 1):
        cube.processes[LATE].peer_found(node)
    cube.settle()
    a_newcomer_speaks_before_the_others_find_the_late_one(cube, order)


def test_it_does_not_wait_for_one_that_it_loses_again() -> None:
    cube = Cube()
    cube.crash(LATE)
    cube.start_again(LATE)
    cube.processes[NEWCOMER].peer_found(LATE)
    cube.settle()
    cube.round(LATE)
    cube.processes[NEWCOMER].subscribe(0)
    cube.settle()
    cube.processes[NEWCOMER].publish_about([5], b"", 0, NONE)
    cube.settle()
    for node in (0, 1):
        assert cube.notes[LATE].delivered == []
        cube.processes[LATE].peer_lost(node)
        cube.settle()
    assert cube.notes[LATE].delivered == [(NEWCOMER, 1)]
