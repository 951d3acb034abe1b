"""What a process may do to the world at a live node: the node's clock, links, timers and application."""

from __future__ import annotations

import asyncio

from antiphon.kernel.message import Message, Publication
from antiphon.kernel.process import Environment, LogReader
from antiphon.kernel.randomness import RandomStream
from antiphon.node.loop import NodeLoop
from antiphon.runtime.clocks import monotonic_us
from antiphon.storage.disk import Disk


class LiveEnvironment(Environment):
    """Ticks are microseconds of the monotonic clock."""

    def __init__(self, identifier: int, loop: NodeLoop, disk: Disk, seed: int) -> None:
        super().__init__(identifier)
        self._loop = loop
        self._log = loop.log
        self._cluster = loop.cluster
        self._disk = disk
        self._random = RandomStream(seed)
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._last_timer = 0

    def now(self) -> int:
        return monotonic_us()

    def shared_time(self) -> int:
        return self._loop.clock_us()

    def send(self, destination: int, message: Message) -> None:
        self._loop.transmit(destination, message)

    def deliver(self, publication: Publication) -> None:
        self._loop.delivered(publication)

    def lost(self, topic: int, source: int, sequence: int, is_late: bool = False) -> None:
        self._loop.lost(topic, source, sequence, is_late)

    def read_back(self, topic: int) -> LogReader | None:
        return self._log.read_back(topic)

    def was_logged(self, topic: int, source: int, sequence: int) -> bool:
        return self._log.was_logged(topic, source, sequence)

    def recalled(self, topic: int, source: int, sequence: int) -> Message | None:
        return self._log.recalled(topic, source, sequence)

    def past(self, topic: int) -> list[int] | None:
        return self._log.past(topic)

    def journal(self) -> list[Message] | None:
        journal = self._disk.journal
        if journal is None:
            return None
        return journal.records() if self._cluster.is_returning else []

    def write(self, record: Message) -> None:
        if self._disk.journal is not None:
            self._disk.journal.write(record)

    def rewrite(self, records: list[Message]) -> None:
        if self._disk.journal is not None:
            self._disk.journal.rewrite(records)

    def sync(self) -> bool:
        commit = self._disk.commit
        if self._disk.journal is None or commit is None:
            return True
        commit.then(self._synced)
        return False

    def _synced(self) -> None:
        process = self._loop.process
        if process is not None and process.environment is self:
            process.synced()

    def subscribed(self, topic: int) -> None:
        self._loop.membership_began(topic)

    def unsubscribed(self, topic: int) -> None:
        self._loop.membership_ended(topic)

    def ordering_epoch(self, epoch: int, members: list[int], councils: list[list[int]]) -> None:
        self._loop.began_epoch(epoch, members, councils)

    def keeps_up(self, topic: int) -> bool:
        return self._loop.keeps_up(topic)

    def watch(self, peer: int) -> None:
        self._cluster.watch(peer)

    def silence_ticks(self, peer: int) -> int:
        return self._cluster.silence_us(peer)

    def unwatch(self, peer: int) -> None:
        self._cluster.unwatch(peer)

    def set_timer(self, delay: int, name: int) -> int:
        self._last_timer += 1
        handle = self._last_timer
        self._timers[handle] = asyncio.get_running_loop().call_later(delay / 1_000_000, self._expire, handle, name)
        return handle

    def cancel_timer(self, handle: int) -> None:
        timer = self._timers.pop(handle, None)
        if timer is not None:
            timer.cancel()

    def random(self) -> RandomStream:
        return self._random

    def _expire(self, handle: int, name: int) -> None:
        del self._timers[handle]
        self._loop.expired(name)

    def cancel_all_timers(self) -> None:
        """The node goes."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
