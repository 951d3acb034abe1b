"""Tables that a service makes for itself are part of snapshots."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import antiphon
import antiphon.testing
from antiphon.services import replica_store
from antiphon.services.backends.sqlite_store import SqliteStore
from antiphon.services.calls import bind, encode_call
from antiphon.services.description import describe
from antiphon.services.errors import TablesError
from antiphon.services.frames import OPERATION, ServiceFrame, encode
from antiphon.services.replica import ServiceReplica
from antiphon.services.store import MemoryStore, StoreBackend
from antiphon.testing import Cluster


class Notes(antiphon.Service):
    """Notes in a table of the database."""

    @antiphon.operation(order="total")
    def prepare(self, store: antiphon.ServiceStore, statement: str) -> None:
        store.connection.execute(statement)

    @antiphon.operation(order="total")
    def write(self, store: antiphon.ServiceStore, text: str) -> int:
        count: int = store.get("count", 0) + 1
        store.set("count", count)
        store.connection.execute("INSERT INTO notes (place, text) VALUES (?, ?)", (count, text))
        return count

    @antiphon.operation(order="total")
    def tear(self, store: antiphon.ServiceStore, place: int) -> None:
        store.connection.execute("DELETE FROM notes WHERE place = ?", (place,))


NOTES = describe(Notes)
TABLE = "CREATE TABLE notes (place INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT UNIQUE, size AS (length(text)))"


class NoteTaker:
    """A replica, and the operations that are handed to it."""

    def __init__(self, backend: StoreBackend, number: int = 1) -> None:
        self.replica = ServiceReplica(NOTES, backend, number)

    def do(self, name: str, *arguments: object) -> None:
        number = self.replica.applied + 1
        body = encode_call(bind(NOTES.calls[name], arguments, {}))
        self.replica.take(1, number, encode(ServiceFrame(OPERATION, 5, number, 1, 1, body)))
        self.replica.commit()

    def give(self, other: NoteTaker) -> None:
        """The other one takes this one's state."""
        other.replica.restore(list(self.replica.kept.whole()), self.replica.kept.position())


def contents(path: Path) -> list[str]:
    """Everything that is in a file, but for the position."""
    with sqlite3.connect(path) as database:
        return [line for line in database.iterdump() if "antiphon_position" not in line]


def test_a_snapshot_has_tables_indexes_views_triggers_and_counters(tmp_path: Path) -> None:
    one = NoteTaker(SqliteStore(tmp_path / "1.db"))
    one.do("prepare", TABLE)
    one.do("prepare", "CREATE TABLE log (what) ")
    one.do("prepare", "CREATE TABLE pairs (a, b, PRIMARY KEY (a, b)) WITHOUT ROWID")
    one.do("prepare", "INSERT INTO pairs VALUES (1, x'00ff'), (2.5, NULL)")
    one.do("prepare", "CREATE INDEX by_text ON notes (text)")
    one.do("prepare", "CREATE VIEW short AS SELECT * FROM notes WHERE size < 3")
    one.do("prepare", "CREATE TRIGGER logged AFTER INSERT ON notes BEGIN INSERT INTO log VALUES (new.text); END")
    for number in range(500):
        one.do("write", f"note {number}")
    one.do("tear", 500)
    two = NoteTaker(SqliteStore(tmp_path / "2.db"), 2)
    two.do("prepare", "CREATE TABLE old (x)")
    one.give(two)
    assert contents(tmp_path / "2.db") == contents(tmp_path / "1.db")
    # Both go on alike: rows get the same numbers, and operations that came with the state count once.
    for each in (one, two):
        each.do("prepare", "INSERT INTO notes (text) VALUES ('again')")
    assert contents(tmp_path / "2.db") == contents(tmp_path / "1.db")
    assert one.replica.applied == two.replica.applied


def test_a_snapshot_has_nothing_that_is_not_committed(tmp_path: Path) -> None:
    one = NoteTaker(SqliteStore(tmp_path / "1.db"))
    one.do("prepare", TABLE)
    body = encode_call(bind(NOTES.calls["write"], ("open",), {}))
    one.replica.take(1, 2, encode(ServiceFrame(OPERATION, 5, 2, 1, 1, body)))
    two = NoteTaker(SqliteStore(tmp_path / "2.db"), 2)
    one.give(two)
    one.replica.commit()
    with sqlite3.connect(tmp_path / "2.db") as database:
        assert database.execute("SELECT count(*) FROM notes").fetchone() == (0,)
    assert two.replica.applied == 1


def test_what_cannot_travel_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = NoteTaker(SqliteStore(tmp_path / "1.db"))
    one.do("prepare", TABLE)
    one.do("write", "a" * 1000)
    two = NoteTaker(MemoryStore(), 2)
    with pytest.raises(TablesError, match="this store is in memory"):
        one.give(two)
    monkeypatch.setattr(replica_store, "TABLES_BYTES_AT_MOST", 500)
    with pytest.raises(TablesError, match="more than 500 bytes"):
        one.give(two)
    monkeypatch.undo()
    before = contents(tmp_path / "1.db")
    bad = [(replica_store.TABLES + bytes(8), encode(["PostgreSQL", b""]))]
    with pytest.raises(TablesError, match="tables of PostgreSQL, and this replica is on SQLite"):
        one.replica.restore(bad, one.replica.kept.position())
    assert contents(tmp_path / "1.db") == before, "nothing is half replaced"
    one.do("prepare", "CREATE VIRTUAL TABLE words USING fts5(text)")
    with pytest.raises(TablesError, match="virtual table 'words'"):
        one.give(two)


@antiphon.testing.with_cluster(nodes=2)
async def test_a_newcomer_gets_tables_or_ends_with_the_reason(cluster: Cluster, tmp_path: Path) -> None:
    first = await antiphon.serve(Notes, cluster.nodes[0], store=tmp_path / "1.db")
    first._live.replica.operations.most = 1
    notes = Notes.proxy(cluster.nodes[0])
    await notes.prepare(TABLE)
    for number in range(20):
        await notes.write(f"note {number}")
    async with antiphon.serve(Notes, cluster.nodes[1], store=tmp_path / "2.db"):
        assert contents(tmp_path / "2.db") == contents(tmp_path / "1.db")
    await notes.prepare("CREATE VIRTUAL TABLE words USING fts5(text)")
    with pytest.raises(antiphon.TablesError, match="another replica cannot give its state: the virtual table 'words'"):
        await antiphon.serve(Notes, cluster.nodes[1], store=tmp_path / "3.db")
    await first.close()
