"""The consumers of a stream at one replica: the state that all replicas share and, at the leader, the handing out.

Members talk to the leader. A member joins a group by a settled command before it gets its first message, so a later
leader knows every member that may hold one. Acknowledgements of one turn are settled together.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from antiphon.streams.commands import (
    Acknowledge,
    Command,
    CreateConsumer,
    JoinGroup,
    LeaveGroup,
    ResetConsumer,
    Return,
    decode_command,
    encode_command,
)
from antiphon.streams.consumers import ConsumerTable
from antiphon.streams.entries import COMMAND, DATA, IndexEntry
from antiphon.streams.handing import Handing
from antiphon.streams.links import MessageLinks

Answer = Callable[[bool], None]
"""Called with whether something counts; never, if this replica leads no more: then the member asks the next leader."""


class CoordinatorHost(Protocol):
    """The actions of a coordinator on the world."""

    def now_us(self) -> int:
        """The clock."""

    def after(self, delay_us: int, call: Callable[[], object]) -> None:
        """Call something after a while."""

    def propose(self, payload: bytes) -> int | None:
        """Let all replicas apply something; the number of its entry, or None if this replica does not lead."""

    def key_of(self, position: int) -> bytes:
        """The key of a message."""

    def links(self, position: int) -> MessageLinks:
        """The publisher of a message, and which messages it says to follow."""

    def hand(self, consumer: str, member: int, position: int, delivery: int) -> None:
        """Give a message to a member."""

    def bury(self, consumer: str, position: int, deliveries: int, then: Callable[[], object]) -> None:
        """Publish a message as a dead letter; ``then`` is called when it is accepted."""


class ConsumerHost:
    """The host of the handing of one consumer."""

    def __init__(self, coordinator: Coordinator, name: str) -> None:
        self._coordinator = coordinator
        self._name = name
        host = coordinator.host
        self.now_us, self.key_of, self.links = host.now_us, host.key_of, host.links

    def after(self, delay_us: int, call: Callable[[], object]) -> None:
        self._coordinator.host.after(delay_us, partial(self._coordinator.call_if_leading, self, self._name, call))

    def settled_end(self) -> int:
        return self._coordinator.settled_end

    def hand(self, member: int, position: int, delivery: int) -> None:
        self._coordinator.host.hand(self._name, member, position, delivery)

    def settle_done(self, positions: list[int], done: Callable[[], object]) -> None:
        self._coordinator.settle_done(self._name, positions, done)

    def settle_return(self, position: int) -> None:
        self._coordinator.settle(Return(self._name, position))

    def bury(self, position: int, deliveries: int) -> None:
        then = partial(self._coordinator.settle_done, self._name, [position], bool)
        self._coordinator.host.bury(
            self._name, position, deliveries, partial(self._coordinator.call_if_leading, self, self._name, then)
        )


class Coordinator:
    """The consumers of one stream at one replica."""

    def __init__(self, host: CoordinatorHost) -> None:
        self.host = host
        self.table = ConsumerTable()
        self.settled_end = 0
        self._handings: dict[str, tuple[ConsumerHost, Handing]] | None = None
        # Consumers that are being made, and by whom.
        self._making: dict[str, str] = {}
        # By the number of an entry: called when it is settled.
        self._awaited: dict[int, list[Callable[[], object]]] = {}
        # Acknowledgements of this turn, by consumer, and what to call when they are settled.
        self._done: dict[str, list[int]] = {}
        self._callbacks: dict[str, list[Callable[[], object]]] = {}

    @property
    def is_leading(self) -> bool:
        """Whether this replica leads, and hands out messages."""
        return self._handings is not None

    def handing(self, name: str) -> Handing | None:
        """The handing out of a consumer, if this replica leads and there is one."""
        found = None if self._handings is None else self._handings.get(name)
        return None if found is None else found[1]

    # What the replica says.

    def opened(self) -> None:
        """This replica leads, and knows everything that former leaders have settled."""
        self._handings = {}
        for name in sorted(self.table.by_name):
            self._begin(name, is_new=False)

    def resigned(self) -> None:
        """This replica leads no more."""
        self._handings = None
        self._making.clear()
        self._awaited.clear()
        self._done.clear()
        self._callbacks.clear()

    def settled(self, number: int, entry: IndexEntry) -> None:
        """An entry is settled."""
        self.settled_end = entry.end
        if entry.kind == COMMAND:
            self._apply(decode_command(entry.payload))
        elif entry.kind == DATA and self._handings is not None:
            for _, handing in tuple(self._handings.values()):
                if handing.has_members:
                    handing.advance()
        for call in self._awaited.pop(number, ()):
            call()

    def trimmed(self, earliest: int) -> None:
        """The messages before a position are removed, done or not."""
        self.table.pass_over(earliest)
        for _, handing in tuple((self._handings or {}).values()):
            handing.pass_over(earliest)

    def _apply(self, command: Command) -> None:
        self.table.apply(command)
        if self._handings is None:
            return
        if isinstance(command, CreateConsumer):
            self._making.pop(command.name, None)
            if command.name not in self._handings:
                self._begin(command.name, is_new=True)
        elif command.name not in self.table.by_name:
            # It was removed, or its last member has gone and it ends with that.
            self._handings.pop(command.name, None)
        elif isinstance(command, ResetConsumer):
            if self._handings[command.name][1].consumer is not self.table.by_name[command.name]:
                self._begin(command.name, is_new=True)
        elif isinstance(command, Return) and command.name in self._handings:
            self._handings[command.name][1].returned(command.position)
        elif isinstance(command, Acknowledge) and command.name in self._handings:
            self._acknowledged(self._handings[command.name][1], command.ranges)

    def _acknowledged(self, handing: Handing, ranges: list[int]) -> None:
        for place in range(0, len(ranges), 2):
            handing.done(ranges[place], ranges[place + 1])
        handing.advance()

    def _begin(self, name: str, is_new: bool) -> None:
        assert self._handings is not None
        host = ConsumerHost(self, name)
        self._handings[name] = (host, Handing(self.table.by_name[name], host, is_new))

    # What members ask for.

    def create(self, command: CreateConsumer, answer: Answer) -> None:
        """Make a consumer, or take the one that there is."""
        self._making[command.name] = command.owner
        self.settle(command, partial(answer, True))

    def owned_by(self, owner: str) -> int:
        """How many consumers an identity has made, or is making."""
        return self.table.owned[owner] + sum(each == owner for each in self._making.values())

    def reset(self, command: ResetConsumer, answer: Answer) -> None:
        """Let a consumer begin anew; it does not count if the consumer has members then, or is gone."""
        before = self.table.by_name.get(command.name)
        self.settle(command, lambda: answer(before is not self.table.by_name.get(command.name, before)))

    def attach(
        self,
        name: str,
        member: int,
        held: list[tuple[int, int]],
        window: int,
        answer: Answer,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """A member connects; ``is_wanted`` says whether it is still there when it has joined."""
        consumer = self.table.by_name.get(name)
        if consumer is None or self._handings is None:
            answer(False)
        elif member in consumer.members:
            self._attach(name, member, held, window)
            answer(True)
        else:

            def joined() -> None:
                if not is_wanted():
                    self.settle(LeaveGroup(name, member))
                    return
                self._attach(name, member, held, window)
                answer(True)

            self.settle(JoinGroup(name, member), joined)

    def _attach(self, name: str, member: int, held: list[tuple[int, int]], window: int) -> None:
        handing = self.handing(name)
        if handing is not None:
            handing.attach(member, held, window)

    def detach(self, name: str, member: int) -> None:
        """A member has gone, and takes its messages up at no other place."""
        handing = self.handing(name)
        if handing is not None:
            handing.detach(member)
            self.settle(LeaveGroup(name, member))

    # Settling.

    def settle(self, command: Command, then: Callable[[], object] | None = None) -> None:
        """Let all replicas apply a command."""
        number = self.host.propose(encode_command(command))
        if number is not None and then is not None:
            self._awaited.setdefault(number, []).append(then)

    def settle_done(self, name: str, positions: list[int], done: Callable[[], object]) -> None:
        """Messages are done; this is settled with others of this turn."""
        self._done.setdefault(name, []).extend(positions)
        self._callbacks.setdefault(name, []).append(done)

    def flush(self) -> None:
        """Settle the acknowledgements of this turn."""
        done, self._done = self._done, {}
        callbacks, self._callbacks = self._callbacks, {}
        for name, positions in done.items():
            number = self.host.propose(encode_command(Acknowledge(name, ranges_of(positions))))
            if number is not None:
                self._awaited.setdefault(number, []).extend(callbacks[name])

    def call_if_leading(self, host: ConsumerHost, name: str, call: Callable[[], object]) -> None:
        """Call something of a consumer, unless another leader hands out its messages now."""
        found = None if self._handings is None else self._handings.get(name)
        if found is not None and found[0] is host:
            call()


def ranges_of(positions: list[int]) -> list[int]:
    """Positions as ranges: the first and the last of each, by turns."""
    found: list[int] = []
    for position in sorted(set(positions)):
        if found and found[-1] == position - 1:
            found[-1] = position
        else:
            found += (position, position)
    return found
