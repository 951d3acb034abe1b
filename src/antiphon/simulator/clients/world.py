"""Runs one schedule: nodes that come and go, clients that publish through them, and the judge of what they see.

A node without a disk that returns is a new one, and everything that a client was promised rests on its session. A node
with a disk returns with its log. At the end all faults are over; long afterwards every client publishes last words, and
everything is judged.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from antiphon.audit.clients import ERROR, ClientJudge
from antiphon.audit.membership import ERROR as NODE_ERROR
from antiphon.audit.membership import MembershipJudge, MembershipRules
from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.randomness import RandomStream
from antiphon.membership.host import SECOND_US
from antiphon.simulator.clients.client import SimulatedClient
from antiphon.simulator.clients.machine import Machine
from antiphon.simulator.clients.serving_node import ServingLife
from antiphon.simulator.clients.writer import SimulatedWriter
from antiphon.simulator.cluster.clock import VirtualClock
from antiphon.simulator.cluster.disk import SimulatedDisk
from antiphon.simulator.cluster.fabrics import NodeSettings, table_of
from antiphon.simulator.cluster.network import Network
from antiphon.simulator.cluster.restarts import Restarts

NETWORK_STREAM: Final = 50
NODE_STREAM: Final = 51
CLIENT_STREAM: Final = 52

BEGIN_US: Final = 6 * SECOND_US
"""When clients begin: the nodes have found each other."""

SETTLE_US: Final = 75 * SECOND_US
"""How long everything may take to come to rest: longer than a node waits for what a client has seen elsewhere."""

LAST_WORDS_US: Final = 15 * SECOND_US
"""How long last words may take."""

COMMIT_US: Final = 5000
"""How long a disk takes to write facts and journals."""

ClientKind = Literal["publish", "crash", "wipe", "blackout", "leave", "pause", "cut", "pause_client", "connect"]


class ClientStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happens, after clients have begun. In a ``blackout`` all nodes crash at once."""

    at_us: int
    kind: ClientKind
    node: int = 0
    client: int = 0
    nodes: list[int] = []
    clients: list[int] = []
    order: str = "causal"
    lasts_us: int = 0


class ClientSchedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One cluster with clients, and all that happens to it.

    ``keeps`` are the nodes that are members by themselves, ``with_disk`` those that keep a log. An exactly-once writer
    writes as many messages in one series after the other as ``writes`` says.
    """

    seed: int
    fabric: str
    nodes: int
    homes: list[int]
    """The first node of each client."""
    keeps: list[int] = []
    with_disk: list[int] = []
    delay_us: tuple[int, int] = (50, 500)
    lost_seconds: float = 1.0
    writes: list[int] = []
    writes_from_us: int = 0
    writes_order: str = "causal"
    steps: list[ClientStep] = []

    def fault_ends_us(self) -> list[int]:
        """When each fault is over."""
        faults = [step for step in self.steps if step.kind not in ("publish", "connect")]
        return [BEGIN_US + SECOND_US + step.at_us + step.lasts_us for step in faults]

    def end_us(self) -> int:
        """When everything is over that happens."""
        last_us = max((step.at_us + step.lasts_us for step in self.steps), default=0)
        return BEGIN_US + max(last_us, self.writes_from_us)


class ClientWorld:
    """One run of a schedule."""

    def __init__(self, schedule: ClientSchedule) -> None:
        self.schedule = schedule
        self.clock = VirtualClock()
        self.judge = ClientJudge()
        self.judge.nodes_may_be_away = any(step.kind in ("cut", "pause") for step in schedule.steps)
        self.judge.may_pass_over = FABRICS[schedule.fabric].may_pass_over
        policy = FABRICS[schedule.fabric].membership
        self._has_founders = policy.has_founders
        self._members = MembershipJudge(MembershipRules(policy.keeps_identity, policy.begins_apart, policy.is_full))
        random = RandomStream(schedule.seed, NETWORK_STREAM)
        self.network = Network(self.clock, random, schedule.delay_us, 0, round(schedule.lost_seconds * SECOND_US))
        self.places = [f"machine{number}:7400" for number in range(schedule.nodes)]
        implementation = FABRICS[schedule.fabric].implementation()
        has_journal = implementation.traits(table_of(schedule.fabric, ())).has_journal
        self.machines = [
            self.new_machine(SimulatedDisk(self.clock, number in schedule.with_disk, has_journal, COMMIT_US), number)
            for number in range(schedule.nodes)
        ]
        self.nodes: list[ServingLife | None] = [None] * schedule.nodes
        self._restarts = Restarts(self.clock, self.nodes, self._start)
        self.clients: list[SimulatedClient | None] = [None] * len(schedule.homes)
        self._lives = 0
        # Nodes whose disks were replaced: they join as others do.
        self._wiped: set[int] = set()

    # What worlds with other nodes and clients change.

    def new_machine(self, disk: SimulatedDisk, number: int) -> Machine:
        """The machine of a node."""
        return Machine(disk)

    def new_life(self, *about: Any) -> ServingLife:
        """Another life of a node."""
        return ServingLife(*about)

    def new_client(self, number: int, addresses: list[str], random: RandomStream) -> SimulatedClient:
        """A client."""
        return SimulatedClient(number, addresses, self.clock, self.network, self.judge, random)

    def run(self) -> ClientJudge:
        """Let the schedule happen to its end, and judge it."""
        self.begin()
        clock = self.clock
        clock.run_until(self.schedule.end_us() + SETTLE_US)
        there = [client for client in self.clients if client is not None]
        for client in there:
            client.publish("causal")
        clock.run_until(clock.now_us + LAST_WORDS_US)
        self._judge_all(there)
        return self.judge

    def begin(self) -> None:
        """Plan everything that is to happen."""
        schedule, clock = self.schedule, self.clock
        for number in range(schedule.nodes):
            clock.post(number * 100_000, lambda number=number: self._start(number))  # type: ignore[misc]
        late = {step.client for step in schedule.steps if step.kind == "connect"}
        for number in range(len(schedule.homes)):
            if number not in late:
                clock.post(BEGIN_US, lambda number=number: self._connect(number))  # type: ignore[misc]
        for step in schedule.steps:
            clock.post(BEGIN_US + SECOND_US + step.at_us, lambda step=step: self._take(step))  # type: ignore[misc]
        if schedule.writes:
            clock.post(BEGIN_US + SECOND_US + schedule.writes_from_us, self._write)

    def _judge_all(self, clients: list[SimulatedClient]) -> None:
        self.judge.judge(client.number for client in clients if client.is_up and client.is_ready)
        for place, machine in zip(self.places, self.machines, strict=True):
            self.judge.log_holds(place, (batch.name for _, batch in machine.logged if batch.is_written))
        for kind, about in self._members.violations:
            if kind == NODE_ERROR:
                self.judge.violation(ERROR, about)

    def _write(self) -> None:
        schedule = self.schedule
        number = len(schedule.homes)
        writer = SimulatedWriter(number, self.places, schedule.writes, schedule.writes_order, self.clock, self.network)
        writer.begin(self.judge)

    def _connect(self, number: int) -> None:
        home = self.schedule.homes[number]
        addresses = [self.places[home], *(place for place in self.places if place != self.places[home])]
        random = RandomStream(self.schedule.seed, CLIENT_STREAM, number)
        client = self.new_client(number, addresses, random)
        self.clients[number] = client
        client.begin()

    def _take(self, step: ClientStep) -> None:
        client = self.clients[step.client] if self.clients else None
        if step.kind == "connect":
            if client is None:
                self._connect(step.client)
        elif step.kind == "publish":
            if client is not None:
                client.publish(step.order)
        elif step.kind == "pause_client":
            if client is not None:
                client.pause(step.lasts_us)
        elif step.kind == "cut":
            apart = {self.places[node] for node in step.nodes} | {f"client{number}" for number in step.clients}
            self.network.cut(frozenset(apart), step.lasts_us)
        elif step.kind == "blackout":
            for number in range(self.schedule.nodes):
                self.hurt(msgspec.structs.replace(step, kind="crash", node=number))
        else:
            self.hurt(step)

    def hurt(self, step: ClientStep) -> None:
        """Something happens to a node."""
        node = self.nodes[step.node]
        if node is None or not node.is_up:
            return
        if step.kind == "pause":
            if not node.is_paused:
                node.pause()
                self.clock.post(step.lasts_us, node.resume)
            return
        if step.kind == "leave":
            if node.is_paused or node.is_leaving:
                return
            node.when_gone = lambda *_: None
            node.handle(node.leave)
        else:
            node.when_gone = lambda *_: None
            node.crash(True)
        if step.kind == "wipe":
            self.machines[step.node].wiped()
            self._wiped.add(step.node)
        self._ended(step.node)
        self._restarts.after(step.node, max(1, step.lasts_us))

    def _ended(self, number: int) -> None:
        if number not in self.schedule.with_disk:
            self.machines[number].wiped()

    def _start(self, number: int) -> None:
        schedule = self.schedule
        self._lives += 1
        founders = self.places[: min(3, schedule.nodes)] if self._has_founders else []
        # The first node finds the others by what it has on disk, when it returns.
        is_first = number == 0 and (self._lives == 1 or (0 in schedule.with_disk and number not in self._wiped))
        join = [] if is_first or self.places[number] in founders else self._contacts(number)
        settings = NodeSettings(schedule.fabric, join, founders, lost_seconds=schedule.lost_seconds)
        random = RandomStream(schedule.seed, NODE_STREAM, self._lives)
        machine = self.machines[number]
        life = self.new_life(
            self.places[number], self._lives, settings, self.clock, self.network, machine.disk, self._members, random
        )
        life.prepare(machine)
        life.keeps_topic = number in schedule.keeps
        life.when_gone = lambda node, _: self._gone(number, node)
        self.nodes[number] = life
        self._members.began(life.number, number if number in schedule.with_disk else 1000 + life.number)
        life.begin()

    def _contacts(self, number: int) -> list[str]:
        others = [node for node in self.nodes if node is not None and node.place != self.places[number]]
        return [node.place for node in others if node.has_entered] or [self.places[0]]

    def _gone(self, number: int, node: object) -> None:
        """A node has ended by itself; it is started again, as a supervisor would."""
        if isinstance(node, ServingLife) and node.is_up:
            node.crash(True)
        self._ended(number)
        self._restarts.after(number)
