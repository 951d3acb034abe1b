"""The campaign's side of the processes that run applications (:mod:`antiphon.torture.live.load`)."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from antiphon.kernel.errors import PeerError
from antiphon.torture.live.load import LoadWork

END_SECONDS: Final = 5.0
"""How long a process may take to end."""


async def start_process(module: str, work: msgspec.Struct) -> Process:
    """Start a process that runs a module. Its first input line describes its work; commands and answers follow."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, stdin=PIPE, stdout=PIPE, start_new_session=True
    )
    assert process.stdin is not None, "it was made with a pipe"
    process.stdin.write(msgspec.json.encode(work) + b"\n")
    return process


async def end_process(process: Process, patience_seconds: float) -> None:
    """End a process by closing its input; it is killed if it goes on for longer."""
    assert process.stdin is not None, "it was made with a pipe"
    process.stdin.close()
    try:
        async with asyncio.timeout(patience_seconds):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


class LoadProcess:
    """A process with applications."""

    def __init__(self, process: Process, places: Sequence[int]) -> None:
        self._process = process
        self.places = places
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._last = 0
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def start(cls, work: LoadWork) -> LoadProcess:
        """Start the process; its applications may take a while to begin."""
        started = cls(await start_process("antiphon.torture.live.load", work), work.places)
        started._answers[0] = asyncio.get_running_loop().create_future()
        return started

    async def until_begun(self) -> None:
        """Wait until all applications publish."""
        await self._answers[0]

    async def ask(self, command: str, probe: int = 0, places: Sequence[int] = ()) -> dict[str, Any]:
        """Send a command to all applications, or to those at some places; returns the answer, which includes their
        figures.
        """
        self._last += 1
        number = self._last
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        assert self._process.stdin is not None, "it was made with a pipe"
        line = msgspec.json.encode({"number": number, "command": command, "probe": probe, "places": list(places)})
        self._process.stdin.write(line + b"\n")
        try:
            return await answer
        finally:
            self._answers.pop(number, None)

    async def _read(self) -> None:
        assert self._process.stdout is not None, "it was made with a pipe"
        async for line in self._process.stdout:
            said = msgspec.json.decode(line)
            answer = self._answers.get(said["number"])
            if answer is not None and not answer.done():
                answer.set_result(said)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(PeerError("a process with applications has ended; see its output"))

    async def end(self) -> None:
        """End the process by closing its input."""
        await end_process(self._process, END_SECONDS)
        await self._reading
