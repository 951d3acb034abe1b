"""Histories in place of logs, with the option ``history``: partitions are generations, and offsets are positions.

All nodes have the same history of a topic, so there is one partition for each topic, whichever node answers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from antiphon.sessions.client_messages import LogRange
from antiphon.spark.logs import HeldLog, Logs, connect
from antiphon.spark.options import Access


async def find_histories(access: Access, topics: Sequence[str], pattern: str | None) -> Logs:
    """The histories of topics, as if each were a log whose number is its generation."""
    client = await connect(access, access.servers)
    try:
        found = Logs()
        calls = client.streams.api
        if pattern is not None:
            topics = [each.name for each in await calls.topics.list() if re.fullmatch(pattern, each.name)]
        for topic in topics:
            info = await calls.topics.describe(topic)
            held = LogRange(topic, info.earliest, info.end, [])
            address = ",".join(access.servers)
            found.by_number[info.generation] = HeldLog(info.generation, address, -1, {topic: held})
        return found
    finally:
        await client.abandon()
