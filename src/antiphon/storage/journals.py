"""The journal of a process: records for its next incarnation (:mod:`antiphon.fabrics.tree.durable_state`), in the log.

The journal is a topic of the log that no client sees. A fact says where it begins. To rewrite the journal, the process
appends all records that it needs and lets the journal begin there; trimming removes the records before. The records and
the fact are in one commit, so a crash leaves the old journal or the new one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from antiphon.kernel.errors import AntiphonError
from antiphon.kernel.message import ProtocolMessage
from antiphon.runtime.clocks import wall_clock_us
from antiphon.storage.log import DurableLog
from antiphon.storage.log_reader import JOURNAL
from antiphon.transport.codec import Codec

BEGINS: Final = "journal begins"
"""The name of the fact."""


class LiveJournal:
    """The journal of one node with a data directory, whose process keeps one."""

    def __init__(self, store: DurableLog, codec: Codec, fail: Callable[[BaseException], None]) -> None:
        self._store = store
        self._codec = codec
        self._fail = fail
        self._is_known = store.has(JOURNAL)
        if self._is_known:
            store.release(JOURNAL, self._begin())

    def _begin(self) -> int:
        kept = self._store.get(BEGINS)
        return 0 if kept is None else int(kept)

    def records(self) -> list[ProtocolMessage]:
        """All records, in the order in which they were written."""
        store = self._store
        entries = store.read_between(JOURNAL, self._begin(), store.latest(JOURNAL)) if store.has(JOURNAL) else []
        return [self._codec.decode_own(entry.batch) for entry in entries]

    def write(self, record: ProtocolMessage) -> None:
        """Append a record."""
        try:
            self._store.append(JOURNAL, 1, wall_clock_us(), self._codec.encode(record))
        except AntiphonError as error:
            self._fail(error)
            return
        if not self._is_known:
            self._is_known = True
            self._store.release(JOURNAL, self._begin())

    def rewrite(self, records: list[ProtocolMessage]) -> None:
        """Replace the journal by these records."""
        begin = self._store.latest(JOURNAL)
        for record in records:
            self.write(record)
        self._store.put(BEGINS, str(begin).encode())
        self._store.release(JOURNAL, begin)
