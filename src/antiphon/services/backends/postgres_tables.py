"""The tables that a service makes for itself in the schema of a replica in PostgreSQL, as pieces of a snapshot.

Tables, their constraints and indexes travel. Sequences do not: their numbers do not come back when an operation
raises, so replicas that use them part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from antiphon.services.backends.table_pieces import quoted, unwrapped, wrapped
from antiphon.services.errors import TablesError

KIND: Final = "PostgreSQL"
ROWS_BYTES: Final = 64 << 10

TABLES: Final = """
SELECT oid, relname, relkind FROM pg_class
WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p') AND relname NOT LIKE 'antiphon\\_%'
ORDER BY relname
"""
COLUMNS: Final = """
SELECT attname, format_type(atttypid, atttypmod), attnotnull, pg_get_expr(adbin, adrelid), attidentity, attgenerated
FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
CONSTRAINTS: Final = """
SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE conrelid = %s AND contype IN ('p', 'u', 'c', 'f', 'x') ORDER BY contype = 'f', conname
"""
INDEXES: Final = """
SELECT pg_get_indexdef(indexrelid) FROM pg_index
WHERE indrelid = %s AND NOT EXISTS (SELECT 1 FROM pg_constraint WHERE conindid = indexrelid) ORDER BY indexrelid
"""


class PostgresPiece(msgspec.Struct, frozen=True, array_like=True):
    """A table that is made, a statement after all tables have their rows, or rows for COPY."""

    table: str
    statement: str
    rows: bytes = b""


pieces: Final = msgspec.msgpack.Decoder(PostgresPiece)


def dumped(database: Any) -> Iterator[bytes]:
    """The tables of the schema, over a connection in a transaction that sees one state."""
    later: list[tuple[bool, bytes]] = []
    for number, name, kind in database.execute(TABLES).fetchall():
        if kind == "p":
            raise TablesError(f"the table {name!r} has partitions, and cannot be part of a snapshot; use a plain table")
        columns = database.execute(COLUMNS, (number,)).fetchall()
        yield wrapped(KIND, PostgresPiece(name, created(name, columns)))
        listed = ", ".join(quoted(column[0]) for column in columns if not column[5])
        into = f"COPY {quoted(name)} ({listed}) FROM STDIN"
        with database.cursor().copy(f"COPY {quoted(name)} ({listed}) TO STDOUT") as copied:
            rows = b""
            for row in copied:
                rows += bytes(row)
                if len(rows) >= ROWS_BYTES:
                    yield wrapped(KIND, PostgresPiece(name, into, rows))
                    rows = b""
            if rows:
                yield wrapped(KIND, PostgresPiece(name, into, rows))
        for constraint, text in database.execute(CONSTRAINTS, (number,)).fetchall():
            added = f"ALTER TABLE {quoted(name)} ADD CONSTRAINT {quoted(constraint)} {text}"
            later.append((text.startswith("FOREIGN"), wrapped(KIND, PostgresPiece(name, added))))
        for (text,) in database.execute(INDEXES, (number,)).fetchall():
            later.append((False, wrapped(KIND, PostgresPiece(name, text))))
    # Foreign keys need the keys of other tables.
    yield from (piece for _, piece in sorted(later, key=lambda each: each[0]))


def created(name: str, columns: list[Any]) -> str:
    """The statement that makes a table without its constraints."""
    listed = []
    for column, kind, is_set, default, identity, generated in columns:
        if identity or "nextval(" in (default or ""):
            raise TablesError(
                f"the column {column!r} of {name!r} takes its numbers from a sequence, which cannot be part of a "
                "snapshot: let operations name their rows by their arguments, or by what the table has"
            )
        text = f"{quoted(column)} {kind}"
        if generated:
            text += f" GENERATED ALWAYS AS ({default}) STORED"
        elif default is not None:
            text += f" DEFAULT {default}"
        listed.append(text + (" NOT NULL" if is_set else ""))
    return f"CREATE TABLE {quoted(name)} ({', '.join(listed)})"


def restored(database: Any, dump: Iterable[bytes]) -> None:
    """Make the tables of a snapshot, within the open transaction; those with their names go."""
    made: set[str] = set()
    for each in dump:
        piece = pieces.decode(unwrapped(KIND, each))
        if piece.table not in made:
            made.add(piece.table)
            database.execute(f"DROP TABLE IF EXISTS {quoted(piece.table)} CASCADE")
        if piece.rows:
            with database.cursor().copy(piece.statement) as copying:
                copying.write(piece.rows)
        else:
            database.execute(piece.statement)
    others = [name for _, name, _ in database.execute(TABLES).fetchall() if name not in made]
    if made and others:
        raise TablesError(
            f"the schema of this replica has tables that the others do not have: {', '.join(others)}; give the "
            "replica a schema of its own"
        )
