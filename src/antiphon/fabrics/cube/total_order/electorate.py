"""The voters of a cube whose nodes may fail, and the part of it that a node writes down for its next incarnation.

The part of :mod:`antiphon.fabrics.cube.total_order.quorum` that knows the voters, which of them are within reach, and
whether these are a majority. Voters have the identifiers of their first lives
(:mod:`antiphon.fabrics.cube.total_order.incarnations`).
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube.repair.presence import Presence
from antiphon.fabrics.cube.topology import Cube
from antiphon.fabrics.cube.total_order.incarnations import VoterIncarnations
from antiphon.fabrics.cube.total_order.messages import LockManagerNotice, VoterNotice
from antiphon.kernel.message import Message
from antiphon.kernel.process import NO_NODE, Environment

EPOCH_BITS: Final[i64] = 32
"""Versions of who counts begin with the epoch of the lock manager that made them: what an earlier one says is older."""


@final
class Electorate:
    """The voters of total order, through all incarnations of this node's voter."""

    def __init__(self, environment: Environment, cube: Cube, presence: Presence, is_total: bool) -> None:
        self._environment: Final[Environment] = environment
        self._me: Final[i64] = environment.identifier
        self._presence: Final[Presence] = presence
        self.voters: dict[i64, bool] = dict.fromkeys(cube.members(), True)
        self.version: i64 = 1
        self.incarnations: VoterIncarnations = VoterIncarnations(self._me, list(cube.members()))
        self.has_majority: bool = True
        # How often it was asked whether what is written down is on disk, and there was no answer yet.
        self.unsynced: i64 = 0
        records = environment.journal() if is_total else None
        self._is_kept: Final[bool] = records is not None
        # Whether this node is a voter that had an earlier life, and what that one has written down of the lock manager.
        self.is_back: bool = False
        self.past: LockManagerNotice | None = None
        if records is not None:
            self._restore(records, list(cube.members()))

    def begin_as_newcomer(self) -> None:
        """Others were here first, and say who counts."""
        self.version = 0
        self.voters = {}
        self.count()

    def sorted_voters(self) -> vec[i64]:
        """The voters, ascending: total order needs a majority of them."""
        return vec[i64](sorted(self.voters))

    def voter_is(self) -> VoterNotice:
        """The notice that says which voter this node is."""
        return VoterNotice(self._me, self.incarnations.incarnation, self.incarnations.voter)

    # What outlives this process.

    def _restore(self, records: list[Message], nodes: list[int]) -> None:
        """Go on as the voter that has written this."""
        past: LockManagerNotice | None = None
        voter: VoterNotice | None = None
        for record in records:
            if isinstance(record, LockManagerNotice):
                past = record
            elif isinstance(record, VoterNotice):
                voter = record
        if past is None or voter is None:
            return
        self.past = past
        if len(past.voters) == 0:
            # It had not heard who counts. If it founds the cluster anew, its places are above all that there were.
            self.version = (past.sequence + 1) << EPOCH_BITS
            return
        self.is_back = True
        self.incarnations = VoterIncarnations(self._me, nodes, voter.origin, voter.sequence + 1)
        self.version = past.version
        self.voters = {}
        for node in past.voters:
            self.voters[node] = True
        self.count()

    def remember(self, manager: LockManagerNotice) -> None:
        """Write down who this node is, and what it knows of the lock manager and of those who count."""
        if not self._is_kept:
            return
        self._environment.rewrite([self.voter_is(), manager])
        if not self._environment.sync():
            self.unsynced += 1

    # Who is within reach.

    def reached(self, lost: i64 = NO_NODE) -> dict[i64, bool]:
        """The voters within reach, this node among them, but for one node that is just lost."""
        reached: dict[i64, bool] = {self.incarnations.voter: True}
        for node in self._presence.present:
            if node != lost:
                reached[self.incarnations.voter_of(node)] = True
        return reached

    def missing(self) -> list[int]:
        """Those who count and are out of reach."""
        reached = self.reached()
        return [voter for voter in sorted(self.voters) if voter not in reached]

    def count(self, lost: i64 = NO_NODE) -> None:
        """Find out whether a majority is within reach, but for one node that is just lost."""
        self.has_majority = self._is_majority(self.reached(lost))

    def hears_majority(self) -> bool:
        """Whether a majority is within reach and is not silent, so that it does not get lost in the next moment."""
        heard: dict[i64, bool] = {self.incarnations.voter: True}
        for node in self._presence.heard():
            heard[self.incarnations.voter_of(node)] = True
        return self._is_majority(heard)

    def _is_majority(self, among: dict[i64, bool]) -> bool:
        reached: i64 = 0
        for voter in self.voters:
            if voter in among:
                reached += 1
        missing = len(self.voters) - reached
        if reached != missing or reached == 0:
            return reached > missing
        return min(self.voters) in among

    def counts_for_total(self, node: i64) -> bool:
        """Whether total order has to wait for a node."""
        return node in self._presence.present or self.is_missed(node)

    def is_missed(self, node: i64) -> bool:
        """Whether a node is out of reach that still counts, and of which no later life is known."""
        if node in self._presence.present or self.incarnations.is_over(node):
            return False
        voter = self.incarnations.voter_of(node)
        return (node if voter == NO_NODE else voter) in self.voters
