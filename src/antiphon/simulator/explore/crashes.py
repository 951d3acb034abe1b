"""All schedules of a small system in which one node crashes, at every step, and perhaps restarts with its log.

Beside the rules of the explorer (:mod:`antiphon.simulator.explore.explorer`): links are connections, so messages from
one node to another arrive in order. One node may crash at any step. Messages in transit to it are lost. Any prefix of
the messages it sent may still arrive at each other node; then that node is told, at a step of its own, that the crashed
node is lost, and receives nothing more from it. A restarted node is a new process with the log of the old one. Its
connection to each other node opens at a step of its own, after that node was told of the loss; each end is told at a
step of its own, before anything arrives there.

Timers expire when no message is in transit, in any order, and each node's a limited number of times; ``early_timers``
of all of them may also expire at any other step. Clocks stand still, so no node is forgotten for its absence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from antiphon.audit.findings import Findings
from antiphon.kernel.message import ProtocolMessage, Publication
from antiphon.kernel.process import Environment, LogReader, Process
from antiphon.simulator.engine.disks import PiecesReader
from antiphon.simulator.explore.explorer import (
    Copy,
    Exploration,
    ExplorerEnvironment,
    Operation,
    System,
    explore_system,
)

CRASH = -1000
RETURN = -1001
TOLD_LOST = -2000
TOLD_FOUND = -3000
TIMER = -4000
"""Choices beside those of the explorer; the last three encode a node each, and count down from there."""

STRIDE = 100
"""A found peer is a choice about two nodes: the node that is told, and the peer."""


@dataclass(frozen=True)
class Failure:
    """The crashing node, whether it restarts, and how often timers expire."""

    node: int
    returns: bool
    rounds: int = 4
    """How often the timer of each node expires at most."""
    early_timers: int = 0
    in_one_step: bool = False
    """Whether one step tells all nodes of the loss, and one step tells both ends of a new connection: so that three
    nodes have few enough schedules.
    """


class CrashingEnvironment(ExplorerEnvironment):
    """The environment of one incarnation of a node."""

    def __init__(self, identifier: int, system: CrashingSystem, incarnation: int) -> None:
        super().__init__(identifier, system)
        self._failing_system = system
        self.incarnation = incarnation
        """How often the node has crashed before."""

    def send(self, destination: int, message: ProtocolMessage) -> None:
        """Put a copy in transit, if there is a connection."""
        if self._failing_system.is_connected(self.identifier, destination):
            super().send(destination, message)

    def deliver(self, publication: Publication) -> None:
        """Record the delivery, and tell the oracle."""
        process = self._failing_system.processes[self.identifier]
        self._failing_system.logs.setdefault((self.identifier, publication.topic), []).append(
            process.recorded(publication)
        )
        super().deliver(publication)

    def subscribed(self, topic: int) -> None:
        """Tell the oracle, for which a restarted node was never away."""
        self._failing_system.members.setdefault((self.identifier, topic))
        if self.identifier not in self._failing_system.oracle.topic(topic).member_since:
            super().subscribed(topic)

    def unsubscribed(self, topic: int) -> None:
        """Tell the oracle."""
        self._failing_system.members.pop((self.identifier, topic), None)
        super().unsubscribed(topic)

    def log_reader(self, topic: int) -> LogReader | None:
        """The log of this node, from all of its incarnations."""
        return PiecesReader(list(self._failing_system.logs.get((self.identifier, topic), [])), False)

    def was_logged(self, topic: int, source: int, sequence: int) -> bool:
        """Whether the publication is in the log, which is complete."""
        log = self._failing_system.logs.get((self.identifier, topic), [])
        return any(entry.source == source and entry.sequence == sequence for entry in log)

    def restored_frontier(self, topic: int) -> list[int] | None:
        """The past of the earlier incarnation."""
        return self._failing_system.pasts.pop((self.identifier, topic), None)

    def lost(self, topic: int, source: int, sequence: int, is_late: bool = False) -> None:
        """Record the report: no loss may be reported while an absent node may come back."""
        self._failing_system.said_lost.append((self.identifier, topic, source, sequence))

    def set_timer(self, delay: int, name: int) -> int:
        """Set a timer; its delay has no meaning in a schedule without time."""
        self._failing_system.timers.setdefault(self.identifier, {})[name] = None
        return name

    def cancel_timer(self, handle: int) -> None:
        """Handles are names: a process with two timers of one name cannot be explored."""
        self._failing_system.timers.get(self.identifier, {}).pop(handle, None)


class CrashingSystem(System):
    """One run, driven by choices."""

    def __init__(
        self, build: Callable[[Environment], Process], scripts: Sequence[Sequence[Operation]], failure: Failure
    ) -> None:
        self.failure = failure
        self.logs: dict[tuple[int, int], list[ProtocolMessage]] = {}
        self.pasts: dict[tuple[int, int], list[int]] = {}
        self.members: dict[tuple[int, int], None] = {}
        self.timers: dict[int, dict[int, None]] = {}
        self.said_lost: list[tuple[int, int, int, int]] = []
        self._expired = [0] * len(scripts)
        self._early = 0
        self._life = 0
        self._is_down = False
        # Nodes that were not told of the crash; nodes without a new connection; ends of new connections that were not
        # told.
        self._unaware: set[int] = set()
        self._apart: set[int] = set()
        self._untold: set[tuple[int, int]] = set()
        super().__init__(build, scripts)

    def world(self, identifier: int) -> ExplorerEnvironment:
        return CrashingEnvironment(identifier, self, self._life)

    def is_connected(self, one: int, other: int) -> bool:
        """Whether a message from one node to the other may arrive."""
        failing = self.failure.node
        if failing not in (one, other) or self._life == 0:
            return True
        return not self._is_down and (other if one == failing else one) not in self._apart

    # Choices.

    def choices(self) -> list[int]:
        """The first copy on each connection, the operations of nodes that are up, and the steps of the failure."""
        first: dict[tuple[int, int], int] = {}
        for position, copy in enumerate(self.in_flight):
            first.setdefault((copy.sender, copy.target), position)
        arrivals = [position for (sender, target), position in first.items() if (target, sender) not in self._untold]
        failing = self.failure.node
        operations = [choice for choice in self.operations() if not self._is_down or choice != -1 - failing]
        return [*arrivals, *operations, *self._failures(), *self._expiries()]

    def _failures(self) -> list[int]:
        failing = self.failure.node
        if self._life == 0:
            return [CRASH]
        in_one_step = self.failure.in_one_step
        found = [TOLD_LOST - node for node in sorted(self._unaware)][: 1 if in_one_step else None]
        if self._is_down:
            return [*found, *([RETURN] if self.failure.returns and not (in_one_step and found) else [])]
        for node in sorted(self._apart - self._unaware):
            found.append(TOLD_FOUND - STRIDE * node - failing)
            if not in_one_step:
                found.append(TOLD_FOUND - STRIDE * failing - node)
        return [*found, *(TOLD_FOUND - STRIDE * node - peer for node, peer in sorted(self._untold))]

    def _expiries(self) -> list[int]:
        is_quiet = not self.in_flight and not self._unaware and not self._untold
        if not is_quiet and self._early >= self.failure.early_timers:
            return []
        return [TIMER - node for node in sorted(self.timers) if self._expired[node] < self.failure.rounds]

    def describe(self, choice: int) -> str:
        """A choice as text."""
        failing = self.failure.node
        if choice > CRASH:
            return super().describe(choice)
        if choice in (CRASH, RETURN):
            return f"node {failing} {'crashes' if choice == CRASH else 'comes back'}"
        if choice > TOLD_FOUND:
            return f"node {TOLD_LOST - choice} is told that node {failing} is lost"
        if choice > TIMER:
            node, peer = divmod(TOLD_FOUND - choice, STRIDE)
            return f"node {node} is told that node {peer} is found"
        return f"a timer of node {TIMER - choice} expires"

    def take(self, choice: int) -> None:
        """Carry out a choice."""
        if choice > CRASH:
            super().take(choice)
        elif choice == CRASH:
            self._crash()
        elif choice == RETURN:
            self._return()
        elif choice > TOLD_FOUND:
            self._tell_lost(TOLD_LOST - choice)
        elif choice > TIMER:
            self._tell_found(*divmod(TOLD_FOUND - choice, STRIDE))
        else:
            self._expire(TIMER - choice)

    def _crash(self) -> None:
        failing = self.failure.node
        process = self.processes[failing]
        for node, topic in self.members:
            if node == failing:
                self.pasts[node, topic] = process.frontier_keys(topic)
                if not self.failure.returns:
                    self.oracle.topic(topic).unsubscribed(node)
        self.in_flight = [copy for copy in self.in_flight if copy.target != failing]
        self.timers.pop(failing, None)
        self._life += 1
        self._is_down = True
        self._unaware = set(range(len(self.processes))) - {failing}
        self._apart = set(self._unaware)

    def _return(self) -> None:
        failing = self.failure.node
        self._is_down = False
        process = self.processes[failing] = self.build(self.world(failing))
        process.start()
        for node, topic in list(self.members):
            if node == failing:
                process.subscribe(topic)
        # The application repeats requests that were not fulfilled.
        last_words = {topic: name for name, topic, *_ in self.done_by(failing) if name != "publish"}
        for topic, name in last_words.items():
            is_member = (failing, topic) in self.members
            if name == "subscribe" and not is_member:
                process.subscribe(topic)
            elif name == "unsubscribe" and is_member:
                process.unsubscribe(topic)

    def _tell_lost(self, node: int) -> None:
        failing = self.failure.node
        for each in sorted(self._unaware) if self.failure.in_one_step else [node]:
            self._unaware.discard(each)
            self.in_flight = [copy for copy in self.in_flight if (copy.sender, copy.target) != (failing, each)]
            self.processes[each].peer_lost(failing)

    def _tell_found(self, node: int, peer: int) -> None:
        other = peer if node == self.failure.node else node
        is_first = other in self._apart
        if is_first:
            self._apart.discard(other)
            self._untold.add((peer, node))
        else:
            self._untold.discard((node, peer))
        self.processes[node].peer_found(peer)
        if is_first and self.failure.in_one_step:
            self._tell_found(peer, node)

    def _expire(self, node: int) -> None:
        if self.in_flight or self._unaware or self._untold:
            self._early += 1
        self._expired[node] += 1
        name = next(iter(self.timers[node]))
        del self.timers[node][name]
        if not self.timers[node]:
            del self.timers[node]
        self.processes[node].expire(name)

    # Comparing and judging.

    def state(self) -> str:
        """The whole state as text; the order of messages on a connection counts."""
        pairs: dict[tuple[int, int], list[Copy]] = {}
        for copy in self.in_flight:
            pairs.setdefault((copy.sender, copy.target), []).append(copy)
        flying = [copy.text for _, copies in sorted(pairs.items()) for copy in copies]
        states = [process.state() for process in self.processes]
        if self._is_down:
            states[self.failure.node] = "down"
        logs = [(name, [(entry.source, entry.sequence) for entry in log]) for name, log in sorted(self.logs.items())]
        failing = (self._life, self._is_down, sorted(self._unaware), sorted(self._apart), sorted(self._untold))
        timers = ([(node, list(names)) for node, names in sorted(self.timers.items())], self._expired, self._early)
        rest = (logs, sorted(self.pasts.items()), sorted(self.members), failing, timers, self._done, self.said_lost)
        return "\n".join([*states, *flying, str(rest), self.oracle.state()])

    def finish(self) -> Findings:
        """The judgement. A publication of a node that crashed for good may be lost with it, if no other node has it."""
        return self.oracle.finish({self.failure.node} if self._is_down else ())

    def wrong_at_the_end(self) -> str | None:
        """Whether a loss was reported, a subscriber is not a member, or, with all nodes up, a node still waits."""
        if self.said_lost:
            return f"(node, topic, source, number) said to be lost: {self.said_lost}"
        if self._is_down:
            return None
        waiting = [node for node, process in enumerate(self.processes) if process.unfinished() > 0]
        return f"nodes {waiting} wait for ever" if waiting else self.wrong_members()


def explore_failure(
    build: Callable[[Environment], Process],
    scripts: Sequence[Sequence[Operation]],
    failure: Failure,
    state_limit: int = 1_000_000,
) -> Exploration:
    """Follow all schedules in which one node fails at some step."""
    return explore_system(partial(CrashingSystem, build, scripts, failure), state_limit)
