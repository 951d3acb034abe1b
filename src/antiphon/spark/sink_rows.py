"""Rows to be published: their columns, and how they are cut into pieces.

A piece becomes one batch of a topic, and nodes recognise a repeated piece. So the cuts must follow from the rows alone,
and not from the Arrow batches in which Spark delivers them, which may be cut anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import ArrayType, BinaryType, DataType, StringType, StructType

from antiphon.api.batch_codec import size_beside_value
from antiphon.api.columns import Columns
from antiphon.api.outbox import KEYS_TOGETHER, NO_KEY
from antiphon.api.publisher import VALUE_BYTES_AT_MOST, check_beside_value, checked_value, numbers_of_keys
from antiphon.api.topic_names import checked_name
from antiphon.kernel.errors import UsageError
from antiphon.runtime.clocks import wall_clock_us

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_ROWS: Final = 2048
PIECE_BYTES: Final = 256 << 10
"""A piece is full with so many rows, or with the row that reaches this length."""

COLUMNS: Final = ("key", "value", "topic", "headers")
IGNORED: Final = frozenset({"partition", "offset", "timestamp", "publisher", "sequence", "order"})
"""Columns of rows that were read from a topic; they describe the old position, and are assigned anew."""

Headers = dict[str, bytes]
Row = tuple[bytes, bytes | None, Headers | None]


class Layout:
    """The positions of the columns in a row."""

    def __init__(self, schema: StructType, topic: str | None) -> None:
        names = [name.lower() for name in schema.fieldNames()]
        unknown = [name for name in names if name not in COLUMNS and name not in IGNORED]
        if unknown:
            raise UsageError(
                f"written rows have the columns {', '.join(COLUMNS)}, and {unknown[0]!r} is none of them; "
                "select what is to be written, for example: select(to_json(struct('*')).alias('value'))"
            )
        if "value" not in names:
            raise UsageError("rows that are written need a column 'value' of texts or bytes")
        if topic is None and "topic" not in names:
            raise UsageError("rows need a topic: give the option 'topic', or a column 'topic'")
        self.topic_name = topic
        self.value = names.index("value")
        self.key = names.index("key") if "key" in names else None
        self.headers = names.index("headers") if "headers" in names else None
        self.topic = names.index("topic") if topic is None else None
        for index, name in enumerate(names):
            if name in COLUMNS:
                check_type(name, schema[index].dataType)

    def rows(self, batch: pa.RecordBatch) -> Iterator[tuple[str, Row]]:
        """The rows of an Arrow batch, each with its topic."""
        values = bytes_in(batch, self.value)
        keys = [None] * len(values) if self.key is None else bytes_in(batch, self.key)
        headers = [None] * len(values) if self.headers is None else headers_in(batch, self.headers)
        if self.topic is None:
            assert self.topic_name is not None, "one of the two names it"
            topics: list[str | None] = [self.topic_name] * len(values)
        else:
            topics = batch.column(self.topic).to_pylist()
        for topic, value, key, header in zip(topics, values, keys, headers, strict=True):
            if topic is None:
                raise UsageError("a row has no topic: its column 'topic' is null; fill it, or give the option 'topic'")
            if value is None:
                raise UsageError("a row has no value: its column 'value' is null; filter such rows, or fill them")
            yield topic, (value, key, header)


def check_type(name: str, kind: DataType) -> None:
    """Refuse a column of a type that cannot be published; Spark does not convert it by itself."""
    if name == "headers":
        element = kind.elementType if isinstance(kind, ArrayType) else None
        fields = [field.dataType for field in element.fields] if isinstance(element, StructType) else []
        fits = len(fields) == 2 and isinstance(fields[0], StringType) and isinstance(fields[1], BinaryType)
        expected = "array<struct<key: string, value: binary>>"
    elif name == "topic":
        fits, expected = isinstance(kind, StringType), "string"
    else:
        fits, expected = isinstance(kind, (StringType, BinaryType)), "string or binary"
    if not fits:
        raise UsageError(f"column {name!r} is {kind.simpleString()} and must be {expected}; cast it")


def bytes_in(batch: pa.RecordBatch, index: int) -> list[bytes | None]:
    """A column of texts or bytes as bytes."""
    import pyarrow as pa

    column = batch.column(index)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    # About ten times faster than a list of scalars.
    found: list[bytes | None] = column.to_numpy(zero_copy_only=False).tolist()
    return found


def headers_in(batch: pa.RecordBatch, index: int) -> list[Headers | None]:
    """A column of headers as dictionaries."""
    found: list[Headers | None] = []
    for entries in batch.column(index).to_pylist():
        if entries is None:
            found.append(None)
            continue
        headers = {entry["key"]: entry["value"] for entry in entries}
        if len(headers) < len(entries):
            raise UsageError("a row has two headers of the same name; each name may occur once")
        found.append(headers or None)
    return found


class RowPiece:
    """Rows of one topic that are published together."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.keys: list[bytes | None] = []
        self.headers: list[Headers | None] = []
        self.about: set[int] = set()
        self.size = 0

    def columns(self) -> Columns:
        """The rows as the content of a batch."""
        keys = self.keys if any(key is not None for key in self.keys) else None
        headers = self.headers if any(self.headers) else None
        return Columns(1, wall_clock_us(), self.values, keys, headers)


class Cutter:
    """Cuts the rows of one partition into pieces, topic by topic."""

    def __init__(self, is_total: bool) -> None:
        # Only total messages are ordered by their keys, and a batch has few of them.
        self._is_total = is_total
        self._open: dict[str, RowPiece] = {}
        self.rows = 0

    def add(self, topic: str, row: Row) -> RowPiece | None:
        """Add a row; returns a piece that is full, if there is one."""
        piece = self._open.get(topic)
        if piece is None:
            piece = self._open[checked_name(topic)] = RowPiece()
        value, key, headers = row
        if key is not None or headers is not None:
            check_beside_value(key, headers)
            piece.size += size_beside_value(key, headers)
        if len(value) > VALUE_BYTES_AT_MOST:
            checked_value(value)
        piece.values.append(value)
        piece.keys.append(key)
        piece.headers.append(headers)
        piece.size += len(value)
        self.rows += 1
        if self._is_total:
            piece.about.update(numbers_of_keys(key, ()) or NO_KEY)
        if len(piece.values) < PIECE_ROWS and piece.size < PIECE_BYTES and len(piece.about) < KEYS_TOGETHER:
            return None
        del self._open[topic]
        return piece

    def rest(self) -> list[tuple[str, RowPiece]]:
        """The unfinished pieces at the end."""
        found, self._open = list(self._open.items()), {}
        return found
