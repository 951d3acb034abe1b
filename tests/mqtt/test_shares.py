"""Shared subscriptions, overlapping ones and aliases: clients made of bytes at the doors of a cluster."""

from __future__ import annotations

import asyncio
from collections import Counter

import antiphon
from tests.mqtt.doors import doors, settled, with_door
from tests.mqtt.raw_client import (
    DISCONNECT,
    RawClient,
    connect,
    connected,
    opened,
    packet,
    properties,
    publish,
    short,
    text,
)

FOREVER = properties(b"\x11" + (600).to_bytes(4, "big"))


async def payloads(*clients: RawClient, count: int) -> list[list[bytes]]:
    """The payloads of the messages with QoS 0 that each client gets, until all have so many and there is silence."""
    found: list[list[bytes]] = [[] for _ in clients]

    async def read(client: RawClient, into: list[bytes]) -> None:
        while True:
            into.append((await client.message())[1])

    reading = [asyncio.create_task(read(*each)) for each in zip(clients, found, strict=True)]
    while sum(map(len, found)) < count and not any(each.done() for each in reading):
        await asyncio.sleep(0.01)
    await settled()
    for each in reading:
        each.cancel()
    for ended in await asyncio.gather(*reading, return_exceptions=True):
        assert isinstance(ended, asyncio.CancelledError), ended
    return found


# Groups.


@with_door
async def test_each_message_of_a_group_goes_to_one_member(address: str) -> None:
    """[MQTT-4.8.2-1] to [MQTT-4.8.2-3]."""
    one, two, alone, writer = [await connected(address) for _ in range(4)]
    for member in (one, two):
        await member.subscribed("$share/g/t/#", 2)
    await alone.subscribed("$share/other/t/#")
    writer.send(*[publish("t/a", b"%d" % number) for number in range(40)])
    got = await payloads(one, two, alone, count=80)
    assert sorted(got[0] + got[1], key=int) == [b"%d" % number for number in range(40)]
    assert [len(each) for each in got] == [20, 20, 40]
    assert got[0] == sorted(got[0], key=int)


@with_door
async def test_members_have_their_own_qos_identifiers_and_nothing_retained(address: str) -> None:
    """[MQTT-4.8.2-3]; retained messages are for the other subscriptions."""
    one, writer = await connected(address), await connected(address)
    await writer.ask(publish("t", b"kept", 1, 1, retain=True))
    assert await one.subscribed("$share/g/t", 1, properties(b"\x0b\x05")) == 1
    await writer.ask(publish("t", b"new", 2, 2))
    first, body = await one.packet()
    assert first == 0x32
    assert body[5:] == b"\x02\x0b\x05new"


@with_door
async def test_names_of_groups_without_sense_are_refused(address: str) -> None:
    """[MQTT-4.8.2-1], [MQTT-4.8.2-2], [MQTT-3.8.3-4]."""
    client = await connected(address)
    for bad in ("$share//t", "$share/g", "$share/g/", "$share/a+/t", "$share/#/t", "$share/g/a#"):
        assert await client.subscribed(bad) == 0x8F, bad
    client.send(packet(0x82, short(1) + b"\0" + text("$share/g/t") + b"\x04"))
    assert (await client.end())[2] == 0x82


@with_door
async def test_what_a_member_has_not_got_goes_to_the_others_when_its_session_ends(address: str) -> None:
    """[MQTT-4.8.2-5]: but not a message with QoS 2 that was on its way."""
    leaving = await connected(address, extra=properties(b"\x21" + short(1)))
    await leaving.subscribed("$share/g/t", 2)
    writer = await connected(address)
    for number in range(3):
        await writer.ask(publish("t", b"%d" % number, 2, number + 1))
    await leaving.packet()
    staying = await connected(address)
    await staying.subscribed("$share/g/t", 0)
    leaving.vanish()
    (got,) = await payloads(staying, count=2)
    assert sorted(got) == [b"1", b"2"]


@with_door
async def test_a_member_that_is_back_gets_what_it_was_sent(address: str) -> None:
    """[MQTT-4.8.2-4], [MQTT-4.8.2-6]."""
    one = await connected(address, "one", extra=FOREVER)
    await one.subscribed("$share/g/t", 2)
    writer = await connected(address)
    await writer.ask(publish("t", b"x", 2, 1))
    first, body = await one.packet()
    one.vanish()
    two = await connected(address)
    await two.subscribed("$share/g/t", 2)
    one = await opened(address)
    assert (await one.ask(connect("one", flags=0, extra=FOREVER)))[1][0] == 1
    assert await one.packet() == (first | 8, body)
    one.send(packet(0x50, body[3:5] + b"\x80"))  # It refuses the message.
    assert await two.is_silent(0.3)


def test_a_group_spans_the_doors_and_outlives_the_one_that_owns_it() -> None:
    async def run() -> None:
        async with doors(3) as (_, served):
            members = [await connected(door.address) for door in served]
            for member in members:
                await member.subscribed("$share/g/t")
            await settled()
            writer = await connected(served[2].address)
            writer.send(*[publish("t", b"%d" % number) for number in range(30)])
            got = await payloads(*members, count=30)
            assert sorted([each for part in got for each in part], key=int) == [b"%d" % n for n in range(30)]
            assert [len(each) for each in got] == [10, 10, 10]
            await served[0].close()
            await settled()
            writer.send(*[publish("t", b"%d" % number) for number in range(30)])
            got = await payloads(*members[1:], count=30)
            assert Counter(each for part in got for each in part) == Counter(b"%d" % n for n in range(30))

    antiphon.run(run())


def test_a_member_that_leaves_the_door_of_the_owner_leaves_the_group_to_the_others() -> None:
    async def run() -> None:
        async with doors(2) as (_, served):
            first, second = [await connected(door.address) for door in served]
            await first.subscribed("$share/g/t")
            await second.subscribed("$share/g/t")
            await settled()
            first.send(packet(0xA2, short(1) + b"\0" + text("$share/g/t")))
            await first.packet()
            await settled()
            first.send(*[publish("t", b"%d" % number) for number in range(10)])
            assert await payloads(second, count=10) == [[b"%d" % number for number in range(10)]]
            second.send(DISCONNECT)
            await second.end()
            await settled()
            assert [door._shares._groups for door in served] == [{}, {}]

    antiphon.run(run())


# Overlapping subscriptions.


@with_door
async def test_a_message_that_several_subscriptions_match_comes_once_for_all_of_them(address: str) -> None:
    """[MQTT-3.3.4-2] to [MQTT-3.3.4-5]."""
    reader, writer = await connected(address), await connected(address)
    await reader.subscribed("a/b", 0, properties(b"\x0b\x01"))
    await reader.subscribed("a/+", 1, properties(b"\x0b\x02"))
    await reader.subscribed("#", 0)
    for number in range(3):
        await writer.ask(publish("a/b", b"%d" % number, 2, number + 1))
        first, body = await reader.packet()
        assert (first, body[7:]) == (0x32, b"\x04\x0b\x01\x0b\x02" + b"%d" % number)
    assert await reader.is_silent()
    ending = packet(0xA2, short(3) + b"\0" + text("a/b"))
    await reader.ask(ending)
    await writer.ask(publish("a/b", b"more", 2, 9))
    assert (await reader.packet())[1][7:] == b"\x02\x0b\x02more"


# Aliases and keep-alive.


@with_door
async def test_the_server_abbreviates_topics_for_clients_that_take_aliases(address: str) -> None:
    """[MQTT-3.1.2-26], [MQTT-3.1.2-27], [MQTT-3.3.2-8], [MQTT-3.3.2-11]."""
    reader, writer = await connected(address, extra=properties(b"\x22" + short(1))), await connected(address)
    await reader.subscribed("#")
    got = []
    for topic, payload in [("a", b"1"), ("a", b"2"), ("b", b"3"), ("a", b"4")]:
        writer.send(publish(topic, payload))
        got.append((await reader.packet())[1])
    alias = properties(b"\x23" + short(1))
    assert got == [text("a") + alias + b"1", text("") + alias + b"2", text("b") + b"\x003", text("") + alias + b"4"]


@with_door
async def test_a_client_that_would_be_silent_for_long_is_told_to_speak_sooner(address: str) -> None:
    """[MQTT-3.2.2-21], [MQTT-3.2.2-22]."""
    client = await opened(address)
    assert b"\x13\x00\x3c" in (await client.ask(connect("c", keep_alive=120)))[1]
    client = await opened(address)
    assert b"\x13\x00" not in (await client.ask(connect("d", keep_alive=60)))[1]
