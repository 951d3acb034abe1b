"""Where clients ask a node for its durable log: which topics it holds, from where to where, and ranges of them.

Offsets belong to one log: two nodes that deliver the same messages may deliver concurrent ones in different orders. So
every log has a number, drawn when it was made and kept in it, by which a client says which log it means, also after the
node has been restarted elsewhere. Only what is on disk is told of: an offset that was once read never comes to stand
for another message.

Reading is done by one thread with a connection of its own, in steps of bounded size, each for one question: the loop
of the node goes on meanwhile, and whoever asks for a long range sets the pace by asking for more. Batches are handed
over as they were recorded; taking them apart is left to those who asked, of whom there may be many.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from antiphon.api.batch_codec import read_header
from antiphon.kernel.errors import AntiphonError, PeerError, UsageError
from antiphon.runtime.errors import DeniedError
from antiphon.sessions.client_messages import (
    LogRange,
    LogsRequest,
    LogsResponse,
    MarksRequest,
    MarksResponse,
    RangeRequest,
    RangeResponse,
    StoredBatch,
)
from antiphon.storage.log import DurableLog
from antiphon.storage.log_formats import Entry, OffsetRemovedError
from antiphon.transport.codec import Codec

NUMBER_FACT: Final = "number of this log"
NUMBER_BITS: Final = 31
"""So that it fits the column ``partition`` of Spark, as Kafka's has it."""

NO_LOG: Final = 0

MARKED_BYTES: Final = 8 << 20
"""How much of the log is looked at for one question about whose messages it has."""

Result = TypeVar("Result")


class Published(msgspec.Struct, array_like=True):
    """The beginning of the columns of a batch."""

    first_sequence: int
    timestamp_us: int


PUBLISHED_DECODER: Final = msgspec.msgpack.Decoder(Published)


def number_of(store: DurableLog) -> int:
    """The number of a log; a new log draws one, which is durable with whatever is committed first."""
    kept = store.get(NUMBER_FACT)
    if kept is None:
        kept = str(1 + secrets.randbelow((1 << NUMBER_BITS) - 1)).encode()
        store.put(NUMBER_FACT, kept)
    return int(kept)


class ReadingRights(Protocol):
    """What a client may read."""

    def may_subscribe(self, wanted: str) -> bool:
        """Whether the client may see all that a topic or pattern stands for."""


class Reader(Protocol):
    """The client that asks."""

    @property
    def name(self) -> str:
        """The name by which it is known; empty if it has none."""

    @property
    def rights(self) -> ReadingRights:
        """What it may read."""


class Whereabouts(Protocol):
    """The node to which the log belongs, and what that node knows of others."""

    @property
    def identifier(self) -> int:
        """Its identifier in the cluster."""

    def peer_addresses(self) -> list[str]:
        """Where the other nodes are."""

    def topic_names(self) -> set[str]:
        """The topics that it has heard of."""


class LogDesk:
    """Answers what clients ask about the log of one node."""

    def __init__(self, codec: Codec, node: Whereabouts) -> None:
        self._codec = codec
        self._node = node
        self._store: DurableLog | None = None
        self.number = NO_LOG
        self._connection: sqlite3.Connection | None = None
        self._thread: ThreadPoolExecutor | None = None

    def open(self, store: DurableLog) -> None:
        """The node has a log."""
        self._store = store
        self.number = number_of(store)

    def close(self) -> None:
        """Finish what is being read; before the log is closed, which waits for nobody who reads."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
        if self._connection is not None:
            self._connection.close()
        self._store = None

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="antiphon-log-desk")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # Which topics there are.

    async def logs(self, holder: Reader, question: LogsRequest) -> LogsResponse:
        """What the log holds of topics."""
        node, store = self._node, self._store
        answer = LogsResponse(question.number, self.number, node.identifier, [], [], node.peer_addresses())
        may_read = holder.rights.may_subscribe
        denied = next((name for name in question.topics or () if not may_read(name)), None)
        if denied is not None:
            return replace(answer, error=denied_text(holder, denied), is_denied=True)
        wanted = node.topic_names() if question.topics is None else set(question.topics)
        held = sorted(name for name in wanted if store is not None and store.has(name) and may_read(name))
        elsewhere: list[str] = []
        if question.topics is None:
            elsewhere = sorted(name for name in wanted.difference(held) if may_read(name))
        ranges: list[LogRange] = []
        if store is not None:
            try:
                ranges = await self._in_thread(lambda: [range_of(store, name, question.times_us) for name in held])
            except AntiphonError as error:
                return replace(answer, error=str(error))
        return replace(answer, topics=ranges, elsewhere=elsewhere)

    # Ranges.

    async def range(self, holder: Reader, question: RangeRequest) -> RangeResponse:
        """Some of the batches that were asked for."""
        try:
            store = self._store_for(holder, question)
            return await self._in_thread(lambda: self._read(store, question))
        except OffsetRemovedError as error:
            return RangeResponse(question.number, question.offset, [], error.earliest, str(error))
        except AntiphonError as error:
            is_denied = isinstance(error, DeniedError)
            return RangeResponse(question.number, question.offset, [], 0, str(error), is_denied)

    def _store_for(self, holder: Reader, question: RangeRequest | MarksRequest) -> DurableLog:
        """The log, if it is the one that is meant and the client may read the topic."""
        if not holder.rights.may_subscribe(question.topic):
            raise DeniedError(denied_text(holder, question.topic))
        store = self._store
        if store is None or question.log != self.number:
            raise UsageError(
                f"this node does not have log {question.log}, but {self.number or 'none'}; ask the one that has it"
            )
        if not store.has(question.topic):
            raise UsageError(f"the log of this node has no topic {question.topic!r}; check the name")
        return store

    def _entries(self, store: DurableLog, topic: str, offset: int, most_bytes: int) -> list[Entry]:
        if self._connection is None:
            self._connection = store.connect_reader()
        return store.read_durable(topic, offset, most_bytes, self._connection)

    def _read(self, store: DurableLog, question: RangeRequest) -> RangeResponse:
        entries = self._entries(store, question.topic, question.offset, question.most_bytes)
        is_timed = question.since_us > 0 or question.until_us is not None
        batches: list[StoredBatch] = []
        position = question.offset
        for entry in entries:
            if entry.first_offset >= question.end:
                break
            if not is_timed or self._is_within(entry.batch, question):
                batches.append((entry.first_offset, entry.count, entry.batch))
            position = entry.next_offset
        return RangeResponse(question.number, min(position, question.end), batches)

    def _is_within(self, recorded: bytes, question: RangeRequest) -> bool:
        published = beginning_of(self._codec.decode_publication(recorded).payload, question.topic)
        until_us = question.until_us
        return published.timestamp_us >= question.since_us and (until_us is None or published.timestamp_us < until_us)

    # Marks.

    async def marks(self, holder: Reader, question: MarksRequest) -> MarksResponse:
        """Whose messages a range has, for some of it."""
        try:
            store = self._store_for(holder, question)
            return await self._in_thread(lambda: self._marks(store, question))
        except AntiphonError as error:
            return MarksResponse(question.number, question.offset, [], str(error), isinstance(error, DeniedError))

    def _marks(self, store: DurableLog, question: MarksRequest) -> MarksResponse:
        marks: list[tuple[int, int, int]] = []
        position = question.offset
        for entry in self._entries(store, question.topic, question.offset, MARKED_BYTES):
            if entry.first_offset >= question.end:
                break
            publication = self._codec.decode_publication(entry.batch)
            sequence = beginning_of(publication.payload, question.topic).first_sequence - entry.first_offset
            first = max(entry.first_offset, question.offset)
            position = min(entry.next_offset, question.end)
            marks.append((publication.source, sequence + first, sequence + position - 1))
        return MarksResponse(question.number, position, marks)


def beginning_of(payload: bytes, topic: str) -> Published:
    """What stands at the beginning of the columns of a batch."""
    try:
        return PUBLISHED_DECODER.decode(memoryview(payload)[read_header(payload)[1] :])
    except msgspec.DecodeError as error:
        raise PeerError(f"a batch of topic {topic!r} cannot be read: {error}") from error


def range_of(store: DurableLog, topic: str, times_us: tuple[int, ...]) -> LogRange:
    """What a log holds of a topic."""
    end = store.durable_end(topic)
    at_times = [min(store.offset_at(topic, time_us), end) for time_us in times_us]
    return LogRange(topic, min(store.earliest(topic), end), end, at_times)


def denied_text(holder: Reader, topic: str) -> str:
    """Why a client is told nothing."""
    return f"client {holder.name!r} may not read {topic!r}; have it added to its rights (subscribe)"
