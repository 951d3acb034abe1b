"""Frames on a connection: what arrives is cut into them, and what is sent leaves in one write at the end of a turn.

A frame is a length in four bytes, least first, and that many bytes. All connections of a thread read into one buffer,
because a read and the handling of what it brought are one step of the event loop. A connection has memory of its own
only while a frame has come in part.

A frame that is too long closes the connection with a reason in the log: a peer can lose its own connection, never a
process.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from struct import Struct as Layout
from typing import Final, cast

from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.errors import DeniedError, ProtocolError
from antiphon.runtime.logging import logger
from antiphon.transport.schema import FRAME_BYTES_AT_MOST, LENGTH_BYTES

BUFFER_BYTES: Final = 256 << 10
"""What one read can bring; a longer frame gets a buffer of its own length while it is read."""

FIRST_BUFFER_BYTES: Final = 4096
"""The same before a peer has said who it is, or if it has nothing to say but why it closes."""

FIRST_FRAME_BYTES_AT_MOST: Final = 8192
"""The longest frame of such a peer: a greeting or a refusal with the longest texts that they may have."""

SMALL_FRAME_BYTES: Final = 4096
"""Frames up to this size are cheaper to copy into one piece than to hand over one by one."""

DATA_SEGMENTS_OUT: Final = slice(156, 160)
"""Where Linux keeps ``tcpi_data_segs_out`` in its ``tcp_info``."""

LENGTH: Final = Layout("<I")
THREADS: Final = threading.local()

log = logger("links")


def thread_buffer() -> memoryview:
    """The buffer into which all connections of this thread read."""
    found: memoryview | None = getattr(THREADS, "buffer", None)
    if found is None:
        found = THREADS.buffer = memoryview(bytearray(BUFFER_BYTES))
    return found


@mypyc_attr(allow_interpreted_subclasses=True)
class FrameReader:
    """Cuts what arrives into frames. Subclasses say what a frame means.

    An event loop calls ``get_buffer``, reads, and calls ``buffer_updated``, and runs nothing else in between.
    """

    def __init__(self, buffer_bytes: int = BUFFER_BYTES, frame_bytes_at_most: int = FRAME_BYTES_AT_MOST) -> None:
        self.buffer_bytes: i64 = buffer_bytes
        self.frame_bytes_at_most: i64 = frame_bytes_at_most
        self._shared: Final[memoryview] = thread_buffer()
        # What has come of an unfinished frame: in a buffer of its own, if the frame is longer than the usual one.
        self._rest: bytes = b""
        self._own: memoryview | None = None
        self._filled: i64 = 0
        # Whether the frames that have come wait for :meth:`handle_rest`.
        self.is_stopped = False
        self.transport: asyncio.Transport | None = None
        self.bytes_received: i64 = 0
        self.frames_received: i64 = 0

    def frame_received(self, frame: memoryview) -> None:
        """A whole frame has arrived; it is overwritten after the call."""
        raise NotImplementedError

    def input_ended(self) -> None:
        """All frames of one read have been handled."""

    def buffer_changed(self, size: int) -> None:
        """A frame that is longer than the usual buffer needs one of this size, or needs it no more."""

    @property
    def unfinished_bytes(self) -> int:
        """How much has come of a frame that has not come as a whole; nothing while frames wait to be handled."""
        return 0 if self.is_stopped else self._filled

    @property
    def held_bytes(self) -> int:
        """How much memory it takes for a frame that has not come as a whole."""
        return len(self._rest) if self._own is None else len(self._own)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """There is a connection."""
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""

    def pause_writing(self) -> None:
        """The other end does not read what it is sent."""

    def resume_writing(self) -> None:
        """It has read it."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        own = self._own
        if own is not None:
            return own[self._filled :]
        shared = self._shared
        filled = self._filled
        if filled == 0 and self.buffer_bytes == BUFFER_BYTES:
            return shared
        shared[:filled] = self._rest
        return shared[filled : self.buffer_bytes]

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes have come."""
        self.bytes_received += nbytes
        self._filled += nbytes
        self._handle(self._shared if self._own is None else self._own)

    def handle_rest(self) -> None:
        """Handle the frames that have come and were not handled, because the reader was stopped."""
        self.is_stopped = False
        self._handle(memoryview(self._rest) if self._own is None else self._own)

    def _handle(self, view: memoryview) -> None:
        try:
            try:
                self._cut(view, self._filled)
            except (ProtocolError, DeniedError) as refusal:
                self.refuse(refusal)
            except Exception as error:
                self.unhandled(error)
            # What came before a refused frame counts.
            self.input_ended()
        except Exception as error:
            self.broken(error)

    def _cut(self, view: memoryview, filled: i64) -> None:
        start: i64 = 0
        needed: i64 = LENGTH_BYTES
        while filled - start >= LENGTH_BYTES and not self.is_stopped:
            length: i64 = LENGTH.unpack_from(view, start)[0]
            if length > self.frame_bytes_at_most:
                raise ProtocolError(
                    f"a peer announced a frame of {length} bytes; at most {self.frame_bytes_at_most} are allowed: "
                    "is it an Antiphon node or client of this version?"
                )
            begin = start + LENGTH_BYTES
            if begin + length > filled:
                needed = LENGTH_BYTES + length
                break
            self.frames_received += 1
            start = begin + length
            self.frame_received(view[begin:start])
        if self.is_stopped and (start > 0 or self._own is None):
            # Whole frames may be among the rest; it is as long as one read at most.
            self._filled = filled - start
            self._rest = bytes(view[start:filled])
            self._own = None
        elif self.is_stopped:
            self._filled = filled
        elif start == filled and self._own is None:
            self._filled = 0
            self._rest = b""
        else:
            self._keep(view[start:filled], needed)

    def _keep(self, rest: memoryview, needed: i64) -> None:
        """Keep the beginning of an unfinished frame, in a buffer of its own if it is longer than the usual one.

        The buffer grows as the frame comes: a peer that only announces a long one makes nobody reserve memory for it.
        """
        filled: i64 = len(rest)
        size = max(self.buffer_bytes, min(needed, 2 * filled))
        own = self._own
        if size != (self.buffer_bytes if own is None else len(own)):
            self.buffer_changed(size)
        has_moved = filled < self._filled
        if size == self.buffer_bytes and (has_moved or filled <= SMALL_FRAME_BYTES):
            # The next read mostly brings the rest. A frame that comes in many pieces is not copied with each of them.
            self._rest = bytes(rest)
            self._own = None
        elif own is None or len(own) != size:
            self._own = memoryview(bytearray(size))
            self._own[:filled] = rest
        elif has_moved:
            own[:filled] = bytes(rest)
        self._filled = filled

    def _forget_input(self) -> None:
        """Nothing more is read: what has come of a frame does not count."""
        self._filled = 0
        self._rest = b""
        self._own = None

    def unhandled(self, error: Exception) -> None:
        """A frame that nobody has refused cannot be handled."""
        raise error

    def broken(self, error: Exception) -> None:
        """Something here that should not fail has failed."""
        raise error

    def refuse(self, error: Exception) -> None:
        """Close the connection because of what came over it."""
        peer = self.transport.get_extra_info("peername") if self.transport is not None else None
        log.warning("connection refused", peer=str(peer), reason=str(error))
        self._forget_input()
        if self.transport is not None:
            self.transport.close()


@mypyc_attr(allow_interpreted_subclasses=True)
class FrameWriter:
    """Collects frames and writes them at the end of a turn. Bytes that wait are counted."""

    def __init__(self) -> None:
        self._queue: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self.queued_bytes: i64 = 0
        self.bytes_sent: i64 = 0
        self.frames_sent: i64 = 0
        self.writes: i64 = 0
        self.is_closed = False

    def attach(self, transport: asyncio.Transport) -> None:
        """There is a connection: what has queued leaves."""
        self._transport = transport
        self.flush()

    def send(self, frame: bytes) -> None:
        """Queue a frame."""
        self._queue.append(LENGTH.pack(len(frame)))
        self._queue.append(frame)
        self.queued_bytes += LENGTH_BYTES + len(frame)
        self.frames_sent += 1

    def flush(self) -> None:
        """Write what has queued, if there is a connection."""
        transport = self._transport
        if transport is None or not self._queue or transport.is_closing():
            return
        queue = self._queue
        self._queue = []
        self.bytes_sent += self.queued_bytes
        self.writes += 1
        if self.queued_bytes <= SMALL_FRAME_BYTES * 2:
            transport.write(b"".join(queue))
        else:
            transport.writelines(queue)
        self.queued_bytes = 0

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection."""
        return self._transport is not None

    @property
    def queued_frames(self) -> int:
        """How many frames wait for the next write."""
        return len(self._queue) // 2

    def segments_sent(self) -> int:
        """How many TCP segments with data have left over this connection; -1 where the system does not say."""
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        if sock is None or not hasattr(socket, "TCP_INFO"):
            return -1
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, DATA_SEGMENTS_OUT.stop)
        return int.from_bytes(info[DATA_SEGMENTS_OUT], sys.byteorder) if len(info) == DATA_SEGMENTS_OUT.stop else -1

    def unwritten_bytes(self) -> int:
        """The bytes that were sent and are not in the hands of the operating system yet."""
        waiting = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return self.queued_bytes + waiting

    def close(self) -> None:
        """Write what is left and close."""
        self.flush()
        self.is_closed = True
        if self._transport is not None:
            self._transport.close()
