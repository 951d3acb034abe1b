"""The history of a run: operations of clients and their outcomes, in order. Checkers know nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

import msgspec

Outcome = Literal["invoke", "ok", "fail", "info"]
"""An operation begins, succeeds, has certainly not happened, or may have happened."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning or the end of an operation of a client; ``begun`` is the index of its beginning."""

    index: int
    time_us: int
    client: int
    node: str
    name: str
    outcome: Outcome
    value: Any = None
    begun: int = -1
    is_final: bool = False


class PartitionSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A partition: its kind, and from when to when."""

    kind: str
    begin_us: int
    end_us: int


class History:
    """Grows during a run."""

    def __init__(self) -> None:
        self.events: Final[list[Event]] = []
        self.cuts: Final[list[PartitionSpan]] = []

    def begin(self, time_us: int, client: int, node: str, name: str, value: Any, is_final: bool = False) -> Event:
        """Record the beginning of an operation."""
        event = Event(
            index=len(self.events),
            time_us=time_us,
            client=client,
            node=node,
            name=name,
            outcome="invoke",
            value=value,
            is_final=is_final,
        )
        self.events.append(event)
        return event

    def end(self, begun: Event, time_us: int, outcome: Outcome, value: Any) -> None:
        """Record the end of an operation, or the end of waiting for it."""
        event = msgspec.structs.replace(
            begun, index=len(self.events), time_us=time_us, outcome=outcome, value=value, begun=begun.index
        )
        self.events.append(event)

    def counts(self) -> dict[str, dict[str, int]]:
        """The number of operations by name and outcome."""
        found: dict[str, dict[str, int]] = {}
        for event in self.events:
            outcomes = found.setdefault(event.name, {"invoke": 0, "ok": 0, "fail": 0, "info": 0})
            outcomes[event.outcome] += 1
        return found

    def operations(self) -> int:
        """The number of operations that were begun."""
        return sum(event.outcome == "invoke" for event in self.events)

    def write(self, path: Path) -> None:
        """Write all events as lines of JSON, partitions first."""
        lines = [msgspec.json.encode(entry) for entry in (*self.cuts, *self.events)]
        path.write_bytes(b"\n".join(lines) + b"\n")
