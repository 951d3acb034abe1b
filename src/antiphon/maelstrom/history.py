"""What clients did and what came of it, in the order in which it happened: all that checkers know of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

import msgspec

Outcome = Literal["invoke", "ok", "fail", "info"]
"""An operation begins, succeeds, has certainly not happened, or may have happened or not."""


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


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """A partition: what kind it was, and from when to when."""

    kind: str
    begin_us: int
    end_us: int


class History:
    """Grows while a run goes on."""

    def __init__(self) -> None:
        self.events: Final[list[Event]] = []
        self.cuts: Final[list[Cut]] = []

    def begin(self, time_us: int, client: int, node: str, name: str, value: Any, is_final: bool = False) -> Event:
        """An operation begins."""
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
        """An operation ends, or nobody waits for it any longer."""
        event = msgspec.structs.replace(
            begun, index=len(self.events), time_us=time_us, outcome=outcome, value=value, begun=begun.index
        )
        self.events.append(event)

    def counts(self) -> dict[str, dict[str, int]]:
        """How many operations of each name ended how."""
        found: dict[str, dict[str, int]] = {}
        for event in self.events:
            outcomes = found.setdefault(event.name, {"invoke": 0, "ok": 0, "fail": 0, "info": 0})
            outcomes[event.outcome] += 1
        return found

    def operations(self) -> int:
        """How many operations were begun."""
        return sum(event.outcome == "invoke" for event in self.events)

    def write(self, path: Path) -> None:
        """Write all events as lines of JSON, cuts first."""
        lines = [msgspec.json.encode(entry) for entry in (*self.cuts, *self.events)]
        path.write_bytes(b"\n".join(lines) + b"\n")
