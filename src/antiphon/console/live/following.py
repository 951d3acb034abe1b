"""Follows one topic for a window without slowing it.

The subscription drops what it has no room for, so publishers never wait for it. A few times per second the page gets
the newest messages, how many it does not get, and the latencies of those that did not wait here.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Final

from antiphon.api.batch import Message
from antiphon.console.http_messages import as_event
from antiphon.node.handle import Node

PERIOD_SECONDS: Final = 0.25
MESSAGES_PER_PERIOD: Final = 10
QUEUE_LIMIT: Final = 200
VALUE_CHARACTERS: Final = 2_000
LATENCIES_KEPT: Final = 500


async def follow(node: Node, pattern: str) -> AsyncIterator[bytes]:
    """The messages of a topic or pattern as events, until the window closes."""
    async with node.subscribe(pattern, policy="drop_oldest", limit=QUEUE_LIMIT) as subscription:
        await subscription.ready()
        yield as_event("following", {"topic": pattern})
        pieces = subscription.batches()
        dropped = 0
        latencies_ms: deque[float] = deque(maxlen=LATENCIES_KEPT)
        while True:
            # What has waited here says nothing about the way; what comes while nothing waits was on its way until now.
            messages: list[Message] = []
            while subscription.waiting and len(messages) < QUEUE_LIMIT:
                messages += await anext(pieces, [])
            if messages:
                yield as_event("messages", shown(messages, subscription.dropped - dropped, sorted(latencies_ms)))
                dropped = subscription.dropped
            fresh = await anext(pieces, None)
            if fresh is None:
                return
            latencies_ms.append(max(0.0, time.time() * 1000 - fresh[0].timestamp_us / 1000))
            yield as_event("messages", shown(fresh, subscription.dropped - dropped, sorted(latencies_ms)))
            dropped = subscription.dropped
            # What comes meanwhile waits in the queue, or is dropped there and counted.
            await asyncio.sleep(PERIOD_SECONDS)


def shown(messages: list[Message], dropped: int, latencies_ms: list[float]) -> dict[str, Any]:
    """The newest messages for the page, how many are left out, and what latencies were measured, in ascending order."""
    newest = messages[-MESSAGES_PER_PERIOD:]
    return {
        "messages": [as_row(message) for message in newest],
        "left_out": dropped + len(messages) - len(newest),
        "latency_ms": [percentile(latencies_ms, share) for share in (0.5, 0.99)] if latencies_ms else None,
        "measured": len(latencies_ms),
    }


def percentile(values: list[float], share: float) -> float:
    """The value that a share of sorted values does not exceed."""
    return values[min(len(values) - 1, int(share * len(values)))]


def as_row(message: Message) -> dict[str, Any]:
    """One message for the page; a value that is no text is shown in hexadecimal digits."""
    try:
        text, is_text = message.value.decode(), True
    except UnicodeDecodeError:
        text, is_text = message.value.hex(" "), False
    return {
        "topic": message.topic,
        "publisher": message.publisher,
        "order": message.order,
        "value": text[:VALUE_CHARACTERS],
        "is_text": is_text,
        "bytes": len(message.value),
        "key": None if message.key is None else message.key.decode(errors="replace"),
        "headers": {name: value.decode(errors="replace") for name, value in message.headers.items()},
        "time": message.timestamp_us / 1_000_000,
    }
