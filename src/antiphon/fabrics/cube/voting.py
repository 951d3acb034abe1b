"""Who keeps the claims of a cube whose nodes may fail, and who counts: keepers that are replaced, and majorities.

Adds to :mod:`antiphon.fabrics.cube.totals` a keeper that outlives its node. ``docs/architecture.md`` argues it.

* **Voters.** The keeper says who counts: all that it has met while it reached a majority of those who counted before,
  except for those who were out of reach for ``exclude_ticks``. (Of two halves that with the lowest voter counts as the
  majority.) Total publications start where a majority is within reach, and no member is away that counts. Elsewhere
  they wait, and new ones are refused.
* **Keeper.** If the keeper is out of reach for so long, or nobody knows one, the lowest voter within reach begins the
  next epoch, if a majority is within reach. It grants when all within reach have told it what stands. Nodes answer one
  keeper in an epoch.
* **Grants** are bound to the connection with the keeper. Who loses it, or hears of another keeper, takes back its locks
  and claims anew.

Two keepers at a time are unlikely, and do no harm to the order, since what they grant is delivered by its place
(:mod:`antiphon.fabrics.cube.lasting_totals`).
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube.rerouting import FaultOptions, ReroutingVCubePs
from antiphon.fabrics.cube.topic import Options
from antiphon.fabrics.cube.topology import Cube
from antiphon.fabrics.cube.total_messages import Claim, KeeperIs, Release, Standing, ToKeeper, Voters
from antiphon.kernel.message import TOTAL, UNSPECIFIED, Message
from antiphon.kernel.process import NO_NODE, Environment
from antiphon.orders.claims import Wish

EPOCH_BITS: Final[i64] = 32
"""Versions of who counts begin with the epoch of the keeper that made them: what an earlier one says is older."""

EXCLUDING: Final[i64] = 2
"""The name of the timer."""


class Voting(ReroutingVCubePs):
    """The part of a node that agrees with others on a keeper."""

    def __init__(self, environment: Environment, cube: Cube, options: Options, faults: FaultOptions) -> None:
        super().__init__(environment, cube, options, faults)
        self._voters: dict[i64, bool] = dict.fromkeys(cube.members(), True)
        self._version: i64 = 1
        self.has_majority: bool = True
        # Whether this node is the keeper, and all whom it reaches have told it what stands.
        self._is_active: bool = self.keeper == self.me
        # As the keeper, in which attempt each has said last what it claims.
        self._attempts: dict[i64, i64] = {}
        self._is_looking: bool = False
        self._look_at: i64 = 0

    def start(self) -> None:
        super().start()
        if self.options.total and self.keeper == NO_NODE:
            self._look_later()

    # What the part above adds.

    def take_back_locks(self) -> None:
        """What this node was granted does not count any more, nor what is on its way."""
        raise NotImplementedError

    def meet_again(self, node: i64) -> None:
        """A node is within reach that may not know what this one has taken back."""
        raise NotImplementedError

    def voter_removed(self, node: i64) -> None:
        """Nobody waits for a node any more."""
        raise NotImplementedError

    # Who counts.

    def begin_as_newcomer(self) -> None:
        super().begin_as_newcomer()
        self._version = 0
        self._voters = {}
        self._is_active = False
        self._count_voters()

    def begin_counting_at(self, counter: i64) -> None:
        super().begin_counting_at(counter)
        self.attempt = max(self.attempt, counter)

    def who_keeps(self) -> KeeperIs:
        return KeeperIs(self.me, self.epoch, self.keeper, self._version, vec[i64](sorted(self._voters)))

    def _count_voters(self, lost: i64 = NO_NODE) -> None:
        reached: i64 = 0
        for voter in self._voters:
            if (voter == self.me or voter in self.present) and voter != lost:
                reached += 1
        missing = len(self._voters) - reached
        if reached != missing or reached == 0:
            self.has_majority = reached > missing
        else:
            lowest = min(self._voters)
            self.has_majority = (lowest == self.me or lowest in self.present) and lowest != lost

    def refusal(self, order: i64) -> str | None:
        chosen = self.options.strength if order == UNSPECIFIED else order
        if chosen != TOTAL or not self.options.total or self.has_majority or self.keeper == NO_NODE:
            return None
        lost = ", ".join(str(node) for node in sorted(self._voters) if node != self.me and node not in self.present)
        return (
            f"this part of the cube cannot order totally: nodes {lost} cannot be reached, and without them there is no "
            f"majority; publish in another order, or wait until they are back"
        )

    def peer_lost(self, peer: i64) -> None:
        if peer not in self.present:
            return
        # Before anything goes on for which there is no majority any more.
        self._count_voters(peer)
        super().peer_lost(peer)
        if self.options.total:
            if peer == self.keeper:
                self.take_back_locks()
            self._look_later()
            self.go_on_opened()

    def left(self, node: i64) -> None:
        super().left(node)
        if self.options.total and self._is_active and self.has_majority:
            self._change_voters([], [node])
            self.go_on_opened()

    def peer_found(self, peer: i64) -> None:
        super().peer_found(peer)
        if self.options.total:
            self._found_voter(peer)

    def joined(self, node: i64) -> None:
        super().joined(node)
        if self.options.total:
            self._found_voter(node)

    def _found_voter(self, peer: i64) -> None:
        self._count_voters()
        self.meet_again(peer)
        # Others may be about to be found too: nobody is excluded at once.
        self._look_later()
        if peer == self.keeper:
            # It may have come back and know nothing of it; or it waits to hear what stands.
            self.environment.send(peer, self.who_keeps())
            self.environment.send(peer, self.own_standing())
        elif self.keeper not in (self.me, NO_NODE) and self.keeper not in self.present:
            # The keeper cannot say it to newcomers.
            self.environment.send(peer, self.who_keeps())
        self._admit()
        self._go_on_with_majority()
        self.go_on_opened()

    def _admit(self) -> None:
        """Whoever is met where there is a majority counts from now on."""
        if self._is_active and self.has_majority:
            self._change_voters([node for node in self.present if node not in self._voters], [])

    def _change_voters(self, added: list[i64], removed: list[i64]) -> None:
        """As the keeper, decide who counts, and tell all."""
        removed = [node for node in removed if node in self._voters]
        if len(added) + len(removed) == 0:
            return
        before = self._version
        self._version = max(before + 1, self.epoch << EPOCH_BITS)
        change = Voters(self.me, self.epoch, before, self._version, vec[i64](added), vec[i64](removed))
        for node in self.present:
            if node not in added:
                self.environment.send(node, change)
        self._apply(change.added, change.removed)
        for node in added:
            # Who is new knows nobody.
            self.environment.send(node, self.who_keeps())

    def _apply(self, added: vec[i64], removed: vec[i64]) -> None:
        for node in added:
            self._voters[node] = True
        for node in removed:
            self._voters.pop(node, False)
            self.voter_removed(node)
            self._drop_claims(node)
        self._count_voters()
        self._go_on_with_majority()

    def expire(self, name: i64) -> None:
        if name != EXCLUDING:
            super().expire(name)
            return
        self._is_looking = False
        if self.environment.now() < self._look_at:
            self._set_timer()
        elif self.has_majority and self._is_active:
            until = self.environment.now() - self.faults.exclude_ticks
            lost = [node for node in self._voters if node != self.me and node not in self.present]
            self._change_voters([], [node for node in lost if self.lost_at.get(node, 0) <= until])
        elif self.has_majority and self.keeper == self.me:
            self.take_standing()
        elif self.has_majority and self.keeper not in self.present:
            self._look_for_keeper()
        self._go_on_with_majority()
        self.go_on_opened()

    def is_calm_since(self, time: i64) -> bool:
        """Whether nobody was lost or found for a while, all of which is after some time; it is looked at again."""
        now = self.environment.now()
        if now >= max(time + self.faults.exclude_ticks, self._look_at):
            return True
        if not self._is_looking:
            self._look_later()
        return False

    def _look_later(self) -> None:
        """When nothing has changed for a while somebody may be excluded, or there is to be another keeper."""
        self._look_at = self.environment.now() + self.faults.exclude_ticks
        if not self._is_looking:
            self._set_timer()

    def _set_timer(self) -> None:
        self._is_looking = True
        self.environment.set_timer(max(1, self._look_at - self.environment.now()), EXCLUDING)

    def _go_on_with_majority(self) -> None:
        self.take_standing()
        for topic in self.topics():
            self.opened[topic.name] = topic

    def counts_for_total(self, node: i64) -> bool:
        """Whether total order has to wait for a node."""
        return node in self._voters or node in self.present

    def _look_for_keeper(self) -> None:
        lowest = min([node for node in self._voters if node == self.me or node in self.present], default=NO_NODE)
        if lowest != self.me:
            # It may have come back and know nothing of it.
            self.environment.send(lowest, self.who_keeps())
        elif not self._is_leaving:
            self.enter_epoch(self.epoch + 1, self.me)
            self.begin_keeping()

    # The keeper.

    def attempt_of(self, claimant: i64) -> i64:
        return self._attempts.get(claimant, 0)

    def enter_epoch(self, epoch: i64, keeper: i64) -> None:
        super().enter_epoch(epoch, keeper)
        self._attempts.clear()
        self._is_active = False
        self.take_back_locks()

    def receive_keeper(self, sender: i64, message: KeeperIs) -> None:
        is_same = message.sequence == self.epoch
        if is_same and message.origin == self.me and self.keeper == self.me:
            if not self._is_active:
                # Who has answered may know better who counts.
                self._hear_of_voters(message)
                self.take_standing()
            elif message.version < self._version:
                self.environment.send(sender, self.who_keeps())
            return
        if message.sequence > self.epoch or (is_same and message.origin == self.keeper):
            self._hear_of_keeper(message, is_same)
        elif is_same and self.keeper == self.me:
            # Two have begun the same epoch, and whoever has answered one does not answer the other. The lower begins
            # the next, unless it is gone.
            if self.me < message.origin or (self.has_majority and message.origin not in self.present):
                self.enter_epoch(self.epoch + 1, self.me)
                self.begin_keeping()
            elif not self._is_active:
                self._hear_of_keeper(message, False)
        elif self.keeper != NO_NODE and (sender == message.origin or message.sequence < self.epoch):
            self.environment.send(sender, self.who_keeps())

    def _hear_of_keeper(self, message: KeeperIs, is_known: bool) -> None:
        self._hear_of_voters(message)
        if is_known:
            # It was out of reach for a while: what it was told then may not have come.
            self.take_back_locks()
        elif message.origin != self.me:
            self.enter_epoch(message.sequence, message.origin)
        else:
            # Or it was one in an earlier life; nothing is granted twice in one epoch.
            self.enter_epoch(message.sequence + 1, self.me)
        if self.keeper == self.me:
            self._begin_or_resign()
        elif self.keeper in self.present:
            self.environment.send(self.keeper, self.own_standing())
        else:
            self._look_later()

    def _hear_of_voters(self, message: KeeperIs) -> None:
        if message.version > self._version:
            self._version = message.version
            before = self._voters
            self._voters = {}
            for node in message.voters:
                self._voters[node] = True
            self._count_voters()
            for node in before:
                if node not in self._voters:
                    self.voter_removed(node)

    def _begin_or_resign(self) -> None:
        if self._is_leaving:
            self._resign()
        elif not self._is_active:
            self.begin_keeping()

    def receive_standing(self, message: Standing) -> None:
        if message.sequence != self.epoch or self.keeper != self.me:
            return
        # Nothing else stands than what somebody says now, who may have been out of reach for a while.
        source = message.source
        self._attempts[source] = message.attempt
        self._early = [each for each in self._early if each.source != source]
        self._standing = [each for each in self._standing if each.source != source]
        self._drop_claims(source)
        super().receive_standing(message)

    def _drop_claims(self, claimant: i64) -> None:
        for name, claims in list(self.claims.items()):
            self.grant(name, claims.drop(claimant))

    def take_standing(self) -> None:
        if self.keeper != self.me or not self.has_majority or len(self.awaited) > 0:
            return
        if not self._is_active:
            self._is_active = True
            self._admit()
            # Those who cannot be reached are excluded when that has lasted.
            self._look_later()
        super().take_standing()

    def keep(self, message: ToKeeper) -> None:
        if message.epoch != self.epoch or self.keeper != self.me:
            if message.epoch < self.epoch and isinstance(message, Claim) and self.keeper != NO_NODE:
                # It would wait for ever for one who does not keep any more.
                self.environment.send(message.source, self.who_keeps())
            return
        if len(self.awaited) > 0 or not self.has_majority:
            self._early.append(message)
        elif not isinstance(message, Release) or self.claims_of(message.topic).is_granted(
            message.source, message.sequence
        ):
            super().keep(message)

    def grant(self, topic: i64, granted: list[Wish]) -> None:
        # Who cannot be reached says anew what it wants when it is back.
        super().grant(topic, [wish for wish in granted if wish.source == self.me or wish.source in self.present])

    def receive(self, sender: i64, message: Message) -> None:
        if not isinstance(message, Voters):
            super().receive(sender, message)
        elif message.sequence == self.epoch and sender == self.keeper and message.version > self._version:
            if message.before != self._version:
                # Something was missed; the keeper answers with all of them.
                self.environment.send(sender, self.who_keeps())
                return
            self._version = message.version
            self._apply(message.added, message.removed)
            self.go_on_opened()

    def state(self) -> str:
        return f"{super().state()} {self._version} {sorted(self._voters)} {self._is_active}"
