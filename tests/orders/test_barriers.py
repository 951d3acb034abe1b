"""Causal order by barriers (thesis, sections 2.2.3 and 5.4.1): a publication names its immediate predecessors."""

from __future__ import annotations

import sys
from functools import partial

from hypothesis import given

from antiphon.kernel.message import Publication
from antiphon.orders import CausalBarriers
from antiphon.orders.barriers import RECENT_BYTES_AT_MOST, CausalBarrier
from tests.orders.model import CausalModel, Identity, Step, World, dependencies_of, schedules

PROCESSES = 4


def world(processes: int = PROCESSES, prune: bool = True) -> World:
    return World(processes, partial(CausalBarriers, prune=prune), CausalModel)


@given(schedules(PROCESSES))
def test_barriers_deliver_exactly_as_whole_vectors_do(schedule: list[Step]) -> None:
    """Same deliveries at every arrival, same number waiting; in the end everything exactly once, everywhere."""
    system = world()
    system.run(schedule)
    system.drain()
    for order, delivered in zip(system.orders, system.delivered, strict=True):
        assert sorted(delivered) == sorted(system.sent)
        assert order.waiting() == 0


@given(schedules(PROCESSES))
def test_nobody_delivers_an_answer_before_its_question(schedule: list[Step]) -> None:
    system = world()
    system.run(schedule)
    system.drain()
    for delivered in system.delivered:
        before: set[Identity] = set()
        for identity in delivered:
            assert system.sent[identity].past <= before
            before.add(identity)


def immediate_predecessors(system: World, identity: Identity) -> set[Identity]:
    """Those in the past of a publication that are in the past of nothing else there, by definition."""
    past = system.sent[identity].past
    return {each for each in past if not any(each in system.sent[other].past for other in past)}


@given(schedules(PROCESSES))
def test_a_publication_names_its_immediate_predecessors(schedule: list[Step]) -> None:
    """All of them but its own predecessor at its source, which the sequence number implies."""
    system = world()
    system.run(schedule)
    for identity, sent in system.sent.items():
        named = dependencies_of(sent.publication)
        assert set(named) == {each for each in immediate_predecessors(system, identity) if each[0] != identity[0]}
        assert len(named) == len(set(named))


@given(schedules(PROCESSES))
def test_without_pruning_a_publication_names_all_that_was_delivered_since_the_last_one(schedule: list[Step]) -> None:
    """The faulty variant: of every source the latest delivered since, which is what a compressed vector holds."""
    system = world(prune=False)
    system.run(schedule)
    for (source, sequence), sent in system.sent.items():
        previous = system.sent[source, sequence - 1].vector if sequence > 1 else {}
        changed = {pair for pair in sent.vector.items() if pair[0] != source and pair[1] > previous.get(pair[0], 0)}
        assert set(dependencies_of(sent.publication)) == changed


def test_the_barriers_of_figure_5_3() -> None:
    """cb(b) = {a}; cb(e) = {c, b}, of which b is implied; a is only an indirect predecessor of e."""
    system = world(3)
    a = system.publish(0)
    system.arrive(1, a)
    b = system.publish(1)
    c = system.publish(2)
    system.arrive(1, c)
    e = system.publish(1)
    assert dependencies_of(b.publication) == [(0, 1)]
    assert dependencies_of(e.publication) == [(2, 1)]
    assert immediate_predecessors(system, e.identity) == {b.identity, c.identity}


def test_what_becomes_an_indirect_predecessor_is_not_named() -> None:
    """Node 2 delivers a question and its answer; its own publication names the answer alone."""
    system = world(3)
    question = system.publish(0)
    system.arrive(1, question)
    answer = system.publish(1)
    system.arrive(2, question)
    assert list(system.orders[2].barrier()) == list(answer.publication.dependencies)
    system.arrive(2, answer)
    assert dependencies_of(system.publish(2).publication) == [(1, 1)]


def test_large_publications_are_not_held_until_the_next_one_is_published() -> None:
    """They have come into the barrier before they are many bytes, and the barrier is the same."""
    large, small = CausalBarrier(), CausalBarrier()
    payloads = [bytes([number]) * 100_000 for number in range(50)]
    for number, payload in enumerate(payloads, start=1):
        large.delivered(Publication(number % 3, number, 0, payload))
        small.delivered(Publication(number % 3, number, 0, b""))
    del payload
    held = [len(each) for each in payloads if sys.getrefcount(each) > sys.getrefcount(bytes([7]) * 100_000) + 2]
    assert sum(held) <= RECENT_BYTES_AT_MOST
    assert list(large.barrier()) == list(small.barrier())
