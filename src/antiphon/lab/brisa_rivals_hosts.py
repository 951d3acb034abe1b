"""Dissemination latency where processes share machines: Table 4.3 of the thesis of M. Matos.

In a network alone every protocol that pushes delivers 500 messages, five per second, within 99.8 s of the first. The
document measured 128 s for SimpleGossip and 107 s for BRISA, and puts it down to duplicates and to machines that are
shared: 512 processes on 15 machines of two cores.

**The model of hosts** is ours. Each host has two servers and one queue. Every message that a process sends or receives,
of whatever kind, takes :data:`COST_MS` of a server; a message leaves, or is handled, when it has had its turn. That
cost is not published. It is **chosen** such that SimpleGossip comes out as published, so its row is no evidence; those
of the others are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

import numpy as np

from antiphon.kernel.message import Message
from antiphon.kernel.process import Environment, Process
from antiphon.lab.brisa import GAP_MS, published
from antiphon.lab.brisa_rivals import (
    BRISA,
    PLUMTREE,
    RIVALS_MODEL,
    SIMPLE_GOSSIP,
    SIMPLE_TREE,
    SYSTEMS,
    TAG,
    Rival,
    RivalRun,
)
from antiphon.lab.experiment import Experiment, Explanation, Finding, Note, Plan, Results, Row, Sample, compared
from antiphon.lab.figures import Axis, Figure, Point, Series

NODES = 512
PROCESSES_PER_HOST = 512 / 15
SERVERS = 2
COST_MS = 0.8
FULL_MESSAGES, FEW_MESSAGES = 500, 60
FIRST_TOKEN = 1 << 40
"""Names of the timers of hosts begin here, above those of processes."""


class Host:
    """One machine: servers, and when each is free."""

    def __init__(self, cost_ms: float) -> None:
        self._cost_ms = cost_ms
        self._free = [0.0] * SERVERS
        self.busy_ms = 0.0

    def done_at(self, now: int) -> int:
        """When a message that comes now has had its turn; ticks are milliseconds, servers know parts of them."""
        server = min(range(SERVERS), key=self._free.__getitem__)
        self._free[server] = max(float(now), self._free[server]) + self._cost_ms
        self.busy_ms += self._cost_ms
        return ceil(self._free[server])


class Sharing(Environment):
    """What a process on a host sees: what it sends waits for its turn."""

    def __init__(self, network: Environment, host: Host) -> None:
        super().__init__(network.identifier)
        self._network = network
        self._host = host
        self.waiting: dict[int, tuple[int, Message, bool]] = {}
        self._tokens = FIRST_TOKEN

    def queue(self, peer: int, message: Message, is_arrival: bool) -> int:
        """Let a message wait for its turn; the answer is how long."""
        wait = self._host.done_at(self.now()) - self.now()
        if wait > 0:
            self._tokens += 1
            self.waiting[self._tokens] = (peer, message, is_arrival)
            self._network.set_timer(wait, self._tokens)
        return wait

    def send(self, destination: int, message: Message) -> None:
        if self.queue(destination, message, False) == 0:
            self._network.send(destination, message)

    def depart(self, destination: int, message: Message) -> None:
        """A message has had its turn."""
        self._network.send(destination, message)

    def now(self) -> int:
        return self._network.now()

    def deliver(self, publication):  # type: ignore[no-untyped-def]
        self._network.deliver(publication)

    def subscribed(self, topic: int) -> None:
        self._network.subscribed(topic)

    def set_timer(self, delay: int, name: int) -> int:
        return self._network.set_timer(delay, name)

    def cancel_timer(self, handle: int) -> None:
        self._network.cancel_timer(handle)

    def random(self):  # type: ignore[no-untyped-def]
        return self._network.random()

    def watch(self, peer: int) -> None:
        self._network.watch(peer)

    def unwatch(self, peer: int) -> None:
        self._network.unwatch(peer)
