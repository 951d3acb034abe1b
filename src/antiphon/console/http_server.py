"""Serves the pages of the console and the answers of a site over HTTP, on the loop of its program.

It bounds what windows may cost: so many connections, so many bytes per request. A stream that a window does not read
ends; it never grows.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from typing import Final, Protocol

from antiphon.console.guard import LOGIN_PATH, LOGOUT_PATH, Guard
from antiphon.console.http_messages import EventStream, HttpAnswer, HttpRequest, parse_request, refused
from antiphon.kernel.errors import AntiphonError, UsageError
from antiphon.runtime.logging import logger
from antiphon.transport.links import split_address
from antiphon.transport.tls import is_loopback

HEAD_BYTES_AT_MOST: Final = 16_384
BODY_BYTES_AT_MOST: Final = 1 << 20
CONNECTIONS_AT_MOST: Final = 64
IDLE_SECONDS: Final = 60.0
STREAM_WRITE_SECONDS: Final = 5.0
"""A window that takes no event for so long is closed: its browser asks again when it is back."""

KINDS: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

log = logger("console")


class ConsoleSite(Protocol):
    """Answers the requests of one page."""

    async def answer(self, request: HttpRequest) -> HttpAnswer | EventStream:
        """The answer to a request below ``/api/``."""
        ...


def read_pages() -> dict[str, HttpAnswer]:
    """The files of the page, by their paths."""
    found = {}
    for file in resources.files("antiphon.console").joinpath("pages").iterdir():
        ending = file.name.rpartition(".")[2]
        if ending in KINDS:
            found[f"/{file.name}"] = HttpAnswer(200, KINDS[ending], file.read_bytes())
    found["/"] = found["/index.html"]
    return found


class ConsoleServer:
    """The server of one console."""

    def __init__(self, site: ConsoleSite) -> None:
        self._site = site
        self._pages = read_pages()
        self._guard = Guard(time.monotonic, secrets.token_urlsafe)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()
        self.address = ""
        self.url = ""

    async def start(
        self, address: str, context: ssl.SSLContext | None = None, is_admin: Callable[[str], bool] | None = None
    ) -> ConsoleServer:
        """Listen. Where other machines can connect, there is TLS, and a session begins with the token of an admin."""
        host, port = split_address(address)
        is_local = is_loopback(host)
        if not is_local and (context is None or is_admin is None):
            raise UsageError(
                f"the console is to listen at {address}, where other machines can connect; that needs certificates "
                "(--tls-certificate) and a file with the rights of clients (--rights), or listen at 127.0.0.1"
            )
        self._guard = Guard(time.monotonic, secrets.token_urlsafe, is_admin, context is not None, is_local)
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=HEAD_BYTES_AT_MOST, ssl=context)
        except OSError as error:
            raise UsageError(
                f"cannot open the console at {address}: {error.strerror or error}; choose another address"
            ) from error
        self.address = f"{host}:{self._server.sockets[0].getsockname()[1]}"
        self.url = f"{'http' if context is None else 'https'}://{self.address}/"
        return self

    async def close(self) -> None:
        """Stop listening, and end all connections."""
        if self._server is not None:
            self._server.close()
        for writer in tuple(self._connections):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= CONNECTIONS_AT_MOST:
            writer.transport.abort()
            return
        self._connections.add(writer)
        try:
            while await self._serve_one(reader, writer):
                pass
        except (TimeoutError, OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # A program that speaks something else than HTTP gets no answer.
            pass
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether another one may follow on the connection."""
        async with asyncio.timeout(IDLE_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
            request = parse_request(head)
            length = int(request.headers.get("content-length", "0"))
            if "transfer-encoding" in request.headers or not 0 <= length <= BODY_BYTES_AT_MOST:
                await self._write(writer, refused(413, f"a request has {BODY_BYTES_AT_MOST:,} bytes at most"), False)
                return False
            if length:
                request = parse_request(head, await reader.readexactly(length))
        answer = await self._answer(request)
        if isinstance(answer, EventStream):
            await self._stream(answer, reader, writer)
            return False
        keeps_open = request.headers.get("connection", "").lower() != "close"
        await self._write(writer, answer, keeps_open, request.method == "HEAD")
        return keeps_open

    async def _answer(self, request: HttpRequest) -> HttpAnswer | EventStream:
        refusal = self._guard.refusal(request)
        if refusal is not None:
            return refusal
        try:
            return await self._found(request)
        except UsageError as error:
            return refused(400, str(error))
        except AntiphonError as error:
            return refused(503, str(error))
        except Exception as error:
            log.error("the console could not answer", path=request.path, cause=error)
            return refused(500, f"the console has a fault: {error!r}")

    async def _found(self, request: HttpRequest) -> HttpAnswer | EventStream:
        if request.path == LOGIN_PATH:
            return self._guard.log_in(str(request.json().get("token", "")))
        if request.path == LOGOUT_PATH:
            return self._guard.log_out(request)
        if request.path.startswith("/api/"):
            return await self._site.answer(replace(request, token=self._guard.token_of(request)))
        return self._pages.get(request.path) or refused(404, "there is no such page")

    @staticmethod
    async def _write(writer: asyncio.StreamWriter, answer: HttpAnswer, keeps_open: bool, bare: bool = False) -> None:
        writer.write(answer.head(keeps_open) + (b"" if bare else answer.body))
        async with asyncio.timeout(IDLE_SECONDS):
            await writer.drain()

    async def _stream(self, stream: EventStream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Write events until either side ends."""
        writer.write(stream.head())
        gone = asyncio.ensure_future(reader.read(1))
        events = aiter(stream.events)
        try:
            while True:
                following = asyncio.ensure_future(anext(events, b""))
                await asyncio.wait((gone, following), return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    following.cancel()
                    await asyncio.gather(following, return_exceptions=True)
                    return
                piece = following.result()
                if not piece:
                    return
                writer.write(piece)
                async with asyncio.timeout(STREAM_WRITE_SECONDS):
                    await writer.drain()
        finally:
            gone.cancel()
            closing = getattr(events, "aclose", None)
            if closing is not None:
                await closing()
