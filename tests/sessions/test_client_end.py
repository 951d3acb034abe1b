"""The client's end as a state machine: what it does when its node is silent or gone, step by step in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any

from antiphon.kernel.errors import PeerError
from antiphon.membership.messages import Control
from antiphon.sessions.client_end import (
    FIRST_PAUSE_US,
    LONGEST_PAUSE_US,
    ClientEnd,
    Introduction,
)
from antiphon.sessions.client_messages import (
    FollowRequest,
    FollowResponse,
    HeartbeatRequest,
    NodeAddresses,
    PublishRequest,
    PublishResponse,
    SafeUpTo,
    SubscribeRequest,
    SubscriptionEnded,
    SubscriptionReady,
    TopicStarted,
)
from antiphon.sessions.client_subscription import ClientSubscription
from antiphon.sessions.server_pool import ServerPool
from antiphon.sessions.steps import Promise
from antiphon.simulator.clients.batches import SimulatedBatch


def batch(author: int, number: int, order: str = "causal") -> SimulatedBatch:
    return SimulatedBatch(1, number, order, b"", author, number)


class VirtualClient:
    """A host without sockets: nodes are up if they are in ``nodes``, and what is sent is written down."""

    def __init__(self, *addresses: str, reconnect_us: int = 10_000_000) -> None:
        self.now = 0
        self.is_strict = True
        self.nodes = set(addresses)
        self.tried: list[tuple[int, str]] = []
        self.sent: list[Control] = []
        self.said: list[str] = []
        self.heard = 0
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self.end = ClientEnd(self, ServerPool(addresses), reconnect_us)
        self.end.connected(self.introduction(addresses[0]))

    def introduction(self, address: str) -> Introduction:
        return Introduction(address, 77, sorted(self.nodes - {address}), 0, 5.0, self.is_strict)

    def now_us(self) -> int:
        return self.now

    def after(self, delay_us: int, call: Callable[[], None]) -> None:
        heappush(self._timers, (self.now + delay_us, len(self.tried) + len(self.sent) + len(self._timers), call))

    def run(self, seconds: float) -> None:
        until = self.now + round(seconds * 1e6)
        while self._timers and self._timers[0][0] <= until:
            self.now, _, call = heappop(self._timers)
            call()
        self.now = until

    def draw(self, below: int) -> int:
        return below - 1

    def open(self, address: str, patience_us: int) -> Promise[Introduction]:
        self.tried.append((self.now, address))
        promise: Promise[Introduction] = Promise()
        if address in self.nodes:
            promise.resolve(self.introduction(address))
        else:
            promise.fail(PeerError(f"nobody at {address}"))
        return promise

    def leave(self, is_aborted: bool, waits_until_resumed: bool) -> None:
        self.said.append(f"leave {is_aborted} {waits_until_resumed}")

    def bytes_received(self) -> int:
        return self.heard

    def send(self, control: Control) -> None:
        self.sent.append(control)

    def disconnected(self, lost: str, reason: str) -> None:
        self.said.append(f"disconnected {lost}: {reason}")

    def reconnected(self, lost: str) -> None:
        self.said.append(f"reconnected {self.end.address}")

    def failed(self, reason: str) -> None:
        self.said.append(f"failed {reason}")

    def accepted(self, receipt: Any) -> None:
        self.said.append(f"accepted {receipt}")

    def refused(self, receipt: Any, answer: PublishResponse | FollowResponse) -> None:
        self.said.append(f"refused {receipt}")

    def subscription_ready(self, number: int) -> None:
        self.said.append(f"ready {number}")

    def subscription_missed(self, number: int, topic: str) -> None:
        self.said.append(f"missed {number} {topic}")

    def subscription_dropped(self, number: int) -> None:
        self.said.append(f"dropped {number}")

    def subscription_ended(self, number: int, message: SubscriptionEnded) -> None:
        self.said.append(f"ended {number}")

    def resumed(self) -> None:
        self.said.append("resumed")

    def of(self, kind: type[Control]) -> list[Any]:
        return [control for control in self.sent if isinstance(control, kind)]


def test_it_goes_first_to_others_that_its_node_knew() -> None:
    client = VirtualClient("a:1", "b:1")
    client.end.pool.learn(["c:1", "d:1", "a:1"])
    assert client.end.pool.others("a:1", client.draw) == ["c:1", "d:1", "b:1", "a:1"]


def test_pauses_grow_to_a_bound_and_then_it_gives_up() -> None:
    client = VirtualClient("a:1")
    client.nodes.clear()
    client.end.connection_lost()
    client.run(20)
    times = [time for time, _ in client.tried]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert FIRST_PAUSE_US // 2 <= pauses[0] <= FIRST_PAUSE_US and sorted(pauses[:-1]) == pauses[:-1]
    assert max(pauses) <= LONGEST_PAUSE_US and times[-1] <= 10_000_000
    assert client.said[-1] == ("failed the node at a:1 is gone, and no other was found in 10 seconds: nobody at a:1")


def test_a_silent_node_is_asked_and_then_given_up() -> None:
    client = VirtualClient("a:1", "b:1")
    client.heard = 1
    client.run(4.9)
    assert len(client.of(HeartbeatRequest)) == 4 and client.end.is_up
    client.run(0.3)
    assert client.said[:2] == ["leave True False", "disconnected a:1: the node is silent"]
    assert client.end.address == "b:1" and client.end.reconnects == 1


def test_a_client_that_stood_still_keeps_its_node() -> None:
    client = VirtualClient("a:1", "b:1")
    client.heard = 1
    client.run(1)
    client.now += 3_600_000_000
    client.run(0.5)
    client.heard = 2
    client.run(4)
    assert client.end.is_up and client.end.address == "a:1"


def test_what_is_not_safe_is_handed_in_again_after_the_node_has_caught_up() -> None:
    client = VirtualClient("a:1", "b:1")
    end = client.end
    for number in range(1, 5):
        end.publish("room", "causal", b"%d" % number, (), number)
    for request in client.of(PublishRequest)[:3]:
        assert end.on_message(PublishResponse(request.number))
    end.on_message(SafeUpTo("room", 2))
    client.sent.clear()
    end.connection_lost()
    assert end.address == "b:1" and client.of(PublishRequest) == [] and end.room("room") == 0
    (follow,) = client.of(FollowRequest)
    assert follow.past == {77: 2}
    end.on_message(FollowResponse(follow.number, "room"))
    assert [request.serial for request in client.of(PublishRequest)] == [3, 4]
    assert end.room("room") > 0


def test_the_next_node_does_not_wait_for_what_is_handed_in_again() -> None:
    """Only the lost node had the batch, and the client has seen it: nobody but the client brings it to the next."""
    client = VirtualClient("a:1", "b:1")
    subscription = ClientSubscription(client.end.next_number(), "room", "latest", False, "block", 10)
    client.end.subscribe(subscription)
    client.end.publish("room", "causal", b"1", (), 1)
    client.end.publish("room", "causal", b"2", (), 2)
    for request in client.of(PublishRequest):
        client.end.on_message(PublishResponse(request.number))
    for author, number in ((9, 4), (77, 1), (77, 2)):
        assert subscription.take("room", batch(author, number), (author, number), True)
    client.end.on_message(SafeUpTo("room", 1))
    client.end.connection_lost()
    assert client.of(FollowRequest)[-1].past == {9: 4, 77: 1}


def test_a_client_brings_what_need_not_wait_for_what_it_saw_later() -> None:
    """Another client of the lost node has the batch that was seen between the two, and may wait for the first."""
    client = VirtualClient("a:1", "b:1")
    subscription = ClientSubscription(client.end.next_number(), "room", "latest", False, "block", 10)
    client.end.subscribe(subscription)
    for serial in (1, 2):
        assert client.end.take(subscription, "room", batch(9, 10 + serial), (1, serial))
        client.end.publish("room", "causal", b"%d" % serial, (), serial)
    client.end.connection_lost()
    client.sent.clear()
    client.run(0.1)
    assert client.of(FollowRequest) == []
    client.run(1)
    (first,) = client.of(FollowRequest)
    assert first.past == {9: 11, 77: 0}
    client.end.on_message(FollowResponse(first.number, "room"))
    assert [request.serial for request in client.of(PublishRequest)] == [1]
    # The second follows everything, and waits for the first answer.
    client.run(1)
    assert len(client.of(FollowRequest)) == 1 and client.end.room("room") == 0
    client.end.on_message(FollowResponse(first.number - 1, "room"))
    assert [request.serial for request in client.of(PublishRequest)] == [1, 2]


def test_subscriptions_resume_with_what_they_have_seen() -> None:
    client = VirtualClient("a:1", "b:1")
    subscription = ClientSubscription(client.end.next_number(), "room", "latest", False, "block", 10)
    client.end.subscribe(subscription)
    client.run(1)
    client.end.on_message(SubscriptionReady(subscription.number))
    assert [subscription.take("room", batch(9, number), (1, number), True) for number in (1, 2, 2)] == [
        True,
        True,
        False,
    ]
    client.end.on_message(NodeAddresses(["b:1"], True))
    assert client.said[-1] == "reconnected b:1" and "leave False True" in client.said
    again = client.of(SubscribeRequest)[-1]
    assert again.resume is not None and again.resume.since_us == 1_000_000
    assert again.resume.seen == {"room": {9: [2]}}
    assert again.resume.past == {"room": {1: [2]}}
    client.end.on_message(SubscriptionReady(subscription.number))
    assert client.said[-1] == "resumed"


def test_what_was_past_when_a_subscription_began_is_not_taken_at_a_later_node() -> None:
    client = VirtualClient("a:1", "b:1")
    subscription = ClientSubscription(client.end.next_number(), "room", "latest", False, "block", 10)
    client.end.subscribe(subscription)
    client.end.on_message(TopicStarted(subscription.number, "room", {}, {1: [2]}))
    assert [subscription.take("room", batch(9, number), (1, number), True) for number in (1, 3)] == [False, True]


def test_an_ordered_batch_behind_a_later_one_of_its_author_is_not_shown() -> None:
    """The first node showed what the client handed in at its second; the next shows what the paused first one sent."""
    subscription = ClientSubscription(1, "room", "latest", False, "block", 10)
    arriving = [(2, "causal"), (1, "total"), (4, "none"), (3, "causal")]
    shown = [subscription.take("room", batch(9, *each), (1, each[0]), True) for each in arriving]
    assert shown == [True, False, True, True]


def test_what_was_sent_behind_a_refused_batch_comes_back_and_is_sent_before_anything_else() -> None:
    client = VirtualClient("a:1", "b:1")
    end = client.end
    for number in range(1, 4):
        end.publish("room", "causal", b"%d" % number, (), number)
    first, second, third = client.of(PublishRequest)
    assert [each.refusals for each in (first, second, third)] == [0, 0, 0]
    client.sent.clear()
    end.on_message(PublishResponse(first.number, "refused"))
    assert client.said[-1] == "refused 1" and end.room("room") == 0 and end.room("hall") > 0
    end.on_message(PublishResponse(second.number, is_stale=True))
    assert client.of(PublishRequest) == [] and end.room("room") == 0
    end.on_message(PublishResponse(third.number, is_stale=True))
    again = client.of(PublishRequest)
    assert [(each.serial, each.refusals) for each in again] == [(2, 1), (3, 1)] and end.room("room") > 0
    for each in again:
        end.on_message(PublishResponse(each.number))
    assert client.said[-2:] == ["accepted 2", "accepted 3"]


def test_a_refused_batch_holds_nothing_up_if_none_is_behind_it() -> None:
    client = VirtualClient("a:1")
    client.end.publish("room", "total", b"1", (), 1)
    (request,) = client.of(PublishRequest)
    client.end.on_message(PublishResponse(request.number, "refused"))
    assert client.end.room("room") > 0
