"""Which nodes ask which others for signs of life: few, and together all."""

from __future__ import annotations

import random
from math import ceil, log2

import msgspec
import pytest

from antiphon.audit.membership import KNOWLEDGE
from antiphon.membership import tested_peers
from antiphon.membership.host import SECOND_US
from antiphon.membership.introductions import Introductions
from antiphon.membership.messages import KeepAlive, PeerAddresses, SilenceNotice
from antiphon.membership.tested_peers import PeerDigests, neighbours
from antiphon.simulator.cluster.links import SimulatedLink
from antiphon.simulator.cluster.world import ClusterSchedule, ClusterWorld, Step

NODES = 24
LOST_SECONDS = 1.0
QUIET_FROM_US = 20 * SECOND_US
FAULT_US = 30 * SECOND_US


def test_a_node_tests_the_first_node_of_each_cluster() -> None:
    assert neighbours(0, range(1, 8)) == [1, 2, 4]
    assert neighbours(5, [0, 1, 2, 3, 6, 7]) == [7, 1]
    assert neighbours(3, []) == []


@pytest.mark.parametrize("seed", range(20))
def test_paths_of_tests_lead_everywhere(seed: int) -> None:
    """So somebody tests each node, and news reach all of them, whichever identifiers there are."""
    chance = random.Random(seed)
    there = chance.sample(range(1 << 22), chance.randrange(2, 60))
    for begin in there:
        reached, ahead = {begin}, [begin]
        while ahead:
            at = ahead.pop()
            following = set(neighbours(at, (other for other in there if other != at))) - reached
            assert len(following) <= 22
            reached |= following
            ahead += following
        assert reached == set(there)


class Observed(ClusterWorld):
    """Counts the frames that are signs of life, and notes when which node has lost which other."""

    def __init__(self, schedule: ClusterSchedule) -> None:
        super().__init__(schedule)
        self.parted: list[tuple[int, int, int]] = []
        self.judge.parted = self._parted  # type: ignore[method-assign]

    def _parted(self, life: int, peer: int) -> None:
        self.parted.append((self.clock.now_us, life, peer))


def idle_cluster(*steps: Step) -> ClusterSchedule:
    starts = [Step(at_us=node * SECOND_US // 2, kind="start", node=node) for node in range(NODES)]
    return ClusterSchedule(
        seed=1, fabric="cube", nodes=NODES, lost_seconds=LOST_SECONDS, delay_us=(100, 2000), steps=[*starts, *steps]
    )


def test_the_signs_of_life_of_an_idle_node_grow_with_the_logarithm(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"questions": 0, "news": 0}
    world = Observed(idle_cluster(Step(at_us=FAULT_US, kind="publish")))
    send = SimulatedLink.send

    def counted(link: SimulatedLink, frame: object) -> None:
        if QUIET_FROM_US <= world.clock.now_us < FAULT_US:
            asked["questions"] += isinstance(frame, KeepAlive)
            asked["news"] += isinstance(frame, SilenceNotice)
        send(link, frame)

    monkeypatch.setattr(SimulatedLink, "send", counted)
    assert world.run().violations == []
    a_second = asked["questions"] / NODES / ((FAULT_US - QUIET_FROM_US) / SECOND_US)
    # Each neighbour after a quarter of the time, or a look later, and one more node at each of eight looks.
    assert a_second <= (4 * ceil(log2(NODES)) + 8) / LOST_SECONDS
    assert asked["news"] == 0, "nobody is suspected"


def test_all_nodes_lose_one_that_stands_still_in_time() -> None:
    world = Observed(idle_cluster(Step(at_us=FAULT_US, kind="pause", node=13, lasts_us=10 * SECOND_US)))
    assert world.run().violations == []
    lost = {life: at_us for at_us, life, peer in world.parted if at_us < FAULT_US + 5 * SECOND_US}
    assert len(lost) == NODES - 1, "all others have lost it, and only it"
    look_us = int(LOST_SECONDS * SECOND_US) // 8
    assert FAULT_US + 5 * look_us <= min(lost.values()), "it had that long to answer"
    assert max(lost.values()) <= FAULT_US + LOST_SECONDS * SECOND_US + 2 * look_us


def test_both_sides_of_a_partition_lose_each_other_in_time() -> None:
    """Also those nodes that nobody of the other side tests."""
    away = [3, 4, 9, 13, 14, 20]
    world = Observed(idle_cluster(Step(at_us=FAULT_US, kind="cut", nodes=away, lasts_us=6 * SECOND_US)))
    # Connections do not break sooner than that.
    world.network._silent_us = 60 * SECOND_US
    assert world.run().violations == []
    pairs = 2 * len(away) * (NODES - len(away))
    until_us = FAULT_US + LOST_SECONDS * SECOND_US * 11 // 8
    assert sum(FAULT_US < at_us <= until_us for at_us, _, _ in world.parted) == pairs


def test_a_join_costs_hardly_more_than_its_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """News of a newcomer go to the neighbours of each node, not from everybody to everybody."""
    joins_at_us = NODES * SECOND_US
    schedule = idle_cluster(Step(at_us=joins_at_us, kind="start", node=NODES))
    world = Observed(msgspec.structs.replace(schedule, nodes=NODES + 1))
    said: list[int] = []
    send = SimulatedLink.send

    def counted(link: SimulatedLink, frame: object) -> None:
        if world.clock.now_us >= joins_at_us and isinstance(frame, PeerAddresses):
            said.append(len(frame.peers))
        send(link, frame)

    monkeypatch.setattr(SimulatedLink, "send", counted)
    assert world.run().violations == []
    # Both ends of each connection say who they are, and a few neighbours may be compared too early.
    assert len(said) <= NODES * (ceil(log2(NODES)) + 4)
    assert sum(said) <= NODES * (ceil(log2(NODES)) + 8)


def test_nodes_that_nobody_introduces_find_each_other_by_their_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Newcomers ask different nodes at the same moment, and nodes tell nobody of them."""
    monkeypatch.setattr(tested_peers.TestedPeers, "neighbours_without", lambda *_: [])
    monkeypatch.setattr(Introductions, "missed", lambda *_: None)
    starts = [Step(at_us=node * SECOND_US, kind="start", node=node) for node in range(6)]
    starts += [Step(at_us=10 * SECOND_US, kind="start", node=node) for node in range(6, 12)]
    schedule = ClusterSchedule(seed=1, fabric="cube", nodes=12, lost_seconds=LOST_SECONDS, steps=starts)
    assert ClusterWorld(schedule).run().violations == []
    monkeypatch.setattr(PeerDigests, "look", lambda *_: None)
    kinds = [kind for kind, _ in ClusterWorld(schedule).run().violations]
    assert KNOWLEDGE in kinds, "without checksums they do not"
