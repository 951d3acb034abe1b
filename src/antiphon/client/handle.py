"""A client as an application holds it, and how it connects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

from antiphon.api.columns import Receipt
from antiphon.api.lifecycle import Starting
from antiphon.api.pubsub import PubSub
from antiphon.client.client import RECONNECT_SECONDS, LiveClient
from antiphon.client.streams.consumption import Consumption
from antiphon.client.streams.stream_api import HistoryMessage, SettledReceipt
from antiphon.client.streams.topics import Topics
from antiphon.transport.tls import Tls, tls_from


class Client(PubSub):
    """A connection to a cluster through one of its nodes. Made by :func:`antiphon.connect`."""

    def __init__(self, live: LiveClient) -> None:
        super().__init__(live)
        self._live: Final[LiveClient] = live

    @property
    def address(self) -> str:
        """The address of the node that the client is connected to, or was connected to last."""
        return self._live.address

    @property
    def is_up(self) -> bool:
        """Whether the client is connected to a node now."""
        return self._live.is_up

    @property
    def reconnects(self) -> int:
        """How often the client has continued at another node."""
        return self._live.reconnects

    @property
    def topics(self) -> Topics:
        """The topics with a history: make, list, describe and remove them."""
        return self._live.streams.api.topics

    def consume(
        self,
        topic: str,
        name: str,
        *,
        mode: str = "any",
        ack_seconds: float = 30.0,
        max_deliveries: int = 0,
        start: str | int = "earliest",
        window: int = 256,
    ) -> Consumption:
        """Take messages of a topic with a history, as a member of a named consumer.

        Each message goes to one of the members: ``mode`` ``"any"`` hands it to any of them, ``"key"`` hands the
        messages of one key to one member, in order. Acknowledge each (``await message.ack()``): a message that is not
        acknowledged within ``ack_seconds``, or whose member goes, is handed out again. After ``max_deliveries`` it is
        published on the topic's dead letters (``TOPIC.dead``) instead. ``start`` counts when the consumer is new:
        ``"earliest"``, ``"latest"`` or a position. A member takes ``window`` messages at a time.
        """
        self._live.refuse_if_closed()
        return self._live.streams.api.consume(topic, name, mode, ack_seconds, max_deliveries, start, window)

    def history(
        self, topic: str, start: str | int = "earliest", *, follow: bool = True
    ) -> AsyncIterator[HistoryMessage]:
        """The history of a topic from a position on, the same at every node; without ``follow`` it ends at its end."""
        self._live.refuse_if_closed()
        return self._live.streams.api.history(topic, start, follow)

    async def settled(self, receipt: Receipt, timeout: float = 15.0) -> SettledReceipt:
        """Wait until a published message has its position, on the disks of a majority of the topic's replicas."""
        self._live.refuse_if_closed()
        return await self._live.streams.api.settled(receipt, timeout)

    async def status(self) -> dict[str, Any]:
        """The figures of the client's node, as ``/status`` has them."""
        return await self._live.status()

    def __repr__(self) -> str:
        return f"Client({self.address!r})"


def connect(
    addresses: str | Sequence[str],
    *,
    cluster: str = "antiphon",
    order: str = "causal",
    reconnect_seconds: float = RECONNECT_SECONDS,
    on_reconnect: Callable[[str], None] | None = None,
    tls: Tls | Mapping[str, str] | None = None,
    token: str = "",
) -> Starting[Client]:
    """Connect to a node: ``async with antiphon.connect("127.0.0.1:7400") as client``.

    Several addresses, as a list or with commas, are tried in this order. If its node fails, the client looks for
    another one for ``reconnect_seconds``, among these addresses and all that its nodes have told it, and goes on there;
    ``on_reconnect`` is then called with the address. With 0 it does not look.

    ``tls`` names the files for nodes that want TLS, ``{"authority": "authority.pem"}``, ``certificate`` and ``key``
    among them if the client has any. ``token`` identifies the client to nodes that have given out tokens.
    """
    files = tls if tls is None or isinstance(tls, Tls) else tls_from(tls)

    async def begin() -> Client:
        client = LiveClient(addresses, cluster, order, reconnect_seconds, on_reconnect, files, token)
        try:
            return Client(await client.start())
        except BaseException:
            await client.abandon()
            raise

    return Starting(begin())
