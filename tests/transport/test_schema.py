"""Messages on the wire: every class comes back as it was, and bytes that are no message are refused as such."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube import messages as cube
from antiphon.fabrics.cube.total_order.messages import KeyLockRequest
from antiphon.fabrics.gossip import messages as gossip
from antiphon.fabrics.gossip.epto import messages as epto
from antiphon.fabrics.gossip.sampling import hyparview
from antiphon.fabrics.gossip.sampling.service import SamplingMessage
from antiphon.fabrics.tree import messages as tree
from antiphon.fabrics.tree.quorum import Council
from antiphon.fabrics.tree.topology import Overlay
from antiphon.kernel.errors import ProtocolError
from antiphon.kernel.message import Keyed, ProtocolMessage, Publication
from antiphon.membership.messages import PROTOCOL_VERSION, Hello
from antiphon.orders.order import KeyedOrdered, Ordered, Placed
from antiphon.sessions.client_messages import CLIENT_CONTROLS
from antiphon.transport.codec import Codec
from antiphon.transport.peer_messages import PEER_CONTROLS, TopicAnnouncement
from antiphon.transport.schema import ENCLOSED, FABRIC_KINDS, FIELDS, KINDS, NESTED, parameters

CONTROLS = (*PEER_CONTROLS, *CLIENT_CONTROLS)
LEAST, MOST = -(1 << 63), (1 << 63) - 1


def array_of(numbers: list[int]) -> Any:
    """A flat array."""
    return vec[i64](numbers)


sources = st.integers(0, (1 << 22) - 1)
sequences = st.integers(0, (1 << 41) - 1)
topics = st.integers(0, (1 << 62) - 1)
integers = st.lists(st.integers(LEAST, MOST), max_size=8).map(array_of)
ordered = st.builds(
    Ordered, sources, sequences, st.integers(LEAST, MOST), st.binary(max_size=64), integers, topics, st.integers(0, 2)
)
keyed_ordered = st.builds(
    KeyedOrdered, sources, sequences, st.integers(LEAST, MOST), st.binary(max_size=64), integers, topics,
    st.integers(0, 3), integers,
)  # fmt: skip
placed = st.builds(
    Placed, sources, sequences, st.integers(LEAST, MOST), st.binary(max_size=64), integers, topics,
    st.integers(0, 3), integers, st.integers(0, MOST),
)  # fmt: skip
bundles = st.lists(ordered | keyed_ordered | placed, min_size=1, max_size=3).map(lambda found: cube.Bundle([*found]))
locks = st.builds(KeyLockRequest, sources, sequences, topics, integers, st.integers(0, MOST), st.integers(0, MOST))

frontiers = st.dictionaries(sources, sequences, max_size=4)
keyed = st.builds(
    Keyed, sources, sequences, st.integers(LEAST, MOST), st.binary(max_size=64), topics, st.integers(0, 3), integers
)
items = st.builds(tree.Item, sources, sequences, st.integers(0, 2), keyed)
joins = st.builds(tree.JoinRequest, topics, st.none() | frontiers, frontiers, frontiers, st.lists(items, max_size=2))
bodies = st.lists(st.lists(sources, min_size=1, max_size=4), max_size=2)
councils = st.builds(Council, sequences, bodies)
epochs = st.integers(0, MOST)
overlays = st.builds(
    lambda epoch, count, absent, council, can_order, gone: Overlay(
        epoch,
        0,
        {broker: (broker - 1) // 2 if broker else -1 for broker in range(count)},
        absent,
        council,
        can_order,
        gone,
    ),
    epochs,
    st.integers(1, 9),
    st.lists(sources, max_size=3),
    councils,
    st.booleans(),
    st.lists(sources, max_size=3),
)

nodes = st.lists(sources, max_size=4).map(array_of)
positions = st.builds(gossip.TreePosition, nodes, st.integers(-1, 64))
pairs = st.lists(st.tuples(sources, sequences), max_size=3).map(lambda found: [part for pair in found for part in pair])


stamps = st.integers(0, (1 << 62) - 1)
stamped = st.builds(
    epto.Stamped, sources, sequences, st.integers(LEAST, MOST), st.binary(max_size=64), topics, stamps, integers
)


@st.composite
def balls(draw: st.DrawFn) -> epto.Ball:
    """Balls whose lists fit together."""
    entries = draw(st.lists(st.tuples(st.integers(0, MOST), stamps, st.integers(0, 99)), max_size=4))
    names, places, hops = (array_of([entry[place] for entry in entries]) for place in range(3))
    return epto.Ball(draw(sources), draw(topics), names, places, hops, [], False, draw(stamps))


@st.composite
def reports(draw: st.DrawFn) -> gossip.Report:
    """Reports whose lists fit together."""
    numbers = draw(pairs)
    floors = numbers[1::2] if draw(st.booleans()) else []
    places = draw(st.lists(positions, max_size=3))
    figures = [draw(st.integers(0, MOST)) for _ in range(3)]
    pulses = draw(pairs)
    return gossip.Report(
        array_of(numbers), array_of(floors), array_of([64 * number for number in range(len(places))]), places,
        array_of(pulses), *figures,
    )  # fmt: skip


FIELD_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "source": sources,
    "sequence": sequences,
    "topic": topics,
    "timestamp": st.integers(LEAST, MOST),
    "payload": st.binary(max_size=64),
    "order": st.integers(0, 2),
    "dependencies": integers,
    "counter": st.integers(0, MOST),
    "was_leaf": st.booleans(),
    "targets": st.none() | integers,
    "entries": integers,
    "announced": integers,
    "place": st.integers(0, MOST),
    "attempt": st.integers(0, MOST),
    "before": st.integers(0, MOST),
    "version": st.integers(0, MOST),
    "voters": integers,
    "proposal": st.integers(0, MOST),
    "proposed": integers,
    "added": integers,
    "removed": integers,
    "members": integers,
    "past": integers,
    "packet": ordered | keyed_ordered | placed | bundles | locks,
    "publications": st.lists(ordered | keyed_ordered, min_size=1, max_size=3),
    "keys": integers,
    "origin": sources,
    "incarnation": st.integers(0, (1 << 40) - 1),
    "reserved": sequences,
    "brokers": st.lists(sources, max_size=4),
    "number": sequences,
    "kind": st.integers(0, 2),
    "publication": keyed,
    "epoch": epochs,
    "root": sources,
    "champion": sources,
    "overlay": overlays,
    "parents": st.dictionaries(sources, st.integers(-1, 9), max_size=4),
    "route": st.lists(sources, max_size=4),
    "orphans": st.lists(sources, max_size=4),
    "names": st.lists(topics, max_size=4),
    "frontier": frontiers,
    "base": frontiers,
    "completed": frontiers,
    "frontiers": st.dictionaries(topics, frontiers, max_size=3),
    "locks": st.lists(items, max_size=2),
    "history": st.lists(items, max_size=2),
    "joins": st.lists(joins, max_size=2),
    "is_forced": st.booleans(),
    "is_granted": st.booleans(),
    "is_settled": st.booleans(),
    "is_apart": st.booleans(),
    "is_final": st.booleans(),
    "can_order": st.booleans(),
    "absent": st.lists(sources, max_size=3),
    "gone": st.lists(sources, max_size=3),
    "council": councils,
    "bodies": bodies,
    "key": st.integers(0, (1 << 28) - 1),
    "path": nodes,
    "depth": st.integers(-1, 64),
    "position": positions,
    "positions": st.lists(positions, max_size=3),
    "report": reports(),
    "last": sequences,
    "numbers": integers,
    "floors": integers,
    "pulses": integers,
    "uptime": st.integers(LEAST, MOST),
    "load": st.integers(0, MOST),
    "bandwidth": st.integers(0, MOST),
    "stamp": st.integers(LEAST, MOST),
    "echo": st.integers(LEAST, MOST),
    "held": st.integers(LEAST, MOST),
    "hops": st.integers(0, 9),
    "last_stamp": st.integers(LEAST, MOST),
    "last_name": st.integers(0, MOST),
    "nodes": nodes,
    "is_upward": st.booleans(),
    "is_answer": st.booleans(),
    "is_urgent": st.booleans(),
    "wants_pulse": st.booleans(),
    "question": st.integers(0, MOST),
    "sent_at": st.integers(LEAST, MOST),
    "minima": st.lists(st.integers(0, MOST), min_size=64, max_size=64).map(array_of),
    "have": integers,
    "asks": st.integers(0, 3),
    "is_member": st.booleans(),
    "is_last": st.booleans(),
    "is_past": st.booleans(),
    "news": st.lists(st.tuples(st.integers(0, (1 << 22) - 1), st.integers(0, MOST))).map(
        lambda pairs: array_of([each for pair in pairs for each in pair])
    ),
}
SPECIAL_VALUES: dict[tuple[type[Any], str], st.SearchStrategy[Any]] = {
    (gossip.Data, "publication"): ordered | stamped,
    (gossip.FetchResponse, "publication"): ordered | stamped,
    (gossip.GossipFrontierResponse, "frontier"): integers,
    (gossip.GossipFrontierResponse, "stamp"): stamps,
}


def values_of(kind: type[Any]) -> st.SearchStrategy[Any]:
    """Messages of a class."""
    if kind is epto.Ball:
        return balls()
    fields = [SPECIAL_VALUES.get((kind, name), FIELD_VALUES[name]) for name in parameters(kind)]
    return st.tuples(*fields).map(lambda values: kind(*values))


any_message = st.sampled_from([kind for kind in KINDS if kind not in ENCLOSED]).flatmap(values_of)


def comparable(value: object) -> object:
    """A message, a list or a flat array as plain data that can be compared."""
    if isinstance(value, (ProtocolMessage, Overlay, Council, gossip.TreePosition, gossip.Report)):
        return (type(value), [comparable(getattr(value, name)) for name in parameters(type(value))])
    if isinstance(value, (int, bytes, bool, dict)) or value is None:
        return value
    return [comparable(each) for each in value]  # type: ignore[attr-defined]


@given(any_message)
def test_every_message_comes_back_as_it_was(message: ProtocolMessage) -> None:
    assert comparable(Codec().decode(Codec().encode(message))) == comparable(message)


@given(any_message)
def test_what_came_in_goes_out_as_the_same_bytes(message: ProtocolMessage) -> None:
    encoded = Codec().encode(message)
    codec = Codec()
    assert codec.encode(codec.decode(encoded)) == encoded


@given(any_message, any_message)
def test_bytes_that_are_overwritten_are_forgotten(first: ProtocolMessage, second: ProtocolMessage) -> None:
    codec = Codec()
    buffer = bytearray(Codec().encode(first))
    message = codec.decode(memoryview(buffer))
    codec.forget()
    buffer[:] = bytes(len(buffer))
    assert isinstance(message, ProtocolMessage)
    assert codec.encode(message) == Codec().encode(first)
    assert codec.encode(second) == Codec().encode(second)


def messages_of_the_cube() -> list[type[ProtocolMessage]]:
    """The classes in ``messages.py`` that are sent; ``SurveyRequest`` and ``PublicationList`` are only base classes."""
    found = [kind for _, kind in inspect.getmembers(cube, inspect.isclass) if issubclass(kind, ProtocolMessage)]
    return [
        kind for kind in found if kind not in (ProtocolMessage, Publication, cube.SurveyRequest, cube.PublicationList)
    ]


def messages_of_the_tree() -> list[type[ProtocolMessage]]:
    """The classes of the broker tree that are sent; ``Known`` is only what three of them share."""
    found = [kind for _, kind in inspect.getmembers(tree, inspect.isclass) if issubclass(kind, ProtocolMessage)]
    return [kind for kind in found if kind not in (ProtocolMessage, Publication, tree.Known)]


def messages_of_gossip() -> list[type[ProtocolMessage]]:
    """The classes of BRISA and HyParView that are sent; ``SamplingMessage`` is only what some of them share."""
    found = [kind for module in (gossip, hyparview) for _, kind in inspect.getmembers(module, inspect.isclass)]
    sent = [kind for kind in found if issubclass(kind, ProtocolMessage)]
    return [kind for kind in sent if kind not in (ProtocolMessage, Publication, SamplingMessage)]


@pytest.mark.parametrize("kind", messages_of_the_cube() + messages_of_the_tree() + messages_of_gossip())
def test_no_message_of_the_protocol_was_forgotten(kind: type[ProtocolMessage]) -> None:
    assert kind in KINDS
    assert set(parameters(kind)) <= {*FIELDS, *NESTED}
    assert set(parameters(kind)) <= set(FIELD_VALUES), "these tests do not make such a field yet"


def test_the_layout_of_a_publication_stays_what_it_is() -> None:
    message = Ordered(3, 7, 1000, b"why?", vec[i64]([5, -6]), 9, 2)
    assert Codec().encode(message).hex() == "980003 07 cd03e8 c404 7768793f 92 05 fa 09 02".replace(" ", "")
    assert msgspec.msgpack.decode(Codec().encode(message)) == [0, 3, 7, 1000, b"why?", [5, -6], 9, 2]


def refused_or_read(data: bytes) -> None:
    """Bytes are a message, or are refused with the one error for that."""
    try:
        message = Codec(CONTROLS).decode(data)
    except ProtocolError:
        return
    assert isinstance(message, (ProtocolMessage, *CONTROLS))


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    refused_or_read(data)


@given(any_message, st.data())
def test_damaged_messages_are_refused_or_are_other_messages(message: ProtocolMessage, data: st.DataObject) -> None:
    encoded = bytearray(Codec().encode(message))
    for place in data.draw(st.lists(st.integers(0, len(encoded) * 8 - 1), min_size=1, max_size=4)):
        encoded[place // 8] ^= 1 << place % 8
    refused_or_read(bytes(encoded))


@given(any_message, st.data())
def test_a_message_cut_short_is_refused(message: ProtocolMessage, data: st.DataObject) -> None:
    encoded = Codec().encode(message)
    with pytest.raises(ProtocolError):
        Codec().decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(LEAST, (1 << 64) - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(st.integers(-1, 200), st.lists(anything, max_size=8))
def test_arrays_of_wrong_types_are_refused(number: int, fields: list[Any]) -> None:
    refused_or_read(msgspec.msgpack.encode([number, *fields]))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (1, -1),
        (1, 1 << 22),
        (2, 1 << 41),
        (3, 1 << 63),
        (4, "text"),
        (5, [1 << 63]),
        (5, [1.5]),
        (6, -1),
        (7, 3),
        (7, -1),
    ],
)
def test_a_field_out_of_its_range_is_refused(place: int, value: object) -> None:
    fields: list[Any] = [0, 3, 7, 1000, b"why?", [5], 9, 2]
    Codec().decode(msgspec.msgpack.encode(fields))
    fields[place] = value
    with pytest.raises(ProtocolError):
        Codec().decode(msgspec.msgpack.encode(fields))


@pytest.mark.parametrize(
    "ball",
    [
        epto.Ball(1, 2, array_of([3]), array_of([]), array_of([1]), [], False, 0),
        epto.Ball(1, 2, array_of([3]), array_of([-4]), array_of([1]), [], False, 0),
        epto.Ball(1, 2, array_of([3]), array_of([1 << 62]), array_of([1]), [], False, 0),
        epto.Ball(1, 2, array_of([-3]), array_of([4]), array_of([1]), [], False, 0),
        epto.Ball(1, 2, array_of([3]), array_of([4]), array_of([1 << 16]), [], False, 0),
        epto.Ball(1, 2, array_of([]), array_of([]), array_of([]), [], True, 0),
        epto.Probe(1, 2, 3, 4, array_of([5]), False),
        epto.Probe(1, 2, 3, 4, array_of([-1] * 64), False),
    ],
)
def test_lists_of_total_order_that_do_not_fit_are_refused(ball: ProtocolMessage) -> None:
    with pytest.raises(ProtocolError):
        Codec().decode(Codec().encode(ball))


def test_a_bundle_of_nothing_is_refused() -> None:
    with pytest.raises(ProtocolError):
        Codec().decode(msgspec.msgpack.encode([1, []]))


def test_too_few_fields_are_refused() -> None:
    with pytest.raises(ProtocolError):
        Codec().decode(msgspec.msgpack.encode([2, 3, 7]))


def test_messages_of_hosts_come_back_as_they_were() -> None:
    codec = Codec(CONTROLS)
    for control in (Hello(PROTOCOL_VERSION, "antiphon", "a", "host:1", "b"), TopicAnnouncement(["room"], True)):
        assert codec.decode(codec.encode_control(control)) == control


def test_a_fabric_understands_its_own_messages_only() -> None:
    install = tree.Install(Overlay(1, 0, {0: -1, 1: 0}))
    encoded = Codec(CONTROLS, FABRIC_KINDS["tree"]).encode(install)
    assert isinstance(Codec(CONTROLS, FABRIC_KINDS["tree"]).decode(encoded), tree.Install)
    with pytest.raises(ProtocolError):
        Codec(CONTROLS, FABRIC_KINDS["cube"]).decode(encoded)
    fetch = Codec(CONTROLS, FABRIC_KINDS["gossip"]).encode(gossip.FetchRequest(1, 2, array_of([3])))
    assert isinstance(Codec(CONTROLS, FABRIC_KINDS["gossip"]).decode(fetch), gossip.FetchRequest)
    with pytest.raises(ProtocolError):
        Codec(CONTROLS, FABRIC_KINDS["tree"]).decode(fetch)


def test_parts_of_messages_are_no_messages() -> None:
    publication = Keyed(1, 2, 3, b"why?", 4, 3, array_of([5]))
    encoded = Codec().encode(publication)
    with pytest.raises(ProtocolError, match="by itself"):
        Codec().decode(encoded)
    assert comparable(Codec().decode_publication(encoded)) == comparable(publication)
    with pytest.raises(ProtocolError, match="no publication"):
        Codec().decode_publication(Codec().encode(tree.Ready(1, 0)))


@pytest.mark.parametrize(
    ("parents", "wrong"),
    [
        ({0: 1, 1: 0}, "no root"),
        ({1: 0}, "no root"),
        ({0: -1, 1: 2, 2: 1}, "no way"),
        ({0: -1, 1: 7}, "no way"),
        ({0: -1, 1: -1}, "no way"),
    ],
)
def test_parents_that_are_no_tree_are_refused(parents: dict[int, int], wrong: str) -> None:
    with pytest.raises(ProtocolError, match=wrong):
        Codec().decode(Codec().encode(tree.Install(Overlay(1, 0, parents))))


def report_of(numbers: list[int], floors: list[int], keys: list[int], pulses: list[int]) -> gossip.Report:
    return gossip.Report(array_of(numbers), array_of(floors), array_of(keys), [], array_of(pulses), 0, 0, 1)


@pytest.mark.parametrize(
    "report",
    [
        report_of([1], [], [], []),
        report_of([1, 5, 2, 6], [5], [], []),
        report_of([1, 5], [], [64], []),
        report_of([1, 5], [], [], [7]),
        report_of([1 << 22, 5], [], [], []),
    ],
    ids=["half a pair", "a floor too few", "no position", "half a pulse", "nobody"],
)
def test_a_report_that_does_not_fit_together_is_refused(report: gossip.Report) -> None:
    with pytest.raises(ProtocolError):
        Codec().decode(Codec().encode(gossip.Beat(1, 2, report, 3, 4, 5)))


def test_a_shuffle_of_impossible_nodes_is_refused() -> None:
    with pytest.raises(ProtocolError):
        Codec().decode(Codec().encode(hyparview.ShuffleReply(1, 2, array_of([-1]))))
