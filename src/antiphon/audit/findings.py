"""The findings of the oracle, and the excuses that it accepts."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field

from antiphon.kernel.message import UNSPECIFIED
from antiphon.trace.contract import TOLD_NEVER

KINDS = ("duplicates", "fifo", "causal", "validity", "membership", "completeness")


Loss = tuple[int, int, int, int]
"""A loss that a node reported: the node, the topic, the source and the number there."""


@dataclass(frozen=True)
class Excuses:
    """Publications that need not be delivered.

    A publication of a ``mortal`` node may be lost with it, unless a member has delivered it, or something that follows
    it. But a node that was told of a loss need not know what the lost publication followed. Whether a reported loss
    excuses a publication depends on the promise: never, if its publisher failed, or always; and always for the order
    ``holes_in``.
    """

    mortal: Container[int] = ()
    losses: Sequence[Loss] = ()
    told: str = TOLD_NEVER
    holes_in: int = UNSPECIFIED
    loose: bool = False
    """Whether a delivery shows nothing about what it follows: a later publication may have overtaken it."""


NO_EXCUSES = Excuses()


@dataclass
class Findings:
    """The number of violations of each kind, and the first example."""

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
