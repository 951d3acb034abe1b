"""Runs one schedule: nodes that keep the history of a topic, programs that use it, and the judges of both.

At the end all faults are over; programs come that do what is left for every consumer, and everything is judged.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from antiphon.audit.clients import ERROR, STUCK
from antiphon.audit.streams import StreamsJudge
from antiphon.kernel.randomness import RandomStream
from antiphon.membership.host import SECOND_US
from antiphon.simulator.clients.machine import ROOM, Machine
from antiphon.simulator.clients.world import BEGIN_US, COMMIT_US, ClientSchedule, ClientStep, ClientWorld
from antiphon.simulator.cluster.disk import SimulatedDisk
from antiphon.streams.commands import ConsumerSettings
from antiphon.streams.requests import Policy
from antiphon.torture.streams.files import SimulatedStreamFiles
from antiphon.torture.streams.node import StreamLife, StreamMachine
from antiphon.torture.streams.program import StreamProgram

FILES_STREAM: Final = 55
PROGRAM_STREAM: Final = 56
"""Name the streams of random numbers."""

SETTLE_US: Final = 15 * SECOND_US
"""How long after the last fault the nodes have to find each other."""

SLICE_US: Final = 5 * SECOND_US
SLICES: Final = 36
"""How often, at most, the world looks whether everything is done."""

LEADERLESS: Final = 6
"""After so many of these times without a leader there will be none."""

LEASE_US: Final = 2_000_000

TaskKind = Literal["publish", "consume", "leave", "die", "read", "crash leader"]


class StreamTask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a program does. ``consumer`` is the number of one, ``pace`` how slowly it works.

    A ``crash leader`` is no deed of a program: the node that leads the history at that time crashes.
    """

    at_us: int
    kind: TaskKind
    program: int
    consumer: int = 0
    order: str = "causal"
    acks: str = "one"
    key: int = 0
    pace: int = 20
    lasts_us: int = 0


class DrawnConsumer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A consumer and how it hands out messages."""

    mode: str
    deliveries_at_most: int = 0


class StreamSchedule(ClientSchedule, frozen=True, kw_only=True, omit_defaults=True):
    """A cluster with a topic that has a history, programs, and all that happens to them."""

    policy: Policy = Policy()
    consumers: list[DrawnConsumer] = msgspec.field(default_factory=list)
    tasks: list[StreamTask] = msgspec.field(default_factory=list)

    def end_us(self) -> int:
        return max(super().end_us(), BEGIN_US + max((task.at_us for task in self.tasks), default=0))

    @property
    def replicas(self) -> int:
        """How many nodes keep the history."""
        return min(self.policy.replicas, self.nodes)


class StreamWorld(ClientWorld):
    """One run of a schedule."""

    schedule: StreamSchedule

    def __init__(self, schedule: StreamSchedule) -> None:
        modes = {f"consumer{number}": each.mode for number, each in enumerate(schedule.consumers)}
        self.streams = StreamsJudge(modes, schedule.replicas)
        # Its only replica lacks what was published while it was away.
        ends = any(step.kind in ("crash", "leave", "wipe", "blackout") for step in schedule.steps)
        ends = ends or any(task.kind == "crash leader" for task in schedule.tasks)
        self.streams.may_lack = schedule.replicas == 1 and ends
        super().__init__(schedule)

    def new_machine(self, disk: SimulatedDisk, number: int) -> Machine:
        machine = StreamMachine(disk)
        machine.files = SimulatedStreamFiles(
            self.clock, COMMIT_US, RandomStream(self.schedule.seed, FILES_STREAM, number)
        )
        return machine

    def new_life(self, *about: Any) -> StreamLife:
        life = StreamLife(*about)
        life.streams_judge = self.streams
        return life

    def new_client(self, number: int, addresses: list[str], random: RandomStream) -> StreamProgram:
        return StreamProgram(number, addresses, self.clock, self.network, (self.judge, self.streams), random)

    def execute(self) -> StreamsJudge:
        """Let the schedule happen to its end, and judge it."""
        self.begin()
        schedule, clock = self.schedule, self.clock
        clock.post(BEGIN_US + SECOND_US // 2, lambda: self._program(0).create(schedule.policy))
        for task in schedule.tasks:
            clock.post(BEGIN_US + SECOND_US + task.at_us, lambda task=task: self._do(task))  # type: ignore[misc]
        clock.run_until(schedule.end_us() + SETTLE_US)
        finishers = [self._finisher(number) for number in range(max(1, len(schedule.consumers)))]
        for number in range(len(schedule.consumers)):
            self._consume(finishers[number], number, 5)
        finishers[0].publish_with("causal", "quorum", 0)
        for number in range(SLICES):
            clock.run_until(clock.now_us + SLICE_US)
            leader = self._leader()
            if (leader is None and number >= LEADERLESS) or (
                leader is not None and self.streams.is_all_done(self._end_of(leader))
            ):
                break
        finishers[0].read()
        clock.run_until(clock.now_us + SLICE_US)
        self._judge_streams(finishers[0])
        for program in self.clients:
            if isinstance(program, StreamProgram):
                program.loop.is_over = True
        return self.streams

    # What happens to nodes.

    def hurt(self, step: ClientStep) -> None:
        node = self.nodes[step.node]
        if step.kind == "wipe" and node is not None and node.is_up:
            has = [machine.history_messages() for machine in self.machines if isinstance(machine, StreamMachine)]
            had = has.pop(step.node)
            self.streams.disk_lost(had, set[str]().union(*has))
        super().hurt(step)

    # What programs do.

    def _program(self, number: int) -> StreamProgram:
        found = self.clients[number]
        assert isinstance(found, StreamProgram), "programs begin before anything happens"
        return found

    def _finisher(self, number: int) -> StreamProgram:
        """A program that works until everything is done."""
        first = number % self.schedule.nodes
        addresses = [*self.places[first:], *self.places[:first]]
        random = RandomStream(self.schedule.seed, PROGRAM_STREAM, number)
        made = self.new_client(len(self.clients), addresses, random)
        made.is_tireless = True
        self.clients.append(made)
        made.begin()
        return made

    def _consume(self, program: StreamProgram, number: int, pace: int) -> None:
        drawn = self.schedule.consumers[number]
        settings = ConsumerSettings(drawn.mode, LEASE_US, drawn.deliveries_at_most, 64)  # type: ignore[arg-type]
        program.consume(f"consumer{number}", settings, pace)

    def _do(self, task: StreamTask) -> None:
        if task.kind == "crash leader":
            leader = self._leader()
            if leader is not None:
                node = self.nodes.index(leader)
                self.hurt(ClientStep(at_us=0, kind="crash", node=node, lasts_us=task.lasts_us))
            return
        program = self._program(task.program)
        if not program.is_up:
            return
        if task.kind == "publish":
            program.publish_with(task.order, task.acks, task.key)
        elif task.kind == "consume":
            self._consume(program, task.consumer, task.pace)
        elif task.kind == "leave":
            program.leave_consumer(f"consumer{task.consumer}")
        elif task.kind == "read":
            program.read()
        else:
            program.die()

    # The verdict.

    def _leader(self) -> StreamLife | None:
        for life in self.nodes:
            if isinstance(life, StreamLife) and life.is_up and not life.is_paused:
                found = life.history()
                if found is not None and found.is_open:
                    return life
        return None

    def _end_of(self, life: StreamLife) -> int:
        found = life.history()
        assert found is not None, "it leads"
        return found.coordinator.settled_end

    def _judge_streams(self, reader: StreamProgram) -> None:
        judge = self.streams
        for kind, about in self._members.violations:
            if kind == ERROR:
                judge.violation(ERROR, about)
        for example in self.judge.examples:
            if example.startswith(f"{ERROR}: "):
                judge.violation(ERROR, example)
        leader = self._leader()
        found = None if leader is None else leader.history()
        if leader is None or found is None:
            judge.violation(STUCK, "in the end no node leads the history")
            return
        earliest = found.kept().earliest
        judge.judge(reader.history, earliest, self._end_of(leader), found.stream)
        judge.has_last_word(f"{reader.number}.1")
        for place, machine in zip(self.places, self.machines, strict=True):
            assert isinstance(machine, StreamMachine), "all machines are such"
            if machine.files.identity in found.replica.replicas.voters:
                judge.replica_holds(place, self._held_by(machine, found.stream, earliest), found.stream)

    def _held_by(self, machine: StreamMachine, stream: int, earliest: int) -> dict[int, str]:
        held = {}
        for entry in machine.files.entries_at(stream, earliest, 1 << 30):
            content = machine.files.content(stream, entry.source, entry.sequence)
            if content is not None:
                host = self._any_host()
                batch = host.batch(ROOM, content)
                for index in range(entry.count):
                    held[entry.position + index] = host.value_of(batch, index).decode()
        return held

    def _any_host(self) -> Any:
        return next(life.host for life in self.nodes if isinstance(life, StreamLife))
