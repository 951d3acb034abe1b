"""Declarations: what they say, and the sentence for each mistake."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Any, Literal
from uuid import UUID

import msgspec
import pytest

import antiphon
from antiphon.services.description import describe
from tests.services.bank import Bank, NoMoneyError


class Colour(Enum):
    RED = "red"


class Order(msgspec.Struct):
    lines: list[dict[str, int]]


def test_a_service_is_described() -> None:
    bank = describe(Bank)
    assert bank.name == "Bank" and bank.has_keys
    assert {name: call.order for name, call in bank.operations.items()} == {
        "deposit": "causal",
        "withdraw": "total",
        "transfer": "total",
    }
    assert list(bank.queries) == ["balance"] and bank.queries["balance"].mark.strength == "local"
    assert [invariant.name for invariant in bank.invariants] == ["nobody_is_overdrawn"]
    assert bank.operations["withdraw"].mark.raises == (NoMoneyError,)
    assert bank.operations["transfer"].types == {"source": str, "target": str, "cents": int}
    assert bank.operations["transfer"].result is bool
    assert describe(Bank) is bank


def test_methods_stay_as_they_are() -> None:
    from antiphon.services.store import MemoryStore

    store = antiphon.ServiceStore(MemoryStore())
    assert Bank().deposit(store, "anna", 5) == 5
    assert Bank().balance(store, "anna") == 5


def test_keys_are_each_thing_once_in_one_order() -> None:
    class Things(antiphon.Service):
        @antiphon.operation(order="causal", keys=("one", "many", "perhaps", "number", "name", "colour", "raw"))
        def touch(
            self,
            store: antiphon.ServiceStore,
            one: str,
            many: list[str],
            perhaps: str | None,
            number: int,
            name: UUID,
            colour: Colour,
            raw: bytes = b"\xff",
            kind: Literal["a", "b"] = "a",
        ) -> None: ...

    touch = describe(Things).operations["touch"]
    arguments = touch.arguments(
        one="ä", many=["z", "ä", "a"], perhaps=None, number=7, name=UUID(int=1), colour=Colour.RED, raw=b"\xff"
    )
    assert touch.keys(arguments) == tuple(
        sorted({"ä".encode(), b"z", b"a", b"7", str(UUID(int=1)).encode(), b"red", b"\xff"})
    )


def test_a_subclass_has_what_it_inherits() -> None:
    class Richer(Bank):
        @antiphon.operation(order="total", keys=("account",))
        def deposit(self, store: antiphon.ServiceStore, account: str, cents: int) -> int:
            return cents

    richer = describe(Richer)
    assert {name: call.order for name, call in richer.operations.items()} == {
        "deposit": "total",
        "withdraw": "total",
        "transfer": "total",
    }


def test_a_service_keeps_nothing_but_its_store() -> None:
    with pytest.raises(
        antiphon.UsageError, match=r"Bank\.total cannot be set: a service keeps everything in its store"
    ):
        Bank().total = 5


def operation(**parameters: Any) -> Callable[[Any], Any]:
    return antiphon.operation(**{"order": "causal", **parameters})


def no_such_key() -> None:
    class Wrong(antiphon.Service):
        @operation(keys=("acount",))
        def deposit(self, store: Any, account: str) -> None: ...


def text_for_keys() -> None:
    operation(keys="account")


def no_keys_beside_keys() -> None:
    class Wrong(antiphon.Service):
        @operation(keys=("account",))
        def deposit(self, store: Any, account: str) -> None: ...

        @operation(order="total")
        def interest(self, store: Any) -> None: ...


def latest_of_no_keys() -> None:
    class Wrong(antiphon.Service):
        @operation(keys=("account",))
        def deposit(self, store: Any, account: str) -> None: ...

        @antiphon.query(read="latest")
        def sum(self, store: Any) -> int:
            return 0


def twice_the_same_name() -> None:
    class Wrong(antiphon.Service):
        @operation()
        def add(self, store: Any, one: str) -> None: ...

        @operation()  # type: ignore[no-redef]
        def add(self, store: Any, one: str, two: str) -> None: ...  # noqa: F811


def plain_method_in_place_of_an_operation() -> None:
    class Wrong(Bank):
        def deposit(self, store: Any, account: str, cents: int) -> int:
            return 0


def no_such_order() -> None:
    operation(order="strict")


def no_such_read() -> None:
    antiphon.query(read="newest")  # type: ignore[call-overload]


def two_decorators() -> None:
    class Wrong(antiphon.Service):
        @antiphon.query
        @operation()
        def add(self, store: Any) -> None: ...


def no_type() -> None:
    class Wrong(antiphon.Service):
        @operation()
        def add(self, store, one) -> None: ...  # type: ignore[no-untyped-def]


def no_result() -> None:
    class Wrong(antiphon.Service):
        @operation()
        def add(self, store: Any, one: str): ...  # type: ignore[no-untyped-def]


def unknown_type() -> None:
    class Wrong(antiphon.Service):
        @operation()
        def add(self, store: Any, one: list[complex]) -> None: ...


def ambiguous_type() -> None:
    class Wrong(antiphon.Service):
        @operation()
        def add(self, store: Any, one: Order | Colour | list[int] | dict[str, int] | set[int]) -> None: ...


def unknown_result() -> None:
    class Wrong(antiphon.Service):
        @operation()
        def add(self, store: Any) -> asyncio.Queue[int]:
            return asyncio.Queue()


def key_of_a_wrong_type() -> None:
    class Wrong(antiphon.Service):
        @operation(keys=("weight",))
        def add(self, store: Any, weight: float) -> None: ...


def asynchronous() -> None:
    class Wrong(antiphon.Service):
        @operation()
        async def add(self, store: Any) -> None: ...


def generator() -> None:
    class Wrong(antiphon.Service):
        @antiphon.query
        def all(self, store: Any) -> Any:
            yield 1


def starred() -> None:
    class Wrong(antiphon.Service):
        @operation()
        def add(self, store: Any, *values: int) -> None: ...


def no_store() -> None:
    class Wrong(antiphon.Service):
        @operation()
        def add(self) -> None: ...


def invariant_with_arguments() -> None:
    class Wrong(antiphon.Service):
        @antiphon.invariant
        def holds(self, store: Any, account: str) -> bool:
            return True


def not_a_method() -> None:
    class Wrong(antiphon.Service):
        @operation()
        class Inner: ...


def private_name() -> None:
    class Wrong(antiphon.Service):
        @operation()
        def _add(self, store: Any) -> None: ...


def exception_that_is_none() -> None:
    operation(raises=("NoMoneyError",))


def not_a_service() -> None:
    describe(int)


def services_themselves() -> None:
    describe(antiphon.Service)


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (no_such_key, r"Wrong\.deposit has no parameter 'acount' for its keys; it has account"),
        (text_for_keys, r"keys is a list of names of parameters: keys=\('account',\)"),
        (no_keys_beside_keys, r"Wrong\.interest has no keys, and deposit has: nothing would order the two"),
        (latest_of_no_keys, r"Wrong\.sum reads the latest state of no keys; name its keys"),
        (twice_the_same_name, r"add is defined twice in one service"),
        (plain_method_in_place_of_an_operation, r"Wrong\.deposit replaces an operation without being one"),
        (no_such_order, r"an operation has an order of none, fifo, causal, total, not 'strict'"),
        (no_such_read, r"a query reads local, mine, latest, not 'newest'"),
        (two_decorators, r"add has two decorators of antiphon"),
        (no_type, r"Wrong\.add does not say the type of one; write for example one: str"),
        (no_result, r"Wrong\.add does not say what it returns; write -> None"),
        (unknown_type, r"the type of one in Wrong\.add is list\[complex\], and values of complex cannot travel"),
        (ambiguous_type, r"the type of one in Wrong\.add is .* whose values cannot travel"),
        (unknown_result, r"the result of Wrong\.add is .*Queue.* cannot travel"),
        (key_of_a_wrong_type, r"the key weight of Wrong\.add has type float; a key is a str"),
        (asynchronous, r"Wrong\.add is async or a generator"),
        (generator, r"Wrong\.all is async or a generator"),
        (starred, r"Wrong\.add has a parameter with \* or /"),
        (no_store, r"Wrong\.add needs the parameters self and store"),
        (invariant_with_arguments, r"Wrong\.holds is an invariant, and takes nothing but the store"),
        (not_a_method, r"Wrong\.Inner is not a plain method"),
        (private_name, r"Wrong\._add cannot have this name"),
        (exception_that_is_none, r"raises is a list of classes of exceptions, and 'NoMoneyError' is none"),
        (not_a_service, r"<class 'int'> is not a service"),
        (services_themselves, r"Service'> is not a service"),
    ],
)
def test_a_mistake_has_one_clear_sentence(mistake: Callable[[], None], sentence: str) -> None:
    with pytest.raises(antiphon.UsageError, match=sentence):
        mistake()


def test_a_type_that_is_defined_later_is_resolved_when_the_service_is_used() -> None:
    class Shop(antiphon.Service):
        @operation()
        def sell(self, store: Any, sale: "Sale") -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037

    with pytest.raises(antiphon.UsageError, match=r"a type of Shop\.sell is not known .*'Sale'"):
        describe(Shop)
    globals()["Sale"] = Order
    try:
        assert describe(Shop).operations["sell"].types == {"sale": Order}
    finally:
        del globals()["Sale"]
