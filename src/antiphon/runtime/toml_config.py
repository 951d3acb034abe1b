"""Tables of TOML files that describe how the nodes of a fabric are connected."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from antiphon.kernel.errors import UsageError

NEAR_ENOUGH: Final = 0.5
"""How similar a name has to be to be suggested, from 0 to 1."""

Table = TypeVar("Table", bound=msgspec.Struct)


def read_table(path: Path, name: str, kind: type[Table], holds: str) -> Table:
    """A table of a TOML file; errors say what is wrong with the file, and what the table ``holds``."""
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; check the name") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is no TOML: {error}") from error
    if name not in values:
        raise UsageError(f"{path} has no table [{name}]; it {holds}, as described in docs/operations.md")
    return convert_table(values[name], name, kind, str(path))


def convert_table(values: Any, name: str, kind: type[Table], where: str) -> Table:
    """A table from its values; errors say ``where`` they came from, and which name is nearest to an unknown one."""
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        hint = nearest_names(values, kind.__struct_fields__)
        raise UsageError(f"{where}: {error}{hint}; docs/operations.md says what the table [{name}] has") from error


def nearest_names(given: Any, known: Sequence[str]) -> str:
    """Suggestions for unknown names, to be added to an error; empty if all names are known."""
    hints = []
    for name in given if isinstance(given, dict) else ():
        if name not in known:
            near = get_close_matches(str(name).replace("-", "_"), known, 3, NEAR_ENOUGH)
            hints.append(f"{name!r} may mean {' or '.join(map(repr, near))}" if near else f"nothing is like {name!r}")
    return f"; {', '.join(hints)}" if hints else ""
