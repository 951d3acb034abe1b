"""The store that operations see, against a dictionary, and the store in memory."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import antiphon
from antiphon.services.store import MemoryStore, ServiceStore

KEYS = st.sampled_from(["", "a", "a.1", "a.2", "ab", "b", "ä", "\x00", "\U0001f600"])


class StoreModel(RuleBasedStateMachine):
    """Operations that return and that raise, and commits, against a plain dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.backend = MemoryStore()
        self.store = ServiceStore(self.backend)
        self.model: dict[str, int] = {}
        self.committed: dict[str, int] = {}
        self.commits = 0

    def change(self, changes: list[tuple[str, int | None]]) -> dict[str, int]:
        model = dict(self.model)
        for key, value in changes:
            if value is None:
                assert self.store.delete(key) == (model.pop(key, None) is not None)
            else:
                self.store.set(key, value)
                model[key] = value
            assert self.store.get(key) == model.get(key)
            assert dict(self.store.items("a")) == {key: value for key, value in model.items() if key[:1] == "a"}
        return model

    @rule(changes=st.lists(st.tuples(KEYS, st.none() | st.integers(0, 9))))
    def returns(self, changes: list[tuple[str, int | None]]) -> None:
        with self.store.attempt():
            self.model = self.change(changes)

    @rule(changes=st.lists(st.tuples(KEYS, st.none() | st.integers(0, 9))))
    def raises(self, changes: list[tuple[str, int | None]]) -> None:
        with pytest.raises(ZeroDivisionError):
            self.fails(changes)

    def fails(self, changes: list[tuple[str, int | None]]) -> None:
        with self.store.attempt():
            self.change(changes)
            raise ZeroDivisionError

    @rule()
    def commits_all(self) -> None:
        self.commits += 1
        self.store.commit(str(self.commits).encode())
        self.committed = dict(self.model)

    @rule()
    def moves_to_another_backend(self) -> None:
        other = MemoryStore()
        other.restore(self.backend.scan(b""), self.backend.position())
        self.backend, self.store, self.model = other, ServiceStore(other), dict(self.committed)

    @invariant()
    def is_the_dictionary(self) -> None:
        assert list(self.store.items()) == sorted(self.model.items())
        assert list(self.store.for_queries().keys()) == sorted(self.model)
        assert [key.decode() for key, _ in self.backend.scan(b"")] == sorted(self.committed)
        assert int(self.backend.position() or b"0") == self.commits


StoreModel.TestCase.settings = settings(max_examples=40, stateful_step_count=15, deadline=None, derandomize=True)
TestStore = StoreModel.TestCase


class Account(msgspec.Struct):
    owner: str
    cents: int = 0


def test_values_are_copies_with_types() -> None:
    store = ServiceStore(MemoryStore())
    with store.attempt():
        store.set("a", Account("anna"))
        store.set("list", [1])
        store.get("list").append(2)
    assert store.get("list") == [1]
    assert store.get("a") == {"owner": "anna", "cents": 0}
    assert store.get("a", kind=Account) == Account("anna")
    assert list(store.items("a", kind=Account)) == [("a", Account("anna"))]
    with pytest.raises(antiphon.UsageError, match="the stored value of 'list' is of another type"):
        store.get("list", kind=Account)


def test_iteration_shows_the_store_as_it_was() -> None:
    store = ServiceStore(MemoryStore([(b"a", b"\x01"), (b"b", b"\x02")]))
    with store.attempt():
        for key, value in store.items():
            store.delete(key)
            store.set(key + "'", value)
        assert list(store.items()) == [("a'", 1), ("b'", 2)]


@pytest.mark.parametrize(("key", "value"), [(b"bytes", 1), (None, 1), ("\ud800", 1), ("a", object()), ("a", 2**80)])
def test_what_cannot_be_stored_is_refused(key: Any, value: Any) -> None:
    with pytest.raises(antiphon.UsageError, match="store"):
        ServiceStore(MemoryStore()).set(key, value)


def test_a_snapshot_stays_as_it_is() -> None:
    backend = MemoryStore()
    backend.commit({b"a": b"\x01"}, b"1")
    copy = backend.copy()
    backend.commit({b"a": None, b"b": b"\x02"}, b"2")
    assert (list(copy.scan(b"")), copy.position()) == ([(b"a", b"\x01")], b"1")
    assert (list(backend.scan(b"")), backend.position()) == ([(b"b", b"\x02")], b"2")


def test_there_is_no_connection_in_memory_nor_for_queries() -> None:
    store = ServiceStore(MemoryStore())
    with pytest.raises(antiphon.UsageError, match="a store in memory has no connection; serve the service on SQLite"):
        store.connection  # noqa: B018
    with pytest.raises(antiphon.UsageError, match="a query reads with get and items"):
        store.for_queries().connection  # noqa: B018
