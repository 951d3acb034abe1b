"""Typed TOML: where things stand, and what is said about them."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.kernel.errors import ScenarioError
from antiphon.simulator.scenario.toml_document import Document, Place, places_in, shorten, spell, to_toml

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "scenarios").glob("*.toml"))

TRICKY = '''\
first = 1                 # [not.a.table]
text = """
second = 2
[neither]
"""
rows = [
    [1, 2],
    [3],
]
inline = { third = 3 }
[a.b]                     # a comment
dotted.key = "x = y ["
literal = \'\'\'
fourth = 4
\'\'\'
[[item]]
name = "one"
[item.inner]
deep = 1
[[item]]
name = 'two # not a comment'
last = 1
'''


def all_places(value: object, place: Place = ()) -> Iterator[Place]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*place, key)
            yield from all_places(inner, (*place, key))
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            if isinstance(inner, dict):
                yield (*place, position)
                yield from all_places(inner, (*place, position))


def test_lines_are_found_in_spite_of_strings_comments_and_arrays_that_look_like_keys() -> None:
    assert dict(places_in(TRICKY)) == {
        ("first",): 1,
        ("text",): 2,
        ("rows",): 6,
        ("inline",): 10,
        ("a", "b"): 11,
        ("a", "b", "dotted"): 12,
        ("a", "b", "dotted", "key"): 12,
        ("a", "b", "literal"): 13,
        ("item", 0): 16,
        ("item", 0, "name"): 17,
        ("item", 0, "inner"): 18,
        ("item", 0, "inner", "deep"): 19,
        ("item", 1): 20,
        ("item", 1, "name"): 21,
        ("item", 1, "last"): 22,
    }


def test_every_place_that_is_found_exists() -> None:
    assert set(dict(places_in(TRICKY))) <= set(all_places(tomllib.loads(TRICKY)))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_lines_of_the_examples_hold_the_keys_that_they_are_said_to_hold(path: Path) -> None:
    text = path.read_text()
    lines = text.splitlines()
    found = dict(places_in(text))
    assert set(found) <= set(all_places(tomllib.loads(text)))
    arrays = {("fault",), ("publish",), ("subscribe",), ("unsubscribe",)}
    assert {place for place in all_places(tomllib.loads(text)) if len(place) == 1} - arrays <= set(found)
    for place, number in found.items():
        keys = [step for step in place if isinstance(step, str)]
        assert keys[-1] in lines[number - 1]


def test_a_key_without_a_line_of_its_own_is_looked_for_in_what_is_around_it() -> None:
    document = Document("a.toml", TRICKY)
    assert str(document.error(("inline", "third"), "is odd")) == "a.toml, line 10: inline.third: is odd"
    assert str(document.error(("nowhere",), "is missing")) == "a.toml: nowhere: is missing"
    assert str(document.error((), "is empty")) == "a.toml: is empty"


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ((), ""),
        (("nodes",), "nodes"),
        (("network", "delay", "ticks"), "network.delay.ticks"),
        (("fault", 1, "node"), "fault 2, node"),
        (("network", "delay", "rows", 0, 2), "network.delay.rows 1, 3"),
    ],
)
def test_places_are_spelled_as_people_count(place: Place, words: str) -> None:
    assert spell(place) == words


@pytest.mark.parametrize(
    "value", [1, 0.5, True, 'a "quoted" ü', [1, [2, 3]], {"law": "normal", "mean": 100}, float("inf")]
)
def test_examples_are_shown_as_they_would_stand_in_a_file(value: object) -> None:
    assert tomllib.loads(f"value = {to_toml(value)}") == {"value": value}


def test_long_values_are_shortened() -> None:
    assert shorten("x" * 60) == "x" * 60
    assert shorten("x" * 61) == "x" * 57 + "..."


@pytest.mark.parametrize("text", ["value = " + "[" * 5000, "value = " + "9" * 5000])
def test_absurd_values_are_refused(text: str) -> None:
    with pytest.raises(ScenarioError, match=r"^a\.toml: a value is too long or too deeply nested; make it smaller$"):
        Document("a.toml", text).table()
