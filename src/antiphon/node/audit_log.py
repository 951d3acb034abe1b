"""The audit log of a node: who connected, subscribed, was refused or reached a limit, as JSON lines in a file.

The event loop puts lines into a bounded queue, and a thread writes them. The queue never blocks: when it is full, or
one client causes too many lines in a second, lines are dropped and counted, and the next line says how many. The file
is rotated by size, and only its owner can read it.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, Full, Queue
from typing import Final, TextIO

import msgspec

from antiphon.kernel.errors import UsageError
from antiphon.runtime.errors import QuotaError
from antiphon.runtime.logging import logger
from antiphon.transport.incoming import IncomingConnection

QUEUED_AT_MOST: Final = 10_000
LINES_PER_SECOND: Final = 20
"""The lines of one event that one client or address may cause in a second, so that nobody can write others' lines out
of the files."""

FILES_KEPT: Final = 5
"""The file that is written, and older ones with the endings ``.1`` to ``.4``."""

CLOSE_SECONDS: Final = 2.0
REASON_CHARACTERS: Final = 500

log = logger("audit")


class AuditLog:
    """Writes the events of one node; without a path it does nothing."""

    def __init__(self, path: str | None, file_bytes: int) -> None:
        self.dropped = 0
        self._path = None if path is None else Path(path)
        self._file_bytes = file_bytes
        self._queue: Queue[dict[str, object] | None] = Queue(QUEUED_AT_MOST)
        self._recent: Counter[tuple[str, str]] = Counter()
        self._second = 0
        self._reported = 0
        self._has_failed = False
        self._is_closed = False
        self._thread: threading.Thread | None = None
        if self._path is not None:
            try:
                self._file = open_private(self._path)
            except OSError as error:
                raise UsageError(f"cannot write the audit log {path}: {error.strerror}; choose another file") from error
            self._thread = threading.Thread(target=self._write_all, name="antiphon-audit", daemon=True)
            self._thread.start()

    def record(self, event: str, client: str, address: str, **values: object) -> None:
        """Record an event; never waits."""
        if self._thread is None:
            return
        second = int(time.monotonic())
        if second != self._second:
            self._second = second
            self._recent.clear()
        key = event, client or address.rpartition(":")[0]
        self._recent[key] += 1
        line: dict[str, object] = {"time": time.time(), "event": event, "client": client, "address": address, **values}
        if self._recent[key] > LINES_PER_SECOND:
            self.dropped += 1
            return
        try:
            self._queue.put_nowait(line)
        except Full:
            self.dropped += 1

    def refused(self, action: str, client: str, address: str, error: BaseException, **values: object) -> None:
        """Record that something was refused; by a quota, it is a limit that was reached."""
        event = "limited" if isinstance(error, QuotaError) or isinstance(error.__cause__, QuotaError) else "refused"
        self.record(event, client, address, action=action, reason=str(error)[:REASON_CHARACTERS], **values)

    def connection_refused(self, where_from: str, error: BaseException) -> None:
        """Record that a connection was refused or cut off."""
        self.refused("connect", "", where_from, error)

    def connection_greeted(self, connection: IncomingConnection) -> None:
        """Record that a node has connected; clients are recorded when they are let in."""
        if connection.address:
            self.record("node connected", connection.certified_name, connection.where_from, at=connection.address)

    def close(self) -> None:
        """Write what is queued, unless the disk takes too long, and close the file."""
        if self._thread is None:
            return
        self._is_closed = True
        with suppress(Full):  # then the thread ends after what is queued
            self._queue.put_nowait(None)
        self._thread.join(CLOSE_SECONDS)
        self._thread = None

    # The thread.

    def _write_all(self) -> None:
        is_open = True
        while is_open:
            lines = [self._queue.get()]
            with suppress(Empty):
                while len(lines) < QUEUED_AT_MOST:
                    lines.append(self._queue.get_nowait())
            is_open = None not in lines and not (self._is_closed and self._queue.empty())
            try:
                self._write([line for line in lines if line is not None])
                self._has_failed = False
            except OSError as error:
                self.dropped += len(lines)
                if not self._has_failed:
                    self._has_failed = True
                    log.error("cannot write the audit log", file=str(self._path), reason=error.strerror or str(error))
        with suppress(OSError):
            self._file.close()

    def _write(self, lines: list[dict[str, object]]) -> None:
        dropped = self.dropped
        if dropped > self._reported:
            lines.append({"time": time.time(), "event": "dropped", "lines": dropped - self._reported})
            self._reported = dropped
        for line in lines:
            moment = datetime.fromtimestamp(float(str(line["time"])), UTC)
            line["time"] = moment.isoformat(timespec="microseconds")
            self._file.write(msgspec.json.encode(line).decode() + "\n")
            if self._file.tell() >= self._file_bytes:
                self._rotate()
        self._file.flush()

    def _rotate(self) -> None:
        assert self._path is not None, "there is a file"
        self._file.close()
        for number in range(FILES_KEPT - 1, 0, -1):
            older = self._path if number == 1 else self._path.with_name(f"{self._path.name}.{number - 1}")
            if older.exists():
                older.rename(self._path.with_name(f"{self._path.name}.{number}"))
        self._file = open_private(self._path)


def open_private(path: Path) -> TextIO:
    """Open a file for appending that only its owner can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.fchmod(descriptor, 0o600)
    file = os.fdopen(descriptor, "a", encoding="utf-8")
    file.seek(0, os.SEEK_END)
    return file
