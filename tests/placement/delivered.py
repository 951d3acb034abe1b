"""How long simulated nodes of a cube take: the protocol itself, on the simulated network, with a matrix of delays."""

from __future__ import annotations

from antiphon.fabrics.cube import PartialCube
from antiphon.fabrics.cube.vcube_ps import Options, VCubePs
from antiphon.fabrics.cube.view import View
from antiphon.kernel.process import Environment, Process
from antiphon.simulator.engine.actions import PublishAction
from antiphon.simulator.engine.engine import Engine
from antiphon.simulator.network.delays import MatrixDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon.trace.store import MemoryTrace

TOPIC = 0
DIMENSION = 5
APART_TICKS = 1_000_000


def delivered_after(place_of: dict[int, int], rows: list[list[int]]) -> list[int]:
    """The latency of each delivery elsewhere, when each member publishes once. A tick is the unit of the rows."""
    members = sorted(place_of)
    cube, view = PartialCube(DIMENSION, members), View(DIMENSION, members)
    nodes = members[-1] + 1
    at = [place_of.get(node, 0) for node in range(nodes)]
    delay = MatrixDelay([[rows[at[one]][at[other]] for other in range(nodes)] for one in range(nodes)])

    def build(environment: Environment) -> Process:
        process = VCubePs(environment, cube, Options())
        if view.contains(environment.identifier):
            process.begin_as_member(TOPIC, view)
        return process

    trace = MemoryTrace("deliveries")
    engine = Engine(nodes, NetworkModel(delay, 0, 0), build, 1, trace.recorder)
    for number, member in enumerate(members):
        engine.at(number * APART_TICKS, PublishAction(member))
    assert engine.run() == "finished"
    rows_of = trace.table().to_pylist()
    return [row["value"] for row in rows_of if row["event"] == "deliver" and row["node"] != row["source"]]
