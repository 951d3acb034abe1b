"""Geo topics: publish at a point, subscribe to an area.

    from antiphon.regions import Area, Regions

    cars = Regions(node, "cars", level=8)
    await cars.publish(52.52, 13.40, b"free")
    async with cars.subscribe(Area(south=52.3, west=13.0, north=52.7, east=13.8)) as berlin:
        async for message in berlin:
            print(cars.point_of(message), message.value)

Each cell of a quad-tree is a topic (:mod:`antiphon.placement.cells`). The point goes in a header, and a subscription
drops what lies in its cells but outside of its area. Order holds within a topic, so between messages of one cell.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Final, Protocol, Self

from antiphon.api.batch import Message
from antiphon.api.pubsub import Subscription
from antiphon.api.receipts import Publishing
from antiphon.kernel.errors import UsageError
from antiphon.placement.cells import (
    Area,
    Point,
    cell_of,
    checked_area,
    checked_level,
    checked_point,
    patterns_for,
    topic_of,
)

__all__ = ["Area", "Point", "RegionSubscription", "Regions"]

POINT_HEADER: Final = "point"
"""The header with the point of a message: latitude and longitude in degrees, with a comma between them."""

DEFAULT_LEVEL: Final = 6
DEFAULT_PATTERNS: Final = 16
MERGED_AT_MOST: Final = 64
"""Messages that wait in the merged queue; the others wait in their subscriptions, with the policies of those."""


class PubSubUser(Protocol):
    """A node or a client."""

    def publish(self, *args: Any, **options: Any) -> Any:
        """Publish a message."""

    def subscribe(self, *args: Any, **options: Any) -> Subscription:
        """Subscribe to a topic or a pattern."""


class Regions:
    """Messages that belong to points, on topics that begin with ``prefix``, at a node or a client.

    All programs must use the same ``level``; a cell of the level above is twice as wide and twice as high.
    """

    def __init__(self, pubsub: PubSubUser, prefix: str, level: int = DEFAULT_LEVEL) -> None:
        self._pubsub: Final = pubsub
        self.prefix: Final = prefix
        self.level: Final = checked_level(level)

    def topic_at(self, latitude: float, longitude: float) -> str:
        """The topic of the cell that has a point."""
        return topic_of(self.prefix, cell_of(checked_point(latitude, longitude), self.level))

    def publish(self, latitude: float, longitude: float, value: bytes, **options: Any) -> Publishing:
        """Publish at a point; the options are those of ``publish``. Await the result for a receipt."""
        topic = self.topic_at(latitude, longitude)
        headers = {**(options.pop("headers", None) or {}), POINT_HEADER: f"{latitude!r},{longitude!r}".encode()}
        publishing: Publishing = self._pubsub.publish(topic, value, headers=headers, **options)
        return publishing

    def subscribe(self, area: Area, most: int = DEFAULT_PATTERNS, **options: Any) -> RegionSubscription:
        """The messages of an area, over at most ``most`` subscriptions; the options are those of ``subscribe``."""
        patterns = patterns_for(self.prefix, checked_area(area), self.level, most)
        return RegionSubscription(area, [self._pubsub.subscribe(pattern, **options) for pattern in patterns])

    @staticmethod
    def point_of(message: Message) -> Point:
        """The point at which a message was published."""
        return point_in(message)


def point_in(message: Message) -> Point:
    """The point in the header of a message."""
    written = message.headers.get(POINT_HEADER, b"")
    try:
        latitude, longitude = written.decode().split(",")
        return checked_point(float(latitude), float(longitude))
    except ValueError:
        raise UsageError(
            f"a message on {message.topic!r} has no point in its header {POINT_HEADER!r}; publish with Regions"
        ) from None


class RegionSubscription:
    """Messages of an area. Made by :meth:`Regions.subscribe`; iterate over it, and close it as any subscription."""

    def __init__(self, area: Area, subscriptions: list[Subscription]) -> None:
        self.area: Final = area
        self._subscriptions: Final = subscriptions
        self.outside: int = 0
        """Messages that arrived and were dropped because they lie in a cell of the area and not in the area."""

    @property
    def patterns(self) -> list[str]:
        """The topics and patterns that cover the area."""
        return [subscription.pattern for subscription in self._subscriptions]

    async def ready(self) -> Self:
        """Wait until every message that is published in the area from now on will arrive."""
        await asyncio.gather(*(subscription.ready() for subscription in self._subscriptions))
        return self

    async def close(self) -> None:
        """End it; iterating over it ends."""
        for subscription in self._subscriptions:
            await subscription.close()

    async def __aenter__(self) -> Self:
        return await self.ready()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[Message]:
        """The messages of all cells; those of one cell are in their order."""
        merged: asyncio.Queue[Message | BaseException | None] = asyncio.Queue(MERGED_AT_MOST)

        async def pump(subscription: Subscription) -> None:
            end: BaseException | None = None
            try:
                async for message in subscription:
                    await merged.put(message)
            except Exception as error:  # The reader raises it.
                end = error
            await merged.put(end)

        tasks = [asyncio.create_task(pump(subscription)) for subscription in self._subscriptions]
        try:
            open_subscriptions = len(tasks)
            while open_subscriptions:
                message = await merged.get()
                if message is None:
                    open_subscriptions -= 1
                elif isinstance(message, BaseException):
                    raise message
                elif self.area.contains(point_in(message)):
                    yield message
                else:
                    self.outside += 1
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
