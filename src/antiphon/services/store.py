"""The store as operations see it, the interface of its backends, and the backend in memory.

Operations see a :class:`ServiceStore`: a small ordered mapping from text to plain values that is the same over every
backend, so that one service runs in memory, on SQLite and on PostgreSQL. A :class:`StoreBackend` is what differs: it
keeps bytes under bytes, in the order of the keys' bytes, and the position up to which a replica has applied
operations, and commits changes and position as one.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, Protocol, Self

import msgspec

from antiphon.kernel.errors import UsageError
from antiphon.services.errors import TablesError

Changes = Mapping[bytes, bytes | None]
"""New values by key; None where a key is to go."""


class StoreBackend(Protocol):
    """Where a replica keeps the state of a service. A backend that cannot be reached raises a ``PeerError``."""

    def read(self, key: bytes) -> bytes | None:
        """The committed value of a key."""

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All committed keys with a prefix, sorted, and their values."""

    def position(self) -> bytes:
        """The position of the last commit; empty at first."""

    def commit(self, changes: Changes, position: bytes) -> None:
        """Commit changes, and all that was done over ``connection``, together with a position."""

    def tables(self) -> Iterator[bytes]:
        """The committed tables that the service has made over ``connection``, in pieces for ``restore`` elsewhere."""

    def restore(self, items: Iterable[tuple[bytes, bytes]], position: bytes, tables: Iterable[bytes] = ()) -> None:
        """Replace everything by a snapshot, which is ``scan`` and ``tables`` of another backend, and its position."""

    @property
    def connection(self) -> Any:
        """The connection to the database; :class:`UsageError` where there is none."""

    def mark(self) -> None:
        """An operation is about to use ``connection``."""

    def undo(self) -> None:
        """Take back what was done over ``connection`` since ``mark``."""

    def close(self) -> None:
        """Nothing follows."""


encode: Final = msgspec.msgpack.Encoder(order="deterministic").encode


@lru_cache(maxsize=1024)
def decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """The decoder of a type."""
    return msgspec.msgpack.Decoder(kind)


class ServiceStore:
    """The state of a service, as its operations and queries see it: values by text keys, in the order of the keys.

    Values are whatever msgspec encodes: numbers, text, lists, dictionaries, dataclasses, structs. ``get`` returns a
    copy: change it and ``set`` it again. Changes are kept here until ``commit`` hands them to the backend, so that
    many operations share one transaction.
    """

    def __init__(self, backend: StoreBackend, is_writable: bool = True) -> None:
        self._backend = backend
        self._is_writable = is_writable
        self._kept: dict[bytes, bytes | None] = {}
        """Changes of operations since the last commit."""
        self._tried: dict[bytes, bytes | None] = {}
        """Changes of the operation that is running."""
        self._is_marked = False
        self.last_changes: dict[bytes, bytes | None] = {}
        """What the last operation changed."""

    def get(self, key: str, default: Any = None, *, kind: Any = Any) -> Any:
        """The value of a key, decoded as a value of type ``kind``; ``default`` if there is none."""
        found = self._read(key_of(key))
        return default if found is None else decode_value(key, found, kind)

    def set(self, key: str, value: Any) -> None:
        """Give a key a value."""
        name = key_of(key)
        try:
            self._change(name, encode(value))
        except (TypeError, ValueError, OverflowError) as error:
            raise UsageError(f"the value of {key!r} cannot be stored: {error}") from error

    def delete(self, key: str) -> bool:
        """Remove a key; returns whether there was one."""
        name = key_of(key)
        was_there = self._read(name) is not None
        self._change(name, None)
        return was_there

    def __contains__(self, key: str) -> bool:
        return self._read(key_of(key)) is not None

    def items(self, prefix: str = "", *, kind: Any = Any) -> Iterator[tuple[str, Any]]:
        """All keys with a prefix and their values, sorted by key, as they are when the iteration begins."""
        for name, value in self.scan(key_of(prefix)):
            key = name.decode()
            yield key, decode_value(key, value, kind)

    def keys(self, prefix: str = "") -> Iterator[str]:
        """All keys with a prefix, sorted."""
        return (name.decode() for name, _ in self.scan(key_of(prefix)))

    @property
    def connection(self) -> Any:
        """The connection to the database, for services that run on a database alone.

        The statements of an operation are part of its transaction. An operation never commits, and reads no clock and
        no random number of the database. Snapshots for new replicas hold the tables that operations have made.
        """
        if not self._is_writable:
            raise UsageError("a query reads with get and items; the connection is for operations")
        connection = self._backend.connection
        if not self._is_marked:
            self._backend.mark()
            self._is_marked = True
        return connection

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Run an operation: what it changed is kept if it returns, and forgotten if it raises."""
        self._tried = {}
        self.last_changes = {}
        self._is_marked = False
        try:
            yield
        except BaseException:
            if self._is_marked:
                self._backend.undo()
            raise
        else:
            self._kept.update(self._tried)
            self.last_changes = self._tried
        finally:
            self._tried = {}
            self._is_marked = False

    def commit(self, position: bytes) -> None:
        """Commit all changes since the last commit, and the position that belongs to them."""
        self._backend.commit(self._kept, position)
        self._kept = {}

    def for_queries(self) -> ServiceStore:
        """The same state, with all that was kept so far, for a query: it cannot change anything."""
        view = ServiceStore(self._backend, is_writable=False)
        view._kept = self._kept
        return view

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All keys with a prefix, sorted, and their values, with the changes that are not committed yet."""
        changes = sorted((key, value) for key, value in {**self._kept, **self._tried}.items() if key.startswith(prefix))
        place = 0
        for key, value in self._backend.scan(prefix):
            while place < len(changes) and changes[place][0] < key:
                yield from present(changes[place])
                place += 1
            if place < len(changes) and changes[place][0] == key:
                yield from present(changes[place])
                place += 1
            else:
                yield key, value
        for change in changes[place:]:
            yield from present(change)

    def _read(self, key: bytes) -> bytes | None:
        if key in self._tried:
            return self._tried[key]
        if key in self._kept:
            return self._kept[key]
        return self._backend.read(key)

    def _change(self, key: bytes, value: bytes | None) -> None:
        if not self._is_writable:
            raise UsageError("a query cannot change the store; declare an @antiphon.operation for that")
        self._tried[key] = value


def present(change: tuple[bytes, bytes | None]) -> Iterator[tuple[bytes, bytes]]:
    """A change, unless it is a removal."""
    key, value = change
    if value is not None:
        yield key, value


def key_of(key: str) -> bytes:
    """A key as stores keep it: sorted by these bytes, texts are sorted by their characters."""
    try:
        return key.encode()
    except (AttributeError, UnicodeEncodeError) as error:
        raise UsageError(f"a key of a store is text, not {key!r}") from error


def decode_value(key: str, value: bytes, kind: Any) -> Any:
    """A stored value as a value of a type."""
    try:
        return decoder(kind).decode(value)
    except msgspec.MsgspecError as error:
        raise UsageError(f"the stored value of {key!r} is of another type: {error}") from error


class MemoryStore:
    """A backend in memory: lost with its program. ``copy`` is a snapshot."""

    def __init__(self, items: Iterable[tuple[bytes, bytes]] = (), position: bytes = b"") -> None:
        self._values = dict(items)
        self._sorted = sorted(self._values)
        self._position = position

    def read(self, key: bytes) -> bytes | None:
        """The committed value of a key."""
        return self._values.get(key)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All committed keys with a prefix, sorted, and their values."""
        place = bisect_left(self._sorted, prefix)
        while place < len(self._sorted) and self._sorted[place].startswith(prefix):
            yield self._sorted[place], self._values[self._sorted[place]]
            place += 1

    def position(self) -> bytes:
        """The position of the last commit."""
        return self._position

    def commit(self, changes: Changes, position: bytes) -> None:
        """Commit changes together with a position."""
        for key, value in changes.items():
            if value is not None:
                if key not in self._values:
                    insort(self._sorted, key)
                self._values[key] = value
            elif self._values.pop(key, None) is not None:
                del self._sorted[bisect_left(self._sorted, key)]
        self._position = position

    def tables(self) -> Iterator[bytes]:
        """There are none."""
        return iter(())

    def restore(self, items: Iterable[tuple[bytes, bytes]], position: bytes, tables: Iterable[bytes] = ()) -> None:
        """Replace everything by a snapshot and its position."""
        if any(True for _ in tables):
            raise TablesError(
                "the service has tables of its own, and this store is in memory; serve it as the other replicas do"
            )
        self._values = dict(items)
        self._sorted = sorted(self._values)
        self._position = position

    def copy(self) -> Self:
        """A snapshot, which later commits do not change."""
        return type(self)(self._values.items(), self._position)

    @property
    def connection(self) -> Any:
        """There is none."""
        raise UsageError("a store in memory has no connection; serve the service on SQLite or PostgreSQL")

    def mark(self) -> None:
        """Nothing happens over a connection here."""

    def undo(self) -> None:
        """Nothing happens over a connection here."""

    def close(self) -> None:
        """Nothing is open."""
