"""EpTO at one node: balls, rounds, newcomers, payloads (thesis of M. Matos, Algorithm 4, section 5.2)."""

from __future__ import annotations

from antiphon.fabrics.gossip.epto.messages import Ball, Greeting, Newcomer, Payloads, Wanted
from antiphon.fabrics.gossip.epto.order import HostClock
from antiphon.fabrics.gossip.epto.process import Epto
from tests.fabrics.gossip.epto_worlds import Desk, ball_of, options, process_at, stamped


def rounds(process: Epto, count: int) -> None:
    for _ in range(count):
        process.expire(0)


def test_a_ball_goes_to_fanout_others_with_one_more_relay() -> None:
    """Lines 20 to 26."""
    desk = Desk()
    process = process_at(desk, options(nodes=5, ttl=3))
    process.publish(b"why?")
    process.receive(3, ball_of(3, (stamped(3, 1, 0), 1)))
    rounds(process, 1)
    assert sorted(node for node, message in desk.sent if isinstance(message, Ball)) == [1, 2, 3, 4]
    ball = desk.balls()[0]
    assert [int(hops) for hops in ball.hops] == [1, 2]
    assert [publication.payload for publication in ball.publications] == [b"why?", b""]


def test_the_larger_number_of_relays_is_kept() -> None:
    """Lines 14 to 16."""
    desk = Desk()
    process = process_at(desk, options(ttl=5))
    for hops in (1, 3, 2):
        process.receive(1, ball_of(1, (stamped(1, 1, 5), hops)))
    rounds(process, 1)
    assert [int(hops) for hops in desk.balls()[0].hops] == [4]


def test_an_event_is_relayed_ttl_times_and_persists_until_then() -> None:
    """As published it is in one ball for each time that it comes; here until it is old enough."""
    for persists, balls in ((True, 3), (False, 1)):
        desk = Desk()
        process = process_at(desk, options(nodes=2, ttl=3, persists=persists))
        process.publish(b"")
        rounds(process, 10)
        assert len(desk.balls()) == balls


def test_a_copy_at_its_last_hop_is_delivered_and_not_relayed() -> None:
    """Line 13 throws it away: the last relay would be for nothing."""
    desk = Desk()
    process = process_at(desk, options(ttl=2))
    process.receive(1, ball_of(1, (stamped(1, 1, 5), 2)))
    rounds(process, 3)
    assert desk.balls() == [] and desk.delivered == [(1, 1)]


def test_stable_after_ttl_rounds_or_twice_that() -> None:
    """Figure 5.6: with ttl 2 an event is delivered when its age is above 2, and above 4 where the clock is logical."""
    for clock, needed in (("global", 3), ("logical", 5)):
        desk = Desk()
        process = process_at(desk, options(ttl=2, clock=clock))
        process.publish(b"")
        rounds(process, needed - 1)
        assert desk.delivered == []
        rounds(process, 1)
        assert desk.delivered == [(0, 1)]


def test_a_node_delivers_its_own_events_although_its_clock_is_behind() -> None:
    """Validity (section 5.2.2)."""
    desk = Desk()
    process = process_at(desk, options(ttl=1), HostClock(desk, offset=0))
    process.receive(1, ball_of(1, (stamped(1, 1, 1000), 1)))
    rounds(process, 4)
    process.publish(b"")
    rounds(process, 4)
    assert desk.delivered == [(1, 1), (0, 1)] and desk.holes == []


def test_rounds_stop_when_nothing_happens_and_go_on_when_something_does() -> None:
    desk = Desk()
    process = process_at(desk, options(ttl=1, patience=2))
    assert desk.timers == []
    process.publish(b"")
    rounds(process, 1)
    assert len(desk.timers) == 2, "one began the rounds, one is for the next"
    rounds(process, 10)
    set_before = len(desk.timers)
    process.receive(1, ball_of(1, (stamped(1, 1, 5), 1)))
    assert len(desk.timers) == set_before + 1


def test_a_newcomer_asks_for_the_time_before_its_first_event() -> None:
    """With a count that begins again at 0 its events would be too late everywhere."""
    desk = Desk()
    process = process_at(desk, options(ttl=1, clock="logical"), is_founder=False)
    process.publish(b"late")
    rounds(process, 1)
    assert [type(message) for _, message in desk.sent] == [Newcomer]
    assert process.unfinished() == 1
    process.receive(1, Greeting(1, 0, 70))
    rounds(process, 1)
    assert [int(stamp) for stamp in desk.balls()[0].stamps] == [71]


def test_payloads_travel_once_where_balls_name_events() -> None:
    """The first ball of the publisher has the payload; others ask whoever named the event, who may have to wait."""
    desk = Desk()
    process = process_at(desk, options(nodes=4, ttl=4, digests=True))
    event = stamped(1, 1, 5, b"payload")
    process.receive(1, ball_of(1, (event, 2), whole=False))
    (asked, question), *others = desk.sent
    assert asked == 1 and isinstance(question, Wanted) and others == []
    desk.sent.clear()
    process.receive(3, Wanted(3, 0, question.names))
    assert desk.sent == [], "it does not have it yet"
    process.receive(1, Payloads(1, 0, [event]))
    ((receiver, answer),) = desk.sent
    assert receiver == 3 and isinstance(answer, Payloads) and answer.payload_bytes() == 7
    desk.sent.clear()
    process.receive(2, Wanted(2, 0, question.names))
    assert [receiver for receiver, _ in desk.sent] == [2]
    rounds(process, 1)
    assert [ball.payload_bytes() for ball in desk.balls()] == [0, 0, 0]
    rounds(process, 9)
    assert desk.delivered == [(1, 1)]


def test_a_payload_that_nobody_has_becomes_a_hole() -> None:
    desk = Desk()
    process = process_at(desk, options(ttl=1, digests=True, patience=3))
    process.receive(1, ball_of(1, (stamped(2, 1, 5), 1), whole=False))
    process.receive(1, ball_of(1, (stamped(1, 1, 6), 1)))
    rounds(process, 3)
    assert desk.delivered == [], "what comes later waits"
    rounds(process, 4)
    assert desk.delivered == [(1, 1)] and desk.holes == [(2, 1)]
    questions = [node for node, message in desk.sent if isinstance(message, Wanted)]
    assert questions[:2] == [1, 2], "first who named it, then its source"


def test_memory_holds_what_waits_and_nothing_else() -> None:
    """What was delivered is forgotten; late copies of it are neither delivered nor reported."""
    desk = Desk()
    process = process_at(desk, options(ttl=2))
    for number in range(1, 40):
        desk.time = 100 * number
        process.publish(b"")
        rounds(process, 1)
    rounds(process, 4)
    assert len(desk.delivered) == 39
    assert process.balls.slots() < 6
    process.receive(1, ball_of(1, (stamped(0, 1, 100), 1)))
    rounds(process, 5)
    assert len(desk.delivered) == 39 and desk.holes == []


def test_tentative_events_may_be_used_early() -> None:
    """Section 5.5: each event that is not delivered has probabilities, which grow with its age."""
    desk = Desk()
    process = process_at(desk, options(nodes=3, ttl=8, period=125))
    process.publish(b"")
    seen = []
    for _ in range(7):
        rounds(process, 1)
        (one,) = process.tentative()
        seen.append((one.stable, one.deliverable))
    assert seen == sorted(seen) and seen[0][0] < 0.9 < seen[-1][0]
    assert all(0 <= chance <= 1 for pair in seen for chance in pair)
