"""MQTT over WebSocket: frames by hand, requests that are refused, stock clients, and a page in a real browser."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from typing import Any

import paho.mqtt.client as paho
import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.async_api import async_playwright

import antiphon
from antiphon.kernel.errors import UsageError
from antiphon.mqtt import serve
from antiphon.mqtt.protocol.websocket_frames import FrameError, FrameStream, frame, head
from antiphon.mqtt.settings import settings_of
from tests.mqtt.raw_client import RawClient, close_all, connect, opened, publish, subscribe, text
from tests.mqtt.test_stock_clients import StockClient, clients

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
PROOF = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
"""The example of RFC 6455, section 1.3."""


def of_client(kind: int, payload: bytes, mask: bytes = b"\1\2\3\4", is_final: bool = True) -> bytes:
    """A frame as clients send it, by the RFC and not by the code under test."""
    first = bytes((is_final << 7 | kind,))
    size = len(payload)
    if size < 126:
        length = bytes((0x80 | size,))
    elif size < 65_536:
        length = b"\xfe" + size.to_bytes(2, "big")
    else:
        length = b"\xff" + size.to_bytes(8, "big")
    return first + length + mask + bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))


def request(**changed: str) -> bytes:
    fields = {
        "Host": "here:8083",
        "Upgrade": "websocket",
        "Connection": "keep-alive, Upgrade",
        "Sec-WebSocket-Key": KEY,
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Protocol": "chat, mqtt",
    }
    fields |= {name.replace("_", "-"): value for name, value in changed.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value)
    return f"GET /mqtt HTTP/1.1\r\n{lines}\r\n".encode()


# Frames.


def test_the_examples_of_the_rfc() -> None:
    """Section 5.7: a masked text is refused here, so its bytes are taken as binary."""
    stream = FrameStream(1000)
    assert stream.add(bytes.fromhex("82 85 37fa213d 7f9f4d5158")) == (b"Hello", b"")
    assert stream.add(bytes.fromhex("89 85 37fa213d 7f9f4d5158")) == (b"", bytes.fromhex("8a05") + b"Hello")
    assert frame(2, b"x" * 256)[:4] == bytes.fromhex("827e0100")
    assert head(2, 65_536) == bytes.fromhex("827f0000000000010000")


@given(
    st.lists(st.tuples(st.binary(max_size=400), st.binary(min_size=4, max_size=4), st.booleans()), max_size=6),
    st.integers(1, 70),
)
def test_data_may_be_cut_into_frames_and_parts_anywhere(parts: list[tuple[bytes, bytes, bool]], size: int) -> None:
    """[MQTT-6.0.0-2]."""
    stream, data, is_within = FrameStream(1000), b"", False
    for payload, mask, is_final in parts:
        data += of_client(0 if is_within else 2, payload, mask, is_final)
        data += of_client(9, b"ping")
        is_within = not is_final
    found, answers = b"", b""
    for begin in range(0, len(data), size):
        more, said = stream.add(data[begin : begin + size])
        found, answers = found + more, answers + said
    assert found == b"".join(payload for payload, _, _ in parts)
    assert answers == (bytes.fromhex("8a04") + b"ping") * len(parts)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (of_client(1, b"text"), 1003),  # [MQTT-6.0.0-1]
        (of_client(3, b""), 1002),  # no such frame
        (of_client(0, b"x"), 1002),  # goes on with nothing
        (of_client(2, b"x", is_final=False) + of_client(2, b"y"), 1002),  # begins within another
        (of_client(9, b"x", is_final=False), 1002),  # a ping in parts
        (of_client(9, b"x" * 126), 1002),  # a long ping
        (b"\x82\x01x", 1002),  # no mask
        (bytes((0xC2, 0x80)), 1002),  # a reserved bit
        (of_client(2, b"x" * 1001), 1009),
        (b"\x82\xff" + b"\xff" * 8 + b"mask", 1009),
    ],
)
def test_only_binary_frames_that_are_whole_and_masked_are_taken(data: bytes, code: int) -> None:
    """[MQTT-6.0.0-1]."""
    with pytest.raises(FrameError) as error:
        FrameStream(1000).add(data)
    assert error.value.code == code


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_frames_or_refused(data: bytes) -> None:
    with suppress(FrameError):
        found, _ = FrameStream(1000).add(data)
        assert len(found) <= len(data)


# Requests.


def test_the_server_takes_the_subprotocol_and_packets_flow() -> None:
    """[MQTT-6.0.0-3], [MQTT-6.0.0-4]."""

    async def run() -> None:
        async with antiphon.start() as node, serve(node, None, websocket="127.0.0.1:0") as door:
            client = await opened(door.websocket_address)
            packets = connect("c"), subscribe("t"), publish("t", b"x" * 300)
            client.send(request() + b"".join(of_client(2, each) for each in packets))
            answer = await client._reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 101 ")
            assert b"Sec-WebSocket-Accept: " + PROOF + b"\r\n" in answer
            assert b"Sec-WebSocket-Protocol: mqtt\r\n" in answer
            got = b""
            while not got.endswith(b"x" * 300):
                got += await client._reader.read(4096)
            assert got[0] == 0x82
            assert text("t") in got
            client.send(of_client(9, b"?"), of_client(8, (1000).to_bytes(2, "big")))
            assert (await client.end()).startswith(bytes.fromhex("8a01") + b"?" + bytes.fromhex("880203e8"))
            wrong = await opened(door.websocket_address)
            wrong.send(request(), of_client(1, b"text"))
            assert (await wrong.end()).endswith(bytes.fromhex("880203eb"))
            await close_all()

    antiphon.run(run())


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (request(Origin="https://evil.example"), 403),
        (request(Origin="null"), 403),
        (request(Origin="https://good.example"), 101),
        (request(Origin="http://here:8083"), 101),
        (request(Sec_WebSocket_Protocol="chat"), 400),
        (request(Sec_WebSocket_Protocol=""), 400),
        (request(Sec_WebSocket_Version="8"), 426),
        (request(Upgrade=""), 426),
        (request(Sec_WebSocket_Key="short"), 400),
        (b"POST / HTTP/1.1\r\n\r\n", 400),
        (b"\x10\x10MQTT\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno field\r\n\r\n", 400),
        (b"x" * 9000, 431),
    ],
)
def test_a_request_is_checked_and_its_origin_too(data: bytes, status: int) -> None:
    async def run() -> None:
        settings: dict[str, Any] = {"websocket": "127.0.0.1:0", "origins": ["https://good.example"]}
        async with antiphon.start() as node, serve(node, None, **settings) as door:
            client: RawClient = await opened(door.websocket_address)
            client.send(data)
            first = await client._reader.readline()
            assert first.startswith(b"HTTP/1.1 %d " % status)
            await close_all()

    antiphon.run(run())


def test_settings_that_cannot_be_are_named() -> None:
    for values, words in (
        ({"websocket": "nowhere"}, "nowhere"),
        ({"origins": ["example.com"]}, "https://example.com"),
        ({"sessions": 0}, "sessions"),
        ({"orgins": []}, "origins"),
    ):
        with pytest.raises(UsageError, match=words):
            settings_of(values)


# Clients of others.


def test_paho_speaks_over_websocket() -> None:
    def talk(address: str, websocket_address: str) -> None:
        reader, writer = StockClient("reader", paho.MQTTv5, transport="websockets"), StockClient("w", paho.MQTTv311)
        with clients(reader, writer):
            reader.connect(websocket_address).subscribe("t", 2)
            writer.connect(address)
            long = "x" * 200_000
            for payload, qos in (("0", 0), ("1", 1), (long, 1)):
                writer.publish("t", payload, qos)
            assert reader.payloads(3) == ["0", "1", long]

    async def run() -> None:
        async with antiphon.start() as node, serve(node, "127.0.0.1:0", websocket="127.0.0.1:0") as door:
            await asyncio.to_thread(talk, door.address, door.websocket_address)

    antiphon.run(run())


PAGE = """async (address) => {
    const text = (value) => [0, value.length, ...new TextEncoder().encode(value)];
    const packet = (first, body) => new Uint8Array([first, body.length, ...body]);
    const socket = new WebSocket("ws://" + address, ["mqtt"]);
    socket.binaryType = "arraybuffer";
    const waiting = [], arrived = [];
    socket.onmessage = (event) => {
        const bytes = [...new Uint8Array(event.data)];
        while (bytes.length) {
            const whole = bytes.splice(0, 2 + bytes[1]);
            waiting.length ? waiting.shift()(whole) : arrived.push(whole);
        }
    };
    const next = () => new Promise((done) => arrived.length ? done(arrived.shift()) : waiting.push(done));
    await new Promise((done, failed) => { socket.onopen = done; socket.onclose = failed; });
    socket.send(packet(0x10, [...text("MQTT"), 4, 2, 0, 0, ...text("page")]));
    const let_in = await next();
    socket.send(packet(0x82, [0, 1, ...text("to/page"), 1]));
    await next();
    socket.send(packet(0x32, [...text("from/page"), 0, 2, ...new TextEncoder().encode("why?")]));
    const kinds = [];
    let answer = null;
    while (answer === null || kinds.length < 2) {
        const one = await next();
        kinds.push(one[0]);
        if (one[0] === 0x32) answer = new TextDecoder().decode(new Uint8Array(one.slice(13)));
    }
    socket.close();
    return [socket.protocol, let_in, kinds.sort(), answer];
}"""


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium on this machine")
def test_a_page_in_a_browser_talks_with_a_program() -> None:
    async def run() -> None:
        async with (
            antiphon.start() as node,
            serve(node, None, websocket="127.0.0.1:0", origins=["null"]) as door,
            async_playwright() as playwright,
        ):
            questions = await node.subscribe("from.page").ready()
            browser = await playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"], timeout=180_000)
            page = await browser.new_page()
            talking = asyncio.ensure_future(page.evaluate(PAGE, door.websocket_address))
            asked = await anext(aiter(questions))
            await node.publish("to.page", b"because")
            protocol, let_in, kinds, answer = await talking
            assert asked.value == b"why?"
            assert (protocol, let_in, kinds, answer) == ("mqtt", [0x20, 2, 0, 0], [0x32, 0x40], "because")
            # A page from elsewhere does not come in.
            async with serve(node, None, websocket="127.0.0.1:0") as strict:
                refused = "(address) => new Promise((done) => { const s = new WebSocket('ws://' + address, ['mqtt']);"
                refused += " s.onopen = () => done('open'); s.onerror = () => done('refused'); })"
                assert await page.evaluate(refused, strict.websocket_address) == "refused"
            await browser.close()

    antiphon.run(run())
