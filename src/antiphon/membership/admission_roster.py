"""Who is known to one node: those who claim a place, those who have one, and those who are gone.

Kept by :mod:`antiphon.membership.admission`. Everything here is bounded by the size of the largest cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TypeVar, final

from antiphon.kernel.errors import UsageError
from antiphon.transport.admission_messages import Listed, Peer

MEMORY_OF_THE_GONE = 4
"""How many of those who are gone are remembered, as a multiple of the largest cluster.

Those who are gone are remembered so that late hearsay does not bring them back. Hearsay is late by at most the time
that a newcomer takes to join; more than this many lives do not end in that time.
"""


@final
class Roster:
    """Peers by instance, in the order in which they became known; never the node itself."""

    def __init__(self, maximum_nodes: int, highest: int) -> None:
        if maximum_nodes < 1:
            raise UsageError(f"a cluster holds at least 1 node, not {maximum_nodes}; raise the maximal number")
        self.maximum_nodes = maximum_nodes
        self.highest = highest
        """The highest identifier ever heard of: all that are given from now on are higher."""
        self._known: dict[str, Listed] = {}
        # Instances that have left or were lost; and who held an identifier last that nobody holds any more.
        self._gone: dict[str, None] = {}
        self._retired: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[Peer]:
        return iter([listed.peer for listed in self._known.values()])

    def __contains__(self, instance: str) -> bool:
        return instance in self._known

    def is_full(self) -> bool:
        """Whether there is no room for one more: the node itself counts."""
        return len(self._known) + 1 >= self.maximum_nodes

    def is_gone(self, instance: str) -> bool:
        """Whether this life is over, as far as it is remembered."""
        return instance in self._gone

    def get(self, instance: str) -> Peer | None:
        """Who is known under this instance."""
        listed = self._known.get(instance)
        return None if listed is None else listed.peer

    def has_entered(self, instance: str) -> bool:
        """Whether this instance belongs to the cluster."""
        listed = self._known.get(instance)
        return listed is not None and listed.has_entered

    def entered(self) -> list[Peer]:
        """Those who belong to the cluster."""
        return [listed.peer for listed in self._known.values() if listed.has_entered]

    def at_address(self, address: str) -> list[Peer]:
        """Those who are known to listen there: one, or the past and the present life of a node."""
        return [listed.peer for listed in self._known.values() if listed.peer.address == address]

    def holder(self, identifier: int) -> Peer | None:
        """Who holds or claims an identifier."""
        for listed in self._known.values():
            if listed.peer.identifier == identifier:
                return listed.peer
        return None

    def listing(self, without: Collection[str] = ()) -> tuple[Listed, ...]:
        """All who are known, but not these."""
        return tuple(listed for instance, listed in self._known.items() if instance not in without)

    def may_claim(self, instance: str, identifier: int, former: str) -> bool:
        """Whether nobody else holds this identifier or held it last.

        Who shows the instance that holds it, or held it last, is the same node in a later life.
        """
        holder = self.holder(identifier)
        if holder is not None:
            return holder.instance in (instance, former)
        return self._retired.get(identifier, former) in (instance, former)

    def note(self, peer: Peer, has_entered: bool) -> None:
        """Somebody exists. Who has entered stays so; a later claim replaces an earlier one."""
        if peer.identifier is None or self.is_gone(peer.instance):
            return
        self.heard_of(peer.identifier)
        if not self.has_entered(peer.instance):
            self._known[peer.instance] = Listed(peer, has_entered)

    def heard_of(self, identifier: int) -> None:
        """This identifier, and all below it, are not to be given any more."""
        self.highest = max(self.highest, identifier)

    def withdraw(self, instance: str, identifier: int | None) -> None:
        """A claim is given up; its identifier is not used again."""
        self._known.pop(instance, None)
        if identifier is not None:
            self._retire(identifier, instance)

    def end(self, instance: str) -> Listed | None:
        """A life is over; the answer is what was known of it."""
        listed = self._known.pop(instance, None)
        if listed is not None and listed.peer.identifier is not None:
            self._retire(listed.peer.identifier, instance)
        self._gone.pop(instance, None)
        self._gone[instance] = None
        forget_oldest(self._gone, MEMORY_OF_THE_GONE * self.maximum_nodes)
        return listed

    def _retire(self, identifier: int, instance: str) -> None:
        self._retired.pop(identifier, None)
        self._retired[identifier] = instance
        forget_oldest(self._retired, MEMORY_OF_THE_GONE * self.maximum_nodes)

    def state(self) -> str:
        """The content as text, for those who compare states."""
        known = [(i, listed.peer.identifier, listed.has_entered) for i, listed in sorted(self._known.items())]
        return f"{self.highest} {known} {sorted(self._gone)} {sorted(self._retired.items())}"


Key = TypeVar("Key")
Value = TypeVar("Value")


def forget_oldest(memory: dict[Key, Value], limit: int) -> None:
    """Keep no more than ``limit`` entries."""
    while len(memory) > limit:
        del memory[next(iter(memory))]
