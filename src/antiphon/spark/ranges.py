"""Reads a range of a log over a connection to its node, chunk by chunk, in a task of Spark.

The next chunk is requested before the last one is decoded, so that node and task work at the same time; at most one is
in transit. The answers of a node are checked: every offset of the range must arrive once and in order, or the task
fails. A broken connection is opened again, within ``patienceSeconds``, and reading continues with the next offset.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Final

from antiphon.client.client import LiveClient
from antiphon.client.remote_log import RemoteLog, Times
from antiphon.kernel.errors import DeniedError, PeerError, ProtocolError
from antiphon.runtime.logging import logger
from antiphon.sessions.client_messages import RangeResponse, StoredBatch
from antiphon.spark.logs import connect, new_runner
from antiphon.spark.options import DataLossError, ReadOptions
from antiphon.spark.plan import Piece

CHUNK_BYTES: Final = 1 << 20
"""The most bytes that a node reads and sends for one request."""

CHUNK_SECONDS: Final = 30.0
"""The longest time for that."""

RETRY_SECONDS: Final = 0.25
"""The pause before a broken connection is opened again."""

log = logger("spark")


class RangeReader:
    """Reads one piece. Iterate once."""

    def __init__(self, options: ReadOptions, piece: Piece, times_us: Times = (0, None)) -> None:
        self._options = options
        self._piece = piece
        self._times_us = times_us
        self._position = piece.start
        self._client: LiveClient | None = None
        self._asked: asyncio.Task[RangeResponse] | None = None

    def chunks(self) -> Iterator[Sequence[StoredBatch]]:
        """The batches of the range; the first and the last one may hold messages outside of it."""
        give_up_at = time.monotonic() + self._options.patience_seconds
        with new_runner() as runner:
            # Not through the runner: on each call it would format the whole answer as text, for nothing.
            wait = runner.get_loop().run_until_complete
            try:
                while self._position < self._piece.end:
                    try:
                        answer = wait(self._next())
                    except (DeniedError, DataLossError):
                        # A retry would change nothing.
                        raise
                    except (PeerError, TimeoutError) as error:
                        wait(self._leave())
                        if time.monotonic() >= give_up_at:
                            raise PeerError(self._not_read(error)) from error
                        log.warning("reading is tried again", address=self._piece.address, reason=str(error))
                        time.sleep(RETRY_SECONDS)
                        continue
                    give_up_at = time.monotonic() + self._options.patience_seconds
                    if answer.batches:
                        yield answer.batches
            finally:
                wait(self._leave())

    def _not_read(self, error: BaseException) -> str:
        piece = self._piece
        reason = str(error) or f"no answer in {CHUNK_SECONDS:g} seconds"
        return (
            f"offsets {self._position} to {piece.end - 1} of {piece.partition} cannot be read at {piece.address}: "
            f"{reason}; nothing is lost; run the query again when the node answers"
        )

    async def _next(self) -> RangeResponse:
        """The next chunk; the one after it is already requested."""
        async with asyncio.timeout(CHUNK_SECONDS):
            if self._client is None:
                self._client = await connect(self._options.access, self._piece.address)
            asked = self._asked or self._ask(self._client)
            self._asked = None
            answer = await asked
        if answer.removed_below:
            self._removed(answer)
            return answer
        self._check(answer)
        self._position = answer.next_offset
        if self._position < self._piece.end:
            self._asked = self._ask(self._client)
            # Let the request be sent before this loop stops.
            await asyncio.sleep(0)
        return answer

    def _ask(self, client: LiveClient) -> asyncio.Task[RangeResponse]:
        partition = self._piece.partition
        return asyncio.ensure_future(
            RemoteLog(client).range(
                partition.number, partition.topic, self._position, self._piece.end, CHUNK_BYTES, self._times_us
            )
        )

    def _removed(self, answer: RangeResponse) -> None:
        """Report messages that retention removed during the query."""
        piece = self._piece
        end = min(answer.removed_below, piece.end)
        self._options.lost(f"offsets {self._position} to {end - 1} of {piece.partition} were removed by retention")
        self._position = end

    def _check(self, answer: RangeResponse) -> None:
        """Refuse an invalid answer."""
        position, is_timed = self._position, self._times_us != (0, None)
        for first, count, _ in answer.batches:
            if first + count <= position or (first > position and not is_timed) or first >= self._piece.end:
                raise ProtocolError(f"offset {position} was asked for, and {first} to {first + count - 1} came")
            position = first + count
        reached = min(position, self._piece.end)
        expected = range(reached, self._piece.end + 1) if is_timed else range(reached, reached + 1)
        if answer.next_offset <= self._position or answer.next_offset not in expected:
            raise ProtocolError(
                f"the node continues with {answer.next_offset} after {reached}; does its log end before "
                f"{self._piece.end}?"
            )

    async def _leave(self) -> None:
        asked, self._asked = self._asked, None
        if asked is not None:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
        client, self._client = self._client, None
        if client is not None:
            await client.abandon()
