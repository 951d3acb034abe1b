"""Two calls in both orders: each finding, by hand."""

from __future__ import annotations

from typing import Any

import pytest

import antiphon
from antiphon.services.advise.pairs import (
    AFTER,
    ALONE,
    APART,
    APART_SENSIBLY,
    CONCURRENT,
    SENSIBLY,
    TOGETHER,
    Bench,
    PairScript,
)
from antiphon.services.calls import BoundCall, bind
from antiphon.services.description import describe
from tests.services.advise.banks import Bank, Forum, NarrowBank, TrustingBank


def findings(service: Any, *calls: tuple[Any, ...]) -> set[str]:
    """What is wrong with the last two calls, after those before them."""
    description = describe(service)
    bound: list[BoundCall] = [bind(description.calls[name], arguments, {}) for name, *arguments in map(list, calls)]  # type: ignore[arg-type]
    return set(Bench(description).findings(PairScript(tuple(bound[:-2]), bound[-2], bound[-1])))


@pytest.mark.parametrize(
    ("service", "calls", "expected"),
    [
        (Bank, [("deposit", "a", 5), ("deposit", "a", 7)], set()),
        (Bank, [("deposit", "a", 5), ("deposit", "b", 7)], set()),
        # Refused before the deposit, so not sensible there; and sensible after it.
        (Bank, [("deposit", "a", 5), ("withdraw", "a", 5)], {CONCURRENT, AFTER}),
        (Bank, [("withdraw", "a", 5), ("deposit", "a", 5)], {CONCURRENT}),
        (Bank, [("deposit", "a", 9), ("withdraw", "a", 5), ("withdraw", "a", 6)], {CONCURRENT, SENSIBLY}),
        (Bank, [("deposit", "a", 9), ("withdraw", "a", 4), ("withdraw", "a", 5)], set()),
        (Bank, [("deposit", "a", 9), ("withdraw", "a", 5), ("withdraw", "b", 6)], set()),
        (Bank, [("deposit", "a", 60), ("deposit", "a", 40), ("apply_interest", "a")], {CONCURRENT, SENSIBLY}),
        (Bank, [("deposit", "a", 60), ("deposit", "a", 39), ("apply_interest", "a")], set()),
        (NarrowBank, [("transfer", "a", "b", 5), ("transfer", "b", "a", 8)], {APART, APART_SENSIBLY}),
        (NarrowBank, [("transfer", "a", "b", 2), ("transfer", "b", "a", 3)], set()),
        (TrustingBank, [("deposit", "a", 1), ("withdraw", "a", 2)], {ALONE}),
        (TrustingBank, [("deposit", "a", 2), ("withdraw", "a", 2)], {ALONE, AFTER}),
        (TrustingBank, [("deposit", "a", 3), ("withdraw", "a", 2), ("withdraw", "a", 2)], {TOGETHER}),
        (Forum, [("ask", "q"), ("answer", "q", "yes")], {CONCURRENT, AFTER}),
        (Forum, [("ask", "q"), ("answer", "q", "yes"), ("answer", "q", "no")], set()),
    ],
)
def test_each_finding(service: Any, calls: list[tuple[Any, ...]], expected: set[str]) -> None:
    assert findings(service, *calls) == expected


def test_calls_without_keys_are_about_one_thing() -> None:
    class Register(antiphon.Service):
        @antiphon.operation(order="total")
        def write(self, store: antiphon.ServiceStore, value: int) -> None:
            store.set("value", value)

    assert findings(Register, ("write", 1), ("write", 2)) == {CONCURRENT, SENSIBLY}


def test_a_state_stays_as_it_is() -> None:
    description = describe(Bank)
    bench = Bench(description)
    start = bench.reach((bind(description.calls["deposit"], ("a", 5), {}),))
    assert start is not None
    contents = start.contents()
    after = bench.after(start, bind(description.calls["withdraw"], ("a", 2), {}))
    assert (start.contents(), after.contents()) == (contents, [(b"a", b"\x03")])


def test_an_invariant_that_raises_does_not_hold() -> None:
    class Strange(antiphon.Service):
        @antiphon.operation(order="total")
        def write(self, store: antiphon.ServiceStore, value: int) -> None:
            store.set("value", value)

        @antiphon.invariant
        def is_small(self, store: antiphon.ServiceStore) -> bool:
            return 1 / (3 - int(store.get("value", 0))) > 0

    assert findings(Strange, ("write", 2), ("write", 3)) == {ALONE}


def test_a_service_on_a_database_is_refused() -> None:
    class OnDatabase(antiphon.Service):
        @antiphon.operation(order="total")
        def write(self, store: antiphon.ServiceStore) -> None:
            store.connection.execute("INSERT INTO t VALUES (1)")

    with pytest.raises(antiphon.PeerError, match=r"an operation uses store\.connection; it can only advise"):
        findings(OnDatabase, ("write",), ("write",))
