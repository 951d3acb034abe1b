"""Locks on keys: each key has a queue, and a request is granted when it is first in the queues of all its keys.

A request enters the queues of all its keys at once, so requests enter in one order and none waits in a circle. Requests
without a common key never meet. An exclusive request holds its keys alone; shared ones hold them together.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.kernel.message import publication_key

NOT_GRANTED: Final[i64] = 0
"""Places are counted from 1."""


@final
class LockRequest:
    """A publication that is to be ordered among others about its keys; ``place`` numbers grants, where they are."""

    def __init__(
        self, source: i64, sequence: i64, keys: vec[i64], place: i64 = NOT_GRANTED, is_shared: bool = False
    ) -> None:
        self.source: Final[i64] = source
        self.sequence: Final[i64] = sequence
        self.keys: Final[vec[i64]] = keys
        self.is_shared: Final[bool] = is_shared
        self.place: i64 = place
        self.holds: bool = False


@final
class KeyQueue:
    """The requests that hold one key, and those that wait for it."""

    def __init__(self) -> None:
        self.exclusive: i64 = 0
        self.shared: i64 = 0
        self.waiting: Final[deque[LockRequest]] = deque()

    def admits(self, request: LockRequest) -> bool:
        """Whether a request is the first that waits, and those that hold the key let it in."""
        if not self.waiting or self.waiting[0] is not request or self.exclusive > 0:
            return False
        return self.shared == 0 or request.is_shared

    def hold(self, request: LockRequest, by: i64) -> None:
        """Note that a request holds the key from now on (1), or does not any more (-1)."""
        if request.is_shared:
            self.shared += by
        else:
            self.exclusive += by

    def is_free(self) -> bool:
        """Whether nothing holds the key or waits for it."""
        return self.exclusive == 0 and self.shared == 0 and not self.waiting


@final
class LockQueue:
    """The requests about all keys of one topic, by the key of their publication."""

    def __init__(self) -> None:
        # In the order in which they came.
        self.requests: Final[dict[i64, LockRequest]] = {}
        self._of_key: Final[dict[i64, KeyQueue]] = {}

    def _queue(self, key: i64) -> KeyQueue:
        queue = self._of_key.get(key)
        if queue is None:
            queue = KeyQueue()
            self._of_key[key] = queue
        return queue

    def add(self, request: LockRequest) -> None:
        """Let a request wait for all its keys."""
        self.requests[publication_key(request.source, request.sequence)] = request
        for key in request.keys:
            self._queue(key).waiting.append(request)

    def resume(self, request: LockRequest) -> None:
        """Take over a request that holds its keys already; before others come."""
        self.requests[publication_key(request.source, request.sequence)] = request
        self._hold(request)

    def _hold(self, request: LockRequest) -> None:
        request.holds = True
        for key in request.keys:
            self._queue(key).hold(request, 1)

    def grant(self, request: LockRequest) -> bool:
        """Let a request hold its keys if it may now; whether it does."""
        for key in request.keys:
            if not self._of_key[key].admits(request):
                return False
        for key in request.keys:
            self._of_key[key].waiting.popleft()
        self._hold(request)
        return True

    def remove(self, request: LockRequest) -> None:
        """Forget a request, whether it waits or holds its keys."""
        del self.requests[publication_key(request.source, request.sequence)]
        for key in request.keys:
            queue = self._of_key[key]
            if request.holds:
                queue.hold(request, -1)
            else:
                queue.waiting.remove(request)
            if queue.is_free():
                del self._of_key[key]

    def first(self, key: i64) -> LockRequest | None:
        """The first request that waits for a key."""
        queue = self._of_key.get(key)
        return queue.waiting[0] if queue is not None and queue.waiting else None

    def first_of_all(self) -> list[LockRequest]:
        """The first request that waits for each key, one after the other as keys came to be wanted."""
        return [queue.waiting[0] for queue in self._of_key.values() if queue.waiting]
