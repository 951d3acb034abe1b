"""The object that an event loop talks to about a connection.

A loop accepts only subclasses of the protocols of asyncio, and compiled classes cannot be that. So the loop gets this
object, and calls the methods of the compiled reader through it, without another call in between.
"""

from __future__ import annotations

import asyncio

from antiphon.transport.framing import FrameReader


class StreamProtocol(asyncio.BufferedProtocol):
    """Hands everything that happens to a connection to its reader."""

    def __init__(self, reader: FrameReader) -> None:
        self.get_buffer = reader.get_buffer  # type: ignore[method-assign]
        self.buffer_updated = reader.buffer_updated  # type: ignore[method-assign]
        self.connection_made = reader.connection_made  # type: ignore[method-assign]
        self.connection_lost = reader.connection_lost  # type: ignore[method-assign]
        self.pause_writing = reader.pause_writing  # type: ignore[method-assign]
        self.resume_writing = reader.resume_writing  # type: ignore[method-assign]
