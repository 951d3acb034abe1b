"""The state of a service in a PostgreSQL database.

Two tables as in :mod:`antiphon.services.backends.sqlite_store`, and a lock that the session of one replica holds. A
connection that breaks is opened again with the next call; what was open then is gone, and the replica finds out what
the database has. Commits do not wait for the disk of the database (``synchronous_commit = off``): after a power loss or
fail-over it may be back at an earlier commit, a whole one, and the replica fetches the rest again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from antiphon.kernel.errors import PeerError, UsageError
from antiphon.services.backends.postgres_tables import dumped, restored
from antiphon.services.errors import TablesError
from antiphon.services.store import Changes

if TYPE_CHECKING:
    import psycopg

TABLES: Final = """
CREATE TABLE IF NOT EXISTS antiphon_state (key bytea PRIMARY KEY, value bytea NOT NULL);
CREATE TABLE IF NOT EXISTS antiphon_position (id integer PRIMARY KEY CHECK (id = 1), position bytea NOT NULL);
"""
LOCK: Final = "SELECT pg_try_advisory_lock('antiphon_state'::regclass::oid::bigint)"
SET: Final = """
INSERT INTO antiphon_state SELECT * FROM unnest(%s::bytea[], %s::bytea[])
ON CONFLICT (key) DO UPDATE SET value = excluded.value
"""
DELETE: Final = "DELETE FROM antiphon_state WHERE key = ANY(%s::bytea[])"
POSITION: Final = """
INSERT INTO antiphon_position VALUES (1, %s) ON CONFLICT (id) DO UPDATE SET position = excluded.position
"""
CONNECT_SECONDS: Final = 5
STATEMENT_SECONDS: Final = 30
ROWS_AT_ONCE: Final = 1000


class PostgresStore:
    """A backend in one schema of a database, which one replica uses."""

    is_blocking: Final = True
    """Its calls wait for another process."""

    def __init__(self, address: str) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise UsageError(
                "a store in PostgreSQL needs the package psycopg; install it with: pip install 'antiphon[postgres]'"
            ) from error
        self._address = address
        self._psycopg = psycopg
        self._database: psycopg.Connection[tuple[Any, ...]] | None = None
        self._is_closed = False
        with self._connected():
            pass

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """The connection, opened if need be; errors of the database as errors of Antiphon."""
        if self._is_closed:
            raise PeerError("the store of the replica has been closed")
        try:
            database = self._database
            if database is None:
                database = self._database = self._open()
            yield database
        except self._psycopg.Error as error:
            self._disconnect()
            raise PeerError(f"the database of a replica does not work: {str(error).strip()}") from error

    def _open(self) -> psycopg.Connection[tuple[Any, ...]]:
        # The database, too, is to notice soon that a replica is gone, and free its lock.
        database = self._psycopg.connect(
            self._address,
            connect_timeout=CONNECT_SECONDS,
            application_name="antiphon",
            autocommit=True,
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=3,
            tcp_user_timeout=10_000,
        )
        try:
            database.execute("SET synchronous_commit = off")
            database.execute(f"SET statement_timeout = '{STATEMENT_SECONDS}s'")
            database.execute("SET tcp_keepalives_idle = 5")
            database.execute("SET tcp_keepalives_count = 3")
            database.execute("SET client_min_messages = warning")
            database.execute(TABLES)
            row = database.execute(LOCK).fetchone()
            if row is None or not row[0]:
                raise PeerError(
                    "another replica uses this schema of the database, or its connection has not ended yet; each "
                    "replica needs a database or schema of its own"
                )
        except BaseException:
            database.close()
            raise
        return database

    def _disconnect(self) -> None:
        """What was open is undone."""
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def read(self, key: bytes) -> bytes | None:
        """The value of a key."""
        with self._connected() as database:
            row = database.execute("SELECT value FROM antiphon_state WHERE key = %s", (key,)).fetchone()
        return None if row is None else bytes(row[0])

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All keys with a prefix, sorted, and their values."""
        last, comparison = prefix, ">="
        while True:
            with self._connected() as database:
                statement = f"SELECT key, value FROM antiphon_state WHERE key {comparison} %s ORDER BY key LIMIT %s"
                rows = database.execute(statement, (last, ROWS_AT_ONCE)).fetchall()
            for key, value in rows:
                if not key.startswith(prefix):
                    return
                yield bytes(key), bytes(value)
            if len(rows) < ROWS_AT_ONCE:
                return
            last, comparison = rows[-1][0], ">"

    def position(self) -> bytes:
        """The position of the last commit."""
        with self._connected() as database:
            row = database.execute("SELECT position FROM antiphon_position").fetchone()
        return b"" if row is None else bytes(row[0])

    def commit(self, changes: Changes, position: bytes) -> None:
        """Commit changes, what was done over the connection, and a position."""
        with self._connected() as database:
            self._begin(database)
            self._write(database, changes.items(), position)

    def tables(self) -> Iterator[bytes]:
        """The committed tables of the service, in pieces."""
        try:
            # A connection of its own sees nothing of an operation that is open.
            with self._psycopg.connect(self._address, connect_timeout=CONNECT_SECONDS) as database:
                database.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                yield from dumped(database)
        except self._psycopg.Error as error:
            raise PeerError(f"the tables of the service cannot be read: {str(error).strip()}") from error

    def restore(self, items: Iterable[tuple[bytes, bytes]], position: bytes, tables: Iterable[bytes] = ()) -> None:
        """Replace everything by a snapshot and its position."""
        with self._connected() as database:
            if self._is_in_transaction(database):
                database.execute("ROLLBACK")
            self._begin(database)
            try:
                database.execute("DELETE FROM antiphon_state")
                restored(database, tables)
                self._write(database, items, position)
            except TablesError:
                database.execute("ROLLBACK")
                raise

    def _write(
        self,
        database: psycopg.Connection[tuple[Any, ...]],
        changes: Iterable[tuple[bytes, bytes | None]],
        position: bytes,
    ) -> None:
        """Write in the open transaction and commit it, in one round trip."""
        there = [(key, value) for key, value in changes if value is not None]
        gone = [key for key, value in changes if value is None]
        with database.pipeline():
            if there:
                database.execute(SET, ([key for key, _ in there], [value for _, value in there]))
            if gone:
                database.execute(DELETE, (gone,))
            database.execute(POSITION, (position,))
            database.execute("COMMIT")

    def _is_in_transaction(self, database: psycopg.Connection[tuple[Any, ...]]) -> bool:
        return database.info.transaction_status != self._psycopg.pq.TransactionStatus.IDLE

    def _begin(self, database: psycopg.Connection[tuple[Any, ...]]) -> None:
        if not self._is_in_transaction(database):
            database.execute("BEGIN")

    @property
    def connection(self) -> Any:
        """The connection to the database, within the transaction of the operation."""
        with self._connected() as database:
            return database

    def mark(self) -> None:
        """An operation is about to use the connection."""
        with self._connected() as database:
            self._begin(database)
            database.execute("SAVEPOINT antiphon")

    def undo(self) -> None:
        """Take back what was done over the connection since ``mark``."""
        with self._connected() as database:
            if self._is_in_transaction(database):
                database.execute("ROLLBACK TO SAVEPOINT antiphon")

    def close(self) -> None:
        """Close the connection: what was not committed is gone."""
        self._is_closed = True
        self._disconnect()
