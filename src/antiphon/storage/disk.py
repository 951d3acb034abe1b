"""What a node keeps on its disk: its log, the commits of it, the journal of its process, and facts about itself."""

from __future__ import annotations

import asyncio
from typing import Final

from antiphon.kernel.message import Message
from antiphon.runtime.clocks import wall_clock_us
from antiphon.storage.group_commit import GroupCommit
from antiphon.storage.journals import LiveJournal
from antiphon.storage.log import DurableLog

TRIM_SECONDS: Final = 30.0


class Disk:
    """The disk of one node; a node without a data directory has none of it."""

    def __init__(self) -> None:
        self.store: DurableLog | None = None
        self.commit: GroupCommit | None = None
        # The same, if nothing is seen, accepted or acknowledged before it is on disk.
        self.first: GroupCommit | None = None
        # What the process writes down for its next life.
        self.journal: LiveJournal | None = None
        self._trimming: asyncio.TimerHandle | None = None

    def open(self, store: DurableLog, commit: GroupCommit, is_first: bool) -> None:
        """The node has a log; ``is_first`` if everybody waits for the disk."""
        self.store = store
        self.commit = commit
        self.first = commit if is_first else None

    @property
    def is_kept(self) -> bool:
        """Whether there is a disk."""
        return self.store is not None

    @property
    def has_journal(self) -> bool:
        """Whether the process can write something down for its next life."""
        return self.journal is not None

    def journal_records(self) -> list[Message]:
        """What earlier lives of the process have written down."""
        return [] if self.journal is None else self.journal.records()

    def read(self, name: str) -> bytes | None:
        """A fact that an earlier life of this node has kept."""
        return None if self.store is None else self.store.get(name)

    def put(self, name: str, value: bytes) -> None:
        """Keep a fact for the next life; it is on disk with the next commit."""
        if self.store is not None:
            self.store.put(name, value)

    def commit_soon(self) -> None:
        """Bring to the disk what has been put there."""
        if self.commit is not None:
            self.commit.soon()

    def trim(self) -> None:
        """Remove from the log what is not to be kept, now and from time to time."""
        assert self.commit is not None, "only nodes with a log trim it"
        self.commit.trim(wall_clock_us())
        self._trimming = asyncio.get_running_loop().call_later(TRIM_SECONDS, self.trim)

    def stop_trimming(self) -> None:
        """Nothing more is removed."""
        if self._trimming is not None:
            self._trimming.cancel()

    async def close(self) -> None:
        """Finish what waits and close the log."""
        if self.commit is not None:
            await self.commit.close()

    async def until_shown(self) -> None:
        """Wait until what was delivered so far is seen by subscribers, if it has to be on disk for that."""
        if self.first is not None:
            await self.first.until_committed()
