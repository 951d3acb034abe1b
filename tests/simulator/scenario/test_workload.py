"""Workloads: who publishes when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.engine.node import NODE_STREAM
from antiphon.simulator.engine.transmission import NETWORK_STREAM
from antiphon.simulator.scenario.run import LINK_STREAM
from antiphon.simulator.scenario.scenario import OnceWorkload, PublishTable, RateWorkload, Scenario
from antiphon.simulator.scenario.subscriptions import MEMBER_STREAM, draw_nodes
from antiphon.simulator.scenario.workload import (
    WORKLOAD_STREAM,
    Planned,
    draw_exponential,
    plan,
    publisher_count,
)

UNIT = 1 << 32


class Script:
    """Says given words instead of random ones."""

    def __init__(self, *words: int) -> None:
        self._words = list(words)

    def word(self) -> int:
        return self._words.pop(0)


@given(
    nodes=st.integers(1, 200),
    share=st.floats(0.001, 1),
    start=st.integers(0, 1000),
    window=st.integers(0, 1000),
    seed=st.integers(0, 2**63 - 1),
)
def test_once_means_different_nodes_in_the_window(nodes: int, share: float, start: int, window: int, seed: int) -> None:
    workload = OnceWorkload(share=share, start=start, window=window, payload_bytes=3)
    planned = list(plan(Scenario(nodes=nodes, seed=seed, workload=workload)))
    publishers = [publication.node for publication in planned]
    assert len(planned) == publisher_count(workload, nodes)
    assert publishers == sorted(set(publishers))
    assert set(publishers) <= set(range(nodes))
    assert all(start <= publication.at <= start + window for publication in planned)
    assert all(publication.payload == bytes(3) for publication in planned)


@pytest.mark.parametrize(
    ("share", "nodes", "count"), [(1.0, 64, 64), (0.25, 64, 16), (0.5, 3, 2), (0.1, 14, 1), (0.001, 64, 1)]
)
def test_a_share_is_rounded_but_somebody_publishes(share: float, nodes: int, count: int) -> None:
    assert publisher_count(OnceWorkload(share=share), nodes) == count


def test_both_ends_of_a_window_are_in_it() -> None:
    planned = plan(Scenario(nodes=1000, workload=OnceWorkload(start=5, window=2)))
    assert {publication.at for publication in planned} == {5, 6, 7}


def test_every_node_is_as_likely_to_be_drawn_as_any_other() -> None:
    counts = [0] * 10
    random = RandomStream(1)
    for _ in range(10_000):
        for node in draw_nodes(3, 10, random):
            counts[node] += 1
    # Each is drawn 3000 times give or take the deviation of 46; five of them leave nothing to chance.
    assert all(abs(count - 3000) < 230 for count in counts)


def test_a_rate_with_a_count_makes_that_many() -> None:
    planned = list(plan(Scenario(nodes=8, workload=RateWorkload(mean_gap=10, count=500, start=100))))
    times = [publication.at for publication in planned]
    assert len(planned) == 500
    assert times == sorted(times)
    assert times[0] >= 100
    assert {publication.node for publication in planned} == set(range(8))


@given(mean_gap=st.floats(0.01, 50), until=st.integers(1, 500), start=st.integers(0, 400), seed=st.integers(0, 1000))
def test_a_rate_ends_before_its_end_and_with_its_count_whichever_comes_first(
    mean_gap: float, until: int, start: int, seed: int
) -> None:
    def times(end: int | None) -> list[int]:
        workload = RateWorkload(mean_gap=mean_gap, start=start, count=50, until=end)
        return [publication.at for publication in plan(Scenario(nodes=8, seed=seed, workload=workload))]

    end = start + until
    enough = times(None)
    assert times(end) == [time for time in enough if time < end]


def test_the_mean_gap_is_the_mean_of_the_gaps() -> None:
    for mean_gap in (0.25, 3, 1000):
        workload = RateWorkload(mean_gap=mean_gap, count=20_000)
        last = list(plan(Scenario(nodes=8, workload=workload)))[-1].at
        # The sum of 20,000 exponential gaps deviates by 0.7 % of itself; four deviations.
        assert abs(last / 20_000 - mean_gap) < 0.03 * mean_gap


def test_gaps_are_exponential() -> None:
    random = RandomStream(7)
    drawn = [draw_exponential(random) / UNIT for _ in range(50_000)]
    mean = sum(drawn) / len(drawn)
    assert abs(mean - 1) < 0.02
    assert abs(sum((gap - mean) ** 2 for gap in drawn) / len(drawn) - 1) < 0.06
    for bound, beyond in ((0.1, 0.904837), (1.0, 0.367879), (3.0, 0.049787)):
        assert abs(sum(gap > bound for gap in drawn) / len(drawn) - beyond) < 0.01


def test_an_exponential_number_counts_the_runs_of_even_length() -> None:
    # A run of length 1 keeps its first word; one of length 2 adds a whole unit and leaves it to the next run.
    assert draw_exponential(Script(5, 9)) == 5
    assert draw_exponential(Script(5, 3, 9, 7, 7)) == UNIT + 7
    assert draw_exponential(Script(8, 6, 4, 4)) == 8
    assert draw_exponential(Script(9, 8, 7, 6, 6, 2, 1, 3, 4, 4)) == 2 * UNIT + 4


def test_a_plan_is_the_same_everywhere() -> None:
    """Written down once; another machine, or the compiled modules, must draw the same."""
    once = plan(Scenario(nodes=64, seed=7, workload=OnceWorkload(share=0.05, window=1000)))
    rate = plan(Scenario(nodes=64, seed=7, workload=RateWorkload(mean_gap=50, count=4)))
    assert list(once) == [Planned(651, 0, b""), Planned(566, 9, b""), Planned(723, 33, b"")]
    assert list(rate) == [Planned(143, 42, b""), Planned(200, 44, b""), Planned(213, 54, b""), Planned(267, 53, b"")]


def test_other_seeds_plan_otherwise() -> None:
    workload = RateWorkload(mean_gap=50, count=20)
    assert list(plan(Scenario(nodes=64, seed=1, workload=workload))) != list(
        plan(Scenario(nodes=64, seed=2, workload=workload))
    )


def test_what_is_spelled_out_comes_first() -> None:
    publications = [PublishTable(at=9, node=3, payload="ü"), PublishTable(at=1, node=2)]
    scenario = Scenario(nodes=4, publications=publications, workload=OnceWorkload(share=0.25))
    planned = list(plan(scenario))
    assert planned[:2] == [Planned(9, 3, "ü".encode()), Planned(1, 2, b"")]
    assert len(planned) == 3


def test_without_a_workload_only_what_is_spelled_out_is_published() -> None:
    assert list(plan(Scenario(nodes=4, publications=[PublishTable(at=0, node=1)]))) == [Planned(0, 1, b"")]


def test_the_stream_is_none_of_the_engine() -> None:
    assert len({WORKLOAD_STREAM, LINK_STREAM, NETWORK_STREAM, NODE_STREAM, MEMBER_STREAM}) == 5
