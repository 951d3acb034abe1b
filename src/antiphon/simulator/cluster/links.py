"""The two ends of a connection as the membership of a simulated node sees them, and what its process sends over it."""

from __future__ import annotations

from typing import Final

from antiphon.kernel.message import ProtocolMessage
from antiphon.membership.messages import Expelled
from antiphon.simulator.cluster.network import Pipe


class SilentLog:
    """No operator reads what simulated nodes have to say."""

    def info(self, event: str, **values: object) -> None:
        """Nothing."""

    def warning(self, event: str, **values: object) -> None:
        """Nothing."""

    def error(self, event: str, cause: BaseException | None = None, **values: object) -> None:
        """Nothing."""


class SimulatedLink:
    """A connection that a node has opened, as its membership sees it."""

    def __init__(self, address: str, instance: str, peer: int) -> None:
        self.address = address
        self.instance = instance
        self.peer = peer
        self.pipe: Pipe | None = None
        self.bytes_received = 0
        self.frames_sent = 0
        self.is_closed = False

    @property
    def is_connected(self) -> bool:
        """Whether it stands."""
        return self.pipe is not None and self.pipe.is_open and not self.pipe.is_over_for_opener

    def send(self, frame: object) -> None:
        """Send something."""
        self.frames_sent += 1
        assert self.pipe is not None, "a link is made with its connection"
        self.pipe.send(frame)

    def close(self) -> None:
        """Send what waits and end."""
        self.is_closed = True
        assert self.pipe is not None, "a link is made with its connection"
        self.pipe.close()

    def abort(self) -> None:
        """End at once."""
        assert self.pipe is not None, "a link is made with its connection"
        self.pipe.abort()


class SimulatedConnection:
    """A connection that another node has opened, as the membership sees it."""

    certified_name: Final = ""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self.instance = ""
        self.address = ""
        self.bytes_received = 0
        self.is_closed = False
        self.sender: int | None = None

    def close(self) -> None:
        """End."""
        self.is_closed = True
        self.pipe.close_back()

    def abort(self) -> None:
        """End at once."""
        self.close()

    def expel(self, reason: str) -> None:
        """Tell the other end that it counts as failed, and end."""
        self.pipe.answer(Expelled(reason))
        self.close()


class ProcessFrame:
    """A message of a process on its way, with the time of being together in which it was sent; for the judge."""

    def __init__(self, message: ProtocolMessage, life: int, stamp: tuple[int, int, bool, int]) -> None:
        self.message = message
        self.life = life
        self.stamp = stamp
