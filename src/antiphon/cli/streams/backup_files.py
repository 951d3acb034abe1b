"""The files of ``antiphon topics export``: the messages of one history, as lines of JSON or as Parquet.

A file says of which history it is, with which policy that is kept, and how many messages it has; so a file that was cut
off is recognised before anything of it is imported. It gets its name when it is complete and on disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Protocol

import msgspec

from antiphon.kernel.errors import PeerError, UsageError
from antiphon.kernel.message import ORDER_NAMES

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES: Final = {"jsonl": ".jsonl", "parquet": ".parquet"}
VERSION: Final = 1
ROWS_AT_ONCE: Final = 16_384
METADATA: Final = b"antiphon"


class BackupHeader(msgspec.Struct, frozen=True):
    """Of which history a file is."""

    topic: str
    generation: int
    end: int
    """The first position behind those in the file."""
    policy: dict[str, int | float | bool]
    version: int = VERSION


class BackupRecord(msgspec.Struct, frozen=True):
    """One message, with its place in the history."""

    position: int
    author: int
    author_sequence: int
    order: str
    timestamp_us: int
    value: bytes
    key: bytes | None = None
    keys: list[bytes] | None = None
    """What it is about, if it was published with ``keys``."""
    headers: dict[str, bytes] = {}
    expires_us: int = 0
    """When it expires, in microseconds since 1970; 0: never."""


class HeaderLine(msgspec.Struct, frozen=True):
    """The first line of a file of lines."""

    antiphon: BackupHeader


class LastLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last line of a file of lines."""

    messages: int


class BackupWriter(Protocol):
    """A file that is being written."""

    def add(self, records: Iterable[BackupRecord]) -> None:
        """The next messages."""

    def finish(self) -> None:
        """That was all."""

    def close(self) -> None:
        """End, complete or not."""


class LinesWriter:
    """Lines of JSON; bytes are in base64."""

    def __init__(self, path: Path, header: BackupHeader) -> None:
        self._file = path.open("wb")
        self._encoder = msgspec.json.Encoder()
        self._file.write(self._encoder.encode(HeaderLine(header)) + b"\n")
        self._count = 0

    def add(self, records: Iterable[BackupRecord]) -> None:
        lines = [self._encoder.encode(record) for record in records]
        self._count += len(lines)
        self._file.write(b"".join(line + b"\n" for line in lines))

    def finish(self) -> None:
        self._file.write(self._encoder.encode(LastLine(self._count)) + b"\n")

    def close(self) -> None:
        self._file.close()


def parquet_schema() -> pa.Schema:
    """The columns of a Parquet file: the fields of a record."""
    import pyarrow as pa

    binary, number = pa.binary(), pa.int64()
    kinds = {
        "position": number,
        "author": number,
        "author_sequence": number,
        "order": pa.string(),
        "timestamp_us": number,
        "value": binary,
        "key": binary,
        "keys": pa.list_(binary),
        "headers": pa.map_(pa.string(), binary),
        "expires_us": number,
    }
    return pa.schema([pa.field(name, kinds[name]) for name in BackupRecord.__struct_fields__])


class ParquetBackupWriter:
    """A Parquet file; the header is in the metadata of its schema."""

    def __init__(self, path: Path, header: BackupHeader) -> None:
        import pyarrow.parquet as pq

        self._schema = parquet_schema().with_metadata({METADATA: msgspec.json.encode(header)})
        self._writer = pq.ParquetWriter(path, self._schema)
        self._rows: list[BackupRecord] = []

    def add(self, records: Iterable[BackupRecord]) -> None:
        self._rows.extend(records)
        if len(self._rows) >= ROWS_AT_ONCE:
            self._write()

    def _write(self) -> None:
        import pyarrow as pa

        rows, self._rows = self._rows, []
        columns: list[list[Any]] = [[getattr(row, name) for row in rows] for name in self._schema.names]
        place = self._schema.get_field_index("headers")
        columns[place] = [list(headers.items()) for headers in columns[place]]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))

    def finish(self) -> None:
        self._write()

    def close(self) -> None:
        self._writer.close()


def writer_for(kind: str, path: Path, header: BackupHeader) -> BackupWriter:
    """A new file of a kind."""
    return ParquetBackupWriter(path, header) if kind == "parquet" else LinesWriter(path, header)


# Reading.


class BackupFile:
    """A file that was exported. It is looked at as a whole when it is opened: nothing of a damaged one is used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            if path.suffix == SUFFIXES["parquet"]:
                self.header, self._pieces = self._parquet_header(), self._parquet_records
            else:
                self.header, self._pieces = self._lines_header(), self._line_records
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
        if self.header.version > VERSION:
            raise UsageError(f"{path} is of a later version ({self.header.version}); import it with that one")
        self.messages = sum(1 for _ in self.records())

    def records(self) -> Iterator[BackupRecord]:
        """The messages, in the order of their positions."""
        before = -1
        for record in self._pieces():
            if record.order not in ORDER_NAMES or not before < record.position < self.header.end:
                raise UsageError(f"{self.path} is damaged: position {record.position} cannot be behind {before}")
            before = record.position
            yield record

    def _damaged(self, line: int, why: object) -> UsageError:
        return UsageError(f"{self.path} is no complete export of a history, line {line}: {why}")

    def _lines_header(self) -> BackupHeader:
        with self.path.open("rb") as file:
            try:
                return msgspec.json.decode(file.readline(), type=HeaderLine).antiphon
            except msgspec.DecodeError as error:
                raise self._damaged(1, error) from error

    def _line_records(self) -> Iterator[BackupRecord]:
        with self.path.open("rb") as file:
            file.readline()
            yield from self._decoded(file)

    def _decoded(self, file: IO[bytes]) -> Iterator[BackupRecord]:
        decoder = msgspec.json.Decoder(BackupRecord)
        count = 0
        for count, line in enumerate(file):
            try:
                if line.startswith(b'{"messages":'):
                    stated = msgspec.json.decode(line, type=LastLine).messages
                    if stated != count:
                        raise self._damaged(count + 2, f"it has {count} of {stated} messages")
                    return
                yield decoder.decode(line)
            except msgspec.DecodeError as error:
                raise self._damaged(count + 2, error) from error
        raise self._damaged(count + 2, "the last line, with the number of messages, is missing")

    def _parquet_header(self) -> BackupHeader:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            found = (pq.read_schema(self.path).metadata or {}).get(METADATA)
        except pa.ArrowInvalid as error:
            raise UsageError(f"{self.path} is no complete Parquet file: {error}") from error
        if found is None:
            raise UsageError(f"{self.path} is a Parquet file, but no export of a history")
        return msgspec.json.decode(found, type=BackupHeader)

    def _parquet_records(self) -> Iterator[BackupRecord]:
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.path) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE):
                for row in batch.to_pylist():
                    row["headers"] = dict(row["headers"] or ())
                    yield msgspec.convert(row, BackupRecord)


def complete(temporary: Path, final: Path) -> None:
    """Bring a file that is complete to the disk, and give it its name."""
    from antiphon.storage.directory import sync_directory, sync_file

    sync_file(temporary)
    temporary.replace(final)
    sync_directory(final.parent)


def write_error(path: Path, error: OSError) -> PeerError:
    """The complaint about a file that cannot be written."""
    return PeerError(f"cannot write {path}: {error.strerror or error}; free some space, or choose another --out")
