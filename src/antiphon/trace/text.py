"""Traces for people: one line per row, in the order of events.

A text trace is for small runs, such as a shrunk failure. It has the contents of the other formats, except the sizes of
copies (bytes and entries), and is the same, byte by byte, whenever the run is repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

HEADING = f"{'time':>10}  {'node':>4}  what\n"

PEERS = {"send": "to", "receive": "from", "drop": "from", "duplicate": "from"}
"""The preposition before the other end of a copy."""

VALUES = {
    "deliver": "after {} ticks",
    "expire": "timer {}",
    "join": "incarnation {}",
    "restart": "incarnation {}",
    "stuck": "{} unfinished",
}
"""The meaning of the value of a row, where it is useful to people."""


def line_of(row: Mapping[str, Any]) -> str:
    """A row as a line, without its end."""
    event = row["event"]
    what = [event]
    if row["peer"] is not None and event in PEERS:
        what.append(f"{PEERS[event]} {row['peer']}")
    details = [] if row["message"] is None else [str(row["message"])]
    if row["source"] is not None:
        details.append(about(row))
    elif row["topic"] is not None:
        details.append(f"topic {row['topic']}")
    if row["keys"] is not None:
        details.append(f"keys {', '.join(map(str, row['keys']))}")
    if row["value"] is not None and event in VALUES:
        details.append(VALUES[event].format(row["value"]))
    if row["reason"] is not None:
        details.append(f"because of {row['reason']}")
    return f"{row['time']:>10}  {row['node']:>4}  {' '.join(what):<18}{'; '.join(details)}".rstrip()


def about(row: Mapping[str, Any]) -> str:
    """The publication of a row, or only its topic if it has no number."""
    if row["sequence"] == 0:
        return f"topic {row['topic']}"
    order = "" if row["order"] is None else f", {row['order']}"
    return f"publication {row['sequence']} of {row['source']} on topic {row['topic']}{order}"


class TextFile:
    """Writes rows as lines, with the methods of a writer of columns."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._file.write(HEADING)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write some rows."""
        self._file.writelines(lines(batch))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def lines(batch: pa.RecordBatch) -> Iterator[str]:
    """The rows of a chunk as lines."""
    for row in batch.to_pylist():
        yield f"{line_of(row)}\n"
