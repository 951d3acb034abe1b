"""``antiphon node --near``: which identifier a newcomer asks for, after it has measured how far the others are.

It asks a node for the others, and opens a connection to each and ends it. Opening takes a round trip. Where that does
not work, the node joins without a wish: identifiers by place are an improvement and no condition.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

import msgspec

import antiphon
from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.errors import AntiphonError, UsageError
from antiphon.node.settings import Settings
from antiphon.placement.newcomers import nearest_identifier
from antiphon.runtime.logging import logger
from antiphon.transport.links import split_address

AT_A_TIME: Final = 16
TRIALS: Final = 3
ANSWER_SECONDS: Final = 3.0

log = logger("near")


async def with_near_identifier(settings: Settings) -> Settings:
    """The settings with the wish for an identifier next to near nodes, if there are others."""
    if not FABRICS[settings.fabric].has_identifier_trees:
        raise UsageError(f"--near chooses an identifier on the cube; a {settings.fabric} has other neighbours")
    if not settings.join:
        return settings
    try:
        async with asyncio.timeout(2 * ANSWER_SECONDS):
            async with antiphon.connect(
                settings.join, cluster=settings.cluster, reconnect_seconds=0, tls=settings.tls()
            ) as client:
                status = await client.status()
    except (AntiphonError, TimeoutError) as error:
        log.warning("no node told the others; joining without measuring", reason=str(error))
        return settings
    addresses = {int(peer["node"]): str(peer["address"]) for peer in status["peers"]}
    addresses[int(status["node"])] = str(status["address"])
    round_trips_us = await measured(addresses)
    if not round_trips_us:
        return settings
    wish = nearest_identifier(round_trips_us, set(addresses) - round_trips_us.keys())
    log.info("measured how far others are", nodes=len(round_trips_us), identifier=wish)
    return msgspec.structs.replace(settings, identifier=wish)


async def measured(addresses: dict[int, str]) -> dict[int, int]:
    """The least round trip in microseconds to each node that answers."""
    gate = asyncio.Semaphore(AT_A_TIME)

    async def measure(address: str) -> int | None:
        async with gate:
            try:
                return min([await round_trip_us(address) for _ in range(TRIALS)])
            except (OSError, TimeoutError):
                return None

    found = await asyncio.gather(*(measure(address) for address in addresses.values()))
    return {node: trip for node, trip in zip(addresses, found, strict=True) if trip is not None}


async def round_trip_us(address: str) -> int:
    """How long it takes to open a connection, which is a round trip."""
    host, port = split_address(address)
    began = time.perf_counter()
    async with asyncio.timeout(ANSWER_SECONDS):
        _, writer = await asyncio.open_connection(host, port)
    took = time.perf_counter() - began
    writer.close()
    return max(1, round(took * 1_000_000))
