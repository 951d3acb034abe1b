"""Who may order something about which keys: claims in one line per key, granted when they are first in all their lines.

One node, whichever it is, keeps the claims of a topic. A claim enters the lines of all its keys at once, so claims
enter in one order and nobody waits in a circle. It is granted when it is first in each of its lines, and leaves them
when it is released. Claims without a common key never meet. Grants are numbered: of two claims to the same key the
one with the lower number was granted, and released, first.

Every claimant knows its own claims and which were granted. So another keeper can take over when all have told it.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.kernel.errors import ProtocolError
from antiphon.kernel.message import publication_key

NOT_GRANTED: Final[i64] = 0
"""Places are counted from 1."""


@final
class Wish:
    """A publication that is to be ordered among others about its keys."""

    def __init__(self, source: i64, sequence: i64, keys: vec[i64], place: i64 = NOT_GRANTED) -> None:
        self.source: Final[i64] = source
        self.sequence: Final[i64] = sequence
        self.keys: Final[vec[i64]] = keys
        self.place: i64 = place


@final
class Claims:
    """The claims about one topic. Its grants have places above ``place``."""

    def __init__(self, place: i64 = NOT_GRANTED) -> None:
        self._place: i64 = place
        # In the order in which they came.
        self._all: dict[i64, Wish] = {}
        self._line_of: dict[i64, deque[Wish]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, claim: Wish) -> list[Wish]:
        """A claim comes; the answer is what is granted now."""
        self._stand_in_line(claim)
        return self._granted([claim])

    def resume(self, claim: Wish) -> None:
        """Take over a claim that an earlier keeper has granted; before others come."""
        assert claim.place != NOT_GRANTED, "what was granted has a place"
        self._stand_in_line(claim)

    def _stand_in_line(self, claim: Wish) -> None:
        name = publication_key(claim.source, claim.sequence)
        if name in self._all:
            raise ProtocolError(f"node {claim.source} claims its publication {claim.sequence} twice")
        self._all[name] = claim
        for key in claim.keys:
            line = self._line_of.get(key)
            if line is None:
                self._line_of[key] = deque([claim])
            else:
                line.append(claim)

    def release(self, source: i64, sequence: i64) -> list[Wish]:
        """A claim that was granted is used; the answer is what is granted now."""
        claim = self._all.pop(publication_key(source, sequence), None)
        if claim is None or claim.place == NOT_GRANTED:
            raise ProtocolError(f"node {source} releases its publication {sequence}, which was not granted")
        first: list[Wish] = []
        for key in claim.keys:
            line = self._line_of[key]
            line.popleft()
            if len(line) == 0:
                del self._line_of[key]
            else:
                first.append(line[0])
        return self._granted(first)

    def is_granted(self, source: i64, sequence: i64) -> bool:
        """Whether a claim stands and was granted."""
        claim = self._all.get(publication_key(source, sequence))
        return claim is not None and claim.place != NOT_GRANTED

    def drop(self, source: i64) -> list[Wish]:
        """Whatever somebody has claimed does not stand any more; the answer is what is granted now."""
        for claim in [claim for claim in self._all.values() if claim.source == source]:
            del self._all[publication_key(source, claim.sequence)]
            for key in claim.keys:
                line = self._line_of[key]
                line.remove(claim)
                if len(line) == 0:
                    del self._line_of[key]
        return self._granted([line[0] for line in self._line_of.values()])

    def _granted(self, candidates: list[Wish]) -> list[Wish]:
        granted: list[Wish] = []
        for claim in candidates:
            if claim.place == NOT_GRANTED and self._is_first(claim):
                self._place += 1
                claim.place = self._place
                granted.append(claim)
        return granted

    def _is_first(self, claim: Wish) -> bool:
        return all(self._line_of[key][0] is claim for key in claim.keys)

    def state(self) -> str:
        """The content as text, for those who compare states."""
        claims = [(name, claim.place, list(claim.keys)) for name, claim in self._all.items()]
        return f"{self._place} {claims}"
