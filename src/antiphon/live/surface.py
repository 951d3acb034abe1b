"""The public functions: start a node, connect a client, run a program on the fastest event loop there is."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, TypeVar

import msgspec

from antiphon.kernel.errors import UsageError
from antiphon.live.client import RECONNECT_SECONDS, Client
from antiphon.live.closing import Closeable, close_after
from antiphon.live.node import Node
from antiphon.live.settings import Settings, settings_from
from antiphon.live.tls import Tls

Result = TypeVar("Result")


Thing = TypeVar("Thing", bound=Closeable)


class Starting(Generic[Thing]):
    """Something that is started by ``await`` or by ``async with``, which also closes it."""

    def __init__(self, start: Coroutine[Any, Any, Thing]) -> None:
        self._start = start
        self._thing: Thing | None = None

    def __await__(self) -> Generator[Any, Any, Thing]:
        return self._start.__await__()

    async def __aenter__(self) -> Thing:
        self._thing = await self._start
        return self._thing

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._thing is not None:
            await close_after(self._thing, error)


def start(settings: Settings | None = None, **values: Any) -> Starting[Node]:
    """Start a node in this program: ``async with antiphon.start(join=["127.0.0.1:7400"]) as node``.

    The arguments are the settings of :class:`antiphon.live.settings.Settings`.
    """
    chosen = settings.checked() if settings is not None else settings_from(values, "antiphon.start")

    async def begin() -> Node:
        return await Node(chosen).start()

    return Starting(begin())


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

    Several addresses, as a list or with commas, are tried in this order. When its node goes the client looks for
    another one for ``reconnect_seconds``, among these and all of which its nodes have told it, and goes on there;
    ``on_reconnect`` is then called with the address. With 0 it does not look.

    ``tls`` are the files for nodes that want TLS, ``{"authority": "authority.pem"}``, with ``certificate`` and ``key``
    if the client has any; ``token`` says who it is, if the node has given out tokens.
    """
    files = tls if tls is None or isinstance(tls, Tls) else tls_from(tls)

    async def begin() -> Client:
        client = Client(addresses, cluster, order, reconnect_seconds, on_reconnect, files, token)
        try:
            return await client.start()
        except BaseException:
            await client.abandon()
            raise

    return Starting(begin())


def tls_from(values: Mapping[str, str]) -> Tls:
    """Files for TLS from names and values."""
    try:
        return msgspec.convert(dict(values), Tls)
    except msgspec.ValidationError as error:
        raise UsageError(f"tls: {error}; it has the files authority, certificate and key") from error


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a program, like ``asyncio.run``, on uvloop where it is available.

    What was imported before stays for good, so the garbage collector is told not to look at it any more: otherwise it
    stops the program for milliseconds now and then.
    """
    gc.collect()
    gc.freeze()
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
