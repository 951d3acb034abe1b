"""The campaign's side of crowds of subscribers: it starts them, kills some, and waits until others are served.

Each crowd is two processes (:mod:`antiphon.torture.live.crowd`). One is killed, so its subscribers vanish; those of the
other stay until they have received messages that are published after healing, or end before.
"""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.kernel.errors import PeerError
from antiphon.runtime.clocks import monotonic_us
from antiphon.torture.live.crowd import DROPPING_NAME, END_SECONDS, FIRST_IDENTITY, LIVES_AT_MOST, CrowdWork
from antiphon.torture.live.load_process import start_process

CROWD: Final = 6
"""The number of subscribers in one process: more than there are policies."""


class CrowdProcess:
    """One process of a crowd."""

    def __init__(self, process: Process, work: CrowdWork) -> None:
        self._process = process
        self._work = work
        self._asking = asyncio.Lock()

    @classmethod
    async def start(cls, work: CrowdWork) -> CrowdProcess:
        """Start the process; its subscribers connect one by one."""
        return cls(await start_process("antiphon.torture.live.crowd", work), work)

    async def ask(self, command: str, probe: int = 0) -> dict[str, Any]:
        """Send a command, and wait for the answer."""
        assert self._process.stdin is not None and self._process.stdout is not None, "it was made with pipes"
        async with self._asking:
            self._process.stdin.write(msgspec.json.encode({"command": command, "probe": probe}) + b"\n")
            line = await self._process.stdout.readline()
        if not line:
            raise PeerError("a process with subscribers has ended; see its output")
        return dict(msgspec.json.decode(line))

    async def vanish(self, now_us: int) -> None:
        """Kill the process, so that its subscribers vanish without a goodbye; their journals end there."""
        self._process.kill()
        await self._process.wait()
        for path in Path(self._work.directory).glob(f"*/crowd-{self._work.name}-*.txt"):
            await asyncio.to_thread(end_journal, path, now_us, len(self._work.topics))

    async def end(self) -> None:
        """End all subscribers, and then the process."""
        if self._process.returncode is None:
            with suppress(PeerError, OSError, TimeoutError):
                async with asyncio.timeout(2 * END_SECONDS):
                    await self.ask("end")
            self._process.kill()
            await self._process.wait()


def end_journal(path: Path, now_us: int, topics: int) -> None:
    """Complete the journal of a killed subscriber, which may end in the middle of a line."""
    lines = path.read_bytes().rpartition(b"\n")
    ends = "".join(f"end {now_us} {topic}\n" for topic in range(topics))
    path.write_bytes(b"".join(lines[:2]) + ends.encode())


class Crowds:
    """All crowds of a campaign, one after the other or several at once."""

    def __init__(self, doors: Sequence[str], topics: Sequence[str], seed: int, directory: Path) -> None:
        self._doors = list(doors)
        self._topics = list(topics)
        self._seed = seed
        self._directory = directory
        self._begun = 0
        self._here: list[CrowdProcess] = []
        self._vanishing: list[asyncio.Task[None]] = []
        (directory / DROPPING_NAME).mkdir()

    async def come(self, vanish_after_seconds: float) -> None:
        """Start a crowd, one half of which vanishes later; returns when its first subscribers are connected."""
        for _ in range(2):
            self._here.append(await self._start())
        staying, vanishing = self._here[-2:]
        await asyncio.gather(staying.ask("come"), vanishing.ask("come"))
        self._here.remove(vanishing)
        self._vanishing.append(asyncio.ensure_future(let_vanish(vanishing, vanish_after_seconds)))

    async def _start(self) -> CrowdProcess:
        number = self._begun
        self._begun += 1
        first_identity = FIRST_IDENTITY + number * CROWD * LIVES_AT_MOST
        seed, directory = f"{self._seed} crowd {number}", str(self._directory)
        work = CrowdWork(self._doors, self._topics, CROWD, first_identity, seed, directory, str(number))
        return await CrowdProcess.start(work)

    async def settle(self) -> None:
        """Let the doomed half vanish, start no more subscribers, and let none lag."""
        await asyncio.gather(*self._vanishing)
        self._vanishing.clear()
        await asyncio.gather(*(crowd.ask("settle") for crowd in self._here))

    async def are_served(self, probe: int) -> bool:
        """Whether all present subscribers have received a message of this round of probes or a later one."""
        answers = await asyncio.gather(*(crowd.ask("look", probe) for crowd in self._here))
        failures = [failure for answer in answers for failure in answer["failures"]]
        if failures:
            raise PeerError(f"a subscriber of a crowd met {failures[0]}")
        return not any(answer["waiting"] for answer in answers)

    async def go(self) -> None:
        """End all present subscribers and their processes."""
        for vanishing in self._vanishing:
            vanishing.cancel()
        await asyncio.gather(*self._vanishing, return_exceptions=True)
        self._vanishing.clear()
        await asyncio.gather(*(crowd.end() for crowd in self._here))
        self._here.clear()


async def let_vanish(crowd: CrowdProcess, after_seconds: float) -> None:
    """Kill a process after some time, or earlier if cancelled."""
    try:
        await asyncio.sleep(after_seconds)
    finally:
        await crowd.vanish(monotonic_us())
