"""Messages of a node that lies: each has the right form, and says whatever a program may fail at.

A node of the cluster passes every handshake, so its frames are decoded and handed to the processes of others. These
messages are made from the types of their fields (:mod:`antiphon.transport.schema`), with the topics and nodes of the
cluster that is attacked, so that most of them are not refused by the decoder. The same seed makes the same messages.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec import inspect

from antiphon.api.batch_codec import encode_columns
from antiphon.api.columns import Author, Columns
from antiphon.kernel.errors import ProtocolError
from antiphon.transport.codec import Codec
from antiphon.transport.peer_messages import PEER_CONTROLS
from antiphon.transport.schema import (
    ENCLOSED,
    FABRIC_KINDS,
    FIELDS,
    KINDS,
    LISTS,
    NESTED,
    SPECIAL,
    SPECIALLY_NESTED,
    parameters,
)

ENTRIES_AT_MOST: Final = 6
"""Lists of a made message have about so many entries; a long one has ``LONG``."""

TRIES: Final = 50
"""How often a message is made again that every decoder would refuse."""

LONG: Final = 50_000
LONG_SHARE: Final = 0.01
CONTROL_SHARE: Final = 0.15
REFUSED_SHARE: Final = 0.02
"""So many values are such that nodes refuse them at once: a peer that is thrown out cannot lie for a while."""

EDGES: Final = (0, 1, 2, 63, 64, 1000, 1 << 20, (1 << 22) - 1, 1 << 31, (1 << 41) - 1, 1 << 61, (1 << 63) - 1)
FAREWELLS: Final = frozenset({"Hello", "Refused", "Expelled", "LeaveNotice"})
"""Messages after which nobody listens to their sender any more."""


class Lies:
    """Makes messages of one fabric. ``nodes`` and ``topics`` are the numbers that the cluster knows."""

    def __init__(self, fabric: str, seed: int, nodes: Sequence[int], topics: Sequence[int]) -> None:
        self._chance = random.Random(seed)
        self.nodes = list(nodes)
        self.topics = list(topics)
        self._codec = Codec(PEER_CONTROLS, FABRIC_KINDS[fabric])
        self._kinds = [kind for kind in FABRIC_KINDS[fabric] if kind not in ENCLOSED]
        self._controls = [kind for kind in PEER_CONTROLS if kind.__name__ not in FAREWELLS]
        # What nodes would refuse at once if it were anything else.
        self._words = {"address": "127.0.0.1:1", "fabric": fabric, "batches": "causal", "order": "causal"}
        self._numbers = {kind: number for number, kind in enumerate(KINDS)}
        good = encode_columns(Columns(1, 0, [b"forged"]))
        self._payloads = [good, good, encode_columns(Columns(1, 0, [b""] * 3), Author(7, 1 << 40))]

    def message(self) -> tuple[str, bytes]:
        """The next message, and the name of its kind; mostly one that the decoder of a node takes."""
        for _ in range(TRIES):
            kind, frame = self._any_message()
            try:
                self._codec.decode(frame)
                break
            except ProtocolError:
                continue
        return kind, frame

    def _any_message(self) -> tuple[str, bytes]:
        if self._chance.random() < CONTROL_SHARE:
            kind: Any = self._chance.choice(self._controls)
            return kind.__name__, msgspec.msgpack.encode(self._struct(inspect.type_info(kind)))
        kind = self._chance.choice(self._kinds)
        return kind.__name__, msgspec.msgpack.encode(self._made(kind, 0))

    def _made(self, kind: type[Any], depth: int) -> list[Any]:
        """A message of a protocol as it is on the wire: its number, and its fields."""
        return [self._numbers[kind], *(self._field(kind, name, depth) for name in parameters(kind))]

    def _field(self, kind: type[Any], name: str, depth: int) -> Any:
        if name == "parents":
            return {node: -1 if node == self.nodes[0] else self.nodes[0] for node in self.nodes}
        if name == "root":
            return self.nodes[0]
        nested = SPECIALLY_NESTED.get((kind, name), NESTED.get(name))
        if nested is None:
            return self._value(inspect.type_info(SPECIAL.get((kind, name)) or FIELDS[name]), name)
        if name in LISTS:
            return [
                self._made(self._chance.choice(nested), depth + 1) for _ in range(0 if depth > 2 else self._count())
            ]
        return self._made(self._chance.choice(nested), depth + 1)

    def _count(self) -> int:
        return self._chance.randrange(ENTRIES_AT_MOST)

    def _value(self, kind: Any, name: str) -> Any:
        make = MAKERS.get(type(kind))
        assert make is not None, f"{name}: nothing here makes a {type(kind).__name__}"
        return make(self, kind, name)

    def _integer(self, kind: inspect.IntType, name: str) -> int:
        lowest = -(1 << 63) if kind.ge is None else kind.ge
        highest = (1 << 63) - 1 if kind.le is None and kind.lt is None else kind.le if kind.lt is None else kind.lt - 1
        assert highest is not None, "one of the two bounds it"
        what = self._chance.random()
        if name == "topic":
            found = self._chance.choice(self.topics) if self.topics and what < 0.95 else self._chance.choice(EDGES)
        elif what < 0.4:
            found = self._chance.choice(self.nodes)
        elif what < 0.8:
            found = self._chance.randrange(40)
        elif what < 0.9:
            found = self._chance.choice(EDGES)
        else:
            found = -self._chance.choice(EDGES)
        return int(min(max(found, lowest), highest))

    def _list(self, kind: inspect.ListType, name: str) -> list[Any]:
        most = LONG if kind.max_length is None else kind.max_length
        is_long = isinstance(kind.item_type, inspect.IntType) and self._chance.random() < LONG_SHARE
        wanted = LONG if is_long else self._count()
        count = max(min(wanted, most), kind.min_length or 0)
        return [self._value(kind.item_type, name) for _ in range(count)]

    def _dict(self, kind: inspect.DictType, name: str) -> dict[Any, Any]:
        return {self._value(kind.key_type, name): self._value(kind.value_type, name) for _ in range(self._count())}

    def _struct(self, kind: Any) -> Any:
        fields = [self._value(field.type, field.name) for field in kind.fields]
        return fields if kind.cls.__struct_config__.tag is None else [kind.cls.__struct_config__.tag, *fields]

    def _union(self, kind: inspect.UnionType, name: str) -> Any:
        return self._value(self._chance.choice(kind.types), name)

    def _text(self, kind: inspect.StrType, name: str) -> str:
        if self._chance.random() < REFUSED_SHARE:
            return self._chance.choice(("", "lies.>", "x" * min(200, kind.max_length or 200)))
        return self._words.get(name) or self._chance.choice(("a", "lies.one", "lies.two"))

    def _bytes(self, kind: inspect.BytesType, name: str) -> bytes:
        return b"\x00" * 9 if self._chance.random() < REFUSED_SHARE else self._chance.choice(self._payloads)


MAKERS: Final[dict[type[Any], Callable[[Lies, Any, str], Any]]] = {
    inspect.IntType: Lies._integer,
    inspect.ListType: Lies._list,
    inspect.DictType: Lies._dict,
    inspect.StructType: lambda lies, kind, _: lies._struct(kind),
    inspect.UnionType: Lies._union,
    inspect.StrType: Lies._text,
    inspect.TupleType: lambda lies, kind, name: [lies._value(each, name) for each in kind.item_types],
    inspect.VarTupleType: lambda lies, kind, name: [lies._value(kind.item_type, name) for _ in range(lies._count())],
    inspect.BytesType: Lies._bytes,
    inspect.BoolType: lambda lies, *_: lies._chance.random() < 0.5,
    inspect.FloatType: lambda lies, *_: lies._chance.choice((0.0, -1.0, 1e300)),
    inspect.NoneType: lambda *_: None,
}
