"""The store of one replica: the state of the service, what is applied and its results, in one backend and transaction.

Keys of the service are texts. The replica's own keys begin with a byte with which no text begins, so they come last,
and operations never see them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from antiphon.kernel.errors import PeerError
from antiphon.services.applied import AUTHOR_BYTES, AppliedOperations, Ranges
from antiphon.services.digests import StateDigests
from antiphon.services.errors import TablesError
from antiphon.services.results import KeptResults
from antiphon.services.store import Changes, StoreBackend

OWN: Final = b"\xff"
AUTHOR: Final = OWN + b"a"
"""Before the number of an author: the key of its row."""

CALLER: Final = OWN + b"c"
"""The same for a caller."""

RESULTS: Final = OWN + b"r"
"""Before the number of a transaction: the key of its results."""


TABLES: Final = OWN + b"t"
"""In a snapshot: before the number of a piece of the service's own tables. No store has such a key."""

TABLES_BYTES_AT_MOST: Final = 64 << 20
"""Of these tables, in a snapshot."""

VALUES_AT_MOST: Final = 16_384
VALUE_BYTES_AT_MOST: Final = 4096
"""So many values are kept in memory, if they are not larger."""


class StateLostError(PeerError):
    """The backend has lost transactions, as a database may that failed over."""


class StoreProgress(msgspec.Struct, frozen=True, array_like=True):
    """The position of a replica, as its backend keeps it; which operations are applied is beside it, author by author.

    Everything before ``position`` in the history of the topic is applied. ``commits`` makes each position another one,
    so that a replica that lost its database within a commit can see whether it took place.
    """

    service: str
    commits: int = 0
    generation: int = 0
    position: int = 0
    has_forgotten: bool = False


encode: Final = msgspec.msgpack.Encoder().encode
positions: Final = msgspec.msgpack.Decoder(StoreProgress)


def own_key(prefix: bytes, number: int) -> bytes:
    """The key of a row of the replica itself."""
    return prefix + number.to_bytes(AUTHOR_BYTES, "big")


class ReplicaStore(StoreBackend):
    """A backend as operations see it, and what is applied.

    ``commit`` adds to every transaction which operations its effects belong to.
    """

    def __init__(self, backend: StoreBackend, service: str) -> None:
        self.backend: Final = backend
        self.progress = progress_of(backend, service)
        self._load()
        # What a commit under way writes beside the effects, and what the backend says when it has taken place.
        self._rows: dict[bytes, bytes | None] = {}
        self._pending: StoreProgress | None = None
        self._changes: dict[bytes, tuple[bytes | None, bytes | None]] = {}
        self.digests = StateDigests(self.scan(b""))
        # Values that were read or written lately: nobody else writes to the backend.
        self._values: dict[bytes, bytes | None] = {}

    def _load(self) -> None:
        """Take over what the backend says of operations."""
        self.applied = AppliedOperations(stored_rows(self.backend, AUTHOR))
        self.applied.has_forgotten = self.progress.has_forgotten
        self.calls = AppliedOperations(stored_rows(self.backend, CALLER))
        """The same operations by caller: a call that is made again comes with another author and number."""
        self.results = KeptResults(stored_rows(self.backend, RESULTS).items())

    # What the service sees.

    def read(self, key: bytes) -> bytes | None:
        """The committed value of a key of the service."""
        values = self._values
        if key in values:
            return values[key]
        value = self.backend.read(key)
        if len(values) >= VALUES_AT_MOST:
            values.clear()
        if value is None or len(value) <= VALUE_BYTES_AT_MOST:
            values[key] = value
        return value

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All committed keys of the service with a prefix, sorted, and their values."""
        for key, value in self.backend.scan(prefix):
            if key >= OWN:
                return
            yield key, value

    @property
    def connection(self) -> Any:
        """The connection to the database."""
        return self.backend.connection

    def mark(self) -> None:
        """An operation is about to use the connection."""
        self.backend.mark()

    def undo(self) -> None:
        """Take back what was done over the connection since ``mark``."""
        self.backend.undo()

    # What the replica does.

    def position(self) -> bytes:
        """The position of the last commit."""
        return encode(self.progress)

    def commit(self, changes: Changes, position: bytes = b"") -> None:
        """Commit changes, and which operations they come from; if it fails, the same is committed the next time."""
        for prefix, changed in (
            (AUTHOR, self.applied.take_changes()),
            (CALLER, self.calls.take_changes()),
            (RESULTS, self.results.take_changes()),
        ):
            self._rows.update({own_key(prefix, number): row for number, row in changed.items()})
        self._pending = msgspec.structs.replace(
            self.progress, commits=self.progress.commits + 1, has_forgotten=self.applied.has_forgotten
        )
        self._changes = {key: (self.read(key), value) for key, value in changes.items()}
        self.backend.commit({**changes, **self._rows}, encode(self._pending))
        self._committed(self._pending)

    def _committed(self, progress: StoreProgress) -> None:
        self.progress = progress
        self._pending = None
        self._rows = {}
        self.results.committed()
        changes, self._changes = self._changes, {}
        for key, (old, value) in changes.items():
            self.digests.change(key, old, value)
            if value is None or len(value) <= VALUE_BYTES_AT_MOST:
                self._values[key] = value
            else:
                self._values.pop(key, None)

    def recover(self) -> bool:
        """After a failure: whether the commit that was under way took place. If not, it is undone.

        :class:`StateLostError` if the backend is not where this replica left it.
        """
        stored = progress_of(self.backend, self.progress.service)
        if stored == self._pending:
            self._committed(stored)
            return True
        is_lost = stored != self.progress
        self._reload(stored)
        if is_lost:
            raise StateLostError(
                f"the store of a replica of {stored.service} is back at an earlier state; the rest is fetched again"
            )
        return False

    def _reload(self, progress: StoreProgress) -> None:
        """Begin with what the backend has."""
        self._changes = {}
        self._committed(progress)
        self._values.clear()
        self.digests = StateDigests(self.scan(b""))
        self._load()

    def reach(self, generation: int, position: int) -> None:
        """Everything before a position of the history is applied; the next commit says so."""
        self.progress = msgspec.structs.replace(self.progress, generation=generation, position=position)

    def restore(
        self, items: Iterable[tuple[bytes, bytes]], position: bytes = b"", tables: Iterable[bytes] = ()
    ) -> None:
        """Replace everything by a snapshot of the whole backend of another replica."""
        progress = msgspec.structs.replace(positions.decode(position), commits=self.progress.commits + 1)
        found = list(tables)
        rows: list[tuple[bytes, bytes]] = []
        for key, value in items:
            if key.startswith(TABLES):
                found.append(value)
            else:
                rows.append((key, value))
        self.backend.restore(rows, encode(progress), found)
        self._reload(progress_of(self.backend, self.progress.service))

    def whole(self) -> Iterator[tuple[bytes, bytes]]:
        """Everything that is committed: a snapshot, for ``restore`` elsewhere.

        :class:`TablesError` if tables of the service's own cannot be part of one.
        """
        yield from self.backend.scan(b"")
        for number, piece in enumerate(self.tables()):
            yield own_key(TABLES, number), piece

    def tables(self) -> Iterator[bytes]:
        """The committed tables of the service's own."""
        size = 0
        for piece in self.backend.tables():
            size += len(piece)
            if size > TABLES_BYTES_AT_MOST:
                raise TablesError(
                    f"the tables of {self.progress.service} have more than {TABLES_BYTES_AT_MOST:,} bytes, which is "
                    "all that a snapshot takes; begin the replica with a copy of another one's database"
                )
            yield piece

    def ranges(self) -> dict[int, Ranges]:
        """What is applied."""
        return self.applied.ranges()

    def close(self) -> None:
        """Nothing follows."""
        self.backend.close()


def progress_of(backend: StoreBackend, service: str) -> StoreProgress:
    """The position of a replica, from its backend."""
    stored = backend.position()
    if not stored:
        return StoreProgress(service)
    try:
        progress = positions.decode(stored)
    except msgspec.MsgspecError as error:
        raise PeerError(f"the store of a replica of {service} is damaged: {error}; remove it to begin anew") from error
    if progress.service != service:
        raise PeerError(f"this store holds a replica of {progress.service}, not of {service}; name another store")
    return progress


def stored_rows(backend: StoreBackend, prefix: bytes) -> dict[int, bytes]:
    """The stored rows of the replica itself, by number."""
    return {int.from_bytes(key[len(prefix) :], "big"): row for key, row in backend.scan(prefix)}
