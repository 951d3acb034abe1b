"""Arguments from types, and from strategies of the service."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import strategies as st

import antiphon
from antiphon.services.advise.search import explore
from antiphon.services.advise.values import calls_of
from antiphon.services.description import describe


class Colour(Enum):
    RED = 1
    BLUE = 2


class Line(msgspec.Struct):
    name: str
    count: Annotated[int, msgspec.Meta(ge=1, le=5)] = 1


@dataclass
class Size:
    width: float
    height: float | None


class Pair(NamedTuple):
    one: int
    other: str


class Options(TypedDict):
    fast: bool


class Everything(antiphon.Service):
    @antiphon.operation(order="total", keys=("name", "number", "several", "raw", "perhaps"))
    def take(
        self,
        store: antiphon.ServiceStore,
        name: str,
        number: int,
        several: list[str],
        raw: bytes,
        perhaps: UUID | None,
        line: Line,
        size: Size,
        pair: Pair,
        options: Options,
        colour: Colour,
        word: Literal["a", 3],
        lines: dict[str, list[Line]],
        bounded: Annotated[int, msgspec.Meta(gt=10, lt=20, multiple_of=5)],
        negative: Annotated[int, msgspec.Meta(lt=0)],
        text: Annotated[str, msgspec.Meta(pattern="^x+$")],
        long: Annotated[str, msgspec.Meta(min_length=7)],
        moments: tuple[datetime.datetime, datetime.date, datetime.timedelta],
        price: Decimal,
        numbers: frozenset[int],
        rest: tuple[int, ...],
        anything: Any,
        share: Annotated[float, msgspec.Meta(ge=0, lt=1)],
    ) -> None: ...


def test_values_of_every_type_are_drawn() -> None:
    drawn: list[Any] = []
    explore(calls_of(describe(Everything))[1]["take"], lambda call: drawn.append(call.arguments), 60, 0)
    assert len(drawn) == 60
    assert {one.name for one in drawn} <= {"a", "b", "c"} and {one.number for one in drawn} <= {1, 2, 3}
    assert {one.bounded for one in drawn} == {15}
    assert max(one.negative for one in drawn) < 0
    assert {one.colour for one in drawn} == set(Colour)


class Own(antiphon.Service):
    @antiphon.operation(order="total")
    def first(self, store: antiphon.ServiceStore, text: str) -> None: ...

    @antiphon.operation(order="total")
    def second(self, store: antiphon.ServiceStore, text: str) -> None: ...

    @staticmethod
    def strategies() -> dict[str, Any]:
        return {"text": st.just("general"), "second.text": st.just("special")}


def test_strategies_of_the_service_come_first() -> None:
    drawn: list[str] = []
    for calls in calls_of(describe(Own))[0].values():
        explore(calls, lambda call: drawn.append(str(call)), 1, 0)
    assert drawn == ["first('general')", "second('special')"]


class Misnamed(Own):
    @staticmethod
    def strategies() -> dict[str, Any]:
        return {"txt": st.just("general")}


class NoStrategy(Own):
    @staticmethod
    def strategies() -> dict[str, Any]:
        return {"text": "general"}


@pytest.mark.parametrize(
    ("service", "sentence"),
    [
        (Misnamed, r"Misnamed\.strategies names 'txt', and no operation has such a parameter"),
        (NoStrategy, r"NoStrategy\.strategies gives 'text' no strategy of Hypothesis"),
    ],
)
def test_wrong_strategies_are_refused(service: Any, sentence: str) -> None:
    with pytest.raises(antiphon.UsageError, match=sentence):
        calls_of(describe(service))
