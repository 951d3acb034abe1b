"""Drawn matrices of delays, and simulated nodes of a cube that are spread over them.

A matrix has cities drawn from the product's table. The delay between two of them is the time of light in glass along
the great circle, times a detour that is drawn for the pair, plus an access time that is drawn for each end.
"""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.fabrics.cube import PartialCube, dimension_for
from antiphon.fabrics.cube.vcube_ps import Options, VCubePs
from antiphon.fabrics.cube.view import View
from antiphon.kernel.message import Publication
from antiphon.kernel.process import Environment, Process
from antiphon.kernel.randomness import RandomStream
from antiphon.placement.cities import CITIES, GLASS_US_PER_KM, kilometres
from antiphon.simulator.engine.actions import PublishAction
from antiphon.simulator.engine.engine import Engine, SimulatedApplication
from antiphon.simulator.network.delays import MatrixDelay
from antiphon.simulator.network.network import NetworkModel

CITY_STREAM = 190
DETOUR = (1.2, 2.8)
"""The range of the factor by which a way is longer than the great circle."""

ACCESS_US = (300, 8_000)
"""The range of the time from a node to the long cable."""

TOPIC = 0
APART_US = 10_000_000
"""From one publication to the next: the first is long over."""

MATRICES = (
    f"cities drawn from {len(CITIES)}; great circle in glass, times {DETOUR[0]:g} to {DETOUR[1]:g} for each pair, plus "
    f"{ACCESS_US[0] / 1000:g} to {ACCESS_US[1] / 1000:g} ms for each end"
)


def drawn_delays_us(places: int, seed: int) -> list[list[int]]:
    """The delays between so many cities that are drawn; symmetric."""
    random = RandomStream(seed, CITY_STREAM)
    cities = list(CITIES)
    for at in range(places):
        other = at + int(random.below(len(cities) - at))
        cities[at], cities[other] = cities[other], cities[at]
    access = [int(random.between(*ACCESS_US)) for _ in range(places)]
    rows = [[0] * places for _ in range(places)]
    for one in range(places):
        for other in range(one):
            detour = DETOUR[0] + (DETOUR[1] - DETOUR[0]) * random.uniform()
            glass_us = detour * GLASS_US_PER_KM * kilometres(cities[one], cities[other])
            rows[one][other] = rows[other][one] = round(glass_us) + access[one] + access[other]
    return rows


def drawn_delays_ms(places: int, seed: int, least_ms: int = 0) -> list[list[int]]:
    """The same in milliseconds; between two cities at least so many."""
    return [
        [0 if one == other else max(least_ms, round(delay / 1000)) for other, delay in enumerate(row)]
        for one, row in enumerate(drawn_delays_us(places, seed))
    ]


@dataclass(frozen=True)
class TreeLatencies:
    """Of all deliveries at other nodes than the publisher's, when every node publishes once."""

    mean_ms: float
    largest_ms: float
    deliveries: int


class Latencies(SimulatedApplication):
    """The latencies of deliveries elsewhere."""

    def __init__(self) -> None:
        self.found: list[int] = []

    def delivered(self, engine: Engine, node: int, publication: Publication) -> None:
        if publication.source != node:
            self.found.append(int(engine.calendar.now - publication.timestamp))


def simulated(place_of: dict[int, int], rows: list[list[int]]) -> TreeLatencies:
    """Let each node of a cube publish once; identifiers have places, and delays are those between places."""
    members = sorted(place_of)
    dimension = dimension_for(members[-1] + 1)
    cube, view = PartialCube(dimension, members), View(dimension, members)
    nodes = members[-1] + 1
    # Identifiers without a node are at some place, where nothing happens.
    at = [place_of.get(node, 0) for node in range(nodes)]
    delay = MatrixDelay([[rows[at[one]][at[other]] for other in range(nodes)] for one in range(nodes)])

    def build(environment: Environment) -> Process:
        process = VCubePs(environment, cube, Options())
        if view.contains(environment.identifier):
            process.begin_as_member(TOPIC, view)
        return process

    latencies = Latencies()
    # Without transmission and processing nothing waits in queues: what is left is the way.
    engine = Engine(nodes, NetworkModel(delay, 0, 0), build, 1, application=latencies)
    for number, member in enumerate(members):
        engine.at(number * APART_US, PublishAction(member))
    assert engine.run() == "finished", "a run without limits ends when nothing is left"
    found = latencies.found
    return TreeLatencies(sum(found) / len(found) / 1000, max(found) / 1000, len(found))
