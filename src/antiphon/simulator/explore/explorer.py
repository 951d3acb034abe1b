"""Explores all schedules of a small system, one after the other.

The simulator follows one schedule per seed. The explorer follows every one: at each step any message in transit may
arrive next, whatever its age, and any node may do the next operation of its script. States that were visited before are
not followed again, so the result is exhaustive for the given scripts: either a schedule that breaks a promise, which is
printed and can be replayed, or the number of states in which it holds.

A state is the state of all processes (:meth:`antiphon.kernel.process.Process.state`), the messages in transit, the
positions in the scripts, and what the oracle still has to judge. To go back, the explorer runs the schedule again from
the start, so processes need not be copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from librt.vecs import vec

from antiphon.audit.findings import Findings
from antiphon.audit.oracle import Oracle
from antiphon.audit.total_order import Name, circle_in, circle_text, pairs_of
from antiphon.kernel.message import ORDER_NAMES, TOTAL, UNSPECIFIED, ProtocolMessage, Publication
from antiphon.kernel.process import Environment, Process
from antiphon.kernel.randomness import RandomStream

Operation = tuple[str, int] | tuple[str, int, int] | tuple[str, int, int, int]
"""An operation of a node: ``("subscribe", topic)``, ``("unsubscribe", topic)``, ``("publish", topic)`` or, in an order
of its own, ``("publish", topic, order)``, perhaps about a key, ``("publish", topic, order, key)``.
"""


FIELDS: dict[type[ProtocolMessage], list[str]] = {}
"""The fields of each class of messages, found at its first message."""


def describe(message: ProtocolMessage) -> str:
    """A message with all its fields as text. Its clock is left out: schedules have no time."""
    kind = type(message)
    if kind not in FIELDS:
        names = [name for name in dir(message) if not name.startswith("_") and name != "timestamp"]
        FIELDS[kind] = [name for name in names if not callable(getattr(message, name))]
    parts = [kind.__name__]
    for name in FIELDS[kind]:
        value = getattr(message, name)
        if isinstance(value, ProtocolMessage):
            parts.append(f"{name}=({describe(value)})")
        else:
            parts.append(f"{name}={list(value) if isinstance(value, vec) else value!r}")
    return " ".join(parts)


class Copy:
    """A message in transit. Its text is made on demand, because replaying a known schedule does not need it."""

    def __init__(self, sender: int, target: int, message: ProtocolMessage) -> None:
        self.sender = sender
        self.target = target
        self.message = message

    @cached_property
    def text(self) -> str:
        """The sender, the receiver and the message as text."""
        return f"{self.sender}->{self.target} {describe(self.message)}"


class ExplorerEnvironment(Environment):
    """The environment of one node; all nodes of a system share the rest through ``system``."""

    def __init__(self, identifier: int, system: System) -> None:
        super().__init__(identifier)
        self._system = system

    def now(self) -> int:
        """Always 0: no process may depend on the time of a schedule that has none."""
        return 0

    def send(self, destination: int, message: ProtocolMessage) -> None:
        """Put a copy in transit."""
        self._system.in_flight.append(Copy(self.identifier, destination, message))

    def deliver(self, publication: Publication) -> None:
        """Tell the oracle."""
        self._system.oracle.topic(publication.topic).delivered(
            self.identifier, publication.source, publication.sequence, publication.order
        )
        if self._system.is_total:
            name = (publication.source, publication.sequence)
            keys: list[int | None] = [*publication.total_order_keys()]
            for key in keys or [None]:
                channel = self._system.channels.setdefault((publication.topic, key), {}).setdefault(self.identifier, [])
                channel.append((name, publication.order == TOTAL))

    def subscribed(self, topic: int) -> None:
        """Tell the oracle."""
        self._system.oracle.topic(topic).subscribed(self.identifier)

    def unsubscribed(self, topic: int) -> None:
        """Tell the oracle."""
        self._system.oracle.topic(topic).unsubscribed(self.identifier)

    def random(self) -> RandomStream:
        """The same random numbers for every schedule."""
        return RandomStream(1, self.identifier)


class System:
    """One run of a small system, driven by choices.

    A choice is a number: the position of the copy in transit that arrives next, or ``-1 - node`` for the next operation
    of a node's script. The same choices from the start lead to the same state.
    """

    def __init__(self, build: Callable[[Environment], Process], scripts: Sequence[Sequence[Operation]]) -> None:
        self.build = build
        self.oracle = Oracle(len(scripts))
        # By topic and key: the deliveries of each node, for the judge of total order, where there is one.
        self.channels: dict[tuple[int, int | None], dict[int, list[tuple[Name, bool]]]] = {}
        self.is_total = any(TOTAL in operation[2:3] for script in scripts for operation in script)
        self.in_flight: list[Copy] = []
        self._scripts = scripts
        self._done = [0] * len(scripts)
        self._published: dict[tuple[int, int], int] = {}
        self.processes = [build(self.world(identifier)) for identifier in range(len(scripts))]
        for process in self.processes:
            process.start()

    def world(self, identifier: int) -> ExplorerEnvironment:
        """The environment of a node."""
        return ExplorerEnvironment(identifier, self)

    def choices(self) -> list[int]:
        """All possible next steps; of equal copies in transit only one."""
        distinct = {copy.text: position for position, copy in enumerate(self.in_flight)}
        return [*distinct.values(), *self.operations()]

    def operations(self) -> list[int]:
        """The next operation of each node that has one."""
        return [-1 - node for node, script in enumerate(self._scripts) if self._done[node] < len(script)]

    def done_by(self, node: int) -> Sequence[Operation]:
        """The operations of a node that have begun."""
        return self._scripts[node][: self._done[node]]

    def describe(self, choice: int) -> str:
        """A choice as text."""
        if choice >= 0:
            return self.in_flight[choice].text
        node = -1 - choice
        name, topic, *order = self._scripts[node][self._done[node]]
        about = [f"about {key}" for key in order[1:]]
        return " ".join([f"node {node}: {name} {topic}", *(ORDER_NAMES[one] for one in order[:1]), *about])

    def take(self, choice: int) -> None:
        """Carry out a choice."""
        if choice >= 0:
            copy = self.in_flight.pop(choice)
            self.processes[copy.target].receive(copy.sender, copy.message)
            return
        node = -1 - choice
        name, topic, *order = self._scripts[node][self._done[node]]
        self._done[node] += 1
        process = self.processes[node]
        if name == "publish":
            self._publish(process, topic, order[0] if order else UNSPECIFIED, order[1:])
        elif name == "subscribe":
            process.subscribe(topic)
        else:
            process.unsubscribe(topic)

    def _publish(self, process: Process, topic: int, order: int, keys: list[int]) -> None:
        """Publish. The oracle learns from the application, not from the process, what was requested."""
        sequence = self._published[process.me, topic] = self._published.get((process.me, topic), 0) + 1
        self.oracle.topic(topic).published(process.me, sequence, order)
        if keys:
            process.publish_about(keys, b"", topic, order)
        else:
            process.publish(b"", topic, order)

    def wrong_members(self) -> str | None:
        """A node whose membership differs from its script when all scripts are done."""
        for node, script in enumerate(self._scripts):
            for name, topic, *_ in reversed(script):
                if name != "publish":
                    is_member = node in self.oracle.topic(topic).member_since
                    if is_member != (name == "subscribe"):
                        return f"node {node} ended with {name}, but {'is' if is_member else 'is not'} a member"
                    break
        return None

    def state(self) -> str:
        """The whole state as text."""
        flying = sorted(copy.text for copy in self.in_flight)
        states = [process.state() for process in self.processes]
        return "\n".join([*states, *flying, str(self._done), self.oracle.state(), str(sorted(self.channels.items()))])

    def wrong_at_the_end(self) -> str | None:
        """A violation when no step is left, beside those of the oracle."""
        return self.circle() or self.wrong_members()

    def finish(self) -> Findings:
        """The judgement of the oracle when no step is left."""
        return self.oracle.finish()

    def circle(self) -> str | None:
        """Publications that nodes have delivered in different orders though one is total, if there are any."""
        for (topic, key), nodes in self.channels.items():
            found = circle_in({pair for channel in nodes.values() for pair in pairs_of(channel)})
            if found:
                return circle_text(topic, key, found)
        return None


@dataclass(frozen=True)
class Exploration:
    """The result of an exploration. ``exhausted`` if no state was left to visit."""

    states: int
    transitions: int
    ends: int
    exhausted: bool
    violation: str | None
    schedule: tuple[str, ...]


def explore(
    build: Callable[[Environment], Process], scripts: Sequence[Sequence[Operation]], state_limit: int = 1_000_000
) -> Exploration:
    """Follow all schedules of scripts, until one breaks a promise or all states are known."""
    return explore_system(lambda: System(build, scripts), state_limit)


def explore_system(make: Callable[[], System], state_limit: int = 1_000_000) -> Exploration:
    """Follow all schedules of a system, depth first; ``make`` creates its initial state, always the same."""
    here = make()
    system: System | None = here
    seen = {hash(here.state())}
    path: list[int] = []
    stack = [here.choices()]
    transitions = ends = 0
    while stack:
        if not stack[-1]:
            stack.pop()
            if path:
                path.pop()
            system = None
            continue
        if len(seen) >= state_limit:
            return Exploration(len(seen), transitions, ends, False, None, ())
        choice = stack[-1].pop()
        system = replay(make, path) if system is None else system
        system.take(choice)
        transitions += 1
        path.append(choice)
        following = system.choices()
        violation = judgement(system, bool(following))
        if violation is not None:
            return Exploration(len(seen), transitions, ends, False, violation, narrate(make, path))
        fingerprint = hash(system.state())
        if fingerprint in seen:
            path.pop()
            system = None
            continue
        seen.add(fingerprint)
        ends += not following
        stack.append(following)
    return Exploration(len(seen), transitions, ends, True, None, ())


def replay(make: Callable[[], System], path: Sequence[int]) -> System:
    """A system after a schedule."""
    system = make()
    for choice in path:
        system.take(choice)
    return system


def narrate(make: Callable[[], System], path: Sequence[int]) -> tuple[str, ...]:
    """A schedule as text, one line per step."""
    system = make()
    lines = []
    for choice in path:
        lines.append(system.describe(choice))
        system.take(choice)
    return tuple(lines)


def judgement(system: System, goes_on: bool) -> str | None:
    """A violation in the present state, if there is one; at the end, everything must be delivered and memberships
    match.
    """
    findings = system.oracle.findings if goes_on else system.finish()
    if not findings.clean:
        return str(findings)
    return None if goes_on else system.wrong_at_the_end()
