"""Moves a stream to the nodes that are to keep it: its leader changes the replicas step by step.

A node that is to keep the stream is a learner first: it gets everything and does not count. When it has the history it
becomes a voter. Then a voter that is not to keep the stream any more goes, if those that stay have everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from antiphon.streams.entries import ReplicaSet
from antiphon.streams.leaders.leading import Leading
from antiphon.streams.replica import Replica

LOOK_US: Final = 200_000
"""How often a leader looks whether the next step is possible."""

LAG_AT_MOST: Final = 256
"""A learner becomes a voter when it lacks no more entries than this."""


class MovedStream(Protocol):
    """The leader of the stream that is moved."""

    def keepers(self) -> Sequence[int]:
        """The nodes that are to keep the stream."""

    def after(self, delay_us: int, call: Callable[[], object]) -> None:
        """Call something after a while."""


class Reassignment:
    """Moves one stream while this replica leads it."""

    def __init__(self, stream: MovedStream) -> None:
        self._stream = stream
        self._replica: Replica | None = None
        # Each term of this replica has timers of its own.
        self._term = 0

    def opened(self, replica: Replica) -> None:
        """This replica leads, and knows everything that is settled."""
        self._term += 1
        self._replica = replica
        self._look(self._term)

    def resigned(self) -> None:
        """This replica leads no more."""
        self._replica = None

    def _look(self, term: int) -> None:
        if self._replica is not None and term == self._term:
            self._stream.after(LOOK_US, lambda: self._look(term))
            self.advance()

    def advance(self) -> None:
        """Do the next step, if it is possible."""
        replica = self._replica
        if replica is None or replica.leading is None or not replica.log.is_set_settled:
            return
        changed = self._next(replica.log.replicas, replica.leading, replica.me)
        if changed is not None:
            replica.change_replicas(changed)

    def _next(self, now: ReplicaSet, leading: Leading, me: int) -> ReplicaSet | None:
        wanted = self._stream.keepers()
        if not leading.is_set_known and set(wanted) != set(now.voters):
            # A node that comes later does not know the first replicas.
            return now
        newcomers = tuple(each for each in wanted if each not in now.voters)
        if set(newcomers) != set(now.learners):
            return ReplicaSet(now.voters, newcomers)
        for each in newcomers:
            if leading.is_near(each, LAG_AT_MOST):
                return ReplicaSet((*now.voters, each), tuple(other for other in newcomers if other != each))
        surplus = [each for each in now.voters if each not in wanted]
        if not surplus or (newcomers and len(now.voters) <= len(wanted)):
            return None
        # The leader goes last: then another one is elected.
        gone = min(surplus, key=lambda each: (each == me, each))
        rest = ReplicaSet(tuple(each for each in now.voters if each != gone), now.learners)
        return rest if sum(leading.has_all(each) for each in rest.voters) >= rest.majority else None
