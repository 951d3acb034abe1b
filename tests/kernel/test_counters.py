"""Counters behave like a dictionary of counts, dense or sparse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.kernel.counters import Counters
from antiphon.kernel.message import publication_key
from tests.support import lists_up_to

NEAR = st.integers(0, 300)
FAR = st.integers(0, (1 << 22) - 1)


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


@given(
    lists_up_to(200, st.tuples(st.integers(0, 60), st.integers(0, 5))),
)
def test_a_source_that_is_forgotten_counts_nothing(steps: list[tuple[int, int]]) -> None:
    """A count of 0 stands for forgetting."""
    counters, expected = Counters(), dict[int, int]()
    for source, count in steps:
        if count == 0:
            counters.forget(source)
            expected.pop(source, None)
        else:
            counters.put(source, count)
            expected[source] = count
        assert len(counters) == len(expected)
    assert [(int(source), int(count)) for source, count in counters.sorted_items()] == sorted(expected.items())
    assert all(counters.get(source) == expected.get(source, 0) for source in range(61))


@given(lists_up_to(60, st.tuples(st.integers(0, 5), st.integers(1, 9))))
def test_raising_never_lowers(raises: list[tuple[int, int]]) -> None:
    counters, model = Counters(), dict[int, int]()
    for source, count in raises:
        counters.raise_to(source, count)
        model[source] = max(count, model.get(source, 0))
    assert counters.sorted_items() == sorted(model.items())


@given(
    st.dictionaries(st.one_of(st.integers(0, 90), FAR), st.integers(1, 6), max_size=80),
    lists_up_to(12, st.tuples(st.one_of(st.integers(0, 95), FAR), st.integers(0, 6))),
    st.integers(0, 13),
)
def test_the_first_key_that_is_ahead_is_found(counts: dict[int, int], named: list[tuple[int, int]], start: int) -> None:
    counters = Counters()
    for source, count in counts.items():
        counters.put(source, count)
    keys = vec[i64]([publication_key(source, count) for source, count in named])
    ahead = [at for at, (source, count) in enumerate(named) if at >= start and count > counts.get(source, 0)]
    assert counters.first_behind(keys, start) == (ahead[0] if ahead else -1)


@pytest.mark.parametrize(("source", "count"), [(-1, 1), (0, 0)])
def test_what_is_no_count_is_refused(source: int, count: int) -> None:
    with pytest.raises(AssertionError):
        Counters().put(source, count)
