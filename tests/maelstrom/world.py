"""Hosts in virtual time: the network of a run without its processes, so that tests can wait for hours."""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random
from typing import Any

import msgspec

from antiphon.maelstrom.history import Event, History, PartitionSpan
from antiphon.maelstrom.host import HostOptions, MaelstromHost
from antiphon.maelstrom.nemesis import Cuts
from antiphon.maelstrom.services import service_for


class World:
    """Some hosts, a clock, and a network that delays, reorders, doubles and loses as it is told."""

    def __init__(
        self,
        workload: str,
        count: int,
        options: HostOptions | None = None,
        latency_us: int = 100_000,
        seed: int = 1,
        spread: bool = False,
        loss: float = 0.0,
        doubling: float = 0.0,
    ) -> None:
        self.now_us = 0
        self.cuts: Cuts = {}
        self.history = History()
        self.messages = 0
        self.answers: dict[int, dict[str, Any]] = {}
        self.names = [f"n{number}" for number in range(count)]
        self._latency_us = latency_us
        self._spread = spread
        self._loss = loss
        self._doubling = doubling
        self._random = Random(seed)
        self._wire: list[tuple[int, int, str, bytes]] = []
        self._last = 0
        self._cut_since: tuple[int, str] | None = None
        self.hosts = {
            name: MaelstromHost(service_for(workload), self._send, lambda: self.now_us, options or HostOptions())
            for name in self.names
        }
        for name in self.names:
            self.ask(name, type="init", node_id=name, node_ids=self.names)

    # The network.

    def _send(self, line: bytes) -> None:
        message = msgspec.json.decode(line)
        if message["dest"] not in self.hosts:
            self.answers[message["body"]["in_reply_to"]] = message["body"]
            return
        self.messages += 1
        for _ in range(2 if self._random.random() < self._doubling else 1):
            delay = self._random.randrange(2 * self._latency_us) if self._spread else self._latency_us
            self._last += 1
            heappush(self._wire, (self.now_us + delay, self._last, message["dest"], line))

    def _arrive(self, destination: str, line: bytes) -> None:
        source = msgspec.json.decode(line)["src"]
        if source not in self.cuts.get(destination, ()) and self._random.random() >= self._loss:
            self.hosts[destination].take(line)

    def cut(self, cuts: Cuts, kind: str = "cut") -> None:
        """Begin a partition, or end it if there are no cuts."""
        if self._cut_since is not None:
            begin, before = self._cut_since
            self.history.cuts.append(PartitionSpan(kind=before, begin_us=begin, end_us=self.now_us))
        self.cuts = cuts
        self._cut_since = (self.now_us, kind) if cuts else None

    def run_until(self, end_us: int) -> None:
        """Let time pass."""
        while True:
            dues = [due for host in self.hosts.values() if (due := host.timers.next_us()) is not None]
            next_us = min([*dues, self._wire[0][0]] if self._wire else dues, default=end_us + 1)
            if next_us > end_us:
                break
            self.now_us = max(self.now_us, next_us)
            while self._wire and self._wire[0][0] <= self.now_us:
                _, _, destination, line = heappop(self._wire)
                self._arrive(destination, line)
            for host in self.hosts.values():
                due = host.timers.next_us()
                if due is not None and due <= self.now_us:
                    host.wake()
        self.now_us = end_us

    # Clients.

    def ask(self, node: str, **body: Any) -> int:
        """Send a request; the answer is the number under which its answer is found."""
        self._last += 1
        number = self._last
        line = {"src": "c1", "dest": node, "body": {**body, "msg_id": number}}
        self.hosts[node].take(msgspec.json.encode(line))
        return number

    def answer(self, number: int) -> dict[str, Any]:
        """The answer to a request, without what belongs to every answer."""
        found = dict(self.answers[number])
        del found["in_reply_to"]
        return found

    def add(self, client: int, node: str, value: int) -> None:
        """Broadcast a value and write it into the history."""
        begun = self.history.begin(self.now_us, client, node, "broadcast", value)
        assert self.answer(self.ask(node, type="broadcast", message=value)) == {"type": "broadcast_ok"}
        self.history.end(begun, self.now_us, "ok", value)

    def read(self, client: int, node: str) -> list[int]:
        """Read all values and write that into the history."""
        begun = self.history.begin(self.now_us, client, node, "read", None)
        values: list[int] = self.answer(self.ask(node, type="read"))["messages"]
        self.history.end(begun, self.now_us, "ok", values)
        return values


def play(world: World, rate: float, seconds: float, heals_after_seconds: float = 0, seed: int = 1) -> list[Event]:
    """Half of the operations broadcast and half read, at random nodes and times; then a rest, and final reads.

    A partition that is there is over after some time.
    """
    random = Random(seed)
    begin_us, value, due_us = world.now_us, 0, float(world.now_us)
    while (due_us := due_us + random.random() * 2_000_000 / rate) < begin_us + seconds * 1_000_000:
        if world.cuts and due_us >= begin_us + heals_after_seconds * 1_000_000:
            world.run_until(begin_us + int(heals_after_seconds * 1_000_000))
            world.cut({})
        world.run_until(int(due_us))
        place = random.randrange(len(world.names))
        if random.random() < 1 / 2:
            world.read(place, world.names[place])
        else:
            world.add(place, world.names[place], value)
            value += 1
    world.run_until(world.now_us + 10_000_000)
    for place, name in enumerate(world.names):
        world.read(place, name)
    return world.history.events
