"""One commit for the log of a node and the files of its histories: the log first, and nobody is called too early."""

from __future__ import annotations

import asyncio
from pathlib import Path

from antiphon.kernel.errors import PeerError
from antiphon.storage.group_commit import GroupCommit
from antiphon.storage.log import DurableLog
from tests.node.support import running


class OtherFiles:
    """Files that refuse some commits, and say what was committed when they are."""

    def __init__(self, log: DurableLog, refusals: int) -> None:
        self._log = log
        self._refusals = refusals
        self.is_behind = True
        self.happened: list[str] = []

    def commit(self) -> None:
        if not self.is_behind:
            return
        if self._refusals:
            self._refusals -= 1
            self.happened.append("refused")
            raise PeerError("the disk is full")
        self.is_behind = False
        self.happened.append(f"committed behind {self._log.durable_end('room')} messages of the log")

    def close(self) -> None:
        self.happened.append("closed")


def test_other_files_are_committed_after_the_log_and_nobody_is_called_before(tmp_path: Path) -> None:
    async def test() -> None:
        log = DurableLog.open(tmp_path / "log")
        failed: list[BaseException] = []
        commit = GroupCommit(log, lambda: None, failed.append)
        files = OtherFiles(log, refusals=2)
        commit.join(files)
        log.append("room", 3, 1, b"batch")
        called = asyncio.get_running_loop().create_future()
        commit.then(lambda: called.set_result(list(files.happened)))
        async with asyncio.timeout(90):
            happened = await called
        assert happened == ["refused", "refused", "committed behind 3 messages of the log"]
        assert commit.trouble == "" and failed == []
        await commit.close()
        assert files.happened[-1] == "closed"

    running(test)
