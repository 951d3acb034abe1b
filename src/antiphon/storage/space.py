"""Gives the space of removed entries back to the file system, in steps that a commit does not wait long for.

SQLite keeps free pages for later use, so its file never shrinks by itself. A log that is made with incremental vacuum
can move pages from the end of the file into free ones and cut the end off, a few pages at a time. Some free pages stay:
the next entries take them, and a log in balance is not moved around for ever.

A log of an earlier version has to be rewritten once before. A small one is rewritten here; ``antiphon log compact``
rewrites a large one while the node is stopped, because publishers would wait for it.
"""

from __future__ import annotations

from typing import Final

from antiphon.runtime.logging import logger
from antiphon.storage.sqlite import Store, errors_of

SPARE_BYTES: Final = 16 << 20
SPARE_FRACTION: Final = 4
"""Free pages are given back when they take more than this, and more than one part in four of the pages in use; half of
that stays."""

STEP_PAGES: Final = 256
"""Pages that one step gives back: 4 MiB, some hundredths of a second."""

REWRITTEN_BYTES_AT_MOST: Final = 64 << 20
"""A log of an earlier version with more in it is not rewritten while its node runs."""

log = logger("storage")


class Space:
    """The free space in the file of one log; the thread that writes calls it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._is_giving = False
        self._has_warned = False

    def give_back(self) -> bool:
        """Give some free pages back; whether there are more to give."""
        with errors_of(self._store.directory, "giving back space of"):
            free, pages, page_bytes = self._store.pages()
            spare = max(SPARE_BYTES // page_bytes, (pages - free) // SPARE_FRACTION)
            if self._is_giving:
                spare //= 2
            if free <= spare:
                if self._is_giving:
                    self._is_giving = False
                    self._store.cut_files()
                return False
            if not self._store.gives_back():
                self._rewrite((pages - free) * page_bytes, free * page_bytes)
                return False
            self._is_giving = True
            self._store.give_back(min(STEP_PAGES, free - spare))
            return True

    def _rewrite(self, used_bytes: int, free_bytes: int) -> None:
        """Rewrite the log of an earlier version, unless publishers would wait long for it."""
        if used_bytes > REWRITTEN_BYTES_AT_MOST:
            if not self._has_warned:
                self._has_warned = True
                log.warning(
                    "the log of an earlier version does not give its free space back",
                    free_bytes=free_bytes,
                    todo=f"stop the node and run: antiphon log compact {self._store.directory}",
                )
            return
        self._store.rewrite()
        log.info("rewrote the log of an earlier version", freed_bytes=free_bytes)
