"""The judge of services: what callers were told, against what the replicas have in the end.

It is told of calls, their results and the entries that replicas keep for each account, and knows nothing of replicas
and proxies. An entry is a call, its kind, and by how much it changed the balance. It checks:

* ``twice``, ``lost``, ``invented``: a replica has a call twice, lacks one that was answered, or has one that nobody
  made.
* ``result``, ``undone``: a result is not what was done; a call that raised left something behind.
* ``order``, ``parted``, ``overdrawn``: total operations on an account differ between replicas; replicas have different
  entries; a balance is below zero.
* ``sides``: a weaker operation is on two sides of a total one.
* ``mine``, ``latest``: a query did not see what it had to see.
* ``unanswered``: a call has no result after all faults.
* ``error``: something is raised that nobody expects; ``stuck``: the schedule does not end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from antiphon.audit.clients import ERROR, STUCK

TWICE: Final = "twice"
MISSING: Final = "lost"
INVENTED: Final = "invented"
RESULT: Final = "result"
UNDONE: Final = "undone"
TOTAL: Final = "order"
PARTED: Final = "parted"
OVERDRAWN: Final = "overdrawn"
SIDES: Final = "sides"
MINE: Final = "mine"
LATEST: Final = "latest"
UNANSWERED: Final = "unanswered"
SERVICE_KINDS: Final = (
    ERROR, TWICE, MISSING, INVENTED, RESULT, UNDONE, TOTAL, PARTED, OVERDRAWN, SIDES, MINE, LATEST, UNANSWERED, STUCK
)  # fmt: skip

WEAK: Final = "deposit"
"""The kind of calls that may change places."""

RAISING: Final = "fail"
"""The kind of calls that raise, and leave nothing behind."""

EXAMPLES_AT_MOST: Final = 5

Entry = Sequence[str | int]
"""The name of a call, what it was, and by how much it changed the balance."""

Books = dict[str, list[Entry]]
"""By account, its entries in the order in which a replica has applied them."""


@dataclass
class ToldCall:
    """A call, and its result if there was one: what each account must have of it."""

    name: str
    kind: str
    accounts: tuple[str, ...]
    cents: int
    is_answered: bool = False
    result: object = None


class ServicesJudge:
    """All calls of a campaign. ``keeps_sides`` says whether weaker operations keep their side of total ones."""

    def __init__(self, keeps_sides: bool) -> None:
        self._keeps_sides = keeps_sides
        self.calls: dict[str, ToldCall] = {}
        self.violations: dict[str, int] = {}
        self.examples: list[str] = []

    def violation(self, kind: str, about: str) -> None:
        """A promise is broken."""
        self.violations[kind] = self.violations.get(kind, 0) + 1
        if len(self.examples) < EXAMPLES_AT_MOST:
            self.examples.append(f"{kind}: {about}")

    @property
    def answered(self) -> int:
        """How many calls had a result."""
        return sum(call.is_answered for call in self.calls.values())

    # What callers see.

    def begins(self, call: ToldCall) -> None:
        """A caller makes a call."""
        self.calls[call.name] = call

    def answers(self, name: str, result: object) -> None:
        """A caller has its result."""
        self.calls[name].is_answered = True
        self.calls[name].result = result

    def unanswered(self, name: str) -> None:
        """A caller has waited longer than any fault lasts."""
        self.violation(UNANSWERED, f"{name}, a {self.calls[name].kind}")

    def did_not_raise(self, name: str) -> None:
        """A call that must raise has a result."""
        self.violation(RESULT, f"{name} did not raise")

    def answered_about(self, account: str) -> set[str]:
        """All calls about an account that have a result."""
        return {call.name for call in self.calls.values() if call.is_answered and account in call.accounts}

    def reads(self, kind: str, account: str, entries: Sequence[Entry], must_have: set[str]) -> None:
        """A query returned, and had to see these calls."""
        missing = must_have - {str(entry[0]) for entry in entries}
        if missing:
            self.violation(kind, f"a query of {account} did not see {sorted(missing)[:3]}")

    # The end.

    def judge(self, books: Sequence[Books]) -> None:
        """Judge the accounts of all replicas when nothing happens any more."""
        for place, replica in enumerate(books):
            self._judge_one(place, replica)
        first = books[0]
        for place, replica in enumerate(books[1:], 1):
            for account in sorted(first.keys() | replica.keys()):
                self._compare(place, account, first.get(account, []), replica.get(account, []))

    def _judge_one(self, place: int, books: Books) -> None:
        for account, entries in books.items():
            counts = Counter(str(entry[0]) for entry in entries)
            for name, count in counts.items():
                if count > 1:
                    self.violation(TWICE, f"replica {place} has {name} {count} times")
                if name not in self.calls or account not in self.calls[name].accounts:
                    self.violation(INVENTED, f"replica {place} has {name} on {account}")
            balance = 0
            for entry in entries:
                balance += int(entry[2])
                if balance < 0:
                    self.violation(OVERDRAWN, f"{account} at replica {place} after {entry[0]}")
        for call in self.calls.values():
            if call.is_answered and call.kind != RAISING:
                self._judge_call(place, books, call)
            if call.kind == RAISING and any(entry[0] == call.name for each in books.values() for entry in each):
                self.violation(UNDONE, f"replica {place} has {call.name}, which raised")

    def _judge_call(self, place: int, books: Books, call: ToldCall) -> None:
        for number, account in enumerate(call.accounts):
            found = [entry for entry in books.get(account, []) if entry[0] == call.name]
            if not found:
                self.violation(MISSING, f"replica {place} does not have {call.name}, which was answered")
                continue
            is_paid = call.kind == WEAK or bool(call.result)
            sign = 1 if call.kind == WEAK or number == 1 else -1
            if found[0][2] != (sign * call.cents if is_paid else 0):
                self.violation(RESULT, f"{call.name} was {call.result}, and replica {place} has {found[0]}")

    def _compare(self, place: int, account: str, one: list[Entry], other: list[Entry]) -> None:
        """Total entries are the same, in one order; between two of them stand the same weaker ones."""
        if [entry for entry in one if entry[1] != WEAK] != [entry for entry in other if entry[1] != WEAK]:
            self.violation(TOTAL, f"total operations of {account} differ at replicas 0 and {place}")
        if sorted(map(str, one)) != sorted(map(str, other)):
            self.violation(PARTED, f"{account} has other entries at replicas 0 and {place}")
        elif self._keeps_sides and sides(one) != sides(other):
            self.violation(SIDES, f"a deposit to {account} is on two sides of a total operation at 0 and {place}")


def sides(entries: Sequence[Entry]) -> list[list[str]]:
    """The weaker entries between total ones."""
    found: list[list[str]] = [[]]
    for entry in entries:
        if entry[1] == WEAK:
            found[-1].append(str(entry[0]))
        else:
            found.append([])
    return [sorted(names) for names in found]
