"""Publishers that wait until all replicas of a stream have their messages (``acks="all"``)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import msgspec

from antiphon.streams.requests import PositionFound, Redirect, Response, StreamFailure
from antiphon.streams.service.live_replica import LiveReplica
from antiphon.streams.service.service import StreamService

LOOK_US: Final = 5000
"""How often it looks whether the replicas have what publishers wait for."""


class DiskWait(NamedTuple):
    """A publisher that waits; ``placed`` is its answer, but for the number of disks."""

    placed: PositionFound
    entry: int
    until_us: int
    respond: Callable[[Response], None]


class DiskWaits:
    """The waiting publishers of one node, by stream."""

    def __init__(self, service: StreamService) -> None:
        self._service = service
        self._waiting: dict[int, list[DiskWait]] = {}

    def add(self, replica: LiveReplica, wait: DiskWait) -> None:
        """A publisher waits for all replicas of a stream that is led here."""
        waiting = self._waiting.get(replica.stream)
        if waiting is None:
            self._waiting[replica.stream] = [wait]
            self._look(replica)
        else:
            waiting.append(wait)

    def _look(self, replica: LiveReplica) -> None:
        waiting = self._waiting.pop(replica.stream)
        left = [each for each in waiting if not self._is_answered(replica, each)]
        if left:
            self._waiting[replica.stream] = left
            self._service.after(LOOK_US, partial(self._look, replica))

    def _is_answered(self, replica: LiveReplica, wait: DiskWait) -> bool:
        leading, info = replica.replica.leading, replica.info
        if leading is None or info is None:
            wait.respond(Redirect(self._service.whom_to_ask(replica.stream), "the history has another leader"))
            return True
        disks, wanted = leading.disks(wait.entry), max(info.policy.replicas, len(replica.replica.replicas.voters))
        if disks >= wanted:
            wait.respond(msgspec.structs.replace(wait.placed, disks=disks))
        elif self._service.now_us() >= wait.until_us:
            why = (
                f"the message is at position {wait.placed.position} of {replica.topic!r}, on {disks} of {wanted} disks"
            )
            wait.respond(StreamFailure(f"{why}; replicas that are away or slow get it later"))
        else:
            return False
        return True
