"""The policy of a topic as commands and files name it: ``--retention-bytes 10G --retention-time 7d``."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from antiphon.api.streams.topics import PolicyChanges
from antiphon.kernel.errors import UsageError
from antiphon.streams.requests import Policy

BYTES: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
SECONDS: Final = {"": 1, "S": 1, "M": 60, "H": 3600, "D": 86_400, "W": 604_800}

Replicas = Annotated[
    int | None, typer.Option(min=1, max=7, metavar="N", help="How many nodes keep the history; 3.", show_default=False)
]
RetentionBytes = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Keep the newest messages up to so much: 10G; 0: all.", show_default=False),
]
RetentionTime = Annotated[
    str | None, typer.Option(metavar="TIME", help="Keep messages for so long: 7d; 0: for ever.", show_default=False)
]
Hold = Annotated[
    float | None,
    typer.Option(
        min=1, metavar="N", help="Keep what a consumer has not done up to N times the bounds; 2.", show_default=False
    ),
]
ReplaceAfter = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Replace a replica that is away for so long: 10m.", show_default=False),
]
Compact = Annotated[
    bool | None,
    typer.Option("--compact/--no-compact", help="Keep the newest message of each key for ever.", show_default=False),
]


def quantity(text: str, units: dict[str, int], example: str) -> float:
    """A number with a unit: ``10G``, ``7d``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]?)(?:i?b)?", text.strip().lower())
    unit = None if found is None else units.get(found[2].upper())
    if found is None or unit is None:
        known = ", ".join(each.lower() if units is SECONDS else each for each in units if each)
        raise UsageError(f"{text!r} is no quantity; write a number and one of {known}, such as {example}")
    return float(found[1]) * unit


def changes_of(
    replicas: int | None,
    retention_bytes: str | None,
    retention_time: str | None,
    hold: float | None,
    replace_after: str | None,
    compact: bool | None = None,
) -> PolicyChanges:
    """The parts of a policy that a command or a file names."""
    found: PolicyChanges = {}
    if replicas is not None:
        found["replicas"] = replicas
    if retention_bytes is not None:
        found["retention_bytes"] = int(quantity(retention_bytes, BYTES, "10G"))
    if retention_time is not None:
        found["retention_seconds"] = quantity(retention_time, SECONDS, "7d")
    if hold is not None:
        found["hold"] = hold
    if replace_after is not None:
        found["replace_seconds"] = quantity(replace_after, SECONDS, "10m")
    if compact is not None:
        found["compact"] = compact
    return found


KEYS: Final = ("replicas", "retention_bytes", "retention_time", "hold", "replace_after", "compact")


def topics_in(path: Path) -> dict[str, PolicyChanges]:
    """The topics of a file, each a table ``[topics.NAME]`` with the parts of its policy."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no TOML file: {error}") from error
    topics = tables.pop("topics", None)
    if tables or not isinstance(topics, dict) or not all(isinstance(each, dict) for each in topics.values()):
        raise UsageError(f"{path} needs tables [topics.NAME], and nothing else")
    return {name: _changes_in(path, name, table) for name, table in topics.items()}


def _changes_in(path: Path, name: str, table: dict[str, Any]) -> PolicyChanges:
    unknown = [key for key in table if key not in KEYS]
    if unknown:
        raise UsageError(f"{path}: topic {name!r} has the unknown key {unknown[0]!r}; there are {', '.join(KEYS)}")
    replicas, hold = table.get("replicas"), table.get("hold")
    for key, value, kinds in (("replicas", replicas, (int,)), ("hold", hold, (int, float))):
        if value is not None and (isinstance(value, bool) or not isinstance(value, kinds)):
            raise UsageError(f"{path}: {key} of topic {name!r} is a number, not {value!r}")
    size, age, after = (
        None if table.get(key) is None else str(table[key])
        for key in ("retention_bytes", "retention_time", "replace_after")
    )
    compact = table.get("compact")
    if compact is not None and not isinstance(compact, bool):
        raise UsageError(f"{path}: compact of topic {name!r} is true or false, not {compact!r}")
    return changes_of(replicas, size, age, hold, after, compact)


def described_policy(policy: Policy) -> str:
    """A policy in words."""
    bounds = []
    if policy.retention_bytes:
        bounds.append(f"{policy.retention_bytes:,} bytes")
    if policy.retention_us:
        bounds.append(f"{policy.retention_us / 1e6:,g} seconds")
    beyond = ", and the newest message of each key" if policy.compact else ""
    return "keeps everything" if not bounds else f"keeps {' or '.join(bounds)}, whichever is less{beyond}"
