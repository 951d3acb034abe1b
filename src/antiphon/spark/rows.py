"""Turns the messages of stored batches into columns of Spark.

Batches are columnar already, and become Arrow record batches without a Python object per row except the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from antiphon.api.batch_codec import decode_columns
from antiphon.api.columns import Columns
from antiphon.kernel.errors import ProtocolError
from antiphon.kernel.message import ORDER_NAMES, Publication
from antiphon.sessions.client_messages import StoredBatch
from antiphon.spark.history_reader import HistoryBatch
from antiphon.spark.plan import Piece
from antiphon.transport.codec import Codec

HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])

ROWS_AT_MOST: Final = 1 << 16
BYTES_AT_MOST: Final = 16 << 20
"""A record batch of this length gets no further stored batch."""


def schema_of_rows(with_headers: bool, with_keys: bool, with_positions: bool = False) -> StructType:
    """The columns of a row: Kafka's, and those that Antiphon adds."""
    columns = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
    ]
    if with_headers:
        columns.append(StructField("headers", ArrayType(HEADER)))
    columns += [
        StructField("publisher", LongType()),
        StructField("sequence", LongType()),
        StructField("order", StringType()),
    ]
    if with_keys:
        columns.append(StructField("keys", ArrayType(BinaryType())))
    if with_positions:
        columns.append(StructField("position", StringType()))
    return StructType(columns)


@cache
def codec() -> Codec:
    """Decodes publications as nodes of any fabric log them."""
    return Codec()


class RowRun(NamedTuple):
    """The values that the rows of one stored batch share, and where they begin."""

    rows: int
    offset: int
    timestamp_us: int
    publisher: int
    sequence: int
    order: int


class RowBuilder:
    """Makes record batches of the rows of one piece."""

    def __init__(self, piece: Piece, with_headers: bool, with_keys: bool, with_positions: bool = False) -> None:
        self._piece = piece
        self._schema = to_arrow_schema(schema_of_rows(with_headers, with_keys, with_positions), timezone="UTC")
        self._with_positions = with_positions
        self._with_headers = with_headers
        self._with_keys = with_keys
        self._clear()

    def _clear(self) -> None:
        self._runs: list[RowRun] = []
        self._values: list[bytes] = []
        self._bytes = 0
        # The batches with this column, and where their rows begin.
        self._keys: list[tuple[int, Sequence[bytes | None]]] = []
        self._headers: list[tuple[int, Sequence[dict[str, bytes] | None]]] = []
        self._about: list[tuple[int, Sequence[list[bytes] | None]]] = []

    def batches(self, chunks: Iterable[Sequence[StoredBatch | HistoryBatch]]) -> Iterator[pa.RecordBatch]:
        """All rows of the chunks."""
        for chunk in chunks:
            for first, count, recorded in chunk:
                publication = codec().decode_publication(recorded) if isinstance(recorded, bytes) else recorded
                size = len(publication.payload)
                if len(self._values) + count > ROWS_AT_MOST or self._bytes + size > BYTES_AT_MOST:
                    yield from self._flush()
                self._add(first, count, publication)
                self._bytes += size
        yield from self._flush()

    def _add(self, first: int, count: int, publication: Publication) -> None:
        columns = decode_columns(publication.payload)
        if len(columns.values) != count:
            raise ProtocolError(f"a batch of {count} messages at offset {first} holds {len(columns.values)}")
        low = max(0, self._piece.start - first)
        high = min(count, self._piece.end - first)
        wanted = self._piece.wanted
        if wanted is None:
            self._add_rows(first, low, high, publication, columns)
            return
        for start, last in wanted.places(publication.source, columns.first_sequence + low, high - low):
            self._add_rows(first, low + start, low + last + 1, publication, columns)

    def _add_rows(self, first: int, low: int, high: int, publication: Publication, columns: Columns) -> None:
        """Add the messages of a batch from one index to below another."""
        count = len(columns.values)
        row = len(self._values)
        self._values += columns.values if high - low == count else columns.values[low:high]
        sequence = columns.first_sequence + low
        self._runs.append(
            RowRun(high - low, first + low, columns.timestamp_us, publication.source, sequence, publication.order)
        )
        if columns.keys is not None:
            self._keys.append((row, columns.keys[low:high]))
        if self._with_headers and columns.headers is not None:
            self._headers.append((row, columns.headers[low:high]))
        if self._with_keys:
            self._add_about(row, low, high, columns)

    def _add_about(self, row: int, low: int, high: int, columns: Columns) -> None:
        if columns.about is not None:
            self._about.append((row, [columns.about] * (high - low)))
        elif columns.keys is not None:
            self._about.append((row, [None if key is None else [key] for key in columns.keys[low:high]]))

    def _flush(self) -> Iterator[pa.RecordBatch]:
        if not self._values:
            self._clear()
            return
        total = len(self._values)
        counts, offsets, times, publishers, sequences, orders = np.array(self._runs, np.int64).T
        # The distance of each row from the first one of its batch.
        within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        names = pa.DictionaryArray.from_arrays(pa.array(np.repeat(orders, counts)), list(ORDER_NAMES))
        columns: dict[str, Any] = {
            "key": spread(total, self._keys, pa.binary()),
            "value": pa.array(self._values, pa.binary()),
            "topic": pa.repeat(self._piece.partition.topic, total),
            "partition": pa.repeat(pa.scalar(self._piece.partition.number, pa.int32()), total),
            "offset": pa.array(np.repeat(offsets, counts) + within),
            "timestamp": pa.array(np.repeat(times, counts)).cast(pa.timestamp("us", "UTC")),
            "publisher": pa.array(np.repeat(publishers, counts)),
            "sequence": pa.array(np.repeat(sequences, counts) + within),
            "order": names.cast(pa.string()),
        }
        if self._with_headers:
            pairs = [(row, [listed(each) for each in part]) for row, part in self._headers]
            columns["headers"] = spread(total, pairs, self._schema.field("headers").type)
        if self._with_keys:
            columns["keys"] = spread(total, self._about, self._schema.field("keys").type)
        if self._with_positions:
            numbers = columns["offset"].cast(pa.string())
            columns["position"] = pc.binary_join_element_wise(str(self._piece.partition.number), numbers, "-")
        self._clear()
        yield pa.RecordBatch.from_arrays([columns[name] for name in self._schema.names], schema=self._schema)


def listed(headers: dict[str, bytes] | None) -> list[dict[str, Any]] | None:
    """Headers as Kafka's connector shows them."""
    return [{"key": key, "value": value} for key, value in headers.items()] if headers else None


def spread(total: int, parts: Sequence[tuple[int, Sequence[Any]]], kind: Any) -> Any:
    """A column that only some batches have; null elsewhere."""
    if not parts:
        return pa.nulls(total, kind)
    values: list[Any] = [None] * total
    for row, part in parts:
        values[row : row + len(part)] = part
    return pa.array(values, kind)
