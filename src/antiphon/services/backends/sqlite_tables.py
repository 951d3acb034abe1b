"""The tables that a service makes for itself in a SQLite file, as pieces of a snapshot.

They are read over a connection of their own, which sees what is committed and nothing of an operation that is open.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.services.backends.table_pieces import quoted, unwrapped, wrapped
from antiphon.services.errors import TablesError

KIND: Final = "SQLite"
ROWS_AT_ONCE: Final = 200
OWN_PATTERN: Final = "antiphon\\_%"

MADE: Final = f"""
SELECT type, name, tbl_name, sql FROM sqlite_master
WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND tbl_name NOT LIKE '{OWN_PATTERN}' ESCAPE '\\'
ORDER BY CASE type WHEN 'table' THEN 0 WHEN 'index' THEN 1 WHEN 'view' THEN 2 ELSE 3 END, rowid
"""


class SqlitePiece(msgspec.Struct, frozen=True, array_like=True):
    """A statement that makes something, or rows of a table."""

    statement: str
    columns: list[str] = []
    rows: list[list[Any]] = []


pieces: Final = msgspec.msgpack.Decoder(SqlitePiece)


def dumped(path: Path) -> Iterator[bytes]:
    """The tables in a file, and what belongs to them."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)) as database:
        database.execute("BEGIN")
        made = database.execute(MADE).fetchall()
        for kind, name, _, sql in made:
            if kind == "table":
                yield wrapped(KIND, SqlitePiece(sql))
                yield from rows_of(database, name, sql)
        if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_sequence'").fetchone():
            counters = database.execute("SELECT name, seq FROM sqlite_sequence").fetchall()
            yield wrapped(KIND, SqlitePiece("DELETE FROM sqlite_sequence"))
            insert = "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)"
            yield wrapped(KIND, SqlitePiece(insert, ["name", "seq"], counters))
        for kind, _, _, sql in made:
            if kind != "table":
                yield wrapped(KIND, SqlitePiece(sql))


def rows_of(database: sqlite3.Connection, name: str, sql: str) -> Iterator[bytes]:
    """The rows of a table, with the numbers that SQLite has given them."""
    if sql.lstrip().upper().startswith("CREATE VIRTUAL"):
        raise TablesError(
            f"the virtual table {name!r} of the service cannot be part of a snapshot; copy a file instead"
        )
    # Computed columns are computed again.
    columns = [row[1] for row in database.execute(f"PRAGMA table_xinfo({quoted(name)})") if not row[6]]
    try:
        database.execute(f"SELECT _rowid_ FROM {quoted(name)} LIMIT 0")
        columns.insert(0, "_rowid_")
    except sqlite3.OperationalError:
        # It is a table without such numbers.
        pass
    listed = ", ".join(quoted(column) if column != "_rowid_" else column for column in columns)
    insert = f"INSERT INTO {quoted(name)} ({listed}) VALUES ({', '.join('?' * len(columns))})"
    found = database.execute(f"SELECT {listed} FROM {quoted(name)}")
    while rows := found.fetchmany(ROWS_AT_ONCE):
        yield wrapped(KIND, SqlitePiece(insert, columns, rows))


def restored(database: sqlite3.Connection, dump: Iterable[bytes]) -> None:
    """Replace all tables of the service, within the open transaction."""
    database.execute("PRAGMA defer_foreign_keys = ON")
    for kind, name, table, _ in reversed(database.execute(MADE).fetchall()):
        # Indexes and triggers go with their table.
        if kind == "view" or (kind == "table" and name == table):
            database.execute(f"DROP {kind.upper()} IF EXISTS {quoted(name)}")
    for each in dump:
        piece = pieces.decode(unwrapped(KIND, each))
        if piece.columns:
            database.executemany(piece.statement, piece.rows)
        else:
            database.execute(piece.statement)
