"""Group commit: one sync of the disk for everything that was delivered while the last sync ran.

Three steps wait for the disk, because otherwise the node would promise data that is not there: subscribers see a batch,
its publisher is told that it is accepted, and the acknowledgement leaves that lets others forget it. If the disk fails,
these steps go on waiting, the node reports it in its health, and the commit is tried again. So nothing is lost.

The log of a node and the files of its streams are committed together, in this order, by one job of one thread. So the
streams never have what the log lacks, and a step that needs both waits once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Protocol

from antiphon.api.outbox import set_if_waiting
from antiphon.kernel.errors import PeerError, UsageError
from antiphon.runtime.logging import logger
from antiphon.storage.log import DurableLog

RETRY_SECONDS: Final = (0.1, 0.5, 1.0, 5.0)
TRIM_STEP_SECONDS: Final = 0.02
"""A commit waits so long for trimming, and for the step that is under way."""

TURN_SECONDS: Final = 0.005
"""How long those that wait for a commit are called before others have their turn: there may be tens of thousands."""

log = logger("commit")


class CommittedFiles(Protocol):
    """More files that are committed with the log."""

    @property
    def is_behind(self) -> bool:
        """Whether something waits for a commit."""

    def commit(self) -> None:
        """Bring everything written so far to the disk, in the thread of commits; raises a :class:`PeerError`."""

    def close(self) -> None:
        """Commit and close, in the thread of commits."""


class GroupCommit:
    """Commits whenever something is new, in a thread of its own, one commit at a time."""

    def __init__(self, store: DurableLog, settled: Callable[[], None], failed: Callable[[BaseException], None]) -> None:
        self._store = store
        self._settled = settled
        self._failed = failed
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="antiphon-commit")
        self._waiting: list[Callable[[], Any]] = []
        self._task: asyncio.Task[None] | None = None
        self._is_trimming = False
        self._others: list[CommittedFiles] = []
        self.commits = 0
        self.trouble = ""
        """The reason why the last commit failed; empty if it did not."""

    def join(self, files: CommittedFiles) -> None:
        """Commit other files after the log, in the same job."""
        self._others.append(files)

    def then(self, action: Callable[[], Any]) -> None:
        """Call this when everything appended so far is on disk."""
        self._waiting.append(action)
        self.soon()

    async def until_committed(self) -> None:
        """Wait until everything appended so far is on disk."""
        committed = asyncio.get_running_loop().create_future()
        self.then(partial(set_if_waiting, committed))
        await committed

    def soon(self) -> None:
        """Commit everything that was appended and put, unless a commit is running: then after it."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while True:
                waiting, self._waiting = self._waiting, []
                await self._commit()
                await self._call(waiting)
                self._settled()
                if not self._waiting and not self._is_behind:
                    return
        except Exception as error:
            # Otherwise every step that waits for the disk would wait for ever.
            self._failed(error)
        finally:
            self._task = None

    async def _call(self, waiting: list[Callable[[], Any]]) -> None:
        until = time.perf_counter() + TURN_SECONDS
        for action in waiting:
            if time.perf_counter() > until:
                self._settled()
                await asyncio.sleep(0)
                until = time.perf_counter() + TURN_SECONDS
            action()

    @property
    def _is_behind(self) -> bool:
        return self._store.pending_bytes > 0 or any(files.is_behind for files in self._others)

    def _commit_all(self) -> None:
        self._store.commit()
        for files in self._others:
            files.commit()

    def _close_all(self) -> None:
        try:
            self._store.close()
        finally:
            for files in self._others:
                files.close()

    async def _commit(self) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            try:
                await loop.run_in_executor(self._thread, self._commit_all)
                self.commits += 1
                self.trouble = ""
                return
            except PeerError as error:
                self.trouble = str(error)
                if failures == 0:
                    log.error("cannot commit", reason=str(error))
                await asyncio.sleep(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])
                failures += 1

    def trim(self, now_us: int, settled_us: int | None) -> None:
        """Remove entries that retention does not keep, between commits; see ``DurableLog.trim_steps``."""
        if not self._is_trimming:
            self._is_trimming = True
            self._thread.submit(self._trim, self._store.trim_steps(now_us, settled_us), 0)

    def _trim(self, steps: Iterator[int], removed: int) -> None:
        """Take steps for a moment, and the others after a commit that waits."""
        until = time.monotonic() + TRIM_STEP_SECONDS
        try:
            for step in steps:
                removed += step
                if time.monotonic() >= until:
                    self._thread.submit(self._trim, steps, removed)
                    return
        except PeerError as error:
            log.error("cannot remove old entries", reason=str(error))
        except (RuntimeError, UsageError):
            pass  # the node ends, and the thread or the log is closed; the next start goes on
        else:
            if removed:
                log.info("removed old entries", batches=removed)
        self._is_trimming = False

    async def close(self) -> None:
        """Commit everything that waits, unless the disk fails, and close the log."""
        if self._task is not None and not self.trouble:
            await self._task
        elif self._task is not None:
            self._task.cancel()
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._close_all)
        finally:
            self._thread.shutdown()
