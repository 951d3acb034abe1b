"""A host for brokers in which the test chooses what arrives next; links are in order, as connections are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from antiphon.kernel import Environment, Process, ProtocolMessage, Publication, RandomStream
from antiphon.kernel.message import ORDER_NAMES


class Copy(NamedTuple):
    """A message on its way."""

    sender: int
    receiver: int
    message: ProtocolMessage


Choice = Callable[[Copy], bool]


class Seat(Environment):
    """The environment of one broker: what it sends lies on the table until the test hands it over."""

    def __init__(self, table: Table, identifier: int) -> None:
        super().__init__(identifier)
        self._table = table
        self._timers = 0
        self.timers: dict[int, int] = {}
        self.watched: set[int] = set()

    def now(self) -> int:
        return 0

    def send(self, destination: int, message: ProtocolMessage) -> None:
        self._table.on_the_way.append(Copy(int(self.identifier), int(destination), message))

    def deliver(self, publication: Publication) -> None:
        self._table.delivered[int(self.identifier)].append((int(publication.source), int(publication.sequence)))

    def set_timer(self, delay: int, name: int) -> int:
        self._timers += 1
        self.timers[self._timers] = name
        return self._timers

    def cancel_timer(self, handle: int) -> None:
        self.timers.pop(handle, None)

    def watch(self, peer: int) -> None:
        self.watched.add(int(peer))

    def random(self) -> RandomStream:
        return RandomStream(1, self.identifier)


class Table:
    """Brokers, the copies between them, and what each of them delivered, in order."""

    def __init__(self, brokers: int, build: Callable[[Environment], Process]) -> None:
        self.on_the_way: list[Copy] = []
        self.handed_over: list[Copy] = []
        self.delivered: list[list[tuple[int, int]]] = [[] for _ in range(brokers)]
        self.seats = [Seat(self, broker) for broker in range(brokers)]
        # Each protocol has operations that the base class does not have.
        self.brokers: dict[int, Any] = {broker: build(seat) for broker, seat in enumerate(self.seats)}
        for broker in self.brokers.values():
            broker.start()

    def publish(self, broker: int, order: str, topic: int = 0, keys: Sequence[int] = (1,)) -> int:
        """Let an application publish."""
        return int(self.brokers[broker].publish_about(list(keys), b"", topic, ORDER_NAMES.index(order)))

    def crash(self, broker: int, *, loses: Choice | None = None) -> None:
        """Stop a broker; some of what it has sent may be lost with it. Nobody has noticed yet."""
        del self.brokers[broker]
        self.on_the_way = [
            copy
            for copy in self.on_the_way
            if copy.receiver != broker and not (copy.sender == broker and loses is not None and loses(copy))
        ]

    def notice(self, lost: int, *brokers: int) -> None:
        """Let those who watch a broker notice that it has crashed; these, or all."""
        for broker in brokers or sorted(self.brokers):
            if lost in self.seats[broker].watched and broker in self.brokers:
                self.brokers[broker].peer_lost(lost)

    def hand_over(self, which: Choice) -> ProtocolMessage:
        """Let the oldest of the chosen copies arrive; there must be one, and none before it on its link."""
        copy = next(copy for copy in self.on_the_way if which(copy))
        first = next(other for other in self.on_the_way if other[:2] == copy[:2])
        assert first is copy, "copies on one link do not overtake each other"
        self.arrive(copy)
        return copy.message

    def settle(self, hold: Choice | None = None, most: int = 10_000) -> None:
        """Let everything arrive, the oldest first, except what is held back, and what is behind it on its link."""
        for _ in range(most):
            blocked: set[tuple[int, int]] = set()
            for copy in self.on_the_way:
                if copy[:2] in blocked or (hold is not None and hold(copy)):
                    blocked.add(copy[:2])
                    continue
                self.arrive(copy)
                break
            else:
                return
        raise AssertionError("it never ends")

    def arrive(self, copy: Copy) -> None:
        """Let one copy arrive."""
        self.on_the_way = [other for other in self.on_the_way if other is not copy]
        if copy.receiver in self.brokers:
            self.handed_over.append(copy)
            self.brokers[copy.receiver].receive(copy.sender, copy.message)

    def expire(self, broker: int, name: int) -> None:
        """Let a timer of a broker run out; it must be running."""
        seat = self.seats[broker]
        handle = next(handle for handle, running in seat.timers.items() if running == name)
        del seat.timers[handle]
        self.brokers[broker].expire(name)

    def received(self, broker: int, *kinds: type[ProtocolMessage]) -> list[Any]:
        """What has arrived at a broker, of these kinds."""
        return [
            copy.message for copy in self.handed_over if copy.receiver == broker and isinstance(copy.message, kinds)
        ]


def over(sender: int, receiver: int) -> Choice:
    """Copies on this link."""
    return lambda copy: copy[:2] == (sender, receiver)


def kind(*kinds: type[ProtocolMessage]) -> Choice:
    """Messages of these kinds."""
    return lambda copy: isinstance(copy.message, kinds)


def either(*choices: Choice) -> Choice:
    """Copies of any of these choices."""
    return lambda copy: any(choice(copy) for choice in choices)
