"""Calls and results: their bytes, what is refused, and what an operation that fails leaves behind."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import antiphon
from antiphon.services.calls import apply, bind, decode_call, decode_result, encode_call, is_error
from antiphon.services.description import describe
from antiphon.services.store import MemoryStore, ServiceStore
from tests.services.bank import Bank, NoMoneyError

BANK = describe(Bank)


def call(name: str, *arguments: Any, **named: Any) -> bytes:
    return encode_call(bind(BANK.calls[name], arguments, named))


def done(store: ServiceStore, payload: bytes) -> Any:
    bound = decode_call(BANK, payload)
    return decode_result(bound.call, apply(Bank(), store, bound))


def test_a_call_is_applied_and_its_result_comes_back() -> None:
    store = ServiceStore(MemoryStore())
    assert done(store, call("deposit", "anna", 100)) == 100
    assert done(store, call("transfer", "anna", target="ben", cents=30)) is True
    assert done(store, call("transfer", "anna", "ben")) is True
    assert done(store.for_queries(), call("balance", "ben")) == 31


@given(account=st.text(), cents=st.integers(-(2**63), 2**64 - 1))
@settings(max_examples=50, derandomize=True)
def test_a_call_arrives_as_it_was_made_and_has_one_form(account: str, cents: int) -> None:
    try:
        account.encode()
    except UnicodeEncodeError:
        return
    sent = call("deposit", account, cents)
    assert sent == call("deposit", cents=cents, account=account)
    arrived = decode_call(BANK, sent)
    assert (arrived.arguments.account, arrived.arguments.cents) == (account, cents)  # type: ignore[attr-defined]
    assert arrived.keys == (account.encode(),)


def test_the_bytes_of_a_call_stay_what_they_are() -> None:
    # Replicas of the next release read them.
    assert call("deposit", "anna", 100) == msgspec.msgpack.encode(["deposit", {"account": "anna", "cents": 100}])


@pytest.mark.parametrize(
    ("name", "arguments", "named", "sentence"),
    [
        ("deposit", (5, 100), {}, r"Bank\.deposit was called wrongly: Expected `str`, got `int` - at `\$\.account`"),
        ("deposit", ("anna",), {}, r"missing a required argument: 'cents'"),
        ("deposit", ("anna", 1), {"to": "ben"}, r"got an unexpected keyword argument 'to'"),
        ("deposit", ("anna", "much"), {}, r"Expected `int`, got `str` - at `\$\.cents`"),
        ("deposit", ("anna", 2**70), {}, r"Bank\.deposit was called wrongly"),
        ("deposit", (object(), 1), {}, r"Bank\.deposit was called wrongly"),
    ],
)
def test_a_wrong_call_is_refused_where_it_is_made(
    name: str, arguments: tuple[Any, ...], named: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(antiphon.UsageError, match=sentence):
        bind(BANK.calls[name], arguments, named)


def test_a_call_of_another_version_gets_one_sentence() -> None:
    newer = msgspec.msgpack.encode(["close", {"account": "anna"}])
    with pytest.raises(antiphon.UnknownOperationError, match=r"Bank has no operation 'close' in this version; update"):
        decode_call(BANK, newer)
    newer = msgspec.msgpack.encode(["deposit", {"account": "anna", "cents": 1, "currency": "EUR"}])
    with pytest.raises(antiphon.UnknownOperationError, match=r"deposit has other arguments .*unknown field `currency`"):
        decode_call(BANK, newer)


@pytest.mark.parametrize("payload", [b"", b"\xc1", msgspec.msgpack.encode([]), msgspec.msgpack.encode({"a": 1})])
def test_what_is_no_call_is_refused(payload: bytes) -> None:
    with pytest.raises(antiphon.PeerError, match="a message on the topic of Bank is not a call"):
        decode_call(BANK, payload)


def test_a_declared_exception_comes_back_as_itself() -> None:
    store = ServiceStore(MemoryStore())
    with pytest.raises(NoMoneyError) as caught:
        done(store, call("withdraw", "anna", 5))
    assert caught.value.args == ("anna", 0)


class Clumsy(antiphon.Service):
    @antiphon.operation(order="causal", raises=(LookupError,))
    def fail(self, store: antiphon.ServiceStore, how: str) -> int:
        store.set("touched", True)
        if how == "result":
            return "text"  # type: ignore[return-value]
        if how == "untransportable":
            return object()  # type: ignore[return-value]
        if how == "declared":
            raise KeyError(object())
        if how == "peer":
            raise antiphon.PeerError("the database is gone")
        raise ZeroDivisionError(how)

    @antiphon.query
    def cheat(self, store: antiphon.ServiceStore) -> None:
        store.set("touched", True)


def clumsily(store: ServiceStore, how: str) -> Any:
    bound = bind(describe(Clumsy).calls["fail"], (how,), {})
    return decode_result(bound.call, apply(Clumsy(), store, bound))


@pytest.mark.parametrize(
    ("how", "kind", "sentence"),
    [
        ("undeclared", antiphon.ServiceError, r"Clumsy\.fail failed: ZeroDivisionError: undeclared; nothing was chang"),
        ("declared", LookupError, r"object"),
        ("untransportable", antiphon.ServiceError, r"Clumsy\.fail failed: TypeError: Encoding objects of type object"),
        ("peer", antiphon.PeerError, r"the database is gone"),
    ],
)
def test_an_operation_that_fails_has_changed_nothing(how: str, kind: type[Exception], sentence: str) -> None:
    store = ServiceStore(MemoryStore())
    with pytest.raises(kind, match=sentence):
        clumsily(store, how)
    assert "touched" not in store


def test_a_result_of_another_type_is_an_error_of_the_service() -> None:
    with pytest.raises(antiphon.ServiceError, match=r"Clumsy\.fail returned something else than int: Expected `int`"):
        clumsily(ServiceStore(MemoryStore()), "result")


def test_a_query_cannot_change_anything() -> None:
    store = ServiceStore(MemoryStore())
    bound = bind(describe(Clumsy).calls["cheat"], (), {})
    answer = apply(Clumsy(), store.for_queries(), bound)
    assert is_error(answer) and "touched" not in store
    with pytest.raises(antiphon.ServiceError, match="a query cannot change the store"):
        decode_result(bound.call, answer)


def test_a_call_can_be_read() -> None:
    assert str(bind(BANK.calls["deposit"], ("anna", 5), {})) == "deposit('anna', 5)"
