"""Frames under way: how much memory they may take, for whom, and for how long.

A long frame takes memory from its first bytes on, and its sender decides when the rest comes. So frames have a budget:
one for peers and one for clients, because nodes must hear each other whatever clients do. When a budget is used up, the
owner with the most bytes gives up the frame that has been without progress for longest. An owner is one peer, or one
identity with all its connections. So an owner that takes much loses its own frames, and never those of others.

A frame must also make progress. It brings ``FRAME_BYTES_PER_SECOND`` on average over some seconds, or is finished by
then. A connection that is not read from makes no progress through no fault of its own, and has time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from antiphon.kernel.errors import ProtocolError

FRAME_BYTES_PER_SECOND: Final = 64 << 10
"""The least pace of a frame that is under way."""

LONG_FRAME_BYTES_AT_MOST: int = 256 << 20
"""How much memory the long frames of all peers may take, and those of all clients."""

STALLED_SECONDS: Final = 1.0
"""A frame without progress for so long makes room for another frame of the same owner."""


class FrameConnection(Protocol):
    """A connection over which frames come."""

    @property
    def owner(self) -> str:
        """The peer or identity at its other end."""

    @property
    def is_client(self) -> bool:
        """Whether a client is at its other end."""

    @property
    def is_held(self) -> bool:
        """Whether nothing is read from it at the moment."""

    @property
    def unfinished_bytes(self) -> int:
        """How much has come of a frame that has not come as a whole."""

    @property
    def received(self) -> tuple[int, int]:
        """How many bytes and how many frames have come so far."""


class FrameProgress:
    """The progress of one unfinished frame: since when it brings too little, and when it last brought anything."""

    def __init__(self, received: tuple[int, int], now: float) -> None:
        self._begun = received
        self._last = received
        self.slow_since = now
        self.last_at = now

    def look(self, received: tuple[int, int], is_held: bool, pace_bytes: float, now: float) -> None:
        """See what has come. ``pace_bytes`` is enough, and so is a whole frame."""
        if received != self._last:
            self._last = received
            self.last_at = now
        if is_held or received[1] != self._begun[1] or received[0] - self._begun[0] >= pace_bytes:
            self._begun = received
            self.slow_since = now


class LongFrames:
    """The memory of long frames of one kind of connections."""

    def __init__(self) -> None:
        self._of: dict[str, dict[FrameConnection, int]] = {}
        self.bytes = 0

    def owned(self, owner: str) -> int:
        """How much the frames of one owner take."""
        return sum(self._of.get(owner, {}).values())

    def add(self, connection: FrameConnection, size: int) -> None:
        """A frame takes so much from now on."""
        self._of.setdefault(connection.owner, {})[connection] = size
        self.bytes += size

    def remove(self, connection: FrameConnection) -> None:
        """A frame has come as a whole, or its connection has ended."""
        frames = self._of.get(connection.owner)
        if frames is not None:
            self.bytes -= frames.pop(connection, 0)
            if not frames:
                del self._of[connection.owner]

    def to_give_up(
        self, connection: FrameConnection, size: int, last_at: Callable[[FrameConnection], float], now: float
    ) -> FrameConnection | None:
        """The connection whose frame makes room for another one; None if the other one has to go.

        It runs only when the budget is used up, and looks at no more frames than fit the budget.
        """
        owner = connection.owner
        heaviest = max(self._of, key=self.owned, default=owner)
        if self.owned(heaviest) <= self.owned(owner) + size:
            heaviest = owner
        stalest = min(self._of.get(heaviest, ()), key=last_at, default=None)
        if stalest is None or (heaviest == owner and now - last_at(stalest) < STALLED_SECONDS):
            return None
        return stalest


class FrameBudget:
    """The frames under way over all connections of a node. ``cut_off`` ends a connection for a reason."""

    def __init__(
        self, frame_seconds: float, clock: Callable[[], float], cut_off: Callable[[FrameConnection, str], None]
    ) -> None:
        self._frame_seconds = frame_seconds
        self._clock = clock
        self._cut_off = cut_off
        self._progress: dict[FrameConnection, FrameProgress] = {}
        self._peers = LongFrames()
        self._clients = LongFrames()

    def look(self, connection: FrameConnection) -> None:
        """Cut off a connection whose frame makes no progress. To be called from time to time."""
        if connection.unfinished_bytes == 0:
            self._progress.pop(connection, None)
            return
        now, received = self._clock(), connection.received
        progress = self._progress.get(connection)
        if progress is None:
            self._progress[connection] = FrameProgress(received, now)
            return
        progress.look(received, connection.is_held, FRAME_BYTES_PER_SECOND * self._frame_seconds, now)
        if now - progress.slow_since > self._frame_seconds:
            seconds = now - progress.slow_since
            self._cut_off(connection, f"it has not finished a frame in {seconds:.0f} seconds (frame_seconds)")

    def forget_finished(self) -> None:
        """The next frame of a connection that has finished one begins anew."""
        for connection in [each for each in self._progress if each.unfinished_bytes == 0]:
            del self._progress[connection]

    def changed(self, connection: FrameConnection, size: int) -> None:
        """The frame of a connection takes so much memory now; 0 if it takes none of its own."""
        pool = self._clients if connection.is_client else self._peers
        pool.remove(connection)
        if size == 0:
            return
        now = self._clock()
        while pool.bytes + size > LONG_FRAME_BYTES_AT_MOST:
            victim = pool.to_give_up(connection, size, self._last_at, now)
            if victim is None:
                raise ProtocolError("too many send long frames at the same time; send shorter ones, or try again later")
            pool.remove(victim)
            self._cut_off(victim, "its unfinished frame has to make room for that of another connection")
        self._progress.setdefault(connection, FrameProgress(connection.received, now))
        pool.add(connection, size)

    def _last_at(self, connection: FrameConnection) -> float:
        """When a frame last made progress."""
        progress = self._progress[connection]
        # The last look may be a while ago.
        progress.look(
            connection.received, connection.is_held, FRAME_BYTES_PER_SECOND * self._frame_seconds, self._clock()
        )
        return progress.last_at

    def ended(self, connection: FrameConnection) -> None:
        """A connection has ended."""
        self._progress.pop(connection, None)
        self._clients.remove(connection)
        self._peers.remove(connection)
