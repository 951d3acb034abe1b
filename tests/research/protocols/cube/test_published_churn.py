"""The two holes of VCube-PS as published, under churn that is spread over time; the repaired protocol has neither.

*Lost subtrees*: a newcomer that does not know anybody yet is handed a cluster. *Stale members*: who has left is brought
back to life by the views of others. (The schedules that show each of them alone are in test_published_defects.py.)
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from antiphon.audit.oracle import judge
from antiphon.fabrics.cube import FullCube
from antiphon.fabrics.cube.view import View
from antiphon.kernel import Environment, Process
from antiphon.simulator.engine.actions import PublishAction, SubscribeAction, UnsubscribeAction
from antiphon.simulator.engine.engine import Engine
from antiphon.simulator.network.delays import NormalDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon.trace.store import MemoryTrace
from tests.fabrics.cube.hand_driven import System, published, repaired

DIMENSION = 6
CHURN_ENDS = 20_000
QUIET_FROM = 40_000
COPIES = {"Pub", "Ordered", "LeafCopy"}


@dataclass(frozen=True)
class Outcome:
    """``lost``: owed and never delivered. ``stuck``: begun and never finished. ``late``: sent long after the churn to
    nodes that had left.
    """

    lost: int
    stuck: int
    late: int
    causal: int
    duplicates: int


def churned(system: System, seed: int) -> Outcome:
    """A third of 64 nodes leave and as many join at random times; four members publish, meanwhile and afterwards."""
    random = Random(seed)
    nodes = random.sample(range(1 << DIMENSION), 1 << DIMENSION)
    stable, leavers, joiners = nodes[:16], nodes[16:40], nodes[40:]
    cube = FullCube(DIMENSION)
    view = View(DIMENSION, stable + leavers)
    trace = MemoryTrace("everything")

    def build(environment: Environment) -> Process:
        process = system(environment, cube)
        if environment.identifier not in joiners:
            process.begin_as_member(0, view)  # type: ignore[attr-defined]
        return process

    engine = Engine(1 << DIMENSION, NetworkModel(NormalDelay(100, 25)), build, recorder=trace.recorder)
    for leaver in leavers:
        engine.at(random.randrange(CHURN_ENDS), UnsubscribeAction(leaver))
    for joiner in joiners:
        engine.at(random.randrange(CHURN_ENDS), SubscribeAction(joiner))
    for number in range(60):
        engine.at(400 * number, PublishAction(stable[number % 4]))
    for number in range(40):
        engine.at(QUIET_FROM + 2000 * number, PublishAction(stable[number % 4]))
    assert engine.run() == "finished"
    late = sum(
        row["event"] == "receive" and row["time"] > QUIET_FROM and row["message"] in COPIES and row["node"] in leavers
        for row in trace.table().to_pylist()
    )
    processes = [node.process for node in engine.nodes if node.process is not None]
    counts = judge(trace.table(), 1 << DIMENSION).counts
    stuck = sum(process.unfinished() for process in processes)
    return Outcome(counts["completeness"], stuck, late, counts["causal"], counts["duplicates"])


@pytest.mark.parametrize("seed", range(3))
def test_newcomers_lose_subtrees_as_published(seed: int) -> None:
    outcome = churned(published(), seed)
    assert outcome.lost > 100
    assert outcome.stuck > 100, "who misses one publication is blocked by the next ones"
    assert outcome.duplicates == 0, "views may disagree, subcubes are disjoint all the same"


@pytest.mark.parametrize("seed", range(3))
def test_whole_views_keep_sending_to_members_that_have_left(seed: int) -> None:
    """The reading of the prose: acknowledgements carry the whole view; worse if views hold current subscribers only."""
    whole = churned(published(whole_view_in_acknowledgements=True), seed)
    without_tombstones = churned(published(whole_view_in_acknowledgements=True, keeps_tombstones=False), seed)
    assert 0 < whole.late < without_tombstones.late
    assert churned(published(), seed).late == 0


@pytest.mark.parametrize("seed", range(3))
def test_the_repaired_protocol_loses_nothing_and_forgets_who_has_left(seed: int) -> None:
    assert churned(repaired(), seed) == Outcome(lost=0, stuck=0, late=0, causal=0, duplicates=0)
