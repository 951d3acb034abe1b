"""Who keeps the claims of a cube whose nodes may fail, and who counts: keepers that are replaced, and majorities.

Adds to :mod:`antiphon.fabrics.cube.total_order.lock_manager` a keeper that outlives its node.
``docs/proofs/cube-voters.md`` argues it.

* **Voters.** The keeper says who counts: all that it has met while it reached a majority of those who counted before,
  except for those who were out of reach for ``exclude_ticks``. (Of two halves that with the lowest voter counts as the
  majority.) Total publications start where a majority is within reach, and no member is away that counts. Elsewhere
  they wait, and new ones are refused.
* **Keeper.** If the keeper is out of reach for so long, or nobody knows one, the lowest voter within reach begins the
  next epoch, if a majority is within reach. It grants when all within reach have told it what stands. Nodes answer one
  keeper in an epoch.
* **Returns.** A node that returns with its log is the voter that it was
(:mod:`antiphon.fabrics.cube.total_order.incarnations`). It
  knows what that voter knew: the epoch, its keeper, and who counts. This is on disk before the node answers a keeper of
  that epoch, or grants as one. So a voter that returns is like one that was cut off, and answers one keeper in an epoch
  through all its lives.
* **Grants** are bound to the connection with the keeper. Who loses it, or hears of another keeper, takes back its locks
  and claims anew.

Two keepers at a time are unlikely, and do no harm to the order, since what they grant is delivered by its place
(:mod:`antiphon.fabrics.cube.repair.delivery`).
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube.agenda import Agenda
from antiphon.fabrics.cube.nodes import CubeNodes
from antiphon.fabrics.cube.repair.presence import Presence
from antiphon.fabrics.cube.topic import FaultOptions, TopicTable
from antiphon.fabrics.cube.total_order.electorate import EPOCH_BITS, Electorate
from antiphon.fabrics.cube.total_order.lock_manager import LockManager
from antiphon.fabrics.cube.total_order.messages import Claim, KeeperIs, Release, Standing, ToKeeper, VoterIs, Voters
from antiphon.kernel.message import TOTAL, UNSPECIFIED, Message
from antiphon.kernel.process import NO_NODE, Environment
from antiphon.orders.lock_queue import LockRequest

EXCLUDING: Final[i64] = 2
"""The name of the timer."""


@final
class QuorumLockManager(LockManager):
    """Agrees with others on a keeper, and on who counts."""

    def __init__(
        self,
        environment: Environment,
        topics: TopicTable,
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
        past = electorate.past
        if past is not None and not electorate.is_back:
            self.epoch = past.sequence + 1
        elif past is not None:
            self.epoch = past.sequence
            # Where it was the keeper it begins another epoch: nothing is granted twice in one.
            self.keeper = NO_NODE if past.origin == self.me else past.origin
        # Whether this node is the keeper, and all whom it reaches have told it what stands.
        self._is_active: bool = self.keeper == self.me
        # As the keeper, in which attempt each has said last what it claims.
        self._attempts: dict[i64, i64] = {}
        self._is_looking: bool = False
        self._look_at: i64 = 0
        self._found_at: i64 = -faults.exclude_ticks
        # What waits until all that was written down is on disk.
        self._owes_standing: bool = False
        self._owes_introductions: bool = False

    def who_keeps(self) -> KeeperIs:
        voters = self._electorate.sorted_voters()
        return KeeperIs(self.me, self.epoch, self.keeper, self._electorate.version, voters)

    def start(self) -> None:
        """The node is up: say which voter it is, and look for a keeper if it knows none."""
        if not self.topics.options.total:
            return
        self._electorate.remember(self.who_keeps())
        if self.keeper == NO_NODE or self._electorate.is_back:
            for node in self._presence.present:
                self._introduce(node)
        if self.keeper == self.me or self.keeper in self._presence.present:
            return
        if self._electorate.is_back and len(self._electorate.missing()) == 0:
            # Nobody else could know of another keeper.
            self._look_for_keeper()
        else:
            self._look_later()

    def synced(self) -> None:
        """All is on disk that was written when it was first asked without an answer."""
        self._electorate.unsynced -= 1
        if self._electorate.unsynced > 0:
            return
        if self._owes_introductions:
            self._owes_introductions = False
            for node in self._presence.present:
                self._introduce(node)
        if self._owes_standing:
            self._tell_standing()
        self.take_standing()
        self._agenda.advance_opened()

    def _introduce(self, node: i64) -> None:
        """Say which voter this node is, once its next life will know better."""
        if self._electorate.unsynced > 0:
            self._owes_introductions = True
        else:
            self.environment.send(node, self._electorate.voter_is())

    def _receive_voter(self, sender: i64, message: VoterIs) -> None:
        """Another node says which voter it is."""
        if message.source != sender:
            return
        for node in self._electorate.lives.introduce(message.source, message.origin, message.sequence):
            self.claimant.voter_removed(node)
            self._drop_claims(node)
        self._electorate.count()
        self._admit()
        self._go_on_with_majority()
        self._agenda.advance_opened()

    def _tell_standing(self) -> None:
        """Answer the keeper; a later life of this node must not answer another one of the same epoch."""
        self._owes_standing = self._electorate.unsynced > 0
        if not self._owes_standing and self.keeper in self._presence.present:
            self.environment.send(self.keeper, self.own_standing())

    # Who counts.

    def begin_as_newcomer(self) -> None:
        self._is_active = False
        if not self._electorate.is_back:
            super().begin_as_newcomer()
            self._electorate.begin_as_newcomer()

    def voter_lost(self, peer: i64) -> None:
        """A node is out of reach."""
        if peer == self.keeper:
            self.claimant.take_back_locks()
        self._look_later()
        if self._presence.was_silent(peer) and self._electorate.hears_majority():
            # Its silence has lasted long enough, and nobody else is about to be lost whom a majority needs.
            self._go_on_without(peer)
        self._agenda.advance_opened()

    def _go_on_without(self, peer: i64) -> None:
        """Do at once what is done when somebody is out of reach for long: exclude it, or look for another keeper."""
        if self._is_active:
            self._exclude([self._electorate.lives.voter_of(peer)])
        elif peer == self.keeper:
            self._look_for_keeper()

    def _exclude(self, voters: list[i64]) -> None:
        """As the keeper, let those count no more who have been out of reach for long."""
        self._change_voters([], [voter for voter in self._electorate.missing() if voter in voters])

    def voter_left(self, node: i64) -> None:
        """A node has left in an orderly way."""
        if self._is_active and self._electorate.has_majority:
            self._change_voters([], [self._electorate.lives.voter_of(node)])
            self._agenda.advance_opened()

    def voter_found(self, peer: i64) -> None:
        """A node is within reach."""
        self._introduce(peer)
        self._electorate.count()
        self.claimant.meet_again(peer)
        # Others may be about to be found too: nobody is excluded at once.
        self._found_at = self.environment.now()
        self._look_later()
        if peer == self.keeper:
            # It may have come back and know nothing of it; or it waits to hear what stands.
            self.environment.send(peer, self.who_keeps())
            self._tell_standing()
        elif self.keeper not in (self.me, NO_NODE) and self.keeper not in self._presence.present:
            # The keeper cannot say it to newcomers.
            self.environment.send(peer, self.who_keeps())
        self._admit()
        self._go_on_with_majority()
        self._agenda.advance_opened()

    def _admit(self) -> None:
        """Whoever is met where there is a majority, and has said which voter it is, counts from now on."""
        if self._is_active and self._electorate.has_majority:
            met = [self._electorate.lives.voter_of(node) for node in self._presence.present]
            self._change_voters(
                [voter for voter in met if voter != NO_NODE and voter not in self._electorate.voters], []
            )

    def dismiss(self, voters: list[int]) -> None:
        """An operator says that voters are gone for good: from now on they do not count, and all are told."""
        gone = [voter for voter in self._electorate.missing() if voter in voters]
        if len(gone) == 0:
            return
        self._electorate.version = max(self._electorate.version + 1, self.epoch << EPOCH_BITS)
        self._apply(vec[i64](), vec[i64](gone))
        for node in self._presence.present:
            self.environment.send(node, self.who_keeps())
        self._look_later()
        self._agenda.advance_opened()

    def _change_voters(self, added: list[i64], removed: list[i64]) -> None:
        """As the keeper, decide who counts, and tell all."""
        removed = [node for node in removed if node in self._electorate.voters]
        if len(added) + len(removed) == 0:
            return
        before = self._electorate.version
        self._electorate.version = max(before + 1, self.epoch << EPOCH_BITS)
        change = Voters(self.me, self.epoch, before, self._electorate.version, vec[i64](added), vec[i64](removed))
        newcomers = [node for node in self._presence.present if self._electorate.lives.voter_of(node) in added]
        for node in self._presence.present:
            if node not in newcomers:
                self.environment.send(node, change)
        self._apply(change.added, change.removed)
        for node in newcomers:
            # Who is new knows nobody.
            self.environment.send(node, self.who_keeps())

    def _apply(self, added: vec[i64], removed: vec[i64]) -> None:
        for voter in added:
            self._electorate.voters[voter] = True
        for voter in removed:
            self._electorate.voters.pop(voter, False)
            for node in self._electorate.lives.lives_of(voter):
                self.claimant.voter_removed(node)
                self._drop_claims(node)
        self._electorate.remember(self.who_keeps())
        self._electorate.count()
        self._go_on_with_majority()

    def expire(self) -> None:
        """Nothing has changed for a while, perhaps: exclude who is lost, or look for another keeper."""
        self._is_looking = False
        if self.environment.now() < self._look_at:
            self._set_timer()
        elif self._electorate.has_majority and self._is_active:
            until = self.environment.now() - self._faults.exclude_ticks
            self._exclude(
                [
                    voter
                    for voter in self._electorate.voters
                    if self._presence.lost_at.get(self._electorate.lives.latest(voter), 0) <= until
                ]
            )
        elif self._electorate.has_majority and self.keeper == self.me:
            self.take_standing()
        elif self._electorate.has_majority and self.keeper not in self._presence.present:
            self._look_for_keeper()
        self._go_on_with_majority()
        self._agenda.advance_opened()

    def is_calm_since(self, time: i64) -> bool:
        """Whether nobody was lost or found for a while, all of which is after some time; it is looked at again."""
        now = self.environment.now()
        if now >= max(time + self._faults.exclude_ticks, self._look_at):
            return True
        if not self._is_looking:
            self._look_later()
        return False

    def _look_later(self) -> None:
        """When nothing has changed for a while somebody may be excluded, or there is to be another keeper."""
        self._look_at = self.environment.now() + self._faults.exclude_ticks
        if not self._is_looking:
            self._set_timer()

    def _set_timer(self) -> None:
        self._is_looking = True
        self.environment.set_timer(max(1, self._look_at - self.environment.now()), EXCLUDING)

    def _go_on_with_majority(self) -> None:
        self.take_standing()
        for topic in self.topics.all():
            self._agenda.advance_later(topic)

    def _look_for_keeper(self) -> None:
        reached = self._electorate.reached()
        lowest = self._electorate.lives.latest(
            min([voter for voter in self._electorate.voters if voter in reached], default=NO_NODE)
        )
        if lowest != self.me:
            # It may have come back and know nothing of it.
            self.environment.send(lowest, self.who_keeps())
        elif not self.nodes.is_leaving:
            self.enter_epoch(self.epoch + 1, self.me)
            self.begin_keeping()

    # The keeper.

    def attempt_of(self, claimant: i64) -> i64:
        return self._attempts.get(claimant, 0)

    def enter_epoch(self, epoch: i64, keeper: i64) -> None:
        super().enter_epoch(epoch, keeper)
        self._electorate.remember(self.who_keeps())
        self._attempts.clear()
        self._is_active = False
        self.claimant.take_back_locks()

    def receive_keeper(self, sender: i64, message: KeeperIs) -> None:
        is_same = message.sequence == self.epoch
        if is_same and message.origin == self.me and self.keeper == self.me:
            # Who has answered may know better who counts; and an operator may have said it elsewhere.
            self._hear_of_voters(message)
            if not self._is_active:
                self.take_standing()
            elif message.version < self._electorate.version:
                self.environment.send(sender, self.who_keeps())
            return
        if message.sequence > self.epoch or (is_same and message.origin == self.keeper):
            self._hear_of_keeper(sender, message, is_same)
        elif is_same and message.origin == self.me and self.keeper == NO_NODE:
            # It was the keeper in an earlier life.
            self._hear_of_keeper(sender, message, False)
        elif is_same and self.keeper == self.me:
            # Two have begun the same epoch, and whoever has answered one does not answer the other. The lower begins
            # the next, unless it is gone.
            if self.me < message.origin or (
                self._electorate.has_majority and message.origin not in self._presence.present
            ):
                self.enter_epoch(self.epoch + 1, self.me)
                self.begin_keeping()
            elif not self._is_active:
                self._hear_of_keeper(sender, message, False)
        elif self.keeper != NO_NODE and (sender == message.origin or message.sequence < self.epoch):
            self.environment.send(sender, self.who_keeps())

    def _hear_of_keeper(self, sender: i64, message: KeeperIs, is_known: bool) -> None:
        if is_known and message.version < self._electorate.version:
            # It has not heard who counts now, and the keeper may be out of its reach.
            self.environment.send(sender, self.who_keeps())
        self._hear_of_voters(message)
        if is_known:
            # It was out of reach for a while: what it was told then may not have come.
            self.claimant.take_back_locks()
        elif message.origin != self.me:
            self.enter_epoch(message.sequence, message.origin)
        else:
            # Or it was one in an earlier life; nothing is granted twice in one epoch.
            self.enter_epoch(message.sequence + 1, self.me)
        if self.keeper == self.me:
            self._begin_or_resign()
        elif self.keeper in self._presence.present:
            self._tell_standing()
        elif not is_known or not self._is_looking:
            # What others say of a keeper that is lost here too puts nothing off.
            self._look_later()

    def _hear_of_voters(self, message: KeeperIs) -> None:
        if message.version > self._electorate.version:
            self._electorate.version = message.version
            before = self._electorate.voters
            self._electorate.voters = {}
            for node in message.voters:
                self._electorate.voters[node] = True
            self._electorate.remember(self.who_keeps())
            self._electorate.count()
            for voter in before:
                if voter not in self._electorate.voters:
                    for node in self._electorate.lives.lives_of(voter):
                        self.claimant.voter_removed(node)

    def _begin_or_resign(self) -> None:
        if self.nodes.is_leaving:
            self.resign()
        elif not self._is_active:
            self.begin_keeping()

    def receive_standing(self, message: Standing) -> None:
        if message.sequence != self.epoch or self.keeper != self.me:
            return
        if self._electorate.lives.is_over(message.source):
            return
        # Nothing else stands than what somebody says now, who may have been out of reach for a while.
        self._attempts[message.source] = message.attempt
        self._drop_claims(message.source)
        super().receive_standing(message)

    def _drop_claims(self, claimant: i64) -> None:
        """Nothing stands of what a claimant has said so far, also of what waits for a majority or for others."""
        self.early = [each for each in self.early if each.source != claimant]
        self.standing = [each for each in self.standing if each.source != claimant]
        for name, claims in list(self.claims.items()):
            self.grant(name, claims.drop(claimant))

    def take_standing(self) -> None:
        if self.keeper != self.me or not self._electorate.has_majority or len(self.awaited) > 0:
            return
        if not self._is_active:
            if self._electorate.unsynced > 0:
                # Nothing is granted in an epoch that a later life of this node might begin again.
                return
            self._is_active = True
            self._admit()
            self._exclude_lost()
        super().take_standing()

    def _exclude_lost(self) -> None:
        """As a new keeper, exclude those who have been out of reach for long, and later those for whom it may be short.

        If somebody was found a moment ago others may follow, and nobody is excluded at once.
        """
        if self.environment.now() - self._found_at >= self._faults.exclude_ticks:
            lives, ticks = self._electorate.lives, self._faults.exclude_ticks
            self._exclude(
                [voter for voter in self._electorate.voters if self._presence.is_lost_for(lives.latest(voter), ticks)]
            )
        self._look_later()

    def keep(self, message: ToKeeper) -> None:
        if message.epoch != self.epoch or self.keeper != self.me:
            if message.epoch < self.epoch and isinstance(message, Claim) and self.keeper != NO_NODE:
                # It would wait for ever for one who does not keep any more.
                self.environment.send(message.source, self.who_keeps())
            return
        if self._electorate.lives.is_over(message.source):
            # What a dead node said on its last connection may be read after its next life has spoken on another one.
            return
        if len(self.awaited) > 0 or not self._electorate.has_majority:
            self.early.append(message)
        elif not isinstance(message, Release) or self.claims_of(message.topic).is_granted(
            message.source, message.sequence
        ):
            self.decide(message)

    def grant(self, topic: i64, granted: list[LockRequest]) -> None:
        # Who cannot be reached says anew what it wants when it is back.
        super().grant(
            topic, [wish for wish in granted if wish.source == self.me or wish.source in self._presence.present]
        )

    def receive(self, sender: i64, message: Message) -> None:
        if isinstance(message, Voters):
            self._receive_voters(sender, message)
        elif isinstance(message, VoterIs):
            self._receive_voter(sender, message)
        else:
            super().receive(sender, message)

    def _receive_voters(self, sender: i64, message: Voters) -> None:
        """The keeper says who counts from now on."""
        if message.sequence != self.epoch or sender != self.keeper or message.version <= self._electorate.version:
            return
        if message.before != self._electorate.version:
            # Something was missed; the keeper answers with all of them.
            self.environment.send(sender, self.who_keeps())
            return
        self._electorate.version = message.version
        self._apply(message.added, message.removed)
        self._agenda.advance_opened()

    def refusal(self, order: i64) -> str | None:
        """Why a publication in some order cannot be accepted now; nothing if it can."""
        options = self.topics.options
        chosen = options.strength if order == UNSPECIFIED else order
        if chosen != TOTAL or not options.total or self._electorate.has_majority or self.keeper == NO_NODE:
            return None
        lost = ", ".join(str(voter) for voter in self._electorate.missing())
        return (
            f"this part of the cube cannot order totally: nodes {lost} cannot be reached, and without them there is no "
            f"majority; publish in another order, or wait until they are back with their logs"
        )

    def text(self) -> str:
        electorate = self._electorate
        return (
            f"{super().text()} {electorate.version} {sorted(electorate.voters)} {self._is_active} "
            f"{electorate.lives.text()}"
        )
