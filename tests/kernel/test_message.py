"""Messages are frozen, typed and named by one integer."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import antiphon
from antiphon.cli.output import is_compiled
from antiphon.fabrics.cube import Acknowledgement
from antiphon.kernel import ProtocolMessage, Publication, publication_key
from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK
from antiphon.orders.fifo import NO_DEPENDENCIES
from antiphon.orders.order import Ordered

FIELDS = [
    (ProtocolMessage(1, 2), ("source", "sequence", "topic")),
    (Publication(1, 2, 3, b"why?"), ("source", "sequence", "topic", "timestamp", "payload")),
    (Ordered(1, 2, 3, b"why?", NO_DEPENDENCIES), ("source", "timestamp", "payload", "dependencies")),
    (Acknowledgement(1, 2), ("source", "sequence", "topic")),
]


STORES = (ast.AnnAssign, ast.AugAssign)


class Question(Publication):
    """A message class of a user, which is interpreted also where its base is compiled."""


only_where_compiled = pytest.mark.skipif(
    not is_compiled(), reason="at run time only compiled classes refuse; elsewhere the type checker does"
)


@only_where_compiled
@pytest.mark.parametrize(("message", "names"), [*FIELDS, (Question(1, 2, 3, b""), ("source", "payload"))])
def test_compiled_messages_are_frozen(message: ProtocolMessage, names: tuple[str, ...]) -> None:
    for name in names:
        before = getattr(message, name)
        with pytest.raises(AttributeError, match=f"attribute '{name}' .* not writable"):
            setattr(message, name, before)
        with pytest.raises(AttributeError):
            delattr(message, name)
        assert getattr(message, name) == before


def fields_of(definition: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """The attributes that a class sets on itself, each with its annotation; empty where there is none."""
    for node in ast.walk(definition):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, STORES) else []
        for target in targets:
            if isinstance(target, ast.Attribute):
                yield target.attr, ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else ""


def test_every_field_of_every_message_class_is_final() -> None:
    """That is what the type checker goes by, so messages are frozen for it in both builds."""
    messages = {"ProtocolMessage"}
    fields: dict[str, str] = {}
    definitions = [
        node
        for package in ("kernel", "orders", "fabrics")
        for path in sorted((Path(antiphon.__file__).parent / package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    for _ in definitions:  # as often as a chain of bases can be long
        messages |= {each.name for each in definitions if messages & {ast.unparse(base) for base in each.bases}}
    for definition in definitions:
        if definition.name in messages:
            fields.update({f"{definition.name}.{name}": annotation for name, annotation in fields_of(definition)})
    assert {"ProtocolMessage.source", "Publication.payload", "Publication.dependencies"} <= fields.keys()
    assert {name: annotation for name, annotation in fields.items() if not annotation.startswith("Final")} == {}


@only_where_compiled
@pytest.mark.parametrize(("message", "names"), FIELDS)
def test_compiled_messages_are_slotted(message: ProtocolMessage, names: tuple[str, ...]) -> None:
    assert not hasattr(message, "__dict__")
    with pytest.raises(AttributeError):
        message.colour = "red"  # type: ignore[attr-defined]


def test_fields_are_what_was_given() -> None:
    publication = Ordered(7, 3, 250, b"why?", NO_DEPENDENCIES, 5)
    assert (publication.source, publication.sequence, publication.timestamp) == (7, 3, 250)
    assert (publication.payload, publication.topic) == (b"why?", 5)
    assert ProtocolMessage(7, 3).topic == 0


def test_only_publications_are_not_control_messages() -> None:
    """The published experiments charge no transmission time for control messages, so hosts must tell them apart."""
    assert ProtocolMessage(1, 1).is_control()
    assert Acknowledgement(1, 1).is_control()
    assert not Publication(1, 1, 0, b"").is_control()
    assert not Ordered(1, 1, 0, b"", NO_DEPENDENCIES).is_control()


def test_a_message_shows_its_class_and_what_it_is_about() -> None:
    assert repr(Acknowledgement(4, 9)) == "Acknowledgement(4, 9)"
    assert repr(Question(4, 9, 0, b"")) == "Question(4, 9)"


@given(st.integers(0, SOURCE_MASK), st.integers(0, (1 << 41) - 1))
def test_a_publication_key_holds_source_and_sequence(source: int, sequence: int) -> None:
    key = publication_key(source, sequence)
    assert (key & SOURCE_MASK, key >> SOURCE_BITS) == (source, sequence)


def test_publication_keys_of_one_source_ascend() -> None:
    assert [publication_key(3, sequence) for sequence in (0, 1, 2)] == [3, (1 << 22) | 3, (2 << 22) | 3]
