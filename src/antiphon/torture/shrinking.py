"""Shrinks a failing schedule to the operations that matter (delta debugging, Zeller 1999).

A candidate leaves something out or makes something simpler. It replaces the schedule if it still fails in the same way.
Leaving out an operation changes every random delay after it, so each candidate is also tried with a few other seeds:
the goal is a small schedule that fails, not the identical failure.
"""

from __future__ import annotations

import gc
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from antiphon.kernel.errors import PeerError, ScenarioError
from antiphon.kernel.process import NO_NODE
from antiphon.simulator.scenario.file import LEAST_GROUPS
from antiphon.simulator.scenario.protocols import PROTOCOLS
from antiphon.simulator.scenario.run import Simulation
from antiphon.simulator.scenario.scenario import (
    ConstantLaw,
    LimitsTable,
    NetworkTable,
    PartitionFault,
    Scenario,
    TopicsTable,
)
from antiphon.simulator.scenario.writer import scenario_text
from antiphon.torture.campaign import run_schedule, tidy_collector
from antiphon.torture.schedules.operations import (
    PART,
    PAUSE,
    SUBSCRIBE,
    Operation,
    Shape,
    named_members,
    operations_of,
    with_operations,
)
from antiphon.torture.tally import CLIENT_KINDS, ENDLESS, KINDS, Outcome
from antiphon.trace.store import MemoryTrace
from antiphon.trace.text import HEADING, lines

MAXIMUM_EFFORT = 6_000_000
"""The most messages to simulate. That takes half a minute; most schedules need less."""

EFFORT_OF_A_RUN = 500
"""The cost of setting up and judging one run, in messages."""

PATIENCE = (3, 12, 60)
"""The number of other seeds to try a candidate with: few while much can be left out, many at the end."""

EVENTS_TOLD = 50_000
"""The most events of an endless schedule that are written down for people."""

Run = Callable[[Scenario], Outcome]


class Shrinker:
    """Shrinks one schedule."""

    def __init__(self, scenario: Scenario, kind: str, run: Run = run_schedule) -> None:
        self.scenario = scenario
        self._kind = kind
        self._run = run
        self._effort = 0
        self._patience = 0

    def shrink(self) -> Scenario:
        """The smallest schedule found that fails in the same way."""
        # Passes that shorten the runs come first.
        passes = (
            self._fewer_topics,
            self._fewer_nodes,
            self._fewer_operations,
            self._no_partitions,
            self._simpler_partitions,
            self._fewer_subscriptions,
            self._fewer_members,
            self._simpler_orders,
            self._simpler_network,
            self._simpler_options,
            self._earlier,
        )
        with tidy_collector():
            for self._patience in PATIENCE:
                # Each pass makes room for the others.
                while sum(one() for one in passes) > 0:
                    pass
        return self.scenario

    def _accept(self, candidate: Scenario) -> bool:
        """Continue with a candidate if it fails, under its own seed or another one."""
        if candidate == self.scenario:
            return False
        for seed in (candidate.seed, *range(1, 1 + self._patience)):
            if self._effort >= MAXIMUM_EFFORT:
                return False
            tried = msgspec.structs.replace(candidate, seed=seed)
            try:
                outcome = self._run(tried)
            except ScenarioError:  # no operation is left
                return False
            gc.collect()
            self._effort += EFFORT_OF_A_RUN + outcome.messages
            if self._kind in outcome.violations:
                self.scenario = tried
                return True
        return False

    def _fewer_operations(self) -> bool:
        """Leave out ever smaller portions of the operations."""
        smaller = False
        size = len(operations_of(self.scenario))
        while size > 0:
            # Start at the end: operations after the failure can go first.
            end = len(operations_of(self.scenario))
            while end > 0:
                operations = operations_of(self.scenario)
                end = min(end, len(operations))
                start = max(0, end - size)
                if self._accept(with_operations(self.scenario, operations[:start] + operations[end:])):
                    smaller = True
                end = start
            size //= 2
        return smaller

    def _no_partitions(self) -> bool:
        """Leave the network whole."""
        kept = [fault for fault in self.scenario.faults if not isinstance(fault, PartitionFault)]
        return self._accept(msgspec.structs.replace(self.scenario, faults=kept))

    def _simpler_partitions(self) -> bool:
        """Replace partitions of odd shapes by partitions into two parts."""
        smaller = False
        for position in range(len(operations_of(self.scenario))):
            operations = operations_of(self.scenario)
            if operations[position].shape != Shape():
                operations[position] = operations[position]._replace(shape=Shape())
                smaller |= self._accept(with_operations(self.scenario, operations))
        return smaller

    def _fewer_topics(self) -> bool:
        """Leave out topics, or merge two into one."""
        smaller = False
        for topic in reversed(range(self.scenario.topic_count())):
            if self.scenario.topic_count() > 1:
                smaller |= self._accept(self._without_topic(topic, False)) or self._accept(
                    self._without_topic(topic, True)
                )
        return smaller

    def _without_topic(self, topic: int, keep: bool) -> Scenario:
        """The scenario without a topic; operations on it are left out, or move to the topic before it."""
        members = [set(nodes) for nodes in named_members(self.scenario)]
        gone = members.pop(topic)
        heir = max(topic - 1, 0)
        if keep:
            members[heir] |= gone
        kept = [
            operation._replace(topic=heir if operation.topic == topic else operation.topic - (operation.topic > topic))
            for operation in operations_of(self.scenario)
            if keep or operation.topic != topic or operation.kind == PAUSE
        ]
        smaller = self._with_members([sorted(nodes) for nodes in members])
        if smaller.topics is not None:
            spaces = spaces_without(smaller.topics.spaces, topic)
            smaller = msgspec.structs.replace(smaller, topics=msgspec.structs.replace(smaller.topics, spaces=spaces))
        return with_operations(smaller, kept)

    def _with_members(self, members: list[list[int]]) -> Scenario:
        if self.scenario.topics is None:
            return self.scenario
        topics = msgspec.structs.replace(
            self.scenario.topics, share=TopicsTable().share, count=len(members), members=list(members)
        )
        return msgspec.structs.replace(self.scenario, topics=topics)

    def _fewer_nodes(self) -> bool:
        """Leave out nodes, half of them at first; the nodes above get smaller numbers."""
        smaller = False
        size = self.scenario.nodes // 2
        while size > 0:
            end = self.scenario.nodes
            while end > 0 and self.scenario.nodes > 1:
                start = max(0, end - size)
                if end - start < self.scenario.nodes and self._accept(self._without_nodes(start, end)):
                    smaller = True
                end = start
            size //= 2
        return smaller

    def _without_nodes(self, start: int, end: int) -> Scenario:
        stay = [node for node in range(self.scenario.nodes) if not start <= node < end]
        places = {node: place for place, node in enumerate(stay)}
        members = [[places[node] for node in nodes if node in places] for nodes in named_members(self.scenario)]
        kept = []
        for operation in operations_of(self.scenario):
            if operation.kind == PART:
                kept += parted(operation, places)
            elif operation.node in places:
                heir = places.get(operation.heir, NO_NODE)
                if operation.heir == NO_NODE or heir != NO_NODE:
                    # A node with an heir does not fail for good.
                    kept.append(operation._replace(node=places[operation.node], heir=heir))
        fewer = msgspec.structs.replace(
            self._with_members(members),
            nodes=len(stay),
            protocol_options=options_without(self.scenario, places),
        )
        return with_operations(fewer, kept)

    def _fewer_subscriptions(self) -> bool:
        """Make a node a member from the start instead of letting it subscribe."""
        smaller = False
        for operation in operations_of(self.scenario):
            members = [list(nodes) for nodes in named_members(self.scenario)]
            if operation.kind == SUBSCRIBE and operation.node not in members[operation.topic]:
                insort(members[operation.topic], operation.node)
                kept = [one for one in operations_of(self.scenario) if one != operation]
                fewer = with_operations(self._with_members(members), kept)
                # No operation waits for the subscription any more, so later ones may have to move closer.
                smaller |= any(self._accept(one) for one in (fewer, with_gaps(fewer, 1), with_gaps(fewer, 100)))
        return smaller

    def _fewer_members(self) -> bool:
        """Remove nodes from the initial members."""
        smaller = False
        for topic in range(self.scenario.topic_count()):
            for node in reversed(named_members(self.scenario)[topic]):
                members = [list(nodes) for nodes in named_members(self.scenario)]
                members[topic].remove(node)
                if self._accept(with_operations(self._with_members(members), operations_of(self.scenario))):
                    smaller = True
        return smaller

    def _simpler_orders(self) -> bool:
        """Give publications the order of the schedule instead of their own: all at once, then one by one."""
        if not self.scenario.mixes_orders():
            return False
        plain = [operation._replace(order=None) for operation in operations_of(self.scenario)]
        smaller = self._accept(with_operations(self.scenario, plain))
        for position in range(len(operations_of(self.scenario))):
            operations = operations_of(self.scenario)
            if operations[position].order is not None:
                operations[position] = operations[position]._replace(order=None)
                smaller |= self._accept(with_operations(self.scenario, operations))
        return smaller

    def _simpler_network(self) -> bool:
        """Return to the default network, one setting at a time."""
        smaller = False
        for change in simpler_networks(self.scenario.network):
            network = msgspec.structs.replace(self.scenario.network, **change)
            if self._accept(msgspec.structs.replace(self.scenario, network=network)):
                smaller = True
        return smaller

    def _simpler_options(self) -> bool:
        """Return to the default options of the protocol, one option at a time."""
        smaller = False
        for key in list(self.scenario.protocol_options):
            fewer = {name: value for name, value in self.scenario.protocol_options.items() if name != key}
            if self._accept(msgspec.structs.replace(self.scenario, protocol_options=fewer)):
                smaller = True
        return smaller

    def _earlier(self) -> bool:
        """Shorten the times between operations: all that exceed a bound, and then one by one."""
        smaller = any(self._accept(with_gaps(self.scenario, bound)) for bound in (1, 10, 100, 1000, 10_000))
        for position in range(len(moments_of(operations_of(self.scenario)))):
            smaller |= self._accept(with_gaps(self.scenario, 1, position))
        return smaller


def parted(operation: Operation, places: dict[int, int]) -> list[Operation]:
    """A partition among the remaining nodes, renumbered; empty if it separates nobody any more."""
    one_way, others, linked = operation.shape
    first, *rest = (tuple(places[node] for node in group if node in places) for group in (operation.keys, *others))
    left = tuple(group for group in rest if group)
    if not first or len(first) == len(places) or 1 + len(left) < LEAST_GROUPS.get(linked, 1):
        return []
    return [operation._replace(keys=first, shape=Shape(one_way, left, linked))]


def options_without(scenario: Scenario, places: dict[int, int]) -> dict[str, Any]:
    """The protocol options that name nodes, restricted to the remaining nodes.

    A broker that loses its parent moves to its grandparent, or to the root.
    """
    options = scenario.protocol_options
    changed = dict(options)
    if options.get("log_nodes"):
        changed["log_nodes"] = [places[node] for node in options["log_nodes"] if node in places]
    if "contacts" in options:
        changed["contacts"] = [places[node] for node in options["contacts"] if node in places] or [0]
    parents = PROTOCOLS[scenario.protocol].parents_option
    if parents in options:
        changed[parents] = parents_without(options[parents], places)
    return changed


def parents_without(parents_of: Sequence[int], places: dict[int, int]) -> list[int]:
    """The parents of the remaining nodes, renumbered; the first node becomes the root."""
    parents: list[int] = []
    for node in places:
        parent = parents_of[node]
        while parent != NO_NODE and parent not in places:
            parent = parents_of[parent]
        parents.append(int(NO_NODE) if not parents else places.get(parent, 0))
    return parents


def with_gaps(scenario: Scenario, longest: int, only: int | None = None) -> Scenario:
    """Limit the times between operations to ``longest``, everywhere or at one position."""
    operations = operations_of(scenario)
    moved: dict[int, int] = {}
    previous = now = 0
    for position, moment in enumerate(moments_of(operations)):
        gap = moment - previous
        now += min(gap, longest) if only in (None, position) else gap
        previous = moment
        moved[moment] = now
    return with_operations(
        scenario, [one._replace(at=moved[one.at], until=moved[one.until] if one.until else 0) for one in operations]
    )


def moments_of(operations: list[Operation]) -> list[int]:
    """All times at which an operation starts or ends, ascending."""
    return sorted({one.at for one in operations} | {one.until for one in operations if one.until})


def simpler_networks(network: NetworkTable) -> Iterator[dict[str, object]]:
    """Changes that make a network simpler."""
    usual = NetworkTable()
    if network.reordering > 0:
        yield {"reordering": usual.reordering, "reordering_window": usual.reordering_window}
    if not isinstance(network.delay, ConstantLaw):
        yield {"delay": usual.delay}
    for key in ("delay", "transmission", "processing", "charge_control", "loss", "duplication"):
        if getattr(network, key) != getattr(usual, key):
            yield {key: getattr(usual, key)}


def representatives(failing: Sequence[Outcome]) -> list[tuple[str, Outcome]]:
    """For each kind of failure of each fabric, the first outcome that shows it; each outcome is used for one kind."""
    chosen: dict[int, tuple[str, Outcome]] = {}
    seen: set[tuple[str, str]] = set()
    for kind in (*KINDS, *CLIENT_KINDS):
        for outcome in failing:
            if kind in outcome.violations and (kind, outcome.fabric) not in seen:
                seen.add((kind, outcome.fabric))
                chosen.setdefault(outcome.seed, (kind, outcome))
    return list(chosen.values())


def write_failure(
    outcome: Outcome, kind: str, scenario: Scenario, directory: Path, state: str = "shrunk while it failed by"
) -> Path:
    """Write a schedule as a scenario file, with a comment that describes the failure, and its trace as text."""
    path = directory / f"torture-{outcome.seed}.toml"
    limits = scenario.limits if kind == ENDLESS else LimitsTable()
    named = msgspec.structs.replace(scenario, name=f"torture {outcome.seed}: {kind}", limits=limits)
    trace = path.with_suffix(".txt")
    remark = (
        f"Seed {outcome.seed} of antiphon torture, {state}: {kind}.\n"
        f"At first: {outcome.about}\n"
        f"Replay it: antiphon simulate {path.name}\n"
        f"{trace.name} is the trace as text: antiphon simulate {path.name} --level everything --trace {trace.name}"
    )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        path.write_text(scenario_text(named, remark), encoding="utf-8")
        write_story(named, trace)
    except OSError as error:
        raise PeerError(f"cannot write {path}: {error.strerror or error}; choose another place") from error
    return path


def write_story(scenario: Scenario, path: Path) -> None:
    """Write the trace of a schedule as text, up to an error in a process or to a limit of events."""
    memory = MemoryTrace("everything")
    end = ""
    try:
        few = msgspec.structs.replace(scenario.limits, events=min(scenario.limits.events, EVENTS_TOLD))
        simulation = Simulation(msgspec.structs.replace(scenario, limits=few), memory.recorder)
        stopped = simulation.run()
        simulation.engine.record_end(stopped)
        end = "" if stopped == "finished" else f"and so on: {stopped}\n"
    except Exception as error:  # the text ends with the error that a protocol raised
        end = f"{type(error).__name__}: {error}\n"
    table = memory.table()
    with path.open("w", encoding="utf-8") as file:
        file.write(HEADING)
        for batch in table.to_batches():
            file.writelines(lines(batch))
        file.write(end)


def spaces_without(spaces: list[list[int]], topic: int) -> list[list[int]]:
    """The spaces without a topic; the topics above it get smaller numbers."""
    left = [[other - (other > topic) for other in space if other != topic] for space in spaces]
    return [space for space in left if space]
