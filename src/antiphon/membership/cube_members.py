"""The nodes of a cube as one of them sees them: each keeps a connection to every other, and they come and go.

Connections are those of a full mesh (:mod:`antiphon.membership.full_mesh`): two nodes are together while both
directions are open, and nothing of an earlier time of being together comes later. A node whose process stands still is
lost too, until it goes on (:mod:`antiphon.membership.heartbeats`). The process is told of everybody with whom this node
is together, newcomers too, and of everybody with whom it is not any more; it does the rest
(:mod:`antiphon.fabrics.cube.fault_tolerant`).

Every life of a node has an identifier of its own, which some node gives it that is there; who founds a cluster takes
the first that it has not heard of. A node with a data directory remembers where the others were, and which *founding*
they belong to. When it starts again it looks for them before it founds anything; what its log says of an earlier life
counts only among those of the same founding, where identifiers mean the same.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Final

from antiphon.fabrics.cube.fault_tolerant import LastingVCubePs
from antiphon.kernel.errors import ProtocolError
from antiphon.kernel.message import TOTAL
from antiphon.membership.address_book import BLOCKS_FIRST
from antiphon.membership.full_mesh import RETRY_SECONDS, FullMesh
from antiphon.membership.membership import Place
from antiphon.runtime.logging import logger
from antiphon.transport.incoming import IncomingConnection
from antiphon.transport.peer_messages import Control, LeaveNotice, Peer, PeerAddresses, PlaceRequest, PlaceResponse

LOOK_SECONDS: Final = 0.005
"""How often a newcomer looks whether it is together with all of whom it knows."""

MEET_SECONDS: Final = 1.0
"""How long it waits for those who are known and do not answer: they may have failed."""

SEARCH_SECONDS: Final = 2.0
"""How long a node that is to found a cluster looks for those of its earlier life."""

ADDRESSES_AT_MOST: Final = 64
"""So many of the others are remembered."""

ADDRESSES: Final = "other nodes"
FOUNDING: Final = "founding"

log = logger("companions")


class Companions(FullMesh):
    """All nodes of a cube."""

    def __init__(self, place: Place, highest: int) -> None:
        super().__init__(place)
        self._highest = highest
        self._remembered: list[str] = json.loads(place.disk.fact(ADDRESSES, "[]"))
        # Those with whom this node has ever tried to be together.
        self._known: set[int] = set()
        # The connections on which nodes have said who they are.
        self._named_on: set[IncomingConnection] = set()
        self._lost_since: dict[int, float] = {}
        # With its log a node is the voter that it was, unless it comes into another cluster.
        self.is_returning = place.disk.journal is not None

    # Beginning.

    async def join(self, contacts: Sequence[str]) -> None:
        """Ask for a place, or found a cluster if there is nobody; done when this node is together with the others."""
        if not contacts and self._remembered:
            await self._look_for_earlier()
        await super().join(self._contacts)
        until = self._loop.time() + min(MEET_SECONDS, self._settings.lost_seconds)
        while self._lost - self._over and self._loop.time() < until:
            await asyncio.sleep(LOOK_SECONDS)
        self._remember()

    async def _look_for_earlier(self) -> None:
        """Look for those of an earlier life; if nobody is there, they are to find this node."""
        self._contacts = [address for address in self._remembered if address != self._address]
        if not self._contacts:
            return
        self._search.ask(self._contacts)
        until = self._loop.time() + SEARCH_SECONDS
        while not self.roster.is_placed and self._loop.time() < until:
            await asyncio.sleep(LOOK_SECONDS)
        if not self.roster.is_placed:
            log.info("nobody is left of an earlier life", asked=len(self._contacts))
            self._contacts = []
            self._search.stop()

    def _begin_as_founder(self) -> None:
        identifier = self._highest + 1
        founding = self._disk.fact(FOUNDING, "") or self._instance
        self.roster.take(PlaceResponse(identifier, identifier + 1, max(identifier + 1, BLOCKS_FIRST), [], founding))
        self._events.placed(identifier, [])
        self._is_in.set_result(None)

    def _place_given(self, place: PlaceResponse, giver: str) -> None:
        if not self.roster.is_placed and place.founding != self._disk.fact(FOUNDING, place.founding):
            log.warning("this cluster is not that of an earlier life; its log is not continued")
            self._events.past_is_void()
            self.is_returning = False
        super()._place_given(place, giver)

    # Those who count.

    def figures(self) -> dict[str, Any]:
        process = self._events.process
        if not isinstance(process, LastingVCubePs):
            return {}
        return {
            "council": process.voters(),
            "missing": process.missing_voters(),
            "orders_totally": process.refusal(TOTAL) is None,
        }

    def dismiss(self, brokers: Sequence[int]) -> str:
        process = self._events.process
        if not isinstance(process, LastingVCubePs):
            return super().dismiss(brokers)
        present = [node for node in brokers if node not in process.missing_voters()]
        if present:
            return f"node {present[0]} is there, or does not count; only nodes that are gone for good can be dismissed"
        log.warning("an operator says that nodes are gone for good", nodes=", ".join(map(str, brokers)))
        process.dismiss([int(node) for node in brokers])
        return ""

    # Leaving.

    async def leave(self) -> None:
        """Tell all that this node goes, so that nobody looks for it."""
        self.spread(LeaveNotice())
        await super().leave()

    def why_not_in(self) -> str:
        seconds = self._settings.join_seconds
        return (
            f"no node at {', '.join(self._contacts)} has taken this one in after {seconds:g} seconds; check that the "
            f"cluster is up, and of fabric cube{self._search.what_others_said()}"
        )

    def control_received(self, connection: IncomingConnection, message: Control) -> None:
        if isinstance(message, LeaveNotice):
            sender = self.roster.identifier_of(connection.instance)
            if sender is not None:
                self.departing.add(sender)
            return
        if isinstance(message, PeerAddresses):
            self._check_names(connection, message.peers)
        elif isinstance(message, PlaceRequest):
            self._check_room()
        super().control_received(connection, message)

    def _check_room(self) -> None:
        count = len(self.peers()) + 1
        if count >= self._settings.maximum_nodes:
            raise ProtocolError(f"the cluster has {count} nodes, its maximum; raise maximum_nodes to have more")

    def _check_names(self, connection: IncomingConnection, peers: Sequence[Peer]) -> None:
        """Refuse a speaker that takes the identifier of another."""
        for peer in peers:
            holder = None if peer.identifier is None else self.roster.peer(peer.identifier)
            if peer.instance == connection.instance and holder is not None and holder.instance != peer.instance:
                raise ProtocolError(f"{peer.instance!r} claims the identifier {peer.identifier}, which is not its own")

    def _retry(self, identifier: int, following: float = RETRY_SECONDS[0]) -> None:
        now = self._loop.time()
        if now - self._lost_since.setdefault(identifier, now) > self._settings.forget_seconds:
            self._never_again(identifier)
            return
        super()._retry(identifier, following)

    def _remember(self) -> None:
        """Keep where others are for the next life."""
        store = self._disk.store
        if store is None or self._is_closed:
            return
        addresses = [peer.address for peer in self.peers()][:ADDRESSES_AT_MOST]
        if addresses:
            store.put(ADDRESSES, json.dumps(addresses).encode())
        store.put(FOUNDING, self.roster.founding.encode())
        self._events.keep_highest()

    def highest_identifier(self) -> int:
        return max(self._highest, self.roster.highest())

    # Being together.

    def _introduced(self, connection: IncomingConnection, peers: Sequence[Peer]) -> None:
        is_named = any(peer.instance == connection.instance for peer in peers)
        if is_named:
            self._named_on.add(connection)
        super()._introduced(connection, peers)
        speaker = self.roster.identifier_of(connection.instance)
        if is_named and speaker is not None and self._heard_on.get(speaker) is not connection:
            self._hears(speaker, connection)

    def _hears(self, identifier: int, connection: IncomingConnection) -> None:
        """A node speaks on a new connection, if it has said there who it is.

        Until then it may ask for a place, or be known by an identifier that it has not taken: if this node were
        together with that one, its process would wait for answers that nobody gives.
        """
        if connection in self._named_on:
            super()._hears(identifier, connection)

    def connection_ended(self, connection: IncomingConnection) -> None:
        self._named_on.discard(connection)
        super().connection_ended(connection)

    def _connect(self, identifier: int, address: str, instance: str, connect_seconds: float = 0.0) -> None:
        if identifier not in self._known:
            # The process has not heard of it: it is found when both directions are open.
            self._known.add(identifier)
            self._lost.add(identifier)
            self._watched.add(identifier)
        super()._connect(identifier, address, instance, connect_seconds)

    def came_together(self, identifier: int) -> None:
        self._lost_since.pop(identifier, None)
        super().came_together(identifier)
        self._events.peers_changed()
        self._remember()
