"""Total order on the cube through faults: the claims of docs/proofs/cube-voters.md."""

from __future__ import annotations

from pathlib import Path

import pytest
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube.fault_tolerant import FaultTolerantVCubePs
from antiphon.fabrics.cube.messages import LeafCopy, Refusal, member_entry
from antiphon.fabrics.cube.repair.delivery import PLACES_AT_MOST, Places
from antiphon.fabrics.cube.repair.messages import REQUEST, REQUEST_TO_ALL, RESPONSE_TO_ALL, Digest
from antiphon.fabrics.cube.repair.unsettled import COMPARING
from antiphon.fabrics.cube.topic import FaultOptions, Options
from antiphon.fabrics.cube.topology import PartialCube
from antiphon.fabrics.cube.total_order.messages import KeyLockRequest
from antiphon.fabrics.cube.view import View
from antiphon.kernel.message import TOTAL
from antiphon.orders.claims import Claims
from antiphon.orders.lock_queue import LockRequest
from antiphon.orders.order import Placed
from antiphon.orders.total import TotalOrder
from antiphon.simulator.scenario.file import load_scenario
from antiphon.simulator.scenario.run import run_scenario
from antiphon.simulator.scenario.scenario import (
    CrashFault,
    Fault,
    JoinFault,
    PartitionFault,
    PublishTable,
    SubscribeTable,
)
from antiphon.torture.schedules.families import FAMILIES
from tests.fabrics.cube.test_lasting import Notebook, asked, nothing_broken, said, system, while_up

BROKEN_ONCE = Path(__file__).parent / "broken_once"
ORDERS = ("total", "causal", "total", "none")


def talk(nodes: int, count: int, gap: int = 30) -> list[PublishTable]:
    """All publish in turn, half of it in total order, about one key or two."""
    return [
        PublishTable(
            at=gap * number,
            node=number % nodes,
            order=ORDERS[number // nodes % len(ORDERS)],
            keys=[number % 2] if number % 3 else [0, 1],
        )
        for number in range(count)
    ]


def test_without_faults_it_costs_as_many_messages() -> None:
    calm = system(8, [], talk(8, 24))
    plain = system(8, [], talk(8, 24), "vcube-ps")
    nothing_broken(calm)
    assert calm.sent == plain.sent


@pytest.mark.parametrize("node", range(4))
def test_whenever_a_node_crashes_the_others_agree(node: int) -> None:
    """The lock manager, a publisher that has claimed, locked or started, or somebody who has to close."""
    for moment in range(0, 700, 13):
        conversation = while_up(talk(4, 16), node, moment, 100_000)
        result = system(4, [CrashFault(at=moment, node=node)], conversation, detection=5 if moment % 2 else 60)
        assert result.violations is not None and not any(result.violations.values()), (moment, result.judgement)
        assert result.stopped == "finished"


def test_the_side_without_a_majority_refuses_and_goes_on_in_other_orders() -> None:
    parts: list[Fault] = [PartitionFault(at=200, until=9000, groups=[[0, 1]])]
    result = system(5, parts, talk(5, 60))
    nothing_broken(result)
    assert 40 < result.published < 60, "some total ones are refused, and nothing else"
    assert result.deliveries == 5 * result.published


def test_keepers_that_crash_one_after_the_other_are_replaced() -> None:
    faults: list[Fault] = [CrashFault(at=300, node=0), CrashFault(at=4000, node=1), CrashFault(at=8000, node=2)]
    said = [PublishTable(at=100 * number, node=3 + number % 4, order="total", keys=[0]) for number in range(120)]
    result = system(7, faults, said)
    assert result.violations is not None and not any(result.violations.values()), result.judgement
    assert result.published == 120


# Each of them went wrong: claims said twice, locks that overtook their end, sides that both thought themselves the
# majority, newcomers that counted for a minority, a member alone behind a partition, a lock manager that came back,
# what somebody got who had no lock, publications that waited for each other in a circle, a lock manager of an earlier
# epoch that said who counts. They are files, since what a seed draws may change.
@pytest.mark.parametrize("name", sorted(path.stem for path in BROKEN_ONCE.glob("*.toml")))
def test_schedules_that_broke_it_once(name: str) -> None:
    result = run_scenario(load_scenario(BROKEN_ONCE / f"{name}.toml"))
    assert result.violations is not None and not any(result.violations.values()), result.judgement
    assert result.stopped == "finished"


def test_newcomers_are_told_that_there_is_no_majority_any_more() -> None:
    """Node 0 was cut off, and of the two who counted then the lower one, which kept, has crashed."""
    faults: list[Fault] = [
        PartitionFault(at=5000, until=30_000, groups=[[0]]),
        CrashFault(at=20_000, node=1),
        JoinFault(at=40_000, node=3),
    ]
    said = [PublishTable(at=50_000 + 1000 * number, node=3, order="total", keys=[0]) for number in range(4)]
    joins = [SubscribeTable(at=45_000, node=3, topic=0)]
    result = system(4, faults, said, members=range(3), subscriptions=joins)
    assert result.published == 0


def placed(place: int, key: int, source: int = 0) -> Placed:
    return Placed(source, 1, 0, b"", vec[i64](), 0, TOTAL, vec[i64]([key]), place)


def test_what_comes_behind_a_later_place_is_not_delivered() -> None:
    places = Places(None)
    assert places.take(placed(5, 1)) and places.take(placed(4, 2)) and places.take(placed(6, 1))
    assert not places.take(placed(5, 1)) and not places.take(placed(6, 1))
    assert places.take(placed(6, 1, source=3)), "two lock managers gave the same place; the source decides"


def test_of_keys_that_were_used_long_ago_only_the_highest_place_is_remembered() -> None:
    places = Places(None)
    for key in range(PLACES_AT_MOST + 1):
        assert places.take(placed(key + 1, key))
    assert not places.take(placed(1, 0)) and places.take(placed(2, 0))


def test_claims_of_one_who_is_gone_make_room_for_others() -> None:
    claims = Claims()
    one, other, third = (LockRequest(source, 1, vec[i64]([7])) for source in range(3))
    assert claims.add(one) == [one] and claims.add(other) == [] and claims.add(third) == []
    assert claims.drop(1) == [] and claims.drop(0) == [third]
    assert claims.is_granted(2, 1) and not claims.is_granted(0, 1)


def test_a_lock_that_is_taken_back_waits_for_nobody() -> None:
    order = TotalOrder(0)
    order.lock(1, 1, vec[i64]([7]), 5)
    assert order.is_closed(vec[i64]([7])) and order.has_unknown_before(6, vec[i64]([7]))
    assert not order.has_unknown_before(5, vec[i64]([7])) and not order.has_unknown_before(6, vec[i64]([8]))
    order.lock(1, 1, vec[i64]([7]), 9)
    assert not order.has_unknown_before(6, vec[i64]([7])), "it was granted anew"
    assert order.withdraw(order.locks()) == [] and not order.is_closed(vec[i64]([7]))


def test_a_node_that_is_found_is_locked_before_it_is_known_to_be_a_member() -> None:
    """It may have become one behind a partition, and publish before it hears of what starts now."""
    notes = Notebook(0)
    process = FaultTolerantVCubePs(notes, PartialCube(1, [0, 1]), Options(mixed=True, total=True), FaultOptions())
    process.begin_as_member(0, View(1, [0]))
    process.start()
    process.peer_lost(1)
    process.peer_found(1)
    process.publish_about([5], b"", 0, TOTAL)
    (lock,) = [each.packet for node, each in notes.sent if node == 1 and isinstance(each, LeafCopy)]
    assert isinstance(lock, KeyLockRequest) and notes.delivered == []
    process.receive(1, Refusal(lock, 0, True))
    assert len(notes.delivered) == 1, "it is not a member"
    process.publish_about([5], b"", 0, TOTAL)
    assert len(notes.delivered) == 2, "and is not asked again"


def among_members() -> tuple[FaultTolerantVCubePs, Notebook]:
    """Node 0, for which all others are members."""
    notes = Notebook(0)
    process = FaultTolerantVCubePs(notes, PartialCube(2, range(3)), Options(mixed=True, total=True), FaultOptions())
    process.begin_as_member(0, View(2, range(3)))
    process.start()
    return process, notes


def digest(source: int, members: list[int], asks: int = REQUEST, life: int = 0) -> Digest:
    """What node ``source`` says that knows these members; it has nothing."""
    known = vec[i64]([member_entry(node, 0, True) for node in members])
    return Digest(source, life, 0, known, vec[i64](), asks, True, 1 if asks == RESPONSE_TO_ALL else 0)


@pytest.mark.parametrize("how", ["it answers", "it is lost", "all are lost"])
def test_a_member_that_is_found_late_holds_weaker_messages_back_until_all_have_answered(how: str) -> None:
    """Node 1 has not sent to node 0 for a while. What node 2 sends may belong behind what node 1 has begun."""
    process, notes = among_members()
    process.receive(1, digest(1, [1, 2]))
    process.receive(2, said(2, 1))
    process.publish(b"", 0)
    assert notes.delivered == []
    process.expire(COMPARING)
    assert asked(notes) == [1, 2]
    if how == "all are lost":
        process.peer_lost(1)
    else:
        process.receive(1, digest(1, [0, 1, 2], RESPONSE_TO_ALL))
    assert notes.delivered == []
    if how == "it answers":
        process.receive(2, digest(2, [0, 1, 2], RESPONSE_TO_ALL))
    else:
        process.peer_lost(2)
    assert sorted(notes.delivered) == [(0, 1), (2, 1)]
    process.receive(1, said(1, 1))
    assert notes.delivered[2:] == [(1, 1)], "and nothing waits any more"


@pytest.mark.parametrize(
    "message",
    [
        digest(1, [0, 1, 2]),
        digest(1, [1, 2], life=7),
        digest(1, [1, 2], REQUEST_TO_ALL),
        digest(1, [1], RESPONSE_TO_ALL),
    ],
    ids=["it knows this node", "it has returned", "it asks all", "it answers"],
)
def test_nobody_waits_for_members_that_compare_for_other_reasons(message: Digest) -> None:
    process, notes = among_members()
    process.receive(1, message)
    process.receive(2, said(2, 1))
    assert notes.delivered == [(2, 1)]


def test_who_leaves_holds_nothing_back_for_its_next_subscription() -> None:
    process, notes = among_members()
    process.receive(1, digest(1, [1, 2]))
    process.receive(2, said(2, 1))
    process.unsubscribe(0)
    topic = process.topic(0)
    assert topic is not None and not process.delivery.is_returning(topic) and notes.delivered == []


@pytest.mark.parametrize("seed", [24507490973032, 3120377000021847, 3120377000008937])
def test_a_member_that_returns_hears_of_locks_whose_owners_are_gone(seed: int) -> None:
    """A node waited for a total message of a lost one. What it published then came to a returned node before that."""
    nothing_broken(run_scenario(FAMILIES["cube-faults"].draw(seed, None)))


def test_late_word_of_an_earlier_grant_holds_nobody_up() -> None:
    """Two members heard of a grant that its owner had taken back, after they had its publication from another node."""
    nothing_broken(run_scenario(FAMILIES["cube-faults"].draw(3130077000004618, None)))
