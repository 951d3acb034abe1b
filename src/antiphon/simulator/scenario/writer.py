"""Writes a scenario as a file that reads back as the same scenario.

Default values are left out, so that a file shows what is special about its scenario. Structures are walked by their
types: a key that is added to :mod:`antiphon.simulator.scenario.scenario` is written without a change here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from antiphon.simulator.scenario.scenario import Scenario
from antiphon.simulator.scenario.toml_document import to_toml


def scenario_text(scenario: Scenario, remark: str = "") -> str:
    """The text of a scenario file; ``remark`` goes above it as a comment."""
    return structure_text(scenario, remark, {})


def structure_text(structure: msgspec.Struct, remark: str, first: dict[str, Any]) -> str:
    """The text of a file that begins with these keys."""
    lines = [f"# {line}".rstrip() for line in remark.splitlines()]
    table = {**first, **plain(structure)}
    lines += [f"{key} = {to_toml(value)}" for key, value in table.items() if not is_table(value)]
    for key, value in table.items():
        if is_table(value):
            for header, entries in sections(key, value):
                lines += ["", header, *(f"{inner} = {to_toml(entry)}" for inner, entry in entries.items())]
    return "\n".join(lines) + "\n"


def is_table(value: object) -> bool:
    """Whether a value of the scenario has a section of its own: a table, or several."""
    is_array = isinstance(value, list) and bool(value) and all(isinstance(entry, dict) for entry in value)
    return isinstance(value, dict) or is_array


def sections(key: str, value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The sections of one key, each with its header."""
    if isinstance(value, dict):
        yield f"[{key}]", value
    else:
        for table in value:
            yield f"[[{key}]]", table


def plain(value: Any) -> Any:
    """A structure as tables, arrays and plain values, without default values."""
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if not isinstance(value, msgspec.Struct):
        return value
    config = value.__struct_config__
    table: dict[str, Any] = {} if config.tag is None else {str(config.tag_field): config.tag}
    for field in msgspec.structs.fields(value):
        entry = getattr(value, field.name)
        if entry != default_of(field):
            table[field.encode_name] = plain(entry)
    return table


def default_of(field: msgspec.structs.FieldInfo) -> object:
    """The default of a field; ``msgspec.NODEFAULT`` for a required one."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default
