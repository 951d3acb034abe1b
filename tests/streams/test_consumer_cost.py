"""The cost of a consumer does not depend on the length of the history: steps are counted, and no time is measured."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import antiphon
from antiphon.api.streams.stream_user import StreamUser
from antiphon.storage import stream_store
from tests.node.support import running

LENGTHS = (1_000, 16_000)
CONSUMED = 200
BATCH = 20


class Steps:
    """Counts calls of Python functions on this thread, and steps of the database that reads."""

    def __init__(self, reader: sqlite3.Connection) -> None:
        self._reader = reader
        self.calls = 0
        self.database = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count what happens meanwhile."""

        def called(frame: Any, event: str, argument: Any) -> None:
            self.calls += event == "call"

        def stepped() -> int:
            self.database += 1
            return 0

        self._reader.set_progress_handler(stepped, 10)
        sys.setprofile(called)
        try:
            yield
        finally:
            sys.setprofile(None)
            self._reader.set_progress_handler(None, 0)


async def work(node: StreamUser, start: int, name: str) -> None:
    """Take and acknowledge some messages, from a position on."""
    async with node.consume("jobs", name, start=start, window=64) as consumer:
        done = 0
        while done < CONSUMED:
            found = await consumer.fetch(50)
            for each in [message.ack() for message in found]:
                await each
            done += len(found)


def test_a_consumer_takes_as_many_steps_in_a_long_history_as_in_a_short_one(tmp_path: Path) -> None:
    async def steps_at(length: int) -> tuple[int, int]:
        async with antiphon.start(data=str(tmp_path / str(length)), durability="disk") as node:
            await node.topics.create("jobs", replicas=1)
            for first in range(0, length, BATCH):
                receipts = [node.publish("jobs", b"%d" % number) for number in range(first, first + BATCH)]
                await receipts[-1]
            await node.publish("jobs", b"last", acks="quorum")
            store = node._live._stream_host.files
            assert isinstance(store, stream_store.StreamStore)
            # Whatever is done once is done before.
            await work(node, length // 2, "before")
            steps = Steps(store._reader)
            with steps.counted():
                # In the middle, which is not in memory.
                await work(node, length // 2, "counted")
            return steps.calls, steps.database

    async def test() -> None:
        (short_calls, short_steps), (long_calls, long_steps) = [await steps_at(length) for length in LENGTHS]
        assert short_calls > CONSUMED
        assert long_calls < 1.5 * short_calls
        # A tree of the database that is sixteen times as large is a little higher.
        assert long_steps < 2 * short_steps + 100

    running(test)
