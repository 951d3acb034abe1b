"""How events spread, in theory and by trial; sizes and delays that are measured (thesis of M. Matos, section 5.2.3)."""

from __future__ import annotations

import pytest

from antiphon.fabrics.gossip.epto.adaptation import DelayEstimate, SizeEstimate
from antiphon.fabrics.gossip.epto.analysis import Spread, published_fanout, published_ttl
from antiphon.fabrics.gossip.epto.options import check_period
from antiphon.fabrics.gossip.sampling.known_nodes import Everybody, KnownNodes
from antiphon.fabrics.gossip.sampling.service import Connections, Neighbourhood
from antiphon.kernel import RandomStream, UsageError
from tests.fabrics.gossip.epto_worlds import Desk


@pytest.mark.parametrize(
    ("nodes", "fanout", "ttl"),
    [(2, 1, 1), (3, 2, 2), (30, 16, 5), (100, 17, 7), (200, 18, 8), (500, 19, 9), (1000, 20, 10), (10_000, 23, 14)],
)
def test_published_formulas(nodes: int, fanout: int, ttl: int) -> None:
    assert (published_fanout(nodes), published_ttl(nodes)) == (fanout, ttl)


def by_trial(nodes: int, fanout: int, loss: float, rounds: int, trials: int) -> float:
    """The share of trials in which synchronous rounds reach everybody; written without the formulas."""
    random = RandomStream(5, nodes, fanout)
    reached = 0
    for _ in range(trials):
        informed = {0}
        for _ in range(rounds):
            hit = set()
            for node in informed:
                others = [other for other in range(nodes) if other != node]
                for _ in range(fanout):
                    other = others.pop(int(random.below(len(others))))
                    if not random.chance(loss):
                        hit.add(other)
            informed |= hit
        reached += len(informed) == nodes
    return reached / trials


@pytest.mark.parametrize(
    ("nodes", "fanout", "loss", "rounds"), [(3, 1, 0.3, 3), (8, 2, 0.0, 3), (12, 3, 0.2, 4), (5, 4, 0.3, 1)]
)
def test_the_chain_agrees_with_trials(nodes: int, fanout: int, loss: float, rounds: int) -> None:
    """Within four standard deviations where the fanout is everybody; elsewhere it is somewhat too cautious."""
    expected = float(Spread(nodes, fanout, loss).stable(float(rounds)))
    trials = 2000
    tolerance = 4 * (expected * (1 - expected) / trials) ** 0.5
    assert 0.05 < expected < 0.95, "otherwise nothing is shown"
    difference = by_trial(nodes, fanout, loss, rounds, trials) - expected
    assert -tolerance < difference < tolerance + (0.0 if fanout == nodes - 1 else 0.1)


def test_published_defaults_reach_everybody() -> None:
    for nodes in (30, 100, 500, 10_000):
        spread = Spread(nodes, published_fanout(nodes))
        assert spread.stable(float(published_ttl(nodes))) > 0.9999
        assert spread.rounds_for(0.999) <= published_ttl(nodes)


def test_probabilities_grow_with_age_and_shrink_with_the_load() -> None:
    spread = Spread(100, 17)
    for is_logical in (False, True):
        by_age = [spread.deliverable(float(age), 5.0, is_logical) for age in range(8)]
        assert by_age == sorted(by_age)
    assert spread.deliverable(2.0, 50.0, False) < spread.deliverable(2.0, 1.0, False)
    assert spread.deliverable(2.0, 5.0, True) <= spread.deliverable(2.0, 5.0, False)


def test_a_period_below_the_bound_is_refused() -> None:
    """Section 5.2.6: at least the delay divided by ttl - 1."""
    check_period(25, 6, 125)
    with pytest.raises(UsageError, match=r"messages take 125 ticks; choose period = 25 at least, better 125"):
        check_period(24, 6, 125)


def test_the_median_delay_is_followed() -> None:
    estimate, random = DelayEstimate(10), RandomStream(3)
    for _ in range(400):
        estimate.add(random.between(50, 150))
    assert 80 < estimate.median < 120
    for _ in range(100):
        estimate.add(random.between(500, 700))
    assert 500 < estimate.median < 700


@pytest.mark.parametrize("nodes", [10, 300])
def test_the_size_is_estimated(nodes: int) -> None:
    """Everybody keeps the smallest numbers; after one epoch all have the same estimate, and it is near."""
    random = RandomStream(9, nodes)
    estimates = [SizeEstimate(RandomStream(1, node), 50) for node in range(nodes)]
    for _ in range(int(estimates[0].epoch_rounds())):
        for one in estimates:
            other = estimates[random.below(nodes)]
            other.merge(one.epoch, one.minima)
            one.merge(other.epoch, other.minima)
        for one in estimates:
            one.round_passed()
    found = {int(one.nodes) for one in estimates}
    assert len(found) == 1
    assert 0.6 * nodes < found.pop() < 1.5 * nodes


def test_samples_of_everybody_are_others_and_all_different() -> None:
    known = KnownNodes()
    for node in range(10):
        known.add(node)
    desk = Desk(4)
    sampling = Everybody(desk, 0, Connections(desk), Neighbourhood(), known)
    drawn: dict[int, int] = {}
    for count in (1, 3, 7, 9, 20):
        for _ in range(200):
            sample = [int(node) for node in sampling.sample(count)]
            assert len(set(sample)) == len(sample) == min(count, 9) and 4 not in sample
            for node in sample[:1]:
                drawn[node] = drawn.get(node, 0) + (count == 1)
    assert sorted(node for node, times in drawn.items() if times > 0) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    known.remove(9)
    known.remove(0)
    assert sorted(sampling.sample(20)) == [1, 2, 3, 5, 6, 7, 8]
