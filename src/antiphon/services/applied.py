"""Which operations a replica has applied: what makes each of them count once.

An operation is named by its author and the author's number for it, which are the same at every node. The numbers are
stored with the effects, in one transaction, so after a crash the store itself says which operations it has. Operations
of one author mostly come in sequence, so an author costs a few bytes; only the authors of a transaction are written.
"""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.kernel.errors import PeerError
from antiphon.kernel.interval_set import IntervalSet

GAPS_AT_MOST: Final = 2048
"""Of one author; there is a gap where a message was lost with its node."""

AUTHORS_AT_MOST: Final = 65_536
"""When more authors are known, the one that was silent longest is forgotten. A client is another author each time that
it connects."""

AUTHOR_BYTES: Final = 8

Ranges = list[int]
"""The numbers of one author: up to the first all are applied, then where intervals beyond begin and end."""


class AuthorRow(msgspec.Struct, frozen=True, array_like=True):
    """The stored row of an author: when it was last heard of, in operations of all authors, and its numbers."""

    heard: int
    ranges: Ranges


encode: Final = msgspec.msgpack.Encoder().encode
rows: Final = msgspec.msgpack.Decoder(AuthorRow)


class AppliedOperations:
    """The operations that are part of a state, by author and number.

    ``take_changes`` gives what has to be stored of it with the next transaction: by author, None if it is forgotten.
    """

    def __init__(self, stored: dict[int, bytes] | None = None) -> None:
        self.count = 0
        """How many operations were applied, since there is the state."""
        self.has_forgotten = False
        """Whether an author was forgotten: what it had published would not be recognised if it came again."""
        self._authors: dict[int, IntervalSet] = {}
        self._heard: dict[int, int] = {}
        self._changed: dict[int, bool] = {}
        try:
            found = {author: rows.decode(row) for author, row in (stored or {}).items()}
        except msgspec.MsgspecError as error:
            raise PeerError(
                f"the store of this replica is damaged: {error}; remove it, and the replica begins anew"
            ) from error
        for author, row in sorted(found.items(), key=lambda each: (each[1].heard, each[0])):
            self._authors[author] = numbers_of(row.ranges)
            self._heard[author] = row.heard
            self.count = max(self.count, row.heard)

    @property
    def author_count(self) -> int:
        """How many authors are known."""
        return len(self._authors)

    def has(self, author: int, number: int) -> bool:
        """Whether an operation is applied."""
        numbers = self._authors.get(author)
        return numbers is not None and bool(numbers.has(number))

    def has_all(self, wanted: dict[int, int]) -> bool:
        """Whether these operations are applied: of each author the last one."""
        return all(self.has(author, number) for author, number in wanted.items())

    def add(self, author: int, number: int) -> bool:
        """An operation is applied; whether it is new."""
        numbers = self._authors.pop(author, None)
        if numbers is None:
            numbers = IntervalSet(0, GAPS_AT_MOST)
        # The author that was heard last is the last one.
        self._authors[author] = numbers
        is_new = bool(numbers.add(number))
        self.count += is_new
        self._heard[author] = self.count
        self._changed[author] = True
        if len(self._authors) > AUTHORS_AT_MOST:
            self._forget(next(iter(self._authors)))
        return is_new

    def _forget(self, author: int) -> None:
        del self._authors[author]
        del self._heard[author]
        self._changed[author] = False
        self.has_forgotten = True

    def take_changes(self) -> dict[int, bytes | None]:
        """The rows that changed since the last call, by author; None for an author that was forgotten."""
        changed, self._changed = self._changed, {}
        return {author: self._row(author) if is_there else None for author, is_there in changed.items()}

    def _row(self, author: int) -> bytes:
        return encode(AuthorRow(self._heard[author], ranges_of(self._authors[author])))

    def ranges(self) -> dict[int, Ranges]:
        """All of it, to be sent or to be compared."""
        return {author: ranges_of(numbers) for author, numbers in self._authors.items()}

    def heard_since(self, count: int) -> dict[int, int]:
        """The last number of each author of which something was applied after so many operations."""
        found: dict[int, int] = {}
        for author in reversed(self._authors):
            if self._heard[author] <= count:
                break
            found[author] = int(self._authors[author].highest())
        return found


def numbers_of(ranges: Ranges) -> IntervalSet:
    """The numbers of one author."""
    numbers = IntervalSet(ranges[0] if ranges else 0, GAPS_AT_MOST)
    for first, end in zip(ranges[1::2], ranges[2::2], strict=False):
        numbers.add_range(first, end - 1)
    return numbers


def ranges_of(numbers: IntervalSet) -> Ranges:
    """The same as plain numbers."""
    highest = numbers.highest()
    if not numbers.has_gaps():
        return [int(highest)]
    inside = numbers.inside(numbers.complete + 1, highest)
    return [int(numbers.complete), *(int(bound) for first, last in inside for bound in (first, last + 1))]
