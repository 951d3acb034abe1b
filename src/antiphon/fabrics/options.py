"""One description of the options of a fabric, from which scenarios and live nodes have theirs.

A fabric describes its options in ``assembly/settings.py`` of its folder, as the fields of a struct. A field has its
type with bounds, its default, and a sentence for the documentation. Scenarios take the struct as it is, and count in
ticks. Live nodes take the options that are marked with :class:`Live` or :class:`Seconds`, as a table of their settings
(:func:`live_table`); there a tick is a microsecond, and times are given in seconds.

    patience: Annotated[Positive, "How long ...", Seconds(0.5)] = 2000    # patience_seconds = 0.5 on live nodes
"""

from __future__ import annotations

import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar, cast

import msgspec
from msgspec import Meta

TICKS_PER_SECOND: Final = 1_000_000
"""Of live nodes."""

MOST: Final = 1 << 31

Flag = Annotated[bool, Meta(description="true or false", examples=[True])]
NodeNumber = Annotated[int, Meta(ge=0, lt=1 << 22, description="the number of a node, from 0 up", examples=[5])]
Positive = Annotated[int, Meta(ge=1, le=MOST, description="a number, 1 or more", examples=[4])]
NotNegative = Annotated[int, Meta(ge=0, le=MOST, description="a number, 0 or more", examples=[0])]

Options = TypeVar("Options", bound=msgspec.Struct)


@dataclass(frozen=True)
class Live:
    """Live nodes have the option too. Without a default, theirs is that of scenarios."""

    default: Any = msgspec.UNSET


@dataclass(frozen=True)
class Seconds:
    """Live nodes have the option too, in seconds, under a ``name`` that says so."""

    default: float
    most: float = 3600
    least: float | None = None
    """The least value that is allowed; without it, any time above 0."""
    name: str = ""


@dataclass(frozen=True)
class Option:
    """An option, as the documentation and live nodes see it."""

    name: str
    annotation: Any
    default: Any
    help: str
    live: Live | Seconds | None = None

    @property
    def live_name(self) -> str:
        """The name on live nodes."""
        if isinstance(self.live, Seconds):
            return self.live.name or f"{self.name}_seconds"
        return self.name

    def live_field(self) -> tuple[str, Any, Any]:
        """The field in the table of live nodes: name, type and default."""
        live = self.live
        if isinstance(live, Seconds):
            bounds = Meta(gt=0, le=live.most) if live.least is None else Meta(ge=live.least, le=live.most)
            return self.live_name, Annotated[float, bounds, self.help], live.default
        assert live is not None, "live nodes have the option"
        return self.name, self.annotation, self.default if live.default is msgspec.UNSET else live.default

    def from_live(self, value: Any) -> Any:
        """The value in ticks, where live nodes count seconds."""
        return int(value * TICKS_PER_SECOND) if isinstance(self.live, Seconds) else value


def options_of(kind: type[msgspec.Struct]) -> Iterator[Option]:
    """The options that a struct describes, in its order."""
    for field in msgspec.structs.fields(kind):
        notes = typing.get_args(field.type)[1:] if typing.get_origin(field.type) is Annotated else ()
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        yield Option(
            field.name,
            field.type,
            default,
            next((note for note in notes if isinstance(note, str)), ""),
            next((note for note in notes if isinstance(note, Live | Seconds)), None),
        )


def live_table(kind: type[msgspec.Struct], base: type[Options]) -> type[Options]:
    """The table of live nodes: the options that only they have, as ``base`` lists them, and those of ``kind``."""
    table = msgspec.defstruct(
        base.__name__,
        [option.live_field() for option in options_of(kind) if option.live is not None],
        bases=(base,),
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )
    return cast("type[Options]", table)


def from_live(kind: type[Options], table: msgspec.Struct) -> Options:
    """The options of scenarios, in ticks, that mean what a table of live nodes says."""
    values = {
        option.name: option.from_live(getattr(table, option.live_name))
        for option in options_of(kind)
        if option.live is not None
    }
    return kind(**values)
