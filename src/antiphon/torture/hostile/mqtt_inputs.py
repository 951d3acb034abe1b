"""Inputs of hostile MQTT clients: conversations written by hand, changed at random; and a client that must be served.

Nothing here is of the server's own codec: what it gets wrong, this does not get wrong the same way.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

from antiphon.transport.links import split_address

PATIENCE_SECONDS: Final = 20.0
RANDOM_BYTES_AT_MOST: Final = 600


def length_bytes(size: int) -> bytes:
    """The length of a packet, as packets have it."""
    digits = bytearray()
    while True:
        size, digit = divmod(size, 128)
        digits.append(digit | (128 if size else 0))
        if not size:
            return bytes(digits)


def packet(first: int, body: bytes) -> bytes:
    """A packet."""
    return bytes((first,)) + length_bytes(len(body)) + body


def text(value: str) -> bytes:
    """A text behind its length."""
    return len(value.encode()).to_bytes(2, "big") + value.encode()


def connect(client_id: str, version: int = 5, flags: int = 2, properties: bytes = b"", rest: bytes = b"") -> bytes:
    """The first packet of a client."""
    said = bytes((len(properties),)) + properties if version == 5 else b""
    return packet(0x10, text("MQTT") + bytes((version, flags, 0, 60)) + said + text(client_id) + rest)


EXPIRY: Final = b"\x11\0\0\0\x1e"
"""A session that is kept for 30 seconds."""

CONVERSATIONS: Final[tuple[tuple[bytes, ...], ...]] = (
    (connect("attacker"), packet(0x82, b"\0\1\0" + text("mqtt/#") + b"\2"), packet(0x30, text("mqtt/a") + b"\0hello")),
    (
        connect("attacker", 4),
        packet(0x82, b"\0\1" + text("mqtt/+") + b"\1"),
        packet(0x32, text("mqtt/a") + b"\0\2hello"),
    ),
    (
        connect("attacker", properties=EXPIRY),
        packet(0x82, b"\0\1\0" + text("$share/group/mqtt/#") + b"\1"),
        packet(0x34, text("mqtt/a") + b"\0\3\0twice"),
        packet(0x62, b"\0\3"),
        packet(0xA2, b"\0\4\0" + text("$share/group/mqtt/#")),
    ),
    (
        connect("willing", flags=0x2E, rest=b"\5\x18\0\0\0\1" + text("mqtt/will") + text("gone")),
        packet(0x31, text("mqtt/kept") + b"\x0b\1\1\2\0\0\0\5\x03" + text("a") + b"kept"),
        packet(0x30, text("mqtt/alias") + b"\3\x23\0\1x"),
        packet(0x30, text("") + b"\3\x23\0\1y"),
        packet(0xC0, b""),
        packet(0xE0, b"\4"),
    ),
    (connect("named", flags=0xC2, rest=text("user") + text("password")), packet(0xF0, b"\x18\0")),
    (packet(0xC0, b""),),
    (connect("patient", properties=b"\x21\0\1\x22\0\2\x27\0\0\0\x40"), packet(0x82, b"\0\1\0" + text("#") + b"\2")),
)
"""What good clients, and some that are not, say one packet after the other."""


class MqttMutator:
    """Makes inputs; the same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(f"mqtt {seed}")

    def input(self) -> tuple[str, bytes]:
        """The next input: its kind and its bytes."""
        chance = self._random
        if chance.random() < 0.05:
            return "mqtt, random bytes", chance.randbytes(chance.randrange(RANDOM_BYTES_AT_MOST))
        packets = list(chance.choice(CONVERSATIONS))
        kind = chance.choice(("bytes", "lengths", "order", "cut", "packets"))
        if kind == "bytes":
            place = chance.randrange(len(packets))
            packets[place] = self._changed(packets[place])
        elif kind == "lengths":
            # The length of a packet says something else than the packet.
            place = chance.randrange(len(packets))
            whole = packets[place]
            packets[place] = (
                whole[:1] + length_bytes(chance.choice((0, 1, 127, 128, 300, 1 << 20, 268_435_455))) + whole[2:]
            )
        elif kind == "order":
            chance.shuffle(packets)
        elif kind == "packets":
            packets.insert(
                chance.randrange(len(packets) + 1),
                packet(chance.randrange(256), chance.randbytes(chance.randrange(40))),
            )
        data = b"".join(packets)
        if kind == "cut":
            data = data[: chance.randrange(len(data) + 1)]
        return f"mqtt, {kind}", data

    def _changed(self, data: bytes) -> bytes:
        """The same with a few bytes changed, taken out or put in."""
        chance, found = self._random, bytearray(data)
        for _ in range(chance.randrange(1, 4)):
            place = chance.randrange(len(found))
            what = chance.random()
            if what < 0.6:
                found[place] = chance.randrange(256)
            elif what < 0.8 and len(found) > 1:
                del found[place]
            else:
                found[place:place] = chance.randbytes(chance.randrange(1, 4))
        return bytes(found)


async def why_not_served(address: str) -> str:
    """Why a good client is not served at a door as it should be; empty if it is."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            reader, writer = await asyncio.open_connection(*split_address(address))
            try:
                writer.write(connect("honest") + packet(0x82, b"\0\1\0" + text("honest/mqtt") + b"\1"))
                writer.write(packet(0x32, text("honest/mqtt") + b"\0\2\0" + b"served"))
                kinds: list[int] = []
                # CONNACK, SUBACK, PUBACK, and the message itself.
                while len(kinds) < 4:
                    first, size = await reader.readexactly(2)
                    body = await reader.readexactly(size)
                    kinds.append(first >> 4)
                    if first >> 4 == 3 and not body.endswith(b"served"):
                        return "a client got another message than it published"
                return "" if sorted(kinds) == [2, 3, 4, 9] else f"a client got the packets {kinds}"
            finally:
                writer.transport.abort()
    except (OSError, EOFError, TimeoutError) as error:
        return f"a client is not served any more: {error!r}"
