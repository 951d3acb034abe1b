"""The duties of the root: it knows the brokers of the tree, begins epochs, and ensures that there is one root.

While a living broker has no way to the root, the root is *incomplete*. When the last one has found its way, the root
begins a new **epoch** and sends the tree to all brokers. Total publications are completed in complete epochs only
(``total_order.py``), and with a quorum only if the brokers of the epoch hold the council (``quorum.py``). A broker out
of reach is *absent* in that epoch: the others keep the items that it lacks, until it is found again or has been absent
for too long.

Two parts of a tree that have come apart, or that have chosen two roots, find each other by **claims**: a root sends one
to each broker that should be in its tree and is not. Of two roots the one with the later tree stays, and the other
looks for a parent. A tree that can order counts as later than one that cannot.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.tree.durable_state import BEGUN, DurableState
from antiphon.fabrics.tree.messages import Begun, Claim, Dismiss, Install, not_a_child
from antiphon.fabrics.tree.options import TreeOptions
from antiphon.fabrics.tree.parent_search import DOUBLINGS_AT_MOST, ParentSearch
from antiphon.fabrics.tree.quorum import Council
from antiphon.fabrics.tree.topology import GONE_AT_MOST, ROOT_BITS, Overlay, astray
from antiphon.fabrics.tree.view import TreeView
from antiphon.kernel.process import NO_NODE, Environment

CLAIM: Final[i64] = 3
CHANGE: Final[i64] = 4
GIVE_UP: Final[i64] = 5
"""The names of its timers, and of what waits for the number of an epoch."""

AGREE: Final[i64] = 6
"""What waits for the number of an epoch, and has no timer."""


@mypyc_attr(allow_interpreted_subclasses=True)
class RootEvents:
    """The root tells this to the other parts of a broker."""

    def on_parent_lost(self) -> None:
        """This broker is the root no more, and has no parent yet."""
        raise NotImplementedError

    def begins_epoch(self) -> None:
        """An epoch begins here, and those below have not been told yet."""
        raise NotImplementedError

    def began_epoch(self) -> None:
        """All living brokers are in one tree, as far as the root knows."""
        raise NotImplementedError

    def all_began(self) -> None:
        """As root of an epoch that orders: all its brokers have begun it, and take no part in an earlier one."""
        raise NotImplementedError


@final
class Root:
    """Keeps all brokers in one tree: begins epochs as the root, and takes part in them below it."""

    def __init__(
        self,
        environment: Environment,
        options: TreeOptions,
        view: TreeView,
        durable: DurableState,
        search: ParentSearch,
        events: RootEvents,
    ) -> None:
        self._environment: Final[Environment] = environment
        self._options: Final[TreeOptions] = options
        self._view: Final[TreeView] = view
        self._durable: Final[DurableState] = durable
        self._search: Final[ParentSearch] = search
        self._events: Final[RootEvents] = events
        # The timers that run out when the council is to be changed, and when absent brokers are given up.
        self._change: i64 = -1
        self._give_up: i64 = -1
        # The epoch of which it is on disk that this broker has begun it, and what is to be done when there are numbers.
        self._safe_epoch: i64 = 0
        self._postponed: list[i64] = []
        # The children that have begun this epoch, with all below them.
        self._begun: set[int] = set()
        # Whether this root sends claims to missing brokers, and how often the time between two claims was doubled.
        self._is_claiming: bool = False
        self._claim_doublings: i64 = 0

    # Missing brokers, and when an epoch begins.

    def peer_found(self, peer: i64) -> None:
        """A broker can be reached again, after a partition; without a quorum it counts as failed for ever."""
        if not self._options.quorum:
            return
        view = self._view
        view.dead.discard(peer)
        if view.is_root and peer not in view.reached():
            view.known.add(int(peer))
            view.is_complete = False
            self.look_for_missing()
            self._environment.send(peer, self._my_claim())

    def _missing(self) -> list[int]:
        view = self._view
        reached = view.reached()
        return [
            broker
            for broker in view.everybody()
            if broker != view.me and broker not in reached and broker not in view.dead
        ]

    def look_for_missing(self) -> None:
        """Begin an epoch if all living brokers have a way here; otherwise watch those that have none."""
        if self._view.is_complete:
            return
        missing = self._missing()
        if not missing and self._is_one_tree():
            if self._may_begin(CLAIM):
                self._begin_epoch(self._next_overlay(self._view.council))
            return
        for broker in missing:
            self._environment.watch(broker)
        if not self._is_claiming:
            self._is_claiming = True
            self._claim_doublings = 0
            self._environment.set_timer(self._options.patience_ticks, CLAIM)

    def _may_begin(self, name: i64) -> bool:
        """Whether there is a number for an epoch that no later incarnation can use; if not, this is done later."""
        durable = self._durable
        epoch = self._view.highest + (1 << ROOT_BITS)
        may = durable.may_begin(epoch)
        if not may:
            self._postponed.append(name)
        if durable.needs_epochs(epoch) and durable.reserve_epochs(epoch, self._view) and not may:
            self._postponed.pop()
            may = True
        return may

    def epochs_reserved(self) -> None:
        """There are numbers for epochs again: do what waited for one."""
        postponed = self._postponed
        self._postponed = []
        for name in postponed:
            if name == CLAIM:
                if self._view.is_root:
                    self.look_for_missing()
            elif name == CHANGE:
                self.propose_council()
            elif name == GIVE_UP:
                self.give_up_absent()
            else:
                self._say_begun()

    def _is_one_tree(self) -> bool:
        """Whether all ways lead here. Two children may disagree for a while about a broker that has moved."""
        return astray(self._view.reached(), self._view.me) == NO_NODE

    def _next_overlay(self, council: Council) -> Overlay:
        """The tree as it is now, in an epoch that no other broker begins."""
        view = self._view
        parents = {int(view.me): int(NO_NODE), **view.reached()}
        if not self._options.quorum:
            return Overlay(view.overlay.epoch + 1, view.me, parents)
        members = set(parents)
        view.known |= members
        epoch = (((view.highest >> ROOT_BITS) + 1) << ROOT_BITS) + view.me
        absent = sorted(view.known - members)
        gone = [broker for broker in view.given_up if broker not in view.known][-GONE_AT_MOST:]
        return Overlay(epoch, view.me, parents, absent, council, council.is_held_by(members), gone)

    def _begin_epoch(self, overlay: Overlay) -> None:
        view = self._view
        view.begin_epoch(overlay)
        self._begun = set()
        self._events.begins_epoch()
        for child in view.children:
            if overlay.parents.get(child, NO_NODE) == view.me:
                self._environment.send(child, Install(overlay))
        self._durable.write_standing(view)
        self._events.began_epoch()
        if self._options.quorum and self._durable.is_safe(BEGUN, 0, overlay.epoch):
            self._safe_epoch = overlay.epoch
            self._say_begun()
        if view.is_root:
            self._look_for_others(overlay)

    def _look_for_others(self, overlay: Overlay) -> None:
        """Watch brokers that are not in the tree; one that other brokers gave up may have been back for long."""
        for broker in overlay.absent:
            self._environment.watch(broker)
        if overlay.absent:
            self._environment.cancel_timer(self._give_up)
            self._give_up = self._environment.set_timer(self._options.absence_ticks, GIVE_UP)
        for broker in overlay.gone:
            self._environment.watch(broker)
            if broker not in self._view.dead:
                self._environment.send(broker, self._my_claim())

    def give_up_absent(self) -> None:
        """Stop waiting for brokers that have been absent since the epoch began."""
        view = self._view
        if not (view.is_root and view.is_complete and view.current.absent and self._is_one_tree()):
            return
        if self._may_begin(GIVE_UP):
            view.known.difference_update(view.current.absent)
            view.remember(view.current.absent)
            self._begin_epoch(self._next_overlay(view.council))

    def on_install(self, sender: i64, install: Install) -> None:
        """The root begins an epoch."""
        view, overlay = self._view, install.overlay
        # The root has not heard yet of a broker that it counts elsewhere or not at all, and will begin another epoch.
        is_counted_here = overlay.parents.get(view.me, NO_NODE) == sender
        if sender == view.parent and is_counted_here and overlay.epoch > view.epoch:
            self._begin_epoch(overlay)

    # The council.

    def on_begun(self, child: i64, begun: Begun) -> None:
        """A child and all below it have begun an epoch."""
        if begun.epoch == self._view.epoch and child in self._view.children:
            self._begun.add(int(child))
            self._say_begun()

    def begun_on_disk(self, epoch: i64) -> None:
        """It is on disk that this broker has begun an epoch."""
        if epoch == self._view.epoch:
            self._safe_epoch = epoch
            self._say_begun()

    def _say_begun(self) -> None:
        """Tell the root when all below have begun the epoch; the root then changes the council if it has to."""
        view = self._view
        if self._safe_epoch != view.epoch:
            # A broker that forgot whose majority is needed could take part in another one.
            return
        if any(below is not None and child not in self._begun for child, below in view.children.items()):
            return
        if view.parent != NO_NODE:
            self._environment.send(view.parent, Begun(view.epoch))
        elif view.is_root and view.is_complete and view.can_order:
            epoch = view.epoch
            self._change_council()
            if view.epoch == epoch:
                self._events.all_began()

    def _change_council(self) -> None:
        """All have begun the epoch: agree on what it proposed, or let some time pass and propose something."""
        proposal = self._view.current.council
        following = proposal.to_follow(set(self._view.current.parents))
        if proposal.is_exactly(following):
            return
        if sorted(following) in proposal.bodies:
            if not self._may_begin(AGREE):
                return
            self._begin_epoch(self._next_overlay(proposal.followed_by(following)))
        elif self._options.council_ticks > 0:
            self._environment.cancel_timer(self._change)
            self._change = self._environment.set_timer(self._options.council_ticks, CHANGE)

    def propose_council(self) -> None:
        """Propose all that are here as members of the council."""
        view = self._view
        members = set(view.current.parents)
        is_settled = view.is_root and view.is_complete and view.can_order and members == {int(view.me), *view.reached()}
        following = view.council.to_follow(members)
        if is_settled and sorted(following) not in view.council.bodies and self._may_begin(CHANGE):
            self._begin_epoch(self._next_overlay(view.council.proposing(following)))

    # Claims.

    def claim(self) -> None:
        """Tell the missing brokers that this root is there."""
        self._is_claiming = self._view.is_root and not self._view.is_complete
        if not self._is_claiming:
            return
        for broker in self._missing():
            self._environment.send(broker, self._my_claim())
        self._claim_doublings = min(self._claim_doublings + 1, DOUBLINGS_AT_MOST)
        self._environment.set_timer(self._options.patience_ticks << self._claim_doublings, CLAIM)

    def on_claim(self, sender: i64, claim: Claim) -> None:
        """Another broker says that it is the root."""
        view = self._view
        if sender != claim.source and sender not in view.children:
            # Only a child passes claims on.
            self._environment.send(sender, not_a_child(sender, view.overlay))
        if claim.source == view.me or claim.source in view.dead:
            return
        if view.parent != NO_NODE:
            # The broker at the top of this part of the tree must know.
            self._environment.send(view.parent, claim)
        elif not view.is_root:
            if not self._search.has_tried(claim.source):
                self._search.prefer(claim.source)
        elif self._gives_way_to(claim):
            view.is_counted = False
            view.is_root = False
            # Otherwise this broker would still think that no other broker can be the root.
            view.learn(claim.overlay, claim.overlay.council, claim.overlay.epoch)
            self._events.on_parent_lost()
            self._search.begin()
            self._search.prefer(claim.source)
        else:
            self._environment.send(claim.source, self._my_claim())

    def _my_claim(self) -> Claim:
        return Claim(self._view.me, self._champion(), self._view.overlay)

    def _gives_way_to(self, claim: Claim) -> bool:
        """Of two brokers that both think that they are the root, the one with the later epoch stays.

        If both know the same epoch, the one with the first of the successors in its part of the tree stays.
        """
        view = self._view
        if claim.overlay.epoch != view.overlay.epoch or claim.overlay.root != view.overlay.root:
            return claim.overlay.is_later_than(view.overlay)
        successors = view.overlay.successors(self._options.total_degree)
        places = {broker: place for place, broker in enumerate(successors)}
        mine, other = self._champion(), int(claim.champion)
        # After a partition neither need be in the tree that both have heard of.
        return (places.get(other, len(places)), other) < (places.get(mine, len(places)), mine)

    def _champion(self) -> int:
        """The first of the successors that is this broker or below it."""
        view = self._view
        mine = view.reached()
        for broker in view.overlay.successors(self._options.total_degree):
            if broker == view.me or broker in mine:
                return broker
        return int(view.me)

    # Brokers that are gone for good.

    def dismiss(self, brokers: list[int]) -> None:
        """An operator says that some brokers are gone for good: majorities do not count them any more.

        If one of them runs out of sight of this broker, two sides may order totally without each other.
        """
        self._dismiss(Dismiss(self._view.me, brokers))

    def on_dismiss(self, sender: i64, dismiss: Dismiss) -> None:
        """An operator has said so at a broker below."""
        if sender in self._view.children:
            self._dismiss(dismiss)

    def _dismiss(self, dismiss: Dismiss) -> None:
        view = self._view
        if view.parent != NO_NODE:
            self._environment.send(view.parent, dismiss)
            return
        reached = view.reached()
        gone = {broker for broker in dismiss.brokers if broker != view.me and broker not in reached}
        if not view.is_root or not self._options.quorum or not gone:
            return
        view.council = view.council.without(gone)
        view.known -= gone
        view.is_complete = False
        self.look_for_missing()
