"""Answers the page about a live cluster, at one of its nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from antiphon.api.publisher import check_order
from antiphon.console.http_messages import EventStream, HttpAnswer, HttpRequest, as_json, refused
from antiphon.console.http_server import ConsoleServer
from antiphon.console.live.following import follow
from antiphon.console.live.picture import tree_of
from antiphon.console.live.watching import ClusterWatch
from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.errors import DeniedError, UsageError
from antiphon.node.handle import Node
from antiphon.node.node import LiveNode
from antiphon.transport.links import split_address
from antiphon.transport.tls import is_loopback

FOLLOWERS_AT_MOST: Final = 8
PUBLISH_SECONDS: Final = 10.0


class LiveConsole:
    """The site of a live cluster."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._live: LiveNode = node._live
        self._watch = ClusterWatch(self._live)
        self._followers = 0

    async def answer(self, request: HttpRequest) -> HttpAnswer | EventStream:
        """Answer the page."""
        if request.path == "/api/mode":
            return as_json(self._about())
        if request.path == "/api/cluster":
            return EventStream(self._watch.events(request.token))
        if request.path == "/api/follow":
            return self._follow(request)
        if request.path == "/api/tree":
            return as_json({"edges": self._tree(request.integer("publisher", 0))})
        if request.path == "/api/publish" and request.method == "POST":
            return await self._publish(request.json())
        return refused(404, "there is no such question")

    def _about(self) -> dict[str, Any]:
        settings = self._live.settings
        return {
            "mode": "live",
            "cluster": settings.cluster,
            "node": self._live.identifier,
            "address": self._live.address,
            "fabric": settings.fabric,
            "order": settings.order,
            "has_token": settings.rights is not None,
        }

    def _tree(self, publisher: int) -> list[tuple[int, int]]:
        if not FABRICS[self._live.settings.fabric].has_identifier_trees:
            return []
        others = [int(peer.identifier) for peer in self._live.cluster.peers() if peer.identifier is not None]
        return tree_of(publisher, [self._live.identifier, *others])

    def _follow(self, request: HttpRequest) -> HttpAnswer | EventStream:
        pattern = request.query.get("topic", "")
        if not pattern:
            raise UsageError("name a topic, or a pattern such as orders.>")
        if self._followers >= FOLLOWERS_AT_MOST:
            return refused(429, f"{FOLLOWERS_AT_MOST} windows follow topics already")
        return EventStream(self._followed(pattern))

    async def _followed(self, pattern: str) -> AsyncIterator[bytes]:
        self._followers += 1
        stream = follow(self._node, pattern)
        try:
            async for event in stream:
                yield event
        finally:
            self._followers -= 1
            await stream.aclose()  # type: ignore[attr-defined]

    async def _publish(self, wanted: dict[str, Any]) -> HttpAnswer:
        """Publish one message by hand."""
        topic, value = str(wanted.get("topic", "")), str(wanted.get("value", ""))
        order = str(wanted.get("order") or self._live.settings.order)
        check_order(order)
        key = str(wanted["key"]) if wanted.get("key") else None
        try:
            async with asyncio.timeout(PUBLISH_SECONDS):
                receipt = await self._node.publish(topic, value.encode(), order=order, key=key)
        except TimeoutError:
            return refused(503, f"nothing has accepted the message within {PUBLISH_SECONDS:.0f} seconds")
        return as_json({"topic": receipt.topic, "author": receipt.author, "sequence": receipt.sequence})

    async def close(self) -> None:
        """End what windows wait for."""
        await self._watch.close()


@asynccontextmanager
async def serve_console(node: Node, address: str) -> AsyncIterator[ConsoleServer]:
    """Serve the console of a node. With rights, a session begins with the token of an admin."""
    live: LiveNode = node._live
    if live.certificates is not None and live.settings.rights is None:
        raise UsageError(
            "the clients of this node show certificates, which a browser does not have: give the node a file of rights "
            "(--rights) with the token of an admin, or leave out the console"
        )
    is_local = is_loopback(split_address(address)[0])
    context = None if live.certificates is None or is_local else live.certificates.server_context()

    def is_admin(token: str) -> bool:
        try:
            return live.rights.holder(None, token, live.certificates is not None).rights.admin
        except DeniedError:
            return False

    console = LiveConsole(node)
    server = ConsoleServer(console)
    asks = None if live.settings.rights is None else is_admin
    await server.start(address, context, asks)
    try:
        yield server
    finally:
        await server.close()
        await console.close()
