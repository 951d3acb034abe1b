"""The disk of a node: its log and the commits of it, the journal of its process, and facts about itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from antiphon.kernel.message import ProtocolMessage
from antiphon.runtime.clocks import uptime_us, wall_clock_us
from antiphon.storage.group_commit import GroupCommit
from antiphon.storage.journals import LiveJournal
from antiphon.storage.log import DurableLog
from antiphon.storage.log_topics import LogRetention
from antiphon.storage.trusted_clock import TrustedClock
from antiphon.transport.codec import Codec

TRIM_SECONDS: Final = 30.0


class Disk:
    """The disk of one node; a node without a data directory has none of it."""

    def __init__(self) -> None:
        self.store: DurableLog | None = None
        self.commit: GroupCommit | None = None
        # The same with durability ``disk``: the node shows, accepts and acknowledges nothing before it is on disk.
        self.first: GroupCommit | None = None
        # Records that the process keeps for its next incarnation.
        self.journal: LiveJournal | None = None
        self._clock: TrustedClock | None = None
        self._trimming: asyncio.TimerHandle | None = None

    def open(self, store: DurableLog, commit: GroupCommit, is_first: bool) -> None:
        """The node has a log; ``is_first`` with durability ``disk``."""
        self.store = store
        self.commit = commit
        self.first = commit if is_first else None

    def open_log(
        self,
        data: str,
        retention: LogRetention,
        committed: Callable[[], None],
        fail: Callable[[BaseException], None],
        is_first: bool,
    ) -> None:
        """Open the log in a directory; ``committed`` is called after each commit, and ``fail`` if one is impossible."""
        # What has been delivered cannot be refused; publishers wait before there is too much of it.
        store = DurableLog.open(data, retention=retention, pending_limit_bytes=None)
        self.open(store, GroupCommit(store, committed, fail), is_first)

    def keep_journal(self, codec: Codec, fail: Callable[[BaseException], None]) -> None:
        """The process keeps records for its next incarnation in the log."""
        assert self.store is not None, "only a disk with a log has a journal"
        self.journal = LiveJournal(self.store, codec, fail)

    @property
    def is_kept(self) -> bool:
        """Whether there is a disk."""
        return self.store is not None

    @property
    def has_journal(self) -> bool:
        """Whether the process can keep records for its next incarnation."""
        return self.journal is not None

    def journal_records(self) -> list[ProtocolMessage]:
        """The records of earlier incarnations of the process."""
        return [] if self.journal is None else self.journal.records()

    def read(self, name: str) -> bytes | None:
        """A fact that this node or an earlier incarnation has put."""
        return None if self.store is None else self.store.get(name)

    def put(self, name: str, value: bytes) -> None:
        """Keep a fact for the next incarnation; the next commit makes it durable."""
        if self.store is not None:
            self.store.put(name, value)

    def commit_soon(self) -> None:
        """Commit soon everything that was appended and put."""
        if self.commit is not None:
            self.commit.soon()

    def trim(self) -> None:
        """Remove entries that retention does not keep, now and every so many seconds."""
        assert self.commit is not None and self.store is not None, "only nodes with a log trim it"
        clock_us, since_start_us = wall_clock_us(), uptime_us()
        if self._clock is None:
            self._clock = TrustedClock(self.store.newest_us(), clock_us, since_start_us)
        self._clock.observe(clock_us, since_start_us)
        self.commit.trim(self._clock.retention_us(self.store.retention.age_seconds), self._clock.settled_us())
        self._trimming = asyncio.get_running_loop().call_later(TRIM_SECONDS, self.trim)

    def stop_trimming(self) -> None:
        """Remove nothing more."""
        if self._trimming is not None:
            self._trimming.cancel()

    async def close(self) -> None:
        """Commit everything that waits, and close the log."""
        if self.commit is not None:
            await self.commit.close()

    async def until_shown(self) -> None:
        """Wait until subscribers see everything that was delivered so far; with ``disk`` it is on disk then."""
        if self.first is not None:
            await self.first.until_committed()
