"""The program of every process that publishes or receives: ``python -m antiphon_lab.bench.peers.worker``.

It carries out the conductor's orders, one line each. Data travels only through the contender. If the conductor is gone,
the input ends, and so does the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable

import antiphon
from antiphon_lab.bench.peers.contender import Arrived, Side
from antiphon_lab.bench.peers.control import (
    LINE_MOST_BYTES,
    Answer,
    AnyOrder,
    Begin,
    Begun,
    Close,
    Closed,
    Failed,
    Heard,
    Open,
    Opened,
    Over,
    Probe,
    Probed,
    Publish,
    Published,
    Received,
    Spent,
    line_of,
    orders,
)
from antiphon_lab.bench.peers.registry import contender_named
from antiphon_lab.bench.peers.workload import CHUNK_MESSAGES, END, MARKER, PROBE, STAMP, Round, Workload, marker

END_REPEATED_SECONDS = 0.5
TIMER_SECONDS = 0.001
ORPHAN_CHECK_SECONDS = 1.0

Say = Callable[[Answer], None]


class Arrivals:
    """Counts arriving messages, in any thread, and notices when a round is complete."""

    def __init__(self, workload: Workload, say: Say) -> None:
        self._workload = workload
        self._say = say
        self._round = 0
        self._count = 0
        self._latencies: list[int] = []
        self._is_timed = False
        self._heard: set[int] = set()
        self._ended: set[int] = set()

    def begin(self, one: Round) -> None:
        """Count from here."""
        self._round = one.number
        self._is_timed = one.is_paced
        self._count = 0
        self._latencies = []
        self._ended = set()

    def counter(self) -> Arrived:
        """The callback of the contender for each message."""
        payload_bytes = self._workload.payload_bytes
        now, unpack = time.monotonic_ns, STAMP.unpack_from

        def arrived(payload: bytes) -> None:
            if len(payload) == payload_bytes:
                self._count += 1
                if self._is_timed:
                    self._latencies.append(now() - unpack(payload)[0])
            else:
                self._mark(payload)

        return arrived

    def _mark(self, payload: bytes) -> None:
        kind, number, publisher, _ = MARKER.unpack(payload)
        if kind == PROBE:
            if publisher not in self._heard:
                self._heard.add(publisher)
                if len(self._heard) == self._workload.publishers:
                    self._say(Heard())
        elif number == self._round and publisher not in self._ended:
            self._ended.add(publisher)
            if len(self._ended) == self._workload.publishers:
                self._say(Received(self._count, time.monotonic_ns(), self._latencies))


class Worker:
    """Carries out orders of the conductor."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._workload = Workload(1, 1, 0)
        self._index = 0
        self._side: Side | None = None
        self._arrivals: Arrivals | None = None
        self._round = Round(0, 0, 0.0)
        self._processor_begun = 0.0
        self._publishing: asyncio.Task[None] | None = None

    async def obey(self, order: AnyOrder) -> None:
        """Carry out one order; publishing continues in the background."""
        if isinstance(order, Open):
            await self._open(order)
        elif isinstance(order, Probe):
            await self._opened().publish(marker(PROBE, 0, self._index), 1)
            self._say(Probed())
        elif isinstance(order, Begin):
            self._begin(order.round)
        elif isinstance(order, Publish):
            self._publishing = asyncio.create_task(self._publish())
        elif isinstance(order, Over):
            await self._stop_publishing()
            self._say(Spent(time.process_time() - self._processor_begun))
        else:
            await self._stop_publishing()
            if self._side is not None:
                await self._side.close()
            self._say(Closed())

    async def _open(self, order: Open) -> None:
        self._workload = order.workload
        self._index = order.place.index
        self._arrivals = Arrivals(order.workload, self._say)
        side = contender_named(order.contender).side(order.place)
        await side.open(self._arrivals.counter())
        self._side = side
        self._say(Opened())

    def _opened(self) -> Side:
        assert self._side is not None, "the conductor opens first"
        return self._side

    def _begin(self, one: Round) -> None:
        self._round = one
        if self._arrivals is not None:
            self._arrivals.begin(one)
        self._processor_begun = time.process_time()
        self._say(Begun())

    async def _publish(self) -> None:
        """Publish the share of this publisher, then its end, until the conductor confirms it."""
        try:
            begun = time.monotonic_ns()
            messages = await (self._pace() if self._round.is_paced else self._flood())
            await self._say_end(messages)
            self._say(Published(messages, begun, time.monotonic_ns()))
            while True:
                await asyncio.sleep(END_REPEATED_SECONDS)
                await self._say_end(messages)
        except Exception as error:
            self._say(Failed(f"{type(error).__name__}: {error}"))

    async def _say_end(self, messages: int) -> None:
        await self._opened().publish(marker(END, self._round.number, self._index, messages), 1)

    async def _flood(self) -> int:
        """Publish as fast as the contender accepts."""
        side, one = self._opened(), self._round
        payload = bytes(self._workload.payload_bytes)
        share = one.share(self._index, self._workload.publishers)
        deadline = time.monotonic() + one.seconds
        published = 0
        while published < share and time.monotonic() < deadline:
            chunk = min(CHUNK_MESSAGES, share - published)
            await side.publish(payload, chunk)
            published += chunk
        return published

    async def _pace(self) -> int:
        """Publish at a steady rate, each message with the time at which it is published.

        Timers of a loop count milliseconds (less would make it spin), so that a wake-up finds a few messages due.
        """
        side, one = self._opened(), self._round
        filling = bytes(self._workload.payload_bytes - STAMP.size)
        share = one.share(self._index, self._workload.publishers)
        interval = self._workload.publishers / one.rate
        begun = time.monotonic()
        published = 0
        while published < share and (now := time.monotonic() - begun) < one.seconds:
            due = min(share, int(now / interval) + 1)
            while published < due:
                await side.publish(STAMP.pack(time.monotonic_ns()) + filling, 1)
                published += 1
            await asyncio.sleep(max(TIMER_SECONDS, begun + published * interval - time.monotonic()))
        return published

    async def _stop_publishing(self) -> None:
        if self._publishing is not None:
            self._publishing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._publishing
            self._publishing = None


async def work(inward: int, outward: int) -> None:
    """Carry out orders until told to close, or until the conductor is gone."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LINE_MOST_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(inward, "rb", 0))
    pen = os.fdopen(outward, "wb")
    # Clients report arrivals in their own threads.
    one_at_a_time = threading.Lock()

    def say(answer: Answer) -> None:
        with one_at_a_time:
            pen.write(line_of(answer))
            pen.flush()

    worker = Worker(say)
    while line := await reader.readline():
        order = orders.decode(line)
        try:
            await worker.obey(order)
        except Exception as error:
            say(Failed(f"{type(error).__name__}: {error}"))
            return
        if isinstance(order, Close):
            return


def end_with(parent: int) -> None:
    """End when the conductor is gone, even while a client blocks the loop that would notice."""
    while os.getppid() == parent:
        time.sleep(ORPHAN_CHECK_SECONDS)
    os._exit(1)


def main() -> None:
    """Take over standard input and output; the output of clients goes to standard error."""
    inward, outward = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    # On uvloop where it is installed, which makes every client with a loop faster.
    antiphon.run(work(inward, outward))
    sys.stderr.flush()
    # Threads of the clients may still be alive; nothing that they hold matters any more.
    os._exit(0)


if __name__ == "__main__":
    main()
