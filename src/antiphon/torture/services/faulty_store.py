"""A store of a replica that fails for a while, or whose program is killed at the next commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from antiphon.kernel.errors import PeerError
from antiphon.services.backends.sqlite_store import SqliteStore
from antiphon.services.store import Changes


class KilledError(Exception):
    """The program ends here."""


class FaultyStore:
    """A SQLite store with faults. ``dies`` says what the next commit is: the end of the program before or after it, or
    a success whose answer is lost.
    """

    def __init__(self, path: Path) -> None:
        self.inner = SqliteStore(path)
        self.is_broken = False
        self.dies = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def read(self, key: bytes) -> bytes | None:
        self._check()
        return self.inner.read(key)

    def position(self) -> bytes:
        self._check()
        return self.inner.position()

    def commit(self, changes: Changes, position: bytes) -> None:
        self._check()
        if self.dies == "before":
            raise KilledError
        self.inner.commit(changes, position)
        if self.dies == "after":
            raise KilledError
        if self.dies == "unanswered":
            self.dies = ""
            raise PeerError("the answer of the store is lost")

    def _check(self) -> None:
        if self.is_broken:
            raise PeerError("the store does not answer")
