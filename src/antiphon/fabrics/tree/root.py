"""What a broker does as root: it knows who is in the tree, begins epochs, and sees to it that there is one root.

While a living broker has no way to the root, the root is *incomplete*; when the last one has, it begins a new **epoch**
and sends the tree round. Total publications are completed in complete epochs only (``total_order.py``), and with a quorum
only if the brokers of the epoch hold the council (``quorum.py``). Who cannot be reached is *absent* then: what it
lacks is kept for it, until it is found again or has been away for too long.

Two parts of a tree that have come apart, or that have chosen two roots, find each other by **claims**: a root tells
those who should be with it and are not. Of two roots the one with the later tree stays, and the other looks for a
parent; a tree that can order counts as later than one that cannot.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.tree.attachment import CHANGE, CLAIM, DOUBLINGS_AT_MOST, GIVE_UP, PATIENCE, Attachment
from antiphon.fabrics.tree.durable_state import BEGUN, EPOCHS, Wait
from antiphon.fabrics.tree.messages import Begun, Claim, Dismiss, Install
from antiphon.fabrics.tree.options import TreeOptions
from antiphon.fabrics.tree.quorum import Council
from antiphon.fabrics.tree.topology import GONE_AT_MOST, ROOT_BITS, Overlay, astray
from antiphon.kernel.message import Message
from antiphon.kernel.process import NO_NODE, Environment


@mypyc_attr(allow_interpreted_subclasses=True)
class Reign(Attachment):
    """The part of a broker that keeps all brokers in one tree, once it is the root."""

    def __init__(self, environment: Environment, options: TreeOptions, overlay: Overlay) -> None:
        super().__init__(environment, options, overlay)
        # The timers that run out when the council is to be changed, and when those who are absent are given up.
        self._change: i64 = -1
        self._give_up: i64 = -1
        # Those whom nobody waits for any more, the latest last; when one is found it is welcome.
        self._given_up: list[int] = list(self.overlay.gone)
        # The epoch of which it is on disk that this broker has begun it, and what is to be done when there are numbers.
        self._safe_epoch: i64 = 0
        self._postponed: list[i64] = []
        # The children that have begun this epoch, with all below them.
        self._begun: set[int] = set()
        # Whether those who are missing are told that somebody is there, and how often the time between was doubled.
        self._is_claiming: bool = False
        self._claim_doublings: i64 = 0

    # What the parts above add.

    def began_epoch(self) -> None:
        """All living brokers are in one tree, as far as the root knows."""

    def all_began(self) -> None:
        """As root of an epoch that orders: all its brokers have begun it, and take no part in an earlier one."""

    # Who is missing, and when an epoch begins.

    def peer_found(self, peer: i64) -> None:
        """Somebody can be reached again, after a partition; where failures are taken at their word it is too late."""
        if not self.options.quorum:
            return
        self.dead.discard(peer)
        if self.is_root and peer not in self.reached():
            self.known.add(int(peer))
            self.is_complete = False
            self.look_for_missing()
            self.environment.send(peer, self._my_claim())

    def _missing(self) -> list[int]:
        reached = self.reached()
        awaited = self.known if self.options.quorum else self.overlay.parents
        return [
            broker
            for broker in sorted(awaited)
            if broker != self.me and broker not in reached and broker not in self.dead
        ]

    def look_for_missing(self) -> None:
        """Begin an epoch if everybody who lives has a way here; else watch those who have none."""
        if self.is_complete:
            return
        missing = self._missing()
        if not missing and self._is_one_tree():
            if self._may_begin(CLAIM):
                self._begin_epoch(self._next_overlay(self.council))
            return
        for broker in missing:
            self.environment.watch(broker)
        if not self._is_claiming:
            self._is_claiming = True
            self._claim_doublings = 0
            self.environment.set_timer(self.options.patience_ticks, CLAIM)

    def _may_begin(self, name: i64) -> bool:
        """Whether there is a number for an epoch that no later life of this broker can use; else this is done later."""
        journal = self.journal
        epoch = self.highest + (1 << ROOT_BITS)
        may = journal.may_begin(epoch)
        if not may:
            self._postponed.append(name)
        if journal.needs_epochs(epoch):
            journal.reserve_epochs(epoch)
            journal.write_standing(self.overlay, self.council, self.highest)
            if journal.is_safe(EPOCHS) and not may:
                self._postponed.pop()
                may = True
        return may

    def _do_postponed(self) -> None:
        """There are numbers for epochs again."""
        postponed = self._postponed
        self._postponed = []
        for name in postponed:
            if name == CLAIM:
                if self.is_root:
                    self.look_for_missing()
            elif name == CHANGE:
                self._propose_council()
            elif name == GIVE_UP:
                self._give_up_absent()
            else:
                self._say_begun()

    def _is_one_tree(self) -> bool:
        """Whether all ways lead here. What two children say of a broker that has moved may be at odds for a while."""
        return astray(self.reached(), self.me) == NO_NODE

    def _next_overlay(self, council: Council) -> Overlay:
        """The tree as it is now, in an epoch that nobody else begins."""
        parents = {int(self.me): int(NO_NODE), **self.reached()}
        if not self.options.quorum:
            return Overlay(self.overlay.epoch + 1, self.me, parents)
        members = set(parents)
        self.known |= members
        epoch = (((self.highest >> ROOT_BITS) + 1) << ROOT_BITS) + self.me
        absent = sorted(self.known - members)
        gone = [broker for broker in self._given_up if broker not in self.known][-GONE_AT_MOST:]
        return Overlay(epoch, self.me, parents, absent, council, council.is_held_by(members), gone)

    def _begin_epoch(self, overlay: Overlay) -> None:
        if self.options.quorum:
            self.known = {*overlay.parents, *overlay.absent}
            self._given_up = list(overlay.gone)
        else:
            self.dead.update(broker for broker in self.overlay.parents if broker not in overlay.parents)
        self.overlay = overlay
        self.current = overlay
        self.highest = max(self.highest, overlay.epoch)
        self.council = self.council.merged(overlay.council)
        self.is_complete = True
        self._begun = set()
        for child in self.children:
            self.environment.send(child, Install(overlay))
        self.journal.write_standing(self.overlay, self.council, self.highest)
        self.began_epoch()
        if self.options.quorum and self.journal.is_safe(BEGUN, 0, overlay.epoch):
            self._safe_epoch = overlay.epoch
            self._say_begun()
        if self.is_root:
            self._look_for_others(overlay)

    def _look_for_others(self, overlay: Overlay) -> None:
        """Watch those who are not in the tree; who was given up by others may have been there for long."""
        for broker in overlay.absent:
            self.environment.watch(broker)
        if overlay.absent:
            self.environment.cancel_timer(self._give_up)
            self._give_up = self.environment.set_timer(self.options.absence_ticks, GIVE_UP)
        for broker in overlay.gone:
            self.environment.watch(broker)
            if broker not in self.dead:
                self.environment.send(broker, self._my_claim())

    def _give_up_absent(self) -> None:
        """Those who have been away since the epoch began are waited for no longer."""
        if not (self.is_root and self.is_complete and self.current.absent and self._is_one_tree()):
            return
        if self._may_begin(GIVE_UP):
            self.known.difference_update(self.current.absent)
            self._remember(self.current.absent)
            self._begin_epoch(self._next_overlay(self.council))

    def _remember(self, gone: list[int]) -> None:
        self._given_up += [broker for broker in gone if broker not in self._given_up]

    def _receive_install(self, sender: i64, install: Install) -> None:
        if sender == self.parent and install.overlay.epoch > self.epoch:
            self._begin_epoch(install.overlay)

    # The council.

    def _receive_begun(self, child: i64, begun: Begun) -> None:
        if begun.epoch == self.epoch and child in self.children:
            self._begun.add(int(child))
            self._say_begun()

    def _say_begun(self) -> None:
        """Tell the root when all below have begun the epoch; the root then changes the council if it has to."""
        if self._safe_epoch != self.epoch:
            # Whoever forgot whose majority is needed could be in another one.
            return
        if any(below is not None and child not in self._begun for child, below in self.children.items()):
            return
        if self.parent != NO_NODE:
            self.environment.send(self.parent, Begun(self.epoch))
        elif self.is_root and self.is_complete and self.can_order:
            epoch = self.epoch
            self._change_council()
            if self.epoch == epoch:
                self.all_began()

    def _change_council(self) -> None:
        """All have begun the epoch: agree on what it proposed, or let some time pass and propose something."""
        proposal = self.current.council
        following = proposal.to_follow(set(self.current.parents))
        if proposal.is_exactly(following):
            return
        if sorted(following) in proposal.bodies:
            if not self._may_begin(PATIENCE):
                return
            self._begin_epoch(self._next_overlay(proposal.followed_by(following)))
        elif self.options.council_ticks > 0:
            self.environment.cancel_timer(self._change)
            self._change = self.environment.set_timer(self.options.council_ticks, CHANGE)

    def _propose_council(self) -> None:
        """Propose all that are here as members of the council."""
        members = set(self.current.parents)
        is_settled = self.is_root and self.is_complete and self.can_order and members == {int(self.me), *self.reached()}
        following = self.council.to_follow(members)
        if is_settled and sorted(following) not in self.council.bodies and self._may_begin(CHANGE):
            self._begin_epoch(self._next_overlay(self.council.proposing(following)))

    def learn(self, overlay: Overlay, council: Council, highest: i64) -> None:
        if self.options.quorum:
            self.known.update(overlay.parents)
            self.known.update(overlay.absent)
            self._remember(overlay.gone)
            self.council = self.council.merged(council)
            self.highest = max(self.highest, highest)
        if overlay.is_later_than(self.overlay):
            self.overlay = overlay

    # Claims.

    def _claim(self) -> None:
        """Tell those who have not come that somebody is there."""
        self._is_claiming = self.is_root and not self.is_complete
        if not self._is_claiming:
            return
        for broker in self._missing():
            self.environment.send(broker, self._my_claim())
        self._claim_doublings = min(self._claim_doublings + 1, DOUBLINGS_AT_MOST)
        self.environment.set_timer(self.options.patience_ticks << self._claim_doublings, CLAIM)

    def _receive_claim(self, claim: Claim) -> None:
        if claim.source == self.me or claim.source in self.dead:
            return
        if self.parent != NO_NODE:
            # Whoever speaks for this part of the tree must know.
            self.environment.send(self.parent, claim)
        elif not self.is_root:
            if claim.source not in self.tried:
                self.candidates.insert(0, int(claim.source))
        elif self._gives_way_to(claim):
            self.is_root = False
            # Else this broker would still think that nobody else can be the root.
            self.learn(claim.overlay, claim.overlay.council, claim.overlay.epoch)
            self.parent_gone()
            self.search()
            self.candidates.insert(0, int(claim.source))
        else:
            self.environment.send(claim.source, self._my_claim())

    def _my_claim(self) -> Claim:
        return Claim(self.me, self._champion(), self.overlay)

    def _gives_way_to(self, claim: Claim) -> bool:
        """Between two who both think that they are the root, the one who knows the later epoch stays.

        Of those who know the same one, the one who stays has the first of the successors in its part of the tree.
        """
        if claim.overlay.epoch != self.overlay.epoch:
            return claim.overlay.is_later_than(self.overlay)
        successors = self.overlay.successors(self.options.total_degree)
        places = {broker: place for place, broker in enumerate(successors)}
        mine, other = self._champion(), int(claim.champion)
        # After a partition neither need be in the tree that both have heard of.
        return (places.get(other, len(places)), other) < (places.get(mine, len(places)), mine)

    def _champion(self) -> int:
        """The first of the successors that is this broker or below it."""
        mine = self.reached()
        for broker in self.overlay.successors(self.options.total_degree):
            if broker == self.me or broker in mine:
                return broker
        return int(self.me)

    # What waits for the disk.

    def is_on_disk(self, wait: Wait) -> None:
        if wait.kind == EPOCHS:
            self._do_postponed()
        elif wait.kind == BEGUN:
            if wait.name == self.epoch:
                self._safe_epoch = wait.name
                self._say_begun()
        else:
            super().is_on_disk(wait)

    # Brokers that are gone for good.

    def dismiss(self, brokers: list[int]) -> None:
        """An operator says that some brokers are gone for good: no majority is to wait for them.

        If one of them lives where this broker cannot see it, two sides may order totally without each other.
        """
        self._receive_dismiss(Dismiss(self.me, brokers))

    def _receive_dismiss(self, dismiss: Dismiss) -> None:
        if self.parent != NO_NODE:
            self.environment.send(self.parent, dismiss)
            return
        reached = self.reached()
        gone = {broker for broker in dismiss.brokers if broker != self.me and broker not in reached}
        if not self.is_root or not self.options.quorum or not gone:
            return
        self.council = self.council.without(gone)
        self.known -= gone
        self.is_complete = False
        self.look_for_missing()

    def receive(self, sender: i64, message: Message) -> None:
        if isinstance(message, Install):
            self._receive_install(sender, message)
        elif isinstance(message, Claim):
            if sender != message.source and sender not in self.children:
                # Only a child passes claims on.
                self.disown(sender)
            self._receive_claim(message)
        elif isinstance(message, Begun):
            self._receive_begun(sender, message)
        elif isinstance(message, Dismiss):
            if sender in self.children:
                self._receive_dismiss(message)
        else:
            super().receive(sender, message)

    def expire(self, name: i64) -> None:
        if name == CLAIM:
            self._claim()
        elif name == CHANGE:
            self._propose_council()
        elif name == GIVE_UP:
            self._give_up_absent()
        else:
            super().expire(name)
