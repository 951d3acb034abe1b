"""Connections: frames in whatever pieces they come, and peers that say what they should not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon import Node, UsageError
from antiphon.api.batch_codec import encode_columns
from antiphon.api.columns import Columns
from antiphon.kernel.errors import ProtocolError
from antiphon.membership.messages import OLDEST_VERSION, PROTOCOL_VERSION, Hello, Peer, PeerAddresses
from antiphon.sessions.client_messages import PublishRequest, StatusRequest, SubscribeRequest
from antiphon.transport.codec import Codec
from antiphon.transport.framing import BUFFER_BYTES, FrameReader, FrameWriter
from antiphon.transport.links import split_address
from antiphon.transport.peer_messages import TopicAnnouncement
from antiphon.transport.schema import FRAME_BYTES_AT_MOST
from tests.node.support import cluster, running, take_values


class Reader(FrameReader):
    """Keeps the frames; one that says so is refused."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[bytes] = []
        self.refusals: list[str] = []

    def frame_received(self, frame: memoryview) -> None:
        if bytes(frame) == b"refuse this":
            raise ProtocolError("as asked")
        self.frames.append(bytes(frame))

    def refuse(self, error: Exception) -> None:
        super().refuse(error)
        self.refusals.append(str(error))

    def feed(self, data: bytes) -> None:
        """What a loop does when bytes arrive."""
        while data:
            buffer = self.get_buffer(-1)
            assert len(buffer) > 0, "a loop cannot read into nothing"
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            self.buffer_updated(count)
            data = data[count:]


def framed(*frames: bytes) -> bytes:
    """Frames as they are on a link."""
    return b"".join(len(frame).to_bytes(4, "little") + frame for frame in frames)


@given(st.lists(st.binary(max_size=40), max_size=6), st.data())
def test_frames_come_out_as_they_went_in_whatever_the_pieces(frames: list[bytes], data: st.DataObject) -> None:
    stream = framed(*frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    reader = Reader()
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        reader.feed(stream[start:end])
    assert reader.frames == frames


def test_frames_cut_at_every_byte() -> None:
    frames = [b"", b"a", b"bcd", bytes(300)]
    stream = framed(*frames)
    for cut in range(len(stream) + 1):
        reader = Reader()
        reader.feed(stream[:cut])
        reader.feed(stream[cut:])
        assert reader.frames == frames
    reader = Reader()
    for place in range(len(stream)):
        reader.feed(stream[place : place + 1])
    assert reader.frames == frames


@pytest.mark.parametrize(
    "size", [BUFFER_BYTES - 5, BUFFER_BYTES - 4, BUFFER_BYTES - 3, BUFFER_BYTES, 5 * BUFFER_BYTES + 1]
)
def test_frames_around_and_beyond_the_size_of_the_buffer(size: int) -> None:
    frames = [b"before", bytes(range(256)) * (size // 256) + bytes(size % 256), b"after", bytes(size), b"end"]
    reader = Reader()
    reader.feed(framed(*frames))
    assert reader.frames == frames
    assert len(reader.get_buffer(-1)) == BUFFER_BYTES, "a long frame's buffer is given back"


@pytest.mark.parametrize("length", [FRAME_BYTES_AT_MOST + 1, (1 << 32) - 1, int.from_bytes(b"GET ", "little")])
def test_an_announced_length_that_is_too_long_is_refused_before_it_comes(length: int) -> None:
    reader = Reader()
    reader.feed(framed(b"good") + length.to_bytes(4, "little"))
    assert reader.frames == [b"good"]
    assert str(length) in reader.refusals[0]


def test_what_follows_a_refused_frame_is_not_read() -> None:
    reader = Reader()
    reader.feed(framed(b"good", b"refuse this", b"bad"))
    assert (reader.frames, reader.refusals) == ([b"good"], ["as asked"])


class Transport:
    """Takes what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.writes = 0

    def write(self, data: bytes) -> None:
        self.written += data
        self.writes += 1

    def writelines(self, pieces: list[bytes]) -> None:
        self.write(b"".join(pieces))

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> None:
        return None


@pytest.mark.parametrize("size", [10, 100_000])
def test_what_queues_in_a_turn_is_one_write(size: int) -> None:
    transport, writer = Transport(), FrameWriter()
    writer.send(b"before the connection")
    assert writer.unwritten_bytes() == 25
    writer.attach(transport)  # type: ignore[arg-type]
    frames = [bytes([number]) * size for number in range(5)]
    for frame in frames:
        writer.send(frame)
    assert transport.writes == 1
    writer.flush()
    writer.flush()
    assert transport.writes == 2
    assert transport.written == framed(b"before the connection", *frames)
    assert (writer.frames_sent, writer.bytes_sent, writer.unwritten_bytes()) == (6, len(transport.written), 0)
    assert writer.writes == 2


@pytest.mark.parametrize("address", ["", "host", "host:", ":x", "host:port", "host:70000", "host:-1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError):
        split_address(address)


def test_addresses() -> None:
    assert split_address("127.0.0.1:7400") == ("127.0.0.1", 7400)
    assert split_address("[::1]:0") == ("::1", 0)
    assert split_address(":7400") == ("127.0.0.1", 7400)


CODEC = Codec()
HELLO = Hello(PROTOCOL_VERSION, "antiphon", "stranger", "127.0.0.1:1")
CLIENT = Hello(PROTOCOL_VERSION, "antiphon", "client", "")


def control(message: msgspec.Struct) -> bytes:
    """A message of hosts as a frame."""
    return framed(CODEC.encode_control(message))


def wrong_beginnings() -> Iterator[tuple[str, bytes, str]]:
    """What strangers may send, by name, and the reason that they are given."""
    yield "web browser", b"GET / HTTP/1.1\r\n\r\n", "announced a frame"
    yield "garbage", framed(b"\xff\x00garbage"), "no message"
    yield "empty", framed(b""), "no message"
    yield "newer", control(msgspec.structs.replace(HELLO, version=PROTOCOL_VERSION + 1)), "upgrade the older one"
    yield "older", control(msgspec.structs.replace(HELLO, version=OLDEST_VERSION - 1)), "upgrade the older one"
    yield "cluster", control(msgspec.structs.replace(HELLO, cluster="another")), "cluster"
    yield "target", control(msgspec.structs.replace(HELLO, target="someone else")), "does not live here"
    yield "no name", control(msgspec.structs.replace(HELLO, instance="")), "names its sender"
    yield "two hellos", control(HELLO) + control(HELLO), "one Hello"
    yield "no hello", control(PeerAddresses([Peer("x", "127.0.0.1:1")])), "first frame"
    yield "host message", control(HELLO) + control(TopicAnnouncement(["room"], True)), "not in the cluster"
    yield "process message", control(HELLO) + framed(msgspec.msgpack.encode([2, 0, 1, 5])), "not in the cluster"
    yield "client message of a peer", control(HELLO) + control(StatusRequest(1)), "not in the cluster"
    yield (
        "peer message of a client",
        control(CLIENT) + control(TopicAnnouncement(["room"], True)),
        "clients do not send",
    )
    yield "process message of a client", control(CLIENT) + framed(msgspec.msgpack.encode([2, 0, 1, 5])), "do not send"
    yield "hello of a client", control(CLIENT) + control(CLIENT), "clients do not send"
    yield "garbage of a client", control(CLIENT) + framed(b"garbage"), "no message"


async def answers_to(node: Node, sent: bytes, end: bool = False, count: int = -1) -> list[list[Any]]:
    """Send bytes to a node; what it answers until it closes the connection, or so many frames, as plain data."""
    host, port = split_address(node.address)
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(sent)
    if end:
        writer.write_eof()
    answers: list[list[Any]] = []
    try:
        while len(answers) != count and (head := await reader.read(4)):
            answers.append(msgspec.msgpack.decode(await reader.readexactly(int.from_bytes(head, "little"))))
    finally:
        writer.close()
    return answers


@pytest.mark.parametrize(
    ("sent", "reason"), [pytest.param(sent, why, id=name) for name, sent, why in wrong_beginnings()]
)
def test_who_says_what_it_should_not_is_told_why_and_the_node_lives_on(sent: bytes, reason: str) -> None:
    async def test() -> None:
        async with cluster(2) as (here, there):
            subscription = await there.subscribe("room").ready()
            answers = await answers_to(here, sent)
            number, text, *_ = answers[-1]
            assert number == 101 and reason in str(text)
            await here.publish("room", b"still there")
            assert await take_values(subscription, 1) == [b"still there"]

    running(test)


def test_a_client_that_asks_for_what_cannot_be_is_told_and_stays_connected() -> None:
    async def test() -> None:
        async with cluster(1) as (node,):
            empty = encode_columns(Columns(1, 0, []))
            answers = await answers_to(
                node,
                control(CLIENT)
                + control(SubscribeRequest(1, "room", 1 << 62, True, "block", 1))
                + control(SubscribeRequest(2, "room", -5, False, "block", 1))
                + control(SubscribeRequest(3, "a..b", "latest", False, "block", 1))
                + control(SubscribeRequest(4, "room", "latest", False, "explode", 1))
                + control(PublishRequest(5, "room", "causal", b"no batch"))
                + control(PublishRequest(6, "room", "causal", empty))
                + control(PublishRequest(7, "room", "loudest", encode_columns(Columns(1, 0, [b""]))))
                + control(PublishRequest(8, "a..b", "causal", encode_columns(Columns(1, 0, [b""]))))
                + control(StatusRequest(9)),
                count=9,
            )
            ended = {answer[1]: answer[2] for answer in answers if answer[0] == 154}
            accepted = {answer[1]: answer[2] for answer in answers if answer[0] == 151}
            status = [answer for answer in answers if answer[0] == 159]
            assert sorted(ended) == [1, 2, 3, 4] and all(ended.values())
            assert sorted(accepted) == [5, 6, 7, 8] and all(accepted.values())
            assert len(status) == 1

    running(test)


def test_connections_that_end_in_the_middle_of_a_frame_leave_nothing_behind() -> None:
    async def test() -> None:
        async with cluster(1) as (node,):
            for sent in (b"", b"\x05", control(HELLO)[:-1], control(CLIENT), control(CLIENT) + b"\xff\x00\x00\x00"):
                assert await answers_to(node, sent, end=True) == []
            assert not node._live.clients
            assert not node._live.host.incoming()

    running(test)


def test_a_connection_that_is_accepted_while_its_node_is_shut_is_closed() -> None:
    """A loop may hand over a connection after the node has closed all that it knew of."""

    class LateTransport(Transport):
        is_closed = False

        def close(self) -> None:
            self.is_closed = True

    async def test() -> None:
        async with cluster(1) as (node,):
            await node.close()
            late = LateTransport()
            node._live._incoming(None, "").connection_made(late)  # type: ignore[arg-type]
            assert late.is_closed

    running(test)
