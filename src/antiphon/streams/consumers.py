"""The consumers of a stream, as all its replicas know them: settings, members, and which messages are done.

This state changes by settled commands only, so it is the same at every replica and outlives each of them. Which member
works on which message is known to the leader alone (:mod:`antiphon.streams.handing`).
"""

from __future__ import annotations

from collections import Counter

import msgspec

from antiphon.kernel.interval_set import ANY_GAPS, IntervalSet, restored
from antiphon.streams.commands import (
    Acknowledge,
    Command,
    ConsumerSettings,
    CreateConsumer,
    JoinGroup,
    LeaveGroup,
    RemoveConsumer,
    Return,
)


class Consumer:
    """One consumer. Positions count from 0, and the set of numbers behind it from 1."""

    def __init__(self, name: str, start: int, settings: ConsumerSettings, owner: str = "") -> None:
        self.name = name
        self.owner = owner
        self.start = start
        self.settings = settings
        self.members: dict[int, None] = {}
        # How often messages came back that are not done.
        self.returns: dict[int, int] = {}
        # How many messages retention has removed before they were done.
        self.missed = 0
        self._done = IntervalSet(start)

    @property
    def done_below(self) -> int:
        """Every message before this position is done."""
        return int(self._done.complete)

    def is_done(self, position: int) -> bool:
        """Whether a message is done: it is never handed out again."""
        return self._done.has(position + 1)

    def finish(self, first: int, last: int) -> None:
        """Messages are done."""
        if last - first < len(self.returns):
            for position in range(first, last + 1):
                self.returns.pop(position, None)
        else:
            self.returns = {place: count for place, count in self.returns.items() if not first <= place <= last}
        self._done.add_range(first + 1, last + 1)

    def pass_over(self, earliest: int) -> None:
        """The messages before a position are removed: those that were not done are missed."""
        if earliest > self.done_below:
            left = self._done.outside(self.done_below + 1, earliest)
            self.missed += sum(int(last) - int(first) + 1 for first, last in left)
            self.finish(self.done_below, earliest - 1)

    def apply(self, command: Acknowledge | Return | JoinGroup | LeaveGroup) -> None:
        """Apply a settled command about this consumer."""
        if isinstance(command, Acknowledge):
            for place in range(0, len(command.ranges), 2):
                self.finish(command.ranges[place], command.ranges[place + 1])
        elif isinstance(command, Return):
            if not self.is_done(command.position):
                self.returns[command.position] = self.returns.get(command.position, 0) + 1
        elif isinstance(command, JoinGroup):
            self.members[command.member] = None
        else:
            self.members.pop(command.member, None)

    def state(self) -> ConsumerSnapshot:
        """Everything, for a snapshot."""
        done = self._done
        inside = done.inside(done.complete + 1, done.highest())
        bounds = [int(done.complete), *(int(bound) for first, last in inside for bound in (first, last + 1))]
        return ConsumerSnapshot(
            self.name, self.start, self.settings, list(self.members), self.returns, bounds, self.missed, self.owner
        )


class ConsumerSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """A consumer in a snapshot; ``done`` begins with the number up to which everything is done."""

    name: str
    start: int
    settings: ConsumerSettings
    members: list[int]
    returns: dict[int, int]
    done: list[int]
    missed: int = 0
    owner: str = ""

    def consumer(self) -> Consumer:
        """The consumer that this was."""
        found = Consumer(self.name, self.start, self.settings, self.owner)
        found.members = dict.fromkeys(self.members)
        found.returns = dict(self.returns)
        found.missed = self.missed
        found._done = restored(self.done[0], ANY_GAPS, self.done[1:])
        return found


class ConsumerTable:
    """The consumers of one stream at one replica."""

    def __init__(self) -> None:
        self.by_name: dict[str, Consumer] = {}
        # How many consumers each identity has made.
        self.owned: Counter[str] = Counter()
        self._earliest = 0

    def apply(self, command: Command) -> None:
        """Apply a settled command. One about a consumer that is gone changes nothing."""
        if isinstance(command, CreateConsumer):
            if command.name not in self.by_name:
                self.by_name[command.name] = Consumer(
                    command.name, max(command.start, self._earliest), command.settings, command.owner
                )
                self.owned[command.owner] += 1
        elif isinstance(command, RemoveConsumer):
            removed = self.by_name.pop(command.name, None)
            if removed is not None:
                self.owned[removed.owner] -= 1
        elif (consumer := self.by_name.get(command.name)) is not None:
            consumer.apply(command)

    def pass_over(self, earliest: int) -> None:
        """The messages before a position are removed."""
        self._earliest = earliest
        for consumer in self.by_name.values():
            consumer.pass_over(earliest)

    def snapshot(self) -> bytes:
        """All consumers."""
        return msgspec.msgpack.encode([consumer.state() for _, consumer in sorted(self.by_name.items())])

    def restore(self, state: bytes) -> None:
        """Take all consumers from a snapshot."""
        found = msgspec.msgpack.decode(state, type=list[ConsumerSnapshot])
        self.by_name = {each.name: each.consumer() for each in found}
        self.owned = Counter(each.owner for each in found)
