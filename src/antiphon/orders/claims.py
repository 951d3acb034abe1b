"""Who may order something about which keys: claims in one line per key, granted when they are first in all their lines.

One node, whichever it is, keeps the claims of a topic. A claim enters the lines of all its keys at once, so claims
enter in one order and nobody waits in a circle. It is granted when it is first in each of its lines, and leaves them
when it is released. Claims without a common key never meet. Grants are numbered: of two claims to the same key the
one with the lower number was granted, and released, first.

All there is to know fits into a list of integers, so the keeper of the claims may hand them to another node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.kernel.errors import ProtocolError
from antiphon.kernel.message import publication_key

NOT_GRANTED: Final[i64] = 0
"""Places are counted from 1."""


@final
class Claim:
    """A publication that is to be ordered among others about its keys."""

    def __init__(self, source: i64, sequence: i64, keys: vec[i64], place: i64 = NOT_GRANTED) -> None:
        self.source: Final[i64] = source
        self.sequence: Final[i64] = sequence
        self.keys: Final[vec[i64]] = keys
        self.place: i64 = place


@final
class Claims:
    """The claims about one topic."""

    def __init__(self) -> None:
        self._place: i64 = 0
        # In the order in which they came.
        self._all: dict[i64, Claim] = {}
        self._line_of: dict[i64, deque[Claim]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, claim: Claim) -> list[Claim]:
        """A claim comes; the answer is what is granted now."""
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
        return self._granted([claim])

    def release(self, source: i64, sequence: i64) -> list[Claim]:
        """A claim that was granted is used; the answer is what is granted now."""
        claim = self._all.pop(publication_key(source, sequence), None)
        if claim is None or claim.place == NOT_GRANTED:
            raise ProtocolError(f"node {source} releases its publication {sequence}, which was not granted")
        first: list[Claim] = []
        for key in claim.keys:
            line = self._line_of[key]
            line.popleft()
            if len(line) == 0:
                del self._line_of[key]
            else:
                first.append(line[0])
        return self._granted(first)

    def _granted(self, candidates: list[Claim]) -> list[Claim]:
        granted: list[Claim] = []
        for claim in candidates:
            if claim.place == NOT_GRANTED and self._is_first(claim):
                self._place += 1
                claim.place = self._place
                granted.append(claim)
        return granted

    def _is_first(self, claim: Claim) -> bool:
        return all(self._line_of[key][0] is claim for key in claim.keys)

    def written(self) -> vec[i64]:
        """Everything as integers: the last place, and for each claim source, number, place, count of keys and keys."""
        entries = append(vec[i64](), self._place)
        for claim in self._all.values():
            for entry in (claim.source, claim.sequence, claim.place, len(claim.keys)):
                entries = append(entries, entry)
            for key in claim.keys:
                entries = append(entries, key)
        return entries

    def read(self, entries: Sequence[int]) -> None:
        """Go on from what another node had written."""
        if len(entries) == 0 or len(self._all) > 0:
            raise ProtocolError("claims that are handed over begin with the last place, and come to a new keeper")
        self._place = entries[0]
        position = 1
        while position < len(entries):
            begin = position + 4
            if begin > len(entries) or begin + entries[position + 3] > len(entries) or entries[position + 3] < 0:
                raise ProtocolError("claims that are handed over are cut off")
            source, sequence, place, count = entries[position:begin]
            claim = Claim(source, sequence, vec[i64](entries[begin : begin + count]), place)
            self._all[publication_key(claim.source, claim.sequence)] = claim
            for key in claim.keys:
                self._line_of.setdefault(key, deque()).append(claim)
            position = begin + count

    def state(self) -> str:
        """The content as text, for those who compare states."""
        return str(list(self.written()))
