"""Membership in the simulator: nodes that join, leave, crash and return, and the judge that looks at them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from antiphon.audit.membership import IDENTITY, JOINING, KNOWLEDGE, TOGETHERNESS, MembershipJudge, MembershipRules
from antiphon.membership.founding import ADDRESSES
from antiphon.membership.host import SECOND_US
from antiphon.simulator.cluster.file import load_schedule
from antiphon.simulator.cluster.world import ClusterSchedule, ClusterWorld, Step
from antiphon.torture.schedules.membership import draw_cluster_schedule

Fabric = Literal["cube", "tree", "gossip"]
FABRICS: tuple[Fabric, ...] = ("cube", "tree", "gossip")
BROKEN_ONCE = Path(__file__).parent / "broken_once"


def start(node: int, seconds: float = 0.0) -> Step:
    return Step(at_us=int(seconds * SECOND_US), kind="start", node=node)


def ran(schedule: ClusterSchedule) -> ClusterWorld:
    """A schedule that has come to its end, and broken no promise."""
    world = ClusterWorld(schedule)
    assert world.run().violations == []
    return world


def identifiers(world: ClusterWorld) -> list[int | None]:
    return [None if node is None else node.membership.address_book.me.identifier for node in world.nodes]


@pytest.mark.parametrize("fabric", FABRICS)
def test_random_schedules_break_no_promise(fabric: Fabric) -> None:
    for seed in range(12):
        judge = ClusterWorld(draw_cluster_schedule(fabric, seed)).run()
        assert judge.violations == [], f"seed {seed}"


@pytest.mark.parametrize("path", sorted(BROKEN_ONCE.glob("*.toml")), ids=lambda path: path.stem)
def test_a_schedule_that_broke_a_promise_once_does_not_any_more(path: Path) -> None:
    ran(load_schedule(path))


def test_a_founder_without_its_disk_hears_from_its_former_cluster_that_there_are_two_now() -> None:
    """It founds a second one at the same address. The nodes of the first one look for it there and say who they are."""
    crash = Step(at_us=5 * SECOND_US, kind="crash", node=0, lasts_us=SECOND_US)
    steps = [start(0), start(1, 1), start(2, 2), crash]
    world = ClusterWorld(ClusterSchedule(seed=1, fabric="cube", nodes=3, founds_again=True, steps=steps))
    world.run()
    founder, *others = world.nodes
    assert founder is not None
    refusals = [reason for reason in founder.refusals if "founded as" in reason]
    assert len(refusals) == 2 and all("with an address of the other one in join" in reason for reason in refusals)
    assert founder.membership.identifiers() == set(), "it takes no node of the other cluster in"
    assert [len(node.membership.identifiers()) for node in others if node is not None] == [1, 1]


@pytest.mark.parametrize("fabric", ["cube", "tree"])
def test_sides_without_a_majority_take_different_blocks_of_identifiers(fabric: Fabric) -> None:
    """Nodes 1 and 2 are each alone, with no identifier left, when newcomers ask them for places."""
    cuts = [Step(at_us=10 * SECOND_US, kind="cut", nodes=[n, n + 2], lasts_us=30 * SECOND_US) for n in (1, 2)]
    steps = [*(start(node, node) for node in range(3)), *cuts, start(3, 20), start(4, 20)]
    for seed in range(20, 30):
        world = ran(ClusterSchedule(seed=seed, fabric=fabric, nodes=5, scarce=True, steps=steps))
        assert len(set(identifiers(world))) == 5


@pytest.mark.parametrize("fabric", FABRICS)
def test_the_same_seed_gives_the_same_run(fabric: Fabric) -> None:
    one, other = (ran(draw_cluster_schedule(fabric, 3)) for _ in range(2))
    assert one.clock.events == other.clock.events
    assert identifiers(one) == identifiers(other)


@pytest.mark.parametrize("fabric", FABRICS)
def test_all_join_at_once(fabric: Fabric) -> None:
    world = ran(ClusterSchedule(seed=1, fabric=fabric, nodes=6, steps=[start(node) for node in range(6)]))
    assert len(set(identifiers(world))) == 6


def test_a_newcomer_whose_answer_takes_long_is_connected_to_once() -> None:
    """It asks again before the answer has come; a second connection would end the first one."""
    schedule = ClusterSchedule(
        seed=1, fabric="tree", nodes=2, delay_us=(200_000, 300_000), lost_seconds=5.0, steps=[start(0), start(1, 1.0)]
    )
    world = ClusterWorld(schedule)
    parted: list[tuple[int, int]] = []
    world.judge.parted = lambda life, peer: parted.append((life, peer))  # type: ignore[method-assign]
    assert world.run().violations == [] and parted == []


@pytest.mark.parametrize("fabric", ["cube", "tree"])
def test_a_newcomer_that_two_nodes_give_a_place_is_known_by_the_one_that_it_took(fabric: Fabric) -> None:
    """Both places are on their way at the same time; nobody is told of the one that is not taken."""
    steps = [start(0), start(1, 2.0), start(2, 6.0), start(3, 6.0)]
    for seed in range(8):
        schedule = ClusterSchedule(
            seed=seed, fabric=fabric, nodes=4, delay_us=(50_000, 300_000), lost_seconds=5.0, steps=steps
        )
        world = ClusterWorld(schedule)
        parted: list[tuple[int, int]] = []
        world.judge.parted = lambda life, peer: parted.append((life, peer))  # type: ignore[method-assign]  # noqa: B023
        assert world.run().violations == [] and parted == []


def test_a_founder_that_crashes_after_it_gave_a_place_does_not_give_it_again() -> None:
    """Its disk is slow: it answers when the identifier is safe there."""
    crash = Step(at_us=2_133_168, kind="crash", node=0, lasts_us=1_010_569)
    steps = [start(0), start(2, 2.0), crash]
    ran(
        ClusterSchedule(
            seed=102,
            fabric="cube",
            nodes=3,
            with_disk=[0, 1, 2],
            commit_us=200_000,
            lost_seconds=0.5,
            founds_again=True,
            steps=steps,
        )
    )


def test_a_founder_without_its_disk_does_not_found_a_tree_of_its_own() -> None:
    """Its link to the other founder breaks before it has heard that it is somebody new."""
    steps = [
        start(0), start(1, 4.4), Step(at_us=12_777_931, kind="wipe", node=1, lasts_us=1),
        Step(at_us=12_808_000, kind="cut", nodes=[1], lasts_us=3_000_000),
    ]  # fmt: skip
    for seed in range(20):
        ran(
            ClusterSchedule(
                seed=seed, fabric="tree", nodes=2, founders=2, with_disk=[0], delay_us=(1000, 50_000), steps=steps
            )
        )


@pytest.mark.parametrize("kind", ["crash", "power", "leave"])
def test_a_broker_that_returns_with_its_disk_is_who_it_was(kind: Any) -> None:
    steps = [start(0), start(1), start(2, 1.0), Step(at_us=8_000_000, kind=kind, node=2, lasts_us=4_000_000)]
    world = ClusterWorld(ClusterSchedule(seed=1, fabric="tree", nodes=3, founders=2, with_disk=[0, 1, 2], steps=steps))
    world.clock.run_until(0)
    judge = world.run()
    assert judge.violations == []
    last = world.nodes[2]
    assert last is not None and last.membership.is_returning and last.membership.incarnation == 1


def test_a_node_of_gossip_remembers_its_neighbours_and_contacts() -> None:
    """A founder that returns looks for them; the newcomers that it took in may be gone."""
    steps = [start(0), start(2, 0.002), start(3, 0.003), start(1, 1.217985)]
    world = ran(ClusterSchedule(seed=3, fabric="gossip", nodes=4, with_disk=[0], steps=steps))
    first = world.nodes[0]
    assert first is not None and len(first.membership.addresses()) > 1
    assert set(first.membership.addresses()) <= set(msgspec.json.decode(world.disks[0].read(ADDRESSES) or b"[]"))


# The judge itself.


def judged(keeps_identity: bool = False, is_full: bool = True) -> MembershipJudge:
    """A judge of two lives that have entered as 0 and 1."""
    judge = MembershipJudge(MembershipRules(keeps_identity, begins_apart=True, is_full=is_full))
    for life in (0, 1):
        judge.began(life, life)
        judge.placed(life, life)
        judge.entered(life, life, 0, None)
        judge.met(life, 1 - life)
        judge.found(life, 1 - life)
    return judge


def test_the_judge_finds_two_nodes_with_one_identifier() -> None:
    judge = judged()
    judge.began(2, 2)
    judge.entered(2, 1, 0, None)
    assert judge.counts() == {IDENTITY: 1}


def test_the_judge_finds_a_node_that_returns_as_another_one_or_as_the_same_life() -> None:
    judge = judged(keeps_identity=True)
    judge.began(2, 1)
    judge.entered(2, 5, 1, 1)
    judge.began(3, 0)
    judge.entered(3, 0, 0, 0)
    assert judge.counts() == {IDENTITY: 2}


def test_the_judge_finds_what_comes_under_another_name() -> None:
    judge = judged()
    judge.on_frame(0, 7, 1, judge.sent(1, 0))
    assert IDENTITY in judge.counts()


def test_the_judge_finds_what_was_meant_for_another_node() -> None:
    judge = judged()
    judge.on_frame(0, 1, 1, judge.sent(1, 7))
    assert judge.counts() == {IDENTITY: 1}


def test_the_judge_finds_messages_of_an_earlier_time_together() -> None:
    judge = judged()
    first, second = judge.sent(1, 0), judge.sent(1, 0)
    judge.on_frame(0, 1, 1, first)
    judge.trouble(1)
    judge.parted(0, 1)
    judge.met(0, 1)
    judge.on_frame(0, 1, 1, second)
    assert judge.counts() == {TOGETHERNESS: 1}


def test_the_judge_finds_a_separation_that_one_end_has_not_noticed() -> None:
    judge = judged()
    judge.on_frame(0, 1, 1, judge.sent(1, 0))
    judge.trouble(0)
    judge.parted(1, 0)
    judge.met(1, 0)
    judge.on_frame(0, 1, 1, judge.sent(1, 0))
    assert judge.counts() == {TOGETHERNESS: 1}


def test_the_judge_finds_a_loss_without_a_reason() -> None:
    judge = judged()
    judge.parted(0, 1)
    judge.trouble(1)
    judge.parted(0, 1)
    assert judge.counts() == {TOGETHERNESS: 1}


def test_the_judge_finds_what_is_said_twice_or_late() -> None:
    judge = judged()
    judge.lost(0, 1)
    judge.lost(0, 1)
    judge.found(0, 1)
    judge.found(0, 1)
    stamp = judge.sent(1, 0)
    judge.on_frame(0, 1, 1, stamp)
    judge.on_frame(0, 1, 1, stamp)
    assert judge.counts() == {TOGETHERNESS: 3}


def test_the_judge_finds_nodes_that_do_not_know_each_other_or_still_look_for_a_place() -> None:
    judge = judged()
    judge.knows({0: {1}, 1: set()})
    judge.began(2, 2)
    judge.knows({0: {1}, 1: {0}, 2: set()})
    assert judge.counts() == {JOINING: 1, KNOWLEDGE: 1}
    apart = judged(is_full=False)
    apart.knows({0: set(), 1: set()})
    assert apart.counts() == {KNOWLEDGE: 1}
