"""Clients at the doors of a cluster, made of bytes: what MQTT promises, and what breaks a connection.

The number of a statement of the specification of MQTT 5 stands where a test shows that statement.
"""

from __future__ import annotations

import asyncio

import pytest

import antiphon
from antiphon.mqtt import MqttDoor, serve
from tests.mqtt.doors import doors, with_door
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

# Connecting.


@with_door
async def test_a_client_without_a_name_gets_one_and_hears_the_limits(address: str) -> None:
    """[MQTT-3.1.3-6], [MQTT-3.2.2-16]."""
    client = await opened(address)
    first, body = await client.ask(connect())
    assert first == 0x20
    assert body[:2] == b"\0\0"
    assert b"auto-" in body
    assert bytes.fromhex("210400") in body  # a receive maximum of 1,024


@with_door
async def test_the_first_packet_is_a_connect_and_there_is_no_other(address: str) -> None:
    """[MQTT-3.1.0-1], [MQTT-3.1.0-2]."""
    client = await opened(address)
    client.send(PINGREQ)
    assert await client.end() == b""
    client = await connected(address, "c")
    assert (await client.ask(connect("c")))[0] == 0xE0
    assert await client.end() == b""


@with_door
async def test_other_versions_are_refused(address: str) -> None:
    """[MQTT-3.1.2-2]; 3.1.1: return code 1."""
    client = await opened(address)
    client.send(connect("c", version=6))
    answer = await client.end()
    assert answer[0] == 0x20
    assert answer[3] == 0x84


@with_door
async def test_mqtt_3_1_1_is_answered_in_its_own_words(address: str) -> None:
    client = await opened(address)
    assert await client.ask(connect("c", version=4)) == (0x20, b"\0\0")
    assert await client.ask(subscribe("t", 1, extra=None)) == (0x90, short(1) + b"\1")
    assert await client.ask(subscribe("$share/g#/t", 1, extra=None)) == (0x90, short(1) + b"\x80")
    assert await client.ask(publish("$t", b"x", 1, 3, extra=None)) == (0x40, short(3))
    assert await client.ask(packet(0xA2, short(2) + text("t"))) == (0xB0, short(2))
    nameless = await opened(address)
    assert await nameless.ask(connect("", version=4, flags=0)) == (0x20, b"\0\2")


@with_door
async def test_there_is_no_enhanced_authentication(address: str) -> None:
    """[MQTT-4.12.0-1]: the reason code says so."""
    client = await opened(address)
    client.send(connect("c", extra=properties(b"\x15" + text("SCRAM"))))
    answer = await client.end()
    assert answer[0] == 0x20
    assert answer[3] == 0x8C


@with_door
async def test_pings_are_answered_and_silence_ends_the_connection(address: str) -> None:
    """[MQTT-3.12.4-1], [MQTT-3.1.2-22]."""
    client = await opened(address)
    await client.ask(connect("c", keep_alive=1))
    assert await client.ask(PINGREQ) == PINGRESP
    ending = await client.end()  # after one and a half seconds
    assert ending[:1] == b"\xe0"
    assert ending[2] == 0x8D


@with_door
async def test_whoever_does_not_connect_is_cut_off_when_others_come(address: str) -> None:
    silent = await opened(address)
    for _ in range(300):
        last = await opened(address)
    assert await silent.end() == b""
    assert (await last.ask(connect()))[0] == 0x20


# Publishing and subscribing.


@with_door
async def test_each_qos_arrives_with_the_smaller_of_both(address: str) -> None:
    """[MQTT-3.8.4-8], [MQTT-4.3.1-1], [MQTT-4.3.2-4], [MQTT-4.3.3-8]."""
    reader, writer = await connected(address), await connected(address)
    assert await reader.subscribed("two/+", 2) == 2
    assert await reader.subscribed("one/+", 1) == 1
    writer.send(publish("two/a", b"0", 0))
    assert await reader.packet() == (0x30, text("two/a") + b"\x000")
    assert await writer.ask(publish("one/a", b"2", 2, 9)) == (0x50, short(9))
    first, body = await reader.packet()
    assert (first, body[-1:]) == (0x32, b"2")
    reader.send(packet(0x40, body[7:9]))
    assert await writer.ask(packet(0x62, short(9))) == (0x70, short(9))
    assert await writer.ask(publish("two/a", b"1", 1, 10)) == (0x40, short(10))
    assert (await reader.packet())[0] == 0x32


@with_door
async def test_a_message_with_qos_2_is_released_before_it_counts_as_received(address: str) -> None:
    """[MQTT-4.3.3-1] to [MQTT-4.3.3-13], at both ends."""
    reader, writer = await connected(address), await connected(address)
    await reader.subscribed("t", 2)
    writer.send(publish("t", b"x", 2, 1), publish("t", b"x", 2, 1, dup=True))
    # The identifier is in use until its PUBREC; a client that sends the message again before that breaks the protocol.
    assert (await writer.packet())[0] == 0xE0
    first, body = await reader.packet()
    identifier = body[3:5]
    assert first == 0x34
    assert await reader.ask(packet(0x50, identifier)) == (0x62, identifier)
    assert await reader.ask(packet(0x70, identifier) + PINGREQ) == PINGRESP


@with_door
async def test_a_message_that_comes_again_before_its_release_is_published_once(address: str) -> None:
    """[MQTT-4.3.3-10]."""
    reader, writer = await connected(address), await connected(address)
    await reader.subscribed("t")
    assert await writer.ask(publish("t", b"x", 2, 1)) == (0x50, short(1))
    assert await writer.ask(publish("t", b"x", 2, 1, dup=True)) == (0x50, short(1))
    assert await writer.ask(packet(0x62, short(1))) == (0x70, short(1))
    assert await writer.ask(publish("t", b"y", 2, 1)) == (0x50, short(1))
    assert [(await reader.message())[1] for _ in range(2)] == [b"x", b"y"]


@with_door
async def test_no_more_messages_are_sent_than_the_client_takes(address: str) -> None:
    """[MQTT-3.3.4-9]; in order, [MQTT-4.6.0-6]."""
    reader, writer = await connected(address, extra=properties(b"\x21" + short(2))), await connected(address)
    await reader.subscribed("t", 1)
    for number in range(4):
        await writer.ask(publish("t", b"%d" % number, 1, number + 1))
    one, two = await reader.packet(), await reader.packet()
    assert await reader.is_silent()
    reader.send(packet(0x40, one[1][3:5]), packet(0x40, two[1][3:5]))
    three, four = await reader.packet(), await reader.packet()
    assert [each[1][-1:] for each in (one, two, three, four)] == [b"0", b"1", b"2", b"3"]


@with_door
async def test_messages_longer_than_the_client_takes_are_left_out(address: str) -> None:
    """[MQTT-3.1.2-24], [MQTT-3.1.2-25]."""
    reader, writer = (
        await connected(address, extra=properties(b"\x27" + (60).to_bytes(4, "big"))),
        await connected(address),
    )
    await reader.subscribed("t", 1)
    await writer.ask(publish("t", b"x" * 100, 1, 1))
    await writer.ask(publish("t", b"short", 1, 2))
    assert (await reader.packet())[1][-5:] == b"short"


@with_door
async def test_a_client_may_leave_out_its_own_messages(address: str) -> None:
    """[MQTT-3.8.3-3]."""
    reader, writer = await connected(address), await connected(address)
    await reader.subscribed("t", 4)
    reader.send(publish("t", b"mine"))
    await asyncio.sleep(0.05)
    writer.send(publish("t", b"yours"))
    assert await reader.message() == ("t", b"yours")


@with_door
async def test_subscription_identifiers_and_properties_reach_the_subscriber(address: str) -> None:
    """[MQTT-3.3.4-3], [MQTT-3.3.2-17], [MQTT-3.3.2-15], [MQTT-3.3.2-16], [MQTT-3.3.2-20]."""
    reader, writer = await connected(address), await connected(address)
    await reader.subscribed("t", extra=properties(b"\x0b\x07"))
    said = [
        b"\x01\x01",
        b"\x03" + text("text/plain"),
        b"\x08" + text("answers"),
        b"\x09" + text(b"\0\1"),
        b"\x26" + text("b") + text("2"),
        b"\x26" + text("a") + text("1"),
        b"\x26" + text("b") + text("3"),
    ]
    writer.send(publish("t", b"hi", extra=properties(*said)))
    _, body = await reader.packet()
    assert all(each in body for each in said)
    assert body.index(said[4]) < body.index(said[5]) < body.index(said[6])
    assert b"\x0b\x07" in body


@with_door
async def test_topic_aliases_stand_for_names(address: str) -> None:
    """[MQTT-3.3.2-7], [MQTT-3.3.2-9], [MQTT-3.3.2-12]."""
    reader, writer = await connected(address), await connected(address)
    await reader.subscribed("long/name")
    alias = properties(b"\x23\0\1")
    writer.send(publish("long/name", b"1", extra=alias), publish("", b"2", extra=alias))
    assert [(await reader.packet())[1][-1:] for _ in range(2)] == [b"1", b"2"]
    writer.send(publish("", b"3", extra=properties(b"\x23\0\2")))
    assert (await writer.end())[:1] == b"\xe0"
    greedy = await connected(address)
    greedy.send(publish("t", b"", extra=properties(b"\x23\xff\0")))
    assert (await greedy.end())[2] == 0x94


@with_door
async def test_a_message_that_has_expired_is_not_sent(address: str) -> None:
    """[MQTT-3.3.2-5], [MQTT-3.3.2-6]."""
    reader, writer = (
        await connected(address, "r", extra=properties(b"\x11" + (60).to_bytes(4, "big"))),
        await connected(address),
    )
    await reader.subscribed("t", 1)
    reader.send(DISCONNECT)
    await reader.end()
    await writer.ask(publish("t", b"gone", 1, 1, extra=properties(b"\x02" + (1).to_bytes(4, "big"))))
    await writer.ask(publish("t", b"kept", 1, 2, extra=properties(b"\x02" + (100).to_bytes(4, "big"))))
    await asyncio.sleep(1.2)
    reader = await opened(address)
    assert (await reader.ask(connect("r", flags=0)))[1][0] == 1
    _, body = await reader.packet()
    assert body.endswith(b"kept")
    assert int.from_bytes(body[7:11], "big") < 100


@with_door
async def test_a_subscription_is_replaced_and_ended(address: str) -> None:
    """[MQTT-3.8.4-3], [MQTT-3.10.4-1], [MQTT-3.11.3-1]."""
    reader, writer = await connected(address), await connected(address)
    await reader.subscribed("t", 0)
    await reader.subscribed("t", 1)
    await writer.ask(publish("t", b"x", 1, 1))
    assert (await reader.packet())[0] == 0x32
    ending = packet(0xA2, short(3) + b"\0" + text("t") + text("u"))
    assert await reader.ask(ending) == (0xB0, short(3) + b"\0\0\x11")
    await writer.ask(publish("t", b"y", 1, 2))
    assert await reader.ask(PINGREQ) == PINGRESP


@with_door
async def test_filters_that_cannot_be_are_refused_one_by_one(address: str) -> None:
    """[MQTT-3.9.3-1], [MQTT-4.7.1-1]."""
    client = await connected(address)
    filters = [
        text("ok") + b"\1",
        text("a#") + b"\0",
        text("$share/g/t") + b"\0",
        text("$share/+/t") + b"\0",
        text("$mqtt/#") + b"\0",
        text("") + b"\0",
    ]
    first, body = await client.ask(packet(0x82, short(5) + b"\0" + b"".join(filters)))
    assert (first, body) == (0x90, short(5) + b"\0" + bytes((1, 0x8F, 0, 0x8F, 0x87, 0x8F)))


@with_door
async def test_topics_of_the_server_are_not_for_clients(address: str) -> None:
    """[MQTT-4.7.2-1]."""
    client = await connected(address)
    await client.subscribed("#")
    first, body = await client.ask(publish("$mqtt/retained", b"x", 1, 1))
    assert (first, body[:3]) == (0x40, short(1) + b"\x90")
    assert await client.ask(PINGREQ) == PINGRESP
    await client.subscribed("$SYS/broker/version")
    _, body = await client.packet()
    assert b"antiphon" in body


# Retained messages.


@with_door
async def test_the_last_retained_message_comes_to_whoever_subscribes(address: str) -> None:
    """[MQTT-3.3.1-5], [MQTT-3.3.1-6], [MQTT-3.3.1-9] to [MQTT-3.3.1-11]."""
    reader, writer = await connected(address), await connected(address)
    await writer.ask(publish("a/b", b"old", 1, 1, retain=True))
    await writer.ask(publish("a/b", b"new", 1, 2, retain=True))
    await reader.subscribed("a/+")
    assert await reader.packet() == (0x31, text("a/b") + b"\0new")
    await reader.subscribed("a/+", 0x10)  # only if it is a new subscription
    assert await reader.is_silent()
    await reader.subscribed("a/#", 0x20)  # not at all
    assert await reader.is_silent()
    await writer.ask(publish("a/b", b"", 1, 3, retain=True))
    other = await connected(address)
    await other.subscribed("#")
    assert await other.is_silent()


@with_door
async def test_a_message_keeps_its_retain_flag_where_that_is_asked_for(address: str) -> None:
    """[MQTT-3.3.1-12], [MQTT-3.3.1-13]."""
    plain, keeping, writer = await connected(address), await connected(address), await connected(address)
    await plain.subscribed("t")
    await keeping.subscribed("t", 8)
    writer.send(publish("t", b"x", retain=True))
    assert (await plain.packet())[0] == 0x30
    assert (await keeping.packet())[0] == 0x31


def test_all_doors_have_the_same_retained_messages() -> None:
    async def run() -> None:
        async with doors(2) as (nodes, served):
            writer = await connected(served[0].address)
            await writer.ask(publish("t", b"before", 1, 1, retain=True))
            async with antiphon.start(join=[nodes[0].address]) as late, serve(late, "127.0.0.1:0") as door:
                for each in (served[1], door):
                    await until_retained(each)
                    reader = await connected(each.address)
                    await reader.subscribed("#")
                    assert await reader.packet() == (0x31, text("t") + b"\0before")

    antiphon.run(run())


async def until_retained(door: MqttDoor) -> None:
    async with asyncio.timeout(60):
        while door.figures()["retained"] == 0:
            await asyncio.sleep(0.01)


# Sessions.


@with_door
async def test_a_session_outlives_its_connection(address: str) -> None:
    """[MQTT-3.1.2-5], [MQTT-3.1.2-6], [MQTT-4.4.0-1], [MQTT-4.4.0-2]; in MQTT 3.1.1 too."""
    reader, writer = await opened(address), await connected(address)
    assert await reader.ask(connect("r", version=4, flags=0)) == (0x20, b"\0\0")
    await reader.subscribed("t", 1, extra=None)
    await writer.ask(publish("t", b"one", 1, 1))
    first, one = await reader.packet()
    reader.vanish()
    await writer.ask(publish("t", b"two", 1, 2))
    reader = await opened(address)
    assert await reader.ask(connect("r", version=4, flags=0)) == (0x20, b"\1\0")
    assert await reader.packet() == (first | 8, one)  # again, as a duplicate
    assert (await reader.packet())[1].endswith(b"two")
    clean = await opened(address)
    reader.send(DISCONNECT)
    await reader.end()
    assert await clean.ask(connect("r", version=4, flags=2)) == (0x20, b"\0\0")


@with_door
async def test_a_session_ends_after_its_time(address: str) -> None:
    """[MQTT-3.1.2-23], [MQTT-4.1.0-2]."""
    client = await connected(address, "r", extra=properties(b"\x11" + (1).to_bytes(4, "big")))
    client.send(DISCONNECT)
    await client.end()
    await asyncio.sleep(1.3)
    client = await opened(address)
    assert (await client.ask(connect("r", flags=0)))[1][0] == 0


@with_door
async def test_another_connection_takes_a_session_over(address: str) -> None:
    """[MQTT-3.1.4-3]."""
    one = await connected(address, "c")
    await connected(address, "c")
    ending = await one.end()
    assert ending[0] == 0xE0
    assert ending[2] == 0x8E


# Wills.


def will(topic: str, payload: bytes, *parts: bytes) -> bytes:
    return properties(*parts) + text(topic) + text(payload)


@with_door
async def test_a_will_is_published_for_a_client_that_vanishes_and_not_after_a_farewell(address: str) -> None:
    """[MQTT-3.1.2-8], [MQTT-3.1.2-10], [MQTT-3.14.4-3]."""
    reader = await connected(address)
    await reader.subscribed("wills/#")
    for name in ("polite", "rude"):
        client = await opened(address)
        await client.ask(connect(name, flags=6, payload=will(f"wills/{name}", b"gone")))
        if name == "polite":
            client.send(DISCONNECT)
            await client.end()
        else:
            client.vanish()
    assert await reader.message() == ("wills/rude", b"gone")
    asking = await opened(address)
    await asking.ask(connect("asking", flags=6, payload=will("wills/asking", b"gone")))
    asking.send(bytes.fromhex("e00104"))
    assert await reader.message() == ("wills/asking", b"gone")


@with_door
async def test_a_will_waits_for_its_delay_and_not_for_a_client_that_is_back(address: str) -> None:
    """[MQTT-3.1.3-9]."""
    reader = await connected(address)
    await reader.subscribed("wills/#")
    delayed = connect(
        "c",
        flags=4,
        extra=properties(b"\x11" + (60).to_bytes(4, "big")),
        payload=will("wills/c", b"gone", b"\x18" + (1).to_bytes(4, "big")),
    )
    client = await opened(address)
    await client.ask(delayed)
    client.vanish()
    assert await reader.is_silent(0.4)
    client = await opened(address)
    await client.ask(delayed)
    assert await reader.is_silent(1.0)
    client.vanish()
    assert await reader.message() == ("wills/c", b"gone")


# What breaks a connection.


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (bytes.fromhex("30 04 0001 2b 00"), 0x90),
        (bytes.fromhex("f0 00"), 0x82),
        (bytes.fromhex("20 03 00 00 00"), 0x82),
        (bytes.fromhex("30 ff ff ff 7f"), 0x95),
        (publish("t", b"x", extra=properties(b"\x0b\x01")), 0x82),
        (publish("t", b"\xff", extra=properties(b"\x01\x01")), 0x99),
        (bytes.fromhex("e0 07 00 05 11 00000001"), 0x82),
    ],
)
def test_whoever_breaks_the_protocol_hears_why_and_hurts_nobody_else(data: bytes, reason: int) -> None:
    async def run() -> None:
        async with doors() as (_, (door,)):
            other, client = await connected(door.address), await connected(door.address)
            client.send(data)
            ending = await client.end()
            assert ending[0] == 0xE0
            assert ending[2] == reason
            assert await other.ask(PINGREQ) == PINGRESP

    antiphon.run(run())


# With Python programs.


def test_an_answer_at_another_node_is_never_ahead_of_its_question() -> None:
    async def run() -> None:
        async with doors(3) as (nodes, served):
            room = await nodes[2].subscribe("room.talk").ready()
            asking, answering = await connected(served[0].address), await connected(served[1].address)
            await answering.subscribed("room/talk")
            for number in range(50):
                asking.send(publish("room/talk", b"why %d" % number))
                assert (await answering.message())[1] == b"why %d" % number
                answering.send(publish("room/talk", b"because %d" % number))
                assert (await answering.message())[1] == b"because %d" % number
            heard: list[bytes] = []
            async for message in room:
                heard.append(message.value)
                if len(heard) == 100:
                    break
            assert heard == [b"%s %d" % (word, number) for number in range(50) for word in (b"why", b"because")]

    antiphon.run(run())


def test_programs_and_clients_understand_each_other() -> None:
    async def run() -> None:
        async with doors() as ((node,), (door,)):
            client = await connected(door.address)
            await client.subscribed("orders/#", 2)
            orders = await node.subscribe("orders.>").ready()
            await node.publish("orders.new", b"42", key="anna", headers={"from": b"web"})
            first, body = await client.packet()
            assert first == 0x34
            assert b"\x26" + text("from") + text("web") in body
            assert b"\x26" + text("antiphon-key") + text("anna") in body
            said = properties(
                b"\x26" + text("antiphon-order") + text("total"), b"\x26" + text("antiphon-key") + text("ben")
            )
            client.send(publish("orders/paid", b"43", extra=said))
            heard = [await anext(aiter(orders)) for _ in range(2)]
            assert [(each.topic, each.order, each.key) for each in heard] == [
                ("orders.new", "causal", b"anna"),
                ("orders.paid", "total", b"ben"),
            ]

    antiphon.run(run())


def test_an_order_that_there_is_not_is_refused() -> None:
    async def run() -> None:
        async with doors() as (_, (door,)):
            client = await connected(door.address)
            said = properties(b"\x26" + text("antiphon-order") + text("alphabetical"))
            first, body = await client.ask(publish("t", b"x", 1, 1, extra=said))
            assert (first, body[:3]) == (0x40, short(1) + b"\x83")

    antiphon.run(run())


async def flood(client: RawClient, count: int) -> None:
    client.send(*[publish("t", b"%d" % number) for number in range(count)])


@with_door
async def test_a_flood_arrives_in_order(address: str) -> None:
    reader, writer = await connected(address), await connected(address)
    await reader.subscribed("t")
    await flood(writer, 5_000)
    assert [(await reader.message())[1] for _ in range(5_000)] == [b"%d" % number for number in range(5_000)]


def test_a_client_that_takes_no_answer_is_left_alone() -> None:
    async def run() -> None:
        async with doors() as (_, (door,)):
            client = await opened(door.address)
            client.send(connect(extra=properties(b"\x27" + (5).to_bytes(4, "big"))))
            assert await client.end() == b""
            assert door.connections == 0

    antiphon.run(run())
