"""Decodes TOML files into typed structures, and explains mistakes.

A complaint names the file, the line and the key, says what was expected, and shows a valid value. All of that comes
from the types: a field is annotated with ``Meta(description=..., examples=[...])``, and the description follows the
word "expected". Numbers in the place of a key count from 1, as people do: ``fault 2, node``.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from antiphon.kernel.errors import ScenarioError

Place = tuple[str | int, ...]
"""A place in a document: names of keys and, within arrays, positions counted from 0."""

Decoded = TypeVar("Decoded")

LONGEST_VALUE = 60
PLACE_IN_MESSAGE = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<place>.*)`)?$", re.DOTALL)
STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
LINE_IN_MESSAGE = re.compile(r"^(?P<what>.*) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$")

STRING_OR_COMMENT = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})' r"|'''.*?'''(?:'{0,2})" r'|"(?:\\.|[^"\\\n])*"' r"|'[^'\n]*'" r"|#[^\n]*",
    re.DOTALL,
)
HEADER = re.compile(r"^\s*(?P<array>\[)?\[\s*(?P<key>[\w\-.\s]+?)\s*\]\]?\s*$")
ASSIGNMENT = re.compile(r"^\s*(?P<key>[\w\-]+(?:\s*\.\s*[\w\-]+)*)\s*=")


class Document:
    """The text of a TOML file and its name, to decode it and to complain about it."""

    def __init__(self, name: str, text: str = "") -> None:
        self.name = name
        self._text = text

    def table(self) -> dict[str, Any]:
        """The whole document, untyped."""
        try:
            return tomllib.loads(self._text)
        except tomllib.TOMLDecodeError as error:
            raise self._syntax_error(str(error)) from error
        except (ValueError, RecursionError) as error:
            raise ScenarioError(f"{self.name}: a value is too long or too deeply nested; make it smaller") from error

    def convert(self, table: object, wanted: type[Decoded], place: Place = ()) -> Decoded:
        """Convert the table at ``place``, and check its types."""
        try:
            return msgspec.convert(table, wanted)
        except msgspec.ValidationError as error:
            raise self._explain(str(error), table, wanted, place) from error

    def error(self, place: Place, sentence: str) -> ScenarioError:
        """The complaint about the value at a place."""
        line = self._line_of(place)
        parts = [self.name if line is None else f"{self.name}, line {line}", spell(place), sentence]
        return ScenarioError(": ".join(part for part in parts if part))

    def has(self, place: Place) -> bool:
        """Whether a key or a table of this place begins a line."""
        return any(known == place for known, _ in places_in(self._text))

    def _syntax_error(self, message: str) -> ScenarioError:
        match = LINE_IN_MESSAGE.match(message)
        what = message if match is None else match["what"]
        where = f"{self.name}, at its end"
        text = ""
        if match is not None and match["line"] is not None:
            where = f"{self.name}, line {match['line']}, column {match['column']}"
            text = f", in the line: {shorten(self._text.split(chr(10))[int(match['line']) - 1].strip())}"
        return ScenarioError(
            f"{where}: {what[:1].lower()}{what[1:]}{text}; write one key = value per line and text in quotes, "
            'for example: name = "a first try"'
        )

    def _explain(self, message: str, table: object, wanted: type, outer: Place) -> ScenarioError:
        match = PLACE_IN_MESSAGE.match(message)
        assert match is not None, "the pattern matches any text"
        what = match["what"]
        inner: Place = tuple(
            key if key else int(position) for key, position in STEP.findall(match["place"] if match["place"] else "")
        )
        guide = Guide(inspect.type_info(wanted), table, inner)
        if what.startswith("Object contains unknown field"):
            key = what.split("`")[1]
            return self.error((*outer, *inner, key), guide.about_unknown_key(key))
        if what.startswith("Object missing required field"):
            return self.error(outer + inner, guide.about_missing_key(what.split("`")[1]))
        return self.error(outer + inner, guide.about_wrong_value())

    def _line_of(self, place: Place) -> int | None:
        """The line of a key; if it has none of its own, the line of the innermost key or table around it."""
        lines: dict[Place, int] = {}
        for known, number in places_in(self._text):
            lines.setdefault(known, number)
        for length in range(len(place), 0, -1):
            if place[:length] in lines:
                return lines[place[:length]]
        return None


class Guide:
    """The information in the types about one place in a table."""

    def __init__(self, info: inspect.Type, table: object, place: Place) -> None:
        self._key = ""
        self._hint: dict[str, Any] = {}
        self._value = table
        self._choices = choices_of(info)
        self._info = fitting(info, table)
        for step in place:
            self._enter(step)

    def _enter(self, step: str | int) -> None:
        info = self._info
        declared: inspect.Type = inspect.AnyType()
        if isinstance(step, int):
            assert isinstance(info, inspect.ListType) and isinstance(self._value, list), "positions belong to arrays"
            self._value = self._value[step]
            declared = info.item_type
        else:
            assert isinstance(self._value, dict), "keys belong to tables"
            self._key = step
            self._hint = self._hint_within(step)
            self._value = self._value.get(step)
            if isinstance(info, inspect.StructType):
                declared = type_of(info, step)
        self._choices = choices_of(declared)
        self._info = fitting(declared, self._value)

    def about_wrong_value(self) -> str:
        """The complaint about an invalid value."""
        if "words" in self._hint:
            return wrong_word(self._key, self._value, self._hint["words"])
        return (
            f"expected {self._hint.get('description')}, not {shorten(to_toml(self._value))}; "
            f"{example_of(self._key, self._hint)}"
        )

    def about_missing_key(self, key: str) -> str:
        """The complaint about a missing key."""
        hint = self._hint_within(key)
        return f"the key '{key}' is missing; expected {hint.get('description')}; {example_of(key, hint)}"

    def about_unknown_key(self, key: str) -> str:
        """The complaint about an unknown key."""
        assert isinstance(self._info, inspect.StructType), "only tables have keys"
        known = ([self._info.tag_field] if self._info.tag_field else []) + [f.encode_name for f in self._info.fields]
        close = get_close_matches(key, known, 1)
        example = f" {example_of(close[0], hint_of(self._info, close[0]))};" if close else ""
        return f"there is no such key{did_you_mean(close)};{example} the keys here are {', '.join(known)}"

    def _hint_within(self, key: str) -> dict[str, Any]:
        if isinstance(self._info, inspect.StructType):
            return hint_of(self._info, key)
        # Without a valid value of the deciding key, the kind of this table is unknown.
        return hint_of_choice([str(choice.tag) for choice in self._choices])


def fitting(info: inspect.Type, value: object) -> inspect.Type:
    """The type that a value is meant to have: without annotations, and the matching member of a union."""
    if isinstance(info, inspect.Metadata):
        return fitting(info.type, value)
    if isinstance(info, inspect.UnionType):
        for member in info.types:
            plain = fitting(member, value)
            if isinstance(plain, inspect.StructType) and isinstance(value, dict):
                if plain.tag_field is None or value.get(plain.tag_field) == plain.tag:
                    return plain
            elif isinstance(plain, inspect.ListType) and isinstance(value, list):
                return plain
    return info


def choices_of(info: inspect.Type) -> list[inspect.StructType]:
    """The tables among which the value of one key decides."""
    if isinstance(info, inspect.Metadata):
        return choices_of(info.type)
    if isinstance(info, inspect.UnionType):
        return [choice for member in info.types for choice in choices_of(member)]
    return [info] if isinstance(info, inspect.StructType) and info.tag_field else []


def hint_of_choice(words: list[str]) -> dict[str, Any]:
    """The hint for a key that takes one of a few words."""
    return {"description": "one of " + ", ".join(words), "examples": words[:1], "words": words}


def type_of(table: inspect.StructType, key: str) -> inspect.Type:
    """The declared type of a key of a table."""
    for field in table.fields:
        if field.encode_name == key:
            return field.type
    return inspect.StrType()


def hint_of(table: inspect.StructType, key: str) -> dict[str, Any]:
    """The description and examples that the type of a key is annotated with."""
    if key == table.tag_field:
        return hint_of_choice([str(table.tag)])
    declared = type_of(table, key)
    members = declared.types if isinstance(declared, inspect.UnionType) else (declared,)
    for member in members:
        if isinstance(member, inspect.LiteralType):
            return hint_of_choice([str(word) for word in member.values])
        if isinstance(member, inspect.Metadata) and member.extra_json_schema is not None:
            return member.extra_json_schema
    return {}


def wrong_word(key: str, value: object, words: list[str]) -> str:
    """The complaint about a value that is not one of the allowed words."""
    close = get_close_matches(str(value), words, 1)
    choice = ", ".join(words) if len(words) == 1 else f"one of {', '.join(words)}"
    example = to_toml((close or words)[0])
    return f"expected {choice}, not {shorten(to_toml(value))}{did_you_mean(close)}; for example: {key} = {example}"


def did_you_mean(close: list[str]) -> str:
    """A guess at the intended word, if there is one."""
    return f" (did you mean '{close[0]}'?)" if close else ""


def example_of(key: str, hint: dict[str, Any]) -> str:
    """An example of a valid value."""
    return f"for example: {key} = {to_toml(hint['examples'][0])}"


def spell(place: Place) -> str:
    """A place as people say it: ``network.delay.ticks`` or ``fault 2, node``."""
    text = ""
    after_key = False
    for step in place:
        if isinstance(step, str):
            text += f".{step}" if after_key else f", {step}" if text else step
        else:
            text += f" {step + 1}" if after_key else f", {step + 1}"
        after_key = isinstance(step, str)
    return text


def to_toml(value: object) -> str:
    """A value as it would stand in a file, on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {to_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(to_toml(inner) for inner in value) + "]"
    if isinstance(value, str | bool):
        # Both formats escape alike, except for one character that TOML forbids.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)


def shorten(text: str) -> str:
    """A text that fits into a sentence."""
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."


def places_in(text: str) -> Iterator[tuple[Place, int]]:
    """Every table and every plain key that begins a line of a valid document, with its line."""
    # Strings and comments could contain text that looks like a key, so only their line breaks are kept.
    plain = STRING_OR_COMMENT.sub(
        lambda match: "" if match[0].startswith("#") else "_" + "\n" * match[0].count("\n"), text
    )
    table: Place = ()
    arrays: dict[Place, int] = {}
    depth = 0
    for number, line in enumerate(plain.split("\n"), 1):
        header = HEADER.match(line) if depth == 0 else None
        if header is not None:
            table = enter_table(header, arrays)
            yield table, number
            continue
        assignment = ASSIGNMENT.match(line) if depth == 0 else None
        if assignment is not None:
            keys = [key.strip() for key in assignment["key"].split(".")]
            for length in range(1, len(keys) + 1):
                yield table + tuple(keys[:length]), number
        depth += sum(line.count(bracket) for bracket in "[{") - sum(line.count(bracket) for bracket in "]}")


def enter_table(header: re.Match[str], arrays: dict[Place, int]) -> Place:
    """The place of the table that a header begins; counts the tables of arrays."""
    keys = [key.strip() for key in header["key"].split(".")]
    table: Place = ()
    for number, key in enumerate(keys, 1):
        table += (key,)
        if header["array"] and number == len(keys):
            arrays[table] = arrays.get(table, -1) + 1
        if table in arrays:
            table += (arrays[table],)
    return table
