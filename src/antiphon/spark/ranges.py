"""Reading a range of a log over a connection to its node, chunk by chunk, in a task of Spark.

The next chunk is asked for before the last one is taken apart, so that node and task work at the same time; no more
than one is on its way, whatever the range. What a node says is checked: every offset of the range comes once and in
order, or the task fails. A connection that breaks is opened again, as long as the option ``patienceSeconds`` says, and
reading goes on with the next offset.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Final

from antiphon.client.client import Client
from antiphon.client.remote_log import RemoteLog, Times
from antiphon.kernel.errors import PeerError, ProtocolError
from antiphon.runtime.errors import DeniedError
from antiphon.runtime.logging import logger
from antiphon.spark.logs import connect, new_runner
from antiphon.spark.options import DataLossError, ReadOptions
from antiphon.spark.plan import Piece
from antiphon.transport.client_messages import RangeResponse, StoredBatch

CHUNK_BYTES: Final = 1 << 20
"""How much a node reads and sends for one question."""

CHUNK_SECONDS: Final = 30.0
"""How long a node may take for that."""

RETRY_SECONDS: Final = 0.25
"""How long to wait before a connection that broke is opened again."""

log = logger("spark")


class RangeReader:
    """Reads one piece. Iterate once."""

    def __init__(self, options: ReadOptions, piece: Piece, times_us: Times = (0, None)) -> None:
        self._options = options
        self._piece = piece
        self._times_us = times_us
        self._position = piece.start
        self._client: Client | None = None
        self._asked: asyncio.Task[RangeResponse] | None = None

    def chunks(self) -> Iterator[Sequence[StoredBatch]]:
        """The batches of the range; the first and the last one may hold messages outside of it."""
        give_up_at = time.monotonic() + self._options.patience_seconds
        with new_runner() as runner:
            # Not through the runner: it writes the whole answer out as a text, in vain, each time.
            wait = runner.get_loop().run_until_complete
            try:
                while self._position < self._piece.end:
                    try:
                        answer = wait(self._next())
                    except (DeniedError, DataLossError):
                        # Trying again would change nothing.
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
            f"{reason}; nothing is lost: once the node answers, run the query again"
        )

    async def _next(self) -> RangeResponse:
        """The next chunk; the one after it is asked for already."""
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
            # Let it be sent before this loop stands still.
            await asyncio.sleep(0)
        return answer

    def _ask(self, client: Client) -> asyncio.Task[RangeResponse]:
        partition = self._piece.partition
        return asyncio.ensure_future(
            RemoteLog(client).range(
                partition.number, partition.topic, self._position, self._piece.end, CHUNK_BYTES, self._times_us
            )
        )

    def _removed(self, answer: RangeResponse) -> None:
        """Retention was quicker than this query."""
        piece = self._piece
        end = min(answer.removed_below, piece.end)
        self._options.lost(f"offsets {self._position} to {end - 1} of {piece.partition} were removed by retention")
        self._position = end

    def _check(self, answer: RangeResponse) -> None:
        """Refuse what no node says that is right."""
        position, is_timed = self._position, self._times_us != (0, None)
        for first, count, _ in answer.batches:
            if first + count <= position or (first > position and not is_timed) or first >= self._piece.end:
                raise ProtocolError(f"offset {position} was asked for, and {first} to {first + count - 1} came")
            position = first + count
        reached = min(position, self._piece.end)
        expected = range(reached, self._piece.end + 1) if is_timed else range(reached, reached + 1)
        if answer.next_offset <= self._position or answer.next_offset not in expected:
            raise ProtocolError(
                f"the node says that {answer.next_offset} follows, after {reached}; does its log end before "
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
