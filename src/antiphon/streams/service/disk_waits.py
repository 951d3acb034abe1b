"""Publishers that wait until all replicas of a stream have their messages (``acks="all"``)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from typing import Final

import msgspec

from antiphon.streams.requests import PositionFound, Redirect, Response, StreamFailure
from antiphon.streams.service.live_replica import LiveReplica
from antiphon.streams.service.service import StreamService

LOOK_US: Final = 5000
"""How often it looks whether the replicas have what publishers wait for."""


class DiskWait:
    """A publisher that waits; ``entry`` is the last one with its messages, ``placed`` its answer but for the disks."""

    def __init__(self, placed: PositionFound, entry: int, until_us: int, respond: Callable[[Response], None]) -> None:
        self.placed = placed
        self.entry = entry
        self.until_us = until_us
        self.respond = respond
        self.is_over = False

    def end(self) -> None:
        """Nobody waits any more."""
        self.is_over = True


class WaitingForDisks:
    """The waiting publishers of one stream. A look costs no more than those who get an answer."""

    def __init__(self) -> None:
        self._last = 0
        self._by_entry: list[tuple[int, int, DiskWait]] = []
        self._by_time: list[tuple[int, int, DiskWait]] = []

    def __len__(self) -> int:
        return len(self._by_entry)

    def add(self, wait: DiskWait) -> None:
        """One more waits."""
        self._last += 1
        heappush(self._by_entry, (wait.entry, self._last, wait))
        heappush(self._by_time, (wait.until_us, self._last, wait))

    def first(self) -> DiskWait | None:
        """The wait for the earliest entry: disks that lack it lack all later ones."""
        while self._by_entry and self._by_entry[0][2].is_over:
            heappop(self._by_entry)
        return self._by_entry[0][2] if self._by_entry else None

    def late(self, now_us: int) -> DiskWait | None:
        """A wait whose time is over."""
        while self._by_time and (self._by_time[0][2].is_over or self._by_time[0][0] <= now_us):
            wait = heappop(self._by_time)[2]
            if not wait.is_over:
                return wait
        return None


class DiskWaits:
    """The waiting publishers of one node, by stream."""

    def __init__(self, service: StreamService) -> None:
        self._service = service
        self._waiting: dict[int, WaitingForDisks] = {}

    def add(self, replica: LiveReplica, wait: DiskWait) -> None:
        """A publisher waits for all replicas of a stream that is led here."""
        waiting = self._waiting.get(replica.stream)
        if waiting is None:
            waiting = self._waiting[replica.stream] = WaitingForDisks()
            waiting.add(wait)
            self._look(replica)
        else:
            waiting.add(wait)

    def _look(self, replica: LiveReplica) -> None:
        waiting = self._waiting[replica.stream]
        while (wait := waiting.first()) is not None and self._is_answered(replica, wait):
            wait.is_over = True
        while (wait := waiting.late(self._service.now_us())) is not None:
            wait.is_over = True
            self._refuse(replica, wait)
        if waiting.first() is None:
            del self._waiting[replica.stream]
        else:
            self._service.after(LOOK_US, partial(self._look, replica))

    def _is_answered(self, replica: LiveReplica, wait: DiskWait) -> bool:
        leading, info = replica.replica.leading, replica.info
        if leading is None or info is None:
            wait.respond(Redirect(self._service.whom_to_ask(replica.stream), "the history has another leader"))
            return True
        disks = leading.disks(wait.entry)
        if disks < self._wanted(replica):
            return False
        wait.respond(msgspec.structs.replace(wait.placed, disks=disks))
        return True

    @staticmethod
    def _wanted(replica: LiveReplica) -> int:
        assert replica.info is not None, "a topic is known by it"
        return max(replica.info.policy.replicas, len(replica.replica.replicas.voters))

    def _refuse(self, replica: LiveReplica, wait: DiskWait) -> None:
        leading = replica.replica.leading
        disks = 0 if leading is None else leading.disks(wait.entry)
        where = f"at position {wait.placed.position} of {replica.topic!r}, on {disks} of {self._wanted(replica)} disks"
        wait.respond(StreamFailure(f"the message is {where}; replicas that are away or slow get it later"))
