"""Counters behave like a dictionary of counts, dense or sparse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.kernel.counters import Counters
from tests.support import lists_up_to

NEAR = st.integers(0, 300)
FAR = st.integers(0, 1 << 22)


@given(lists_up_to(400, st.tuples(st.one_of(NEAR, FAR), st.integers(1, 1 << 40))))
def test_counters_are_a_dictionary_whose_default_is_zero(puts: list[tuple[int, int]]) -> None:
    counters, model = Counters(), dict[int, int]()
    for source, count in puts:
        assert counters.get(source) == model.get(source, 0)
        counters.put(source, count)
        model[source] = count
    assert counters.sorted_items() == sorted(model.items())
    assert len(counters) == len(model)
    for source in (0, 1, 299, 301, 1 << 21):
        assert counters.get(source) == model.get(source, 0)


@given(lists_up_to(60, st.tuples(st.integers(0, 5), st.integers(1, 9))))
def test_raising_never_lowers(raises: list[tuple[int, int]]) -> None:
    counters, model = Counters(), dict[int, int]()
    for source, count in raises:
        counters.raise_to(source, count)
        model[source] = max(count, model.get(source, 0))
    assert counters.sorted_items() == sorted(model.items())


@pytest.mark.parametrize(("source", "count"), [(-1, 1), (0, 0)])
def test_what_is_no_count_is_refused(source: int, count: int) -> None:
    with pytest.raises(AssertionError):
        Counters().put(source, count)
