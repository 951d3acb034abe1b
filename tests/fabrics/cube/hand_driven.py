"""A host for a few nodes in which the test chooses which copy arrives next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from antiphon.fabrics.cube import FullCube
from antiphon.fabrics.cube.messages import LeafCopy
from antiphon.fabrics.cube.vcube_ps import Options, VCubePs
from antiphon.fabrics.cube.view import View
from antiphon.kernel import Environment, Process, ProtocolMessage, RandomStream
from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK, Publication
from antiphon_lab.protocols.cube.published_messages import Ack, Pub
from antiphon_lab.protocols.cube.vcube_ps_published import PublishedVCubeOptions, PublishedVCubePs


@dataclass(frozen=True, eq=False)
class Copy:
    """A message on its way."""

    sender: int
    receiver: int
    message: ProtocolMessage

    @property
    def payload(self) -> bytes | None:
        """The payload of the publication that it brings, if it brings one."""
        message = self.message
        if isinstance(message, LeafCopy):
            message = message.packet
        return message.payload if isinstance(message, Publication) else None

    @property
    def link(self) -> tuple[int, int]:
        return self.sender, self.receiver


Choice = Callable[[Copy], bool]
System = Callable[[Environment, FullCube], Process]


def published(**switches: bool) -> System:
    """VCube-PS as published, with minimal corrections except where a switch says otherwise."""
    options = PublishedVCubeOptions(**switches)
    return lambda environment, cube: PublishedVCubePs(environment, cube, options)


def repaired(window: int = 64) -> System:
    """VCube-PS as it is meant to be used."""
    options = Options(window=window, largest_first=False)
    return lambda environment, cube: VCubePs(environment, cube, options)


class Hand(Environment):
    """The environment of one node: what it sends lies on the table until the test hands it over."""

    def __init__(self, table: Table, identifier: int) -> None:
        super().__init__(identifier)
        self._table = table

    def now(self) -> int:
        return 0

    def send(self, destination: int, message: ProtocolMessage) -> None:
        self._table.on_the_way.append(Copy(int(self.identifier), int(destination), message))

    def deliver(self, publication: Publication) -> None:
        self._table.log[int(self.identifier)].append(publication.payload.decode())

    def subscribed(self, topic: int) -> None:
        self._table.log[int(self.identifier)].append("(subscribed)")

    def unsubscribed(self, topic: int) -> None:
        self._table.log[int(self.identifier)].append("(unsubscribed)")

    def random(self) -> RandomStream:
        return RandomStream(1, self.identifier)


class Table:
    """All nodes of a cube, the copies between them, and what happened at each node, in order."""

    def __init__(self, system: System, dimension: int) -> None:
        cube = FullCube(dimension)
        self.dimension = dimension
        self.on_the_way: list[Copy] = []
        self.handed_over: list[Copy] = []
        self.log: list[list[str]] = [[] for _ in range(1 << dimension)]
        # Protocols with topics share operations that the base class does not have.
        self.processes: list[Any] = [system(Hand(self, me), cube) for me in range(1 << dimension)]

    def begin(self, *members: int, topic: int = 0) -> Table:
        """Let these be members from the start, who know each other."""
        view = View(self.dimension, members)
        for member in members:
            self.processes[member].begin_as_member(topic, view)
            self.log[member].clear()
        return self

    def subscribe(self, node: int, topic: int = 0) -> None:
        self.processes[node].subscribe(topic)

    def unsubscribe(self, node: int, topic: int = 0) -> None:
        self.processes[node].unsubscribe(topic)

    def publish(self, node: int, text: str, topic: int = 0) -> int:
        return int(self.processes[node].publish(text.encode(), topic))

    def hand_over(self, which: Choice) -> None:
        """Let the oldest of the chosen copies arrive; there must be one."""
        self.arrive(next(copy for copy in self.on_the_way if which(copy)))

    def settle(self, hold: Choice | None = None, newest_first: bool = False) -> None:
        """Let everything arrive, the oldest first, except what is held back; that stays on its way."""
        while free := [copy for copy in self.on_the_way if hold is None or not hold(copy)]:
            self.arrive(free[-1] if newest_first else free[0])

    def arrive(self, copy: Copy) -> None:
        """Let one copy arrive."""
        self.on_the_way.remove(copy)
        self.handed_over.append(copy)
        self.processes[copy.receiver].receive(copy.sender, copy.message)

    def delivered(self, node: int) -> list[str]:
        """The payloads that a node has delivered, in order."""
        return [entry for entry in self.log[node] if not entry.startswith("(")]

    def receptions(self, node: int) -> int:
        """How many copies of publications have arrived at a node, wanted or not."""
        return sum(copy.receiver == node and copy.payload is not None for copy in self.handed_over)

    def tree(self, text: str) -> dict[int, list[int]]:
        """The links over which a publication has gone or is going."""
        links: dict[int, list[int]] = {}
        for copy in [*self.handed_over, *self.on_the_way]:
            if copy.payload == text.encode():
                links.setdefault(copy.sender, []).append(copy.receiver)
        return links


def over(sender: int, receiver: int) -> Choice:
    """Copies on this link."""
    return lambda copy: copy.link == (sender, receiver)


def kind_over(sender: int, receiver: int, *kinds: type[ProtocolMessage]) -> Choice:
    """Messages of these kinds on this link."""
    return lambda copy: copy.link == (sender, receiver) and isinstance(copy.message, kinds)


def bringing(text: str, receiver: int) -> Choice:
    """Copies that bring a publication to a node."""
    return lambda copy: copy.receiver == receiver and copy.payload == text.encode()


def barrier_of(message: ProtocolMessage) -> set[tuple[int, int]]:
    """The causal barrier of a publication, as pairs of source and number."""
    if isinstance(message, LeafCopy):
        message = message.packet
    assert isinstance(message, Publication)
    keys = message.barrier if isinstance(message, Pub) else message.dependencies
    return {(int(key & SOURCE_MASK), int(key >> SOURCE_BITS)) for key in keys}


def members_named(message: ProtocolMessage) -> set[int]:
    """Whom an acknowledgement introduces."""
    assert isinstance(message, Ack)
    return {int(entry >> 39) for entry in message.entries}
