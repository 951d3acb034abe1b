"""A node as an application holds it, and how it is started."""

from __future__ import annotations

from typing import Any, Final

from antiphon.api.lifecycle import Starting
from antiphon.api.pubsub import PubSub
from antiphon.api.requests.request_user import RequestUser
from antiphon.api.streams.stream_user import StreamUser
from antiphon.node.node import LiveNode
from antiphon.node.settings import Settings, settings_from
from antiphon.node.tentative import TentativeBatch


class Node(RequestUser, StreamUser, PubSub):
    """A peer of a cluster, embedded in this program. Made by :func:`antiphon.start`."""

    def __init__(self, live: LiveNode) -> None:
        PubSub.__init__(self, live)
        RequestUser.__init__(self, live)
        StreamUser.__init__(self, live, live.streams)
        self._live: Final[LiveNode] = live

    @property
    def identifier(self) -> int:
        """The number of this node in its cluster; -1 before it has one."""
        return self._live.identifier

    @property
    def address(self) -> str:
        """Where others find this node: the address for ``join`` and ``antiphon.connect``."""
        return self._live.address

    @property
    def metrics_address(self) -> str:
        """Where metrics are served; empty if they are not."""
        return self._live.metrics_address

    async def until_stopped(self) -> None:
        """Wait until the node has stopped. Raises the error that stopped it, unless the program closed it."""
        await self._live.until_stopped()

    def tentative(self, topic: str) -> list[TentativeBatch]:
        """Total messages of a topic that have arrived and are not delivered yet, in the order as far as it is known.

        Each comes with the probability that all nodes know it, and that nothing can come before it. A program that uses
        such a message early must be able to take it back. Only gossip has such messages.
        """
        return self._live.tentative(topic)

    def __repr__(self) -> str:
        return f"Node({self.identifier}, {self.address!r})"


def start(settings: Settings | None = None, **values: Any) -> Starting[Node]:
    """Start a node in this program: ``async with antiphon.start(join=["127.0.0.1:7400"]) as node``.

    The arguments are the settings of a node, by name: ``listen``, ``join``, ``data``, ``fabric`` and all others.
    """
    chosen = settings.checked() if settings is not None else settings_from(values, "antiphon.start")

    async def begin() -> Node:
        return Node(await LiveNode(chosen).start())

    return Starting(begin())
