"""The record of a program with consumers: one line for each event, written before anything that depends on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from antiphon.runtime.clocks import monotonic_us

ASKED: Final = "asked"
"""A message is published: name, key."""

RECEIPT: Final = "receipt"
"""It has a receipt: name, generation, position, disks."""

GOT: Final = "got"
"""A member has a message: consumer, member, position, delivery, name."""

ACKING: Final = "acking"
"""It begins to acknowledge: consumer, member, position, delivery."""

ACKED: Final = "acked"
"""The acknowledgement has returned: the same."""


REFUSED: Final = "refused"
"""It does not count, because the member has lost its turn: the same."""


class WorkRecord(msgspec.Struct, frozen=True, array_like=True):
    """One line."""

    time_us: int
    what: str
    fields: list[str | int]


class WorkRecords:
    """Writes the lines of one process. A line is in the file when the call returns, also if the process is killed."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, what: str, *fields: str | int) -> None:
        """Write a line."""
        os.write(self._file, msgspec.json.encode(WorkRecord(monotonic_us(), what, list(fields))) + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def records_in(directory: Path) -> Iterator[WorkRecord]:
    """The lines of all processes, in the order of their times."""
    found: list[WorkRecord] = []
    decoder = msgspec.json.Decoder(WorkRecord)
    for path in sorted(directory.glob("program-*.jsonl")):
        with path.open("rb") as file:
            # The last line of a process that was killed may be cut off.
            found += [decoder.decode(line) for line in file if line.endswith(b"\n")]
    yield from sorted(found, key=lambda record: record.time_us)
