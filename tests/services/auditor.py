"""Judges a campaign of services: what callers were told, against what the replicas have in the end.

It knows the entries of accounts, the results of calls and nothing else. It shares no code with replicas and proxies.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.services.ledger import Entry

Books = dict[str, list[Entry]]
"""By account, its entries in the order in which a replica has applied them."""


@dataclass
class Told:
    """A call, and its result if there was one: what each account must have of it."""

    name: str
    kind: str
    accounts: tuple[str, ...]
    cents: int
    is_answered: bool = False
    result: object = None


@dataclass
class Auditor:
    """All calls of a campaign. ``keeps_sides`` says whether weaker operations keep their side of total ones."""

    keeps_sides: bool
    calls: dict[str, Told] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def begins(self, call: Told) -> None:
        """A caller makes a call."""
        self.calls[call.name] = call

    def answered(self, name: str, result: object) -> None:
        """A caller has its result."""
        self.calls[name].is_answered = True
        self.calls[name].result = result

    def reads(self, kind: str, account: str, entries: list[Entry], must_have: set[str]) -> None:
        """A query returned, and had to see these calls."""
        missing = must_have - {str(entry[0]) for entry in entries}
        if missing:
            self.faults.append(f"{kind}: a query of {account} did not see {sorted(missing)[:3]}")

    def judge(self, books: list[Books]) -> list[str]:
        """Everything that is wrong in the end."""
        for place, replica in enumerate(books):
            self._judge_one(place, replica)
        first = books[0]
        for place, replica in enumerate(books[1:], 1):
            for account in sorted(first.keys() | replica.keys()):
                self._compare(place, account, first.get(account, []), replica.get(account, []))
        return self.faults

    def _judge_one(self, place: int, books: Books) -> None:
        for account, entries in books.items():
            counts = Counter(str(entry[0]) for entry in entries)
            for name, count in counts.items():
                if count > 1:
                    self.faults.append(f"twice: replica {place} has {name} {count} times")
                if name not in self.calls or account not in self.calls[name].accounts:
                    self.faults.append(f"invented: replica {place} has {name} on {account}")
            balance = 0
            for entry in entries:
                balance += int(entry[2])
                if balance < 0:
                    self.faults.append(f"overdrawn: {account} at replica {place} after {entry[0]}")
        for call in self.calls.values():
            if call.is_answered and call.kind != "fail":
                self._judge_call(place, books, call)
            if call.kind == "fail" and any(entry[0] == call.name for each in books.values() for entry in each):
                self.faults.append(f"undone: replica {place} has {call.name}, which raised")

    def _judge_call(self, place: int, books: Books, call: Told) -> None:
        for number, account in enumerate(call.accounts):
            found = [entry for entry in books.get(account, []) if entry[0] == call.name]
            if not found:
                self.faults.append(f"lost: replica {place} does not have {call.name}, which was answered")
                continue
            is_paid = call.kind == "deposit" or bool(call.result)
            sign = 1 if call.kind == "deposit" or number == 1 else -1
            if found[0][2] != (sign * call.cents if is_paid else 0):
                self.faults.append(f"result: {call.name} was {call.result}, and replica {place} has {found[0]}")

    def _compare(self, place: int, account: str, one: list[Entry], other: list[Entry]) -> None:
        """Total entries are the same, in one order; between two of them stand the same weaker ones."""
        if [entry for entry in one if entry[1] != "deposit"] != [entry for entry in other if entry[1] != "deposit"]:
            self.faults.append(f"order: total operations of {account} differ at replicas 0 and {place}")
        if sorted(map(str, one)) != sorted(map(str, other)):
            self.faults.append(f"parted: {account} has other entries at replicas 0 and {place}")
        elif self.keeps_sides and sides(one) != sides(other):
            self.faults.append(f"sides: a deposit to {account} is on two sides of a total operation at 0 and {place}")


def sides(entries: list[Entry]) -> list[list[str]]:
    """The weaker entries between total ones."""
    found: list[list[str]] = [[]]
    for entry in entries:
        if entry[1] == "deposit":
            found[-1].append(str(entry[0]))
        else:
            found.append([])
    return [sorted(names) for names in found]
