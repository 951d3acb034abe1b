"""The node's end as a state machine: what it vouches for when a client comes from another node."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from antiphon.sessions.dedup import DedupTable, Ranges
from antiphon.sessions.host import FabricTraits
from antiphon.sessions.lost_peers import LostPeers
from antiphon.sessions.node_end import NodeEnd
from antiphon.sessions.peer_messages import FrontierRequest, FrontierResponse, ReplayRequest
from antiphon.sessions.replay_buffer import Budget, ReplayBuffer, Resumption
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

    def __init__(self) -> None:
        self.now = 1_000_000
        self.due: list[tuple[int, int, Callable[[], object]]] = []
        self.topics: dict[int, Any] = {}
        self.ends: dict[int, NodeEnd[Any]] = {}
        self.barriers = 0
        # Why there is no total order.
        self.reason: str | None = None
        self.sent: list[Any] = []
        for broker in (1, 2):
            self.topics[broker] = Topic(partial(self.is_member, broker))
            host: Any = SimpleNamespace(
                now_us=lambda: self.now,
                after=self.after,
                identifier=broker,
                identifiers=lambda broker=broker: {3 - broker},
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
        heapq.heappush(self.due, (self.now + delay_us, len(self.due) + self.now * 1000, call))

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
