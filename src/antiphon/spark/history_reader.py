"""Reads a range of positions of a history, piece by piece, in a task of Spark."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final, NamedTuple

from antiphon.api.batch import Batch
from antiphon.api.streams.starts import StartPlace
from antiphon.client.client import LiveClient
from antiphon.kernel.errors import DeniedError, PeerError, RemovedError
from antiphon.kernel.message import ORDER_NAMES, Publication
from antiphon.runtime.logging import logger
from antiphon.spark.logs import connect, new_runner
from antiphon.spark.options import ReadOptions
from antiphon.spark.plan import Piece

RETRY_SECONDS: Final = 0.25
"""The pause before a history is asked for again."""

log = logger("spark")


class HistoryBatch(NamedTuple):
    """The messages of a publication, at its positions, as those of a log come."""

    first: int
    messages: int
    publication: Publication


class HistoryReader:
    """Reads one piece of a history. Iterate once."""

    def __init__(self, options: ReadOptions, piece: Piece) -> None:
        self._options = options
        self._piece = piece
        self._position = piece.start

    def chunks(self) -> Iterator[Sequence[HistoryBatch]]:
        """The batches of the range; the first and the last one may hold messages outside of it."""
        give_up_at = time.monotonic() + self._options.patience_seconds
        with new_runner() as runner:
            wait = runner.get_loop().run_until_complete
            while self._position < self._piece.end:
                client: LiveClient | None = None
                try:
                    client = wait(connect(self._options.access, self._options.access.servers))
                    pieces = self._pieces(client)
                    while (chunk := wait(anext(pieces, None))) is not None:
                        give_up_at = time.monotonic() + self._options.patience_seconds
                        if chunk:
                            yield chunk
                except (DeniedError, RemovedError):
                    # A retry would change nothing.
                    raise
                except PeerError as error:
                    if time.monotonic() >= give_up_at:
                        raise
                    log.warning("reading is tried again", reason=str(error))
                    time.sleep(RETRY_SECONDS)
                finally:
                    if client is not None:
                        wait(client.abandon())

    async def _pieces(self, client: LiveClient) -> AsyncIterator[list[HistoryBatch]]:
        topic, generation = self._piece.partition
        start = StartPlace(self._position, generation)
        async for found in client.streams.api.pieces(topic, start, follow=False):
            chunk = [placed(batch) for batch in found.batches if batch.first_offset < self._piece.end]
            if not chunk and found.end < self._piece.end:
                raise PeerError(f"the history of {topic!r} ends at {found.end}, and not at {self._piece.end}")
            self._position = min(int(found.end), self._piece.end)
            yield chunk
            if self._position >= self._piece.end:
                return


def placed(batch: Batch) -> HistoryBatch:
    """A batch of a history as rows are made of it."""
    order = ORDER_NAMES.index(batch.order)
    publication = Publication(int(batch.publisher), int(batch.sequence), 0, batch.payload, 0, order)
    return HistoryBatch(int(batch.first_offset), int(batch.count), publication)
