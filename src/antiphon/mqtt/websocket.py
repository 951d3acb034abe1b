"""MQTT over WebSocket: the request that opens it, who may come from where, and a transport for a connection.

A browser says from which page its program comes. Pages of the door's own address may come, and those that the setting
``origins`` lists; programs that are no browsers say nothing and may come. The rest is the same as over TCP: rights,
quotas and TLS are those of the door.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import urlsplit

from antiphon.kernel.errors import PeerError
from antiphon.mqtt.protocol.websocket_frames import (
    BINARY,
    NORMAL,
    FrameError,
    FrameStream,
    close_frame,
    head,
)
from antiphon.runtime.logging import logger

REQUEST_BYTES_AT_MOST: Final = 8 << 10
SUBPROTOCOLS: Final = ("mqtt", "mqttv3.1")
"""The names of MQTT; the second one is that of old clients."""

GUID: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""The constant of RFC 6455 that proves that a server speaks WebSocket."""

ANY_ORIGIN: Final = "*"

log = logger("mqtt.websocket")


class WebSocketRequestError(PeerError):
    """A request that does not open a WebSocket, or may not."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


def answer_to(request: bytes, origins: tuple[str, ...]) -> bytes:
    """The answer that opens the WebSocket for which a request asks; raises why it is not opened."""
    first, *lines = request.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or words[0] != "GET" or words[2] != "HTTP/1.1":
        raise WebSocketRequestError(HTTPStatus.BAD_REQUEST, "a WebSocket begins with GET and HTTP/1.1")
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if line and not colon:
            raise WebSocketRequestError(HTTPStatus.BAD_REQUEST, "a line of the request is no field")
        name = name.strip().lower()
        fields[name] = f"{fields[name]},{value.strip()}" if name in fields else value.strip()
    if "upgrade" not in tokens(fields, "connection") or "websocket" not in tokens(fields, "upgrade"):
        raise WebSocketRequestError(HTTPStatus.UPGRADE_REQUIRED, "this address speaks MQTT over WebSocket")
    if fields.get("sec-websocket-version") != "13":
        raise WebSocketRequestError(HTTPStatus.UPGRADE_REQUIRED, "the version of WebSocket is 13")
    check_origin(fields.get("origin"), fields.get("host", ""), origins)
    asked = tokens(fields, "sec-websocket-protocol")
    chosen = next((each for each in SUBPROTOCOLS if each in asked), None)
    if chosen is None:
        raise WebSocketRequestError(HTTPStatus.BAD_REQUEST, "the client does not ask for the subprotocol mqtt")
    key = fields.get("sec-websocket-key", "")
    if len(key) != 24:
        raise WebSocketRequestError(HTTPStatus.BAD_REQUEST, "the key of the request has 24 characters")
    proof = base64.b64encode(hashlib.sha1((key + GUID).encode("latin-1"), usedforsecurity=False).digest()).decode()
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {proof}\r\nSec-WebSocket-Protocol: {chosen}\r\n\r\n"
    ).encode("latin-1")


def tokens(fields: dict[str, str], name: str) -> list[str]:
    """The words of a field that is a list."""
    return [each.strip().lower() for each in fields.get(name, "").split(",")]


def check_origin(origin: str | None, host: str, origins: tuple[str, ...]) -> None:
    """Refuse a program of a page from elsewhere."""
    if origin is None or ANY_ORIGIN in origins or origin in origins:
        return
    if host and urlsplit(origin).netloc == host:
        return
    raise WebSocketRequestError(
        HTTPStatus.FORBIDDEN, f"pages of {origin[:200]} may not connect; add it to the origins of [mqtt] if they may"
    )


class WebSocketTransport(asyncio.Transport):
    """Lets a connection write packets as it would over TCP."""

    def __init__(self, below: asyncio.Transport) -> None:
        super().__init__()
        self._below = below

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._below.get_extra_info(name, default)

    def write(self, data: Any) -> None:
        self._below.writelines((head(BINARY, len(data)), data))

    def is_closing(self) -> bool:
        return self._below.is_closing()

    def close(self) -> None:
        if not self._below.is_closing():
            self._below.write(close_frame(NORMAL))
        self._below.close()

    def abort(self) -> None:
        self._below.abort()

    def is_reading(self) -> bool:
        return self._below.is_reading()

    def pause_reading(self) -> None:
        self._below.pause_reading()

    def resume_reading(self) -> None:
        self._below.resume_reading()


class WebSocketConnection(asyncio.Protocol):
    """A connection that opens a WebSocket, and hands its data to a connection of MQTT."""

    def __init__(
        self,
        new_connection: Callable[[], asyncio.Protocol],
        origins: tuple[str, ...],
        frame_bytes_at_most: int,
    ) -> None:
        self._inner = new_connection()
        self._origins = origins
        self._request = bytearray()
        self._frames = FrameStream(frame_bytes_at_most)
        self._is_open = False
        self._below: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._below = cast("asyncio.Transport", transport)
        self._inner.connection_made(WebSocketTransport(self._below))

    def data_received(self, data: bytes) -> None:
        if self._is_open:
            self._on_frames(data)
            return
        self._request += data
        end = self._request.find(b"\r\n\r\n")
        try:
            if end < 0 and len(self._request) > REQUEST_BYTES_AT_MOST:
                raise WebSocketRequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too long")
            if end >= 0:
                self._open(bytes(self._request[:end]), bytes(self._request[end + 4 :]))
        except WebSocketRequestError as error:
            self._refuse(error)

    def _open(self, request: bytes, rest: bytes) -> None:
        assert self._below is not None, "it has said something"
        self._below.write(answer_to(request, self._origins))
        self._is_open = True
        self._request.clear()
        if rest:
            self._on_frames(rest)

    def _refuse(self, error: WebSocketRequestError) -> None:
        assert self._below is not None, "it has said something"
        log.info("a WebSocket was refused", reason=str(error))
        text = f"{error}\n".encode("ascii", "replace")
        upgrade = "Upgrade: websocket\r\n" if error.status == HTTPStatus.UPGRADE_REQUIRED else ""
        lines = (
            f"HTTP/1.1 {error.status.value} {error.status.phrase}\r\n{upgrade}Content-Type: text/plain\r\n"
            f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n"
        )
        self._below.write(lines.encode("latin-1") + text)
        self._below.close()

    def _on_frames(self, data: bytes) -> None:
        below = self._below
        assert below is not None, "it has said something"
        try:
            found, answers = self._frames.add(data)
        except FrameError as error:
            log.info("a WebSocket was closed", reason=str(error))
            below.write(close_frame(error.code))
            below.close()
            return
        if found:
            self._inner.data_received(found)
        if answers and not below.is_closing():
            below.write(answers)
        if self._frames.is_closed:
            below.close()

    def eof_received(self) -> None:
        """The client says nothing more: the connection ends."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()
