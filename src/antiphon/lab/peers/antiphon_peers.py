"""Antiphon itself: every process embeds one node; everything is delivered in causal order."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import antiphon
from antiphon.lab.peers.contender import HOST, TOPIC, Arrived, Contender, Place, Side


class Antiphon(Contender):
    """Live nodes, with causal order on while the others have none."""

    name = "antiphon"
    title = "Antiphon, causal order"
    distribution = "antiphon"
    published = "the node has accepted the message; it waits while the nodes behind it are behind"
    settings = "one node in every process, causal order, nothing on disk, uvloop"

    def side(self, place: Place) -> Side:
        return AntiphonSide(place)


class AntiphonSide(Side):
    """A node that joins the one of the first publisher."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._open = AsyncExitStack()
        self._node: antiphon.Node | None = None
        self._receiving: asyncio.Task[None] | None = None

    async def open(self, arrived: Arrived) -> None:
        place = self._place
        first = place.index == 0
        listen = f"{HOST}:{place.own_port if first else 0}"
        join = [] if first else [f"{HOST}:{place.publisher_ports[0]}"]
        self._node = await self._open.enter_async_context(antiphon.start(listen=listen, join=join))
        if place.receives:
            subscription = self._node.subscribe(TOPIC)
            self._receiving = asyncio.create_task(self._receive(subscription, arrived))
            await subscription.ready()

    async def _receive(self, subscription: antiphon.Subscription, arrived: Arrived) -> None:
        async for message in subscription:
            arrived(message.value)

    async def publish(self, payload: bytes, count: int) -> None:
        assert self._node is not None, "the conductor opens first"
        publish = self._node.publish
        for _ in range(count):
            await publish(TOPIC, payload, order="causal")

    async def close(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()
        await self._open.aclose()
