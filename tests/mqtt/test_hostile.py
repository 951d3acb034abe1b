"""Hostile clients at a door: whatever they say costs them their connection, and nobody else anything."""

from __future__ import annotations

import asyncio
from typing import Any

import antiphon
from antiphon.torture.hostile.mqtt_inputs import CONVERSATIONS, MqttMutator, why_not_served
from tests.mqtt.doors import doors
from tests.mqtt.raw_client import opened

INPUTS = 600


def test_changed_conversations_end_in_nothing_but_their_own_connection() -> None:
    async def attack(address: str, data: bytes) -> None:
        client = await opened(address)
        client.send(data)
        await client.is_silent(0.02)
        client.vanish()

    async def run() -> None:
        failures: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        async with doors(2) as (_, (door, other)):
            mutator = MqttMutator(1)
            kinds: set[str] = set()
            for _ in range(INPUTS // 50):
                drawn = [mutator.input() for _ in range(50)]
                kinds |= {kind for kind, _ in drawn}
                await asyncio.gather(*(attack(door.address, data) for _, data in drawn))
            assert len(kinds) == 6
            for each in (door, other):
                assert await why_not_served(each.address) == ""
            await asyncio.sleep(0.05)
            assert door.connections == 0
        assert failures == []

    antiphon.run(run())


def test_the_conversations_are_good_ones_before_they_are_changed() -> None:
    async def run() -> None:
        async with doors() as (_, (door,)):
            for conversation in CONVERSATIONS:
                client = await opened(door.address)
                client.send(conversation[0])
                answer = await client._reader.read(2)
                assert (answer[:1] == b"\x20") == (conversation[0][0] == 0x10)

    antiphon.run(run())


def test_a_door_that_serves_nobody_is_found() -> None:
    async def run() -> None:
        async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"\x20\x03\0\0\0")
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        assert "not served" in await why_not_served(f"127.0.0.1:{port}")
        server.close()

    antiphon.run(run())
