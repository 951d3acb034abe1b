"""The voters of a cube whose nodes may fail, and the part of it that a node writes down for its next incarnation.

The part of :mod:`antiphon.fabrics.cube.total_order.quorum` that knows the voters, which of them are within reach, and
whether these are a majority. Voters have the identifiers of their first lives
(:mod:`antiphon.fabrics.cube.total_order.incarnations`).

Voters change in two steps. The lock manager *proposes* other voters; when majorities of the voters and of the proposed
ones have the proposal on their disks, it is *agreed*. A node that knows a proposal needs both majorities until then.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube.repair.presence import Presence
from antiphon.fabrics.cube.topology import Cube
from antiphon.fabrics.cube.total_order.incarnations import VoterIncarnations
from antiphon.fabrics.cube.total_order.messages import LockManagerNotice, VoterNotice
from antiphon.kernel.message import ProtocolMessage
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
        # The voters that are proposed to follow, and the version that they would be; 0 if none are proposed.
        self.proposed: dict[i64, bool] = {}
        self.proposal: i64 = 0
        # Voters of proposals that others have replaced since the last agreement.
        self._passed_over: list[i64] = []
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
        self.drop_proposal()
        self.count()

    def notice(self, source: i64, epoch: i64, manager: i64) -> LockManagerNotice:
        """All that this node knows of the lock manager and of the voters."""
        voters, proposed = vec[i64](sorted(self.voters)), vec[i64](sorted(self.proposed))
        return LockManagerNotice(source, epoch, manager, self.version, voters, self.proposal, proposed)

    def voter_is(self) -> VoterNotice:
        """The notice that says which voter this node is."""
        return VoterNotice(self._me, self.incarnations.incarnation, self.incarnations.voter)

    # What outlives this process.

    def _restore(self, records: list[ProtocolMessage], nodes: list[int]) -> None:
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
        self.voters = names_of(past.voters)
        self.proposal = past.proposal
        self.proposed = names_of(past.proposed)
        self.count()

    def remember(self, manager: LockManagerNotice) -> None:
        """Write down who this node is, and what it knows of the lock manager and of those who count."""
        if not self._is_kept:
            return
        self._environment.rewrite([self.voter_is(), manager])
        if not self._environment.sync():
            self.unsynced += 1

    # Changes.

    def everyone(self) -> list[i64]:
        """The voters and the proposed ones, ascending."""
        return sorted({**self.voters, **self.proposed})

    def has(self, voter: i64) -> bool:
        """Whether a voter counts, or is proposed to."""
        return voter in self.voters or voter in self.proposed

    def propose(self, version: i64, voters: dict[i64, bool]) -> None:
        """Other voters are to follow; they replace a proposal of the same lock manager that was not agreed."""
        self._passed_over += [voter for voter in sorted(self.proposed) if voter not in voters]
        self.proposal = version
        self.proposed = voters
        self.count()

    def drop_proposal(self) -> None:
        """Nothing is proposed any more."""
        self.proposal = 0
        self.proposed = {}

    def agree(self) -> list[i64]:
        """Majorities agreed on the proposal; return the nodes that do not count any more."""
        before = self.everyone()
        self.version = self.proposal
        self.voters = self.proposed
        self.drop_proposal()
        return self._uncounted(before)

    def knows_all_of(self, message: LockManagerNotice) -> bool:
        """Whether a notice has nothing new about the voters."""
        return message.version <= self.version and message.proposal <= max(self.version, self.proposal)

    def adopt(self, message: LockManagerNotice) -> list[i64]:
        """Learn the later voters and the later proposal of a notice; return the nodes that do not count any more."""
        before = self.everyone()
        if message.version > self.version:
            self.version = message.version
            self.voters = names_of(message.voters)
            if self.proposal <= self.version:
                # Whoever agreed on later voters knew it, if it could ever have been agreed.
                self.drop_proposal()
        if message.proposal > max(self.version, self.proposal):
            self.proposal = message.proposal
            self.proposed = names_of(message.proposed)
        return self._uncounted(before)

    def _uncounted(self, before: list[i64]) -> list[i64]:
        """Count anew; return the lives of voters that counted before, or were proposed once, and do not any more."""
        self.count()
        uncounted = [voter for voter in sorted({*before, *self._passed_over}) if not self.has(voter)]
        self._passed_over = []
        return [node for voter in uncounted for node in self.incarnations.nodes_of(voter)]

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
        return [voter for voter in self.everyone() if voter not in reached]

    def count(self, lost: i64 = NO_NODE) -> None:
        """Find out whether a majority is within reach, but for one node that is just lost."""
        self.has_majority = self.is_majority(self.reached(lost))

    def hears_majority(self) -> bool:
        """Whether a majority is within reach and is not silent, so that it does not get lost in the next moment."""
        heard: dict[i64, bool] = {self.incarnations.voter: True}
        for node in self._presence.heard_from():
            heard[self.incarnations.voter_of(node)] = True
        return self.is_majority(heard)

    def is_majority(self, among: dict[i64, bool]) -> bool:
        """Whether these are all the majorities that are needed."""
        return is_majority_of(self.voters, among) and (self.proposal == 0 or is_majority_of(self.proposed, among))

    def why_no_total(self) -> str:
        """The reason why total publications are refused where there is no majority."""
        lost = ", ".join(str(voter) for voter in self.missing())
        return (
            f"this part of the cube cannot order totally: nodes {lost} cannot be reached, and without them there is no "
            f"majority; publish in another order, or wait until they are back with their logs"
        )

    def may_bring(self, node: i64) -> bool:
        """Whether a node may still send what it has begun: it, or its next life with its log, is there or counts."""
        if node in self._presence.present or self.is_missed(node):
            return True
        return self.is_missed(self.incarnations.latest(self.incarnations.voter_of(node)))

    def is_missed(self, node: i64) -> bool:
        """Whether a node is out of reach that still counts, and of which no later life is known."""
        if node in self._presence.present or self.incarnations.is_over(node):
            return False
        voter = self.incarnations.voter_of(node)
        return self.has(node if voter == NO_NODE else voter)


def is_majority_of(voters: dict[i64, bool], among: dict[i64, bool]) -> bool:
    """Whether these are more than half of the voters, or half of them with the lowest."""
    reached: i64 = 0
    for voter in voters:
        if voter in among:
            reached += 1
    missing = len(voters) - reached
    if reached != missing or reached == 0:
        return reached > missing
    return min(voters) in among


def names_of(voters: vec[i64]) -> dict[i64, bool]:
    """The voters of a list, in its order."""
    names: dict[i64, bool] = {}
    for voter in voters:
        names[voter] = True
    return names
