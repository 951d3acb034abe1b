"""Geo topics on live nodes: publish at a point, subscribe to an area."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import antiphon
from antiphon.kernel.errors import UsageError
from antiphon.regions import Area, Point, Regions, RegionSubscription

BERLIN = Area(south=52.3, west=13.0, north=52.7, east=13.8)
PATIENCE_SECONDS = 90


async def first(subscription: RegionSubscription, count: int) -> list[tuple[Point, bytes]]:
    """The next messages, with their points."""
    found = []
    async for message in subscription:
        found.append((Regions.point_of(message), message.value))
        if len(found) == count:
            break
    return found


@asynccontextmanager
async def two_nodes() -> AsyncIterator[tuple[antiphon.Node, antiphon.Node]]:
    async with antiphon.start() as one, antiphon.start(join=[one.address]) as other:
        yield one, other


def test_a_subscriber_gets_what_is_published_in_its_area_and_nothing_else() -> None:
    async def run() -> None:
        async with two_nodes() as (one, other), antiphon.connect(other.address) as client:
            cars, watched = Regions(one, "cars", level=8), Regions(client, "cars", level=8)
            async with watched.subscribe(BERLIN) as berlin:
                for latitude, longitude, value in (
                    (48.1, 11.6, b"Munich"),
                    (52.52, 13.4, b"Mitte"),
                    (52.52, 14.0, b"east of the area, in one of its cells"),
                    (52.4, 13.1, b"Potsdam"),
                    (52.52, 13.4, b"Mitte again"),
                ):
                    await cars.publish(latitude, longitude, value, order="causal", headers={"kind": b"car"})
                found = await asyncio.wait_for(first(berlin, 3), PATIENCE_SECONDS)
            points = {value: point for point, value in found}
            assert points == {
                b"Mitte": Point(52.52, 13.4),
                b"Mitte again": Point(52.52, 13.4),
                b"Potsdam": Point(52.4, 13.1),
            }
            in_one_cell = [value for _, value in found if value.startswith(b"Mitte")]
            assert in_one_cell == [b"Mitte", b"Mitte again"]
            assert cars.topic_at(52.52, 13.4) == cars.topic_at(52.52, 14.0)
            assert berlin.outside <= 1

    antiphon.run(run())


def test_what_arrives_outside_of_the_area_is_counted() -> None:
    async def run() -> None:
        async with antiphon.start() as node:
            cars = Regions(node, "cars", level=3)
            async with cars.subscribe(BERLIN, most=1) as berlin:
                assert len(berlin.patterns) == 1
                await cars.publish(50.1, 8.7, b"Frankfurt")
                await cars.publish(52.5, 13.4, b"Berlin")
                assert await asyncio.wait_for(first(berlin, 1), PATIENCE_SECONDS) == [(Point(52.5, 13.4), b"Berlin")]
                assert berlin.outside == 1

    antiphon.run(run())


def test_iterating_ends_when_the_subscription_is_closed() -> None:
    async def run() -> None:
        async with antiphon.start() as node:
            berlin = await Regions(node, "cars").subscribe(BERLIN).ready()
            reading = asyncio.create_task(first(berlin, 1))
            await asyncio.sleep(0.05)
            await berlin.close()
            assert await asyncio.wait_for(reading, PATIENCE_SECONDS) == []

    antiphon.run(run())


def test_a_message_without_a_point_is_an_error_that_names_its_topic() -> None:
    async def run() -> None:
        async with antiphon.start() as node:
            cars = Regions(node, "cars", level=2)
            async with cars.subscribe(BERLIN) as berlin:
                await node.publish(cars.topic_at(52.5, 13.4), b"where?")
                with pytest.raises(UsageError, match=r"a message on 'cars\.3\.2' has no point"):
                    await asyncio.wait_for(first(berlin, 1), PATIENCE_SECONDS)

    antiphon.run(run())
