"""Inputs of hostile peers: recordings of real connections, changed at random.

Real nodes and clients talk through taps, which record the data of the connecting side as frames or TLS records. A
generator makes an endless stream of inputs from them: it flips, drops, repeats and inserts bytes; it leaves out,
duplicates, swaps and truncates frames; it replaces values inside of frames by values at which programs tend to fail.
The same seed gives the same inputs for the same recordings.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

import antiphon
from antiphon.membership.messages import PROTOCOL_VERSION, Hello
from antiphon.sessions.client_messages import FollowRequest
from antiphon.transport.certificates import Authority
from antiphon.transport.links import split_address
from antiphon.transport.schema import LENGTH_BYTES
from antiphon.transport.tls import CLIENT, NODE

HOST: Final = "127.0.0.1"
BYTES_AT_MOST: Final = 4096
"""The most bytes of a purely random input."""

DEPTH: Final = 3000
"""The nesting depth of a value that is put into a frame."""

NASTY: Final[tuple[Any, ...]] = (
    None, True, -1, 0, 1, 255, 1 << 22, 1 << 31, 1 << 41, 1 << 62, (1 << 63) - 1, (1 << 64) - 1, -(1 << 63), 0.5,
    float("nan"), "", "x" * 300, "a..b", ">", "*", "a.>.b", "\x00", "\n", b"", b"\xff" * 100, b"\x03\x00\x00\x80",
    [], [[]] * 10, {}, {"a": 1}, {1: 2}, "latest", "causal", "total",
)  # fmt: skip


@dataclass
class Recordings:
    """The recorded data, by connection: of clients, of nodes to each other, and of nodes to clients."""

    clients: list[list[bytes]] = field(default_factory=list)
    peers: list[list[bytes]] = field(default_factory=list)
    answers: list[list[bytes]] = field(default_factory=list)
    tls: list[bytes] = field(default_factory=list)


class Tap:
    """Listens at a port of its own, forwards everything to a node and back, and records it."""

    def __init__(self) -> None:
        self._target = ("", 0)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.recorded: list[bytearray] = []
        self.answers: list[bytearray] = []
        self.address = ""

    async def open(self) -> Tap:
        """Listen."""
        self._server = await asyncio.start_server(self._connected, HOST, 0)
        self.address = f"{HOST}:{self._server.sockets[0].getsockname()[1]}"
        return self

    def lead_to(self, address: str) -> None:
        """Set the node to forward to."""
        self._target = split_address(address)

    async def close(self) -> None:
        """Stop listening; no connection uses the tap any more."""
        assert self._server is not None, "it was opened"
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        recorded, answers = bytearray(), bytearray()
        self.recorded.append(recorded)
        self.answers.append(answers)
        far_writer: asyncio.StreamWriter | None = None
        try:
            with suppress(OSError):
                far_reader, far_writer = await asyncio.open_connection(*self._target)
                await asyncio.gather(hand_on(reader, far_writer, recorded), hand_on(far_reader, writer, answers))
        finally:
            for each in (writer, far_writer):
                if each is not None:
                    each.transport.abort()


async def hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, recorded: bytearray) -> None:
    """Forward and record data until it ends."""
    while piece := await reader.read(1 << 16):
        recorded += piece
        writer.write(piece)
    raise ConnectionResetError("the other end is gone")


async def record(fabric: str) -> Recordings:
    """Record two nodes and a client for a while."""
    taps = [await Tap().open() for _ in range(3)]
    places = [f"{HOST}:{free_port()}" for _ in range(2)]
    # The last tap is for clients of the first node.
    for tap, place in zip(taps, (*places, places[0]), strict=True):
        tap.lead_to(place)
    settings: dict[str, Any] = {"fabric": fabric, "leave_seconds": 2.0}
    found = Recordings()
    try:
        async with antiphon.start(advertise=taps[0].address, listen=places[0], **settings):
            joining = antiphon.start(advertise=taps[1].address, listen=places[1], join=[taps[0].address], **settings)
            async with joining as second:
                messages = await second.subscribe("recorded.*").ready()
                await talk(taps[2].address)
                await second.publish("recorded.answer", b"yes", order="fifo")
                await messages.close()
    finally:
        for tap in taps:
            await tap.close()
    found.peers = [cut(stream) for tap in taps[:2] for stream in tap.recorded]
    found.clients = [cut(stream) for stream in taps[2].recorded]
    found.answers = [cut(stream) for stream in taps[2].answers]
    found.clients[0].append(msgspec.msgpack.encode(FollowRequest(77, "recorded.question", {1: 1, 2: 3})))
    return found


def free_port() -> int:
    """A port that no process uses."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


async def talk(address: str, **options: Any) -> None:
    """Do everything that a client can do, once each."""
    async with antiphon.connect(address, reconnect_seconds=0.0, **options) as client:
        first = await client.subscribe("recorded.question").ready()
        pattern = await client.subscribe("recorded.>", policy="drop_oldest", limit=10).ready()
        for number in range(20):
            await client.publish(
                "recorded.question", f"why {number}?".encode(), order=("none", "fifo", "causal")[number % 3]
            )
        await client.publish("recorded.other", b"x" * 2000, key=b"key", headers={"a": b"b"}, ttl_seconds=60.0)
        await anext(aiter(first))
        await client.status()
        await pattern.close()


async def record_tls(directory: Path) -> tuple[Recordings, dict[str, Any]]:
    """Record the same over TLS; also returns settings of a node that would accept the unchanged recording."""
    authority = Authority.make(directory)
    certificate, key = authority.issue(NODE, "target")
    own, own_key = authority.issue(CLIENT, "recorded")
    trusted = str(authority.certificate_file)
    settings: dict[str, Any] = {"tls_certificate": str(certificate), "tls_key": str(key), "tls_authority": trusted}
    tap = await Tap().open()
    try:
        async with antiphon.start(**settings) as node:
            tap.lead_to(node.address)
            for _ in range(3):
                await talk(tap.address, tls={"authority": trusted, "certificate": str(own), "key": str(own_key)})
    finally:
        await tap.close()
    return Recordings(tls=[bytes(stream) for stream in tap.recorded]), settings


def cut(stream: bytes | bytearray) -> list[bytes]:
    """The frames of a stream, without an incomplete last one."""
    frames = []
    start = 0
    while start + LENGTH_BYTES <= len(stream):
        length = int.from_bytes(stream[start : start + LENGTH_BYTES], "little")
        frame = bytes(stream[start + LENGTH_BYTES : start + LENGTH_BYTES + length])
        if len(frame) == length:
            frames.append(frame)
        start += LENGTH_BYTES + length
    return frames


def framed(frames: Sequence[bytes]) -> bytes:
    """The frames as they are on a link."""
    return b"".join(len(frame).to_bytes(LENGTH_BYTES, "little") + frame for frame in frames)


class Mutator:
    """Makes inputs from recordings."""

    def __init__(self, recordings: Recordings, seed: int) -> None:
        self._recordings = recordings
        self._chance = random.Random(seed)
        self._made = 0
        kinds: dict[str, tuple[int, Callable[[], bytes]]] = {
            "bytes": (1, self._bytes),
            "greeting": (3, self._greeting),
            "client": (6, self._client),
            "peer": (7, self._peer),
            "cut": (1, self._cut),
        }
        if recordings.tls:
            kinds = {"tls": (4, self._tls), "bytes": (1, self._bytes), "cleartext": (1, self._client)}
        self._kinds = kinds
        self._by_type: dict[int, list[bytes]] = {}
        for session in (*recordings.peers, *recordings.answers, *recordings.clients):
            for frame in session:
                self._by_type.setdefault(msgspec.msgpack.decode(frame)[0], []).append(frame)
        self._types = sorted(self._by_type)
        self._names = [name for name, (weight, _) in kinds.items() for _ in range(weight)]

    def input(self) -> tuple[str, bytes]:
        """The next input, and its kind."""
        self._made += 1
        name = self._chance.choice(self._names)
        return name, self._kinds[name][1]()

    # Kinds of inputs.

    def _bytes(self) -> bytes:
        return self._chance.randbytes(self._chance.randrange(BYTES_AT_MOST))

    def _greeting(self) -> bytes:
        """A damaged greeting of a client or a node. Nothing follows it, because some of them are still valid."""
        sessions = [*self._recordings.clients, *self._recordings.peers]
        hello = self._chance.choice(sessions)[0] if sessions else msgspec.msgpack.encode(self._hello())
        return self._broken_stream(framed([self.mutated(hello)]))

    def _client(self) -> bytes:
        """A client that is admitted, and then misbehaves."""
        session = self._chance.choice(self._recordings.clients) if self._recordings.clients else [b"\x90", b"\x90"]
        return self._session(session[1:])

    def _peer(self) -> bytes:
        """A client that sends node messages, or a node that sends them before its greeting."""
        frames = [self._of_any_type() for _ in range(self._chance.randint(1, 4))]
        if self._chance.random() < 0.2:
            return self._broken_stream(framed([self.mutated(frames[0])]))
        return self._session(frames)

    def _of_any_type(self) -> bytes:
        """A recorded frame; rare types are as likely as frequent ones."""
        return self._chance.choice(self._by_type[self._chance.choice(self._types)])

    def _cut(self) -> bytes:
        """An honest client whose connection ends at a random byte."""
        session = self._chance.choice(self._recordings.clients)
        stream = framed([msgspec.msgpack.encode(self._hello()), *session[1:]])
        return stream[: self._chance.randrange(len(stream))]

    def _tls(self) -> bytes:
        """A recorded TLS connection, unchanged or changed."""
        stream = self._chance.choice(self._recordings.tls)
        return stream if self._chance.random() < 0.1 else self._broken_stream(stream)

    def _hello(self) -> Hello:
        return Hello(PROTOCOL_VERSION, "antiphon", f"hostile-{self._made}", "")

    def _session(self, frames: Sequence[bytes]) -> bytes:
        chance = self._chance
        first = chance.randrange(len(frames)) if frames else 0
        chosen = list(frames[first : first + chance.randint(1, 12)]) or [b"\x90"]
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(chosen))
            what = chance.random()
            if what < 0.7:
                chosen[place] = self.mutated(chosen[place])
            elif what < 0.8:
                chosen.insert(place, chosen[chance.randrange(len(chosen))])
            elif what < 0.9 and len(chosen) > 1:
                del chosen[place]
            else:
                chance.shuffle(chosen)
        stream = framed([msgspec.msgpack.encode(self._hello()), *chosen])
        return self._broken_stream(stream) if chance.random() < 0.1 else stream

    # Changes.

    def mutated(self, frame: bytes) -> bytes:
        """A frame, changed."""
        return self._with_other_value(frame) if self._chance.random() < 0.6 else self._broken_stream(frame)

    def _broken_stream(self, stream: bytes) -> bytes:
        """The stream with bytes flipped, removed, repeated, inserted or truncated."""
        chance = self._chance
        changed = bytearray(stream or b"\x00")
        for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
            place = chance.randrange(len(changed)) if changed else 0
            length = chance.choice((1, 1, 2, 4, 32))
            what = chance.randrange(5)
            if what == 0 and changed:
                changed[place] ^= 1 << chance.randrange(8)
            elif what == 1:
                del changed[place : place + length]
            elif what == 2:
                changed[place:place] = changed[place : place + length]
            elif what == 3:
                changed[place:place] = chance.randbytes(length)
            elif chance.random() < 0.2:
                del changed[place:]
        return bytes(changed)

    def _with_other_value(self, frame: bytes) -> bytes:
        """The frame with one of its values replaced, at any depth."""
        try:
            holder: Any = msgspec.msgpack.decode(frame)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._broken_stream(frame)
        if not isinstance(holder, list) or not holder:
            return self._broken_stream(frame)
        whole = holder
        while True:
            place = self._chance.randrange(len(holder))
            inside = holder[place]
            if isinstance(inside, list) and inside and self._chance.random() < 0.7:
                holder = inside
                continue
            if isinstance(inside, dict) and self._chance.random() < 0.5:
                # A table that may hold anything may be nested without end.
                return msgspec.msgpack.encode(whole).replace(*self._deeper(inside), 1)
            what = self._chance.random()
            if what < 0.8:
                holder[place] = self._chance.choice(NASTY)
            elif what < 0.9:
                holder.insert(place, self._chance.choice(NASTY))
            else:
                del holder[place]
            return msgspec.msgpack.encode(whole)

    def _deeper(self, table: dict[Any, Any]) -> tuple[bytes, bytes]:
        """The bytes of a table, and of one that holds nested lists in place of one of its values."""
        name = self._chance.choice([*table, "more"])
        before = msgspec.msgpack.encode(table)
        mark = "a value that nothing else has"
        after = msgspec.msgpack.encode({**table, name: mark})
        return before, after.replace(msgspec.msgpack.encode(mark), b"\x91" * DEPTH + b"\x90")
