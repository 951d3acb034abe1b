"""The files of a node's streams: entries, messages and votes in one SQLite database.

They are committed with the log of the node, and after it, by :mod:`antiphon.storage.group_commit`: everything that was
written while the last commit ran goes to the disk together. Reading sees what is on the disk.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.kernel.errors import PeerError
from antiphon.runtime.logging import logger
from antiphon.storage.directory import make_directory, make_private_file
from antiphon.storage.group_commit import GroupCommit
from antiphon.streams.entries import IndexEntry
from antiphon.streams.host import NOBODY, SavedReplica
from antiphon.streams.service.host import Name, StreamContent

FILE_NAME: Final = "streams.sqlite"
VERSION: Final = 1
NOWHERE: Final = -1
"""In the place of the position of an entry that has no messages."""

SPARE_PAGES: Final = 256
STEP_PAGES: Final = 256
"""Free pages are given back, so many in one step, if there are more, and more than a quarter of those in use."""

SCHEMA: Final = """
create table if not exists fact (name text primary key, value blob not null) without rowid;
create table if not exists entry (
    stream integer, number integer, position integer, body blob not null, primary key (stream, number)) without rowid;
create index if not exists entry_position on entry (stream, position);
create table if not exists content (
    stream integer, source integer, sequence integer, offset integer not null, body blob not null,
    primary key (stream, source, sequence)) without rowid;
create index if not exists content_offset on content (stream, offset);
"""

Statement = tuple[str, tuple[Any, ...]]

log = logger("streams")


class StreamStore:
    """The database of one node; ``commit`` brings it to the disk."""

    def __init__(self, directory: Path, commit: GroupCommit) -> None:
        make_directory(directory)
        path = directory / FILE_NAME
        if not path.exists():
            make_private_file(path)
        self._writer = self._connect(path)
        self._writer.executescript(SCHEMA)
        self._reader = self._connect(path)
        # What waits for a commit. Its thread takes the first ones away while more are added.
        self._pending: list[Statement] = []
        # Facts of this life: some are not on disk yet.
        self._facts: dict[str, bytes] = {}
        self._is_closed = False
        # Whether there may be free pages to give back.
        self._has_removed = False
        self.identity = self._identity()
        self._commit_files = commit
        commit.join(self)

    @staticmethod
    def _connect(path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        connection.execute("pragma auto_vacuum=incremental")  # only before the first table
        connection.execute("pragma journal_mode=wal")
        connection.execute("pragma synchronous=full")
        return connection

    def _identity(self) -> int:
        """The number of this node as a replica: it stays the same for as long as there is this file."""
        found = self.fact("identity")
        if found is not None:
            return int(found)
        identity = secrets.randbits(62) | 1
        self._writer.execute("insert into fact values ('identity', ?)", (str(identity).encode(),))
        return identity

    # Writing.

    def write(self, sql: str, *values: Any) -> None:
        """Write something with the next commit."""
        self._pending.append((sql, values))

    def write_entry(self, stream: int, number: int, entry: IndexEntry) -> None:
        """Write an entry with the next commit."""
        body = msgspec.msgpack.encode(entry)
        # Entries without messages have no place among those with: there may be thousands of them between two.
        position = entry.position if entry.count else NOWHERE
        self.write("insert into entry values (?, ?, ?, ?)", stream, number, position, body)

    def cut_entries(self, stream: int, first: int, last: int) -> None:
        """Remove entries from a number on, up to another one, with the next commit, and leave their messages."""
        self.write("delete from entry where stream = ? and number between ? and ?", stream, first, last)

    def write_content(self, stream: int, name: Name, offset: int, content: StreamContent) -> None:
        """Write the messages of a publication with the next commit."""
        body = msgspec.msgpack.encode(content)
        self.write("insert or replace into content values (?, ?, ?, ?, ?)", stream, *name, offset, body)

    def remove_entries(self, stream: int, last: int) -> None:
        """Remove the entries up to a number, with their messages. They are on disk."""
        rows = self._reader.execute("select body from entry where stream = ? and number <= ?", (stream, last))
        for (body,) in rows:
            entry = msgspec.msgpack.decode(body, type=IndexEntry)
            if entry.count:
                self.remove_content(stream, entry.source, entry.sequence)
        self.write("delete from entry where stream = ? and number <= ?", stream, last)
        self.put(f"floor {stream}", b"%d" % last)

    def remove_content(self, stream: int, source: int, sequence: int) -> None:
        """Remove the messages of a publication with the next commit."""
        self.write("delete from content where stream = ? and source = ? and sequence = ?", stream, source, sequence)
        self._has_removed = True

    def put(self, name: str, value: bytes) -> None:
        """Write a fact."""
        self._facts[name] = value
        self.write("insert or replace into fact values (?, ?)", name, value)

    def then(self, call: Callable[[], object]) -> None:
        """Call something when everything written so far is on disk."""
        if self._is_closed:
            return
        self._commit_files.then(partial(self._call, call))

    @staticmethod
    def _call(call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:
            # The others wait for other streams, whose messages would be lost.
            log.error("a step after a commit failed", cause=error)

    # What the thread of commits does.

    @property
    def is_behind(self) -> bool:
        """Whether something waits for a commit, or there may be space to give back."""
        return bool(self._pending) or self._has_removed

    def commit(self) -> None:
        """Bring everything written so far to the disk; what a failed commit leaves goes with the next one."""
        statements = self._pending[:]
        if not statements:
            self._has_removed = self._has_removed and self._give_back()
            return
        writer = self._writer
        try:
            writer.execute("begin immediate")
            try:
                for sql, values in statements:
                    writer.execute(sql, values)
                writer.execute("commit")
            except BaseException:
                writer.execute("rollback")
                raise
        except sqlite3.Error as error:
            raise PeerError(f"cannot commit the files of the histories: {error}") from error
        del self._pending[: len(statements)]

    def _give_back(self) -> bool:
        """Give some free pages back to the file system; whether there are more to give."""
        free, pages = self._pragma("freelist_count"), self._pragma("page_count")
        if self._is_closed or free <= max(SPARE_PAGES, (pages - free) // 4):
            return False
        try:
            self._writer.execute(f"pragma incremental_vacuum({STEP_PAGES})").fetchall()
        except sqlite3.Error as error:
            log.warning("cannot give space back", reason=str(error))
            return False
        # A file of an earlier version keeps its free pages, and uses them again.
        return self._pragma("freelist_count") < free

    def _pragma(self, name: str) -> int:
        return int(self._writer.execute(f"pragma {name}").fetchone()[0])

    def close(self) -> None:
        """Commit everything that waits, unless the disk fails, and close the file."""
        self._is_closed = True
        try:
            if self._pending:
                self.commit()
        except PeerError as error:
            log.error("cannot commit", reason=str(error))
        finally:
            self._reader.close()
            self._writer.close()

    # Reading.

    def fact(self, name: str) -> bytes | None:
        """A fact that was put."""
        if name in self._facts:
            return self._facts[name]
        row = self._reader.execute("select value from fact where name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def saved(self, stream: int) -> SavedReplica:
        """The part of a replica that is on disk."""
        term, voted_for = msgspec.msgpack.decode(self.fact(f"vote {stream}") or b"\x92\x00\xff")
        snapshot = self.fact(f"snapshot {stream}")
        base, base_term, position, state = (0, 0, 0, b"") if snapshot is None else msgspec.msgpack.decode(snapshot)
        entries = self.entries(stream, base + 1, 1 << 62)
        floor = int(self.fact(f"floor {stream}") or 0)
        voted = voted_for if voted_for >= 0 else NOBODY
        return SavedReplica(term, voted, base, base_term, position, state, entries, floor)

    def entries(self, stream: int, first: int, most: int) -> list[IndexEntry]:
        """Entries from a number on, without a gap."""
        rows = self._reader.execute(
            "select body from entry where stream = ? and number >= ? order by number limit ?",
            (stream, first, min(most, 1 << 40)),
        )
        return [msgspec.msgpack.decode(body, type=IndexEntry) for (body,) in rows]

    def entries_at(self, stream: int, position: int, most: int) -> list[IndexEntry]:
        """Entries with messages, from the one that holds a position on."""
        found: list[IndexEntry] = []
        query = "select max(position) from entry where stream = ? and position between 0 and ?"
        (first,) = self._reader.execute(query, (stream, position)).fetchone()
        after = (first or 0, -1)
        while len(found) < most:
            rows = self._reader.execute(
                "select position, number, body from entry where stream = ? and (position, number) > (?, ?) "
                "order by position, number limit ?",
                (stream, *after, most),
            ).fetchall()
            entries = [msgspec.msgpack.decode(body, type=IndexEntry) for _, _, body in rows]
            found += [entry for entry in entries if entry.count and entry.end > position]
            if len(rows) < most:
                break
            # Files of earlier versions have entries without messages here.
            after = rows[-1][:2]
        return found[:most]

    def content(self, stream: int, source: int, sequence: int) -> StreamContent | None:
        """The messages of a publication."""
        row = self._reader.execute(
            "select body from content where stream = ? and source = ? and sequence = ?", (stream, source, sequence)
        ).fetchone()
        return None if row is None else msgspec.msgpack.decode(row[0], type=StreamContent)

    def holds(self, stream: int, source: int, sequence: int) -> bool:
        """Whether the messages of a publication are on disk."""
        query = "select 1 from content where stream = ? and source = ? and sequence = ?"
        return self._reader.execute(query, (stream, source, sequence)).fetchone() is not None

    def content_names(self, stream: int) -> list[tuple[int, int]]:
        """The publications whose messages are on disk."""
        return self._reader.execute("select source, sequence from content where stream = ?", (stream,)).fetchall()

    def deliveries(self, stream: int, first_offset: int) -> Iterable[tuple[int, int, int]]:
        """Publications that were delivered here from an offset on: source, sequence and offset, in this order."""
        query = "select source, sequence, offset from content where stream = ? and offset >= ? order by offset"
        return self._reader.execute(query, (stream, first_offset)).fetchall()

    def forget(self, stream: int) -> None:
        """Remove everything of a stream."""
        for table in ("entry", "content"):
            self.write(f"delete from {table} where stream = ?", stream)
        for name in (f"{fact} {stream}" for fact in ("vote", "snapshot", "floor", "offset", "founders")):
            self._facts.pop(name, None)
            self.write("delete from fact where name = ?", name)
