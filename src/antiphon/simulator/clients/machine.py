"""The log of a simulated node with clients, which outlives it, and the topic in its memory."""

from __future__ import annotations

from typing import Final

from antiphon.sessions.dedup import Arrivals, DedupTable
from antiphon.sessions.replay_buffer import Budget, ReplayBuffer, TotalOrderScope
from antiphon.sessions.steps import Promise
from antiphon.simulator.clients.batches import SimulatedBatch
from antiphon.simulator.cluster.disk import SimulatedDisk
from antiphon.simulator.cluster.node import TOPIC

ROOM: Final = "room"
"""The name of the topic that all clients use."""


class Machine:
    """A disk and a log, with the time of each delivery and the positions of writers: they outlive a node."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.logged: list[tuple[int, SimulatedBatch]] = []
        self._positions: dict[str, bytes] = {}

    def get(self, name: str) -> bytes | None:
        """The position with a name."""
        return self._positions.get(name)

    def put(self, name: str, value: bytes) -> None:
        """Keep something by a name."""
        if self.disk.is_kept:
            self._positions[name] = value

    def wiped(self) -> None:
        """The disk is replaced by an empty one."""
        self.disk.wiped()
        self.logged.clear()
        self._positions.clear()

    def append(self, now_us: int, batch: SimulatedBatch, position: tuple[str, bytes] | None) -> None:
        """A batch is delivered; what a writer has reached with it is stored in the same commit."""
        if self.disk.is_kept:
            self.logged.append((now_us, batch))
            if position is not None:
                self._positions[position[0]] = position[1]


class SimulatedTopic:
    """The topic at one node."""

    name: Final = ROOM
    number: Final = TOPIC

    def __init__(self, total_order: TotalOrderScope) -> None:
        self.seen = Arrivals()
        # Batches of earlier lives that the log holds.
        self.logged_before = DedupTable()
        self.replay_buffer: ReplayBuffer[SimulatedBatch] = ReplayBuffer(Budget(), total_order)
        self.is_watched = False
        self.joined: Promise[None] | None = None
        self.learned: Promise[None] | None = None
        self.has_begun = False
        self.has_delivered = False

    def is_member(self) -> bool:
        """Whether the node is a member."""
        return self.has_begun
