"""Seeds that change, topics that they open when they are asked, pulses, and publishers that are slowed."""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.gossip import Brisa, BrisaOptions
from antiphon.fabrics.gossip.messages import (
    Beat,
    Comparison,
    GossipFrontierRequest,
    GossipFrontierResponse,
    NotKept,
    Report,
)
from antiphon.fabrics.gossip.recovery import ALONE, HOPELESS
from antiphon.fabrics.gossip.sampling.hyparview import Connected, Join
from antiphon.fabrics.gossip.seeds import PULSE_PATIENCE, Pulses, Seeds
from antiphon.kernel import ProtocolMessage
from antiphon.kernel.process import NO_NODE
from tests.support import Notebook

TOPIC = 5
PATIENCE = 8


class Clock(Notebook):
    """A notebook that lets timers be set; the test calls them."""

    def set_timer(self, delay: int, name: int) -> int:
        return 1


def process_at(node: int, contacts: list[int], window: int = 0) -> tuple[Brisa, Clock]:
    environment = Clock(node)
    process = Brisa(environment, BrisaOptions(order="fifo", contacts=contacts, window=window))
    process.start()
    return process, environment


def sent(environment: Clock, kind: type[ProtocolMessage]) -> list[int]:
    """To whom messages of a class were sent."""
    return [int(peer) for peer, message in environment.sent if isinstance(message, kind)]


# Topics of which a contact had not heard.


def test_the_first_contact_founds_a_topic_and_invites_the_others() -> None:
    process, environment = process_at(0, [0, 1, 2])
    process.receive(9, Join(9, TOPIC))
    process.receive(9, GossipFrontierRequest(9, 0, TOPIC))
    assert sent(environment, Comparison) == [1, 2]
    assert sent(environment, Connected) == [9] and sent(environment, GossipFrontierResponse) == [9]


def test_another_contact_asks_the_first() -> None:
    process, environment = process_at(1, [0, 1, 2])
    process.receive(9, Join(9, TOPIC))
    process.receive(9, GossipFrontierRequest(9, 0, TOPIC))
    assert sent(environment, Join) == [0]
    assert sent(environment, GossipFrontierResponse) == [], "it cannot say what is past"


def test_who_is_no_contact_opens_nothing() -> None:
    process, environment = process_at(7, [0])
    process.receive(9, Join(9, TOPIC))
    assert not process.takes_part(TOPIC) and environment.sent == []


def test_a_new_contact_is_invited_to_all_topics_by_the_first() -> None:
    process, environment = process_at(0, [0])
    process.subscribe(TOPIC)
    process.contacts_are([0, 4])
    assert sent(environment, Comparison) == [4]
    invited, answers = process_at(4, [0])
    invited.contacts_are([0, 4])
    invited.receive(0, next(message for _, message in environment.sent if isinstance(message, Comparison)))
    assert invited.takes_part(TOPIC) and sent(answers, Join) == [0]


def test_a_contact_that_has_become_the_first_founds_what_nobody_has_founded() -> None:
    process, environment = process_at(1, [0, 1])
    process.receive(9, Join(9, TOPIC))
    process.contacts_are([1])
    for _ in range(2 * PATIENCE + 1):
        process.expire(TOPIC)
    process.receive(9, GossipFrontierRequest(9, 0, TOPIC))
    assert sent(environment, GossipFrontierResponse) == [9]


# What is missing, and whom to ask.


class Loser(Clock):
    """A notebook that notes what is passed over."""

    def __init__(self, node: int) -> None:
        super().__init__(node)
        self.passed: list[tuple[int, int]] = []

    def lost(self, topic: int, source: int, sequence: int, is_late: bool = False) -> None:
        self.passed.append((source, sequence))


def lacking(contacts: list[int]) -> tuple[Brisa, Loser]:
    """Node 7, whose neighbour 8 has two publications of node 3, of which none has come."""
    environment = Loser(7)
    process = Brisa(environment, BrisaOptions(order="fifo", contacts=contacts))
    process.start()
    process.subscribe(TOPIC)
    process.receive(8, Join(8, TOPIC))
    process.receive(8, Beat(8, TOPIC, Report(pairs(3, 2), pairs(), pairs(), [], pairs(), 0, 0, 1), 0, -1, 0))
    assert process.group(TOPIC).stream(3).is_missing()
    return process, environment


def test_who_is_cut_off_passes_nothing_over_before_it_may_take_all_others_for_lost() -> None:
    """All neighbours and contacts are lost, and nobody can be asked: they may have it all the same."""
    process, environment = lacking([7])
    process.peer_lost(8)
    for _ in range(ALONE * HOPELESS * PATIENCE):
        process.expire(TOPIC)
    assert environment.passed == []
    for _ in range(2):
        process.expire(TOPIC)
    assert environment.passed == [(3, 1), (3, 2)]


def test_a_new_neighbour_is_asked_before_anything_is_passed_over() -> None:
    process, environment = lacking([7])
    gone = NotKept(3, 2, TOPIC)
    for _ in range(2 * HOPELESS * PATIENCE):
        process.expire(TOPIC)
    process.receive(8, gone)
    process.receive(9, Join(9, TOPIC))
    # The source has not answered.
    for _ in range(2 * HOPELESS * PATIENCE):
        process.expire(TOPIC)
    assert environment.passed == []
    process.expire(TOPIC)
    assert environment.passed == [(3, 1), (3, 2)]


# Pulses.


def pairs(*numbers: int) -> vec[i64]:
    return vec[i64](list(numbers))


def test_a_pulse_that_comes_over_neighbours_ends_the_doubt() -> None:
    pulses = Pulses(7, Seeds(7, [0, 1]))
    pulses.doubt()
    pulses.promise(1, pairs(0, 90, 1, 100))
    seen = [(pulses.on_numbers(pairs(1, number)), pulses.is_in_doubt, pulses.is_waiting()) for number in (99, 100, 100)]
    # An older one is news and proves nothing; the second time it is no news.
    assert seen == [(True, True, True), (True, False, False), (False, False, False)]


def test_what_was_promised_before_another_neighbour_went_proves_nothing() -> None:
    pulses = Pulses(7, Seeds(7, [0]))
    pulses.doubt()
    pulses.promise(0, pairs(0, 100))
    pulses.doubt()
    pulses.on_numbers(pairs(0, 100))
    assert pulses.is_in_doubt


def test_a_pulse_that_does_not_come_names_the_contact_to_enter_through() -> None:
    pulses = Pulses(7, Seeds(7, [0]))
    pulses.doubt()
    pulses.promise(0, pairs(0, 100))
    missed = [pulses.missed(PATIENCE) for _ in range(PULSE_PATIENCE * PATIENCE + 1)]
    assert missed == [NO_NODE] * PULSE_PATIENCE * PATIENCE + [0]
    assert pulses.is_in_doubt and not pulses.is_waiting()


def test_one_pulse_serves_all_who_ask_within_half_the_patience() -> None:
    pulses = Pulses(0, Seeds(0, [0, 1]))
    assert pulses.asked(7, 1000, 400)
    assert not pulses.asked(8, 1399, 400)
    assert pulses.asked(8, 1400, 400)
    assert list(pulses.as_pairs()) == [0, 1400]


def test_a_contact_that_is_asked_doubts_itself_unless_a_contact_asks_or_it_is_the_first() -> None:
    first, second = Pulses(0, Seeds(0, [0, 1])), Pulses(1, Seeds(1, [0, 1]))
    first.asked(7, 1000, 400)
    second.asked(0, 1000, 400)
    assert not first.is_in_doubt and not second.is_in_doubt
    second.asked(7, 1000, 400)
    assert second.is_in_doubt


# Windows.


def beat(sender: int, source: int, number: int, floor: int) -> Beat:
    report = Report(pairs(source, number), pairs(floor), pairs(), [], pairs(), 0, 0, 1)
    return Beat(sender, TOPIC, report, 0, -1, 0)


def test_a_publisher_is_a_window_ahead_of_its_slowest_neighbour_and_no_more() -> None:
    process, _ = process_at(0, [0], window=4)
    process.subscribe(TOPIC)
    for neighbour in (7, 8):
        process.receive(neighbour, Join(neighbour, TOPIC))
    assert process.room(TOPIC) == 4
    for _ in range(4):
        process.publish(b"", TOPIC)
    assert process.room(TOPIC) == 0
    process.receive(7, beat(7, 0, 4, 4))
    assert process.room(TOPIC) == 0, "the other has said nothing"
    process.receive(8, beat(8, 0, 4, 1))
    assert process.room(TOPIC) == 1
    process.peer_lost(8)
    assert process.room(TOPIC) == 4


class Behind(Clock):
    """The application takes nothing more."""

    is_behind = False

    def has_capacity(self, topic: int) -> bool:
        return not self.is_behind


def test_who_is_behind_and_who_stands_before_it_say_so() -> None:
    """Node 3 is one hop from the source 0 and tells it how far it goes: a window beyond node 9, which is behind."""
    environment = Behind(3)
    process = Brisa(environment, BrisaOptions(order="fifo", contacts=[3], window=4))
    process.start()
    process.subscribe(TOPIC)
    for neighbour in (0, 9):
        process.receive(neighbour, Join(neighbour, TOPIC))
    stream = process.group(TOPIC).stream(0)
    stream.start_from(20)
    assert stream.ready_for(4, True) == 20
    stream.start_from(40)
    process.receive(9, beat(9, 0, 30, 25))
    assert stream.ready_for(4, True) == 29
    environment.is_behind = True
    process.receive(9, beat(9, 0, 40, 40))
    assert stream.ready_for(4, environment.has_capacity(TOPIC)) == 29
