"""Counts bytes, ends and new connections in the kernel that one end has sent and the other has not seen.

Loopback is fast, and not instant. The clock of a test must not jump while something is under way there, or an answer
would seem to take as long as the next timer. Both ends of every connection are counted, so this is known exactly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any


class End:
    """One end of a connection."""

    def __init__(self) -> None:
        self.sent = 0
        self.received = 0
        self.is_open = False
        self.is_paused = False
        self.is_closing = False
        self.has_ended = False

    def closes(self) -> None:
        """This end has begun to close."""
        self.is_closing = True


class ConnectionTally:
    """Both ends of a connection: that which opened it, and that which accepted it."""

    def __init__(self) -> None:
        self.near = End()
        self.far = End()

    def is_settled(self) -> bool:
        """Whether nothing is under way between the ends."""
        near, far = self.near, self.far
        if near.has_ended or far.has_ended:
            return near.has_ended and (far.has_ended or not far.is_open)
        if near.is_closing or far.is_closing or not far.is_open:
            return False
        return (far.is_paused or near.sent == far.received) and (near.is_paused or far.sent == near.received)


class Tallies:
    """All connections of a test, by the port of the end that opened them."""

    def __init__(self) -> None:
        self._by_port: dict[int, ConnectionTally] = {}
        self.connecting = 0

    def of(self, port: int) -> ConnectionTally:
        """The tally of a connection; a port may be used again."""
        tally = self._by_port.get(port)
        if tally is None or (tally.near.has_ended and tally.far.has_ended):
            tally = self._by_port[port] = ConnectionTally()
        return tally

    def are_settled(self) -> bool:
        """Whether nothing is under way anywhere."""
        if self.connecting:
            return False
        self._by_port = {
            port: tally for port, tally in self._by_port.items() if not (tally.is_settled() and tally.near.has_ended)
        }
        return all(tally.is_settled() for tally in self._by_port.values())

    def give_up(self) -> None:
        """Do not wait any more for anything that is still under way."""
        self._by_port = {port: tally for port, tally in self._by_port.items() if tally.is_settled()}


class AcceptedProtocol(asyncio.BufferedProtocol):
    """The accepting end of a connection, counted."""

    def __init__(self, tally: ConnectionTally, protocol: asyncio.BufferedProtocol) -> None:
        self._end = tally.far
        self._protocol = protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "a stream of bytes was accepted"
        self._end.is_open = True
        self._protocol.connection_made(AcceptedTransport(self._end, transport))

    def get_buffer(self, sizehint: int) -> Any:
        return self._protocol.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._end.received += nbytes
        self._protocol.buffer_updated(nbytes)

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end.has_ended = True
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()


class AcceptedTransport(asyncio.Transport):
    """The accepting end's way to write, counted."""

    def __init__(self, end: End, transport: asyncio.Transport) -> None:
        super().__init__()
        self._end = end
        self._transport = transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def write(self, data: Any) -> None:
        if not self._transport.is_closing():
            self._end.sent += len(data)
            self._transport.write(data)

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def pause_reading(self) -> None:
        self._end.is_paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._end.is_paused = False
        self._transport.resume_reading()

    def close(self) -> None:
        self._end.closes()
        self._transport.close()

    def abort(self) -> None:
        self._end.closes()
        self._transport.abort()
