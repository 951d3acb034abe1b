"""Cyclon, Newscast and Scamp: what each promises about its views (thesis of M. Matos, section 2.2.2)."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from antiphon.fabrics.gossip.sampling.cyclon import Cyclon, CyclonOptions
from antiphon.fabrics.gossip.sampling.service import draw_some, draw_without
from antiphon.kernel import RandomStream, UsageError
from antiphon_lab.protocols.gossip.newscast import Newscast, NewscastOptions
from antiphon_lab.protocols.gossip.scamp import Scamp, ScampOptions
from tests.fabrics.gossip.worlds import MakeSampling, Overlays, component


def cyclon(size: int = 12, exchanged: int = 5) -> MakeSampling:
    options = CyclonOptions(size, exchanged)
    return lambda environment, connections, above: Cyclon(environment, 0, connections, above, options)


def newscast(size: int = 24) -> MakeSampling:
    options = NewscastOptions(size)
    return lambda environment, connections, above: Newscast(environment, 0, connections, above, options)


def scamp(copies: int = 0) -> MakeSampling:
    options = ScampOptions(copies)
    return lambda environment, connections, above: Scamp(environment, 0, connections, above, options)


@pytest.mark.parametrize("make", [cyclon(), newscast()], ids=["cyclon", "newscast"])
def test_views_fill_hold_no_node_twice_and_never_the_node_itself(make: MakeSampling) -> None:
    world = Overlays(100, make, periods=60)
    world.engine.run()
    views = world.views()
    largest = max(len(view) for view in views.values())
    assert largest in (12, 24)
    assert all(len(view) == len(set(view)) and node not in view for node, view in views.items())
    assert sum(len(view) for view in views.values()) > 0.9 * largest * 100
    assert len(component(views, 0)) == 100


def test_cyclon_spreads_in_degrees_evenly() -> None:
    """Links change hands and none are made of nothing: nobody is in far more views than others."""
    world = Overlays(100, cyclon(), periods=80)
    world.engine.run()
    counts = Counter(peer for view in world.views().values() for peer in view)
    degrees = [counts[node] for node in range(100)]
    mean = sum(degrees) / 100
    assert math.sqrt(sum((degree - mean) ** 2 for degree in degrees) / 100) < mean / 3


@pytest.mark.parametrize("make", [cyclon(), newscast()], ids=["cyclon", "newscast"])
def test_the_dead_are_forgotten_without_being_watched(make: MakeSampling) -> None:
    """Nobody answers for them, or nothing new is heard of them."""
    world = Overlays(80, make, periods=100)
    world.engine.run(40_000)
    world.crash(range(40, 80))
    world.engine.run()
    views = world.views()
    assert not any(peer >= 40 for view in views.values() for peer in view)
    assert len(component(views, 0)) == 40


def mean_view(nodes: int, copies: int) -> float:
    world = Overlays(nodes, scamp(copies), periods=2)
    world.engine.run()
    views = world.views()
    assert len(component(views, 0)) == nodes
    return sum(len(view) for view in views.values()) / nodes


def test_scamp_views_size_themselves() -> None:
    """About (c + 1) ln n entries (Ganesh, Kermarrec and Massoulié 2001), which nobody configured."""
    small, large, copied = mean_view(50, 0), mean_view(400, 0), mean_view(400, 1)
    assert 0.6 * math.log(50) < small < 1.6 * math.log(50)
    assert 0.6 * math.log(400) < large < 1.6 * math.log(400)
    assert copied > 1.4 * large


def test_who_leaves_scamp_bequeaths_its_view() -> None:
    world = Overlays(60, scamp(1), periods=2)
    world.engine.run()
    before = world.views()
    leaver = world.processes[30]
    leaver.sampling.leave()
    del world.processes[30]
    world.engine.run()
    views = world.views()
    assert not any(30 in view for view in views.values())
    changed = [node for node in views if before[node] != views[node]]
    assert any(set(views[node]) - set(before[node]) for node in changed), "somebody got an heir"


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: CyclonOptions(0, 1), "leaves every node alone"),
        (lambda: CyclonOptions(5, 6), "1 to 5 can be exchanged, not 6"),
        (lambda: NewscastOptions(0), "leaves every node alone"),
        (lambda: ScampOptions(-1), "choose 0 or more"),
        (lambda: ScampOptions(0, 0), "at least 1 hop"),
    ],
)
def test_views_that_cannot_work_are_refused_with_the_reason(make: object, complaint: str) -> None:
    assert callable(make)
    with pytest.raises(UsageError, match=complaint):
        make()


def test_draws_are_uniform_and_leave_out_what_they_should() -> None:
    random = RandomStream(1, 2)
    nodes = [3, 5, 7, 9]
    drawn = Counter(int(draw_without(random, nodes, 5)) for _ in range(3000))
    assert set(drawn) == {3, 7, 9} and min(drawn.values()) > 850
    assert draw_without(random, [5], 5) == draw_without(random, [], 5) == -1
    several = Counter(tuple(sorted(draw_some(random, nodes, 2))) for _ in range(6000))
    assert len(several) == 6 and min(several.values()) > 850
    assert sorted(draw_some(random, nodes, 9)) == nodes
