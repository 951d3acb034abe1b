"""The actions of a process on the world at a live node: the node's clock, links, timers and application."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.message import ProtocolMessage, Publication
from antiphon.kernel.process import Environment, LogReader
from antiphon.kernel.randomness import RandomStream
from antiphon.node.loop import NodeLoop
from antiphon.storage.disk import Disk

RETRY_TICKS: Final = 1_000_000
"""After how long a timer is run again that has failed."""


@mypyc_attr(allow_interpreted_subclasses=True)
class LiveEnvironment(Environment):
    """Ticks are microseconds of the monotonic clock."""

    def __init__(self, identifier: i64, loop: NodeLoop, disk: Disk, seed: i64) -> None:
        super().__init__(identifier)
        self._loop = loop
        self._log = loop.log
        self._cluster = loop.cluster
        self._disk = disk
        self._random = RandomStream(seed)
        self._timers: dict[int, asyncio.TimerHandle] = {}
        # The name of the timer that expires, until the process sets it again.
        self._expiring: int | None = None
        self._last_timer = 0

    def now(self) -> i64:
        return time.monotonic_ns() // 1000

    def shared_time(self) -> i64:
        return self._loop.clock_us()

    def send(self, destination: i64, message: ProtocolMessage) -> None:
        self._loop.transmit(destination, message)

    def deliver(self, publication: Publication) -> None:
        self._loop.delivered(publication)

    def lost(self, topic: i64, source: i64, sequence: i64, is_late: bool = False) -> None:
        self._loop.lost(topic, source, sequence, is_late)

    def log_reader(self, topic: i64) -> LogReader | None:
        return self._log.log_reader(topic)

    def was_logged(self, topic: i64, source: i64, sequence: i64) -> bool:
        return self._log.was_logged(topic, source, sequence)

    def read_logged(self, topic: i64, source: i64, sequence: i64) -> ProtocolMessage | None:
        return self._log.read_logged(topic, source, sequence)

    def restored_frontier(self, topic: i64) -> list[int] | None:
        return self._log.restored_frontier(topic)

    def journal(self) -> list[ProtocolMessage] | None:
        journal = self._disk.journal
        if journal is None:
            return None
        return journal.records() if self._cluster.is_returning else []

    def write(self, record: ProtocolMessage) -> None:
        if self._disk.journal is not None:
            self._disk.journal.write(record)

    def rewrite(self, records: list[ProtocolMessage]) -> None:
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

    def subscribed(self, topic: i64) -> None:
        self._loop.membership_began(topic)

    def unsubscribed(self, topic: i64) -> None:
        self._loop.membership_ended(topic)

    def ordering_epoch(self, epoch: i64, members: list[int], councils: list[list[int]]) -> None:
        self._loop.began_epoch(epoch, members, councils)

    def has_capacity(self, topic: i64) -> bool:
        return self._loop.has_capacity(topic)

    def watch(self, peer: i64) -> None:
        self._cluster.watch(peer)

    def silence_ticks(self, peer: i64) -> i64:
        return self._cluster.silence_us(peer)

    def unwatch(self, peer: i64) -> None:
        self._cluster.unwatch(peer)

    def set_timer(self, delay: i64, name: i64) -> i64:
        self._last_timer += 1
        handle = self._last_timer
        if name == self._expiring:
            self._expiring = None
        self._timers[handle] = asyncio.get_running_loop().call_later(delay / 1_000_000, self._expire, handle, name)
        return handle

    def cancel_timer(self, handle: i64) -> None:
        timer = self._timers.pop(handle, None)
        if timer is not None:
            timer.cancel()

    def random(self) -> RandomStream:
        return self._random

    def _expire(self, handle: i64, name: i64) -> None:
        del self._timers[handle]
        self._expiring = name
        try:
            self._loop.expired(name)
        except Exception as error:
            self._loop.unhandled(error)
            # What is done from time to time must not end because it failed once.
            if self._expiring is not None:
                self.set_timer(RETRY_TICKS, name)

    def cancel_all_timers(self) -> None:
        """The node goes."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
