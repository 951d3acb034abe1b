"""The results of operations, stored with their effects until their callers have them.

An operation is named for its caller by the caller and the caller's number for it. If the programs of all replicas end
before the caller has its result, the store has it; and a call that is made again is answered with the result of the
first time. A caller says with each call up to which number it needs no result any more. Callers that never say
so are bounded: by results and bytes of all of them, and by results of each.

The results of one transaction are one row of the store. A row goes when nobody needs a result in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from antiphon.kernel.errors import PeerError

RESULTS_AT_MOST: Final = 65_536
BYTES_AT_MOST: Final = 32 << 20
"""Of all callers; the oldest transaction's results go first."""

CALLER_RESULTS_AT_MOST: Final = 4096
"""Of one caller; its oldest go first."""

CALLERS_AT_MOST: Final = 65_536
RESULT_COST_BYTES: Final = 32
"""A result costs so much more than its bytes."""

StoredResult = tuple[int, int, bytes]
"""The caller, its number for the operation, and the bytes of the result."""

encode: Final = msgspec.msgpack.Encoder().encode
rows: Final = msgspec.msgpack.Decoder(list[StoredResult])


class KeptResults:
    """The results that a replica keeps. ``take_changes`` gives what has to be stored of it with the next transaction.

    A transaction has a number, which is also that of its row. ``ask`` shows what is committed, ``find`` everything.
    """

    def __init__(self, stored: Iterable[tuple[int, bytes]] = ()) -> None:
        self._results: dict[int, dict[int, tuple[bytes, int]]] = {}
        """By caller and number: the result and its transaction."""
        # Up to which number each caller needs no result.
        self._floors: dict[int, int] = {}
        # By transaction: the names of its results, and how many of them somebody may need.
        self._names: dict[int, list[tuple[int, int]]] = {}
        self._needed: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._gone: dict[int, None] = {}
        self._transaction = 1
        self._count = self._bytes = 0
        for number, row in sorted(stored):
            self._transaction = number
            try:
                for each in rows.decode(row):
                    self._keep(*each)
            except msgspec.MsgspecError as error:
                raise PeerError(
                    f"the store of this replica is damaged: {error}; remove it, and the replica begins anew"
                ) from error
            self._transaction = number + 1
        self._uncommitted = self._transaction
        self._bound()

    def __len__(self) -> int:
        return self._count

    def add(self, caller: int, number: int, payload: bytes) -> None:
        """An operation of the open transaction has its result."""
        if number <= self._floors.get(caller, 0):
            return
        self._keep(caller, number, payload)
        mine = self._results[caller]
        if len(mine) > CALLER_RESULTS_AT_MOST:
            self._drop(caller, next(iter(mine)))
        self._bound()

    def _keep(self, caller: int, number: int, payload: bytes) -> None:
        transaction = self._transaction
        self._results.setdefault(caller, {})[number] = (payload, transaction)
        size = len(payload) + RESULT_COST_BYTES
        self._names.setdefault(transaction, []).append((caller, number))
        self._needed[transaction] = self._needed.get(transaction, 0) + 1
        self._sizes[transaction] = self._sizes.get(transaction, 0) + size
        self._count += 1
        self._bytes += size

    def _bound(self) -> None:
        while self._count > RESULTS_AT_MOST or (self._bytes > BYTES_AT_MOST and len(self._names) > 1):
            oldest = next(iter(self._names))
            for caller, number in list(self._names[oldest]):
                self._drop(caller, number, oldest)

    def free(self, caller: int, upto: int) -> None:
        """A caller needs the results of its operations up to this number no more, and will not ask for them again."""
        floor = self._floors.pop(caller, 0)
        self._floors[caller] = max(floor, upto)
        if len(self._floors) > CALLERS_AT_MOST:
            del self._floors[next(iter(self._floors))]
        mine = self._results.get(caller)
        if upto <= floor or mine is None:
            return
        few = upto - floor <= len(mine)
        for number in range(floor + 1, upto + 1) if few else [each for each in mine if each <= upto]:
            self._drop(caller, number)

    def _drop(self, caller: int, number: int, within: int = 0) -> None:
        """Nobody needs a result; ``within`` is its transaction if that matters."""
        mine = self._results.get(caller, {})
        if number not in mine or (within and mine[number][1] != within):
            return
        _, transaction = mine.pop(number)
        if not mine:
            del self._results[caller]
        self._count -= 1
        self._needed[transaction] -= 1
        if not self._needed[transaction]:
            # Its row takes its place in the store until then.
            self._bytes -= self._sizes.pop(transaction)
            del self._names[transaction], self._needed[transaction]
            if transaction != self._transaction:
                self._gone[transaction] = None

    def find(self, caller: int, number: int) -> bytes | None:
        """The result of an operation, also of the open transaction."""
        found = self._results.get(caller, {}).get(number)
        return None if found is None else found[0]

    def ask(self, caller: int, number: int) -> bytes | None:
        """The result of an operation, if it is committed."""
        found = self._results.get(caller, {}).get(number)
        return found[0] if found is not None and found[1] < self._uncommitted else None

    def take_changes(self) -> dict[int, bytes | None]:
        """The rows that changed since the last call, by number; None for one that goes. Later ones begin a new row."""
        changes: dict[int, bytes | None] = dict.fromkeys(self._gone)
        self._gone.clear()
        number = self._transaction
        if number in self._names:
            kept = [(*name, payload) for name in self._names[number] if (payload := self.find(*name)) is not None]
            changes[number] = encode(kept)
            self._transaction += 1
        return changes

    def committed(self) -> None:
        """Everything that was taken is in the store."""
        self._uncommitted = self._transaction
