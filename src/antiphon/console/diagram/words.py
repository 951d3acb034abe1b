"""Times and messages in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from antiphon.console.diagram.run_index import RunIndex

MICROSECONDS: Final = "microseconds"


class DiagramWords:
    """Says times, messages and topics of one run the way people say them."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        self.is_live: Final = about.get("unit") == MICROSECONDS
        self._topics: Final = {str(number): str(name) for number, name in dict(about.get("topics") or {}).items()}

    def duration(self, ticks: int) -> str:
        """A time between two rows."""
        if not self.is_live:
            return f"{ticks:,} tick{'' if ticks == 1 else 's'}"
        if ticks < 1_000:
            return f"{ticks} µs"
        if ticks < 1_000_000:
            return f"{ticks / 1_000:.3g} ms" if ticks < 100_000 else f"{ticks / 1_000:.0f} ms"
        return f"{ticks / 1_000_000:.2f} s"

    def topic(self, number: int) -> str:
        """The name of a topic, or its number where no name is known."""
        return self._topics.get(str(number), str(number))

    def message(self, run: RunIndex, row: int) -> str:
        """The message of a row."""
        return f"message {spoken_number(int(run.sequence[row]))} of node {int(run.source[row])}"


def spoken_number(sequence: int) -> str:
    """The number of a message; live nodes count anew in each life, and say the life in the upper half."""
    life, number = sequence >> 32, sequence & 0xFFFF_FFFF
    return f"{number}" if life <= 1 else f"{number} (life {life})"
