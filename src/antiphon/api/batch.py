"""Batches: the messages of one publisher that travel, are ordered and are stored together.

The messages that an application publishes in one turn of the loop, on one topic and with one order, become one
publication of the protocol. Ordering, encoding, sending and logging are then paid once for all of them; a message costs
its copy and the object in which the application sees it. Sequence numbers of the protocol count batches, those that
users see count messages: a batch says which number its first message has.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from antiphon.api.batch_codec import decode_after_header, read_header
from antiphon.api.columns import NEVER, Author, Columns
from antiphon.streams.position import Position


@final
@mypyc_attr(acyclic=True)
class Message:
    """A message as a subscriber sees it. Everything but the value is looked up when it is asked for."""

    def __init__(self, batch: Batch, index: i64, value: bytes) -> None:
        self._batch: Final[Batch] = batch
        self._index: Final[i64] = index
        self.value: Final[bytes] = value

    @property
    def topic(self) -> str:
        """The name of its topic."""
        return self._batch.topic

    @property
    def key(self) -> bytes | None:
        """The key it was published with, if it was published with ``key``."""
        keys = self._batch.columns.keys
        return None if keys is None else keys[self._index]

    @property
    def keys(self) -> tuple[bytes, ...]:
        """All keys it is about, whether it was published with ``key`` or with ``keys``; these are sorted."""
        about = self._batch.columns.about
        if about is not None:
            return tuple(about)
        key = self.key
        return () if key is None else (key,)

    @property
    def headers(self) -> dict[str, bytes]:
        """The headers it was published with."""
        headers = self._batch.columns.headers
        found = None if headers is None else headers[self._index]
        return {} if found is None else found

    @property
    def publisher(self) -> int:
        """The identifier of the node that published it."""
        return self._batch.publisher

    @property
    def sequence(self) -> int:
        """Its number among the messages of this publisher on this topic, from 1."""
        return self._batch.columns.first_sequence + self._index

    @property
    def author(self) -> int:
        """The number of the client that published it, or the identifier of the node, if its own application did.

        A client has another number each time that it connects, and keeps it when it changes its node.
        """
        return self._batch.author

    @property
    def author_sequence(self) -> int:
        """Its number among the messages of its author on this topic; it only grows, and is the same at every node."""
        columns = self._batch.columns
        first = columns.author_sequence
        return (columns.first_sequence if first is None else first) + self._index

    @property
    def order(self) -> str:
        """How it was ordered: ``none``, ``fifo``, ``causal`` or ``total``."""
        return self._batch.order

    @property
    def offset(self) -> int:
        """Its place among all that this node has delivered on the topic, from 0."""
        return self._batch.first_offset + self._index

    @property
    def position(self) -> Position | None:
        """Its place in the history of its topic, the same at every node; None if it came before it had one.

        Messages that were read from a history have it. ``await client.position_of(message)`` gives that of any other.
        """
        generation = self._batch.generation
        return None if generation == 0 else Position(self._batch.first_offset + self._index, int(generation))

    @property
    def timestamp_us(self) -> int:
        """The publisher's clock when the batch was made, in microseconds since 1970."""
        return self._batch.columns.timestamp_us

    @property
    def timestamp(self) -> datetime:
        """The publisher's clock when the batch was made."""
        return datetime.fromtimestamp(self._batch.columns.timestamp_us / 1_000_000, UTC)

    def __repr__(self) -> str:
        value = self.value if len(self.value) <= 40 else self.value[:37] + b"..."
        return f"Message({self.topic!r}, {value!r}, publisher={self.publisher}, sequence={self.sequence})"


@final
@mypyc_attr(acyclic=True)
class Batch:
    """Messages of one publisher that were delivered together, at this place of the topic.

    The columns are read when somebody wants to see a message: a node that only serves others never does. ``sequence``
    is its number among the publications of its publisher. If it was read from the history of the topic, ``generation``
    names that, and ``first_offset`` is a position.
    """

    def __init__(
        self,
        topic: str,
        publisher: i64,
        order: str,
        first_offset: int,
        payload: bytes,
        columns: Columns | None = None,
        sequence: i64 = 0,
        generation: i64 = 0,
    ) -> None:
        self.topic: Final[str] = topic
        self.publisher: Final[i64] = publisher
        self.order: Final[str] = order
        self.first_offset: Final[int] = first_offset
        self.payload: Final[bytes] = payload
        count, columns_begin, origin = read_header(payload)
        self.count: Final[i64] = count
        # The offset behind the last message.
        self.end_offset: Final[int] = first_offset + count
        self.sequence: Final[i64] = sequence
        # Of which history the offsets are positions; 0 if they are places in the log of one node.
        self.generation: Final[i64] = generation
        # Whose it is by the payload itself.
        self.origin: Final[Author] = origin
        client = origin.client
        # The client that published it, if one did; batches keep author and number when they are handed in again.
        self.client: Final[int] = client
        self.author: Final[int] = client if client != 0 else int(publisher)
        self.number: Final[int] = origin.number if client != 0 else int(sequence)
        # Whether a writer did: its numbers only grow.
        self.is_written: Final[bool] = origin.writer != 0
        self._columns_begin: Final[int] = columns_begin
        self._columns: Columns | None = columns

    def __len__(self) -> int:
        return self.count

    @property
    def total_keys(self) -> set[bytes | None]:
        """The keys in whose total order it has a place; batches that name none share one."""
        columns = self.columns
        return set(columns.about or columns.keys or (None,))

    @property
    def columns(self) -> Columns:
        """The content; :class:`ProtocolError` if the payload is not what it says."""
        columns = self._columns
        if columns is None:
            columns = self._columns = decode_after_header(self.payload, self.count, self._columns_begin)
        return columns

    def bare(self) -> Batch:
        """The same without its columns, which take as much memory again: to be kept for longer."""
        if self._columns is None:
            return self
        return Batch(
            self.topic,
            self.publisher,
            self.order,
            self.first_offset,
            self.payload,
            None,
            self.sequence,
            self.generation,
        )

    def count_from(self, offset: int) -> int:
        """How many messages it has from an offset on."""
        return max(0, self.end_offset - max(self.first_offset, offset))

    def messages(self, from_offset: int = 0, now_us: int = 0) -> list[Message]:
        """The messages from an offset on that have not expired at ``now_us``, as new objects.

        They hold the batch and it does not hold them: in a circle they would never be freed.
        """
        columns = self._columns
        if columns is None:
            columns = self.columns
        values = columns.values
        first: i64 = max(0, from_offset - self.first_offset)
        messages = [Message(self, index, values[index]) for index in range(first, len(values))]
        expires = columns.expires_us
        if expires is None:
            return messages
        return [message for message in messages if not NEVER < expires[message._index] <= now_us]
