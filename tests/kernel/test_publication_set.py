"""A publication set does what a plain set of pairs does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from antiphon.kernel.message import publication_key
from antiphon.kernel.publication_set import PublicationSet
from tests.support import lists_up_to

Step = tuple[int, int, bool]

steps = lists_up_to(60, st.tuples(st.integers(0, 3), st.integers(1, 12), st.booleans()))
"""A source, a number, and whether all of the source up to it are added."""


def filled(added: list[Step]) -> tuple[PublicationSet, set[tuple[int, int]]]:
    found, plain = PublicationSet(), set[tuple[int, int]]()
    for source, sequence, is_all in added:
        if is_all:
            found.complete_to(source, sequence)
            plain |= {(source, number) for number in range(1, sequence + 1)}
        elif not found.has_gaps() and sequence == found.counts.get(source) + 1:
            found.add_next(source, sequence)
            plain.add((source, sequence))
        else:
            assert found.add(source, sequence) == ((source, sequence) not in plain)
            plain.add((source, sequence))
    return found, plain


@given(steps)
def test_it_holds_what_a_plain_set_holds(added: list[Step]) -> None:
    found, plain = filled(added)
    for source in range(5):
        numbers = {number for each, number in plain if each == source}
        assert {number for number in range(1, 14) if found.has(source, number)} == numbers
        assert found.has_any_of(source) == (len(numbers) > 0)
        complete = next(number for number in range(1, 14) if number not in numbers) - 1
        assert found.counts.get(source) == complete
    beyond = [(source, number) for source, number in plain if number > found.counts.get(source)]
    assert found.beyond() == sorted(publication_key(*each) for each in beyond)
    assert found.has_gaps() == (len(beyond) > 0)


@given(steps, steps)
def test_sets_with_the_same_content_have_the_same_state(one: list[Step], other: list[Step]) -> None:
    first, plain_first = filled(one)
    second, plain_second = filled(other)
    assert (first.state() == second.state()) == (plain_first == plain_second)
