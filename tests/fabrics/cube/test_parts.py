"""The parts of a process on the cube, each alone, without the process that they belong to."""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube import topic as cube_topic
from antiphon.fabrics.cube.messages import FrontierHandover
from antiphon.fabrics.cube.nodes import CubeNodes
from antiphon.fabrics.cube.repair.messages import REQUEST, Digest, RepairBatch, Unavailable
from antiphon.fabrics.cube.repair.presence import Presence
from antiphon.fabrics.cube.repair.retransmission import FILLING_AT_MOST, GIVEN_ALL, GIVEN_PART, CubeRetransmission
from antiphon.fabrics.cube.repair.retransmit_buffer import Holdings
from antiphon.fabrics.cube.repair.unsettled import COMPARING, UnsettledTopics
from antiphon.fabrics.cube.topic import CubeTopic, CubeTopicTable, FaultOptions, Options
from antiphon.fabrics.cube.topology import NO_ENTRIES, PartialCube
from antiphon.fabrics.cube.total_order.electorate import Electorate
from antiphon.fabrics.cube.total_order.lock_manager import LockManager
from antiphon.fabrics.cube.total_order.messages import GrantRelease, GrantRequest, GrantResponse, LockManagerNotice
from antiphon.fabrics.cube.view import NOBODY
from antiphon.kernel import ProtocolMessage
from antiphon.kernel.message import publication_key
from antiphon.orders.causal import NO_PUBLICATIONS, NOBODY_WAITS
from antiphon.orders.order import Ordered
from antiphon.orders.total import NO_LOCKED_KEYS, NO_LOCKS
from antiphon.simulator.scenario.run import run_scenario
from antiphon.torture.schedules.cube import draw_fault_schedule
from tests.support import Notebook

KEYS = vec[i64]([5])
OPTIONS = Options(mixed=True, total=True)


class Diary(Notebook):
    """Writes down what timers are set, and keeps a journal."""

    def __init__(self, identifier: int, records: list[ProtocolMessage] | None = None) -> None:
        super().__init__(identifier)
        self.records = [] if records is None else records
        self.timers: list[tuple[int, int]] = []

    def set_timer(self, delay: int, name: int) -> int:
        self.timers.append((delay, name))
        return len(self.timers)

    def journal(self) -> list[ProtocolMessage] | None:
        return self.records

    def rewrite(self, records: list[ProtocolMessage]) -> None:
        self.records = records


def cube_of_three() -> PartialCube:
    return PartialCube(2, [0, 1, 2])


def new_topic() -> CubeTopic:
    return CubeTopicTable(0, OPTIONS).find(7)


def manager_at(notebook: Notebook) -> LockManager:
    topics = CubeTopicTable(notebook.identifier, OPTIONS)
    return LockManager(notebook, topics, CubeNodes(notebook, cube_of_three(), topics))


def granted(notebook: Notebook) -> list[int]:
    return [node for node, message in notebook.sent if isinstance(message, GrantResponse)]


def test_a_keeper_grants_one_claim_to_a_key_after_the_other() -> None:
    manager = manager_at(notebook := Notebook(0))
    manager.receive(1, GrantRequest(1, 1, 7, 1, KEYS))
    manager.receive(2, GrantRequest(2, 1, 7, 1, KEYS))
    assert granted(notebook) == [1]
    manager.receive(1, GrantRelease(1, 1, 7, 1))
    assert granted(notebook) == [1, 2]


def test_a_keeper_passes_over_what_was_said_to_another_one() -> None:
    manager = manager_at(notebook := Notebook(0))
    manager.receive(1, GrantRequest(1, 1, 7, 2, KEYS))
    assert granted(notebook) == []


def test_who_leaves_makes_the_lowest_of_the_others_the_keeper() -> None:
    manager = manager_at(notebook := Notebook(0))
    manager.resign()
    assert (manager.manager, manager.epoch) == (1, 2)
    (node, told), *_ = notebook.sent
    assert node == 1 and isinstance(told, LockManagerNotice) and told.origin == 1


def test_a_majority_of_the_voters_has_to_be_within_reach() -> None:
    presence = Presence(notebook := Notebook(0), cube_of_three())
    electorate = Electorate(notebook, cube_of_three(), presence, True)
    presence.on_lost(1)
    electorate.count()
    assert (electorate.has_majority, electorate.missing()) == (True, [1])
    presence.on_lost(2)
    electorate.count()
    assert (electorate.has_majority, electorate.missing()) == (False, [1, 2])


def test_a_voter_comes_back_as_its_next_incarnation() -> None:
    first = Diary(0)
    before = Electorate(first, cube_of_three(), Presence(first, cube_of_three()), True)
    before.remember(LockManagerNotice(0, 4, 1, 9, vec[i64]([0, 1, 2]), 0, vec[i64]()))
    second = Diary(3, first.records)
    alone = PartialCube(2, [3])
    after = Electorate(second, alone, Presence(second, alone), True)
    assert after.is_back and after.past is not None and after.past.sequence == 4
    assert (after.incarnations.voter, after.incarnations.incarnation, after.version) == (0, 1, 9)
    assert not after.has_majority


def test_a_newcomer_meets_those_whom_it_finds_while_it_asks() -> None:
    presence = Presence(Notebook(0), cube_of_three())
    topic = new_topic()
    presence.meet(topic, 1)
    presence.meet(topic, 2)
    presence.on_lost(2)
    assert presence.met(topic) == presence.end_asking(topic) == [1]
    assert presence.met(topic) == []


def test_a_restless_topic_sets_one_timer_until_it_rests() -> None:
    diary = Diary(0)
    unsettled_topics = UnsettledTopics(diary, 1000)
    topic = new_topic()
    unsettled_topics.doubt(topic)
    unsettled_topics.disturb(topic)
    assert diary.timers == [(1000, COMPARING)]
    ((_, unsettled),) = unsettled_topics.begin_round()
    assert not unsettled.is_doubt
    unsettled_topics.rest(topic)
    unsettled_topics.end_round()
    assert diary.timers == [(1000, COMPARING)]


def test_what_is_lacking_is_given_in_parts() -> None:
    notebook, topic = Notebook(0), new_topic()
    giving = CubeRetransmission(notebook, FaultOptions(), False)
    last = FILLING_AT_MOST + 1
    for number in range(1, last + 1):
        giving.keep(topic, Ordered(0, number, 0, b"", vec[i64](), 7, 0))
    mine = Holdings(vec[i64]([publication_key(0, last)]))

    def asks(have: int) -> int:
        entries = vec[i64]([publication_key(0, have)]) if have else vec[i64]()
        question = Digest(1, 1, 7, vec[i64](), entries, REQUEST, True, 0)
        return int(giving.give(topic, 1, question, Holdings(entries), mine))

    assert asks(0) == GIVEN_PART
    assert asks(0) == GIVEN_PART, "the part is on its way"
    assert asks(FILLING_AT_MOST) == GIVEN_ALL
    fillings = [message for _, message in notebook.sent if isinstance(message, RepairBatch)]
    assert [(len(filling.publications), filling.is_last) for filling in fillings] == [
        (FILLING_AT_MOST, False),
        (1, True),
    ]


def test_what_is_in_memory_is_given_though_something_later_is_gone() -> None:
    """A newcomer counts 2 as past and never had it; without a log it says so, but not of 1, which it has."""
    notebook, topic = Notebook(0), new_topic()
    giving = CubeRetransmission(notebook, FaultOptions(), False)
    for number in (1, 3):
        giving.keep(topic, Ordered(2, number, 0, b"", vec[i64](), 7, 0))
    mine = Holdings(vec[i64]([publication_key(2, 3)]))

    def given_to_one_who_has(*keys: int) -> list[list[int]]:
        notebook.sent.clear()
        have = vec[i64](list(keys))
        giving.give(topic, 1, Digest(1, 1, 7, vec[i64](), have, REQUEST, True, 0), Holdings(have), mine)
        return [
            [int(each.sequence) for each in message.publications]
            if isinstance(message, RepairBatch)
            else [int(key) for key in message.entries]
            for _, message in notebook.sent
            if isinstance(message, (RepairBatch, Unavailable))
        ]

    assert given_to_one_who_has() == [[1, 3]], "while 1 is lacking nothing is said of 2"
    assert given_to_one_who_has(publication_key(2, 1), ~publication_key(2, 3)) == [[publication_key(2, 2)]]


def test_a_copy_of_what_counts_as_past_is_kept_unless_it_would_stay_for_ever() -> None:
    notebook, topic = Notebook(0), new_topic()
    giving = CubeRetransmission(notebook, FaultOptions(keep=10), False)
    for number in (3, 2):
        giving.keep(topic, Ordered(2, number, 0, b"", vec[i64](), 7, 0), 12)
    assert topic.retransmit_buffer is not None
    assert [topic.retransmit_buffer.get(publication_key(2, number)) is not None for number in (2, 3)] == [False, True]


def test_who_leaves_bequeaths_what_it_counts_as_past() -> None:
    topics = CubeTopicTable(0, Options())
    nodes = CubeNodes(notebook := Notebook(0), cube_of_three(), topics)
    topics.find(7).order.start_from(vec[i64]([publication_key(1, 3)]))
    nodes.leave()
    assert [node for node, _ in notebook.sent] == [1, 2]
    bequest = notebook.sent[0][1]
    assert isinstance(bequest, FrontierHandover)
    inherited = CubeTopicTable(1, Options())
    CubeNodes(Notebook(1), cube_of_three(), inherited).on_frontier_handover(bequest)
    assert list(inherited.find(7).inherited) == [publication_key(1, 3)]


def test_what_topics_without_anything_share_stays_empty() -> None:
    """Schedules with crashes, returns and all orders use every container of a topic."""
    for seed in range(12):
        assert run_scenario(draw_fault_schedule(seed)).stopped == "finished"
    shared = (
        cube_topic.NO_REQUESTS,
        cube_topic.NO_MESSAGES,
        cube_topic.NO_TOTALS,
        cube_topic.NO_ROUTES,
        cube_topic.NO_COUNTERS,
    )
    assert all(len(each) == 0 for each in (*shared, cube_topic.NO_NUMBERS, NOBODY, NO_ENTRIES))
    assert all(len(each) == 0 for each in (NO_PUBLICATIONS, NOBODY_WAITS, NO_LOCKS, NO_LOCKED_KEYS))
