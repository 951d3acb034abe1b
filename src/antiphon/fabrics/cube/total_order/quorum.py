"""The lock manager of a cube whose nodes may fail: how it is replaced, and which voters count.

Adds to :mod:`antiphon.fabrics.cube.total_order.lock_manager` a lock manager that outlives its node.
``docs/proofs/cube-voters.md`` argues it.

* **Voters.** The lock manager proposes which voters count, and majorities agree on it
  (:mod:`antiphon.fabrics.cube.total_order.voter_changes`). It adds nodes that it meets while it reaches a majority of
  the voters, and removes voters that were out of reach for ``exclude_ticks``, or were silent for so long that they are
  lost. (Of two halves the one with the lowest voter counts as the majority.) Total publications start where a majority
  is within reach and no member that counts is away. Elsewhere they wait, and new ones are refused.
* **Election.** If the lock manager is out of reach for so long, or nobody knows one, the lowest voter within reach
  begins the next epoch, if a majority is within reach. It grants when all nodes within reach have sent their open
  claims. A node answers one lock manager per epoch.
* **Returns.** A node that returns with its log is the voter that it was
  (:mod:`antiphon.fabrics.cube.total_order.incarnations`): epoch, lock manager and voters are on its disk before it
  answers a lock manager of that epoch, or grants as one.
* **Grants** are bound to the connection with the lock manager. A publisher that loses it, or hears of another lock
  manager, takes back its locks and claims again.

Two lock managers at a time are unlikely, and do no harm to the order, because publications are delivered by their
places (:mod:`antiphon.fabrics.cube.repair.delivery`).
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.fabrics.cube.agenda import Agenda
from antiphon.fabrics.cube.nodes import CubeNodes
from antiphon.fabrics.cube.repair.presence import Presence
from antiphon.fabrics.cube.topic import CubeTopicTable, FaultOptions
from antiphon.fabrics.cube.total_order.calm import CalmTimer
from antiphon.fabrics.cube.total_order.electorate import Electorate
from antiphon.fabrics.cube.total_order.lock_manager import LockManager
from antiphon.fabrics.cube.total_order.messages import (
    GrantRelease,
    GrantRequest,
    LockManagerMessage,
    LockManagerNotice,
    OpenClaims,
    VoterAgreement,
    VoterChange,
    VoterChangeResponse,
    VoterNotice,
)
from antiphon.fabrics.cube.total_order.voter_changes import VoterChanges
from antiphon.kernel.message import TOTAL, UNSPECIFIED, ProtocolMessage
from antiphon.kernel.process import NO_NODE, Environment
from antiphon.orders.lock_queue import LockRequest


@final
class QuorumLockManager(LockManager):
    """Agrees with other nodes on a lock manager and on the voters."""

    def __init__(
        self,
        environment: Environment,
        topics: CubeTopicTable,
        nodes: CubeNodes,
        agenda: Agenda,
        presence: Presence,
        electorate: Electorate,
        faults: FaultOptions,
    ) -> None:
        super().__init__(environment, topics, nodes)
        self._agenda: Final[Agenda] = agenda
        self._presence: Final[Presence] = presence
        self._electorate: Final[Electorate] = electorate
        self._faults: Final[FaultOptions] = faults
        self._changes: Final = VoterChanges(environment, presence, electorate)
        past = electorate.past
        if past is not None and not electorate.is_back:
            self.epoch = past.sequence + 1
        elif past is not None:
            self.epoch = past.sequence
            # Where it was the lock manager it begins another epoch: nothing is granted twice in one.
            self.manager = NO_NODE if past.origin == self.me else past.origin
        # Whether this node is the lock manager, and all whom it reaches have told it what stands.
        self._is_active: bool = self.manager == self.me
        # As the lock manager, in which attempt each has said last what it claims.
        self._attempts: dict[i64, i64] = {}
        # When it runs out, voters may be excluded or an election may begin.
        self.calm: Final = CalmTimer(environment, faults.exclude_ticks)
        self._found_at: i64 = -faults.exclude_ticks
        # What waits until all that was written down is on disk.
        self._owes_claims: bool = False
        self._owes_response: bool = False
        self._owes_introductions: bool = False

    def notice(self) -> LockManagerNotice:
        return self._electorate.notice(self.me, self.epoch, self.manager)

    def start(self) -> None:
        """The node is up: say which voter it is, and look for a lock manager if it knows none."""
        if not self.topics.options.total:
            return
        self._electorate.remember(self.notice())
        if self.manager == NO_NODE or self._electorate.is_back:
            for node in self._presence.present:
                self._introduce(node)
        if self.manager == self.me or self.manager in self._presence.present:
            return
        if self._electorate.is_back and len(self._electorate.missing()) == 0:
            # Nobody else could know of another lock manager.
            self._elect()
        else:
            self.calm.put_off()

    def synced(self) -> None:
        """All is on disk that was written when it was first asked without an answer."""
        self._electorate.unsynced -= 1
        if self._electorate.unsynced > 0:
            return
        if self._owes_introductions:
            self._owes_introductions = False
            for node in self._presence.present:
                self._introduce(node)
        if self._owes_claims:
            self._send_claims()
        elif self._owes_response:
            self._respond()
        self.take_claims()
        self._agenda.advance_opened()

    def _introduce(self, node: i64) -> None:
        """Say which voter this node is, once its next life will know better."""
        if self._electorate.unsynced > 0:
            self._owes_introductions = True
        else:
            self.environment.send(node, self._electorate.voter_is())

    def _on_voter_notice(self, sender: i64, message: VoterNotice) -> None:
        """Another node says which voter it is."""
        if message.source != sender:
            return
        over = self._electorate.incarnations.introduce(message.source, message.origin, message.sequence)
        for node in over:
            self._changes.unfollow(node)
        self._forget(over)
        self._electorate.count()
        self._changes.count()
        self._admit()
        self._advance_with_majority()
        self._agenda.advance_opened()

    def _send_claims(self) -> None:
        """Answer the lock manager; a later life of this node must not answer another one of the same epoch.

        The lock manager learns first which voters this node knows: nothing is to be agreed without that.
        """
        self._owes_claims = self._electorate.unsynced > 0
        if not self._owes_claims and self.manager in self._presence.present:
            self.environment.send(self.manager, self.notice())
            self.environment.send(self.manager, self.own_claims())
            self._respond()

    def _respond(self) -> None:
        """Answer a proposal of the lock manager, once it is on disk."""
        electorate = self._electorate
        if electorate.proposal == 0 or self._changes.is_inherited(self.epoch):
            return
        self._owes_response = electorate.unsynced > 0
        if self._owes_response:
            return
        if self.manager == self.me:
            self._on_response(self.me, electorate.proposal)
        elif self.manager in self._presence.present:
            self.environment.send(self.manager, VoterChangeResponse(self.me, self.epoch, electorate.proposal))

    # Who counts.

    def begin_as_newcomer(self) -> None:
        self._is_active = False
        if not self._electorate.is_back:
            super().begin_as_newcomer()
            self._electorate.begin_as_newcomer()

    def on_node_left(self, node: i64) -> None:
        self._changes.unfollow(node)
        super().on_node_left(node)

    def on_voter_lost(self, peer: i64) -> None:
        """A node is out of reach."""
        if peer == self.manager:
            self.claimant.take_back_locks()
        elif not self._electorate.is_missed(peer):
            # It has not said which voter it is, or does not count yet: no change of voters would end its claims.
            self._drop_claims(peer)
        self.calm.put_off()
        if self._presence.is_lost_for(peer, self._faults.exclude_ticks) and self._electorate.hears_majority():
            # Its silence has lasted long enough, and nobody else is about to be lost whom a majority needs.
            self._advance_without(peer)
        self._agenda.advance_opened()

    def _advance_without(self, peer: i64) -> None:
        """A voter has been silent for long: exclude it at once, or begin an election if it was the lock manager."""
        if self._is_active:
            voter = self._electorate.incarnations.voter_of(peer)
            self._change_voters([], [voter] if voter in self._electorate.missing() else [])
        elif peer == self.manager:
            self._elect()

    def on_voter_left(self, node: i64) -> None:
        """A node has left in an orderly way."""
        if self._leads():
            self._change_voters([], [self._electorate.incarnations.voter_of(node)])
            self._agenda.advance_opened()

    def on_voter_found(self, peer: i64) -> None:
        """A node is within reach."""
        self._introduce(peer)
        self._electorate.count()
        self.claimant.on_node_found(peer)
        # Others may be about to be found too: nobody is excluded at once.
        self._found_at = self.environment.now()
        self.calm.put_off()
        if peer == self.manager:
            # It may have come back and know nothing of it; or it waits to hear what stands.
            self._send_claims()
        elif self.manager not in (self.me, NO_NODE) and self.manager not in self._presence.present:
            # The lock manager cannot say it to newcomers.
            self.environment.send(peer, self.notice())
        self._admit()
        self._advance_with_majority()
        self._agenda.advance_opened()

    def _leads(self) -> bool:
        """Whether this node is the lock manager, and the majorities are within reach and follow it."""
        return self._is_active and self._electorate.has_majority and self._changes.is_followed

    def _admit(self) -> None:
        """Where there is a majority, let nodes count that this one has met and that have said which voters they are."""
        if self._leads():
            met = [self._electorate.incarnations.voter_of(node) for node in self._presence.present]
            self._change_voters([voter for voter in met if voter != NO_NODE and not self._electorate.has(voter)], [])

    def dismiss(self, voters: list[int]) -> None:
        """An operator says that voters are gone for good: from now on they do not count, and all are told."""
        electorate = self._electorate
        gone = [voter for voter in electorate.missing() if voter in voters]
        if len(gone) == 0:
            return
        self._changes.propose(self.epoch, {voter: True for voter in electorate.everyone() if voter not in gone})
        self._agree()
        for node in self._presence.present:
            self.environment.send(node, self.notice())
        self.calm.put_off()
        self._agenda.advance_opened()

    def _change_voters(self, added: list[i64], removed: list[i64]) -> None:
        """As the lock manager, propose other voters to all nodes."""
        if self._changes.change(self.epoch, added, removed):
            self._respond()

    def _on_response(self, node: i64, version: i64) -> None:
        """A node has a proposal of this lock manager on disk."""
        if self.manager == self.me and self._is_active and self._changes.responded(node, version):
            self._agree()
            self._changes.announce(self.epoch)
            self._admit()
            if len(self._electorate.missing()) > 0:
                self.calm.put_off()

    def _agree(self) -> None:
        """The proposed voters count from now on."""
        removed = self._electorate.agree()
        self._electorate.remember(self.notice())
        self._changes.count()
        self._forget(removed)
        self._advance_with_majority()

    def _forget(self, nodes: list[i64]) -> None:
        """Nothing waits for these nodes any more; claims of those that are within reach again stand."""
        for node in nodes:
            self.claimant.on_voter_removed(node)
            if not self._may_claim(node):
                self._drop_claims(node)

    def expire(self) -> None:
        """If nothing has changed for a while, exclude lost voters, or begin an election."""
        if self.calm.expire() and self._electorate.has_majority:
            if self._leads():
                self._change_voters([], self._changes.lost_for(self._faults.exclude_ticks, False))
            elif self.manager not in self._presence.present and self.manager != self.me:
                self._elect()
        # A lock manager that was not followed takes claims now, if it is.
        self._advance_with_majority()
        self._agenda.advance_opened()

    def _advance_with_majority(self) -> None:
        self.take_claims()
        for topic in self.topics.all():
            self._agenda.advance_later(topic)

    def _elect(self) -> None:
        reached = self._electorate.reached()
        lowest = self._electorate.incarnations.latest(
            min([voter for voter in self._electorate.voters if voter in reached], default=NO_NODE)
        )
        if lowest != self.me:
            # It may have come back and know nothing of it.
            self.environment.send(lowest, self.notice())
        elif not self.nodes.is_leaving:
            self.enter_epoch(self.epoch + 1, self.me)
            self.begin_epoch()

    # The lock manager.

    def attempt_of(self, claimant: i64) -> i64:
        return self._attempts.get(claimant, 0)

    def enter_epoch(self, epoch: i64, manager: i64) -> None:
        super().enter_epoch(epoch, manager)
        self._electorate.remember(self.notice())
        self._attempts.clear()
        self._changes.begin_epoch()
        self._is_active = False
        self.claimant.take_back_locks()

    def on_notice(self, sender: i64, message: LockManagerNotice) -> None:
        is_same = message.sequence == self.epoch
        if is_same and message.origin == self.me and self.manager == self.me:
            # Who has answered may know better who counts; and an operator may have said it elsewhere.
            self._adopt_voters(message)
            if not self._is_active:
                self.take_claims()
            elif not self._changes.bring_up_to_date(sender, self.epoch, message):
                self.environment.send(sender, self.notice())
            return
        if message.sequence > self.epoch or (is_same and message.origin == self.manager):
            self._on_newer_notice(sender, message, is_same)
        elif is_same and message.origin == self.me and self.manager == NO_NODE:
            # It was the lock manager in an earlier life.
            self._on_newer_notice(sender, message, False)
        elif is_same and self.manager == self.me:
            # Two have begun the same epoch, and whoever has answered one does not answer the other. The lower begins
            # the next, unless it is gone.
            if self.me < message.origin or (
                self._electorate.has_majority and message.origin not in self._presence.present
            ):
                self.enter_epoch(self.epoch + 1, self.me)
                self.begin_epoch()
            elif not self._is_active:
                self._on_newer_notice(sender, message, False)
        elif self.manager != NO_NODE and (sender == message.origin or message.sequence < self.epoch):
            self.environment.send(sender, self.notice())

    def _on_newer_notice(self, sender: i64, message: LockManagerNotice, is_known: bool) -> None:
        if is_known and message.version < self._electorate.version:
            # It has not heard who counts now, and the lock manager may be out of its reach.
            self.environment.send(sender, self.notice())
        self._adopt_voters(message)
        if is_known:
            # It was out of reach for a while: what it was told then may not have come.
            self.claimant.take_back_locks()
        elif message.origin != self.me:
            self.enter_epoch(message.sequence, message.origin)
        else:
            # Or it was one in an earlier life; nothing is granted twice in one epoch.
            self.enter_epoch(message.sequence + 1, self.me)
        if self.manager == self.me and self.nodes.is_leaving:
            self.resign()
        elif self.manager == self.me:
            if not self._is_active:
                self.begin_epoch()
        elif self.manager in self._presence.present:
            self._send_claims()
        elif not is_known or not self.calm.is_set:
            # What others say of a lock manager that is lost here too puts nothing off.
            self.calm.put_off()

    def _adopt_voters(self, message: LockManagerNotice) -> None:
        if not self._electorate.knows_all_of(message):
            removed = self._electorate.adopt(message)
            self._electorate.remember(self.notice())
            self._changes.count()
            self._forget(removed)

    def on_open_claims(self, message: OpenClaims) -> None:
        if message.sequence != self.epoch or self.manager != self.me or not self._may_claim(message.source):
            return
        # Nothing else stands than what somebody says now, who may have been out of reach for a while.
        self._attempts[message.source] = message.attempt
        self._drop_claims(message.source)
        self._changes.follow(message.source)
        super().on_open_claims(message)

    def _may_claim(self, claimant: i64) -> bool:
        """Whether claims of a node stand; words of a dead one may arrive after its loss or after its next life."""
        # A node that is found later is asked for its claims.
        is_near = claimant == self.me or claimant in self._presence.present
        return is_near and not self._electorate.incarnations.is_over(claimant)

    def _drop_claims(self, claimant: i64) -> None:
        """Nothing stands of what a claimant has said so far, also of what waits for a majority or for others."""
        self.early = [each for each in self.early if each.source != claimant]
        self.open_claims = [each for each in self.open_claims if each.source != claimant]
        for name, claims in list(self.claims.items()):
            self.grant(name, claims.drop(claimant))

    def take_claims(self) -> None:
        is_followed = self._electorate.has_majority and self._changes.is_followed
        if self.manager != self.me or not is_followed or len(self.awaited) > 0:
            return
        if not self._is_active:
            if self._electorate.unsynced > 0:
                # Nothing is granted in an epoch that a later life of this node might begin again.
                return
            self._is_active = True
            if self._changes.propose_inherited(self.epoch):
                self._respond()
            self._admit()
            self._exclude_lost()
        super().take_claims()

    def _exclude_lost(self) -> None:
        """As a new lock manager, remove voters that have been out of reach for long, and check the others later.

        If a node was found a moment ago others may follow, and no voter is removed at once.
        """
        if self.environment.now() - self._found_at >= self._faults.exclude_ticks:
            self._change_voters([], self._changes.lost_for(self._faults.exclude_ticks, True))
        self.calm.put_off()

    def on_request(self, message: LockManagerMessage) -> None:
        if message.epoch != self.epoch or self.manager != self.me:
            if message.epoch < self.epoch and isinstance(message, GrantRequest) and self.manager != NO_NODE:
                # It would wait for ever for one who does not keep any more.
                self.environment.send(message.source, self.notice())
            return
        if not self._may_claim(message.source):
            return
        if len(self.awaited) > 0 or not self._electorate.has_majority or not self._changes.is_followed:
            self.early.append(message)
        elif not isinstance(message, GrantRelease) or self.claims_of(message.topic).is_granted(
            message.source, message.sequence
        ):
            self.decide(message)

    def grant(self, topic: i64, granted: list[LockRequest]) -> None:
        # Who cannot be reached says anew what it wants when it is back.
        super().grant(
            topic, [wish for wish in granted if wish.source == self.me or wish.source in self._presence.present]
        )

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        if isinstance(message, VoterChange):
            self._on_voter_change(sender, message)
        elif isinstance(message, VoterChangeResponse):
            if message.sequence == self.epoch:
                self._on_response(sender, message.version)
        elif isinstance(message, VoterAgreement):
            self._on_voter_agreement(sender, message)
        elif isinstance(message, VoterNotice):
            self._on_voter_notice(sender, message)
        else:
            super().receive(sender, message)

    def _on_voter_change(self, sender: i64, message: VoterChange) -> None:
        """The lock manager proposes other voters."""
        electorate = self._electorate
        is_late = message.version <= max(electorate.version, electorate.proposal)
        if message.sequence != self.epoch or sender != self.manager or is_late:
            return
        if message.before != electorate.version:
            # Something was missed; the lock manager answers with what it is.
            self.environment.send(sender, self.notice())
            return
        self._changes.learn(message)
        electorate.remember(self.notice())
        self._respond()
        self._agenda.advance_opened()

    def _on_voter_agreement(self, sender: i64, message: VoterAgreement) -> None:
        """The lock manager has the majorities for its proposal."""
        if message.sequence != self.epoch or sender != self.manager or message.version <= self._electorate.version:
            return
        if message.version == self._electorate.proposal:
            self._agree()
            self._agenda.advance_opened()
        else:
            self.environment.send(sender, self.notice())

    def refusal(self, order: i64) -> str | None:
        """Why a publication in some order cannot be accepted now; nothing if it can."""
        options = self.topics.options
        chosen = options.strength if order == UNSPECIFIED else order
        if chosen != TOTAL or not options.total or self._electorate.has_majority or self.manager == NO_NODE:
            return None
        return self._electorate.why_no_total()

    def text(self) -> str:
        electorate = self._electorate
        return (
            f"{super().text()} {electorate.version} {sorted(electorate.voters)} {electorate.proposal} "
            f"{sorted(electorate.proposed)} {self._changes.text()} {self._is_active} {electorate.incarnations.text()}"
        )
