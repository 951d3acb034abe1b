"""The state of one tree or graph of a topic at one node, and counts of lost and found parents in all of them."""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.gossip.messages import NOWHERE, TREE_BITS, TreePosition


@final
class Structure:
    """One tree or graph, as one node knows it."""

    def __init__(self, key: i64, me: i64, neighbours: list[i64]) -> None:
        self.key: Final[i64] = key
        self.root: Final[i64] = key >> TREE_BITS
        self.is_root: Final[bool] = self.root == me
        self.position: TreePosition = TreePosition(vec[i64]([me]), 0) if self.is_root else NOWHERE
        # The parent's position that the own one was made from.
        self.base: TreePosition = NOWHERE
        self.parents: Final[list[i64]] = []
        self.targets: Final[list[i64]] = list(neighbours)
        self.known: Final[dict[i64, TreePosition]] = {}
        # Periods since others were seen to be ahead, without a word of the parents; -1 if they were not.
        self.behind_for: i64 = -1
        self.orphaned_at: i64 = -1
        # Whether it was not enough to know the neighbours since then.
        self.is_lost: bool = False
        # Hard repairs since something new came through, and before which time there is to be no other.
        self.hard_repairs: i64 = 0
        self.next_hard_repair: i64 = 0
        # Periods since anything came through.
        self.quiet: i64 = 0


@final
class Repairs:
    """Counts of lost and found parents over all structures of a node; times in ticks."""

    def __init__(self) -> None:
        self.parents_lost: i64 = 0
        self.orphaned: i64 = 0
        self.soft: i64 = 0
        self.hard: i64 = 0
        self.topped_up: i64 = 0
        self.taken_back: i64 = 0
        self.stalls: i64 = 0
        self.recovered: i64 = 0
        self.recovery_ticks: i64 = 0
        self.longest_recovery: i64 = 0
        # Of these, those in which all neighbours had to be asked.
        self.recovered_hard: i64 = 0
        self.hard_recovery_ticks: i64 = 0

    def note(self, ticks: i64, is_hard: bool) -> None:
        """A node that had no parent gets something from a new one."""
        self.recovered += 1
        self.recovery_ticks += ticks
        if ticks > self.longest_recovery:
            self.longest_recovery = ticks
        if is_hard:
            self.recovered_hard += 1
            self.hard_recovery_ticks += ticks
