"""Draws the arguments of calls: from their types, or from strategies of the service.

Values are small and few, because calls that have nothing to do with each other tell nothing: keys come from three,
and texts and numbers repeat. A service gives strategies of its own by a static method::

    @staticmethod
    def strategies():
        return {"cents": strategies.integers(1, 100), "rename.name": strategies.text(min_size=1)}

A name is that of a parameter, or of an operation and a parameter.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from msgspec import inspect as types

from antiphon.kernel.errors import UsageError
from antiphon.services.calls import BoundCall, bind
from antiphon.services.description import ServiceCall, ServiceDescription

KEY_TEXTS: Final = ("a", "b", "a", "b", "c")
KEY_NUMBERS: Final = (1, 2, 1, 2, 3)
"""Two of them twice as often, so that calls are about the same."""
MOST_ITEMS: Final = 3
STRATEGIES: Final = "strategies"
"""The name of the method with strategies of the service."""

LARGEST: Final = 1 << 31
SPANS: Final = (10, 1000)
"""Most numbers are drawn from this many, so that they meet."""
SPAN: Final = SPANS[-1]


Calls = Mapping[str, SearchStrategy[BoundCall]]
"""For each operation the calls to draw."""


def calls_of(description: ServiceDescription) -> list[Calls]:
    """The calls to draw, once for each span of numbers: numbers that are drawn together are of one size."""
    given = own_strategies(description)
    return [
        {name: calls_to(call, given, span) for name, call in description.operations.items()} for span in (*SPANS, None)
    ]


def own_strategies(description: ServiceDescription) -> dict[str, SearchStrategy[Any]]:
    """The strategies that a service gives, by the name of a parameter, or of an operation and a parameter."""
    method = getattr(description.service, STRATEGIES, None)
    if method is None:
        return {}
    given = method()
    known = {name for call in description.operations.values() for name in call.types}
    known |= {f"{call.name}.{name}" for call in description.operations.values() for name in call.types}
    for name, strategy in given.items():
        if name not in known:
            raise UsageError(f"{description.name}.{STRATEGIES} names {name!r}, and no operation has such a parameter")
        if not isinstance(strategy, SearchStrategy):
            raise UsageError(f"{description.name}.{STRATEGIES} gives {name!r} no strategy of Hypothesis")
    return dict(given)


def calls_to(call: ServiceCall, given: dict[str, SearchStrategy[Any]], span: int | None) -> SearchStrategy[BoundCall]:
    """The calls of one operation."""
    arguments = {}
    for name, kind in call.types.items():
        own = given.get(f"{call.name}.{name}", given.get(name))
        is_key = name in call.mark.keys
        arguments[name] = (
            own if own is not None else values_of_type(call, name, types.type_info(kind), Values(is_key, span))
        )
    return st.fixed_dictionaries(arguments).map(lambda drawn: bind(call, (), drawn))


def values_of_type(call: ServiceCall, name: str, kind: types.Type, values: Values) -> SearchStrategy[Any]:
    """The values of the type of a parameter."""
    try:
        return values.of(kind)
    except NotImplementedError as error:
        raise UsageError(
            f"advise cannot draw {name} of {call.full_name} ({error}); give it a strategy: a static method "
            f"{STRATEGIES} of {call.service} that returns {{{name!r}: ...}}"
        ) from error


class Values:
    """Strategies for the types of msgspec. Keys are drawn from few values."""

    def __init__(self, is_key: bool, span: int | None) -> None:
        """Numbers are near 0, or near their bound, within a ``span`` if there is one."""
        self._is_key = is_key
        self._span = span

    def of(self, kind: types.Type) -> SearchStrategy[Any]:
        """The values of a type."""
        if isinstance(kind, types.Metadata):
            return self.of(kind.type)
        plain = PLAIN.get(type(kind))
        if plain is not None:
            return plain
        method = METHODS.get(type(kind))
        if method is None:
            raise NotImplementedError(type(kind).__name__.removesuffix("Type"))
        return method(self, kind)

    def integers(self, kind: types.IntType) -> SearchStrategy[Any]:
        """Mostly small numbers, of either sign if the type allows it."""
        low = kind.ge if kind.ge is not None else None if kind.gt is None else kind.gt + 1
        high = kind.le if kind.le is not None else None if kind.lt is None else kind.lt - 1
        if self._is_key and low is None and high is None:
            return st.sampled_from(KEY_NUMBERS)
        step = kind.multiple_of or 1
        least = -(-(low if low is not None else -LARGEST) // step)
        most = (high if high is not None else max(LARGEST, least * step + LARGEST)) // step
        if self._span is not None:
            least = max(least, 0 if most >= 0 else most - self._span)
            most = min(most, least + self._span)
        drawn = st.integers(least, most)
        return drawn.map(lambda number: number * step)

    def floats(self, kind: types.FloatType) -> SearchStrategy[Any]:
        """Numbers within the bounds."""
        low = kind.ge if kind.ge is not None else kind.gt
        high = kind.le if kind.le is not None else kind.lt
        return st.floats(
            low,
            high,
            exclude_min=kind.gt is not None,
            exclude_max=kind.lt is not None,
            allow_nan=False,
            allow_infinity=False,
        )

    def texts(self, kind: types.StrType) -> SearchStrategy[Any]:
        """A few texts that repeat, and others."""
        if kind.pattern is not None:
            return st.from_regex(kind.pattern, fullmatch=True)
        least, most = kind.min_length or 0, kind.max_length
        few = [text for text in KEY_TEXTS if least <= len(text) <= (len(text) if most is None else most)]
        if self._is_key and few:
            return st.sampled_from(few)
        others = st.text(st.characters(codec="utf-8"), min_size=least, max_size=most or least + 5)
        return st.one_of(st.sampled_from(few), st.sampled_from(few[:2]), others) if few else others

    def blobs(self, kind: types.BytesType) -> SearchStrategy[Any]:
        """Short bytes, and few of them for keys."""
        if self._is_key:
            return st.sampled_from([text.encode() for text in KEY_TEXTS])
        return st.binary(min_size=kind.min_length or 0, max_size=kind.max_length or (kind.min_length or 0) + 5)

    def choices(self, kind: types.EnumType) -> SearchStrategy[Any]:
        """The members of an enumeration."""
        return st.sampled_from(list(kind.cls))

    def literals(self, kind: types.LiteralType) -> SearchStrategy[Any]:
        """The listed values."""
        return st.sampled_from(sorted(kind.values, key=str))

    def unions(self, kind: types.UnionType) -> SearchStrategy[Any]:
        """The values of one of several types."""
        return st.one_of([self.of(one) for one in kind.types])

    def sequences(self, kind: Any) -> SearchStrategy[Any]:
        """Short lists, and sets and tuples of one type of items."""
        least = kind.min_length or 0
        most = kind.max_length if kind.max_length is not None else least + MOST_ITEMS
        items = st.lists(self.of(kind.item_type), min_size=least, max_size=most)
        return items.map(CONTAINERS[type(kind)])

    def tuples(self, kind: types.TupleType) -> SearchStrategy[Any]:
        """Tuples of given types."""
        return st.tuples(*[self.of(one) for one in kind.item_types])

    def dictionaries(self, kind: types.DictType) -> SearchStrategy[Any]:
        """Small dictionaries."""
        least = kind.min_length or 0
        most = kind.max_length if kind.max_length is not None else least + MOST_ITEMS
        return st.dictionaries(self.of(kind.key_type), self.of(kind.value_type), min_size=least, max_size=most)

    def structures(self, kind: Any) -> SearchStrategy[Any]:
        """Structs, dataclasses and the like, by their fields."""
        fields = {field.name: Values(False, self._span).of(field.type) for field in kind.fields}
        return st.fixed_dictionaries(fields).map(lambda drawn: kind.cls(**drawn))


CONTAINERS: Final[dict[type, Callable[[list[Any]], Any]]] = {
    types.ListType: list,
    types.SetType: set,
    types.FrozenSetType: frozenset,
    types.VarTupleType: tuple,
}

PLAIN: Final[dict[type, SearchStrategy[Any]]] = {
    types.NoneType: st.none(),
    types.BoolType: st.booleans(),
    types.AnyType: st.none() | st.booleans() | st.integers(0, SPAN) | st.sampled_from(KEY_TEXTS),
    types.UUIDType: st.sampled_from([UUID(int=number) for number in KEY_NUMBERS]),
    types.DateTimeType: st.datetimes(datetime.datetime(2000, 1, 1), datetime.datetime(2030, 1, 1)),
    types.DateType: st.dates(datetime.date(2000, 1, 1), datetime.date(2030, 1, 1)),
    types.TimeType: st.times(),
    types.TimeDeltaType: st.timedeltas(datetime.timedelta(0), datetime.timedelta(1000)),
    types.DecimalType: st.decimals(Decimal(0), Decimal(SPAN), places=2),
    types.RawType: st.integers(0, SPAN).map(lambda number: msgspec.Raw(msgspec.msgpack.encode(number))),
}

METHODS: Final[dict[type, Callable[[Values, Any], SearchStrategy[Any]]]] = {
    types.IntType: Values.integers,
    types.FloatType: Values.floats,
    types.StrType: Values.texts,
    types.BytesType: Values.blobs,
    types.EnumType: Values.choices,
    types.LiteralType: Values.literals,
    types.UnionType: Values.unions,
    types.ListType: Values.sequences,
    types.SetType: Values.sequences,
    types.FrozenSetType: Values.sequences,
    types.VarTupleType: Values.sequences,
    types.TupleType: Values.tuples,
    types.DictType: Values.dictionaries,
    types.StructType: Values.structures,
    types.DataclassType: Values.structures,
    types.NamedTupleType: Values.structures,
    types.TypedDictType: Values.structures,
}
