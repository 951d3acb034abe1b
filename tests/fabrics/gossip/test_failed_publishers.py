"""Publishers that fail for good: nobody waits for ever for what only they had."""

from __future__ import annotations

import pytest
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.gossip import BrisaOptions
from antiphon.fabrics.gossip.messages import FetchResponse
from antiphon.kernel.message import CAUSAL, FIFO, NONE, publication_key
from antiphon.orders.order import Ordered
from antiphon.simulator.engine.actions import CrashAction
from antiphon.simulator.scenario.run import run_scenario
from antiphon.torture.schedules.gossip_rare import draw_any_gossip_schedule
from tests.fabrics.gossip.worlds import World

NODES = 8
FAILED, OTHER = 7, 6
CRASH = 30_000
ALIVE = range(NODES - 2)


def failed() -> World:
    """Two nodes publish once each, and fail together."""
    world = World(NODES, BrisaOptions(contacts=[0, 1], mixed=True), can_fail=True)
    world.publish(FAILED, CRASH - 10_000).publish(OTHER, CRASH - 9000)
    world.engine.at(CRASH, CrashAction(FAILED))
    world.engine.at(CRASH, CrashAction(OTHER))
    world.engine.run(CRASH + 1)
    return world


def finish(world: World) -> None:
    """A living node publishes, and everything comes to rest."""
    world.publish(3, CRASH + 5000)
    assert world.engine.run(event_limit=1_000_000) == "finished"
    assert [int(world.brisa(node).unfinished()) for node in ALIVE] == [0] * len(ALIVE)


@pytest.mark.parametrize("order", [NONE, FIFO, CAUSAL])
def test_what_came_behind_a_publication_that_vanished_is_delivered(order: int) -> None:
    """Number 2 came to nobody, number 3 to one node. No node had number 2, so none says that it is gone."""
    world = failed()
    world.brisa(4).receive(5, FetchResponse(Ordered(FAILED, 3, 0, b"", vec[i64](), 0, order)))
    finish(world)
    assert {int(world.brisa(node).group(0).stream(FAILED).received.complete) for node in ALIVE} == {3}
    assert world.engine.lost == len(ALIVE), "number 2 is told"
    assert world.engine.deliveries == 2 * NODES + 2 * len(ALIVE)


def test_what_follows_a_publication_that_vanished_is_delivered() -> None:
    """Its publisher failed with the node that had published what it follows; nobody else has heard of that."""
    world = failed()
    follows = vec[i64]([publication_key(FAILED, 2)])
    world.brisa(4).receive(5, FetchResponse(Ordered(OTHER, 2, 0, b"", follows, 0, CAUSAL)))
    finish(world)
    assert world.engine.lost == len(ALIVE)
    assert world.engine.deliveries == 2 * NODES + 2 * len(ALIVE)


@pytest.mark.parametrize("seed", [700000000249, 700000000512, 700000001216, 640961348263755])
def test_schedules_that_once_left_members_waiting(seed: int) -> None:
    result = run_scenario(draw_any_gossip_schedule(seed))
    assert result.violations is not None and not any(result.violations.values()), result.judgement
