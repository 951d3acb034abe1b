"""Tables of TOML files that describe how the nodes of a fabric are connected."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from antiphon.kernel.errors import UsageError

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
    try:
        return msgspec.convert(values[name], kind)
    except msgspec.ValidationError as error:
        known = ", ".join(kind.__struct_fields__)
        raise UsageError(f"{path}: {error}; the table [{name}] has {known}") from error
