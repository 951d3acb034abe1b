"""Sessions that move: a client goes on at another door, and the judge is what the client itself has seen."""

from __future__ import annotations

import asyncio

import pytest

import antiphon
from antiphon.mqtt import moving
from tests.mqtt.doors import doors, settled
from tests.mqtt.raw_client import RawClient, connect, connected, opened, packet, properties, publish, short

LASTING = properties(b"\x11" + (600).to_bytes(4, "big"))


async def back(address: str, flags: int = 0, client_id: str = "r") -> tuple[RawClient, int]:
    """The client connects; whether there is a session."""
    client = await opened(address)
    first, body = await client.ask(connect(client_id, flags=flags, extra=LASTING))
    assert (first, body[1]) == (0x20, 0), (first, body)
    return client, body[0]


def test_a_client_gets_at_another_node_what_it_missed() -> None:
    async def run() -> None:
        async with doors(3) as (_, served):
            reader, _ = await back(served[0].address)
            await reader.subscribed("t/#", 1, properties(b"\x0b\x07"))
            reader.vanish()
            writer = await connected(served[2].address)
            for number in range(20):
                await writer.ask(publish("t/a", b"%02d" % number, 1, number + 1))
            reader, was_there = await back(served[1].address)
            assert was_there
            got = [await reader.packet() for _ in range(20)]
            assert [body[-2:] for _, body in got] == [b"%02d" % number for number in range(20)]
            assert all(first == 0x32 and b"\x0b\x07" in body for first, body in got)
            await writer.ask(publish("t/a", b"20", 1, 50))
            assert (await reader.packet())[1][-2:] == b"20"
            assert await reader.is_silent()
            # It is at one door alone, with all that belongs to it.
            await settled()
            assert [len(door._sessions) for door in served] == [0, 1, 1]
            left = {pattern.pattern for pattern in served[0]._live.subscriptions._ready}
            assert not left & {"t.>", "t"}

    antiphon.run(run())


def test_what_is_under_way_goes_on_with_its_identifiers_in_both_directions() -> None:
    """What was received with QoS 2 is not published again, and what was sent is not shown again."""

    async def run() -> None:
        async with doors(2) as (_, served):
            witness, writer = await connected(served[0].address), await connected(served[0].address)
            await witness.subscribed("from/r")
            reader, _ = await back(served[0].address)
            await reader.subscribed("to/r", 2)
            assert await reader.ask(publish("from/r", b"once", 2, 9)) == (0x50, short(9))
            assert await witness.message() == ("from/r", b"once")
            for number in (1, 2):
                await writer.ask(publish("to/r", b"%d" % number, 2, number))
            one, two = await reader.packet(), await reader.packet()
            await reader.ask(packet(0x50, one[1][6:8]))
            reader.vanish()
            await settled()
            reader, was_there = await back(served[1].address)
            assert was_there
            assert await reader.packet() == (0x62, one[1][6:8])
            assert await reader.packet() == (two[0] | 8, two[1])
            assert await reader.ask(publish("from/r", b"once", 2, 9, dup=True)) == (0x50, short(9))
            assert await reader.ask(packet(0x62, short(9))) == (0x70, short(9))
            assert await witness.is_silent()
            await writer.ask(publish("to/r", b"3", 2, 3))
            three = await reader.packet()
            assert three[1][6:8] not in (one[1][6:8], two[1][6:8])

    antiphon.run(run())


class Traveller:
    """A good client, which remembers across its connections what a client must, and counts what it shows."""

    def __init__(self) -> None:
        self.shown: list[int] = []
        self.held: set[bytes] = set()

    async def take(self, client: RawClient, until: int) -> None:
        """Take messages on ``t`` until so many were shown."""
        while len(self.shown) < until:
            first, body = await client.packet()
            if first == 0x62:
                self.held.discard(body[:2])
                client.send(packet(0x70, body[:2]))
                continue
            identifier, number = body[3:5], int(body[6:])
            if first & 4:
                client.send(packet(0x50, identifier))
                if identifier in self.held:
                    continue
                self.held.add(identifier)
            else:
                client.send(packet(0x40, identifier))
            self.shown.append(number)


@pytest.mark.parametrize("qos", [1, 2])
def test_a_client_that_vanishes_from_node_after_node_misses_nothing(qos: int) -> None:
    """With QoS 2 everything comes once and in order; with QoS 1 what was not acknowledged comes again."""

    async def run() -> None:
        async with doors(3) as (_, served):
            writer, traveller, count = await connected(served[2].address), Traveller(), 400
            reader, _ = await back(served[0].address)
            await reader.subscribed("t", qos)
            await settled()

            async def write() -> None:
                for number in range(count):
                    await writer.ask(publish("t", b"%d" % number, 2, number + 1))
                    await writer.ask(packet(0x62, short(number + 1)))

            writing = asyncio.ensure_future(write())
            for stop, place in [(50, 1), (130, 2), (131, 0), (200, 2), (300, 1)]:
                await traveller.take(reader, stop)
                reader.vanish()
                reader, was_there = await back(served[place].address)
                assert was_there
            # With QoS 1 some came twice, so it goes on until the last one is there.
            while count - 1 not in traveller.shown:
                await traveller.take(reader, len(traveller.shown) + 1)
            await writing
            if qos == 2:
                assert traveller.shown == list(range(count))
            firsts = list(dict.fromkeys(traveller.shown))
            assert firsts == list(range(count))

    antiphon.run(run())


def test_a_door_that_closes_gives_its_sessions_away() -> None:
    async def run() -> None:
        async with doors(2) as (_, served):
            reader, _ = await back(served[0].address)
            await reader.subscribed("t", 1)
            reader.vanish()
            writer = await connected(served[1].address)
            await writer.ask(publish("t", b"before", 1, 1))
            await settled()
            await served[0].close()
            await writer.ask(publish("t", b"after", 1, 2))
            reader, was_there = await back(served[1].address)
            assert was_there
            assert [(await reader.packet())[1][-5:] for _ in range(2)] == [b"efore", b"after"]

    antiphon.run(run())


def test_a_client_is_connected_to_one_node_at_a_time() -> None:
    """[MQTT-3.1.4-3], across nodes: the later connection counts, also with a clean start."""

    async def run() -> None:
        async with doors(2) as (_, served):
            for flags, was_expected in ((0, 1), (2, 0)):
                first, _ = await back(served[0].address)
                await settled()
                second, was_there = await back(served[1].address, flags)
                assert was_there == was_expected
                assert (await first.end())[2] == 0x8E
                second.vanish()
                await settled()

    antiphon.run(run())


def test_sessions_of_a_node_that_failed_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "STEP_SECONDS", 0.3)

    async def run() -> None:
        async with doors(2) as (nodes, served):
            reader, _ = await back(served[0].address)
            await reader.subscribed("t", 1)
            await settled()
            await nodes[0]._live.abandon()
            reader, was_there = await back(served[1].address)
            assert not was_there
            assert await reader.subscribed("t", 1) == 1
            await reader.ask(packet(0xC0))

    antiphon.run(run())


def test_a_will_is_not_published_for_a_client_that_goes_on_elsewhere_in_time() -> None:
    async def run() -> None:
        async with doors(2) as (_, served):
            witness = await connected(served[0].address)
            await witness.subscribed("will")
            client = await opened(served[0].address)
            will = properties(b"\x18\0\0\0\1") + b"\0\4will" + b"\0\4gone"
            await client.ask(connect("r", flags=4, extra=LASTING, payload=will))
            client.vanish()
            await settled()
            await back(served[1].address)
            assert await witness.is_silent(1.2)

    antiphon.run(run())
