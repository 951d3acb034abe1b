"""Conducts one contender through one workload: open, probe, warm up, full speed, then the moderate rate.

Timing starts when every subscriber has received from every publisher. A round ends when every subscriber has the ends
of all publishers; messages that have not arrived by then are lost, because all contenders keep the order of one
publisher.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from antiphon.kernel.errors import PeerError
from antiphon_lab.bench.peers import crew
from antiphon_lab.bench.peers.contender import Contender, Place
from antiphon_lab.bench.peers.control import (
    Begin,
    Begun,
    Close,
    Closed,
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
)
from antiphon_lab.bench.peers.report import Figures, Latency, RoundFigures, latency_of, throughput_of
from antiphon_lab.bench.peers.workload import Round, Workload

LATENCY_MESSAGES_PER_SECOND = 2000.0
WARM_UP_SHARE = 0.1
OPEN_SECONDS = 30.0
PROBE_SECONDS = 0.1
DRAIN_SECONDS = 60.0
"""A contender that buffers without bound needs much longer to deliver than to publish."""

Result = TypeVar("Result")


class MeasurePlan(msgspec.Struct, frozen=True):
    """The amounts of work of a measurement."""

    messages: int = 200_000
    seconds: float = 3.0
    rounds: int = 3
    latency_seconds: float = 3.0
    """0 leaves latency out."""


class Ensemble:
    """The workers of one workload, with the server that they share."""

    def __init__(self, workload: Workload, workers: list[crew.WorkerHandle], server: crew.Server) -> None:
        self._workload = workload
        self._workers = workers
        self._server = server
        self._publishers = workers[: workload.publishers]
        self._receivers = [worker for index, worker in enumerate(workers) if workload.receives(index)]
        self._round_number = 0

    async def open(self, contender: Contender) -> None:
        """Connect all workers, the first publisher before the rest, so that they can join it."""
        ports = crew.free_ports(self._workload.publishers)
        orders = [
            Open(
                contender.name,
                self._workload,
                Place(index, self._workload.publishes(index), self._workload.receives(index), ports, self._server.port),
            )
            for index in range(len(self._workers))
        ]
        async with limit(OPEN_SECONDS, "connect and subscribe"):
            self._workers[0].tell(orders[0])
            await self._workers[0].expect(Opened)
            for worker, order in zip(self._workers[1:], orders[1:], strict=True):
                worker.tell(order)
            await together(worker.expect(Opened) for worker in self._workers[1:])

    async def probe(self) -> None:
        """Publish probes until every subscriber has received from all publishers."""
        heard = asyncio.ensure_future(together(worker.expect(Heard) for worker in self._receivers))
        pure_publishers = [worker for worker in self._publishers if worker not in self._receivers]
        try:
            async with limit(OPEN_SECONDS, "hear every publisher at every subscriber"):
                while not heard.done():
                    for worker in self._publishers:
                        worker.tell(Probe())
                    # Only workers that no other task reads from; the answers of the others are kept.
                    await together(worker.expect(Probed) for worker in pure_publishers)
                    await asyncio.wait([heard], timeout=PROBE_SECONDS)
                await heard
        finally:
            heard.cancel()

    async def play(self, messages: int, seconds: float, rate: float = 0.0) -> tuple[RoundFigures, list[int]]:
        """One round: its figures, and the latencies of all deliveries if it was paced."""
        self._round_number += 1
        one = Round(self._round_number, messages, seconds, rate)
        async with limit(seconds + DRAIN_SECONDS, "deliver what was published"):
            await self._ask(Begin(one), Begun)
            server_begun = self._server.processor_seconds()
            for worker in self._publishers:
                worker.tell(Publish())
            published = await together(worker.expect(Published) for worker in self._publishers)
            received = await together(worker.expect(Received) for worker in self._receivers)
            spent = await self._ask(Over(), Spent)
        processor_seconds = sum(one.processor_seconds for one in spent)
        processor_seconds += self._server.processor_seconds() - server_begun
        begun = min(one.begun_nanoseconds for one in published)
        finished = max(one.finished_nanoseconds for one in received)
        figures = RoundFigures.of_counts(
            published=sum(one.messages for one in published),
            subscribers=len(received),
            delivered=sum(one.messages for one in received),
            seconds=(finished - begun) / 1e9,
            processor_seconds=processor_seconds,
        )
        return figures, [latency for one in received for latency in one.latencies_nanoseconds]

    async def close(self) -> None:
        """Disconnect all workers."""
        async with limit(OPEN_SECONDS, "disconnect"):
            await self._ask(Close(), Closed)

    async def _ask(self, order: Begin | Over | Close, kind: type[crew.Kind]) -> list[crew.Kind]:
        for worker in self._workers:
            worker.tell(order)
        return await together(worker.expect(kind) for worker in self._workers)


async def together(waits: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Wait for all; the first failure ends the waiting for the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


@contextlib.asynccontextmanager
async def limit(seconds: float, what: str) -> AsyncIterator[None]:
    """Fail after so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise PeerError(f"it did not {what} within {seconds:.0f} seconds") from None


async def perform(contender: Contender, workload: Workload, plan: MeasurePlan) -> Figures:
    """Start everything, measure, end everything."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as name:
        directory = Path(name)
        async with contextlib.AsyncExitStack() as stack:
            server = await stack.enter_async_context(crew.server(contender, directory))
            workers = [
                await stack.enter_async_context(crew.worker(f"worker-{index}", directory))
                for index in range(workload.processes)
            ]
            ensemble = Ensemble(workload, workers, server)
            await ensemble.open(contender)
            await ensemble.probe()
            warm_up, _ = await ensemble.play(max(1, int(plan.messages * WARM_UP_SHARE)), plan.seconds)
            messages = affordable(plan, warm_up)
            rounds = [(await ensemble.play(messages, plan.seconds))[0] for _ in range(plan.rounds)]
            latency = await paced(ensemble, plan.latency_seconds) if plan.latency_seconds > 0 else None
            await ensemble.close()
    return Figures.of(contender.name, workload, load, throughput_of(rounds), latency)


def affordable(plan: MeasurePlan, warm_up: RoundFigures) -> int:
    """The number of messages of a round such that their delivery ends in time too, judging by the warm-up.

    A contender that buffers without bound accepts more in its time than it can deliver in many times as long.
    """
    return max(1, min(plan.messages, int(warm_up.published / warm_up.seconds * plan.seconds)))


async def paced(ensemble: Ensemble, seconds: float) -> Latency:
    """Latency at the moderate rate, after a warm-up at the same rate."""
    rate = LATENCY_MESSAGES_PER_SECOND
    await ensemble.play(max(1, int(rate * seconds * WARM_UP_SHARE)), seconds, rate)
    figures, latencies = await ensemble.play(max(1, int(rate * seconds)), 2 * seconds, rate)
    return latency_of(rate, figures, latencies)


async def cancelled_by_termination(work: Coroutine[Any, Any, Result]) -> Result:
    """Treat a termination signal like an interrupt, so that no process is left behind."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await task
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


def measure(contender: Contender, workload: Workload, plan: MeasurePlan) -> Figures:
    """Measure one contender under one workload; if it fails, the figures give the reason."""
    load = os.getloadavg()[0]
    try:
        return asyncio.run(cancelled_by_termination(perform(contender, workload, plan)))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    except PeerError as error:
        return Figures.failed(contender.name, workload, load, str(error))
