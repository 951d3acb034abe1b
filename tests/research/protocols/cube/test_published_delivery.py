"""The printed CHECKDELIVERY scans everything that waits; ours looks only at what may have become free.

The printed loop takes any publication that is ready, and which one it takes can make a difference. So the test follows
our choice with the printed variables: each must be ready when it is chosen, and none may be ready at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.kernel import publication_key
from antiphon_lab.protocols.cube.published_delivery import NOTHING, PublishedDelivery
from antiphon_lab.protocols.cube.published_messages import Pub
from tests.support import lists_up_to

ME = 0
Identity = tuple[int, int]
"""Source and counter."""


@dataclass
class Printed:
    """Lines 19 to 25, 69 to 74 and 88 to 98 of Algorithm 4, with sets, word for word; CHECKCB on a copy."""

    waits_for_unheard: bool
    prunes: bool
    first_rec: dict[int, int] = field(default_factory=dict)
    last_delvs: dict[int, int] = field(default_factory=dict)
    not_delvs: dict[Identity, set[Identity]] = field(default_factory=dict)
    causal_barrier: set[Identity] = field(default_factory=set)

    def publish(self, counter: int) -> set[Identity]:
        self.first_rec.setdefault(ME, counter)
        self.last_delvs[ME] = counter
        barrier = self.causal_barrier
        self.causal_barrier = {(ME, counter)}
        return barrier

    def received(self, source: int, counter: int, barrier: set[Identity], chosen: list[Identity]) -> None:
        self.first_rec.setdefault(source, counter)
        self.not_delvs[source, counter] = barrier
        for each in chosen:
            assert self.is_ready(each)
            cb = self.not_delvs.pop(each)
            self.last_delvs[each[0]] = each[1]
            self.causal_barrier = (self.causal_barrier - cb if self.prunes else self.causal_barrier) | {each}
        assert not any(map(self.is_ready, self.not_delvs))

    def is_ready(self, each: Identity) -> bool:
        return all(map(self.satisfied, self.not_delvs[each]))

    def satisfied(self, dependency: Identity) -> bool:
        source, counter = dependency
        if self.last_delvs.get(source, NOTHING) >= counter or self.first_rec.get(source, NOTHING) > counter:
            return True
        return source not in self.first_rec and not self.waits_for_unheard


@dataclass(frozen=True)
class Step:
    """Something happens: a publication comes (also an old or unlikely one), this node publishes, or somebody leaves."""

    kind: str
    source: int
    skipped: int
    barrier: frozenset[Identity]


sources = st.integers(1, 4)
identities = st.tuples(st.integers(0, 4), st.integers(1, 12))
steps = st.builds(
    Step,
    st.sampled_from(["receive"] * 8 + ["publish", "source leaves", "leave"]),
    sources,
    st.integers(1, 3),
    st.frozensets(identities, max_size=3),
)


def keys_of(barrier: frozenset[Identity]) -> vec[i64]:
    return vec[i64]([publication_key(source, counter) for source, counter in sorted(barrier)])


@pytest.mark.parametrize("waits_for_unheard", [True, False])
@pytest.mark.parametrize("prunes", [True, False])
@given(schedule=lists_up_to(60, steps))
def test_delivers_what_the_printed_scan_delivers(waits_for_unheard: bool, prunes: bool, schedule: list[Step]) -> None:
    ours = PublishedDelivery(ME, prunes, waits_for_unheard)
    printed = Printed(waits_for_unheard, prunes)
    counters = dict.fromkeys(range(5), 0)
    for step in schedule:
        counters[ME if step.kind == "publish" else step.source] += step.skipped
        counter = counters[step.source]
        if step.kind == "publish":
            ours.publish(counters[ME])
            printed.publish(counters[ME])
        elif step.kind == "source leaves":
            ours.source_left(step.source)
            printed.first_rec.pop(step.source, None)
        elif step.kind == "leave":
            ours.leave(forgets_last=True, forgets_barrier=False)
            printed.first_rec, printed.last_delvs, printed.not_delvs = {}, {}, {}
        else:
            publication = Pub(step.source, counter, 0, b"", keys_of(step.barrier))
            released = [(int(each.source), int(each.sequence)) for each in ours.received(publication)]
            printed.received(step.source, counter, set(step.barrier), released)
        assert ours.waiting() == len(printed.not_delvs)
        assert set(ours.barrier()) == {publication_key(*each) for each in printed.causal_barrier}
        assert all(ours.first(source) == printed.first_rec.get(source, NOTHING) for source in range(5))


def received(delivery: PublishedDelivery, source: int, counter: int, *barrier: Identity) -> list[Identity]:
    publication = Pub(source, counter, 0, b"", keys_of(frozenset(barrier)))
    return [(int(each.source), int(each.sequence)) for each in delivery.received(publication)]


def test_delivers_through_a_chain_of_what_waits() -> None:
    delivery = PublishedDelivery(ME, prunes=True, waits_for_unheard=True)
    assert received(delivery, 3, 1, (2, 1)) == []
    assert received(delivery, 2, 1, (1, 1)) == []
    assert delivery.waiting() == 2
    assert received(delivery, 1, 1) == [(1, 1), (2, 1), (3, 1)]
    assert list(delivery.barrier()) == [publication_key(3, 1)]


def test_a_departure_makes_a_dependency_unsatisfied_again() -> None:
    """(1, 1) was older than the first reception of source 1, which is forgotten when source 1 leaves."""
    delivery = PublishedDelivery(ME, prunes=True, waits_for_unheard=True)
    assert received(delivery, 1, 2, (4, 1)) == []
    assert received(delivery, 3, 1, (1, 1), (2, 1)) == []
    delivery.source_left(1)
    assert received(delivery, 2, 1) == [(2, 1)]
    assert received(delivery, 4, 1) == [(4, 1), (1, 2), (3, 1)]


def test_counters_of_one_source_have_gaps() -> None:
    """A later delivery satisfies an earlier dependency; counters are shared by all topics and operations."""
    delivery = PublishedDelivery(ME, prunes=True, waits_for_unheard=True)
    assert received(delivery, 1, 3) == [(1, 3)]
    assert received(delivery, 1, 9) == [(1, 9)]
    assert received(delivery, 2, 1, (1, 6)) == [(2, 1)]
