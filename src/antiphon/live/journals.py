"""What the process of a broker writes down for its next life (:mod:`antiphon.fabrics.tree.durable_state`), in the log.

The journal is a log of its own beside those of topics. A fact says where it begins: whoever writes it anew appends all
that is needed, and lets it begin there; what is before that is removed when the log is trimmed. Both are in one commit,
so a crash leaves the old one or the new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antiphon.kernel.errors import AntiphonError
from antiphon.kernel.message import Message
from antiphon.live.clocks import wall_clock_us
from antiphon.live.recollection import JOURNAL

if TYPE_CHECKING:
    from antiphon.live.core import NodeCore

BEGINS: Final = "journal begins"
"""The name of the fact."""


class LiveJournal:
    """The journal of one node, where its process keeps one and there is a disk."""

    def __init__(self, node: NodeCore) -> None:
        self._node = node
        store = node.store
        self._is_known = store is not None and store.has(JOURNAL)
        if store is not None and self._is_known:
            store.release(JOURNAL, self._begin())

    @property
    def is_kept(self) -> bool:
        """Whether there is a disk."""
        return self._node.store is not None

    def _begin(self) -> int:
        kept = None if self._node.store is None else self._node.store.get(BEGINS)
        return 0 if kept is None else int(kept)

    def records(self) -> list[Message]:
        """All that was written."""
        store, codec = self._node.store, self._node.codec
        assert store is not None, "only whoever has a disk is asked"
        entries = store.read_between(JOURNAL, self._begin(), store.latest(JOURNAL)) if store.has(JOURNAL) else []
        return [codec.decode_own(entry.batch) for entry in entries]

    def write(self, record: Message) -> None:
        """Append something."""
        store = self._node.store
        assert store is not None, "only whoever has a disk writes"
        try:
            store.append(JOURNAL, 1, wall_clock_us(), self._node.codec.encode(record))
        except AntiphonError as error:
            self._node.fail(error)
            return
        if not self._is_known:
            self._is_known = True
            store.release(JOURNAL, self._begin())

    def rewrite(self, records: list[Message]) -> None:
        """Begin anew with these records."""
        store = self._node.store
        assert store is not None, "only whoever has a disk writes"
        begin = store.latest(JOURNAL)
        for record in records:
            self.write(record)
        store.put(BEGINS, str(begin).encode())
        store.release(JOURNAL, begin)
