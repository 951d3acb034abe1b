"""Answers the page about a simulated run into which somebody intervenes.

The simulator is repeatable, so nothing is kept but the scenario: it runs at once to its end, and the page shows of it
what is before its moment. An intervention is a fault that is added to the scenario at that moment; the run is made
again, and so is what follows. The result is a scenario file, which anybody can run.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec
import numpy as np

from antiphon.console.diagram.run_index import LIFE_EVENTS, RunIndex
from antiphon.console.http_messages import HttpAnswer, HttpRequest, as_json, refused
from antiphon.console.recorded import RunView
from antiphon.kernel.errors import UsageError
from antiphon.simulator.scenario.run import Simulation
from antiphon.simulator.scenario.scenario import (
    CrashFault,
    Fault,
    LimitsTable,
    PartitionFault,
    PauseFault,
    RestartFault,
    ResumeFault,
    Scenario,
)
from antiphon.simulator.scenario.writer import scenario_text
from antiphon.trace.store import MemoryTrace

EVENTS_AT_MOST: Final = 2_000_000
"""A played run ends after so many events at the latest: it is made again with each intervention."""

NODE_FAULTS: Final = {"crash": CrashFault, "restart": RestartFault, "pause": PauseFault, "resume": ResumeFault}


class PlayedRun:
    """The site of a simulated run."""

    def __init__(self, scenario: Scenario) -> None:
        events = min(scenario.limits.events, EVENTS_AT_MOST)
        self._scenario = msgspec.structs.replace(scenario, limits=LimitsTable(events=events, time=scenario.limits.time))
        self._interventions: list[Fault] = []
        self._thread = ThreadPoolExecutor(1, "console")
        self._view, self._ended = self._run([])

    def _run(self, interventions: list[Fault]) -> tuple[RunView, str]:
        """The run with these interventions."""
        scenario = self._with(interventions)
        trace = MemoryTrace("everything")
        simulation = Simulation(scenario, trace.recorder)
        stopped = simulation.run()
        simulation.engine.record_end(stopped)
        about = {"host": "simulator", "scenario": msgspec.to_builtins(scenario)}
        return RunView(RunIndex(trace.table(), about)), stopped

    def _with(self, interventions: list[Fault]) -> Scenario:
        return without_the_impossible(
            msgspec.structs.replace(self._scenario, faults=[*self._scenario.faults, *interventions])
        )

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """Answer the page."""
        if request.path == "/api/mode":
            return as_json({"mode": "play"})
        if request.path == "/api/intervene" and request.method == "POST":
            return as_json(await self._on_thread(self._intervene, request.json()))
        if request.path == "/api/scenario":
            return as_json({"text": scenario_text(self._with(self._interventions))})
        if request.path == "/api/step":
            return as_json({"time": self._neighbour(request)})
        question = self._view.answers().get(request.path)
        if question is None:
            return refused(404, "there is no such question")
        found = await self._on_thread(question, request)
        if request.path == "/api/run":
            found |= {"interventions": self._told(), "ended": self._ended}
        return as_json(found)

    async def _on_thread(self, work: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def _intervene(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Add a fault or take the last one back, and run again; a run that cannot be leaves everything as it was."""
        if wanted.get("kind") == "undo":
            interventions = self._interventions[:-1]
        else:
            interventions = changed(self._interventions, wanted, self._scenario.nodes)
        self._view, self._ended = self._run(interventions)
        self._interventions = interventions
        return {"interventions": self._told()}

    def _told(self) -> list[dict[str, Any]]:
        """The interventions for the page."""
        return [msgspec.to_builtins(each) for each in self._interventions]

    def _neighbour(self, request: HttpRequest) -> int:
        """The time of the next or the previous row that is worth a look."""
        run = self._view.run
        now, is_forward = request.integer("from", run.first_time), request.integer("direction", 1) > 0
        drawn = np.flatnonzero((run.source >= 0) | np.isin(run.event, LIFE_EVENTS))
        times = run.time[drawn]
        place = int(np.searchsorted(times, now, side="right" if is_forward else "left"))
        if is_forward:
            return int(times[place]) if place < len(times) else run.last_time
        return int(times[place - 1]) if place > 0 else run.first_time

    async def close(self) -> None:
        """Stop the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def changed(interventions: list[Fault], wanted: dict[str, Any], node_count: int) -> list[Fault]:
    """The interventions with one more; to heal a link ends those that cut it."""
    kind, at = str(wanted.get("kind")), int(wanted.get("at", 0))
    named = [int(each) for each in wanted.get("nodes", ())]
    if not named or not all(0 <= node < node_count for node in named):
        raise UsageError(f"name nodes from 0 to {node_count - 1}, not {named}")
    if kind in NODE_FAULTS:
        fault: Fault = NODE_FAULTS[kind](at=at, node=named[0])
        return [*interventions, fault]
    if kind not in {"cut", "heal"} or len(named) != 2 or named[0] == named[1]:
        raise UsageError(f"an intervention is {', '.join(NODE_FAULTS)}, or cut or heal between two nodes, not {kind!r}")
    groups = groups_around(min(named), max(named), node_count)
    if kind == "cut":
        # Neighbours of a chain are connected: both ends reach all others, and not each other.
        return [*interventions, PartitionFault(at=at, groups=groups, linked="chain" if len(groups) > 2 else "apart")]
    healed = [
        msgspec.structs.replace(each, until=at)
        if isinstance(each, PartitionFault) and each.groups == groups and each.until is None and each.at < at
        else each
        for each in interventions
    ]
    if healed == interventions:
        raise UsageError(f"the link between nodes {named[0]} and {named[1]} is not cut before this moment")
    return healed


def without_the_impossible(scenario: Scenario) -> Scenario:
    """The scenario without what it asks of nodes that are not up then: a crashed node publishes nothing."""
    changes = [
        (fault.at, node, isinstance(fault, RestartFault | ResumeFault))
        for _, fault in scenario.faults_by_time()
        if isinstance(fault, CrashFault | RestartFault | PauseFault | ResumeFault)
        for node in fault.targets(scenario.nodes)
    ]

    def is_able(node: int, at: int) -> bool:
        before = [is_up for time, other, is_up in changes if other == node and time <= at]
        return not before or before[-1]

    def possible(wishes: list[Any]) -> list[Any]:
        return [wish for wish in wishes if wish.node is None or is_able(wish.node, wish.at)]

    return msgspec.structs.replace(
        scenario,
        publications=possible(scenario.publications),
        subscriptions=possible(scenario.subscriptions),
        unsubscriptions=possible(scenario.unsubscriptions),
    )


def groups_around(one: int, other: int, node_count: int) -> list[Any]:
    """The groups of a chain whose ends are two nodes, and whose middle is everybody else."""
    others = [node for node in range(node_count) if node not in {one, other}]
    return [[one], others, [other]] if others else [[one], [other]]
