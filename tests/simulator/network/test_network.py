"""The network model (thesis, section 5.6.1): delays, what may go wrong, and what is refused."""

from __future__ import annotations

from collections import Counter
from math import erf, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.kernel import RandomStream, UsageError
from antiphon.simulator.network.delays import ConstantDelay, Delay, LinkDelay, MatrixDelay, NormalDelay
from antiphon.simulator.network.network import NetworkModel, NetworkPartition

SAMPLE = 40_000


def sample_of(delay: Delay, count: int = SAMPLE, seed: int = 1) -> list[int]:
    stream = RandomStream(seed)
    return [int(delay.draw(0, 1, stream)) for _ in range(count)]


def test_a_constant_delay_is_the_same_for_every_copy() -> None:
    delay = ConstantDelay(100)
    assert set(sample_of(delay, 10)) == {100}
    assert delay.constant() == 100


@pytest.mark.parametrize(("mean", "deviation"), [(100, 25), (1000, 10), (50.25, 3.5)])
def test_a_normal_delay_has_its_mean_and_deviation(mean: float, deviation: float) -> None:
    """Chapter 4 uses mean 100 and deviation 25. Rounding to ticks adds a variance of 1/12."""
    sample = sample_of(NormalDelay(mean, deviation))
    spread = sqrt(deviation**2 + 1 / 12)
    found_mean = sum(sample) / SAMPLE
    found_deviation = sqrt(sum((ticks - found_mean) ** 2 for ticks in sample) / SAMPLE)
    # Four standard errors each.
    assert abs(found_mean - mean) < 4 * spread / sqrt(SAMPLE)
    assert abs(found_deviation - spread) < 4 * spread / sqrt(2 * SAMPLE)


def test_a_normal_delay_follows_the_normal_law_tick_by_tick() -> None:
    mean, deviation = 100, 25
    counts = Counter(sample_of(NormalDelay(mean, deviation), seed=2))
    for ticks in range(40, 161):
        share = 0.5 * (
            erf((ticks + 0.5 - mean) / (deviation * sqrt(2))) - erf((ticks - 0.5 - mean) / (deviation * sqrt(2)))
        )
        assert abs(counts[ticks] - SAMPLE * share) < 5 * sqrt(SAMPLE * share) + 1


@given(st.floats(1, 200), st.floats(0.01, 500))
def test_a_normal_delay_is_at_least_one_tick(mean: float, deviation: float) -> None:
    assert min(sample_of(NormalDelay(mean, deviation), 200)) >= 1


def test_what_a_normal_law_has_below_one_tick_is_put_on_one_tick() -> None:
    sample = sample_of(NormalDelay(1, 10))
    assert min(sample) == 1
    below_two = 0.5 * (1 + erf(0.5 / (10 * sqrt(2))))
    assert abs(sample.count(1) - SAMPLE * below_two) < 4 * sqrt(SAMPLE * below_two * (1 - below_two))


def test_a_normal_delay_is_drawn_anew_for_every_copy() -> None:
    delay = NormalDelay(100, 25)
    assert len(set(sample_of(delay, 100))) > 30
    assert delay.constant() == -1


@pytest.mark.parametrize(
    ("mean", "deviation"),
    [(0.5, 1), (-3, 1), (100, 0), (100, -1), (100, 100_001), (float("nan"), 1), (100, float("nan")), (float("inf"), 1)],
)
def test_a_normal_delay_refuses_what_it_cannot_draw(mean: float, deviation: float) -> None:
    with pytest.raises(UsageError, match=r"a normal delay needs a mean .* and a deviation"):
        NormalDelay(mean, deviation)


@pytest.mark.parametrize("ticks", [-1, -100])
def test_a_constant_delay_is_not_negative(ticks: int) -> None:
    with pytest.raises(UsageError, match=f"a delay is a number of ticks and cannot be negative, not {ticks}"):
        ConstantDelay(ticks)


NODES = st.integers(0, 1 << 21)


@given(NODES, NODES, st.integers(0, 1000))
def test_the_delay_of_a_link_is_drawn_once_and_kept(one: int, other: int, seed: int) -> None:
    delay = LinkDelay(NormalDelay(1000, 200), seed)
    stream = RandomStream(seed)
    assert len({delay.draw(one, other, stream) for _ in range(5)}) == 1
    assert delay.constant() == -1


@given(NODES, NODES, st.integers(0, 1000))
def test_the_delay_of_a_link_is_the_same_both_ways(one: int, other: int, seed: int) -> None:
    delay = LinkDelay(NormalDelay(1000, 200), seed)
    assert delay.draw(one, other, RandomStream(1)) == delay.draw(other, one, RandomStream(2))


def test_the_delay_of_a_link_can_differ_by_direction() -> None:
    delay = LinkDelay(NormalDelay(1000, 200), 1, symmetric=False)
    stream = RandomStream(1)
    pairs = [(delay.draw(0, node, stream), delay.draw(node, 0, stream)) for node in range(1, 20)]
    assert sum(there != back for there, back in pairs) > 10


def test_links_differ_and_follow_their_law() -> None:
    delay = LinkDelay(NormalDelay(1000, 200), 7)
    stream = RandomStream(1)
    delays = [int(delay.draw(node, 5000, stream)) for node in range(4000)]
    mean = sum(delays) / len(delays)
    assert abs(mean - 1000) < 4 * 200 / sqrt(len(delays))
    assert abs(sqrt(sum((ticks - mean) ** 2 for ticks in delays) / len(delays)) - 200) < 10


def test_the_delay_of_a_link_does_not_depend_on_when_it_is_first_used() -> None:
    forwards, backwards = (LinkDelay(NormalDelay(1000, 200), 3) for _ in range(2))
    stream = RandomStream(1)
    one = {node: forwards.draw(0, node, stream) for node in range(1, 30)}
    other = {node: backwards.draw(0, node, stream) for node in reversed(range(1, 30))}
    assert one == other
    assert one != {node: LinkDelay(NormalDelay(1000, 200), 4).draw(0, node, stream) for node in range(1, 30)}


def test_drawing_a_link_leaves_the_stream_of_the_network_alone() -> None:
    stream, untouched = RandomStream(1), RandomStream(1)
    LinkDelay(NormalDelay(1000, 200), 3).draw(0, 1, stream)
    assert stream.word() == untouched.word()


def test_a_matrix_gives_the_delay_of_every_pair_of_places() -> None:
    """Nodes are spread over the places in turn: with three places node 4 is where node 1 is."""
    rows = [[0, 10, 20], [11, 1, 21], [12, 22, 2]]
    delay = MatrixDelay(rows)
    stream = RandomStream(1)
    for sender in range(9):
        for receiver in range(9):
            assert delay.draw(sender, receiver, stream) == rows[sender % 3][receiver % 3]
    assert delay.constant() == -1


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([], "as many columns as rows"),
        ([[]], "as many columns as rows"),
        ([[1, 2]], "as many columns as rows"),
        ([[1, 2], [3]], "as many columns as rows"),
        ([[1, 2], [3, -4]], "cannot hold negative delays"),
    ],
)
def test_a_matrix_must_be_square_and_not_negative(rows: list[list[int]], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        MatrixDelay(rows)


def test_a_law_of_ones_own_must_say_how_it_draws() -> None:
    with pytest.raises(NotImplementedError):
        Delay().draw(0, 1, RandomStream(1))


# The parameters of every hop.


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
@pytest.mark.parametrize("name", ["loss", "duplication", "reordering"])
def test_shares_are_probabilities(name: str, share: float) -> None:
    with pytest.raises(UsageError, match=f"{name} is a probability from 0 to 1, not {share}"):
        NetworkModel(ConstantDelay(1), **{name: share})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["transmission", "processing", "reordering_window"])
def test_ticks_are_not_negative(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}.* cannot be negative"):
        NetworkModel(ConstantDelay(1), **{name: -1})  # type: ignore[arg-type]


def test_a_reordering_window_is_one_that_can_be_drawn_from() -> None:
    NetworkModel(ConstantDelay(1), reordering_window=(1 << 31) - 1)
    with pytest.raises(UsageError, match="at most 2147483647 ticks, not 2147483648"):
        NetworkModel(ConstantDelay(1), reordering_window=1 << 31)


def test_a_network_is_simple_where_every_copy_takes_the_same_time_and_arrives_once() -> None:
    constant = ConstantDelay(100)
    assert NetworkModel(constant).is_simple()
    assert NetworkModel(constant, charge_control=False).is_simple()
    assert NetworkModel(constant, transmission=0, processing=0, reordering_window=5).is_simple()
    for complicated in (
        NetworkModel(NormalDelay(100, 25)),
        NetworkModel(LinkDelay(constant, 1)),
        NetworkModel(MatrixDelay([[100]])),
        NetworkModel(constant, loss=0.1),
        NetworkModel(constant, duplication=0.1),
        NetworkModel(constant, reordering=0.1),
    ):
        assert not complicated.is_simple()


# Partitions.

CUT = NetworkPartition(100, 200, [[0, 1], [2, 3]])


@pytest.mark.parametrize(
    ("departed", "arrived", "lost"),
    [
        (0, 99, False),  # arrived before the cut
        (0, 100, True),  # on the link when it fell apart
        (120, 180, True),
        (0, 500, True),  # on the link all the time
        (199, 300, True),  # left just before it healed
        (200, 300, False),  # left when it had healed
    ],
)
def test_a_cut_loses_what_is_on_a_link_while_it_lasts(departed: int, arrived: int, lost: bool) -> None:
    assert CUT.severs(0, 2, departed, arrived) is lost


@pytest.mark.parametrize(
    ("sender", "receiver", "lost"),
    [(0, 1, False), (2, 3, False), (0, 2, True), (3, 1, True), (7, 8, False), (7, 0, True), (3, 9, True)],
)
def test_a_cut_separates_groups_and_those_in_none_form_one_of_their_own(sender: int, receiver: int, lost: bool) -> None:
    assert CUT.severs(sender, receiver, 120, 180) is lost


@pytest.mark.parametrize(
    ("sender", "receiver", "lost"),
    [(0, 2, True), (2, 0, False), (0, 1, False), (0, 9, True), (9, 0, False), (2, 9, False)],
)
def test_a_one_way_cut_loses_only_what_leaves_the_first_group(sender: int, receiver: int, lost: bool) -> None:
    assert NetworkPartition(100, 200, [[0, 1], [2, 3]], one_way=True).severs(sender, receiver, 120, 180) is lost


@pytest.mark.parametrize(
    ("linked", "reached"),
    [
        ("apart", []),
        ("chain", [(0, 1), (1, 2), (2, 3)]),
        ("ring", [(0, 1), (0, 3), (1, 2), (2, 3)]),
    ],
)
def test_groups_that_are_beside_each_other_in_a_chain_or_a_ring_lose_nothing(
    linked: str, reached: list[tuple[int, int]]
) -> None:
    cut = NetworkPartition(100, 200, [[0, 4], [1], [2], [3]], linked=linked)
    pairs = [(one, other) for one in range(4) for other in range(one + 1, 4)]
    assert [pair for pair in pairs if not cut.is_between(*pair, 150)] == reached
    assert not cut.is_between(0, 4, 150)
    assert all(cut.is_between(9, node, 150) for node in range(5))


def test_a_node_alone_in_the_middle_of_a_chain_is_a_bridge() -> None:
    cut = NetworkPartition(100, 200, [[0, 1], [2], [3, 4]], linked="chain")
    assert not any(cut.is_between(2, node, 150) for node in (0, 1, 3, 4))
    assert all(cut.is_between(one, other, 150) for one in (0, 1) for other in (3, 4))
