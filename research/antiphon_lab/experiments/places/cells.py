"""Geo topics: what the size of cells costs. Small cells bring little that lies outside; large ones few subscriptions.

Nodes lie on the earth and move. Each is interested in an area around itself, and subscribes to the topics of all cells
that the area meets. After each move it changes its subscriptions; then some nodes publish at their points. A topic is a
topic of VCube-PS: subscribing and unsubscribing takes messages to its members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from antiphon.kernel.randomness import RandomStream
from antiphon.placement.cells import ROOT, Area, Point, RegionCell, cell_of
from antiphon.simulator.scenario.run import Simulation
from antiphon.simulator.scenario.scenario import PublishTable, Scenario, SubscribeTable, TopicsTable
from antiphon.trace.store import MemoryTrace
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Results, Row, promised
from antiphon_lab.reproduction.figures import Axis, Figure, Series
from antiphon_lab.reproduction.metrics import publication_rows

LEVELS = (1, 2, 3, 4, 5)
MOVES = 8
MOVE_TICKS = 20_000
"""From one move to the next; publications are in its second half, when subscriptions have taken effect."""

STEP_DEGREES = 6.0
SIDE_DEGREES = 20.0
"""The sides of the area around a node."""

PUBLICATIONS = 16
"""After each move."""

WALK_STREAM = 191


@dataclass(frozen=True)
class CellsCase:
    """Cells of one level."""

    level: int
    nodes: int

    def __str__(self) -> str:
        return f"level {self.level}, {self.nodes} nodes"


@dataclass(frozen=True)
class CellCosts:
    """The traffic of a run: ``wanted`` deliveries lie in the areas of their receivers, ``outside`` do not."""

    subscriptions: float
    changes: int
    maintenance: int
    copies: int
    wanted: int
    outside: int
    missing: int


def cells_meeting(area: Area, level: int) -> set[int]:
    """The numbers of the cells of a level that an area meets."""
    waiting: list[RegionCell] = [ROOT]
    while waiting[0].level < level:
        waiting = [child for cell in waiting for child in cell.children() if child.meets(area)]
    return {number_of(cell.quarters) for cell in waiting}


def number_of(quarters: tuple[int, ...]) -> int:
    """The number of a cell within its level."""
    number = 0
    for quarter in quarters:
        number = 4 * number + quarter
    return number


def around(point: Point) -> Area:
    """The area in which a node is interested. Nodes keep away from the edges of the map."""
    half = SIDE_DEGREES / 2
    return Area(point.latitude - half, point.longitude - half, point.latitude + half, point.longitude + half)


def walked(point: Point, random: RandomStream) -> Point:
    """A step in a drawn direction."""
    latitude = point.latitude + STEP_DEGREES * (2 * random.uniform() - 1)
    longitude = point.longitude + STEP_DEGREES * (2 * random.uniform() - 1)
    return Point(min(75.0, max(-75.0, latitude)), min(165.0, max(-165.0, longitude)))


def measure(case: CellsCase, seed: int) -> CellCosts:
    """Let nodes move, subscribe and publish. All levels meet the same walks and publications."""
    random = RandomStream(seed, WALK_STREAM)
    points = [Point(150 * random.uniform() - 75, 330 * random.uniform() - 165) for _ in range(case.nodes)]
    cells = [cells_meeting(around(point), case.level) for point in points]
    held = sum(map(len, cells))
    members: list[list[int] | str] = [
        [node for node in range(case.nodes) if topic in cells[node]] for topic in range(4**case.level)
    ]
    subscribe, unsubscribe, publish = [], [], []
    wanted = outside = 0
    for move in range(1, MOVES + 1):
        at = move * MOVE_TICKS
        for node in range(case.nodes):
            points[node] = walked(points[node], random)
            now = cells_meeting(around(points[node]), case.level)
            subscribe += [SubscribeTable(at=at, node=node, topic=topic) for topic in sorted(now - cells[node])]
            unsubscribe += [SubscribeTable(at=at, node=node, topic=topic) for topic in sorted(cells[node] - now)]
            cells[node] = now
        held += sum(map(len, cells))
        for number in range(PUBLICATIONS):
            node = int(random.below(case.nodes))
            topic = number_of(cell_of(points[node], case.level))
            publish.append(PublishTable(at=at + MOVE_TICKS // 2 + 10 * number, node=node, topic=topic))
            for other in range(case.nodes):
                is_wanted = other != node and around(points[other]).contains(points[node])
                wanted += is_wanted
                outside += other != node and topic in cells[other] and not is_wanted
    scenario = Scenario(
        seed=seed,
        nodes=case.nodes,
        protocol="vcube-ps",
        order="none",
        topics=TopicsTable(count=4**case.level, members=members),
        subscriptions=subscribe,
        unsubscriptions=unsubscribe,
        publications=publish,
    )
    trace = MemoryTrace("everything")
    engine = Simulation(scenario, trace.recorder).engine
    engine.run()
    copies = publication_rows(trace.table(), "send").num_rows
    elsewhere = int(engine.deliveries - engine.own_deliveries)
    return CellCosts(
        subscriptions=held / (MOVES + 1) / case.nodes,
        changes=len(subscribe) + len(unsubscribe),
        maintenance=int(engine.sent) - 2 * copies,
        copies=copies,
        wanted=wanted,
        outside=outside,
        missing=wanted + outside - elsewhere,
    )


def cases(plan: Plan) -> list[CellsCase]:
    """All levels at all sizes."""
    return [CellsCase(level, nodes) for nodes in plan.sizes for level in LEVELS]


QUANTITIES: dict[str, tuple[str, Callable[[CellCosts], float]]] = {
    "subscriptions of a node": ("topics", lambda found: found.subscriptions),
    "changes of subscriptions": ("changes", lambda found: found.changes),
    "messages about membership": ("messages", lambda found: found.maintenance),
    "deliveries outside of the area, for one inside": (
        "deliveries",
        lambda found: found.outside / max(1, found.wanted),
    ),
    "copies of publications": ("messages", lambda found: found.copies),
}


def compare(plan: Plan, results: Results[CellsCase, CellCosts]) -> Iterator[Finding]:
    """All quantities by level."""
    yield promised(
        "deliveries missing, all runs", [found.missing for case in cases(plan) for found in results.of(case)]
    )
    for label, (unit, quantity) in QUANTITIES.items():
        for case in cases(plan):
            yield Row(f"{label}, {case}", unit, results.sample(case, quantity))
    nodes = max(plan.sizes)
    yield Figure(
        "cells",
        "Messages by the level of cells",
        Axis("level of cells", categories=tuple(map(str, LEVELS))),
        Axis("messages"),
        tuple(
            Series(
                label,
                "VCube-PS repaired",
                tuple(
                    results.sample(CellsCase(level, nodes), QUANTITIES[label][1]).point(place)
                    for place, level in enumerate(LEVELS)
                ),
                "bars",
                variant,
            )
            for variant, label in enumerate(("messages about membership", "copies of publications"))
        ),
    )
    yield Note(f"Areas are {SIDE_DEGREES:g} degrees wide; cells of level 5 are 11 degrees wide and 6 high.")


CELLS: Experiment[CellsCase, CellCosts] = Experiment(
    name="places/cells",
    document="the thesis on VCube-PS mentions topics by place and measures none",
    description="geo topics: messages about membership and deliveries outside of areas, by the size of cells",
    default=Plan((32, 64), repetitions=3, large_repetitions=3),
    full=Plan((32, 64, 128), repetitions=10, large_repetitions=10, full=True),
    parameters={
        "moves": MOVES,
        "step_degrees": STEP_DEGREES,
        "area_degrees": SIDE_DEGREES,
        "publications_after_each_move": PUBLICATIONS,
    },
    cases=cases,
    measure=measure,
    compare=compare,
    meaning="How large should cells be? A subscriber gets everything in the cells that its area meets, and drops what "
    "lies outside. Large cells bring much that is dropped. Small cells make a moving subscriber change many "
    "subscriptions, and each change is news to the members of a topic.",
)
