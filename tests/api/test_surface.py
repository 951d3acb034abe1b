"""The classes that applications hold have the documented calls, and nothing else is public."""

from __future__ import annotations

import inspect
import pydoc

import pytest

import antiphon

BOTH = {"publish", "subscribe", "flush", "close", "abandon", "topics", "consume", "history", "settled", "position_of"}
BOTH |= {"request", "request_many", "serve", "table"}
SURFACE = {
    "Node": BOTH | {"identifier", "address", "metrics_address", "until_stopped", "tentative"},
    "Client": BOTH | {"address", "is_up", "reconnects", "status"},
    "Subscription": {"ready", "batches", "close", "pattern", "is_closed", "waiting", "dropped", "expired", "gaps"},
    "Message": {"topic", "value", "key", "keys", "headers", "order", "timestamp", "timestamp_us"}
    | {"publisher", "sequence", "author", "author_sequence", "offset", "position"},
    "Receipt": {"topic", "author", "sequence"},
}


def public_names(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


@pytest.mark.parametrize("name", SURFACE)
def test_a_class_shows_what_applications_call(name: str) -> None:
    shown = public_names(getattr(antiphon, name))
    # A plain class does not know the attributes that its constructor sets; a compiled one does.
    assert shown | ({"value"} if name == "Message" else set()) == SURFACE[name]


@pytest.mark.parametrize("name", SURFACE)
def test_each_of_these_names_has_a_sentence(name: str) -> None:
    kind = getattr(antiphon, name)
    assert inspect.getdoc(kind)
    if name != "Receipt":
        for each in SURFACE[name] - {"value"}:
            assert inspect.getdoc(getattr(kind, each)), f"{name}.{each}"


def test_objects_have_no_other_public_attributes_than_their_classes() -> None:
    async def look() -> None:
        async with antiphon.start() as node, antiphon.connect(node.address) as client:
            room = await client.subscribe("room").ready()
            receipt = await node.publish("room", b"why?")
            message = await anext(aiter(room))
            for thing in (node, client, room, message, receipt):
                assert public_names(thing) == SURFACE[type(thing).__name__]

    antiphon.run(look())


def test_help_shows_the_names_of_the_package_and_no_others() -> None:
    text = pydoc.plain(pydoc.render_doc(antiphon))
    assert set(dir(antiphon)) == {*antiphon.__all__, "__version__"}
    for name in antiphon.__all__:
        assert name in text
    assert "HOMES" not in text


def test_a_name_that_does_not_exist_is_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nodes'"):
        _ = antiphon.Nodes
