"""An MQTT client made of bytes, for tests: it shares no code with the server, and says what no good client says."""

from __future__ import annotations

import asyncio
from typing import Final

SECONDS: Final = 60.0

PINGREQ: Final = bytes.fromhex("c000")
PINGRESP: Final = (0xD0, b"")
DISCONNECT: Final = bytes.fromhex("e000")

OPEN: Final[list[RawClient]] = []
"""The clients of the test that runs now; it closes them when it ends."""


def length_of(size: int) -> bytes:
    digits = bytearray()
    while True:
        size, digit = divmod(size, 128)
        digits.append(digit | (0x80 if size else 0))
        if not size:
            return bytes(digits)


def packet(first: int, body: bytes = b"") -> bytes:
    return bytes((first,)) + length_of(len(body)) + body


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return len(raw).to_bytes(2, "big") + raw


def properties(*parts: bytes) -> bytes:
    whole = b"".join(parts)
    return length_of(len(whole)) + whole


def connect(
    client_id: str = "",
    version: int = 5,
    flags: int = 2,
    keep_alive: int = 0,
    extra: bytes = b"\0",
    payload: bytes = b"",
) -> bytes:
    """A CONNECT; ``extra`` are its properties, and ``payload`` stands behind the client identifier."""
    head = text("MQTT") + bytes((version, flags)) + keep_alive.to_bytes(2, "big")
    return packet(0x10, head + (extra if version == 5 else b"") + text(client_id) + payload)


def publish(
    topic: str,
    payload: bytes,
    qos: int = 0,
    packet_id: int = 1,
    retain: bool = False,
    dup: bool = False,
    extra: bytes | None = b"\0",
) -> bytes:
    """A PUBLISH of MQTT 5; with ``extra=None`` one of MQTT 3.1.1."""
    head = text(topic) + (packet_id.to_bytes(2, "big") if qos else b"") + (extra or b"")
    return packet(0x30 | dup << 3 | qos << 1 | retain, head + payload)


def subscribe(topic: str, options: int = 0, packet_id: int = 1, extra: bytes | None = b"\0") -> bytes:
    return packet(0x82, packet_id.to_bytes(2, "big") + (extra or b"") + text(topic) + bytes((options,)))


def short(number: int) -> bytes:
    return number.to_bytes(2, "big")


class RawClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, *packets: bytes) -> None:
        self._writer.write(b"".join(packets))

    async def packet(self) -> tuple[int, bytes]:
        """The first byte and the body of the next packet."""
        async with asyncio.timeout(SECONDS):
            first = (await self._reader.readexactly(1))[0]
            length = shift = 0
            while True:
                digit = (await self._reader.readexactly(1))[0]
                length |= (digit & 127) << shift
                shift += 7
                if digit < 128:
                    break
            return first, await self._reader.readexactly(length)

    async def ask(self, *packets: bytes) -> tuple[int, bytes]:
        """Send packets, and take the next one that comes."""
        self.send(*packets)
        return await self.packet()

    async def subscribed(self, topic: str, options: int = 0, extra: bytes | None = b"\0") -> int:
        """Subscribe; the reason of the SUBACK."""
        first, body = await self.ask(subscribe(topic, options, 77, extra))
        assert (first, body[:2]) == (0x90, short(77))
        return body[-1]

    async def message(self) -> tuple[str, bytes]:
        """The next PUBLISH with QoS 0 and without properties: its topic and payload."""
        first, body = await self.packet()
        assert first >> 4 == 3, (first, body)
        size = int.from_bytes(body[:2], "big")
        rest = body[2 + size + (2 if first & 6 else 0) :]
        assert rest[0] == 0, rest
        return body[2 : 2 + size].decode(), rest[1:]

    async def is_silent(self, seconds: float = 0.15) -> bool:
        """Whether nothing comes for a while."""
        try:
            async with asyncio.timeout(seconds):
                return not await self._reader.read(1)
        except TimeoutError:
            return True

    async def end(self) -> bytes:
        """All that comes until the server closes the connection."""
        async with asyncio.timeout(SECONDS):
            try:
                return await self._reader.read()
            except ConnectionError:
                return b""

    def vanish(self) -> None:
        """End the connection without a word."""
        self._writer.transport.abort()


async def opened(address: str) -> RawClient:
    """A connection on which nothing has been said."""
    host, port = address.rsplit(":", 1)
    client = RawClient(*await asyncio.open_connection(host, int(port)))
    OPEN.append(client)
    return client


async def close_all() -> None:
    """Close the connections that a test has opened."""
    while OPEN:
        OPEN.pop().vanish()
    await asyncio.sleep(0)


async def connected(
    address: str, client_id: str = "", version: int = 5, flags: int = 2, extra: bytes = b"\0"
) -> RawClient:
    """A client that was let in."""
    client = await opened(address)
    first, body = await client.ask(connect(client_id, version, flags, extra=extra))
    assert (first, body[1]) == (0x20, 0), (first, body)
    return client
