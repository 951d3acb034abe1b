"""Runs in the process that has a bug: a campaign over some seeds, and what it found, as JSON."""

from __future__ import annotations

import json
import sys

import msgspec

import antiphon
from antiphon.simulator.explore.cluster_search import ClusterSearch
from antiphon.simulator.explore.cluster_world import ClusterSystem
from antiphon.simulator.scenario.scenario import LimitsTable
from antiphon.torture.campaign import run_schedule, tidy_collector
from antiphon.torture.clients.campaign import run_client_schedule
from antiphon.torture.clients.schedules import draw_client_schedule
from antiphon.torture.clusters import draw_cluster, run_cluster
from antiphon.torture.schedules import SCHEDULES
from antiphon.torture.streams.campaign import run_stream_schedule
from antiphon.torture.streams.schedules import draw_stream_schedule
from antiphon.torture.tally import CLIENT_KINDS, CLIENTS, KINDS, MEMBERSHIP, STREAM_ONLY_KINDS, STREAMS, Outcome

EVENTS_AT_MOST = {
    "cube": 100_000,
    "spaces": 200_000,
    "cube-faults": 200_000,
    "tree": 100_000,
    "gossip": 100_000,
    "epto": 1_000_000,
}
"""By fabric, many more than the first schedules need that are survived; who goes on for ever is stopped sooner here."""

EXPLORED = "explored "
"""Before the name of a fabric: the explorer follows every schedule of a cluster with a client, and the seed is the node
that crashes."""


def main(asked: dict[str, object]) -> None:
    """Run schedules until all are done, or the first has failed."""
    failed: list[Outcome] = []
    seeds = 0
    first = int(str(asked["first_seed"]))
    fabric = str(asked["fabric"])
    with tidy_collector():
        for seed in range(first, first + int(str(asked["seeds"]))):
            outcome = run(fabric, seed, asked["order"])
            seeds += 1
            if outcome.violations:
                failed.append(outcome)
                if asked["stops"]:
                    break
    kinds = [
        kind
        for kind in (*KINDS, *CLIENT_KINDS, *STREAM_ONLY_KINDS)
        if any(kind in outcome.violations for outcome in failed)
    ]
    found = {
        "from": antiphon.__file__,
        "seeds": seeds,
        "failing": [outcome.seed for outcome in failed],
        "kinds": kinds,
        "example": failed[0].about if failed else "",
    }
    print(json.dumps(found))


def run(fabric: str, seed: int, order: object) -> Outcome:
    """Run the schedule of one seed."""
    drawn = None if order is None else str(order)
    if fabric == CLIENTS:
        return run_client_schedule(draw_client_schedule(seed, drawn))
    if fabric == STREAMS:
        return run_stream_schedule(draw_stream_schedule(seed, drawn))
    if fabric.startswith(EXPLORED):
        return explored(fabric.removeprefix(EXPLORED), seed)
    if fabric == MEMBERSHIP:
        return run_cluster(draw_cluster(seed))
    limits = LimitsTable(events=EVENTS_AT_MOST[fabric])
    return run_schedule(msgspec.structs.replace(SCHEDULES[fabric](seed, drawn), limits=limits))


def explored(fabric: str, node: int) -> Outcome:
    """Follow all schedules in which one message overtakes another at a machine, and a node crashes at any step."""
    found = ClusterSearch(ClusterSystem(fabric, script=("causal",), crashing=node), 1, 0, 100_000).run()
    kind, _, about = (found.violation or "").partition(": ")
    return Outcome(seed=node, fabric=fabric, violations={kind: 1} if kind else {}, about=about)


main(json.loads(sys.argv[1]))
