"""The headers that make messages requests, replies, and announcements of programs that serve.

A request and its replies are messages of one topic, with an order that keeps causes before effects, so nobody sees a
reply before its request. Programs say on a topic beside it that they serve (:data:`SERVING`), and callers look for them
on another one (:data:`CALLERS`); the rights of the file of rights are about the topic itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from antiphon.api.publisher import PublishHost
from antiphon.api.topic_names import CALLERS, NAME_BYTES_AT_MOST, SERVING, checked_name
from antiphon.kernel.errors import UsageError

REQUEST: Final = "antiphon-request"
"""On a request: the caller, and its number for the request."""

REPLY: Final = "antiphon-reply"
"""On a reply: what the request has in its place."""

TO: Final = "antiphon-to"
"""On a request: the program that is to answer."""

FROM: Final = "antiphon-from"
"""On a reply: the program that answers."""

PART: Final = "antiphon-part"
"""On a reply: one of the values below."""

MORE: Final = b"more"
LAST: Final = b"last"
END: Final = b"end"
FAILED: Final = b"failed"
BUSY: Final = b"busy"

SERVER: Final = "antiphon-server"
GROUP: Final = "antiphon-group"
STATE: Final = "antiphon-state"
HERE: Final = b"here"
GONE: Final = b"gone"

OURS: Final = (REQUEST, REPLY, TO, FROM, PART)


def checked_topic(topic: str) -> str:
    """The name of a topic on which requests may be; the names of the topics beside it are longer."""
    checked_name(topic)
    if len(topic.encode()) > NAME_BYTES_AT_MOST - max(len(SERVING), len(CALLERS)):
        raise UsageError(f"the topic {topic[:20]!r}... has too long a name for requests; shorten it by 10 bytes")
    return topic


def order_of(host: PublishHost) -> str:
    """The order of requests and replies: the default, if it keeps causes before effects."""
    return host.default_order if host.default_order in ("causal", "total") else "causal"


def merged(given: dict[str, bytes] | None, ours: Sequence[tuple[str, bytes]]) -> dict[str, bytes]:
    """The headers of a message: those of the program, and ours."""
    if given is not None and any(name.startswith("antiphon-") for name in given):
        raise UsageError("headers of requests and replies do not begin with antiphon-: these are its own; rename them")
    return {**(given or {}), **dict(ours)}
