"""Honest clients beside an attack: what they publish must arrive, once, in order and soon."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from antiphon.api.pubsub import Subscription
from antiphon.client.handle import Client

PAUSE_SECONDS = 0.02


PATIENCE_SECONDS = 30.0
"""A message that an honest client has not received by then counts as lost."""


@dataclass
class HonestFindings:
    """Everything that honest clients have noticed. ``waits`` are the seconds from each publication to its receipt."""

    published: int = 0
    received: int = 0
    longest_seconds: float = 0.0
    waits: list[float] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def percentile_seconds(self, share: float) -> float:
        """The time within which such a share of the messages arrived."""
        return sorted(self.waits)[min(len(self.waits) - 1, int(share * len(self.waits)))] if self.waits else 0.0


class Honest:
    """A client that publishes numbers at one node, and one that must receive them at another."""

    def __init__(self, topic: str, publisher: Client, subscriber: Client, findings: HonestFindings) -> None:
        self._topic = topic
        self._publisher = publisher
        self._subscriber = subscriber
        self._findings = findings
        self._sent_at: dict[int, float] = {}
        self._next = 0
        self._awaited = 0
        self._is_over = False
        self._subscription: Subscription | None = None

    async def begin(self) -> Honest:
        """Subscribe."""
        self._subscription = await self._subscriber.subscribe(self._topic).ready()
        return self

    async def publish(self) -> None:
        """Publish until the attack is over."""
        while not self._is_over:
            self._sent_at[self._next] = time.perf_counter()
            await self._publisher.publish(self._topic, str(self._next).encode())
            self._next += 1
            self._findings.published += 1
            await asyncio.sleep(PAUSE_SECONDS)

    async def receive(self) -> None:
        """Check each message that arrives."""
        assert self._subscription is not None, "it has begun"
        async for message in self._subscription:
            self._check(message.value)

    def _check(self, value: bytes) -> None:
        """A message has come."""
        if value != str(self._awaited).encode():
            self._findings.violations.append(f"{self._topic}: {value!r} came in the place of {self._awaited}")
        seconds = time.perf_counter() - self._sent_at.pop(self._awaited, time.perf_counter())
        self._findings.longest_seconds = max(self._findings.longest_seconds, seconds)
        self._findings.waits.append(seconds)
        self._findings.received += 1
        self._awaited += 1

    async def end(self) -> None:
        """Publish no more, and wait for the rest."""
        self._is_over = True
        until = time.perf_counter() + PATIENCE_SECONDS
        while self._awaited < self._next and time.perf_counter() < until:
            await asyncio.sleep(PAUSE_SECONDS)
        if self._awaited < self._next:
            self._findings.violations.append(f"{self._topic}: {self._next - self._awaited} messages never arrived")


class HonestWork(Honest):
    """A client that publishes on a topic with a history, and one that works on the messages, one after the other."""

    async def begin(self) -> Honest:
        """Be the member of a consumer."""
        self._work = await self._subscriber.consume(self._topic, "work", start="earliest").ready()
        return self

    async def receive(self) -> None:
        """Check each message that is handed out, and acknowledge it."""
        async for message in self._work:
            self._check(message.value)
            await message.ack()
