"""A connection of a client that sends whatever it likes, and notes what it is refused, and with which quota."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

import msgspec

from antiphon.membership.messages import PROTOCOL_VERSION, Hello, Refused
from antiphon.sessions.client_messages import (
    FollowResponse,
    LogsResponse,
    ProducerResponse,
    PublishResponse,
    StreamResponse,
    SubscriptionEnded,
)
from antiphon.streams.requests import StreamFailure, decode_response
from antiphon.transport.links import split_address
from antiphon.transport.schema import LENGTH_BYTES

CLUSTER: Final = "antiphon"
QUOTA: Final = re.compile(r"\(?quota (\w+)")
QUOTED: Final = re.compile(r"'[^']*'")
DIGITS: Final = re.compile(r"\d[\d.,]*")
ERRORS: Final[dict[Any, int]] = {
    Refused.__struct_config__.tag: 1,
    PublishResponse.__struct_config__.tag: 2,
    SubscriptionEnded.__struct_config__.tag: 2,
    FollowResponse.__struct_config__.tag: 3,
    LogsResponse.__struct_config__.tag: 7,
}
"""Where the reason stands in answers that may refuse something; before it come the number of the kind and others."""

STREAM_TAG: Final[Any] = StreamResponse.__struct_config__.tag
PRODUCER_TAG: Final[Any] = ProducerResponse.__struct_config__.tag
REASON_LENGTH: Final = 60


def framed(messages: Iterable[msgspec.Struct]) -> bytes:
    """Messages as they are on a link."""
    encoded = [msgspec.msgpack.encode(message) for message in messages]
    return b"".join(len(each).to_bytes(LENGTH_BYTES, "little") + each for each in encoded)


class RawClient:
    """One connection with a token. ``reasons`` counts refusals: by the name of a quota, else by how they begin."""

    def __init__(self, reasons: Counter[str]) -> None:
        self._reasons = reasons
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        # Members of topics that a node has told of.
        self.told: list[Any] = []

    async def open(self, address: str, token: str, instance: str, reads: bool = True) -> RawClient:
        """Connect and say who this is; without ``reads`` nothing is ever read."""
        reader, self._writer = await asyncio.open_connection(*split_address(address))
        self.send(Hello(PROTOCOL_VERSION, CLUSTER, instance, "", token=token))
        if reads:
            self._reading = asyncio.ensure_future(self._read(reader))
        return self

    def send(self, *messages: msgspec.Struct) -> None:
        """Send messages."""
        self.send_bytes(framed(messages))

    def send_bytes(self, data: bytes) -> None:
        """Send anything."""
        assert self._writer is not None, "it is open"
        if not self._writer.is_closing():
            self._writer.write(data)

    async def drain(self) -> None:
        """Wait until the node has taken most of it, or has ended the connection."""
        assert self._writer is not None, "it is open"
        with suppress(OSError):
            await self._writer.drain()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "little")
                self._note(msgspec.msgpack.decode(await reader.readexactly(length)))

    def _note(self, frame: list[Any]) -> None:
        if frame[0] == PRODUCER_TAG:
            self.told += [topic for node in frame[2] for topic in node[1]]
        if frame[0] == STREAM_TAG:
            response = decode_response(frame[2])
            if isinstance(response, StreamFailure):
                self._reasons[named(response.error)] += 1
            return
        place = ERRORS.get(frame[0])
        if place is not None and len(frame) > place and frame[place]:
            self._reasons[named(str(frame[place]))] += 1

    def close(self) -> None:
        """End the connection without a farewell."""
        if self._reading is not None:
            self._reading.cancel()
        if self._writer is not None:
            self._writer.transport.abort()


def named(reason: str) -> str:
    """The quota that a reason names; else how it begins, with no figures."""
    quota = QUOTA.search(reason)
    if quota:
        return f"quota {quota[1]}"
    return "no right" if " may not " in reason else DIGITS.sub("N", QUOTED.sub("...", reason))[:REASON_LENGTH]
