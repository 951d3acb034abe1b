"""Shared by live commands: running until a signal, and finding a node to talk to."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from antiphon.kernel.errors import UsageError

if TYPE_CHECKING:
    from antiphon.client.handle import Client

Result = TypeVar("Result")

DEFAULT_PORT = 7400
DEFAULT_RECONNECT_SECONDS = 10.0
DEFAULT_SERVERS = f"127.0.0.1:{DEFAULT_PORT}"
SERVERS_VARIABLE = "ANTIPHON_SERVERS"
TOKEN_VARIABLE = "ANTIPHON_TOKEN"
"""No option takes a token itself: every user could read it in the list of processes."""
READ_BYTES = 1 << 16
CHUNKS_AHEAD = 4

Servers = Annotated[
    str,
    typer.Option(
        "--servers", metavar="HOST:PORT,...", envvar=SERVERS_VARIABLE, help="Nodes to ask; the first that answers."
    ),
]
Reconnect = Annotated[
    float,
    typer.Option(
        "--reconnect", metavar="SECONDS", min=0, help="How long to look for another node when this one is gone."
    ),
]
TlsAuthority = Annotated[
    Path | None,
    typer.Option(
        "--tls-authority",
        metavar="FILE.pem",
        envvar="ANTIPHON_TLS_AUTHORITY",
        help="Speak TLS, with nodes whose certificates this authority has signed.",
        show_default=False,
    ),
]
TlsCertificate = Annotated[
    Path | None,
    typer.Option(
        "--tls-certificate",
        metavar="FILE.pem",
        envvar="ANTIPHON_TLS_CERTIFICATE",
        help="The certificate to show.",
        show_default=False,
    ),
]
TlsKey = Annotated[
    Path | None,
    typer.Option("--tls-key", metavar="FILE.key", envvar="ANTIPHON_TLS_KEY", help="Its key.", show_default=False),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help=f"A file with the token of this client; by default {TOKEN_VARIABLE}, if that is set.",
        show_default=False,
    ),
]
ClusterName = Annotated[str, typer.Option("--cluster", metavar="NAME", help="The name of the cluster.")]


def until_signal() -> asyncio.Event:
    """An event that the first signal sets; a second signal ends the process at once."""
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()

    def stop(number: signal.Signals) -> None:
        asked.set()
        loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    return asked


async def first_of(work: Coroutine[Any, Any, Result], stop: asyncio.Event) -> Result | None:
    """The result of some work, or None if ``stop`` was set before; the work is then cancelled."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        return None
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


def addresses_in(servers: str) -> list[str]:
    """The addresses of a list with commas."""
    found = [address.strip() for address in servers.split(",") if address.strip()]
    if not found:
        raise UsageError(f"--servers names no node; for example: --servers {DEFAULT_SERVERS}")
    return found


@dataclass(frozen=True)
class ServerAccess:
    """The addresses of nodes, and the credentials."""

    servers: str
    cluster: str
    reconnect_seconds: float = 0.0
    tls: dict[str, str] | None = None
    token: str = field(default="", repr=False)


def access_to(
    servers: Servers = DEFAULT_SERVERS,
    cluster: ClusterName = "antiphon",
    reconnect: Reconnect = DEFAULT_RECONNECT_SECONDS,
    tls_authority: TlsAuthority = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    token_file: TokenFile = None,
) -> ServerAccess:
    """The access that the options of a command describe; its parameters are these options."""
    if tls_authority is None and (tls_certificate is not None or tls_key is not None):
        raise UsageError("a certificate needs an authority to trust: give --tls-authority, too")
    files = {"authority": tls_authority, "certificate": tls_certificate, "key": tls_key}
    tls = None if tls_authority is None else {name: str(path) for name, path in files.items() if path is not None}
    token = os.environ.get(TOKEN_VARIABLE, "")
    if token_file is not None:
        from antiphon.node.acl import read_token

        token = read_token(token_file)
    return ServerAccess(servers, cluster, reconnect, tls, token)


def with_access(*, moves: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command all options of ``access_to``, in the place of its parameter ``access``.

    A command that ``moves`` looks for another node when its node is gone, and has an option that says for how long.
    """
    offered = dict(inspect.signature(access_to, eval_str=True).parameters)
    always: dict[str, Any] = {}
    if not moves:
        del offered["reconnect"]
        always["reconnect"] = 0.0

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters: list[inspect.Parameter] = []
        for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
            found = offered.values() if name == "access" else [parameter]
            # Options have defaults, and arguments behind them may have none.
            parameters += [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in found]

        @functools.wraps(command)
        def called(**given: Any) -> None:
            access = access_to(**always, **{name: given.pop(name) for name in offered})
            command(access=access, **given)

        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {each.name: each.annotation for each in parameters}
        return called

    return decorate


async def connect_to_any(access: ServerAccess) -> Client:
    """A client of the first node that answers; when that node is gone, it looks for another one for the given time."""
    import antiphon

    return await antiphon.connect(
        addresses_in(access.servers),
        cluster=access.cluster,
        reconnect_seconds=access.reconnect_seconds,
        on_reconnect=tell_move,
        tls=access.tls,
        token=access.token,
    )


def tell_move(address: str) -> None:
    """Report that the client has moved to another node."""
    print(f"antiphon: the node is gone; continuing at {address}", file=sys.stderr, flush=True)


class StandardInput:
    """Reads standard input on a thread of its own, a few pieces ahead, from a terminal, pipe or file."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue(CHUNKS_AHEAD)
        # A daemon, because a thread that waits for a terminal cannot be stopped.
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        piece = b"more"
        while piece:
            try:
                piece = os.read(sys.stdin.fileno(), READ_BYTES)
                asyncio.run_coroutine_threadsafe(self._pieces.put(piece), self._loop).result()
            except RuntimeError:
                # The program has ended, and its loop with it.
                return

    async def pieces(self) -> AsyncIterator[bytes]:
        """The input as it arrives, until its end."""
        while piece := await self._pieces.get():
            yield piece

    async def lines(self) -> AsyncIterator[list[bytes]]:
        """Whole lines without their ends, as many at a time as have arrived."""
        rest = b""
        async for piece in self.pieces():
            *whole, rest = (rest + piece).split(b"\n")
            if whole:
                yield [line.removesuffix(b"\r") for line in whole]
        if rest:
            yield [rest]

    async def told(self) -> bool:
        """Wait for input; false if it has ended instead."""
        return bool(await self._pieces.get())

    async def ended(self) -> None:
        """Wait for the end of the input; ignore everything before it."""
        async for _ in self.pieces():
            pass
