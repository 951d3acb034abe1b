"""Serves the durable log of a node to clients: its topics, their ranges of offsets, and the messages of a range.

Offsets belong to one log: two nodes that deliver the same messages may deliver concurrent ones in different orders. So
every log has a number, drawn when it was created and stored in it. A client names the log that it means by this number,
also after the node has been restarted elsewhere. The server shows only messages that are on disk, so an offset that a
client has read never stands for another message.

One thread reads, with a connection of its own, in steps of bounded size. A request takes one step, or several if it is
about many topics. The identities that ask have turns, one step each, so nobody waits for the whole request of somebody
else. A request ends with its connection, after the step that runs. The loop of the node goes on meanwhile, and a client
that reads a long range sets the pace by its requests. Batches are sent as they were recorded. Clients decode them,
because there may be many clients.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from antiphon.api.batch_codec import read_header
from antiphon.kernel.errors import AntiphonError, DeniedError, PeerError, UsageError
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
from antiphon.storage.sqlite import ReadConnection
from antiphon.transport.codec import Codec

NUMBER_FACT: Final = "number of this log"
NUMBER_BITS: Final = 31
"""The number fits the column ``partition`` of Spark, as in Kafka's connector."""

NO_LOG: Final = 0

MARKED_BYTES: Final = 8 << 20
"""The bytes of the log that are read for one ``MarksRequest``."""

POSITIONS_AT_MOST: Final = 1 << 18
"""How many positions one request may ask for: one for each topic, and one for each topic and time."""

POSITIONS_PER_STEP: Final = 64
NAMES_PER_TURN: Final = 512
"""How many positions one step of the thread looks up, and how many rights one turn of the loop compares."""

Result = TypeVar("Result")


class Published(msgspec.Struct, array_like=True):
    """The beginning of the columns of a batch."""

    first_sequence: int
    timestamp_us: int


PUBLISHED_DECODER: Final = msgspec.msgpack.Decoder(Published)


def number_of(store: DurableLog) -> int:
    """The number of a log. A new log draws one, which the next commit makes durable."""
    kept = store.get(NUMBER_FACT)
    if kept is None:
        kept = str(1 + secrets.randbelow((1 << NUMBER_BITS) - 1)).encode()
        store.put(NUMBER_FACT, kept)
    return int(kept)


class ReadingRights(Protocol):
    """The rights of a client to read."""

    def may_subscribe(self, wanted: str) -> bool:
        """Whether the client may read everything that a topic or pattern matches."""


class Reader(Protocol):
    """A client that reads the log."""

    @property
    def name(self) -> str:
        """The name by which it is known; empty if it has none."""

    @property
    def rights(self) -> ReadingRights:
        """Its rights to read."""


class ServingNode(Protocol):
    """The node that the log belongs to, and its view of others."""

    @property
    def identifier(self) -> int:
        """Its identifier in the cluster."""

    def peer_addresses(self) -> list[str]:
        """The addresses of the other nodes."""

    def topic_names(self) -> set[str]:
        """All topics that it knows."""


class LogServer:
    """Answers the requests of clients about the log of one node."""

    def __init__(self, codec: Codec, node: ServingNode) -> None:
        self._codec = codec
        self._node = node
        self._store: DurableLog | None = None
        self.number = NO_LOG
        self._connection: ReadConnection | None = None
        self._thread: ThreadPoolExecutor | None = None
        # By identity: its requests have one step in the thread at a time.
        self._turns: dict[str, asyncio.Lock] = {}

    def open(self, store: DurableLog) -> None:
        """The node has a log."""
        self._store = store
        self.number = number_of(store)

    def close(self) -> None:
        """Finish the running read. Call it before the log is closed: that does not wait for readers."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
        if self._connection is not None:
            self._connection.close()
        self._store = None

    async def _in_thread(self, holder: Reader, work: Callable[[], Result]) -> Result:
        """Take one step, when it is the turn of the identity."""
        async with self._turns.setdefault(holder.name, asyncio.Lock()):
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="antiphon-log-server")
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # Which topics there are.

    async def logs(self, holder: Reader, question: LogsRequest) -> LogsResponse:
        """The ranges of topics in the log."""
        node, store = self._node, self._store
        answer = LogsResponse(question.number, self.number, node.identifier, [], [], node.peer_addresses())
        names = None if question.topics is None else list(dict.fromkeys(question.topics))
        wanted = sorted(node.topic_names()) if names is None else names
        readable = await self._readable(holder, wanted)
        denied = None if names is None else next((name for name in names if name not in readable), None)
        if denied is not None:
            return replace(answer, error=denied_text(holder, denied), is_denied=True)
        held = sorted(name for name in readable if store is not None and store.has(name))
        elsewhere = sorted(readable.difference(held)) if names is None else []
        ranges: list[LogRange] = []
        if store is not None:
            try:
                ranges = await self._ranges(store, holder, held, question.times_us)
            except AntiphonError as error:
                return replace(answer, error=str(error))
        return replace(answer, topics=ranges, elsewhere=elsewhere)

    async def _readable(self, holder: Reader, names: list[str]) -> set[str]:
        """The topics among some that a client may read, found in several turns of the loop."""
        readable: set[str] = set()
        for first in range(0, len(names), NAMES_PER_TURN):
            may_read = holder.rights.may_subscribe
            readable.update(name for name in names[first : first + NAMES_PER_TURN] if may_read(name))
            await asyncio.sleep(0)
        return readable

    async def _ranges(
        self, store: DurableLog, holder: Reader, names: list[str], times_us: tuple[int, ...]
    ) -> list[LogRange]:
        """The ranges of topics, and the offsets at some times, in several steps of the thread."""
        positions = len(names) * (1 + len(times_us))
        if positions > POSITIONS_AT_MOST:
            raise UsageError(
                f"{len(names)} topics with {len(times_us)} times each are {positions} positions; ask for at most "
                f"{POSITIONS_AT_MOST} at a time"
            )
        ranges: list[LogRange] = []
        topics_per_step = max(1, POSITIONS_PER_STEP // (1 + len(times_us)))
        for first in range(0, len(names), topics_per_step):
            some = names[first : first + topics_per_step]
            ranges += await self._in_thread(holder, partial(bare_ranges, store, some))
            for place in range(first, len(ranges)):
                at_times: list[int] = []
                for begin in range(0, len(times_us), POSITIONS_PER_STEP):
                    times = times_us[begin : begin + POSITIONS_PER_STEP]
                    at_times += await self._in_thread(holder, partial(offsets_at, store, ranges[place], times))
                ranges[place] = replace(ranges[place], at_times=at_times)
        return ranges

    # Ranges.

    async def range(self, holder: Reader, question: RangeRequest) -> RangeResponse:
        """The first batches of a range."""
        try:
            store = self._store_for(holder, question)
            return await self._in_thread(holder, lambda: self._read(store, question))
        except OffsetRemovedError as error:
            return RangeResponse(question.number, question.offset, [], error.earliest, str(error))
        except AntiphonError as error:
            is_denied = isinstance(error, DeniedError)
            return RangeResponse(question.number, question.offset, [], 0, str(error), is_denied)

    def _store_for(self, holder: Reader, question: RangeRequest | MarksRequest) -> DurableLog:
        """The log, if the request names it and the client may read the topic."""
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
        """The publishers and sequence numbers of the first messages of a range."""
        try:
            store = self._store_for(holder, question)
            return await self._in_thread(holder, lambda: self._marks(store, question))
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
    """The first fields of the columns of a batch."""
    try:
        return PUBLISHED_DECODER.decode(memoryview(payload)[read_header(payload)[1] :])
    except msgspec.DecodeError as error:
        raise PeerError(f"a batch of topic {topic!r} cannot be read: {error}") from error


def bare_ranges(store: DurableLog, topics: list[str]) -> list[LogRange]:
    """The ranges of some topics in a log."""
    ranges = []
    for topic in topics:
        end = store.durable_end(topic)
        ranges.append(LogRange(topic, min(store.earliest(topic), end), end, []))
    return ranges


def offsets_at(store: DurableLog, held: LogRange, times_us: tuple[int, ...]) -> list[int]:
    """The first offsets of a topic at some times, or the end of its range."""
    return [min(store.offset_at(held.topic, time_us), held.end) for time_us in times_us]


def denied_text(holder: Reader, topic: str) -> str:
    """The reason why a client gets nothing."""
    return f"client {holder.name!r} may not read {topic!r}; have it added to its rights (subscribe)"
