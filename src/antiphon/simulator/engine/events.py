"""Events in the calendar beside actions and messages, and the incarnations of nodes that they belong to."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.kernel.message import ProtocolMessage

NEVER: Final[i64] = 1 << 60


@final
class TimerEvent:
    """A timer. If it is cancelled, its node forgets it and ignores the event."""

    def __init__(self, name: i64, handle: i64) -> None:
        self.name: Final[i64] = name
        self.handle: Final[i64] = handle


@final
class Incarnation:
    """One incarnation of a node. A crash ends it and drops its output queue; leaving does not."""

    def __init__(self, began_at: i64 = 0) -> None:
        self.began_at: Final[i64] = began_at
        self.crashed_at: i64 = NEVER


@final
class Flight:
    """A copy in transit that may still be lost: by a partition, or because its sender died before the copy left."""

    def __init__(
        self,
        message: ProtocolMessage,
        sent: i64,
        departed: i64,
        arrived: i64,
        incarnation: Incarnation,
        is_late: bool = False,
    ) -> None:
        self.message: Final[ProtocolMessage] = message
        self.sent: Final[i64] = sent
        self.departed: Final[i64] = departed
        self.arrived: Final[i64] = arrived
        # Whether a partition has delayed it.
        self.is_late: Final[bool] = is_late
        self.incarnation: Final[Incarnation] = incarnation


@final
class LinkWatch:
    """One process watches one peer, until it stops or its node loses its memory."""

    def __init__(self, watcher: i64, peer: i64, incarnation: object) -> None:
        self.watcher: Final[i64] = watcher
        self.peer: Final[i64] = peer
        # The incarnation of the watcher: a later process has not asked for this watch.
        self.incarnation: Final[object] = incarnation
        self.is_wanted: bool = True
        self.is_lost: bool = False


@final
class LinkChange:
    """An event: check the state of a watched link, or report that it has broken, whatever its state is now.

    If it broke with an incarnation of the peer, that is ``incarnation``: a watcher that is connected to a later one
    knows already.
    """

    def __init__(self, watch: LinkWatch, is_broken: bool, incarnation: Incarnation | None) -> None:
        self.watch: Final[LinkWatch] = watch
        self.is_broken: Final[bool] = is_broken
        self.incarnation: Final[Incarnation | None] = incarnation
