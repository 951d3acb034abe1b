"""What the oracle finds, and what it takes as an excuse."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field

from antiphon.kernel.message import UNSPECIFIED
from antiphon.trace.contract import TOLD_NEVER

KINDS = ("duplicates", "fifo", "causal", "validity", "membership", "completeness")


Loss = tuple[int, int, int, int]
"""What a node has said to be lost: the node, the topic, the source and the number there."""


@dataclass(frozen=True)
class Excuses:
    """What need not be delivered.

    What a ``mortal`` node published may be lost with it, unless a member has delivered it, or something that follows
    it. But who was told that something is lost need not know what that followed. Whether a publication is excused
    because a node has said that it is lost depends on what was promised: never, if its publisher failed, or always; and
    always if it is of the order ``holes_in``.
    """

    mortal: Container[int] = ()
    losses: Sequence[Loss] = ()
    told: str = TOLD_NEVER
    holes_in: int = UNSPECIFIED


NO_EXCUSES = Excuses()


@dataclass
class Findings:
    """What the oracle found: how often, and the first example of each kind."""

    deliveries: int = 0
    publications: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, example: str) -> None:
        """One more violation."""
        self.counts[kind] += 1
        self.examples.setdefault(kind, example)

    @property
    def clean(self) -> bool:
        """Whether nothing was violated."""
        return not any(self.counts.values())

    def __str__(self) -> str:
        if self.clean:
            return f"{self.deliveries} deliveries of {self.publications} publications, nothing violated"
        return "; ".join(f"{kind}: {self.counts[kind]}, such as {text}" for kind, text in self.examples.items())
