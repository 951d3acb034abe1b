"""The messages of spaces: what members have, told to its source, which may ask, and what is stable, told by it."""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.kernel.message import ProtocolMessage


@final
class SpaceAcknowledgement(ProtocolMessage):
    """The sender has the publications of ``source`` on each topic up to a number; ``entries`` are these pairs."""

    def __init__(self, source: i64, sequence: i64, entries: vec[i64]) -> None:
        super().__init__(source, sequence)
        self.entries: Final[vec[i64]] = entries

    def entries_carried(self) -> i64:
        return len(self.entries)


@final
class SpaceStable(ProtocolMessage):
    """All members have the publications of ``source`` on each topic up to a number; ``entries`` are these pairs."""

    def __init__(self, source: i64, sequence: i64, entries: vec[i64]) -> None:
        super().__init__(source, sequence)
        self.entries: Final[vec[i64]] = entries

    def entries_carried(self) -> i64:
        return len(self.entries)


@final
class SpaceQuestion(ProtocolMessage):
    """``source`` has left topics, and asks for an acknowledgement of its publications there; ``entries`` are pairs."""

    def __init__(self, source: i64, sequence: i64, entries: vec[i64]) -> None:
        super().__init__(source, sequence)
        self.entries: Final[vec[i64]] = entries

    def entries_carried(self) -> i64:
        return len(self.entries)


def pairs_in(entries: vec[i64]) -> list[tuple[int, int]]:
    """The pairs of topic and number in a message; a number without its partner is ignored."""
    flat = [int(entry) for entry in entries]
    return list(zip(flat[::2], flat[1::2], strict=False))


NUMBERED: Final[dict[int, type[ProtocolMessage]]] = {88: SpaceAcknowledgement, 89: SpaceStable, 90: SpaceQuestion}
"""The messages by their numbers on the wire."""
