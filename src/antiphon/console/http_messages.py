"""Requests and answers of the console's server, as values; pure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from antiphon.kernel.errors import UsageError

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Only files of this server run, and the page talks to nobody else."""

SAFE_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every answer."""

STATUS_WORDS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    413: "Content Too Large",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


@dataclass(frozen=True)
class HttpRequest:
    """One request."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """By their names in small letters."""
    body: bytes = b""
    token: str = field(default="", repr=False)
    """The token with which the session began; empty where none is asked for."""

    def integer(self, name: str, default: int) -> int:
        """A number of the query."""
        text = self.query.get(name, "")
        if not text:
            return default
        try:
            return int(float(text))
        except (ValueError, OverflowError):
            raise UsageError(f"{name} is a number, not {text!r}") from None

    def cookie(self, name: str) -> str:
        """A cookie; empty if there is none."""
        for part in self.headers.get("cookie", "").split(";"):
            key, _, value = part.strip().partition("=")
            if key == name:
                return value
        return ""

    def json(self) -> dict[str, Any]:
        """The body as an object."""
        try:
            return msgspec.json.decode(self.body or b"{}", type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise UsageError(f"the request is not a JSON object: {error}") from None


@dataclass
class HttpAnswer:
    """One answer."""

    status: int
    kind: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)

    def head(self, keeps_open: bool) -> bytes:
        """The first lines of the answer."""
        lines = [
            f"HTTP/1.1 {self.status} {STATUS_WORDS[self.status]}",
            f"Content-Type: {self.kind}",
            f"Content-Length: {len(self.body)}",
            f"Connection: {'keep-alive' if keeps_open else 'close'}",
            *(f"{name}: {value}" for name, value in {**SAFE_HEADERS, **self.headers}.items()),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


@dataclass
class EventStream:
    """An answer that goes on: events for the page, one after the other, until the page closes or the stream ends."""

    events: AsyncIterator[bytes]

    @staticmethod
    def head() -> bytes:
        """The first lines of the answer."""
        lines = [
            "HTTP/1.1 200 OK",
            "Content-Type: text/event-stream",
            "Connection: close",
            *(f"{name}: {value}" for name, value in SAFE_HEADERS.items()),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


def as_json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> HttpAnswer:
    """An answer with a value."""
    return HttpAnswer(status, "application/json", msgspec.json.encode(value), headers or {})


def refused(status: int, why: str) -> HttpAnswer:
    """An answer that says why there is none."""
    return as_json({"error": why}, status)


def as_event(name: str, value: Any) -> bytes:
    """An event for a stream."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(value))


def parse_request(head: bytes, body: bytes = b"") -> HttpRequest:
    """A request from its first lines; raises ValueError if they are not HTTP."""
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, version = first.split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(f"version {version}")
    headers = {}
    for line in lines:
        if line:
            name, colon, value = line.partition(":")
            if not colon or name != name.strip():
                raise ValueError(f"header {line!r}")
            headers[name.lower()] = value.strip()
    parts = urlsplit(target)
    return HttpRequest(method, unquote(parts.path), dict(parse_qsl(parts.query)), headers, body)
