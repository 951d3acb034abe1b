"""The nodes of a cube as one of them sees them: each keeps a connection to every other, and they come and go.

Connections are those of a full mesh (:mod:`antiphon.membership.full_mesh`): two nodes are together while both
directions are open, and nothing of an earlier time of being together comes later. A node whose process stands still is
lost too, until it goes on (:mod:`antiphon.membership.heartbeats`). The process is told of every node with which this
one is together, newcomers too, and of every node with which it is not any more; it does the rest
(:mod:`antiphon.fabrics.cube.fault_tolerant`).

Every life of a node has an identifier of its own, which a node gives it that is there; a node that founds a cluster
takes the first that it has not heard of. A node with a data directory remembers where the others were, and which
*founding* they belong to. When it starts again it looks for them before it founds anything; what its log says of an
earlier life counts only among nodes of the same founding, where identifiers mean the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from antiphon.fabrics.cube.fault_tolerant import FaultTolerantVCubePs
from antiphon.kernel.errors import ProtocolError
from antiphon.kernel.message import TOTAL
from antiphon.membership.address_book import BLOCKS_FIRST
from antiphon.membership.founding import Founding
from antiphon.membership.full_mesh import FullMesh
from antiphon.membership.host import NOT_HERE, SECOND_US, Connection, Link, Place, Timer, microseconds
from antiphon.membership.messages import Control, LeaveNotice, Peer, PeerAddresses, PlaceRequest, PlaceResponse

MEET_US: Final = SECOND_US
"""How long a newcomer waits for nodes that are known and do not answer: they may have failed."""

SUCCESSOR_US: Final = 3 * SECOND_US
"""How long a node waits to be introduced to the one at the address of an ended one, before it says who it is."""

FOUNDING: Final = "founding"
MEET: Final = Timer("meet")
SUCCESSOR: Final = "successor"


class CubeMembers(FullMesh):
    """All nodes of a cube."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._founding = Founding(place.host, self._joining, self._address, self._found)
        self._joining.wish = place.settings.identifier
        self._facts = place.host.facts
        # Those with whom this node has ever tried to be together.
        self._known: set[int] = set()
        self._lost_since_us: dict[int, int] = {}
        # With its log a node is the voter that it was, unless it comes into another cluster.
        self.is_returning = self._facts.has_journal

    # Beginning.

    def _begin_to_join(self) -> None:
        """Ask for a place, or found a cluster if there is nobody."""
        self._contacts = self._founding.start(self._contacts)

    def _found(self, identifier: int) -> None:
        self._contacts = []
        founding = self._kept_founding(self._instance)
        self.address_book.take(
            PlaceResponse(identifier, identifier + 1, max(identifier + 1, BLOCKS_FIRST), [], founding)
        )
        self._take_place(identifier, [])
        self._is_in = True
        self._on_joined()

    def _take_place(self, identifier: int, members: list[int]) -> None:
        self._founding.placed()
        super()._take_place(identifier, members)

    def _kept_founding(self, default: str) -> str:
        return (self._facts.read(FOUNDING) or b"").decode() or default

    def got(self, place: PlaceResponse, giver: str) -> None:
        if place.founding != self._kept_founding(place.founding):
            self._log.warning("this is not the cluster of the earlier incarnation; the log is not continued")
            self._events.past_is_void()
            self.is_returning = False
        super().got(place, giver)

    def _on_joined(self) -> None:
        """Wait a little for the others: a node is used when it is together with those that it knows."""
        if self._lost - self._over:
            self._host.set_timer(MEET, min(MEET_US, microseconds(self._settings.lost_seconds)))
        else:
            self._enter()

    def _enter(self) -> None:
        self._host.cancel_timer(MEET)
        if not self._has_entered:
            self._remember()
        super()._enter()

    def _poll_founders(self) -> None:
        if self._is_in and not self._has_entered and not self._lost - self._over:
            self._enter()

    def expired(self, timer: Timer) -> None:
        if timer == MEET:
            self._enter()
        elif timer.kind == SUCCESSOR:
            self._greet_successor(timer.peer)
        elif not self._founding.expired(timer):
            super().expired(timer)

    def why_not_in(self) -> str:
        seconds = self._settings.join_seconds
        return (
            f"no node at {', '.join(self._contacts)} has taken this one in after {seconds:g} seconds; check that the "
            f"cluster is up, and of fabric cube{self._joining.refusals()}"
        )

    # The nodes that count.

    @property
    def _cube(self) -> FaultTolerantVCubePs | None:
        """The process of the cube, also where one of spaces stands above it; None before there is one."""
        process = self._events.process
        found = None if process is None else process.of_fabric()
        return found if isinstance(found, FaultTolerantVCubePs) else None

    def figures(self) -> dict[str, Any]:
        process = self._cube
        if process is None:
            return {}
        return {
            "council": process.voters(),
            "missing": process.missing_voters(),
            "orders_totally": process.refusal(TOTAL) is None,
        }

    def dismiss(self, brokers: Sequence[int]) -> str:
        process = self._cube
        if process is None:
            return super().dismiss(brokers)
        present = [node for node in brokers if node not in process.missing_voters()]
        if present:
            return f"node {present[0]} is there, or does not count; only nodes that are gone for good can be dismissed"
        self._log.warning("an operator dismissed nodes", nodes=", ".join(map(str, brokers)))
        process.dismiss([int(node) for node in brokers])
        return ""

    # Leaving.

    def leave(self) -> None:
        """Tell all that this node goes, so that no node looks for it."""
        self.spread(LeaveNotice())

    def control_received(self, connection: Connection, message: Control) -> None:
        if isinstance(message, LeaveNotice):
            sender = self._sender_of(connection)
            if sender is not None:
                self.departing.add(sender)
            return
        if isinstance(message, PeerAddresses):
            self._check_founding(message.founding)
            self._check_names(connection, message.peers)
        elif isinstance(message, PlaceRequest):
            self._check_room()
        super().control_received(connection, message)

    def _check_room(self) -> None:
        count = len(self.peers()) + 1
        if count >= self._settings.maximum_nodes:
            raise ProtocolError(f"the cluster has {count} nodes, its maximum; raise maximum_nodes to have more")

    def _check_founding(self, founding: str) -> None:
        """Refuse a node of another cluster that looks for an ended node at this address."""
        own = self.address_book.founding
        if founding and own and founding != own:
            raise ProtocolError(
                f"this node is in the cluster founded as {own!r}, and you are in that founded as {founding!r}; to have "
                "one cluster, start the nodes of the smaller one again, with an address of the other one in join"
            )

    def _check_names(self, connection: Connection, peers: Sequence[Peer]) -> None:
        """Refuse a speaker that takes the identifier of another."""
        for peer in peers:
            holder = None if peer.identifier is None else self.address_book.peer(peer.identifier)
            if peer.instance == connection.instance and holder is not None and holder.instance != peer.instance:
                raise ProtocolError(f"{peer.instance!r} claims the identifier {peer.identifier}, which is not its own")

    def _retry(self, identifier: int) -> None:
        now = self._host.now()
        lost_for_us = now - self._lost_since_us.setdefault(identifier, now)
        if lost_for_us > microseconds(self._settings.forget_seconds):
            self._never_again(identifier)
            return
        super()._retry(identifier)

    def _never_again(self, identifier: int) -> None:
        super()._never_again(identifier)
        self._poll_founders()

    def _remember(self, newcomers: Sequence[str] = ()) -> None:
        """Keep for the next life where others are, and which founding this is; without a disk there is none."""
        if not self._facts.is_kept:
            return
        self._facts.put(FOUNDING, self.address_book.founding.encode())
        self._founding.remember([*newcomers, *self.addresses()], self.highest_identifier())

    def remember(self, newcomer: Peer) -> None:
        self._remember([newcomer.address])

    def highest_identifier(self) -> int:
        return max(self._founding.highest, self.address_book.highest())

    # Being together.

    def link_refused(self, link: Link, reason: str, is_final: bool) -> None:
        super().link_refused(link, reason, is_final)
        former = self.address_book.identifier_of(link.instance)
        if reason == NOT_HERE and former is not None:
            if self.links.get(former) is link:
                del self.links[former]
                link.close()
            is_alone = self._lost.issuperset(self.links)
            self._host.set_timer(Timer(SUCCESSOR, former), 0 if is_alone else SUCCESSOR_US)

    def _greet_successor(self, former: int) -> None:
        """Tell the node that lives at the address of an ended one who this is, unless others have introduced it.

        The ended node may have been the only one that knew both. The link gets the successor's name when that one is
        met.
        """
        peer = self.address_book.peer(former)
        inhabited = {link.address for link in self.links.values()} | {self._address}
        if self._has_place_for_good() and peer is not None and peer.address not in inhabited:
            self._connect(former, peer.address, "")

    def _keep_link(self, identifier: int, link: Link) -> None:
        if identifier not in self._known:
            # The process has not heard of it: it is found when both directions are open.
            self._known.add(identifier)
            self._lost.add(identifier)
            self._watched.watch(identifier, is_lost=True)
        super()._keep_link(identifier, link)

    def on_connected(self, identifier: int) -> None:
        self._lost_since_us.pop(identifier, None)
        super().on_connected(identifier)
        self._events.peers_changed()
        self._remember()
        self._poll_founders()
