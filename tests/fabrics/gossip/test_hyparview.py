"""HyParView (thesis of M. Matos, section 4.2.1; Leitão, Pereira and Rodrigues 2007)."""

from __future__ import annotations

import pytest

from antiphon.fabrics.gossip import Connections, HyParView, HyParViewOptions, Neighbourhood
from antiphon.fabrics.gossip.sampling.hyparview import (
    Connected,
    Disconnect,
    Join,
    NeighbourRefusal,
    NeighbourRequest,
    Parted,
)
from antiphon.kernel import UsageError
from tests.fabrics.gossip.worlds import MakeSampling, Overlays, component
from tests.support import Notebook


def hyparview(**options: float) -> MakeSampling:
    chosen = HyParViewOptions(**options)  # type: ignore[arg-type]
    return lambda environment, connections, above: HyParView(environment, 0, connections, above, chosen)


def test_links_are_symmetric_and_as_many_as_configured_once_all_have_joined() -> None:
    """Section 4.2.1: between the active size and that times the expansion factor, but for a few."""
    world = Overlays(100, hyparview(active=4))
    world.engine.run()
    views = world.views()
    assert all(node in views[peer] for node, view in views.items() for peer in view)
    assert all(len(view) <= 8 for view in views.values())
    assert sum(len(view) >= 4 for view in views.values()) >= 95
    assert len(component(views, 0)) == 100


def test_without_expansion_the_bound_is_hard() -> None:
    world = Overlays(60, hyparview(active=4, expansion=1.0))
    world.engine.run()
    assert max(len(view) for view in world.views().values()) == 4


@pytest.mark.parametrize("percent", [10, 50, 80])
def test_the_overlay_survives_the_simultaneous_failure_of_most_nodes(percent: int) -> None:
    """Section 4.2.1: up to 80 % of the nodes may fail without a partition (here: 95 % of the rest hold together)."""
    world = Overlays(200, hyparview(active=5), periods=60)
    world.engine.run(30_000)
    dead = [node for node in range(200) if (node * 37) % 100 < percent]
    world.crash(dead)
    world.engine.run()
    views = world.views()
    alive = set(views)
    assert all(alive.issuperset(view) for view in views.values()), "the dead are forgotten"
    largest = max(len(component(views, node)) for node in views)
    assert largest >= 0.95 * len(views)


def node(identifier: int = 0, **options: float) -> tuple[HyParView, Notebook]:
    environment = Notebook(identifier)
    chosen = HyParViewOptions(**options)  # type: ignore[arg-type]
    return HyParView(environment, 0, Connections(environment), Neighbourhood(), chosen), environment


def kinds(environment: Notebook) -> list[tuple[int, str]]:
    return [(int(peer), type(message).__name__) for peer, message in environment.sent]


def test_a_contact_makes_a_newcomer_its_neighbour_and_sends_walks_to_all_others() -> None:
    view, environment = node()
    for newcomer in (1, 2, 3):
        view.receive(newcomer, Join(newcomer, 0))
    assert view.neighbours() == [1, 2, 3]
    assert kinds(environment)[-3:] == [(1, "ForwardJoin"), (2, "ForwardJoin"), (3, "Connected")]


def test_a_full_node_refuses_whoever_has_others_and_takes_whoever_has_nobody() -> None:
    """An urgent request drives out a neighbour, which is told and remembered."""
    view, environment = node(active=3, expansion=1.0)
    for peer in (1, 2, 3):
        view.receive(peer, Connected(peer, 0))
    view.receive(4, NeighbourRequest(4, 0, False))
    assert kinds(environment) == [(4, "NeighbourRefusal")]
    view.receive(5, NeighbourRequest(5, 0, True))
    assert 5 in view.neighbours() and len(view.neighbours()) == 3
    (evicted,) = {1, 2, 3} - set(view.neighbours())
    assert kinds(environment)[1:] == [(evicted, "Disconnect"), (5, "Connected")]
    assert view.passive_view() == [evicted]


def test_who_is_let_go_is_told_until_it_answers() -> None:
    """What is lost once is said again: who has fallen silent would keep a neighbour that is none."""
    view, environment = node(active=3, expansion=1.0)
    for peer in (1, 2, 3):
        view.receive(peer, Connected(peer, 0))
    view.receive(5, NeighbourRequest(5, 0, True))
    (evicted,) = {1, 2, 3} - set(view.neighbours())
    for _ in range(3):
        view.tick()
    assert kinds(environment).count((evicted, "Disconnect")) == 4
    view.receive(evicted, Parted(evicted, 0))
    view.tick()
    assert kinds(environment).count((evicted, "Disconnect")) == 4
    assert not view.part_again()


def test_a_failed_neighbour_is_replaced_from_the_passive_view_and_the_next_is_asked_if_one_refuses() -> None:
    view, environment = node(active=3)
    for peer in (1, 2, 3, 4, 5):
        view.receive(peer, Connected(peer, 0))
    view.receive(4, Disconnect(4, 0))
    view.receive(5, Disconnect(5, 0))
    # Three are enough: with the slack of the expansion nobody is looked for.
    assert kinds(environment) == [(4, "Parted"), (5, "Parted")]
    view.lost(1)
    # It may live, in a new life perhaps, and take this node for its neighbour.
    assert kinds(environment)[2] == (1, "Disconnect")
    first, kind = kinds(environment)[3]
    assert (first, kind) in ((4, "NeighbourRequest"), (5, "NeighbourRequest"))
    view.receive(first, NeighbourRefusal(first, 0))
    second, _ = kinds(environment)[4]
    assert {first, second} == {4, 5}
    view.receive(second, Connected(second, 0))
    assert sorted(view.neighbours()) == sorted([2, 3, second])


def test_views_that_differ_because_a_message_was_lost_agree_again() -> None:
    view, environment = node(active=3, expansion=1.0)
    view.heard_from(7)
    assert view.neighbours() == [7]
    for peer in (1, 2):
        view.receive(peer, Connected(peer, 0))
    view.heard_from(8)
    assert kinds(environment) == [(8, "Disconnect")]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"active": 0}, "leaves every node alone"),
        ({"active": 5, "passive": 4}, "cannot replace an active view of 5"),
        ({"expansion": 0.5}, "would drop links below"),
        ({"active": 2, "expansion": 1.0}, "is a chain or a ring"),
        ({"passive_walk": 7}, "never has 7 left"),
        ({"shuffle_periods": 0}, "choose 1 or more"),
    ],
)
def test_views_that_cannot_work_are_refused_with_the_reason(options: dict[str, float], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        HyParViewOptions(**options)  # type: ignore[arg-type]
