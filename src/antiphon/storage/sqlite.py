"""The directory of a durable log: one SQLite file, the mark of the last promise, a lock, and the errors of all three.

======================  ===============================================================================================
``log.sqlite``          entries and records (see ``formats``), with SQLite's write-ahead log ``-wal`` and index ``-shm``
``promised``            the mark: the number of the last commit that was reported as durable
``lock``                held by the one process that has the log open; it dies with that process
======================  ===============================================================================================

Opening checks before it writes: it reads everything through a connection that cannot change the files, so a store that
is refused is left as it was found. SQLite keeps the whole transactions of its write-ahead log and ignores the rest,
which repairs a torn write. The mark says whether the rest had been promised.

This is the one place where errors of SQLite and of the operating system become errors of Antiphon.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import msgspec

from antiphon.kernel.errors import PeerError, UsageError
from antiphon.storage.directory import (
    PRIVATE_FILE,
    UNFINISHED_NAME,
    make_directory,
    make_private,
    make_private_file,
    sync_directory,
    sync_file,
    write_durably,
)
from antiphon.storage.log_formats import (
    FIRST_RECORD_KEY,
    SLOT_BYTES,
    DamagedError,
    HeadRecord,
    marked_commit,
    packed_slot,
    record_row,
    unpacked_record,
)

DATABASE_NAME = "log.sqlite"
MARK_NAME = "promised"
LOCK_NAME = "lock"
APPLICATION_ID = 0x416E7469
"""``Anti``, in the place where SQLite files say whose they are."""

VERSION = 1
SQLITE_MAGIC = b"SQLite format 3\0"
INCREMENTAL = 2
"""The number of incremental vacuum in SQLite."""

SQLITE_HEADER_BYTES = 100
PAGE_BYTES = 16384
"""Measured: a batch of 7 KB costs a third less processor time than with pages of 4 KB."""

CHECKPOINT_PAGES = 1024
WAL_LIMIT_BYTES = 64 * 1024 * 1024
ROWS_PER_STATEMENT = 256
"""A commit is one statement if it can be: after each one the thread has to ask for the interpreter again, which takes
longer than writing beside a busy event loop. Some builds of SQLite take no more than 999 values."""

BYTES_PER_STATEMENT = 4 * 1024 * 1024
STATEMENTS_KEPT = 8
"""A prepared statement is kept for the next commit with as many rows, with a copy of everything that it wrote last. So
few are kept, and those with many rows are bounded in bytes."""

SCHEMA = {"item": "CREATE TABLE item (key INTEGER PRIMARY KEY, header BLOB NOT NULL, body BLOB NOT NULL)"}
"""One table, so that one statement can write to it: entries by their key, records below zero and without a header."""

RESTORE = (
    "nothing was changed or removed; antiphon log verify DIRECTORY says what is damaged, and antiphon log repair "
    "DIRECTORY salvages the rest; or restore the directory from a copy, or move it away and start with an empty one"
)

Row = tuple[int, bytes, bytes]
"""Key, header, body."""

ReadConnection = sqlite3.Connection
"""A connection that only reads, for one more thread."""


@contextmanager
def errors_of(directory: Path, doing: str) -> Iterator[None]:
    """Translate the errors of SQLite, of the operating system and of checksums while ``doing`` something."""
    try:
        yield
    except DamagedError as error:
        raise PeerError(f"the log in {directory} is damaged ({error}) and cannot be used; {RESTORE}") from error
    except msgspec.MsgspecError as error:
        raise PeerError(f"the log in {directory} is damaged (a record: {error}); {RESTORE}") from error
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", None) or type(error).__name__
        raise PeerError(f"{doing} the log in {directory} failed: {error} ({name}); {advice_for(name)}") from error
    except OSError as error:
        raise PeerError(
            f"{doing} the log in {directory} failed: {error.strerror or error} ({error.filename or 'no file'}); "
            "check the disk and the rights of the directory, then try again"
        ) from error


def advice_for(name: str) -> str:
    """Advice for an error of SQLite."""
    if name.startswith("SQLITE_FULL"):
        return "the disk is full: free some space and commit again, nothing appended is lost meanwhile"
    if name.startswith(("SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return (
            "check the disk, its free space and the rights of the directory, then try again; nothing appended is lost"
        )
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return "another program has the file open for writing: close it, then try again; nothing appended is lost"
    return f"it is damaged or not a log of Antiphon; {RESTORE}"


class Store:
    """The files of an open log. One thread writes at a time; any thread may read meanwhile."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lock = -1
        self.mark = -1
        self.reader: sqlite3.Connection | None = None
        self.writer: sqlite3.Connection | None = None

    # Opening and closing

    def open_for_reading(self) -> HeadRecord:
        """Take the lock, create the files in an empty directory, check them, and give the head; no other change."""
        refuse_foreign(self.directory)
        self.lock = take_lock(self.directory)
        with errors_of(self.directory, "opening"):
            if not (self.directory / DATABASE_NAME).exists():
                create_database(self.directory)
            refuse_other_format(self.directory / DATABASE_NAME)
            self.reader = connect(self.directory / DATABASE_NAME, read_only=True)
            check_schema(self.directory, self.reader)
            ((number, body),) = self.records(0, 1)
            head = unpacked_record(number, body, HeadRecord)
            self.mark = self._open_mark(head)
        return head

    def _open_mark(self, head: HeadRecord) -> int:
        """Open the mark and compare it with the head."""
        path = self.directory / MARK_NAME
        if not path.exists():
            if head.commit > 0:
                raise DamagedError(f"the file {MARK_NAME!r} is missing")
            # The creation of the log was interrupted before its last step.
            write_durably(path, packed_slot(0) * 2)
        promised = marked_commit(path.read_bytes())
        if head.commit < promised:
            raise DamagedError(
                f"commit {promised} was made durable but the last whole one is {head.commit}: "
                f"{DATABASE_NAME}-wal was changed or removed"
            )
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def open_for_writing(self, sync: bool, commit: int) -> None:
        """Open the writing connection, and sync everything that a process wrote before it died."""
        with errors_of(self.directory, "opening"):
            self.writer = connect(self.directory / DATABASE_NAME, read_only=False)
            # With NORMAL a commit is written but not synced; a checkpoint is synced all the same.
            self.writer.execute(f"pragma synchronous={'full' if sync else 'normal'}")
            self.writer.execute(f"pragma wal_autocheckpoint={CHECKPOINT_PAGES}")
            self.writer.execute(f"pragma journal_size_limit={WAL_LIMIT_BYTES}")
            # Some builds write zeros over every page that is removed, which doubles the writing of retention.
            self.writer.execute("pragma secure_delete=fast")
            self.make_everything_durable(commit)

    def make_everything_durable(self, commit: int) -> None:
        """Move the write-ahead log into the main file, with syncs, and promise all of it."""
        assert self.writer is not None
        busy, *_ = self.writer.execute("pragma wal_checkpoint(truncate)").fetchone()
        if busy:
            raise PeerError(
                f"another program reads {self.directory / DATABASE_NAME}: close it, then try again; nothing was changed"
            )
        self.promise(commit)
        os.fsync(self.mark)

    def close(self) -> None:
        """Close the files; the last connection leaves everything in the main file."""
        for connection in (self.reader, self.writer):
            if connection is not None:
                connection.close()
        self.reader = self.writer = None
        for descriptor in (self.mark, self.lock):
            if descriptor >= 0:
                os.close(descriptor)
        self.mark = self.lock = -1

    # Writing

    def write(self, rows: Sequence[Row]) -> None:
        """Put rows, all or none; durable on return if the log was opened with ``sync``."""
        statements = list(parts_of(rows))
        if len(statements) == 1:
            with errors_of(self.directory, "writing to"):
                self._put(rows)  # a single statement is a transaction of its own
            return
        with self._transaction():
            for part in statements:
                self._put(part)

    def remove(self, first_key: int, end_key: int, rows: Sequence[Row]) -> None:
        """Remove the rows from the first key to the end, which stays, and put others in the same transaction."""
        with self._transaction() as writer:
            writer.execute("delete from item where key >= ? and key < ?", (first_key, end_key))
            self._put(rows)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing."""
        assert self.writer is not None
        with errors_of(self.directory, "writing to"):
            try:
                self.writer.execute("begin immediate")
                yield self.writer
                self.writer.execute("commit")
            except BaseException:
                if self.writer.in_transaction:
                    with suppress(sqlite3.Error):  # the first error is the one to raise
                        self.writer.execute("rollback")
                raise

    def _put(self, rows: Sequence[Row]) -> None:
        """Put rows in one statement: no more than ``parts_of`` gives at once."""
        assert self.writer is not None
        slots = ",".join(["(?,?,?)"] * len(rows))
        self.writer.execute(f"insert or replace into item values {slots}", [value for row in rows for value in row])

    def promise(self, commit: int) -> None:
        """Note that a commit is durable. Without a sync: a process that dies loses nothing of it, and a machine that
        loses power may go back to an older mark, which promises less and is still true."""
        with errors_of(self.directory, "marking a commit in"):
            os.pwrite(self.mark, packed_slot(commit), commit % 2 * SLOT_BYTES)

    # Space

    def pages(self) -> tuple[int, int, int]:
        """The number of free pages, of all pages, and the bytes of one."""
        free, every, size = (self._pragma(name) for name in ("freelist_count", "page_count", "page_size"))
        return free, every, size

    def gives_back(self) -> bool:
        """Whether free pages can be given back; those of a file that an earlier version made cannot."""
        return self._pragma("auto_vacuum") == INCREMENTAL

    def give_back(self, count: int) -> None:
        """Move pages from the end of the file into free ones, and give the end back."""
        assert self.writer is not None, "the log is open"
        self.writer.execute(f"pragma incremental_vacuum({count})").fetchall()

    def cut_files(self) -> None:
        """Cut the files, unless somebody reads them: then a later commit does it."""
        self._pragma("busy_timeout=0")
        try:
            self._pragma("wal_checkpoint(truncate)")
        finally:
            self._pragma("busy_timeout=5000")

    def rewrite(self) -> None:
        """Write the whole file anew, without free pages, so that it can give space back from now on."""
        assert self.writer is not None, "the log is open"
        with errors_of(self.directory, "rewriting"):
            self.writer.execute("pragma auto_vacuum=incremental")
            self.writer.execute("vacuum")
            self._pragma("wal_checkpoint(truncate)")

    def _pragma(self, name: str) -> int:
        """Do or ask something about the file; the first number of the answer."""
        assert self.writer is not None, "the log is open"
        rows = self.writer.execute(f"pragma {name}").fetchall()
        return int(rows[0][0])

    # Reading

    def records(self, first: int, count: int) -> Iterator[tuple[int, bytes | None]]:
        """All numbers from ``first`` on, with their records or with none where there should be one."""
        query = "select key, body from item where key >= ? and key < ? order by key"
        rows = self._reader().execute(query, (FIRST_RECORD_KEY + first, FIRST_RECORD_KEY + first + count))
        found = {key - FIRST_RECORD_KEY: body for key, body in rows if isinstance(body, bytes)}
        return ((number, found.get(number)) for number in range(first, first + count))

    def header_at(self, first_key: int, key: int) -> tuple[int, bytes] | None:
        """Key and header of the last entry from ``first_key`` to ``key``, both included."""
        query = "select key, header from item where key >= ? and key <= ? order by key desc limit 1"
        row: tuple[int, bytes] | None = self._reader().execute(query, (first_key, key)).fetchone()
        return row

    def headers(self, key: int, end_key: int) -> sqlite3.Cursor:
        """Keys and headers of the entries from ``key`` on, without their batches; for the thread that writes."""
        assert self.writer is not None
        return self.writer.execute(
            "select key, header from item where key >= ? and key < ? order by key", (key, end_key)
        )

    def entries(
        self, first_key: int, key: int, end_key: int, connection: ReadConnection | None = None
    ) -> sqlite3.Cursor:
        """Entries in order, from the last one between ``first_key`` and ``key`` on; none if there is none between."""
        query = (
            "select key, header, body from item "
            "where key >= (select max(key) from item where key >= ? and key <= ?) and key < ? order by key"
        )
        return (connection or self._reader()).execute(query, (first_key, key, end_key))

    def connect_reader(self) -> ReadConnection:
        """One more connection for reading: its thread and the others do not wait for each other."""
        with errors_of(self.directory, "opening"):
            return connect(self.directory / DATABASE_NAME, read_only=True)

    def _reader(self) -> sqlite3.Connection:
        if self.reader is None:
            raise UsageError("the log is closed; open it again")
        return self.reader


def parts_of(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """The rows of each statement that writes them."""
    start, byte_count = 0, 0
    for place, (_, _, body) in enumerate(rows):
        is_too_much = byte_count + len(body) > BYTES_PER_STATEMENT or place - start == ROWS_PER_STATEMENT
        if is_too_much and place > start:
            yield rows[start:place]
            start, byte_count = place, 0
        byte_count += len(body)
    if start < len(rows):
        yield rows[start:]


def connect(path: Path, read_only: bool) -> sqlite3.Connection:
    """A connection that begins transactions only when told to, and may be used by several threads in turn."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=STATEMENTS_KEPT,
    )
    connection.execute("pragma trusted_schema=off")
    connection.execute("pragma cell_size_check=on")
    return connection


def complaints_about(directory: Path, most: int) -> list[str]:
    """The damage that SQLite finds in the structure of a log's file."""
    try:
        with closing(connect(directory / DATABASE_NAME, read_only=True)) as connection:
            check_schema(directory, connection)
            rows = connection.execute(f"pragma integrity_check({most})").fetchall()
    except (sqlite3.Error, PeerError) as error:
        return [f"SQLite cannot read the file: {error}"]
    found = [str(row[0]) for row in rows if row[0] != "ok"]
    return [f"SQLite: {line}" for each in found for line in each.splitlines() if line]


def check_schema(directory: Path, connection: sqlite3.Connection) -> None:
    """Refuse a file that is not a log, or one of another version."""
    (application,) = connection.execute("pragma application_id").fetchone()
    if application != APPLICATION_ID:
        raise PeerError(f"{directory / DATABASE_NAME} is not a log of Antiphon, or is damaged; name another directory")
    (version,) = connection.execute("pragma user_version").fetchone()
    if version != VERSION:
        raise PeerError(
            f"the log in {directory} has version {version}, this Antiphon reads version {VERSION}; "
            "use the Antiphon that wrote it, or name another directory"
        )
    schema = dict(connection.execute("select name, sql from sqlite_schema"))
    if schema != SCHEMA:
        raise DamagedError("its tables are not those of a log")


def refuse_foreign(directory: Path) -> None:
    """Refuse a directory that holds something else, or a log of which the main file is gone."""
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"{directory} is a file; a log needs a directory of its own")
    with errors_of(directory, "opening"):
        names = {path.name for path in directory.iterdir()} if directory.exists() else set()
        if DATABASE_NAME in names:
            return
        if names & {MARK_NAME, f"{DATABASE_NAME}-wal", f"{DATABASE_NAME}-shm"}:
            raise DamagedError(f"the file {DATABASE_NAME!r} is missing")
    foreign = sorted(name for name in names if name != LOCK_NAME and not name.startswith(UNFINISHED_NAME))
    if foreign:
        raise UsageError(
            f"{directory} is not a log and not empty (it has {foreign[0]!r}); name a new or an empty directory"
        )


def refuse_other_format(path: Path) -> None:
    """Look at the first bytes ourselves: next to an empty file SQLite would throw the write-ahead log away."""
    with path.open("rb") as file:
        header = file.read(SQLITE_HEADER_BYTES)
    if len(header) < SQLITE_HEADER_BYTES or not header.startswith(SQLITE_MAGIC):
        raise DamagedError(f"{DATABASE_NAME} does not begin as it should")


def create_database(directory: Path) -> None:
    """Make an empty log. The file gets its name when it is complete, so an interrupted creation starts again."""
    for path in directory.glob(f"{UNFINISHED_NAME}*"):
        path.unlink()
    path = directory / UNFINISHED_NAME
    make_private_file(path)  # SQLite gives the files beside it the same rights
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute(f"pragma page_size={PAGE_BYTES}")
        connection.execute("pragma auto_vacuum=incremental")  # only before the first table; see ``space``
        connection.execute("pragma journal_mode=wal")
        connection.execute(f"pragma application_id={APPLICATION_ID}")
        connection.execute(f"pragma user_version={VERSION}")
        for statement in SCHEMA.values():
            connection.execute(statement)
        connection.execute("insert into item values (?, ?, ?)", record_row(0, HeadRecord(0, 0, 0)))
    finally:
        connection.close()
    sync_file(path)
    path.rename(directory / DATABASE_NAME)
    sync_directory(directory)


def take_lock(directory: Path) -> int:
    """Make the directory if need be, and take its lock; refused while another process has it."""
    with errors_of(directory, "opening"):
        make_directory(directory)
        descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise PeerError(
                f"the log in {directory} is open already, in process {holder}; stop that one, or name another directory"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        make_private(directory)
    return descriptor
