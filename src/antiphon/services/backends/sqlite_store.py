"""The state of a service in a SQLite file: the default.

One table of keys and values, one row with the position, and whatever tables the service makes for itself over
``connection``. A commit is a transaction of SQLite. It is not synced to the disk: after a power loss the file may be
back at an earlier commit, a whole one, and the replica goes on from there.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from antiphon.kernel.errors import PeerError, UsageError
from antiphon.services.backends.sqlite_tables import dumped, restored
from antiphon.services.store import Changes

TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS antiphon_state (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS antiphon_position (id INTEGER PRIMARY KEY CHECK (id = 1), position BLOB NOT NULL)",
)
SETTINGS: Final = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = NORMAL", "PRAGMA busy_timeout = 2000")
SET: Final = "INSERT INTO antiphon_state VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
ROWS_AT_ONCE: Final = 1000


class SqliteStore:
    """A backend in one file, which one replica has open."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = locked(self.path)
        self._is_open = True
        try:
            with translated(self.path):
                self._database = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
                for statement in (*SETTINGS, *TABLES):
                    self._database.execute(statement)
        except BaseException:
            os.close(self._lock)
            raise

    def read(self, key: bytes) -> bytes | None:
        """The value of a key."""
        with translated(self.path):
            row = self._database.execute("SELECT value FROM antiphon_state WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All keys with a prefix, sorted, and their values."""
        last, comparison = prefix, ">="
        while True:
            with translated(self.path):
                rows = self._database.execute(
                    f"SELECT key, value FROM antiphon_state WHERE key {comparison} ? ORDER BY key LIMIT ?",
                    (last, ROWS_AT_ONCE),
                ).fetchall()
            for key, value in rows:
                if not key.startswith(prefix):
                    return
                yield key, value
            if len(rows) < ROWS_AT_ONCE:
                return
            last, comparison = rows[-1][0], ">"

    def position(self) -> bytes:
        """The position of the last commit."""
        with translated(self.path):
            row = self._database.execute("SELECT position FROM antiphon_position").fetchone()
        return b"" if row is None else row[0]

    def commit(self, changes: Changes, position: bytes) -> None:
        """Commit changes, what was done over the connection, and a position."""
        with translated(self.path):
            self._begin()
            self._write(changes.items(), position)

    def tables(self) -> Iterator[bytes]:
        """The committed tables of the service, in pieces."""
        with translated(self.path):
            yield from dumped(self.path)

    def restore(self, items: Iterable[tuple[bytes, bytes]], position: bytes, tables: Iterable[bytes] = ()) -> None:
        """Replace everything by a snapshot and its position."""
        with translated(self.path):
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            self._begin()
            try:
                self._database.execute("DELETE FROM antiphon_state")
                restored(self._database, tables)
                self._write(items, position)
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    def _write(self, changes: Iterable[tuple[bytes, bytes | None]], position: bytes) -> None:
        """Write in the open transaction and commit it."""
        execute = self._database.execute
        for key, value in changes:
            if value is None:
                execute("DELETE FROM antiphon_state WHERE key = ?", (key,))
            else:
                execute(SET, (key, value))
        execute("INSERT OR REPLACE INTO antiphon_position VALUES (1, ?)", (position,))
        execute("COMMIT")

    def _begin(self) -> None:
        if not self._database.in_transaction:
            self._database.execute("BEGIN IMMEDIATE")

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection to the file."""
        return self._database

    def mark(self) -> None:
        """An operation is about to use the connection."""
        with translated(self.path):
            self._begin()
            self._database.execute("SAVEPOINT antiphon")

    def undo(self) -> None:
        """Take back what was done over the connection since ``mark``."""
        with translated(self.path):
            if self._database.in_transaction:
                self._database.execute("ROLLBACK TO antiphon")

    def close(self) -> None:
        """Close the file: what was not committed is gone."""
        if self._is_open:
            self._is_open = False
            self._database.close()
            os.close(self._lock)


def locked(path: Path) -> int:
    """The lock beside a file, held until it is closed or the process ends."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(
            f"the store {path} cannot be opened: {error}; name a file that this program may write"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise UsageError(f"another replica has the store {path} open; each replica needs a file of its own") from error
    return lock


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Errors of SQLite as errors of Antiphon."""
    try:
        yield
    except sqlite3.Error as error:
        raise PeerError(f"the store {path} does not work: {error}; look at its disk and its file") from error
