"""VCube-PS through crashes, returns and partitions: the claims of docs/proofs/cube-through-faults.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube.fault_tolerant import FaultTolerantVCubePs
from antiphon.fabrics.cube.messages import Acknowledgement, LeafCopy, SurveyResponse, Unsubscribe, member_entry
from antiphon.fabrics.cube.repair.messages import (
    REQUEST,
    REQUEST_TO_ALL,
    RESPONSE_TO_ALL,
    Digest,
    RepairBatch,
    Unavailable,
)
from antiphon.fabrics.cube.repair.retransmit_buffer import Holdings, RetransmitBuffer, with_held
from antiphon.fabrics.cube.repair.unsettled import COMPARING
from antiphon.fabrics.cube.route import Route
from antiphon.fabrics.cube.topic import UNBOUNDED, FaultOptions, Options
from antiphon.fabrics.cube.topology import PartialCube
from antiphon.fabrics.cube.view import View
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import CAUSAL, ProtocolMessage, Publication, publication_key
from antiphon.kernel.process import NO_NODE, Environment
from antiphon.orders.order import Ordered
from antiphon.simulator.scenario.file import load_scenario
from antiphon.simulator.scenario.run import Result, run_scenario
from antiphon.simulator.scenario.scenario import (
    ConstantLaw,
    CrashFault,
    Fault,
    LimitsTable,
    NetworkTable,
    PartitionFault,
    PublishTable,
    RestartFault,
    Scenario,
    SubscribeTable,
    TopicsTable,
)
from antiphon.torture.schedules.cube import draw_fault_schedule

DELAY = 20


def system(
    nodes: int,
    faults: list[Fault],
    publications: list[PublishTable],
    protocol: str = "vcube-ps-lasting",
    detection: int = 50,
    members: Sequence[int] | None = None,
    subscriptions: Sequence[SubscribeTable] = (),
    **options: Any,
) -> Result:
    """A run of a system in which all are members of one topic, unless it is said who is."""
    lasting = {"compare": 200, "forget": 100_000, "log": 1000, **options} if protocol == "vcube-ps-lasting" else {}
    return run_scenario(
        Scenario(
            name="lasting",
            nodes=nodes,
            protocol=protocol,
            protocol_options=lasting,
            network=NetworkTable(delay=ConstantLaw(ticks=DELAY), detection=detection, in_order=True),
            topics=TopicsTable(count=1, members=[list(members or range(nodes))]),
            publications=publications,
            subscriptions=list(subscriptions),
            faults=faults,
        )
    )


def talk(nodes: int, count: int, gap: int = 30) -> list[PublishTable]:
    """All publish in turn, each perhaps in answer to the one before."""
    return [PublishTable(at=gap * number, node=number % nodes) for number in range(count)]


def while_up(publications: list[PublishTable], node: int, down: int, up: int) -> list[PublishTable]:
    """Those that are not asked of a node while it is down."""
    return [each for each in publications if each.node != node or not down <= each.at <= up]


def nothing_broken(result: Result) -> None:
    """The judge has found nothing, and nobody was told of a loss."""
    assert result.violations is not None, result.judgement
    assert not any(result.violations.values()), result.judgement
    assert result.stopped == "finished" and result.lost == 0


def test_without_faults_it_costs_as_many_messages() -> None:
    calm = system(8, [], talk(8, 24))
    plain = system(8, [], talk(8, 24), "vcube-ps")
    nothing_broken(calm)
    assert calm.sent == plain.sent and calm.latency_max == plain.latency_max


@pytest.mark.parametrize("returns_after", [0, 1, 500])
@pytest.mark.parametrize("node", range(4))
def test_whenever_a_node_crashes_the_others_agree(node: int, returns_after: int) -> None:
    """A crash at every moment of a conversation, of each node, for good or not: everything that is not past then is
    on its way, at every place where it can be."""
    for moment in range(0, 400, 7):
        faults: list[Fault] = [CrashFault(at=moment, node=node)]
        if returns_after:
            faults.append(RestartFault(at=moment + returns_after, node=node))
        conversation = while_up(talk(4, 12), node, moment, moment + (returns_after or 10_000))
        result = system(4, faults, conversation, detection=5 if moment % 2 else 60)
        assert result.violations is not None and not any(result.violations.values()), (moment, result.judgement)
        assert result.stopped == "finished" and (result.lost == 0 or not returns_after)


def test_two_that_crash_together_and_return_with_their_logs_miss_nothing() -> None:
    faults: list[Fault] = [CrashFault(at=100, node=1), CrashFault(at=100, node=2)]
    faults += [RestartFault(at=2000, node=1), RestartFault(at=3000, node=2)]
    before = while_up(while_up(talk(4, 8), 1, 100, 2000), 2, 100, 3000)
    result = system(4, faults, [*before, *(PublishTable(at=400 + 20 * number, node=0) for number in range(200))])
    nothing_broken(result)
    assert result.deliveries == 4 * result.published


def test_both_sides_of_a_partition_go_on_and_exchange_what_they_missed() -> None:
    halves: list[Fault] = [PartitionFault(at=200, until=8000, groups=[[0, 1, 2]])]
    result = system(6, halves, talk(6, 60))
    nothing_broken(result)
    assert result.deliveries == 6 * 60


def test_an_answer_to_an_earlier_question_is_no_answer_to_the_question_to_all() -> None:
    """Node 2 counts as past what it has never had, and says so; node 0 has it, and gives the rest of it later."""
    speaking = [PublishTable(at=1 + number, node=2 if number % 2 else 0) for number in range(100)]
    result = run_scenario(
        Scenario(
            name="lasting",
            nodes=3,
            protocol="vcube-ps-lasting",
            protocol_options={"compare": 100},
            network=NetworkTable(delay=ConstantLaw(ticks=50), detection=1, in_order=True),
            topics=TopicsTable(count=1, members=[[0, 1, 2]]),
            publications=while_up(speaking, 2, 20, 22),
            unsubscriptions=[SubscribeTable(at=20, node=2)],
            subscriptions=[SubscribeTable(at=21, node=2)],
            faults=[PartitionFault(at=44, until=1000, groups=[[0, 2]])],
        )
    )
    nothing_broken(result)


def test_what_nobody_has_any_more_is_said_though_somebody_never_comes_back() -> None:
    """Without logs, and with little in memory: node 1 misses most of what is said while it is cut off."""
    faults: list[Fault] = [PartitionFault(at=100, until=3000, groups=[[1]]), CrashFault(at=150, node=2)]
    speaking = [PublishTable(at=200 + 20 * number, node=0, order="none") for number in range(50)]
    result = system(4, faults, speaking, log=0, window=1, bundle=1, keep=2, forget=20_000)
    assert result.deliveries == 2 * 50 + 2 and result.lost == 48


def test_catching_up_takes_one_part_after_the_other_however_many_rounds_pass_meanwhile() -> None:
    """Node 0 was alone and has 2,000 publications that the others lack: 32 parts for each of three.

    Others publish meanwhile, so that members wait for what has not come, and ask in every round. All output takes time.
    Members that got the same part for each question would ask for the next one as often, and never come to an end.
    """
    healed, count = 3200, 2000
    alone = [PublishTable(at=200, node=0) for _ in range(count)]
    result = run_scenario(
        Scenario(
            name="lasting",
            nodes=4,
            protocol="vcube-ps-lasting",
            protocol_options={
                "compare": 100,
                "forget": 1_000_000,
                "log": 100_000,
                "keep": 16,
                "window": 8,
                "bundle": 1,
            },
            network=NetworkTable(delay=ConstantLaw(ticks=DELAY), transmission=10, detection=50, in_order=True),
            topics=TopicsTable(count=1, members=[[0, 1, 2, 3]]),
            publications=[*alone, *(PublishTable(at=healed + 20 * number, node=number % 4) for number in range(100))],
            faults=[PartitionFault(at=100, until=healed, groups=[[0]])],
            limits=LimitsTable(events=20_000),
        )
    )
    nothing_broken(result)
    assert result.deliveries == 4 * (count + 100)
    assert result.sent < 3000
    assert result.latency_max is not None and result.latency_max < healed + 10_000


def test_several_partitions_at_once_one_way_and_flapping() -> None:
    faults: list[Fault] = [PartitionFault(at=100, until=3000, groups=[[0]], one_way=True)]
    faults.append(PartitionFault(at=150, until=2000, groups=[[1, 2], [3]]))
    faults += [PartitionFault(at=4000 + 400 * flap, until=4200 + 400 * flap, groups=[[4]]) for flap in range(5)]
    result = system(6, faults, talk(6, 200))
    nothing_broken(result)
    assert result.deliveries == 6 * 200


def test_what_is_in_no_memory_and_in_no_log_is_said_to_be_lost() -> None:
    """Who was away for more than everybody keeps is told so, in its place; what follows is delivered."""
    away: list[Fault] = [PartitionFault(at=100, until=9000, groups=[[3]])]
    said = [PublishTable(at=500 + 10 * number, node=0) for number in range(300)]
    result = system(4, away, said, log=10, window=4, bundle=1, keep=8)
    assert result.stopped == "finished" and 250 < result.lost < 300
    assert result.violations is not None
    assert result.violations["completeness"] == result.violations["holes"] == result.lost
    assert result.violations["stuck"] == 0
    assert result.violations["causal"] == result.violations["duplicates"] == 0


def test_a_newcomer_keeps_what_it_has_acknowledged_though_it_counts_as_past() -> None:
    """It came while the newcomer joined, and its publisher died: the newcomer has the only copy."""
    broken_once = Path(__file__).parent / "broken_once" / "192336601418164.toml"
    nothing_broken(run_scenario(load_scenario(broken_once)))


def test_an_answer_to_an_earlier_question_does_not_count_for_the_next() -> None:
    """The publisher's answer was on a slow link since before it published, and a newcomer counts that as past."""
    broken_once = Path(__file__).parent / "broken_once" / "401451178003952.toml"
    nothing_broken(run_scenario(load_scenario(broken_once)))


@pytest.mark.parametrize("first_seed", range(1, 61, 20))
def test_random_faults_break_nothing(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 20):
        scenario = draw_fault_schedule(seed)
        result = run_scenario(scenario)
        assert result.violations is not None and not any(result.violations.values()), (seed, result.judgement)
        assert result.stopped == "finished", seed


# The parts.


class Notebook(Environment):
    """Writes down what a process does."""

    def __init__(self, identifier: int) -> None:
        super().__init__(identifier)
        self.time = 0
        self.sent: list[tuple[int, ProtocolMessage]] = []
        self.delivered: list[tuple[int, int]] = []

    def now(self) -> int:
        return self.time

    def send(self, destination: int, message: ProtocolMessage) -> None:
        self.sent.append((destination, message))

    def deliver(self, publication: Any) -> None:
        self.delivered.append((publication.source, publication.sequence))

    def set_timer(self, delay: int, name: int) -> int:
        return 0


def member(node: int, nodes: int = 8) -> tuple[FaultTolerantVCubePs, Notebook]:
    """A process that is a member of topic 0 among all others."""
    notes = Notebook(node)
    cube = PartialCube(3, range(nodes))
    process = FaultTolerantVCubePs(notes, cube, Options(mixed=True, bundle=1), FaultOptions())
    process.begin_as_member(0, View(3, range(nodes)))
    process.start()
    return process, notes


def said(source: int, sequence: int, names: list[int] | None = None) -> Publication:
    return Ordered(source, sequence, 0, b"", vec[i64](names or []), 0, CAUSAL)


def test_the_cluster_of_a_child_that_is_lost_goes_to_the_next_member_there() -> None:
    process, notes = member(0)
    process.publish(b"", 0)
    assert [target for target, _ in notes.sent] == [4, 2, 1]
    notes.sent.clear()
    process.peer_lost(4)
    assert [target for target, message in notes.sent if isinstance(message, Publication)] == [5]
    assert process.first_unsettled(0) == 1
    for child in (5, 2, 1):
        process.receive(child, Acknowledgement(0, 1, 0))
    assert process.first_unsettled(0) > 1


def test_a_node_answers_each_parent_for_the_clusters_of_that_parent_only() -> None:
    """Node 1 serves node 0's smallest cluster, alone. Then node 5, which led around somebody, hands it a larger one."""
    process, notes = member(1)
    process.receive(0, said(0, 1))
    assert [(target, type(message)) for target, message in notes.sent] == [(0, Acknowledgement)]
    notes.sent.clear()
    process.receive(5, said(0, 1))
    handed_on = [target for target, message in notes.sent if isinstance(message, Publication)]
    assert handed_on == [3, 0] and notes.delivered == [(0, 1)]
    process.receive(0, Acknowledgement(0, 1, 0))
    assert not any(target == 5 for target, _ in notes.sent)
    process.receive(3, Acknowledgement(0, 1, 0))
    assert [type(message) for target, message in notes.sent if target == 5] == [Acknowledgement]


def test_who_lacks_something_is_given_it_and_is_back_in_the_view() -> None:
    process, notes = member(0)
    process.receive(1, said(1, 1))
    process.peer_lost(6)
    topic = process.topic(0)
    assert topic is not None and not topic.view.contains(6) and topic.away == {6: 0}
    process.peer_found(6)
    notes.sent.clear()
    process.receive(6, Digest(6, 0, 0, vec[i64](), vec[i64](), REQUEST, True, 0))
    given = [message for target, message in notes.sent if target == 6 and isinstance(message, RepairBatch)]
    assert [(each.source, each.sequence) for filling in given for each in filling.publications] == [(1, 1)]
    assert topic.view.contains(6) and not topic.away


def test_the_copy_for_a_newcomer_alone_is_acknowledged_behind_its_delivery() -> None:
    """A host with durability holds an acknowledgement back until all that was delivered before it is on disk."""

    class Journal(Notebook):
        def send(self, destination: int, message: ProtocolMessage) -> None:
            assert not isinstance(message, Acknowledgement) or self.delivered == [(1, 1)]
            super().send(destination, message)

    process = FaultTolerantVCubePs(notes := Journal(0), PartialCube(1, [0, 1]), Options(mixed=True), FaultOptions())
    process.begin_as_member(0, View(1, range(2)))
    process.start()
    process.receive(1, LeafCopy(said(1, 1)))
    assert [type(message) for _, message in notes.sent] == [Acknowledgement]


def test_the_first_publication_of_a_newcomer_follows_all_that_was_past_when_it_came() -> None:
    """A client that comes to its node may have seen that elsewhere."""
    notes = Notebook(0)
    process = FaultTolerantVCubePs(notes, PartialCube(1, [0, 1]), Options(mixed=True, bundle=1), FaultOptions())
    process.start()
    process.subscribe(0)
    past = publication_key(2, 3)
    process.receive(1, SurveyResponse(0, 1, 0, vec[i64]([member_entry(1, 1, True)]), vec[i64](), False))
    process.receive(1, SurveyResponse(0, 1, 0, vec[i64]([past]), vec[i64](), True))
    assert process.publish(b"", 0, CAUSAL) == 1
    sent = [message for _, message in notes.sent if isinstance(message, Ordered)]
    assert [list(message.dependencies) for message in sent] == [[past]]


def test_what_waits_for_a_moment_makes_nobody_compare() -> None:
    """Only what lacks the same for a whole round is asked for: what is on its way comes by itself."""
    process, notes = member(0)
    for first in (1, 3):
        process.receive(1, said(1, first + 1))
        process.expire(COMPARING)
        process.receive(1, said(1, first))
        # Meanwhile something else waits.
        process.receive(2, said(2, first + 1))
        process.expire(COMPARING)
        process.receive(2, said(2, first))
        process.expire(COMPARING)
    assert len(notes.delivered) == 8
    assert not [message for _, message in notes.sent if isinstance(message, Digest)]
    process.receive(3, said(3, 2))
    for _ in range(2):
        assert not [message for _, message in notes.sent if isinstance(message, Digest)]
        process.expire(COMPARING)
    assert {target for target, message in notes.sent if isinstance(message, Digest)} == set(range(1, 8))


def test_nobody_is_asked_again_before_it_has_answered() -> None:
    """Else each round makes a network slower that is slower than a round, and the answers never come."""
    process, notes = member(0)
    process.receive(3, said(3, 2))
    for _ in range(10):
        process.expire(COMPARING)
    assert sorted(asked(notes)) == list(range(1, 8))
    for peer in range(1, 8):
        process.receive(peer, Digest(peer, 0, 0, vec[i64](), vec[i64](), RESPONSE_TO_ALL, True, 1))
    for _ in range(40):
        process.expire(COMPARING)
    assert sorted(asked(notes)) == sorted([*range(1, 8)] * 2)


def asked(notes: Notebook) -> list[int]:
    """Whom a node has asked for all that they have, once for each question."""
    return [target for target, message in notes.sent if isinstance(message, Digest) and message.asks == REQUEST_TO_ALL]


@pytest.mark.parametrize("order", ["first the publication", "first the loss"])
def test_what_a_publisher_said_that_left_and_died_is_compared(order: str) -> None:
    """It is in no view any more, and nobody else would notice that not all members have its last publication."""
    process, notes = member(0)
    if order == "first the publication":
        process.receive(1, said(1, 1))
    process.receive(1, Unsubscribe(1, 1, 0))
    process.peer_lost(1)
    if order == "first the loss":
        process.expire(COMPARING)
        assert not [message for _, message in notes.sent if isinstance(message, Digest)]
        process.receive(2, said(1, 1))
    process.expire(COMPARING)
    assert {target for target, message in notes.sent if isinstance(message, Digest)} == {2, 4}


def test_a_member_that_was_given_up_is_not_said_to_have_left() -> None:
    """Others may reach it all the time; if each told the other that it has left, they would never come to rest."""
    process, notes = member(0)
    process.peer_lost(6)
    notes.time = FaultOptions().forget_ticks
    process.expire(COMPARING)
    topic = process.topic(0)
    assert topic is not None and not topic.away and not topic.view.contains(6)
    everybody = vec[i64]([member_entry(node, 0, True) for node in range(8)])
    process.receive(5, Digest(5, 0, 0, everybody, vec[i64](), REQUEST, True, 0))
    assert not topic.away, "nobody waits for it who cannot reach it"
    process.peer_found(6)
    notes.sent.clear()
    process.receive(5, Digest(5, 0, 0, everybody, vec[i64](), REQUEST, True, 0))
    assert not [message for _, message in notes.sent if isinstance(message, Unsubscribe)]
    assert 6 in [target for target, message in notes.sent if isinstance(message, Digest)]
    process.receive(6, Digest(6, 0, 0, everybody, vec[i64](), REQUEST, True, 0))
    assert topic.view.contains(6) and not topic.away


def test_what_was_had_and_is_not_any_more_is_said_to_whoever_asks() -> None:
    process, notes = member(0)
    for number in range(1, 400):
        process.receive(1, said(1, number))
    notes.sent.clear()
    process.receive(6, Digest(6, 0, 0, vec[i64](), vec[i64](), REQUEST, True, 0))
    gone = [message for _, message in notes.sent if isinstance(message, Unavailable)]
    assert [list(each.entries) for each in gone] == [[publication_key(1, 399 - 256)]]


def test_routes_count_answers() -> None:
    route = Route(said(0, 1))
    route.parents[NO_NODE] = 3
    route.sent(4, True)
    route.sent(4, False)
    assert route.on_ack(4) and not route.served(0)
    assert route.on_ack(4) and not route.on_ack(4)
    assert route.served(0) == [NO_NODE]


def test_keeping_and_possession() -> None:
    retransmit_buffer = RetransmitBuffer(2, UNBOUNDED)
    for number in (1, 2, 3):
        retransmit_buffer.add(said(7, number))
    assert (
        retransmit_buffer.get(publication_key(7, 1)) is None
        and retransmit_buffer.get(publication_key(7, 3)) is not None
    )
    have = with_held(vec[i64]([publication_key(7, 2)]), [publication_key(7, 5)])
    mine, theirs = Holdings(have), Holdings(vec[i64]([publication_key(7, 1)]))
    assert mine.covers(theirs) and mine.covers(mine) and not theirs.covers(mine)
    assert mine.holds(7, 2) and not mine.holds(7, 3) and mine.holds(7, 5)
    assert mine.beyond(theirs) == [(7, 1, 5)] and theirs.beyond(mine) == []


def test_large_publications_are_kept_up_to_a_number_of_bytes_of_each_source() -> None:
    """Twice the same one counts once; the last one is kept however large it is; other sources do not matter."""
    keeping = RetransmitBuffer(100, 1000)

    def add(source: int, number: int, size: int) -> None:
        keeping.add(Publication(source, number, 0, bytes(size), 1))

    def kept(source: int) -> list[int]:
        return [number for number in range(1, 300) if keeping.get(publication_key(source, number)) is not None]

    add(8, 1, 900)
    for number in range(1, 5):
        for _ in range(3):
            add(7, number, 300)
    assert kept(7) == [2, 3, 4] and kept(8) == [1]
    add(7, 5, 5000)
    assert kept(7) == [5]
    for number in range(6, 200):
        add(7, number, 1)
    assert kept(7) == list(range(100, 200))
    add(7, 200, 950)
    assert kept(7) == list(range(150, 201)) and kept(8) == [1]


def test_options_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match="keep at least 128"):
        FaultTolerantVCubePs(Notebook(0), PartialCube(1, [0]), Options(mixed=True), FaultOptions(keep=100))
    with pytest.raises(UsageError, match="set mixed = true"):
        FaultTolerantVCubePs(Notebook(0), PartialCube(1, [0]), Options(), FaultOptions())
    with pytest.raises(UsageError, match="forget_ticks is not less than compare_ticks"):
        FaultOptions(compare_ticks=10, forget_ticks=5)
