"""The queues in which total publications wait for their keys at the root."""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from antiphon.kernel.message import TOTAL, Keyed, publication_key
from antiphon.orders.lock_queue import LockQueue, LockRequest


@final
class Sequencer:
    """The root's queues for one topic: which publications may be locked now, and in which order they are completed.

    A total publication holds its keys alone, others hold theirs together. Publications of one source are locked in the
    order of their numbers. So a publication stands in the queues of its keys only when all before it from its source
    are locked: none waits there for keys that are not its own. All are completed in the order of their locks.
    """

    def __init__(self) -> None:
        self._locks: Final = LockQueue()
        # All that wait or are locked, by key.
        self._known: Final[dict[i64, Keyed]] = {}
        self._waiting_of: Final[dict[i64, deque[Keyed]]] = {}
        self._locked: Final[deque[Keyed]] = deque()

    def knows(self, name: i64) -> bool:
        """Whether a publication is locked or waits."""
        return name in self._known

    def resume(self, publication: Keyed) -> None:
        """Take over a publication that an earlier root has locked, in the order in which they are to be completed."""
        self._known[publication_key(publication.source, publication.sequence)] = publication
        self._locked.append(publication)
        self._locks.resume(request_of(publication))

    def add(self, publication: Keyed) -> None:
        """Let a publication wait behind those of its source, and then behind those about the same keys."""
        self._known[publication_key(publication.source, publication.sequence)] = publication
        waiting = self._waiting_of.setdefault(publication.source, deque())
        waiting.append(publication)
        if len(waiting) == 1:
            self._locks.add(request_of(publication))

    def take_ready(self, key: i64) -> Keyed | None:
        """The first that waits for a key, if it may be locked now; it counts as locked from then on."""
        request = self._locks.first(key)
        if request is None or not self._locks.grant(request):
            return None
        first = self._known[publication_key(request.source, request.sequence)]
        self._locked.append(first)
        waiting = self._waiting_of[first.source]
        waiting.popleft()
        if waiting:
            self._locks.add(request_of(waiting[0]))
        else:
            del self._waiting_of[first.source]
        return first

    def next_waiting(self, source: i64) -> Keyed | None:
        """The first publication of a source that is not locked."""
        waiting = self._waiting_of.get(source)
        return waiting[0] if waiting else None

    def waiting(self) -> list[Keyed]:
        """The first publication of each source that is not locked."""
        return [waiting[0] for waiting in self._waiting_of.values()]

    def locked(self) -> list[Keyed]:
        """The publications that are locked, in the order in which they are to be completed."""
        return list(self._locked)

    def next_locked(self) -> Keyed | None:
        """The publication that is to be completed next."""
        return self._locked[0] if self._locked else None

    def complete(self, publication: Keyed) -> bool:
        """Forget a publication if it is the one that is to be completed next; the answer is whether it was."""
        if not self._locked:
            return False
        first = self._locked[0]
        if first.source != publication.source or first.sequence != publication.sequence:
            return False
        self._locked.popleft()
        name = publication_key(first.source, first.sequence)
        self._known.pop(name, None)
        self._locks.remove(self._locks.requests[name])
        return True


def request_of(publication: Keyed) -> LockRequest:
    """The lock that a publication needs."""
    return LockRequest(publication.source, publication.sequence, publication.keys, is_shared=publication.order != TOTAL)
