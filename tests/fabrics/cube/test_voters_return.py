"""Nodes of a cube that return with their logs are the voters that they were: no majority is lost, none is doubled."""

from __future__ import annotations

import pytest

from antiphon.fabrics.cube.repair.presence import Presence
from antiphon.fabrics.cube.topology import PartialCube
from antiphon.fabrics.cube.total_order.electorate import Electorate
from antiphon.fabrics.cube.total_order.incarnations import LIVES_AT_MOST, VoterIncarnations
from antiphon.kernel.process import NO_NODE
from antiphon.simulator.scenario.run import Result
from antiphon.simulator.scenario.scenario import CrashFault, Fault, PartitionFault, PublishTable, RestartFault
from tests.fabrics.cube.hand_driven import Hand, Table, repaired
from tests.fabrics.cube.test_lasting import nothing_broken, system

AT, BACK = 2000, 4000


def totals(first: int, *nodes: int, count: int = 4) -> list[PublishTable]:
    """These nodes publish in total order about one key, in turn."""
    return [
        PublishTable(at=first + 500 * number, node=nodes[number % len(nodes)], order="total", keys=[0])
        for number in range(count * len(nodes))
    ]


def crash(*nodes: int) -> list[Fault]:
    """These crash at once, and return with their logs one after the other."""
    crashes: list[Fault] = [CrashFault(at=AT, node=node) for node in nodes]
    return [*crashes, *(RestartFault(at=BACK + 300 * place, node=node) for place, node in enumerate(nodes))]


@pytest.mark.parametrize("nodes", [(2, 3, 4), (0, 1, 2), (0, 1, 2, 3, 4), (4, 3, 2, 1, 0)])
def test_half_of_the_nodes_crash_and_total_order_goes_on_when_they_are_back(nodes: tuple[int, ...]) -> None:
    """Also if nobody is left who knows the lock manager, the epoch, or who counts: it is on disk."""
    before, after = totals(100, 0, 4, count=1), totals(20_000, 0, 2, 4)
    result = system(5, crash(*nodes), [*before, *after])
    nothing_broken(result)
    assert result.published == len(before) + len(after)
    assert result.deliveries == 5 * result.published


def test_a_node_that_is_alone_goes_on_above_the_places_of_its_earlier_life() -> None:
    result = system(1, crash(0), [*totals(100, 0), *totals(20_000, 0)])
    nothing_broken(result)
    assert result.published == result.deliveries == 8


def sides(first: list[int], second: list[int], crashed: int) -> Result:
    """A side goes on without the rest. Then one of its nodes crashes, and returns to the rest, while all publish."""
    faults: list[Fault] = [
        PartitionFault(at=200, until=8000, groups=[first]),
        PartitionFault(at=7000, until=40_000, groups=[second]),
        CrashFault(at=7000, node=crashed),
        RestartFault(at=9000, node=crashed),
    ]
    said = totals(100, 0, count=1) + totals(5000, 1, count=2) + totals(20_000, 1, 3, count=3) + totals(60_000, 0, 3, 4)
    return system(5, faults, said)


def test_who_returns_to_others_knows_that_these_do_not_count_any_more() -> None:
    """Nodes 0, 1 and 2 go on without 3 and 4. Node 2 crashes and returns to these, which know nothing of that: three of
    five to them, one of three in truth. If both sides went on, what one of them said would lose its place."""
    result = sides([0, 1, 2], [0, 1], crashed=2)
    nothing_broken(result)
    assert result.published == 1 + 2 + 3 + 12, "nodes 2, 3 and 4 refuse while they are alone, and nobody else does"
    assert result.deliveries == 5 * result.published


def test_lives_of_voters() -> None:
    incarnations = VoterIncarnations(9, [9], voter=2, incarnation=3)
    assert (
        incarnations.voter == incarnations.voter_of(9) == 2 and incarnations.latest(2) == 9 and incarnations.is_over(2)
    )
    assert incarnations.voter_of(5) == NO_NODE and not incarnations.is_over(5)
    assert incarnations.introduce(5, 5, 0) == [] and incarnations.voter_of(5) == 5
    assert incarnations.introduce(7, 5, 2) == [5] and incarnations.is_over(5) and incarnations.latest(5) == 7
    assert incarnations.introduce(6, 5, 1) == [], "an earlier life is heard of later"
    assert incarnations.latest(5) == 7 and incarnations.is_over(6) and incarnations.nodes_of(5) == [5, 7, 6]
    assert incarnations.introduce(12, 4, 1) == [4], "its first life was over before anybody spoke of it"


def test_lives_that_are_over_are_forgotten_when_there_are_many() -> None:
    incarnations = VoterIncarnations(0, [0])
    for node in range(1, 2 * LIVES_AT_MOST):
        incarnations.introduce(node, 1, node)
    assert len(incarnations.nodes_of(1)) <= LIVES_AT_MOST and incarnations.latest(1) == 2 * LIVES_AT_MOST - 1


def test_a_voter_of_a_replaced_proposal_does_not_count_after_the_agreement() -> None:
    """The lock manager drops its claims then, and nobody waits for its locks."""
    environment, cube = Hand(Table(repaired(), 1), 0), PartialCube(3, [0, 1, 2])
    electorate = Electorate(environment, cube, Presence(environment, cube), False)
    electorate.propose(2, {0: True, 1: True, 2: True, 5: True})
    electorate.propose(3, {0: True, 1: True})
    assert electorate.agree() == [2, 5]
    assert sorted(electorate.voters) == [0, 1] and not electorate.has(5)


def test_what_a_voter_has_begun_may_come_with_its_next_life() -> None:
    """Nobody gives up the lock of an earlier life while the later life, which has its log, counts and is lost."""
    environment, cube = Hand(Table(repaired(), 1), 0), PartialCube(3, [0, 1, 2])
    presence = Presence(environment, cube)
    electorate = Electorate(environment, cube, presence, False)
    presence.on_lost(1)
    assert electorate.may_bring(1)
    presence.on_found(5)
    electorate.incarnations.introduce(5, 1, 1)
    assert not electorate.may_bring(1), "its next life is there, and is asked"
    presence.on_lost(5)
    assert electorate.may_bring(1) and electorate.may_bring(5)
    electorate.propose(2, {0: True, 2: True})
    electorate.agree()
    assert not electorate.may_bring(1) and not electorate.may_bring(5)
