"""Traces on disk: the schema, the writer and the reader.

One schema serves every host. A row says that something happened at a node:

=========  =================  =======================================================================================
column     type               meaning
=========  =================  =======================================================================================
time       int64              ticks of the host's clock
event      dictionary         ``publish``, ``send``, ``receive``, ``deliver``, ``drop``, ``duplicate``, ``expire``,
                              ``join``, ``leave``, ``crash``, ``restart``, ``pause``, ``resume``, ``subscribe``,
                              ``unsubscribe`` (both: asked for), ``subscribed``, ``unsubscribed`` (both: effective),
                              ``lost`` (the node says that it will never deliver the publication), ``unshown`` (a disk
                              lost a delivery before the application saw it), ``stuck`` (the node has not finished
                              something at the end), ``end`` (of the run), ``batch`` (live: the number of a batch),
                              ``epoch`` (a broker begins an epoch of total order, or says who belongs to it)
node       int32              where it happened; for ``drop`` and ``duplicate`` where the copy was going
peer       int32, nullable    the other end: destination of a ``send``, sender of the rest
message    dictionary, null.  class of the message
source     int32, nullable    publisher of what the message is about
sequence   int64, nullable    its number at that publisher
topic      int32, nullable    its topic
value      int64, nullable    ``publish``: bytes of payload; ``send``: ticks until the copy has left the output queue
                              (with one tick per copy, the length of the queue, itself included); ``deliver``: latency
                              in ticks; ``expire``: name of the timer; ``join``, ``restart``: incarnation of the
                              node, counted from 1; ``stuck``: how much is unfinished; ``end``: 0 if
                              nothing was left to do, 1 or 2 if the limit of time or events ended the run; ``batch``:
                              number of the batch that begins with this message; ``lost`` in a live trace: 1 if
                              ``sequence`` is the number of a batch; ``epoch``: for the broker ``peer`` the lowest
                              bit if it belongs to the epoch, the next ones if it has a voice in each council
reason     dictionary, null.  why a copy was dropped: ``loss``, ``partition``, ``receiver down``, ``sender down``
order      dictionary, null.  how strongly the publication is ordered: ``none``, ``fifo``, ``causal``, ``total``; null
                              if the row is about something else, if there is no order at all, or, for ``publish``,
                              if none was named
carried    int32, nullable    ``send``, ``receive``: how many publications the copy brings to its receiver
entries    int32, nullable    ``send``, ``receive``: entries of barriers, vectors or views in the copy
payload    int32, nullable    ``send``, ``receive``: bytes of payload in the copy
keys       list, nullable     ``deliver``: int64 keys of the total order; null if one order is for the whole topic
=========  =================  =======================================================================================

Rows stand in the order in which things happened. The file's metadata holds, as JSON under the key ``antiphon``, the
version of the schema and whatever the writer was given: the scenario, and what was promised
(:mod:`antiphon.trace.contract`). Version 1 had no column ``order``, version 2 none of those behind it, version 3 no
promise, and no rows about losses and the end of a run. A file is written beside its final place and moved there when
it is complete: a file with the right name is never half a file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.kernel.errors import PeerError, UsageError
from antiphon.kernel.message import ORDER_NAMES, SOURCE_BITS, SOURCE_MASK
from antiphon.trace.recorder import (
    BATCH,
    DELIVER,
    DROP,
    DROP_REASONS,
    END,
    ENTRY_BITS,
    EPOCH,
    EVENT_NAMES,
    EVENT_SHIFT,
    EXPIRE,
    JOIN,
    LOST,
    NODE_SHIFT,
    ORDER_SHIFT,
    PAYLOAD_BITS,
    PEER_SHIFT,
    PUBLISH,
    RECEIVE,
    RESTART,
    SEND,
    STUCK,
    TOPIC_SHIFT,
    WORDS_PER_ROW,
    Recorder,
)
from antiphon.trace.text import TextFile

SCHEMA_VERSION = 4

WORD = pa.dictionary(pa.int8(), pa.string())
# Parquet's name for the elements of a list.
KEYS = pa.list_(pa.field("element", pa.int64()))
SCHEMA = pa.schema(
    [
        pa.field("time", pa.int64(), nullable=False),
        pa.field("event", WORD, nullable=False),
        pa.field("node", pa.int32(), nullable=False),
        pa.field("peer", pa.int32()),
        pa.field("message", WORD),
        pa.field("source", pa.int32()),
        pa.field("sequence", pa.int64()),
        pa.field("topic", pa.int32()),
        pa.field("value", pa.int64()),
        pa.field("reason", WORD),
        pa.field("order", WORD),
        pa.field("carried", pa.int32()),
        pa.field("entries", pa.int32()),
        pa.field("payload", pa.int32()),
        pa.field("keys", KEYS),
    ]
)

PARTIAL = ".partial"
"""The ending of a trace that is being written, or whose writer was killed."""

COLUMN_ROWS = 1 << 18
"""The number of rows of a stream that are turned into columns at a time."""

OPTIONAL = frozenset({"order", "carried", "entries", "payload", "keys"})
"""Columns that traces of older versions lack; they read as null."""

LEVELS = ("counts", "deliveries", "everything")
"""The contents of a trace: nothing, what applications and operators see, or every copy too."""

ENTRY_MASK = (1 << ENTRY_BITS) - 1
PAYLOAD_MASK = (1 << PAYLOAD_BITS) - 1
VALUED = frozenset({PUBLISH, SEND, DELIVER, EXPIRE, JOIN, RESTART, LOST, STUCK, END, BATCH, EPOCH})
HAS_VALUE = np.array([event in VALUED for event in range(len(EVENT_NAMES))])


def wants_copies(level: str) -> bool:
    """Whether a trace of this level has a row for every copy."""
    if level not in LEVELS[1:]:
        raise UsageError(f"a trace has no level {level!r}; choose 'deliveries' or 'everything'")
    return level == "everything"


def to_batch(words: object, loads: object, keys: object, kind_names: list[str]) -> pa.RecordBatch:
    """A chunk of a recorder as columns."""
    rows = np.frombuffer(words, dtype=np.int64).reshape(-1, WORDS_PER_ROW)  # type: ignore[call-overload]
    time, what, key, value = (np.ascontiguousarray(rows[:, column]) for column in range(WORDS_PER_ROW))
    event = bits(what, EVENT_SHIFT, ORDER_SHIFT)
    order = bits(what, ORDER_SHIFT, PEER_SHIFT)
    kind = bits(what, 0, EVENT_SHIFT)
    peer = bits(what, PEER_SHIFT, NODE_SHIFT) - 1
    about_nothing = key < 0
    dropped = event == DROP
    # A row without a message has no topic either, and its value uses the whole word.
    low_value = np.where(about_nothing, value, bits(value, 0, TOPIC_SHIFT))
    return pa.record_batch(
        [
            pa.array(time),
            words_of(event, EVENT_NAMES, None),
            pa.array((what >> NODE_SHIFT).astype(np.int32)),
            pa.array(peer.astype(np.int32), mask=peer < 0),
            words_of(kind, kind_names, kind == 0),
            pa.array((key & SOURCE_MASK).astype(np.int32), mask=about_nothing),
            pa.array(key >> SOURCE_BITS, mask=about_nothing),
            pa.array((value >> TOPIC_SHIFT).astype(np.int32), mask=about_nothing),
            pa.array(low_value, mask=~HAS_VALUE[event]),
            words_of(np.where(dropped, low_value, 0), DROP_REASONS, ~dropped),
            words_of(order, ("", *ORDER_NAMES), order == 0),
            *carried_columns(event, loads),
            keys_column(len(rows), keys),
        ],
        schema=SCHEMA,
    )


def bits(words: np.ndarray, begin: int, end: int) -> np.ndarray:
    """The bits of words from one offset to before another."""
    return (words >> begin) & ((1 << (end - begin)) - 1)


def carried_columns(event: np.ndarray, loads: object) -> list[pa.Array]:
    """The contents of copies: publications, entries and bytes of payload."""
    copies = (event == SEND) | (event == RECEIVE)
    if not copies.any():
        return [pa.nulls(len(event), pa.int32())] * 3
    load = np.zeros(len(event), np.int64)
    load[copies] = np.frombuffer(loads, dtype=np.int64)  # type: ignore[call-overload]
    numbers = (load >> (ENTRY_BITS + PAYLOAD_BITS), (load >> PAYLOAD_BITS) & ENTRY_MASK, load & PAYLOAD_MASK)
    return [pa.array(number.astype(np.int32), mask=~copies) for number in numbers]


def keys_column(row_count: int, keys: object) -> pa.Array:
    """The keys of the rows that have any."""
    words = np.frombuffer(keys, dtype=np.int64)  # type: ignore[call-overload]
    if len(words) == 0:
        return pa.nulls(row_count, KEYS)
    found: list[list[int] | None] = [None] * row_count
    place = 0
    while place < len(words):
        row, count = int(words[place]), int(words[place + 1])
        found[row] = words[place + 2 : place + 2 + count].tolist()
        place += 2 + count
    return pa.array(found, KEYS)


def words_of(codes: np.ndarray, names: tuple[str, ...] | list[str], missing: np.ndarray | None) -> pa.DictionaryArray:
    """Small integers as a column of words."""
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8), mask=missing), pa.array(list(names)))


class TraceWriter:
    """Writes a trace to a file; ``.parquet``, ``.arrow`` or ``.txt`` by its name. Use as a context manager.

    A host records into ``recorder``; ``also`` sees every written batch. If the block ends with an exception nothing is
    left behind. If it ``survives``, flushed rows can be read even if the process is killed.
    """

    def __init__(
        self,
        path: Path,
        level: str,
        about: Mapping[str, object],
        chunk_rows: int = 1 << 20,
        also: Callable[[pa.RecordBatch], None] | None = None,
        survives: bool = False,
    ) -> None:
        copies = wants_copies(level)
        if path.suffix not in (".parquet", ".arrow", ".txt"):
            raise UsageError(f"a trace is written as .parquet, .arrow or .txt, not as {path.name!r}; change its ending")
        self._path = path
        self._partial = partial_of(path)
        # Only a stream can be read up to its present end; it is turned into columns when it is complete.
        self._is_stream_first = survives and path.suffix == ".parquet"
        metadata = json.dumps({"schema": SCHEMA_VERSION, "level": level, **about}, sort_keys=True)
        schema = SCHEMA.with_metadata({"antiphon": metadata})
        self.recorder = Recorder(copies, self._write, chunk_rows)
        self.rows = 0
        # Metadata that is known only at the end; a file of columns made of a stream contains it too.
        self.about_at_end: dict[str, object] = {}
        self._also = also
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".txt":
                self._writer = TextFile(self._partial)
            elif path.suffix == ".parquet" and not survives:
                self._writer = pq.ParquetWriter(self._partial, schema, compression="zstd")
            else:
                # Dictionaries grow while the trace is written, so later chunks may replace them.
                options = pa.ipc.IpcWriteOptions(compression="zstd", unify_dictionaries=True)
                self._writer = pa.ipc.new_stream(pa.OSFile(str(self._partial), "wb"), schema, options=options)
        except OSError as error:
            if path.parent.is_dir():
                self._partial.unlink(missing_ok=True)
            raise PeerError(
                f"cannot write the trace to {path}: {error.strerror or error}; choose another place"
            ) from error

    def _write(self, words: object, loads: object, keys: object) -> None:
        batch = to_batch(words, loads, keys, self.recorder.kind_names)
        self.rows += batch.num_rows
        if self._also is not None:
            self._also(batch)
        try:
            self._writer.write_batch(batch)
        except OSError as error:
            raise PeerError(
                f"cannot write the trace to {self._path}: {error}; free some space and run again"
            ) from error

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.recorder.flush()
            self._writer.close()
            if kind is None and self._is_stream_first:
                write_columns(self._partial, self._path, self.about_at_end)
            elif kind is None:
                os.replace(self._partial, self._path)
        except OSError as failure:
            raise PeerError(
                f"cannot write the trace to {self._path}: {failure}; free some space and run again"
            ) from failure
        finally:
            self._partial.unlink(missing_ok=True)


def partial_of(path: Path) -> Path:
    """The path of a trace until it is complete."""
    return path.with_name(f".{path.name}{PARTIAL}")


def write_columns(stream: Path, path: Path, about_at_end: Mapping[str, object]) -> None:
    """Turn a stream into a file of columns, piece by piece, with metadata that the stream could not have yet."""
    beside = path.with_name(f".{path.name}.columns")
    try:
        with pa.memory_map(str(stream)) as file:
            reader = pa.ipc.open_stream(file)
            about = {**json.loads(reader.schema.metadata[b"antiphon"]), **about_at_end}
            schema = reader.schema.with_metadata({"antiphon": json.dumps(about, sort_keys=True)})
            with pq.ParquetWriter(beside, schema, compression="zstd") as writer:
                waiting: list[pa.RecordBatch] = []
                for batch in reader:
                    waiting.append(batch)
                    if sum(each.num_rows for each in waiting) >= COLUMN_ROWS:
                        writer.write_table(pa.Table.from_batches(waiting).unify_dictionaries())
                        waiting.clear()
                writer.write_table(pa.Table.from_batches(waiting, reader.schema).unify_dictionaries())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def read_cut_stream(path: Path) -> pa.Table:
    """The readable rows of a trace whose writer was killed: all that were flushed."""
    batches: list[pa.RecordBatch] = []
    try:
        with pa.memory_map(str(path)) as file:
            reader = pa.ipc.open_stream(file)
            schema = reader.schema
            # The last piece is incomplete.
            with suppress(OSError, pa.ArrowInvalid):
                for batch in reader:
                    batches.append(batch)  # noqa: PERF402
            return pa.Table.from_batches(batches, schema).unify_dictionaries()
    except (OSError, pa.ArrowInvalid) as error:
        raise PeerError(f"{path} is not a readable trace: {error}; its node was killed before it wrote any") from error


def read_trace(path: Path) -> pa.Table:
    """A trace as a table."""
    if path.suffix == PARTIAL:
        return read_cut_stream(path)
    try:
        if path.suffix == ".arrow":
            with pa.memory_map(str(path)) as file:
                return pa.ipc.open_stream(file).read_all()
        return pq.read_table(path)
    except FileNotFoundError as error:
        raise UsageError(f"there is no trace at {path}; check the name") from error
    except (OSError, pa.ArrowInvalid) as error:
        raise PeerError(f"{path} is not a readable trace: {error}; write it again") from error


def count_rows(path: Path) -> int:
    """The number of rows of a trace, without reading them where the file states it."""
    if path.suffix not in (".arrow", PARTIAL) and path.is_file():
        try:
            return int(pq.read_metadata(path).num_rows)
        except (OSError, pa.ArrowInvalid) as error:
            raise PeerError(f"{path} is not a readable trace: {error}; write it again") from error
    try:
        return len(read_trace(path))
    except PeerError:
        if path.suffix != PARTIAL:
            raise
        # Its node was killed before it wrote anything.
        return 0


def about_trace(table: pa.Table) -> dict[str, object]:
    """The metadata of a trace: schema, level, scenario, seed."""
    metadata = (table.schema.metadata or {}).get(b"antiphon")
    if metadata is None:
        raise UsageError("the file is not an Antiphon trace: its metadata has no 'antiphon' entry")
    found = json.loads(metadata)
    assert isinstance(found, dict), "the metadata is written as an object"
    return found


class MemoryTrace:
    """A trace kept in memory, for experiments and tests."""

    def __init__(self, level: str = "everything", chunk_rows: int = 1 << 20) -> None:
        self._batches: list[pa.RecordBatch] = []
        self.recorder = Recorder(wants_copies(level), self._keep, chunk_rows)

    def _keep(self, words: object, loads: object, keys: object) -> None:
        self._batches.append(to_batch(words, loads, keys, self.recorder.kind_names))

    def table(self) -> pa.Table:
        """All rows recorded so far."""
        self.recorder.flush()
        return pa.Table.from_batches(self._batches, SCHEMA).unify_dictionaries()
