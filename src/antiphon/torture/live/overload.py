"""Overload: publishers that do not wait ask for many times the rate that a live cluster sustains.

First one application publishes as fast as it can and awaits each message: that gives the sustainable rate. Then it asks
for a multiple of that rate without waiting, for the wanted time, and counts accepted messages and those refused with an
:class:`antiphon.OverloadedError`. A subscriber at the other end of the cluster records when each message arrives. The
promises: memory stays bounded, every accepted message arrives in a bounded time, every refused message is reported, and
the cluster is as before when it is over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import antiphon
from antiphon.node.local_cluster import Member, Plan, ProcessCluster, any_ports, founders_file
from antiphon.runtime.clocks import monotonic_us
from antiphon.runtime.errors import OverloadedError

if TYPE_CHECKING:
    from antiphon.api.batch import Message
    from antiphon.client.handle import Client

TOPIC: Final = "flood"
VALUE_BYTES: Final = 64 << 10
"""Values are large, so that one application can ask for many times what a cluster carries."""
NUMBER_BYTES: Final = 8
FILLING: Final = bytes(VALUE_BYTES - 2 * NUMBER_BYTES)
AT_ONCE: Final = 32
"""The number of messages in transit while each is awaited."""

TURN_US: Final = 5_000
"""How long the flood runs before it yields to other tasks, in microseconds."""

LOOK_SECONDS: Final = 0.05
GROWTH_BYTES_AT_MOST: Final = 96 << 20
"""How much a node may grow after a tenth of the time: buffers have bounds, and are full by then."""

PERCENTILES: Final = (0.5, 0.99, 1.0)


@dataclass(frozen=True)
class OverloadPlan:
    """Describes one overload run."""

    fabric: str
    nodes: int
    seconds: float
    factor: float
    order: str
    directory: Path
    measure_seconds: float = 5.0


@dataclass
class Overload:
    """The measurements of one run."""

    sustainable_per_second: float = 0.0
    asked_per_second: float = 0.0
    asked: int = 0
    accepted: int = 0
    refused: int = 0
    delivered: int = 0
    lost: int = 0
    doubled: int = 0
    out_of_order: int = 0
    calm_latency_seconds: list[float] = field(default_factory=list)
    """Median, 99th percentile and maximum, at the sustainable rate."""
    latency_seconds: list[float] = field(default_factory=list)
    """The same for all accepted messages under overload."""
    late_latency_seconds: list[float] = field(default_factory=list)
    """The same in the last third of the overload; no longer than before, if latency is bounded."""
    bytes_after_a_tenth: int = 0
    bytes_at_most: int = 0
    """The size of the largest node."""
    recovery_seconds: float = 0.0
    """From the end of the flood until a message published then has arrived."""
    seconds: float = 0.0

    @property
    def has_failed(self) -> bool:
        """Whether any promise was broken."""
        grew = self.bytes_at_most - self.bytes_after_a_tenth > GROWTH_BYTES_AT_MOST
        return grew or self.lost > 0 or self.doubled > 0 or self.out_of_order > 0


class LatencyWatch:
    """Records at the subscriber: numbers from 1 on, each once and in order, and the latency of each."""

    def __init__(self) -> None:
        self.last = 0
        self.count = 0
        self.doubled = 0
        self.out_of_order = 0
        self._latencies: list[tuple[int, int]] = []

    def hear(self, message: Message) -> None:
        """A message has come."""
        now_us = monotonic_us()
        number = int.from_bytes(message.value[:NUMBER_BYTES], "big")
        asked_us = int.from_bytes(message.value[NUMBER_BYTES : 2 * NUMBER_BYTES], "big")
        self.count += 1
        self.doubled += number == self.last
        self.out_of_order += number < self.last
        self.last = max(number, self.last)
        self._latencies.append((now_us, now_us - asked_us))

    def latencies(self, since_us: int) -> list[float]:
        """Percentiles of the latency of messages that arrived since then, in seconds."""
        found = sorted(latency for came_us, latency in self._latencies if came_us >= since_us)
        return [found[min(len(found) - 1, int(share * len(found)))] / 1e6 for share in PERCENTILES] if found else []


class Flood:
    """One run, from the start of the cluster to its end."""

    def __init__(self, plan: OverloadPlan, complain: Callable[[str], None]) -> None:
        self._plan = plan
        self.figures = Overload()
        port = any_ports(plan.nodes)
        table = founders_file(plan.directory, plan.fabric, plan.nodes, port)
        settings = ["--log-level", "error", "--keep", TOPIC]
        cluster = Plan(plan.nodes, port, None, settings=settings, table=table, fabric=plan.fabric)
        self._cluster = ProcessCluster(cluster, lambda _, line: complain(line), self._ended)
        self._watch = LatencyWatch()
        self._number = 0
        self._failure = ""

    async def run(self) -> Overload:
        """Run it; if cancelled, no process is left behind."""
        await self._cluster.start()
        begun = time.monotonic()
        sampling = asyncio.ensure_future(self._sample())
        try:
            first, last = self._cluster.members[0], self._cluster.members[-1]
            async with (
                await antiphon.connect(first.address) as publisher,
                await antiphon.connect(last.address) as subscriber,
            ):
                await subscriber.subscribe(TOPIC, callback=self._watch.hear).ready()
                await self._measure(publisher)
                await self._flood(publisher)
        finally:
            sampling.cancel()
            await self._cluster.stop()
            self.figures.seconds = time.monotonic() - begun
        return self.figures

    def _value(self) -> bytes:
        self._number += 1
        return self._number.to_bytes(NUMBER_BYTES, "big") + monotonic_us().to_bytes(NUMBER_BYTES, "big") + FILLING

    async def _measure(self, publisher: Client) -> None:
        """Measure the accepted rate with every message awaited."""
        begun_us = monotonic_us()
        while monotonic_us() - begun_us < self._plan.measure_seconds * 1e6:
            receipts = [publisher.publish(TOPIC, self._value(), order=self._plan.order) for _ in range(AT_ONCE)]
            await asyncio.gather(*receipts)
        await self._until_all_came()
        figures = self.figures
        figures.sustainable_per_second = self._number / ((monotonic_us() - begun_us) / 1e6)
        figures.calm_latency_seconds = self._watch.latencies(begun_us)

    async def _flood(self, publisher: Client) -> None:
        figures, plan = self.figures, self._plan
        seen_before = self._watch.count
        rate = plan.factor * figures.sustainable_per_second
        begun_us = monotonic_us()
        while (passed := (monotonic_us() - begun_us) / 1e6) < plan.seconds:
            self._ask_for_more(publisher, int(rate * passed))
            if passed > plan.seconds / 10 and not figures.bytes_after_a_tenth:
                figures.bytes_after_a_tenth = figures.bytes_at_most
            await asyncio.sleep(0)
        ended_us = monotonic_us()
        figures.asked_per_second = figures.asked / plan.seconds
        await self._say_last(publisher)
        figures.recovery_seconds = (monotonic_us() - ended_us) / 1e6
        figures.delivered = self._watch.count - seen_before
        figures.lost = max(0, figures.accepted - figures.delivered)
        figures.doubled, figures.out_of_order = self._watch.doubled, self._watch.out_of_order
        figures.latency_seconds = self._watch.latencies(begun_us)
        figures.late_latency_seconds = self._watch.latencies(ended_us - int(plan.seconds * 1e6 / 3))

    def _ask_for_more(self, publisher: Client, wanted: int) -> None:
        """Publish without waiting until so much has been asked for, or until other tasks need their turn."""
        figures = self.figures
        until_us = monotonic_us() + TURN_US
        while figures.asked < wanted and monotonic_us() < until_us:
            figures.asked += 1
            try:
                receipt = publisher.publish(TOPIC, self._value(), order=self._plan.order)
            except OverloadedError:
                figures.refused += 1
                continue
            receipt.add_done_callback(self._answered)

    def _answered(self, receipt: asyncio.Future[None]) -> None:
        # The client refuses what does not fit into its buffer, and so does the node.
        if receipt.cancelled() or receipt.exception() is not None:
            self.figures.refused += 1
        else:
            self.figures.accepted += 1

    async def _say_last(self, publisher: Client) -> None:
        """Publish one more message, as soon as it is accepted; it arrives after all messages accepted before."""
        while True:
            try:
                await publisher.publish(TOPIC, self._value(), order=self._plan.order)
                break
            except antiphon.PeerError:
                await asyncio.sleep(LOOK_SECONDS)
        self.figures.accepted += 1
        await self._until_all_came()

    async def _until_all_came(self) -> None:
        """Wait for all accepted messages; the last one published arrives last."""
        while self._watch.last < self._number and not self._failure:
            await asyncio.sleep(LOOK_SECONDS)
        if self._failure:
            raise antiphon.PeerError(self._failure)

    async def _sample(self) -> None:
        """Sample the sizes of nodes all the time."""
        page_bytes = 4096
        while True:
            for member in self._cluster.alive:
                with suppress(OSError):
                    pages = int(Path(f"/proc/{member.process.pid}/statm").read_text().split()[1])
                    self.figures.bytes_at_most = max(self.figures.bytes_at_most, pages * page_bytes)
            await asyncio.sleep(LOOK_SECONDS)

    def _ended(self, member: Member) -> None:
        self._failure = f"node {member.index} ended unexpectedly with exit code {member.process.returncode}"
