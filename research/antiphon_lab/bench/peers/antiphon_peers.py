"""Antiphon itself: every process embeds one node; in each fabric, and in each order."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import deque
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, ClassVar

import antiphon
from antiphon_lab.bench.peers.contender import HOST, TOPIC, Arrived, Contender, Place, Side

IN_FLIGHT_CHUNKS = 64
"""On disk a message is accepted some milliseconds after it was published; so many chunks may wait for that."""


class Antiphon(Contender):
    """Live nodes, with causal order on while the others have none."""

    name = "antiphon"
    title = "Antiphon, causal order"
    distribution = "antiphon"
    published = "the node has accepted the message; it waits while the nodes behind it are behind"
    settings = "one node in every process, causal order, nothing on disk, uvloop"
    order: ClassVar[str] = "causal"
    fabric: ClassVar[str] = "cube"
    on_disk: ClassVar[bool] = False

    def side(self, place: Place) -> Side:
        make = DurableSide if self.on_disk else AntiphonSide
        return make(place, self.order, self.fabric)


class AntiphonFifo(Antiphon):
    """Per-publisher order."""

    name = "antiphon-fifo"
    title = "Antiphon, fifo"
    order = "fifo"


class AntiphonUnordered(Antiphon):
    """No order."""

    name = "antiphon-none"
    title = "Antiphon, no order"
    order = "none"


class AntiphonOnDisk(Antiphon):
    """Messages are accepted, shown and acknowledged when they are on the disk of each node."""

    name = "antiphon-disk"
    title = "Antiphon, causal order, on disk"
    published = "the message is on the publisher's disk"
    settings = "one node in every process, causal order, synced to disk at every node, uvloop"
    on_disk = True


class AntiphonTotal(Antiphon):
    """One order of all messages at all nodes."""

    name = "antiphon-total"
    title = "Antiphon, total order"
    settings = "one node in every process, total order, nothing on disk, uvloop"
    order = "total"


class AntiphonTree(Antiphon):
    """Brokers that survive each other's crashes, and partitions."""

    name = "antiphon-tree"
    title = "Antiphon, causal order, broker tree"
    settings = "one broker in every process, with a quorum, causal order, nothing on disk, uvloop"
    fabric = "tree"


class AntiphonTreeTotal(Antiphon):
    """The tree with one order at all nodes."""

    name = "antiphon-tree-total"
    title = "Antiphon, total order, broker tree"
    settings = "one broker in every process, with a quorum, total order, nothing on disk, uvloop"
    fabric = "tree"
    order = "total"


class AntiphonGossip(Antiphon):
    """Nodes that know few others, and survive loss."""

    name = "antiphon-gossip"
    title = "Antiphon, causal order, gossip"
    settings = "one node in every process, gossip, causal order, nothing on disk, uvloop"
    fabric = "gossip"


class AntiphonGossipTotal(Antiphon):
    """Gossip with one order at all nodes, which takes rounds."""

    name = "antiphon-gossip-total"
    title = "Antiphon, total order, gossip"
    settings = "one node in every process, gossip, total order, nothing on disk, uvloop"
    fabric = "gossip"
    order = "total"


class AntiphonTls(Antiphon):
    """Nodes that authenticate by certificates, and encrypt."""

    name = "antiphon-tls"
    title = "Antiphon, causal order, TLS"
    settings = "one node in every process, causal order, TLS 1.3 in both directions, nothing on disk, uvloop"

    def side(self, place: Place) -> Side:
        return TlsSide(place, self.order, self.fabric)


VARIANTS: tuple[Contender, ...] = (
    Antiphon(),
    AntiphonFifo(),
    AntiphonUnordered(),
    AntiphonTotal(),
    AntiphonOnDisk(),
    AntiphonTree(),
    AntiphonTreeTotal(),
    AntiphonGossip(),
    AntiphonGossipTotal(),
    AntiphonTls(),
)


class AntiphonSide(Side):
    """A node that joins the one of the first publisher."""

    def __init__(self, place: Place, order: str, fabric: str) -> None:
        self._place = place
        self._order = order
        self._fabric = fabric
        self._open = AsyncExitStack()
        self._node: antiphon.Node | None = None
        self._receiving: asyncio.Task[None] | None = None

    async def open(self, arrived: Arrived) -> None:
        place = self._place
        first = place.index == 0
        listen = f"{HOST}:{place.own_port if first else 0}"
        join = [] if first else [f"{HOST}:{place.publisher_ports[0]}"]
        self._node = await self._open.enter_async_context(
            antiphon.start(
                fabric=self._fabric,
                listen=listen,
                join=join,
                data=self.data_directory(),
                **await self.security(),
            )
        )
        if place.receives:
            subscription = self._node.subscribe(TOPIC)
            self._receiving = asyncio.create_task(self._receive(subscription, arrived))
            await subscription.ready()

    def data_directory(self) -> str | None:
        """The directory of the log, if there is one."""
        return None

    async def security(self) -> dict[str, Any]:
        """Settings of TLS, if it is used."""
        return {}

    async def _receive(self, subscription: antiphon.Subscription, arrived: Arrived) -> None:
        async for message in subscription:
            arrived(message.value)

    async def publish(self, payload: bytes, count: int) -> None:
        assert self._node is not None, "the conductor opens first"
        publish, order = self._node.publish, self._order
        for _ in range(count):
            await publish(TOPIC, payload, order=order)

    async def close(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()
        await self._open.aclose()


class DurableSide(AntiphonSide):
    """The same with a log in a temporary directory."""

    def __init__(self, place: Place, order: str, fabric: str) -> None:
        super().__init__(place, order, fabric)
        self._receipts: deque[Awaitable[antiphon.Receipt]] = deque()

    def data_directory(self) -> str | None:
        return self._open.enter_context(tempfile.TemporaryDirectory(prefix="antiphon-bench-data-"))

    async def publish(self, payload: bytes, count: int) -> None:
        assert self._node is not None, "the conductor opens first"
        for _ in range(count):
            receipt = self._node.publish(TOPIC, payload, order=self._order)
        self._receipts.append(receipt)
        if len(self._receipts) > IN_FLIGHT_CHUNKS:
            await self._receipts.popleft()


class TlsSide(AntiphonSide):
    """The same with certificates that the first publisher makes for all."""

    async def security(self) -> dict[str, Any]:
        # All processes of a run know this port, and no other run has it.
        port = self._place.publisher_ports[0]
        directory = Path(tempfile.gettempdir()) / f"antiphon-bench-certificates-{port}"
        if self._place.index == 0:
            self._make(directory)
        while not directory.exists():
            await asyncio.sleep(0.01)
        name = f"{directory}/node"
        return {
            "tls_certificate": f"{name}.pem",
            "tls_key": f"{name}.key",
            "tls_authority": f"{directory}/authority.pem",
        }

    def _make(self, directory: Path) -> None:
        from antiphon.transport.certificates import Authority
        from antiphon.transport.tls import NODE

        made = self._open.enter_context(tempfile.TemporaryDirectory(prefix="antiphon-bench-"))
        Authority.make(Path(made) / "all").issue(NODE, "node")
        shutil.rmtree(directory, ignore_errors=True)
        # Moved into place at once, so that others never see it incomplete.
        (Path(made) / "all").rename(directory)
        self._open.callback(shutil.rmtree, directory, ignore_errors=True)
