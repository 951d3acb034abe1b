"""A client as an application holds it, and how it connects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from antiphon.api.lifecycle import Starting
from antiphon.api.pubsub import PubSub
from antiphon.api.requests.request_user import RequestUser
from antiphon.api.streams.stream_user import StreamUser
from antiphon.client.client import RECONNECT_SECONDS, LiveClient
from antiphon.transport.tls import Tls, tls_from


class Client(RequestUser, StreamUser, PubSub):
    """A connection to a cluster through one of its nodes. Made by :func:`antiphon.connect`."""

    def __init__(self, live: LiveClient) -> None:
        PubSub.__init__(self, live)
        RequestUser.__init__(self, live)
        StreamUser.__init__(self, live, live.streams.api)
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
    another node for ``reconnect_seconds``, among these addresses and those that its nodes have told it. It continues
    there, and calls ``on_reconnect`` with the address. With ``reconnect_seconds=0`` it does not look.

    ``tls`` names the files for nodes with TLS: ``authority``, and ``certificate`` and ``key`` if the client has a
    certificate. ``token`` identifies the client instead of a certificate.
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
