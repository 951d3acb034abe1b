"""How the lock manager of a cube changes the voters: majorities of the old and of the new voters agree on each change.

The part of :mod:`antiphon.fabrics.cube.total_order.quorum` that a lock manager uses. ``docs/proofs/cube-voters.md``
argues that two majorities always share a voter.

* **Followers** are the nodes within reach that have answered this lock manager in its epoch, after they told it which
  voters they know. A lock manager grants and proposes only while its followers are the majorities that are needed.
* **A proposal** goes to all nodes within reach. A node writes it down before it answers. The proposal is agreed when
  those that have answered are a majority of the voters and a majority of the proposed ones.
* **A lock manager that finds a proposal of an earlier epoch** proposes the same voters anew before anything else: that
  proposal may have been agreed. It may replace a proposal of its own, which only the lock manager itself can agree on.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube.repair.presence import Presence
from antiphon.fabrics.cube.total_order.electorate import EPOCH_BITS, Electorate, is_majority_of
from antiphon.fabrics.cube.total_order.messages import LockManagerNotice, VoterAgreement, VoterChange
from antiphon.kernel.process import Environment


@final
class VoterChanges:
    """The followers of a lock manager, and the change that it proposes."""

    def __init__(self, environment: Environment, presence: Presence, electorate: Electorate) -> None:
        self._environment: Final[Environment] = environment
        self._me: Final[i64] = environment.identifier
        self._presence: Final[Presence] = presence
        self._electorate: Final[Electorate] = electorate
        # The lock manager of the first epoch is known to all from the start.
        self._followers: dict[i64, bool] = dict.fromkeys([*presence.present, self._me], True)
        self.is_followed: bool = True
        # The voters that have the proposal on disk.
        self._responded: dict[i64, bool] = {}

    def begin_epoch(self) -> None:
        """Nobody has answered yet."""
        self._followers.clear()
        self._responded.clear()
        self.count()

    def follow(self, node: i64) -> None:
        """A node answers the lock manager, after it said which voters it knows."""
        self._followers[node] = True
        self.count()

    def unfollow(self, node: i64) -> None:
        """A node is lost, and may follow another lock manager when it is found."""
        self._followers.pop(node, False)
        self.count()

    def count(self) -> None:
        """Find out whether the followers are the majorities that are needed."""
        voter_of = self._electorate.incarnations.voter_of
        among: dict[i64, bool] = {}
        for node in self._followers:
            among[voter_of(node)] = True
        self.is_followed = self._electorate.is_majority(among)

    def is_inherited(self, epoch: i64) -> bool:
        """Whether voters are proposed that an earlier lock manager has proposed, and may have agreed on."""
        return 0 < self._electorate.proposal < epoch << EPOCH_BITS

    def change(self, epoch: i64, added: list[i64], removed: list[i64]) -> bool:
        """Propose a change, unless another one has to be agreed first; return whether it is proposed."""
        electorate = self._electorate
        latest = electorate.voters if electorate.proposal == 0 else electorate.proposed
        wanted = dict(latest)
        for voter in added:
            wanted[voter] = True
        for voter in removed:
            wanted.pop(voter, False)
        is_change = len(wanted) > 0 and sorted(wanted) != sorted(latest)
        # Nobody waits for newcomers, so they wait. Lost voters may be those that a proposal waits for.
        must_wait = electorate.proposal != 0 and (len(removed) == 0 or self.is_inherited(epoch))
        if is_change and not must_wait:
            self.propose(epoch, wanted)
            self._broadcast(epoch)
            return True
        return False

    def propose_inherited(self, epoch: i64) -> bool:
        """Propose the voters anew that an earlier lock manager has proposed; return whether it has."""
        is_inherited = self.is_inherited(epoch)
        if is_inherited:
            self.propose(epoch, dict(self._electorate.proposed))
            self._broadcast(epoch)
        return is_inherited

    def propose(self, epoch: i64, wanted: dict[i64, bool]) -> None:
        """Decide which voters are to follow."""
        electorate = self._electorate
        electorate.propose(max(electorate.version + 1, electorate.proposal + 1, epoch << EPOCH_BITS), wanted)
        self._responded.clear()
        self.count()

    def _broadcast(self, epoch: i64) -> None:
        """Send the proposal to all nodes within reach, and write it down."""
        electorate = self._electorate
        notice = electorate.notice(self._me, epoch, self._me)
        electorate.remember(notice)
        for node in self._presence.present:
            if electorate.incarnations.voter_of(node) in electorate.voters:
                self._tell(node, epoch)
            else:
                # A newcomer knows no voters.
                self._environment.send(node, notice)

    def announce(self, epoch: i64) -> None:
        """Tell all nodes within reach that the proposal is agreed."""
        for node in self._presence.present:
            self._environment.send(node, VoterAgreement(self._me, epoch, self._electorate.version))

    def _tell(self, node: i64, epoch: i64) -> None:
        electorate = self._electorate
        voters, proposed = electorate.voters, electorate.proposed
        added = vec[i64]([voter for voter in sorted(proposed) if voter not in voters])
        removed = vec[i64]([voter for voter in sorted(voters) if voter not in proposed])
        change = VoterChange(self._me, epoch, electorate.version, electorate.proposal, added, removed)
        self._environment.send(node, change)

    def bring_up_to_date(self, node: i64, epoch: i64, message: LockManagerNotice) -> bool:
        """Send a node that knows the proposal or the voters before what it lacks; false if it lacks more than that."""
        electorate = self._electorate
        if message.version == electorate.version:
            if message.proposal < electorate.proposal:
                self._tell(node, epoch)
            return True
        if message.proposal == electorate.version:
            self._environment.send(node, VoterAgreement(self._me, epoch, electorate.version))
            return True
        return message.version > electorate.version

    def learn(self, message: VoterChange) -> None:
        """The lock manager proposes a change of the voters that this node knows."""
        wanted = dict(self._electorate.voters)
        for voter in message.added:
            wanted[voter] = True
        for voter in message.removed:
            wanted.pop(voter, False)
        self._electorate.propose(message.version, wanted)

    def lost_for(self, ticks: i64, with_silence: bool) -> list[i64]:
        """The voters that have been out of reach for so long, perhaps with the silence before they were lost."""
        presence, latest = self._presence, self._electorate.incarnations.latest
        if with_silence:
            return [voter for voter in self._electorate.missing() if presence.is_lost_for(latest(voter), ticks)]
        until = self._environment.now() - ticks
        return [voter for voter in self._electorate.missing() if presence.lost_at.get(latest(voter), 0) <= until]

    def responded(self, node: i64, version: i64) -> bool:
        """A node has a proposal on disk; return whether it is agreed now."""
        electorate = self._electorate
        if electorate.proposal == 0 or version != electorate.proposal or node not in self._followers:
            return False
        self._responded[electorate.incarnations.voter_of(node)] = True
        return is_majority_of(electorate.voters, self._responded) and is_majority_of(
            electorate.proposed, self._responded
        )

    def text(self) -> str:
        """The state as text, to compare states."""
        return f"{sorted(self._followers)} {sorted(self._responded)}"
