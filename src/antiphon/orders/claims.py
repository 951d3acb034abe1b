"""Claims to keys, which one node grants, one after the other for each key.

One node, whichever it is, keeps the claims of a topic in the queues of their keys
(:mod:`antiphon.orders.lock_queue`). A granted claim holds its keys alone, until it is released. Grants are numbered: of
two claims to the same key the one with the lower number was granted, and released, first.

Every claimant knows its own claims and which were granted. So another lock manager can take over when all have told it.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.kernel.errors import ProtocolError
from antiphon.kernel.message import publication_key
from antiphon.orders.lock_queue import NOT_GRANTED, LockQueue, LockRequest


@final
class Claims:
    """The claims about one topic. Its grants have places above ``place``."""

    def __init__(self, place: i64 = NOT_GRANTED) -> None:
        self._place: i64 = place
        self._locks: Final = LockQueue()

    def __len__(self) -> int:
        return len(self._locks.requests)

    def add(self, claim: LockRequest) -> list[LockRequest]:
        """A claim comes; the answer is what is granted now."""
        self._check_new(claim)
        self._locks.add(claim)
        return self._granted([claim])

    def resume(self, claim: LockRequest) -> None:
        """Take over a claim that an earlier lock manager has granted; before others come."""
        assert claim.place != NOT_GRANTED, "what was granted has a place"
        self._check_new(claim)
        self._locks.resume(claim)

    def _check_new(self, claim: LockRequest) -> None:
        if publication_key(claim.source, claim.sequence) in self._locks.requests:
            raise ProtocolError(f"node {claim.source} claims its publication {claim.sequence} twice")

    def release(self, source: i64, sequence: i64) -> list[LockRequest]:
        """A claim that was granted is used; the answer is what is granted now."""
        claim = self._locks.requests.get(publication_key(source, sequence))
        if claim is None or claim.place == NOT_GRANTED:
            raise ProtocolError(f"node {source} releases its publication {sequence}, which was not granted")
        self._locks.remove(claim)
        first: list[LockRequest] = []
        for key in claim.keys:
            waiting = self._locks.first(key)
            if waiting is not None:
                first.append(waiting)
        return self._granted(first)

    def is_granted(self, source: i64, sequence: i64) -> bool:
        """Whether a claim stands and was granted."""
        claim = self._locks.requests.get(publication_key(source, sequence))
        return claim is not None and claim.place != NOT_GRANTED

    def drop(self, source: i64) -> list[LockRequest]:
        """Drop all claims of a node; return the claims that are granted now."""
        for claim in [claim for claim in self._locks.requests.values() if claim.source == source]:
            self._locks.remove(claim)
        return self._granted(self._locks.first_of_all())

    def _granted(self, candidates: list[LockRequest]) -> list[LockRequest]:
        granted: list[LockRequest] = []
        for claim in candidates:
            if claim.place == NOT_GRANTED and self._locks.grant(claim):
                self._place += 1
                claim.place = self._place
                granted.append(claim)
        return granted

    def state(self) -> str:
        """The content as text, for those who compare states."""
        claims = [(name, claim.place, list(claim.keys)) for name, claim in self._locks.requests.items()]
        return f"{self._place} {claims}"
