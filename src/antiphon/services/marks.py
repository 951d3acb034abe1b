"""The marks that decorators put on the methods of a service: the order of an operation, the way a query reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar, cast, overload

from antiphon.kernel.errors import UsageError

Method = TypeVar("Method", bound=Callable[..., Any])
OrderName = Literal["none", "fifo", "causal", "total"]
ReadName = Literal["local", "mine", "latest"]

ORDER_CHOICES: Final = ("none", "fifo", "causal", "total")
READ_CHOICES: Final = ("local", "mine", "latest")
MARK: Final = "__antiphon_mark__"


@dataclass(frozen=True)
class MethodMark:
    """The mark of a decorator on a method. ``strength`` is the order of an operation or the way a query reads."""

    kind: Literal["operation", "query", "invariant"]
    strength: str = ""
    keys: tuple[str, ...] = ()
    raises: tuple[type[Exception], ...] = ()


def operation(
    *, order: OrderName, keys: Iterable[str] = (), raises: Iterable[type[Exception]] = ()
) -> Callable[[Method], Method]:
    """Declare a method as an operation: every replica applies it, in ``order``.

    ``keys`` names the parameters that say what the operation is about. Total operations about a common key have one
    order at all replicas, and a weaker operation is on the same side of them everywhere. ``raises`` lists exceptions
    that reach the caller as they are; their arguments must be plain values. All others reach it as
    :class:`ServiceError`. An operation that raises changes nothing.
    """
    check_order(order)
    mark = MethodMark("operation", order, names_in(keys), exceptions_in(raises))
    return lambda method: marked(method, mark)


@overload
def query(method: Method, /) -> Method: ...


@overload
def query(
    *, read: ReadName = "local", keys: Iterable[str] = (), raises: Iterable[type[Exception]] = ()
) -> Callable[[Method], Method]: ...


def query(
    method: Method | None = None,
    /,
    *,
    read: ReadName = "local",
    keys: Iterable[str] = (),
    raises: Iterable[type[Exception]] = (),
) -> Method | Callable[[Method], Method]:
    """Declare a method as a query: one replica answers it, and nothing changes.

    ``read="local"``: from what this replica has. ``read="mine"``: with all that this client has done and seen.
    ``read="latest"``: at a place in the order of total operations about its keys.
    """
    if read not in READ_CHOICES:
        raise UsageError(f"a query reads {', '.join(READ_CHOICES)}, not {read!r}")
    mark = MethodMark("query", read, names_in(keys), exceptions_in(raises))
    return marked(method, mark) if method is not None else lambda method: marked(method, mark)


def invariant(method: Method, /) -> Method:
    """Declare a method with a store and no arguments that says whether the store is as it always must be.

    Replicas do not evaluate it; ``antiphon advise`` looks for operations and orders that break it.
    """
    return marked(method, MethodMark("invariant"))


def marked(method: Method, mark: MethodMark) -> Method:
    """The method, with its mark."""
    if not callable(method):
        raise UsageError(f"@antiphon.{mark.kind} stands above a method, not above {method!r}")
    if hasattr(method, MARK):
        raise UsageError(f"{method.__qualname__} has two decorators of antiphon; leave one of them")
    setattr(method, MARK, mark)
    return method


def mark_of(method: object) -> MethodMark | None:
    """The mark of a method; None if it has none."""
    return cast("MethodMark | None", getattr(method, MARK, None))


def check_order(order: str) -> None:
    """Refuse what is no order of operations."""
    if order not in ORDER_CHOICES:
        raise UsageError(f"an operation has an order of {', '.join(ORDER_CHOICES)}, not {order!r}")


def names_in(keys: Iterable[str]) -> tuple[str, ...]:
    """The parameters that a decorator names as keys."""
    if isinstance(keys, str):
        raise UsageError(f"keys is a list of names of parameters: keys=({keys!r},)")
    found = tuple(keys)
    if not all(isinstance(name, str) for name in found):
        raise UsageError(f"keys is a list of names of parameters, not {found!r}")
    return found


def exceptions_in(raises: Iterable[type[Exception]]) -> tuple[type[Exception], ...]:
    """The exceptions that a decorator lists."""
    found: tuple[Any, ...] = (raises,) if isinstance(raises, type) else tuple(raises)
    for one in found:
        if not (isinstance(one, type) and issubclass(one, Exception)):
            raise UsageError(f"raises is a list of classes of exceptions, and {one!r} is none")
    names = [one.__name__ for one in found]
    if len(set(names)) < len(names):
        raise UsageError(f"raises names two exceptions alike: {', '.join(sorted(names))}")
    return found
