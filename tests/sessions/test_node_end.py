"""The node's end as a state machine: what it vouches for when a client comes from another node."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from antiphon.sessions.client_messages import FollowRequest
from antiphon.sessions.dedup import DedupTable, Ranges
from antiphon.sessions.host import FabricTraits
from antiphon.sessions.node_end import LostPeers, NodeEnd
from antiphon.sessions.peer_messages import FrontierRequest, FrontierResponse, ReplayRequest
from antiphon.sessions.replay_buffer import Budget, ReplayBuffer, Resumption, TotalOrderScope
from antiphon.sessions.steps import Promise, start


class LonelyHost:
    """A node that reaches no other."""

    def now_us(self) -> int:
        return 1000

    def after(self, delay_us: int, call: object) -> None:
        """Nothing is waited for."""

    def identifiers(self) -> set[int]:
        return set()

    def frontier_keys(self, topic: int) -> list[int]:
        return []


@pytest.mark.parametrize(
    ("past", "is_gap"), [({}, True), ({1: [1]}, True), ({1: [2]}, False), ({1: [5], 2: [1]}, False)]
)
def test_a_gap_is_told_if_only_nodes_out_of_reach_can_have_shown_what_counts_as_past(
    past: dict[int, Ranges], is_gap: bool
) -> None:
    """Two publications of node 1 were past when this node became a member, later than the client subscribed."""
    replay_buffer: ReplayBuffer[Any] = ReplayBuffer(Budget())
    replay_buffer.begin(500)
    replay_buffer.starts_behind(DedupTable({1: [2]}))
    topic: Any = SimpleNamespace(name="room", number=7, replay_buffer=replay_buffer)
    host: Any = LonelyHost()
    end: NodeEnd[Any] = NodeEnd(FabricTraits(False, True, False), host)
    resumption: Resumption[Any] = Resumption(9, 100, {"room": {}}, {"room": past})
    assert start(end.fetch(topic, resumption)).is_done
    assert resumption.replay("room", replay_buffer) == (is_gap, [])


def test_a_node_remembers_since_when_others_are_lost_for_as_long_as_it_matters() -> None:
    lost = LostPeers(began_us=100, memory_us=1000)
    assert lost.since_us([1, 2]) == 100
    lost.add(1, 200)
    lost.add(2, 300)
    assert (lost.since_us([1]), lost.since_us([1, 2]), lost.since_us([3])) == (200, 300, 100)
    lost.add(1, 1400)
    assert lost.since_us([2]) == 100 and lost.since_us([1, 2]) == 1400


class Topic:
    """The same topic at one of two brokers."""

    name, number, learned, is_watched = "room", 7, None, False

    def __init__(self, is_member: Callable[[], bool]) -> None:
        self.seen = DedupTable()
        self.replay_buffer: ReplayBuffer[Any] = ReplayBuffer(Budget())
        self.is_member = is_member


class TwoBrokers:
    """Broker 1 has a client that comes from elsewhere; broker 2 becomes a member while broker 1 asks.

    A barrier that is published before broker 2 is a member never comes to it.
    """

    def __init__(self, returned: frozenset[int] = frozenset()) -> None:
        self.now = 1_000_000
        # Brokers that have returned with their logs, and those that have a say and are away.
        self.returned = returned
        self.absent: set[int] = set()
        self.is_gone = False
        self.due: list[tuple[int, int, Callable[[], object]]] = []
        self.topics: dict[int, Any] = {}
        self.ends: dict[int, NodeEnd[Any]] = {}
        self.barriers = 0
        self.calls = 0
        # Why there is no total order.
        self.reason: str | None = None
        self.sent: list[Any] = []
        # Brokers that the barrier passes and that broker 1 has not found.
        self.unfound: set[int] = set()
        for broker in (1, 2):
            self.topics[broker] = Topic(partial(self.is_member, broker))
            host: Any = SimpleNamespace(
                now_us=lambda: self.now,
                after=self.after,
                identifier=broker,
                identifiers=lambda broker=broker: set() if self.is_gone else {3 - broker} - self.unfound,
                counted=lambda broker=broker: set() if self.is_gone else {3 - broker},
                absent=lambda: self.absent,
                has_returned=broker in self.returned,
                topic=lambda _, broker=broker: self.topics[broker],
                publish_on=lambda _: kept(),
                find_topic=lambda _, broker=broker: self.topics[broker],
                send_control=partial(self.send, broker),
                until_shown=kept,
                draw=lambda _: 1,
                refusal=lambda: self.reason,
                publish_barrier=self.publish_barrier,
            )
            self.ends[broker] = NodeEnd(FabricTraits(True, False, False), host)
        self.topics[1].replay_buffer.begin(self.now)

    def is_member(self, broker: int) -> bool:
        return bool(self.topics[broker].replay_buffer.member_us(self.now + 1))

    def after(self, delay_us: int, call: Callable[[], object]) -> None:
        self.calls += 1
        heapq.heappush(self.due, (self.now + delay_us, self.calls, call))

    def send(self, sender: int, receiver: int, message: Any) -> None:
        self.sent.append(message)
        self.after(1000, lambda: self.ends[receiver].on_message(sender, message))

    def publish_barrier(self, topic: Any, key: int) -> tuple[int, Promise[None]]:
        self.barriers += 1
        number = self.barriers
        if self.is_member(2):
            self.topics[2].seen.add(1, number)
        else:
            self.topics[2].replay_buffer.begin(self.now)
        return number, kept()

    def run(self, seconds: float) -> None:
        end = self.now + int(seconds * 1_000_000)
        while self.due and self.due[0][0] <= end:
            self.now, _, call = heapq.heappop(self.due)
            call()


def kept() -> Promise[None]:
    promise: Promise[None] = Promise()
    promise.resolve(None)
    return promise


def test_a_broker_that_becomes_a_member_during_the_question_does_not_make_a_gap() -> None:
    """The first barrier never comes to broker 2, which has shown nothing. The second one comes."""
    brokers = TwoBrokers()
    resumption: Resumption[Any] = Resumption(9, 100, {"room": {}}, {"room": {}})
    fetched = start(brokers.ends[1].fetch(brokers.topics[1], resumption))
    brokers.run(seconds=1)
    assert fetched.is_done and brokers.barriers == 2
    assert resumption.replay("room", brokers.topics[1].replay_buffer) == (False, [])


@pytest.mark.parametrize("is_found", [True, False])
def test_a_broker_vouches_for_no_other_one_that_it_has_not_found(is_found: bool) -> None:
    """Broker 2 has shown all of the client's time; broker 1 finds it one second after the barrier, or never."""
    brokers = TwoBrokers()
    brokers.topics[2].replay_buffer.begin(0)
    brokers.unfound = {2}
    resumption: Resumption[Any] = Resumption(9, brokers.now - 1000, {"room": {}}, {"room": {}})
    fetched = start(brokers.ends[1].fetch(brokers.topics[1], resumption))
    brokers.run(seconds=1)
    assert [fetched.is_done, brokers.sent] == [False, []]
    if is_found:
        brokers.unfound = set()
    brokers.run(seconds=5)
    assert fetched.is_done and brokers.barriers == 1 and bool(brokers.sent) == is_found
    assert resumption.replay("room", brokers.topics[1].replay_buffer) == (not is_found, [])


def test_the_others_are_asked_for_the_whole_time_of_a_client_also_if_the_barrier_waited_for_a_majority() -> None:
    """The barrier waits for five seconds; the client was subscribed for one second before."""
    brokers = TwoBrokers()
    brokers.topics[2].replay_buffer.begin(brokers.now)
    resumption: Resumption[Any] = Resumption(9, brokers.now - 1_000_000, {"room": {}}, {"room": {}})
    brokers.reason = "no majority"
    start(brokers.ends[1].fetch(brokers.topics[1], resumption))
    brokers.run(seconds=5)
    brokers.reason = None
    brokers.run(seconds=1)
    asked = next(message for message in brokers.sent if isinstance(message, ReplayRequest))
    assert 6_000_000 <= asked.age_us < 6_100_000


def test_a_node_tells_newcomers_whose_batches_its_log_held_when_it_returned() -> None:
    """It has not delivered them in this life, and a client may hand one of them in again."""
    logged = SimpleNamespace(author=50, number=1, is_written=False, publisher=3, sequence=4, payload=b"")
    sent: list[Any] = []
    host: Any = SimpleNamespace(
        now_us=lambda: 1000,
        after=lambda *_: None,
        frontier_keys=lambda _: [],
        send_control=lambda _, control: sent.append(control),
    )
    topic: Any = Topic(lambda: True)
    host.find_topic = lambda _: topic
    topic.learned = kept()
    topic.replay_buffer.begin(0)
    topic.replay_buffer.add(0, logged)
    topic.seen.add(60, 1)
    end: NodeEnd[Any] = NodeEnd(FabricTraits(False, True, False), host)
    end.on_message(2, FrontierRequest(8, "room", []))
    assert sent == [FrontierResponse(8, True, [], {50: [1], 60: [1]})]


AUTHOR = 1 << 62
"""A client, whose message another one has seen at a broker before all brokers crashed."""


@pytest.mark.parametrize(
    ("has_other_returned", "has_other_logged", "is_one_away", "waits"),
    [
        (True, True, False, False),
        (True, False, False, True),
        (True, True, True, True),
        (False, False, False, False),
    ],
)
def test_a_broker_waits_for_an_author_unless_the_logs_of_all_that_returned_hold_the_message(
    has_other_returned: bool, has_other_logged: bool, is_one_away: bool, waits: bool
) -> None:
    """A broker whose log does not hold it, or one that is away, may never have had it: then its author has it."""
    brokers = TwoBrokers(frozenset({1, 2} if has_other_returned else {1}))
    brokers.absent = {3} if is_one_away else set()
    logged = SimpleNamespace(author=AUTHOR, number=1, is_written=False, publisher=3, sequence=4, payload=b"")
    brokers.topics[2].replay_buffer.begin(0)
    for broker in (1, 2) if has_other_logged else (1,):
        brokers.topics[broker].replay_buffer.add(0, logged)
    followed = start(brokers.ends[1].follow(9, FollowRequest(1, "room", {AUTHOR: 1})))
    brokers.run(seconds=4)
    assert followed.is_done == (not waits)
    # It is handed in again.
    for topic in brokers.topics.values():
        topic.seen.add(AUTHOR, 1)
    brokers.ends[1].topics_changed()
    brokers.run(seconds=1)
    assert followed.is_done


def test_a_broker_that_has_gone_behind_a_barrier_vouches_for_nothing() -> None:
    """The barrier passed broker 2, which is gone before it answers. It may have shown what no other broker has."""
    brokers = TwoBrokers()
    brokers.topics[2].replay_buffer.begin(0)
    resumption: Resumption[Any] = Resumption(9, brokers.now - 1000, {"room": {}}, {"room": {}})
    fetched = start(brokers.ends[1].fetch(brokers.topics[1], resumption))
    brokers.is_gone = True
    brokers.ends[1].on_peer_lost(2)
    brokers.run(seconds=1)
    assert fetched.is_done and brokers.barriers == 1
    assert resumption.replay("room", brokers.topics[1].replay_buffer) == (True, [])


@pytest.mark.parametrize("is_over_all_keys", [True, False])
@pytest.mark.parametrize("was_past", [True, False])
def test_a_total_message_before_a_seen_one_is_a_gap_where_nodes_pass_over_what_is_late(
    is_over_all_keys: bool, was_past: bool
) -> None:
    """The client has seen the second one at a node to which the first one had not come."""
    replay_buffer: ReplayBuffer[Any] = ReplayBuffer(Budget(), TotalOrderScope(is_over_all_keys, True))
    replay_buffer.begin(0)
    for author in (50, 60):
        replay_buffer.add(
            1000, Batch(publisher=author, sequence=1, order="total", payload=b"", author=author, number=1)
        )
    past: dict[int, Ranges] = {50: [1], 60: [1]} if was_past else {60: [1]}
    resumption: Resumption[Any] = Resumption(9, 500, {"room": {60: [1]}}, {"room": past})
    assert resumption.replay("room", replay_buffer) == (is_over_all_keys and not was_past, [])


class Batch(NamedTuple):
    """A batch about one key."""

    publisher: int
    sequence: int
    order: str
    payload: bytes
    author: int
    number: int
    is_written: bool = False

    @property
    def total_keys(self) -> set[bytes | None]:
        return {None}


@pytest.mark.parametrize(("done_up_to", "waits"), [(None, False), (1, False), (0, True)])
@pytest.mark.parametrize("broker", [1, 2])
def test_a_broker_does_not_wait_for_a_client_that_has_nothing_to_hand_in(
    broker: int, done_up_to: int | None, waits: bool
) -> None:
    """The author has come to one of the brokers. If it has a batch to hand in, it asks to follow what it has seen."""
    brokers = TwoBrokers()
    author: Any = SimpleNamespace(client=AUTHOR, send=lambda _: None)
    brokers.ends[broker].on_connect(author)
    if done_up_to is not None:
        start(brokers.ends[broker].follow(AUTHOR, FollowRequest(1, "room", {AUTHOR: done_up_to})))
    followed = start(brokers.ends[1].follow(9, FollowRequest(1, "room", {AUTHOR: 1})))
    brokers.run(seconds=0.4)
    assert not followed.is_done, "it may have come just now"
    brokers.run(seconds=2)
    assert followed.is_done == (not waits)
