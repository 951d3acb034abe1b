"""Who counts for total order on a cube whose nodes may fail, and what a node keeps of that for its next life.

The part of :mod:`antiphon.fabrics.cube.voting` that knows the voters, which of them are within reach, and whether these
are a majority. Voters have the identifiers of their first lives (:mod:`antiphon.fabrics.cube.lives`).
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube.lives import Lives
from antiphon.fabrics.cube.rerouting import FaultOptions, ReroutingVCubePs
from antiphon.fabrics.cube.topic import Options
from antiphon.fabrics.cube.topology import Cube
from antiphon.fabrics.cube.total_messages import KeeperIs, VoterIs
from antiphon.kernel.message import TOTAL, UNSPECIFIED, Message
from antiphon.kernel.process import NO_NODE, Environment

EPOCH_BITS: Final[i64] = 32
"""Versions of who counts begin with the epoch of the keeper that made them: what an earlier one says is older."""


class Electorate(ReroutingVCubePs):
    """The part of a node that knows who counts, through all lives of its voter."""

    def __init__(self, environment: Environment, cube: Cube, options: Options, faults: FaultOptions) -> None:
        super().__init__(environment, cube, options, faults)
        self._voters: dict[i64, bool] = dict.fromkeys(cube.members(), True)
        self._version: i64 = 1
        self._lives: Lives = Lives(self.me, list(cube.members()))
        self.has_majority: bool = True
        # How often it was asked whether what is written down is on disk, and there was no answer yet.
        self._unsynced: i64 = 0
        records = environment.journal() if options.total else None
        self._is_kept: Final[bool] = records is not None
        # Whether this node is a voter that had an earlier life.
        self._is_back: bool = False
        if records is not None:
            self._restore(records)

    def begin_as_newcomer(self) -> None:
        if self._is_back:
            return
        super().begin_as_newcomer()
        self._version = 0
        self._voters = {}
        self._count_voters()

    def who_keeps(self) -> KeeperIs:
        return KeeperIs(self.me, self.epoch, self.keeper, self._version, vec[i64](sorted(self._voters)))

    def voter_is(self) -> VoterIs:
        """Which voter this node is."""
        return VoterIs(self.me, self._lives.incarnation, self._lives.voter)

    # What outlives this process.

    def _restore(self, records: list[Message]) -> None:
        """Go on as the voter that has written this."""
        past: KeeperIs | None = None
        voter: VoterIs | None = None
        for record in records:
            if isinstance(record, KeeperIs):
                past = record
            elif isinstance(record, VoterIs):
                voter = record
        if past is None or voter is None:
            return
        if len(past.voters) == 0:
            # It had not heard who counts. If it founds the cluster anew, its places are above all that there were.
            self.epoch = past.sequence + 1
            self._version = self.epoch << EPOCH_BITS
            return
        self._is_back = True
        self._lives = Lives(self.me, list(self.cube.members()), voter.origin, voter.sequence + 1)
        self.epoch = past.sequence
        # Where it was the keeper it begins another epoch: nothing is granted twice in one.
        self.keeper = NO_NODE if past.origin == self.me else past.origin
        self._version = past.version
        self._voters = {}
        for node in past.voters:
            self._voters[node] = True
        self._count_voters()

    def _remember(self) -> None:
        """Write down who this node is, and what it knows of the keeper and of those who count."""
        if not self._is_kept:
            return
        self.environment.rewrite([self.voter_is(), self.who_keeps()])
        if not self.environment.sync():
            self._unsynced += 1

    # Who is within reach.

    def _reached(self, lost: i64 = NO_NODE) -> dict[i64, bool]:
        """The voters within reach, this node among them, but for one node that is just lost."""
        reached: dict[i64, bool] = {self._lives.voter: True}
        for node in self.present:
            if node != lost:
                reached[self._lives.voter_of(node)] = True
        return reached

    def _reaches_all(self) -> bool:
        return len(self.missing_voters()) == 0

    def voters(self) -> list[int]:
        """Those of whom a majority is needed."""
        return sorted(self._voters)

    def missing_voters(self) -> list[int]:
        """Those of them that are out of reach."""
        reached = self._reached()
        return [voter for voter in sorted(self._voters) if voter not in reached]

    def _count_voters(self, lost: i64 = NO_NODE) -> None:
        among = self._reached(lost)
        reached: i64 = 0
        for voter in self._voters:
            if voter in among:
                reached += 1
        missing = len(self._voters) - reached
        if reached != missing or reached == 0:
            self.has_majority = reached > missing
        else:
            self.has_majority = min(self._voters) in among

    def refusal(self, order: i64, topic: i64 = 0) -> str | None:
        chosen = self.options.strength if order == UNSPECIFIED else order
        if chosen != TOTAL or not self.options.total or self.has_majority or self.keeper == NO_NODE:
            return None
        lost = ", ".join(str(voter) for voter in self.missing_voters())
        return (
            f"this part of the cube cannot order totally: nodes {lost} cannot be reached, and without them there is no "
            f"majority; publish in another order, or wait until they are back with their logs"
        )

    def counts_for_total(self, node: i64) -> bool:
        """Whether total order has to wait for a node."""
        return node in self.present or self.is_missed(node)

    def is_missed(self, node: i64) -> bool:
        """Whether a node is out of reach that still counts, and of which no later life is known."""
        if node in self.present or self._lives.is_over(node):
            return False
        voter = self._lives.voter_of(node)
        return (node if voter == NO_NODE else voter) in self._voters
