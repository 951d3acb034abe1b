"""What the calendar holds besides actions and messages, and the lives of nodes that these belong to."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.kernel.message import Message

NEVER: Final[i64] = 1 << 60


@final
class Timer:
    """A timer that has been set; cancelling makes its node forget it, and the event passes unnoticed."""

    def __init__(self, name: i64, handle: i64) -> None:
        self.name: Final[i64] = name
        self.handle: Final[i64] = handle


@final
class Life:
    """One life of a node. A crash ends it, and with it all that waits in the output queue; leaving does not."""

    def __init__(self, began_at: i64 = 0) -> None:
        self.began_at: Final[i64] = began_at
        self.crashed_at: i64 = NEVER


@final
class Flight:
    """A copy on its way, where it may still be lost: by a partition, or because its sender died before it left."""

    def __init__(
        self, message: Message, sent: i64, departed: i64, arrived: i64, life: Life, is_late: bool = False
    ) -> None:
        self.message: Final[Message] = message
        self.sent: Final[i64] = sent
        self.departed: Final[i64] = departed
        self.arrived: Final[i64] = arrived
        # Whether a partition has held it up.
        self.is_late: Final[bool] = is_late
        self.life: Final[Life] = life


@final
class Watch:
    """One process watches one peer, until it stops doing so or its node loses its memory."""

    def __init__(self, watcher: i64, peer: i64, life: object) -> None:
        self.watcher: Final[i64] = watcher
        self.peer: Final[i64] = peer
        # The life of the watcher: the process of another life has asked for nothing.
        self.life: Final[object] = life
        self.is_wanted: bool = True
        self.is_lost: bool = False


@final
class LinkChange:
    """An event: what a watched link is like is to be looked at; or it has broken, whatever it is like now.

    ``life`` is that of the peer with which it has ended, if so: who has a connection with a later one knows already.
    """

    def __init__(self, watch: Watch, is_broken: bool, life: Life | None) -> None:
        self.watch: Final[Watch] = watch
        self.is_broken: Final[bool] = is_broken
        self.life: Final[Life | None] = life
