"""The view of one broker: its neighbours, its epoch, and all brokers of the tree.

Every part of a broker reads this view. Three parts change it: the search for a parent (``parent_search.py``), the links
to neighbours (``attachment.py``) and the root (``root.py``).
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.fabrics.tree.messages import BrokerRecord
from antiphon.fabrics.tree.options import TreeOptions
from antiphon.fabrics.tree.quorum import Council
from antiphon.fabrics.tree.topology import GONE_AT_MOST, NO_EPOCH, Overlay, overlay_of_newcomer
from antiphon.kernel.process import NO_NODE


@final
class TreeView:
    """Where a broker stands in the tree, and what it has heard of the others.

    ``past`` is the record of an earlier incarnation of the broker. A broker that returns knows what was written, and
    has no place in the tree until it finds a parent.
    """

    def __init__(self, me: i64, options: TreeOptions, overlay: Overlay, past: BrokerRecord | None) -> None:
        self.me: Final[i64] = me
        self._has_quorum: Final[bool] = options.quorum
        self.is_returning: Final[bool] = past is not None
        if past is not None and past.overlay.epoch > NO_EPOCH:
            overlay = past.overlay
        # The latest epoch that this broker has heard of, and the one that it has been told to begin.
        self.overlay: Overlay = overlay
        self.current: Overlay = overlay_of_newcomer(int(me), []) if past is not None else overlay
        self.parent: i64 = self.current.parents.get(me, NO_NODE)
        self.is_root: bool = self.current.root == me
        # As root: whether all living brokers have a way here, in the current epoch.
        self.is_complete: bool = True
        # Whether the root counts this broker among those of its epoch: it has begun one since it last lost its place.
        self.is_counted: bool = self.current.epoch > NO_EPOCH
        # Each child, with the parents of all brokers below it that have a way to this one. None: not heard from yet.
        self.children: dict[i64, dict[int, int] | None] = {}
        for child in self.current.children_of(me):
            self.children[child] = overlay.below(child)
        # Brokers that cannot be reached: observed here, or, without a quorum, reported by others.
        self.dead: set[int] = set()
        # All brokers in the tree or absent, the highest epoch heard of, and the councils whose majorities are needed.
        self.known: set[int] = {*overlay.parents, *overlay.absent}
        self.highest: i64 = overlay.epoch if past is None else past.epoch
        self.council: Council = overlay.council if past is None else past.council
        # Whether some epoch has counted this broker; one that returns may have heard of a later one since.
        is_in_council = any(me in body for body in self.council.bodies)
        self.was_counted: bool = is_in_council or (overlay.epoch > NO_EPOCH and me in overlay.parents)
        # Brokers that were given up, the latest last; when one is found it is welcome.
        self.given_up: list[int] = list(overlay.gone)

    @property
    def epoch(self) -> i64:
        """The epoch that this broker is in."""
        return self.current.epoch

    @property
    def can_order(self) -> bool:
        """Whether total publications are completed in it."""
        return self.current.can_order

    @property
    def has_place(self) -> bool:
        """Whether a way leads from here to a root: a parent, or this broker itself."""
        return self.parent != NO_NODE or self.is_root

    def reached(self) -> dict[int, int]:
        """All brokers below this one that have a way here, with their parents."""
        found: dict[int, int] = {}
        for child, below in self.children.items():
            if below is not None:
                found[int(child)] = int(self.me)
                found.update(below)
        # A former parent that has not noticed yet may have come below this broker.
        found.pop(int(self.me), None)
        return found

    def testimony(self) -> Overlay:
        """The latest tree that this broker has heard of, and the absent brokers that it knows and that are not in it.

        A root that has not heard of a broker keeps nothing for it. So whatever a broker knows goes where it goes.
        """
        overlay = self.overlay
        if not self._has_quorum:
            return overlay
        absent = sorted(self.known.difference(overlay.parents))
        gone = [broker for broker in self.given_up if broker not in self.known and broker not in overlay.parents]
        return Overlay(
            overlay.epoch,
            overlay.root,
            overlay.parents,
            absent,
            overlay.council,
            overlay.can_order,
            gone[-GONE_AT_MOST:],
        )

    def everybody(self) -> list[int]:
        """All brokers that belong to the tree, whether they can be reached or not."""
        return sorted(self.known if self._has_quorum else self.overlay.parents)

    def learn(self, overlay: Overlay, council: Council, highest: i64) -> None:
        """Take over what another broker knows of the tree, if it is later than what is known here."""
        if self._has_quorum:
            self.known.update(overlay.parents)
            self.known.update(overlay.absent)
            self.remember(overlay.gone)
            self.council = self.council.merged(council)
            self.highest = max(self.highest, highest)
        if overlay.is_later_than(self.overlay):
            self.overlay = overlay

    def remember(self, gone: list[int]) -> None:
        """Note which brokers were given up."""
        self.given_up += [broker for broker in gone if broker not in self.given_up]

    def begin_epoch(self, overlay: Overlay) -> None:
        """Go over to an epoch of which the root says that all living brokers are in it."""
        if self._has_quorum:
            # The root gave up brokers of the last epoch that are not in this one; of others it may not have heard yet.
            self.known.difference_update(self.current.parents, self.current.absent)
            self.known.update(overlay.parents, overlay.absent)
            self.given_up = list(overlay.gone)
        else:
            self.dead.update(broker for broker in self.overlay.parents if broker not in overlay.parents)
        self.overlay = overlay
        self.current = overlay
        self.highest = max(self.highest, overlay.epoch)
        self.council = self.council.merged(overlay.council)
        self.is_complete = True
        self.is_counted = True
        self.was_counted = True
