"""The connections of a test, wrapped at the end that opened them: what both ends say passes through here."""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from antiphon.testing.network import ClusterNetwork
from antiphon.testing.tallies import ConnectionTally, Tallies


class Direction:
    """Hands over, in order and when the network lets it, whatever one end of a connection does."""

    def __init__(self, network: ClusterNetwork, places: frozenset[str]) -> None:
        self._network = network
        self._places = places
        # When each was done, and what it was.
        self._waiting: deque[tuple[float, Callable[[], None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.waiting_bytes = 0

    def pass_on(self, act: Callable[[], None]) -> None:
        """Do something at the other end, behind everything before it."""
        self._waiting.append((self._network.loop.time(), act))
        self.advance()

    def advance(self) -> None:
        """Hand over what is due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting and not self._network.is_cut(self._places):
            done_at, act = self._waiting[0]
            due = done_at + self._network.delay_between(self._places)
            if due > self._network.loop.time():
                self._timer = self._network.loop.call_at(due, self.advance)
                return
            self._waiting.popleft()
            act()

    def drop(self) -> None:
        """Forget what is under way."""
        self._waiting.clear()


class Wire(asyncio.Protocol):
    """One connection: a protocol towards the socket, and a transport towards the protocol of the end that opened it."""

    def __init__(
        self, network: ClusterNetwork, tallies: Tallies, places: frozenset[str], protocol: asyncio.BaseProtocol
    ) -> None:
        self.places = places
        self._tallies = tallies
        self._network = network
        self._protocol = protocol
        self._there = Direction(network, places)
        self._back = Direction(network, places)
        self.tally = ConnectionTally()
        self.far: asyncio.Transport | None = None
        self.near = NearTransport(self, protocol)

    # From the socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "a connection is opened with streams of bytes"
        self.far = transport
        self.tally = self._tallies.of(transport.get_extra_info("sockname")[1])
        self.tally.near.is_open = True
        self._network.opened(self)
        self._protocol.connection_made(self.near)

    def data_received(self, data: bytes) -> None:
        self.tally.near.received += len(data)
        self._back.pass_on(lambda: self._feed(data))

    def eof_received(self) -> bool:
        # The end comes with `connection_lost`, behind the bytes that are under way.
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.tally.near.has_ended = True
        self._there.drop()
        if not self.near.is_closed:
            self._back.pass_on(lambda: self._end(exc))

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def _feed(self, data: bytes) -> None:
        if self.near.is_closed:
            return
        protocol = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            assert isinstance(protocol, asyncio.Protocol), "a connection carries a stream of bytes"
            protocol.data_received(data)
            return
        rest = memoryview(data)
        while rest and not self.near.is_closed:
            buffer = memoryview(protocol.get_buffer(len(rest)))
            size = min(len(buffer), len(rest))
            buffer[:size] = rest[:size]
            protocol.buffer_updated(size)
            rest = rest[size:]

    def _end(self, error: Exception | None) -> None:
        """Tell the protocol that the connection is gone, once."""
        self._network.ended(self)
        if not self.near.has_ended:
            self.near.is_closed = self.near.has_ended = True
            self._back.drop()
            self._protocol.connection_lost(error)

    # From the protocol.

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self._there.waiting_bytes += len(data)
        self._there.pass_on(lambda: self._write(data))

    def _write(self, data: bytes) -> None:
        self._there.waiting_bytes -= len(data)
        assert self.far is not None, "nothing is written before there is a connection"
        if not self.far.is_closing():
            self.tally.near.sent += len(data)
            self.far.write(data)

    def close(self, is_abort: bool) -> None:
        """Close this end now, and the other one when it hears of it."""
        far = self.far
        assert far is not None, "nothing is closed before there is a connection"
        if is_abort:
            self._there.drop()
        self._there.pass_on(far.abort if is_abort else far.close)
        self._there.pass_on(self.tally.near.closes)
        self._network.loop.call_soon(self._end, None)

    def waiting_bytes(self) -> int:
        """How much has been written and has not left."""
        unsent = 0 if self.far is None else self.far.get_write_buffer_size()
        return self._there.waiting_bytes + unsent

    # From the network.

    def network_changed(self) -> None:
        """A cut has begun or ended."""
        self._there.advance()
        self._back.advance()

    def reset(self) -> None:
        """One end has died: both hear of it, as far as they live and can."""
        if self.far is not None:
            self.far.abort()
            self.tally.near.closes()
        self.near.is_closed = True
        self._network.loop.call_soon(self._end, ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))


class NearTransport(asyncio.Transport):
    """A connection, as the end sees it that opened it."""

    def __init__(self, wire: Wire, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._wire = wire
        self._protocol = protocol
        self.is_closed = False
        self.has_ended = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default if self._wire.far is None else self._wire.far.get_extra_info(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def is_closing(self) -> bool:
        return self.is_closed

    def write(self, data: Any) -> None:
        if not self.is_closed:
            self._wire.write(bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return self._wire.waiting_bytes()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._wire.far is not None:
            self._wire.far.set_write_buffer_limits(high, low)

    def pause_reading(self) -> None:
        if self._wire.far is not None and not self._wire.far.is_closing():
            self._wire.far.pause_reading()
            self._wire.tally.near.is_paused = True

    def resume_reading(self) -> None:
        if self._wire.far is not None and not self._wire.far.is_closing():
            self._wire.far.resume_reading()
            self._wire.tally.near.is_paused = False

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._wire.close(is_abort=False)

    def abort(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._wire.close(is_abort=True)
