"""Statements of the specification that no other test shows: clients made of bytes at one door.

The numbers are those of MQTT 5; ``tests/mqtt/normative`` lists all statements of both versions.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.mqtt.doors import with_door
from tests.mqtt.raw_client import (
    DISCONNECT,
    PINGREQ,
    PINGRESP,
    RawClient,
    connect,
    connected,
    opened,
    packet,
    properties,
    publish,
    short,
    subscribe,
    text,
)

LASTING = properties(b"\x11" + (600).to_bytes(4, "big"))


async def back(address: str, client_id: str, flags: int = 0, extra: bytes = LASTING) -> tuple[RawClient, int]:
    """A client that connects again; whether there was a session."""
    client = await opened(address)
    first, body = await client.ask(connect(client_id, flags=flags, extra=extra))
    assert (first, body[1]) == (0x20, 0)
    return client, body[0]


async def exchanged(client: RawClient, *packets: bytes) -> dict[int, bytes]:
    """Send packets, and take two: the bodies by the types."""
    client.send(*packets)
    return {first >> 4: body for first, body in [await client.packet(), await client.packet()]}


# Texts and names.


@with_door
async def test_texts_and_names_come_as_they_were_said(address: str) -> None:
    """[MQTT-1.5.4-3], [MQTT-4.7.3-4]: nothing is stripped, folded or joined."""
    client = await connected(address)
    names = ["\ufeffa", "a", "A", "/a", "a/", "a//b", "é", "e\u0301", " a"]
    for name in names:
        assert await client.subscribed(name) == 0
    for name in names:
        client.send(publish(name, b"x"))
        assert await client.message() == (name, b"x")
    assert await client.is_silent()


@with_door
async def test_client_identifiers_of_all_letters_and_lengths_are_taken(address: str) -> None:
    """[MQTT-3.1.3-5], [MQTT-3.1.3-8]: and longer ones, up to 256 characters."""
    greedy = await opened(address)
    greedy.send(connect("x" * 257))
    assert (await greedy.end())[3] == 0x85
    for client_id in ("a", "0123456789abcdefghijklm", "NOPQRSTUVWXYZ", "nopqrstuvwxyz", "ABCDEFGHIJKLM"):
        await connected(address, client_id)


# Connecting.


@with_door
async def test_a_refused_client_hears_one_answer_and_nothing_it_says_counts(address: str) -> None:
    """[MQTT-3.1.4-6], [MQTT-3.2.2-6], [MQTT-3.2.2-7], [MQTT-3.14.0-1]."""
    witness = await connected(address)
    await witness.subscribed("#")
    refused = await opened(address)
    refused.send(connect("c", extra=properties(b"\x15" + text("x"))), publish("t", b"x"), PINGREQ)
    answer = await refused.end()
    assert (answer[0], answer[2:4]) == (0x20, b"\0\x8c")
    assert len(answer) == 2 + answer[1]
    assert await witness.is_silent()


@with_door
async def test_a_session_is_begun_gone_on_with_or_thrown_away(address: str) -> None:
    """[MQTT-3.1.2-4] to [MQTT-3.1.2-6], [MQTT-3.1.2-23], [MQTT-3.2.2-2], [MQTT-3.2.2-3]."""
    client, was_there = await back(address, "c")
    assert not was_there
    await client.subscribed("t", 1)
    client.vanish()
    _, was_there = await back(address, "c")
    assert was_there
    client, was_there = await back(address, "c", flags=2)
    assert not was_there
    await client.ask(publish("t", b"x", 1, 1))
    assert await client.is_silent()


@with_door
async def test_a_session_is_not_thrown_away_while_its_client_is_there(address: str) -> None:
    """[MQTT-4.1.0-1]: its time begins when the connection ends."""
    client, _ = await back(address, "c", extra=properties(b"\x11" + (1).to_bytes(4, "big")))
    await client.subscribed("t")
    await asyncio.sleep(1.2)
    client.send(publish("t", b"x"))
    assert await client.message() == ("t", b"x")


@with_door
async def test_a_will_is_published_as_its_client_asked(address: str) -> None:
    """[MQTT-3.1.2-7], [MQTT-3.1.2-14], [MQTT-3.1.2-15], [MQTT-3.1.3-10]."""
    witness = await connected(address)
    await witness.subscribed("will/+", 2 | 8)
    said = properties(*[b"\x26" + text(name) + text("v") for name in ("b", "a", "b")])
    for flags, first_byte in ((0x0E, 0x32), (0x2E, 0x33), (0x36, 0x35)):
        client = await opened(address)
        await client.ask(connect("c", flags=flags, payload=said + text("will/c") + text("gone")))
        client.vanish()
        first, body = await witness.packet()
        assert first == first_byte
        assert body.endswith(said + b"gone")
    late = await connected(address)
    await late.subscribed("will/c", 2)
    assert (await late.packet())[0] == 0x35


@with_door
async def test_a_will_waits_no_longer_than_its_session(address: str) -> None:
    """[MQTT-3.1.2-8], [MQTT-3.1.2-10]: who begins anew has ended the session, and its will is published, once."""
    witness = await connected(address)
    await witness.subscribed("will")
    delay = properties(b"\x18" + (100).to_bytes(4, "big"))
    client = await opened(address)
    await client.ask(connect("c", flags=4, extra=LASTING, payload=delay + text("will") + text("gone")))
    client.vanish()
    assert await witness.is_silent()
    await back(address, "c", flags=2)
    assert await witness.message() == ("will", b"gone")
    assert await witness.is_silent()


@with_door
async def test_a_client_that_wants_no_explanations_gets_none_with_acknowledgements(address: str) -> None:
    """[MQTT-3.1.2-29], [MQTT-3.4.2-2], [MQTT-3.9.2-1]: acknowledgements have codes and no texts at all."""
    client = await connected(address, extra=properties(b"\x17\0"))
    assert await client.ask(publish("$x", b"", 1, 1)) == (0x40, short(1) + b"\x90")
    assert await client.ask(publish("$x", b"", 2, 2)) == (0x50, short(2) + b"\x90")
    assert await client.ask(packet(0x62, short(9))) == (0x70, short(9) + b"\x92")
    assert await client.ask(subscribe("a#")) == (0x90, short(1) + b"\0\x8f")
    assert await client.ask(packet(0xA2, short(3) + b"\0" + text("t"))) == (0xB0, short(3) + b"\0\x11")


# Publishing.


@with_door
async def test_marks_of_duplicates_and_of_retained_messages_are_not_handed_on(address: str) -> None:
    """[MQTT-3.3.1-3], [MQTT-3.3.1-8], [MQTT-4.3.1-1], [MQTT-4.3.2-2]."""
    reader, writer = await connected(address), await connected(address)
    await reader.subscribed("t", 1)
    await writer.ask(publish("t", b"x", 1, 1, dup=True))
    assert (await reader.packet())[0] == 0x32
    late = await connected(address)
    await late.subscribed("t")
    assert await late.is_silent()


@with_door
async def test_an_empty_retained_message_is_handed_on_and_not_kept(address: str) -> None:
    """[MQTT-3.3.1-6], [MQTT-3.3.1-7]."""
    reader, writer = await connected(address), await connected(address)
    await reader.subscribed("t", 8)
    writer.send(publish("t", b"kept", retain=True), publish("t", b"", retain=True))
    assert [(await reader.packet())[1][-4:] for _ in range(2)] == [b"kept", text("t") + b"\0"]
    await writer.ask(PINGREQ)
    late = await connected(address)
    await late.subscribed("t")
    assert await late.is_silent()


@with_door
async def test_an_identifier_is_free_again_when_its_exchange_has_ended(address: str) -> None:
    """[MQTT-2.2.1-3] to [MQTT-2.2.1-5], [MQTT-4.3.2-5], [MQTT-4.3.3-9], [MQTT-4.3.3-12]."""
    reader, writer = await connected(address), await connected(address)
    await reader.subscribed("t")
    for payload in (b"1", b"2"):
        assert await writer.ask(publish("t", payload, 1, 7)) == (0x40, short(7))
    assert await writer.ask(publish("$x", b"", 2, 7)) == (0x50, short(7) + b"\x90")
    for payload in (b"3", b"4"):
        assert await writer.ask(publish("t", payload, 2, 7)) == (0x50, short(7))
        assert await writer.ask(packet(0x62, short(7))) == (0x70, short(7))
    assert [(await reader.message())[1] for _ in range(4)] == [b"1", b"2", b"3", b"4"]


@with_door
async def test_a_message_that_was_sent_stays_so_when_its_time_is_over(address: str) -> None:
    """[MQTT-4.3.3-7], [MQTT-4.3.3-13], [MQTT-4.4.0-1]."""
    reader, _ = await back(address, "r")
    writer = await connected(address)
    await reader.subscribed("t", 2)
    await writer.ask(publish("t", b"x", 2, 1, extra=properties(b"\x02" + (1).to_bytes(4, "big"))))
    first, body = await reader.packet()
    reader.vanish()
    await asyncio.sleep(1.1)
    reader, _ = await back(address, "r")
    assert await reader.packet() == (first | 8, body)
    assert await reader.ask(packet(0x50, body[3:5])) == (0x62, body[3:5])
    reader.vanish()
    reader, _ = await back(address, "r")
    assert await reader.packet() == (0x62, body[3:5])


@with_door
async def test_nothing_is_sent_again_while_a_connection_lasts(address: str) -> None:
    """[MQTT-4.4.0-1], [MQTT-4.4.0-2]: nor what the client has refused, when it is back."""
    reader, _ = await back(address, "r")
    await reader.subscribed("t", 1)
    body = (await exchanged(reader, publish("t", b"x", 1, 1)))[3]
    assert await reader.is_silent(0.5)
    reader.send(packet(0x40, body[3:5] + b"\x97"))
    await reader.ask(PINGREQ)
    reader.vanish()
    reader, _ = await back(address, "r")
    assert await reader.is_silent()


# Subscribing.


@with_door
async def test_filters_are_taken_one_after_the_other_and_answered_together(address: str) -> None:
    """[MQTT-3.8.4-1], [MQTT-3.8.4-2], [MQTT-3.8.4-5] to [MQTT-3.8.4-7], [MQTT-3.10.4-4] to [MQTT-3.10.4-6]."""
    client = await connected(address)
    filters = b"".join(text(name) + bytes((qos,)) for name, qos in (("a", 0), ("b", 1), ("a", 2)))
    assert await client.ask(packet(0x82, short(9) + b"\0" + filters)) == (0x90, short(9) + b"\0\0\1\2")
    writer = await connected(address)
    await writer.ask(publish("a", b"x", 2, 1))
    assert (await client.packet())[0] == 0x34
    names = b"".join(map(text, ("a", "c", "b", "a")))
    assert await client.ask(packet(0xA2, short(8) + b"\0" + names)) == (0xB0, short(8) + b"\0\0\x11\0\x11")


@with_door
async def test_what_was_sent_is_completed_after_the_end_of_its_subscription(address: str) -> None:
    """[MQTT-3.10.4-2], [MQTT-3.10.4-3]."""
    reader, _ = await back(address, "r")
    await reader.subscribed("t", 2)
    body = (await exchanged(reader, publish("t", b"x", 1, 1)))[3]
    await reader.ask(packet(0xA2, short(3) + b"\0" + text("t")))
    await reader.ask(publish("t", b"y", 1, 2))
    reader.vanish()
    reader, _ = await back(address, "r")
    assert await reader.packet() == (0x3A, body)
    reader.send(packet(0x40, body[3:5]))
    assert await reader.is_silent()


@with_door
async def test_other_packets_flow_when_no_message_may(address: str) -> None:
    """[MQTT-3.3.4-10], [MQTT-4.9.0-1] to [MQTT-4.9.0-3]."""
    reader = await connected(address, extra=properties(b"\x21" + short(1)))
    await reader.subscribed("t", 1)
    for number in (1, 2):
        reader.send(publish("t", b"x", 1, number))
    kinds = sorted([(await reader.packet())[0] for _ in range(3)])
    assert kinds == [0x32, 0x40, 0x40]
    assert await reader.ask(PINGREQ) == PINGRESP
    assert await reader.subscribed("other") == 0
    reader.send(publish("other", b"y"))
    # With QoS 0 there is no quota, but order: it waits behind the message that has come before it.
    assert await reader.is_silent()
    reader.send(packet(0x40, short(1)))
    assert sorted([(await reader.packet())[0] for _ in range(2)]) == [0x30, 0x32]


# Ending.


@with_door
async def test_nothing_counts_after_a_farewell(address: str) -> None:
    """[MQTT-3.14.4-1], [MQTT-3.14.4-2]: and the server says nothing more, and closes."""
    witness = await connected(address)
    await witness.subscribed("#")
    client = await connected(address)
    client.send(DISCONNECT, publish("t", b"x"), PINGREQ)
    assert await client.end() == b""
    assert await witness.is_silent()


@with_door
async def test_a_farewell_of_the_server_says_nothing_of_sessions_and_fits(address: str) -> None:
    """[MQTT-3.14.2-2], [MQTT-3.14.2-3], [MQTT-4.13.1-1], [MQTT-4.13.2-1]."""
    client = await connected(address, "c", extra=properties(b"\x27" + (20).to_bytes(4, "big")))
    client.send(bytes.fromhex("3600"))
    assert await client.end() == bytes.fromhex("e00181")
    client = await connected(address)
    client.send(bytes.fromhex("3600"))
    ending = await client.end()
    assert ending[:1] == b"\xe0"
    assert ending[2:5:2] == b"\x81\x1f"  # the reason, and a text as the only property
    assert len(ending) == 2 + ending[1]


# MQTT 3.1.1.


def old_connect(client_id: str, flags: int = 0) -> bytes:
    return connect(client_id, version=4, flags=flags)


@with_door
async def test_sessions_of_3_1_1_are_kept_until_a_clean_one(address: str) -> None:
    """3.1.1: [MQTT-3.1.2-4] to [MQTT-3.1.2-7], [MQTT-3.2.2-1] to [MQTT-3.2.2-3]."""
    client = await opened(address)
    assert await client.ask(old_connect("c")) == (0x20, b"\0\0")
    await client.ask(subscribe("t", 1, extra=None))
    await client.ask(publish("kept", b"x", 1, 1, retain=True, extra=None))
    client.vanish()
    writer = await connected(address)
    await writer.ask(publish("t", b"missed", 1, 1))
    client = await opened(address)
    assert await client.ask(old_connect("c")) == (0x20, b"\1\0")
    assert (await client.packet())[1].endswith(b"missed")
    client.vanish()
    client = await opened(address)
    assert await client.ask(old_connect("c", flags=2)) == (0x20, b"\0\0")
    assert await client.is_silent()
    await client.ask(subscribe("kept", 0, extra=None))
    assert await client.packet() == (0x31, text("kept") + b"x")


@pytest.mark.parametrize(
    "data",
    [
        "3600",  # [MQTT-3.3.1-4]
        "8006 0001 0001 74 00",  # [MQTT-3.8.1-1]
        "8206 0001 0001 74 04",  # [MQTT-3.8.3-4]
        "8202 0001",  # [MQTT-3.8.3-3]
        "a005 0001 0001 74",  # [MQTT-3.10.1-1]
        "a202 0001",  # [MQTT-3.10.3-2]
        "e100",  # [MQTT-3.14.1-1]
        "f000",  # a packet that only MQTT 5 has
        "3205 0001 74 0000",  # [MQTT-2.3.1-1]
        "3004 0002 c328",  # [MQTT-1.5.3-1]
        "3003 0001 00",  # [MQTT-1.5.3-2]
        "3003 0001 2b",  # [MQTT-3.3.2-2]
        "6002 0001",  # [MQTT-3.6.1-1], [MQTT-2.2.2-2]
    ],
)
def test_whoever_breaks_3_1_1_is_cut_off_without_a_word(data: str) -> None:
    """3.1.1: [MQTT-4.8.0-1]; and everybody else goes on."""

    async def breaking(address: str) -> None:
        other, client = await connected(address), await opened(address)
        await client.ask(old_connect("c", flags=2))
        client.send(bytes.fromhex(data))
        assert await client.end() == b""
        assert await other.ask(PINGREQ) == PINGRESP

    with_door(breaking)()


@with_door
async def test_a_connect_of_3_1_1_that_is_none_is_not_answered(address: str) -> None:
    """3.1.1: [MQTT-3.1.2-3], [MQTT-3.1.4-1], [MQTT-3.2.2-5], [MQTT-3.2.2-6]."""
    for flags in (0x03, 0x42, 0x1E, 0x22):
        client = await opened(address)
        client.send(old_connect("c", flags=flags))
        assert await client.end() == b""
    client = await opened(address)
    client.send(connect("c", version=3, flags=2, extra=b""))
    assert (await client.end())[:1] == b"\x20"
