"""Causal order by vectors (thesis, chapter 4), against the textbook rule and against true causality."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.kernel.message import publication_key
from antiphon.orders import CausalVectors, Ordered
from tests.orders.model import CausalModel, Step, World, dependencies_of, identity_of, schedules

PROCESSES = 4


def world(processes: int = PROCESSES) -> World:
    return World(processes, CausalVectors, CausalModel)


@given(schedules(PROCESSES))
def test_the_order_does_what_the_textbook_rule_does(schedule: list[Step]) -> None:
    """Same deliveries at every arrival, same number waiting, same counts of those that had to wait."""
    both = world()
    both.run(schedule)
    both.drain()


@given(schedules(PROCESSES))
def test_nobody_delivers_an_answer_before_its_question(schedule: list[Step]) -> None:
    """If m happened before m', nobody delivers m' without having delivered m (thesis, section 2.2)."""
    system = world()
    system.run(schedule)
    system.drain()
    for delivered in system.delivered:
        before: set[tuple[int, int]] = set()
        for identity in delivered:
            assert system.sent[identity].past <= before
            before.add(identity)


@given(schedules(PROCESSES))
def test_everything_is_delivered_exactly_once_when_everything_has_arrived(schedule: list[Step]) -> None:
    system = world()
    system.run(schedule)
    system.drain()
    for order, delivered in zip(system.orders, system.delivered, strict=True):
        assert sorted(delivered) == sorted(system.sent)
        assert order.waiting() == 0


@given(schedules(PROCESSES))
def test_only_entries_that_changed_since_the_last_publication_are_sent(schedule: list[Step]) -> None:
    """Birman's compression (thesis, chapter 4)."""
    system = world()
    system.run(schedule)
    for (source, sequence), sent in system.sent.items():
        previous = system.sent[source, sequence - 1].vector if sequence > 1 else {}
        changed = {
            (other, count) for other, count in sent.vector.items() if other != source and count > previous.get(other, 0)
        }
        carried = dependencies_of(sent.publication)
        assert set(carried) == changed
        assert len(carried) == len(changed)


@given(schedules(PROCESSES))
def test_it_knows_how_many_of_each_source_were_delivered(schedule: list[Step]) -> None:
    system = world()
    system.run(schedule)
    for order, model in zip(system.orders, system.models, strict=True):
        assert isinstance(order, CausalVectors)
        found = [order.past(source) for source in range(PROCESSES + 1)]
        assert found == [model.vector.get(source, 0) for source in range(PROCESSES + 1)]


def test_the_dependencies_of_figure_5_3() -> None:
    """Node 1 delivers a and publishes b; delivers c and publishes e. The vector of e need not name a again."""
    system = world(3)
    a = system.publish(0)
    system.arrive(1, a)
    b = system.publish(1)
    c = system.publish(2)
    system.arrive(1, c)
    e = system.publish(1)
    assert dependencies_of(b.publication) == [(0, 1)]
    assert dependencies_of(e.publication) == [(2, 1)]


def test_an_answer_waits_for_its_question_and_then_follows_it() -> None:
    question = Ordered(0, 1, 0, b"why?", CausalVectors(0).stamp(1))
    answering = CausalVectors(1)
    assert answering.arrived(question) == [question]
    answer = Ordered(1, 1, 0, b"because", answering.stamp(1))

    listener = CausalVectors(2)
    assert listener.arrived(answer) == []
    assert listener.waiting() == 1
    assert listener.arrived(question) == [question, answer]
    assert listener.waiting() == 0
    assert (listener.held_total, listener.held_peak) == (1, 1)


def test_a_duplicate_of_what_waits_is_not_counted_again() -> None:
    system = world(3)
    system.publish(0)
    second = system.publish(0)
    for _ in range(3):
        system.arrive(1, second)
    assert (system.orders[1].held_total, system.orders[1].waiting()) == (1, 1)


@given(st.permutations(range(12)))
def test_a_chain_in_any_order_of_arrival_is_delivered_in_its_own(arrivals: list[int]) -> None:
    """Twelve sources, each answering the one before: only one order of delivery is allowed."""
    system = world(13)
    for source in range(12):
        for earlier in range(source):
            system.arrive(source, system.sent[earlier, 1])
        system.publish(source)
    for source in arrivals:
        system.arrive(12, system.sent[source, 1])
    assert system.delivered[12] == [(source, 1) for source in range(12)]


@given(st.permutations(range(6)), st.permutations(range(6)))
def test_one_delivery_can_set_many_free(first: list[int], then: list[int]) -> None:
    """Six sources answer one question; all six answers wait for it, and none for each other."""
    system = world(8)
    question = system.publish(7)
    for source in first:
        system.arrive(source, question)
        system.publish(source)
    for source in then:
        system.arrive(6, system.sent[source, 1])
    assert system.orders[6].held_peak == 6
    system.arrive(6, question)
    assert system.delivered[6][0] == (7, 1)
    assert sorted(system.delivered[6][1:]) == [(source, 1) for source in range(6)]


def test_own_publications_count_as_delivered_and_are_not_delivered_again() -> None:
    order = CausalVectors(3)
    own = Ordered(3, 1, 0, b"", order.stamp(1))
    assert order.past(3) == 1
    assert order.arrived(own) == []


def test_own_publications_are_stamped_in_sequence() -> None:
    with pytest.raises(AssertionError, match="stamped in sequence"):
        CausalVectors(3).stamp(2)


def test_a_dependency_on_a_source_never_heard_of_is_waited_for() -> None:
    order = CausalVectors(0)
    stamp = CausalVectors(1)
    far = Ordered(1_000, 1, 0, b"", CausalVectors(1_000).stamp(1))
    assert stamp.arrived(far) == [far]
    answer = Ordered(1, 1, 0, b"", stamp.stamp(1))
    assert list(answer.dependencies) == [publication_key(1_000, 1)]
    assert order.arrived(answer) == []
    assert [identity_of(each) for each in order.arrived(far)] == [(1_000, 1), (1, 1)]
