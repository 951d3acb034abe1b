"""The queues in which total publications wait for their keys at the root."""

from __future__ import annotations

from collections import deque
from typing import final

from mypy_extensions import i64

from antiphon.kernel.message import TOTAL, Keyed, publication_key


@final
class KeyQueue:
    """Who holds a key at the root, and who waits for it: one total publication, or any number of others."""

    def __init__(self) -> None:
        self.totals: i64 = 0
        self.others: i64 = 0
        self.waiting: deque[Keyed] = deque()

    def admits(self, publication: Keyed) -> bool:
        """Whether a publication is the first that waits, and those who hold the key let it in."""
        if not self.waiting or self.waiting[0] is not publication or self.totals > 0:
            return False
        return self.others == 0 or publication.order != TOTAL

    def hold(self, publication: Keyed, by: i64) -> None:
        """Note that a publication holds the key from now on (1), or does not any more (-1)."""
        if publication.order == TOTAL:
            self.totals += by
        else:
            self.others += by

    def is_free(self) -> bool:
        """Whether nobody holds the key or waits for it."""
        return self.totals == 0 and self.others == 0 and not self.waiting


@final
class Sequencer:
    """The root's queues for one topic: which publications may be locked now, and in which order they are completed.

    Those of one source are locked in the order of their numbers. So a publication stands in the queues of its keys only
    when all before it from its source are locked: nobody waits there for keys that are not its own. All are completed
    in the order in which they were locked.
    """

    def __init__(self) -> None:
        self._of_key: dict[i64, KeyQueue] = {}
        self._waiting_of: dict[i64, deque[Keyed]] = {}
        self._locked: deque[Keyed] = deque()
        self._known: set[i64] = set()

    def knows(self, name: i64) -> bool:
        """Whether a publication is locked or waits."""
        return name in self._known

    def resume(self, publication: Keyed) -> None:
        """Take over a publication that an earlier root has locked, in the order in which they are to be completed."""
        self._known.add(publication_key(publication.source, publication.sequence))
        self._locked.append(publication)
        for key in publication.keys:
            self._queue(key).hold(publication, 1)

    def add(self, publication: Keyed) -> None:
        """Let a publication wait behind those of its source, and then behind those about the same keys."""
        self._known.add(publication_key(publication.source, publication.sequence))
        waiting = self._waiting_of.setdefault(publication.source, deque())
        waiting.append(publication)
        if len(waiting) == 1:
            self._stand_in_line(publication)

    def _queue(self, key: i64) -> KeyQueue:
        queue = self._of_key.get(key)
        if queue is None:
            queue = KeyQueue()
            self._of_key[key] = queue
        return queue

    def _stand_in_line(self, publication: Keyed) -> None:
        for key in publication.keys:
            self._queue(key).waiting.append(publication)

    def take_ready(self, key: i64) -> Keyed | None:
        """The first that waits for a key, if it may be locked now; it counts as locked from then on."""
        queue = self._of_key.get(key)
        if queue is None or not queue.waiting:
            return None
        first = queue.waiting[0]
        if not all(self._of_key[other].admits(first) for other in first.keys):
            return None
        for other in first.keys:
            line = self._of_key[other]
            line.waiting.popleft()
            line.hold(first, 1)
        self._locked.append(first)
        waiting = self._waiting_of[first.source]
        waiting.popleft()
        if waiting:
            self._stand_in_line(waiting[0])
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
        self._known.discard(publication_key(first.source, first.sequence))
        for key in first.keys:
            queue = self._of_key[key]
            queue.hold(first, -1)
            if queue.is_free():
                del self._of_key[key]
        return True
