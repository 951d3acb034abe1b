"""Services with known needs, for tests of the advice."""

from __future__ import annotations

import datetime
import random
import time
import uuid
from typing import Annotated

import msgspec

import antiphon

Cents = Annotated[int, msgspec.Meta(ge=1, le=100_000)]


class NoMoneyError(Exception):
    """The balance is too low."""


class Bank(antiphon.Service):
    """The bank of the documentation."""

    @antiphon.operation(order="causal", keys=("account",))
    def deposit(self, store: antiphon.ServiceStore, account: str, cents: Cents) -> int:
        balance: int = store.get(account, 0) + cents
        store.set(account, balance)
        return balance

    @antiphon.operation(order="total", keys=("account",), raises=(NoMoneyError,))
    def withdraw(self, store: antiphon.ServiceStore, account: str, cents: Cents) -> None:
        balance: int = store.get(account, 0)
        if balance < cents:
            raise NoMoneyError(account)
        store.set(account, balance - cents)

    @antiphon.operation(order="total", keys=("source", "target"))
    def transfer(self, store: antiphon.ServiceStore, source: str, target: str, cents: Cents) -> bool:
        if store.get(source, 0) < cents:
            return False
        store.set(source, store.get(source, 0) - cents)
        store.set(target, store.get(target, 0) + cents)
        return True

    @antiphon.operation(order="total", keys=("account",))
    def apply_interest(self, store: antiphon.ServiceStore, account: str) -> int:
        balance: int = store.get(account, 0)
        store.set(account, balance + balance // 100)
        return balance // 100

    @antiphon.invariant
    def nobody_is_overdrawn(self, store: antiphon.ServiceStore) -> bool:
        return all(balance >= 0 for _, balance in store.items())


class SmallBank(antiphon.Service):
    """Deposits and withdrawals, and an order that is too weak."""

    @antiphon.operation(order="causal", keys=("account",))
    def deposit(self, store: antiphon.ServiceStore, account: str, cents: Cents) -> int:
        balance: int = store.get(account, 0) + cents
        store.set(account, balance)
        return balance

    @antiphon.operation(order="causal", keys=("account",), raises=(NoMoneyError,))
    def withdraw(self, store: antiphon.ServiceStore, account: str, cents: Cents) -> None:
        balance: int = store.get(account, 0)
        if balance < cents:
            raise NoMoneyError(account)
        store.set(account, balance - cents)


class NarrowBank(antiphon.Service):
    """Its transfers do not name the account that gets the money."""

    @antiphon.operation(order="total", keys=("source",))
    def transfer(self, store: antiphon.ServiceStore, source: str, target: str, cents: Cents) -> bool:
        if store.get(source, 5) < cents:
            return False
        store.set(source, store.get(source, 5) - cents)
        store.set(target, store.get(target, 5) + cents)
        return True


class TrustingBank(antiphon.Service):
    """Its withdrawals rely on callers that have looked at the balance."""

    @antiphon.operation(order="causal", keys=("account",))
    def deposit(self, store: antiphon.ServiceStore, account: str, cents: Cents) -> None:
        store.set(account, store.get(account, 0) + cents)

    @antiphon.operation(order="total", keys=("account",))
    def withdraw(self, store: antiphon.ServiceStore, account: str, cents: Cents) -> None:
        store.set(account, store.get(account, 0) - cents)

    @antiphon.invariant
    def nobody_is_overdrawn(self, store: antiphon.ServiceStore) -> bool:
        return all(balance >= 0 for _, balance in store.items())


class Forum(antiphon.Service):
    """An answer is about a question that its author has read."""

    @antiphon.operation(order="causal", keys=("question",))
    def ask(self, store: antiphon.ServiceStore, question: str) -> None:
        store.set(f"q/{question}", True)

    @antiphon.operation(order="causal", keys=("question",), raises=(LookupError,))
    def answer(self, store: antiphon.ServiceStore, question: str, text: str) -> None:
        if f"q/{question}" not in store:
            raise LookupError(question)
        store.set(f"a/{question}/{text}", True)

    @antiphon.invariant
    def each_answer_has_its_question(self, store: antiphon.ServiceStore) -> bool:
        return all(f"q/{key.split('/')[1]}" in store for key in store.keys("a/"))


class Counters(antiphon.Service):
    """Total order, and no need of it."""

    @antiphon.operation(order="total", keys=("name",))
    def add(self, store: antiphon.ServiceStore, name: str, number: int) -> None:
        store.set(name, (store.get(name, 0) + number) % 1000)


class Unsteady(antiphon.Service):
    """Operations that depend on more than the store."""

    @antiphon.operation(order="total")
    def stamp(self, store: antiphon.ServiceStore) -> None:
        store.set("at", time.time())

    @antiphon.operation(order="total")
    def date(self, store: antiphon.ServiceStore) -> None:
        store.set("on", datetime.date.today())

    @antiphon.operation(order="total")
    def roll(self, store: antiphon.ServiceStore) -> None:
        store.set("rolled", random.randrange(10**6))

    @antiphon.operation(order="total")
    def name(self, store: antiphon.ServiceStore) -> str:
        return str(uuid.uuid4())

    @antiphon.operation(order="total")
    def look(self, store: antiphon.ServiceStore) -> int:
        with open("/proc/self/stat", encoding="utf-8") as file:
            return len(file.read(1))

    @antiphon.operation(order="total")
    def steady(self, store: antiphon.ServiceStore, number: int) -> None:
        store.set("number", number % 1000)
