"""The contents of protocol messages on a link: their numbers, the types of their fields, and what must fit.

A fabric gives its messages their numbers, beside their classes. The layout is read off the constructors. The name of
a field decides its legal values, and means the same in all messages: a new name needs a line in ``FIELDS``. The bytes
are made elsewhere (:mod:`antiphon.transport.codec`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final

import msgspec

from antiphon.fabrics.cube import diagnosis
from antiphon.fabrics.cube import messages as cube
from antiphon.fabrics.cube.repair import messages as cube_faults
from antiphon.fabrics.cube.total_order import messages as cube_totals
from antiphon.fabrics.gossip import messages as gossip
from antiphon.fabrics.gossip.epto import messages as epto
from antiphon.fabrics.gossip.epto.adaptation import DRAWS
from antiphon.fabrics.gossip.sampling import hyparview
from antiphon.fabrics.registry import FABRICS
from antiphon.fabrics.tree import messages as tree
from antiphon.fabrics.tree.quorum import Council
from antiphon.fabrics.tree.topology import GONE_AT_MOST, Overlay, astray
from antiphon.kernel.message import CAUSAL, ORDER_NAMES, Keyed
from antiphon.kernel.process import NO_NODE
from antiphon.orders.order import KeyedOrdered, Ordered, Placed

LENGTH_BYTES: Final = 4
FRAME_BYTES_AT_MOST: Final = 64 << 20
"""A longer frame is refused: nothing that a node sends comes near it."""

BATCH_BYTES_AT_MOST: Final = FRAME_BYTES_AT_MOST // 2
"""A client's batch becomes part of a frame between nodes, which must not be too long."""

CLIENT_FRAME_BYTES_AT_MOST: Final = BATCH_BYTES_AT_MOST + (64 << 10)
"""The longest frame of a client: such a batch, and what is said about it."""

FABRIC_KINDS: Final[dict[str, tuple[type[Any], ...]]] = {
    name: tuple(kind for _, kind in sorted(fabric.implementation().messages.items()))
    for name, fabric in FABRICS.items()
}
"""What the nodes of each fabric understand."""

DIAGNOSIS_KINDS: Final[tuple[type[Any], ...]] = tuple(diagnosis.NUMBERED.values())
"""Nodes understand them where they run the diagnosis, and nowhere else."""


def numbered(tables: Iterable[Mapping[int, type[Any]]]) -> tuple[type[Any], ...]:
    """The classes in the order of their numbers; no number has two classes, and none is left out."""
    found: dict[int, type[Any]] = {}
    for number, kind in (entry for table in tables for entry in table.items()):
        assert found.setdefault(number, kind) is kind, f"{number} is the number of {found[number].__name__}"
    assert sorted(found) == list(range(len(found))), f"{sorted(found)}: take the next number"
    return tuple(found[number] for number in range(len(found)))


KINDS: Final = numbered([*(fabric.implementation().messages for fabric in FABRICS.values()), diagnosis.NUMBERED])
"""All messages of protocols; the place of each is its number on the wire."""

HELD_FIRST: Final[tuple[type[Any], ...]] = (
    KeyedOrdered,
    Placed,
    cube_totals.KeyLockRequest,
    epto.Stamped,
    Keyed,
    tree.LockItem,
)
"""What others hold that have lower numbers."""

ENCLOSED: Final = frozenset({Keyed, Overlay, Council, gossip.TreePosition, gossip.Report, epto.Stamped})
"""What travels only inside a message; a log holds such publications as they are."""

PayloadCheck = Callable[[bytes], None]

Integer = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Integers = list[Integer]
Stamp = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Identifier = Annotated[int, msgspec.Meta(ge=0, lt=1 << 22)]
Sequence = Annotated[int, msgspec.Meta(ge=0, lt=1 << 41)]
Frontier = dict[Number, Sequence]
"""Keys are the lives of brokers, which have their incarnation above their identifier."""

Parents = dict[Identifier, Annotated[int, msgspec.Meta(ge=-1, lt=1 << 22)]]

FIELDS: Final[dict[str, Any]] = {
    "source": Identifier,
    "sequence": Sequence,
    "topic": Number,
    "timestamp": Integer,
    "payload": bytes,
    "order": Annotated[int, msgspec.Meta(ge=0, lt=len(ORDER_NAMES))],
    "dependencies": Integers,
    "counter": Number,
    "was_leaf": bool,
    "targets": Integers | None,
    "entries": Integers,
    "announced": Integers,
    "place": Number,
    "attempt": Number,
    "before": Number,
    "version": Number,
    "voters": Integers,
    "proposal": Number,
    "proposed": Integers,
    "added": Integers,
    "removed": Integers,
    "members": Integers,
    "past": Integers,
    "keys": Integers,
    "origin": Identifier,
    "number": Sequence,
    "kind": Annotated[int, msgspec.Meta(ge=0, le=int(tree.VOID))],
    "epoch": Number,
    "root": Identifier,
    "champion": Identifier,
    "parents": Parents,
    "route": list[Identifier],
    "orphans": list[Identifier],
    "names": list[Number],
    "frontier": Frontier | None,
    "base": Frontier,
    "completed": Frontier,
    "frontiers": dict[Number, Frontier],
    "is_forced": bool,
    "is_granted": bool,
    "is_settled": bool,
    "is_apart": bool,
    "is_final": bool,
    "can_order": bool,
    "absent": list[Identifier] | None,
    "gone": Annotated[list[Identifier], msgspec.Meta(max_length=GONE_AT_MOST)] | None,
    "bodies": list[Annotated[list[Identifier], msgspec.Meta(min_length=1)]],
    "key": Annotated[int, msgspec.Meta(ge=0, lt=1 << (22 + gossip.TREE_BITS))],
    "path": Integers,
    "depth": Annotated[int, msgspec.Meta(ge=-1, lt=1 << 22)],
    "last": Sequence,
    "numbers": Integers,
    "floors": Integers,
    "pulses": Integers,
    "uptime": Integer,
    "load": Number,
    "bandwidth": Number,
    "stamp": Integer,
    "echo": Integer,
    "held": Integer,
    "hops": Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)],
    "nodes": Integers,
    "is_upward": bool,
    "is_answer": bool,
    "is_urgent": bool,
    "wants_pulse": bool,
    "question": Number,
    "stamps": Integers,
    "last_stamp": Integer,
    "last_name": Number,
    "whole": bool,
    "latest": Stamp,
    "sent_at": Integer,
    "minima": Integers,
    "have": Integers,
    "asks": Annotated[int, msgspec.Meta(ge=0, le=int(cube_faults.RESPONSE_TO_ALL))],
    "is_member": bool,
    "is_last": bool,
    "is_past": bool,
    "news": Integers,
    "incarnation": Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)],
    "reserved": Sequence,
    "brokers": list[Identifier],
}
"""What a field may hold, by its name."""

SPECIAL: Final[dict[tuple[type[Any], str], Any]] = {
    (Ordered, "order"): Annotated[int, msgspec.Meta(ge=0, le=int(CAUSAL))],
    (gossip.GossipFrontierResponse, "frontier"): Integers,
    (tree.Item, "origin"): Number,
    (tree.LockItem, "origin"): Number,
    (cube_totals.LockManagerNotice, "origin"): Annotated[int, msgspec.Meta(ge=-1, lt=1 << 22)],
    (gossip.GossipFrontierResponse, "stamp"): Stamp,
    (epto.Stamped, "stamp"): Stamp,
    (epto.Ball, "names"): Integers,
    (epto.Ball, "hops"): Integers,
}
"""Where a class means something else than the name does elsewhere: what has a total order is of another class."""

NESTED: Final[dict[str, tuple[type[Any], ...]]] = {
    "packet": (Ordered, KeyedOrdered, Placed, cube.Bundle, cube_totals.KeyLockRequest),
    "publications": (Ordered, KeyedOrdered, Placed),
    "publication": (Keyed,),
    "overlay": (Overlay,),
    "council": (Council,),
    "locks": (tree.Item, tree.LockItem),
    "history": (tree.Item, tree.LockItem),
    "joins": (tree.JoinRequest,),
    "position": (gossip.TreePosition,),
    "positions": (gossip.TreePosition,),
    "report": (gossip.Report,),
}
"""Fields that hold messages or parts of them."""

SPECIALLY_NESTED: Final[dict[tuple[type[Any], str], tuple[type[Any], ...]]] = {
    (gossip.Data, "publication"): (Ordered, epto.Stamped),
    (gossip.FetchResponse, "publication"): (Ordered, epto.Stamped),
    (epto.Ball, "publications"): (epto.Stamped,),
}
"""Where a class holds something else under that name than others do."""

LISTS: Final = frozenset({"publications", "locks", "history", "joins", "positions"})
"""Those of them that hold a list."""


def read_parameters(kind: type[Any]) -> list[str]:
    """The names of a constructor's arguments; those of compiled classes are parsed."""
    names = list(inspect.signature(kind).parameters)
    assert "args" not in names, f"{kind.__name__}: compiled, a default that is no constant hides all arguments"
    return names


PARAMETERS: Final = {kind: read_parameters(kind) for kind in KINDS}
"""Read once, before there are threads: in Python 3.11 two of them cannot parse at a time."""


ADDED: Final[dict[tuple[type[Any], str], Any]] = {
    (cube_faults.Digest, "question"): 0,
    (cube_totals.LockManagerNotice, "proposal"): 0,
    (cube_totals.LockManagerNotice, "proposed"): [],
    (gossip.GossipFrontierResponse, "last_stamp"): -1,
    (gossip.GossipFrontierResponse, "last_name"): 0,
}
"""Fields that came after ``OLDEST_VERSION``, by class and name, each with its value in frames that lack it.

They stand at the end of the constructor, in the order in which they came."""

SINCE: Final[dict[type[Any], int]] = {}
"""The version that brought a kind, for kinds of protocols and hosts that are younger than ``OLDEST_VERSION``.

They are not sent to a peer of an earlier version, so a protocol must do without them where such a peer is."""


def may_send(message: object, version: int) -> bool:
    """Whether a peer of some version knows the kind of a message."""
    return SINCE.get(type(message), 0) <= version


def parameters(kind: type[Any]) -> list[str]:
    """The names of a constructor's arguments, which are the fields of the message."""
    return PARAMETERS[kind]


def check_overlay(shape: Any) -> None:
    """Refuse parents that are no tree: brokers follow them to the root."""
    parents: dict[int, int] = shape.parents
    if parents.get(shape.root) != -1:
        raise ValueError(f"broker {shape.root} is no root of its tree")
    broker = astray(parents, shape.root)
    if broker != NO_NODE:
        raise ValueError(f"broker {broker} has no way to root {shape.root}")


def check_nodes(nodes: list[int]) -> None:
    """Refuse identifiers that nobody can have."""
    if any(not 0 <= node < 1 << 22 for node in nodes):
        raise ValueError("there is no node with such an identifier")


def check_report(shape: Any) -> None:
    """Refuse lists that do not fit together: who reads one of them finds its place in the others."""
    count = len(shape.numbers) // 2
    if 2 * count != len(shape.numbers) or len(shape.floors) not in (0, count) or len(shape.pulses) % 2:
        raise ValueError("a report has a source, a number and perhaps a floor for each stream, and pulses in pairs")
    if len(shape.keys) != len(shape.positions):
        raise ValueError("a report has a position for each structure")
    check_nodes(shape.numbers[::2])


def check_ball(shape: Any) -> None:
    """Refuse lists that do not fit together, and payloads: on topics these come another way."""
    if not len(shape.names) == len(shape.stamps) == len(shape.hops) or shape.whole or shape.publications:
        raise ValueError("a ball has a stamp and a number of relays for each name, and nothing else")
    in_range = all(0 <= stamp < 1 << 62 for stamp in shape.stamps) and all(0 <= hops < 1 << 16 for hops in shape.hops)
    if not in_range or any(name < 0 for name in shape.names):
        raise ValueError("names, stamps and numbers of relays are not negative, and not so large")


def check_probe(shape: Any) -> None:
    """Refuse what is no estimate: all nodes draw as many numbers."""
    if len(shape.minima) != DRAWS or min(shape.minima) < 0:
        raise ValueError(f"an estimate of the size has {DRAWS} numbers, none of them negative")


def check_news(shape: Any) -> None:
    """Refuse news that are no pairs of a node and a number."""
    if len(shape.news) % 2 or any(number < 0 for number in shape.news[1::2]):
        raise ValueError("news are pairs of a node and how often it has changed")
    check_nodes(shape.news[::2])


CHECKS: Final[dict[type[Any], Callable[[Any], None]]] = {
    diagnosis.DiagnosisRequest: check_news,
    diagnosis.DiagnosisResponse: check_news,
    diagnosis.News: check_news,
    Overlay: check_overlay,
    gossip.Report: check_report,
    epto.Ball: check_ball,
    epto.Probe: check_probe,
    hyparview.Shuffle: lambda shape: check_nodes(shape.nodes),
    hyparview.ShuffleReply: lambda shape: check_nodes(shape.nodes),
}
"""What has to hold between the fields of a message."""
