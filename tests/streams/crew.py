"""Members of consumers in virtual time: programs that find the leader, take messages, and acknowledge them, or die."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.streams.commands import ConsumerSettings, CreateConsumer

if TYPE_CHECKING:
    from tests.streams.stream_world import SimulatedReplica, StreamWorld

LOOK_US = 50_000
WINDOW = 4


class Way:
    """One direction of a connection: it keeps order."""

    def __init__(self, world: StreamWorld) -> None:
        self._world = world
        self._last_us = 0

    def delay_us(self) -> int:
        """How long the next message takes."""
        now_us = self._world.clock.now_us
        self._last_us = max(self._last_us + 1, now_us + self._world.random.randrange(100, 3000))
        return self._last_us - now_us


class WorkingMember:
    """One member of one consumer."""

    def __init__(self, world: StreamWorld, number: int, consumer: CreateConsumer, seed: int) -> None:
        self.world, self.number, self.consumer = world, number, consumer
        self.is_up = True
        self.leader: SimulatedReplica | None = None
        # Attachments are numbered: messages of an earlier one do not count.
        self.attachment = 0
        self.held: dict[int, int] = {}
        self._unanswered: set[int] = set()
        self.incoming, self.outgoing = Way(world), Way(world)
        self._speed_us = world.random.choice((1000, 20_000, 400_000))
        self._look()

    def _after(self, delay_us: int, call: object) -> None:
        self.world.clock.post(delay_us, lambda: call() if self.is_up else None)  # type: ignore[operator]

    def _look(self) -> None:
        """Find the leader, and stay with it for as long as it leads."""
        self._after(LOOK_US, self._look)
        leader = self.leader
        if leader is not None and leader.is_up and leader.coordinator.is_leading:
            return
        self.leader = None
        there = [life for life in self.world.lives if life is not None and life.coordinator.is_leading]
        if there:
            self._attach(self.world.random.choice(there))

    def _attach(self, leader: SimulatedReplica) -> None:
        self.leader = leader
        self.attachment += 1
        attachment, name = self.attachment, self.consumer.name

        def arrive() -> None:
            if leader.is_up and self.is_up and attachment == self.attachment:
                leader.coordinator.create(self.consumer, created)
                leader.turn_ends()

        def created(_: bool) -> None:
            if attachment == self.attachment and self.is_up:
                leader.coordinator.attach(name, self.number, sorted(self.held.items()), WINDOW, attached)

        def attached(is_attached: bool) -> None:
            if not is_attached and attachment == self.attachment:
                self.leader = None
            elif self.is_up and attachment == self.attachment:
                for position in sorted(self._unanswered):
                    self._acknowledge(position)

        self._after(self.outgoing.delay_us(), arrive)

    def got(self, attachment: int, position: int, delivery: int) -> None:
        """A message has come."""
        if not self.is_up or attachment != self.attachment:
            return
        self.world.judge.took(self.consumer.name, self.number, position)
        self.held[position] = delivery
        chance = self.world.random.random()
        work_us = self.world.random.randrange(self._speed_us)
        if chance < 0.85:
            self._after(work_us, lambda: self._acknowledge(position))
        elif chance < 0.95:
            self._after(work_us, lambda: self._give_back(position, self.world.random.choice((0, 30_000))))

    def _send(self, call: object) -> None:
        """Tell the leader something."""
        leader, attachment = self.leader, self.attachment

        def arrive() -> None:
            if leader is not None and leader.is_up and attachment == self.attachment:
                call(leader)  # type: ignore[operator]
                leader.turn_ends()

        self._after(self.outgoing.delay_us(), arrive)

    def _acknowledge(self, position: int) -> None:
        if position not in self.held:
            return
        self._unanswered.add(position)

        def call(leader: SimulatedReplica) -> None:
            handing = leader.coordinator.handing(self.consumer.name)
            if handing is not None:
                handing.acknowledge(self.number, [position], lambda counts: self._after(500, lambda: answered(counts)))

        def answered(counts: bool) -> None:
            self._unanswered.discard(position)
            if position in self.held:
                self.held.pop(position)
                if counts:
                    self.world.judge.acknowledged(self.consumer.name, self.number, position)

        self._send(call)

    def _give_back(self, position: int, delay_us: int) -> None:
        if position in self.held and position not in self._unanswered:
            self.held.pop(position)
            self._send(lambda leader: self._given_back(leader, position, delay_us))

    def _given_back(self, leader: SimulatedReplica, position: int, delay_us: int) -> None:
        handing = leader.coordinator.handing(self.consumer.name)
        if handing is not None:
            self.world.judge.gave_back(self.consumer.name, self.number, position)
            handing.give_back(self.number, position, delay_us)

    def die(self) -> None:
        """The program ends without a word; its node tells the leader."""
        self.is_up = False
        leader, name, number = self.leader, self.consumer.name, self.number

        def arrive() -> None:
            if leader is not None and leader.is_up:
                for position in self.held:
                    self.world.judge.gave_back(name, number, position)
                leader.coordinator.detach(name, number)
                leader.turn_ends()

        self.world.clock.post(5000, arrive)


class Crew:
    """All members."""

    def __init__(self, world: StreamWorld) -> None:
        self._world = world
        self.members: dict[int, WorkingMember] = {}

    def hire(self, consumer: CreateConsumer) -> None:
        """One more member for a consumer."""
        number = len(self.members)
        self.members[number] = WorkingMember(self._world, number, consumer, number)

    def hand(self, leader: SimulatedReplica, consumer: str, number: int, position: int, delivery: int) -> None:
        """The leader gives a message to a member."""
        member = self.members[number]
        attachment = member.attachment
        self._world.judge.handed_out(consumer, number, position)
        if member.leader is leader:
            self._world.clock.post(member.incoming.delay_us(), lambda: member.got(attachment, position, delivery))


def consumer_of(mode: str, deliveries_at_most: int = 0, pending: int = 16) -> CreateConsumer:
    """A consumer from the beginning of the stream, whose leases end soon."""
    settings = ConsumerSettings(mode, 1_500_000, deliveries_at_most, pending)  # type: ignore[arg-type]
    return CreateConsumer(mode, 0, settings)
