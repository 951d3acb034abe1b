"""The cluster as one node sees it: who is in it, the links to them, and joining and leaving.

What decides is :class:`antiphon.membership.admission.Admission`, a pure state machine; here are its sockets and its
clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from antiphon.kernel.errors import ProtocolError
from antiphon.membership.admission import Admission, AdmissionOptions, Phase
from antiphon.membership.membership import Membership, Place
from antiphon.runtime.clocks import monotonic_us
from antiphon.runtime.errors import JoinError
from antiphon.runtime.logging import logger
from antiphon.transport.admission_messages import AdmissionMessage, Peer
from antiphon.transport.incoming import IncomingConnection
from antiphon.transport.links import OutgoingLink
from antiphon.transport.peer_messages import Admit, Control

RETRY_TICKS: Final = 200_000
"""How long a newcomer waits before it asks again, in microseconds."""

log = logger("cluster")


class Cluster(Membership):
    """Implements the host of admission."""

    def __init__(self, place: Place, highest: int) -> None:
        super().__init__(place)
        settings = place.settings
        attempts = max(1, round(settings.join_seconds * 1_000_000 / RETRY_TICKS / max(1, len(settings.join))))
        options = AdmissionOptions(settings.maximum_nodes, RETRY_TICKS, attempts)
        self.admission = Admission(self, Peer(place.instance, place.address), options, highest)
        self._by_address: dict[str, OutgoingLink] = {}
        self._instances: dict[str, int] = {}
        self._is_in: asyncio.Future[None] = self._loop.create_future()
        self._is_out: asyncio.Future[None] = self._loop.create_future()
        self._ticking: asyncio.TimerHandle | None = None
        # Why those who were asked for a place closed the connection, by address.
        self._refusals: dict[str, str] = {}

    # What the node does.

    async def join(self, contacts: Sequence[str]) -> None:
        """Get a place, or found a cluster."""
        self.admission.start(contacts, monotonic_us())
        self._sender.settle()
        self._tick()
        await self._is_in

    async def leave(self) -> None:
        """Say goodbye, and wait until all have confirmed."""
        self.admission.leave()
        self._sender.settle()
        await self._is_out

    def close(self) -> None:
        """Close all connections."""
        if self._ticking is not None:
            self._ticking.cancel()
        for link in self._by_address.values():
            link.close()
        super().close()
        for future in (self._is_in, self._is_out):
            future.cancel()

    def peers(self) -> list[Peer]:
        """The others that are in the cluster."""
        return self.admission.roster.entered()

    def highest_identifier(self) -> int:
        return self.admission.roster.highest

    def awaited(self) -> list[str]:
        return [f"{peer}" for peer in self.admission.awaited()]

    def control_received(self, connection: IncomingConnection, message: Control) -> None:
        if not isinstance(message, Admit):
            super().control_received(connection, message)
            return
        sender = message.message.sender
        if (sender.instance, sender.address) != (connection.instance, connection.address):
            raise ProtocolError(f"{connection.instance!r} sent a message of admission for {sender.instance!r}")
        self.admission.receive(message.message)

    def connection_ended(self, connection: IncomingConnection) -> None:
        super().connection_ended(connection)
        if connection.is_refused and connection.instance in self._instances and not self._is_closed:
            # Who has been cut off is not heard any more: nobody is to wait for it.
            link = self._by_address.pop(connection.address, None)
            if link is not None:
                link.close()
            self.admission.lost(Peer(connection.instance, connection.address))
            self._sender.settle()

    def identifier_of(self, instance: str) -> int | None:
        """The identifier of a peer by its instance; also of one that has left and still answers."""
        found = self._instances.get(instance)
        if found is None:
            peer = self.admission.roster.get(instance)
            found = None if peer is None else peer.identifier
        return found

    # What admission does.

    def send(self, target: Peer, message: AdmissionMessage) -> None:
        """Send to this life of a node, or to whoever listens at the address."""
        self._sender.write(self._link_to(target), self._sender.codec.encode_control(Admit(message)))

    def placed(self, me: Peer, members: Sequence[Peer]) -> None:
        """This node has its identifier."""
        assert me.identifier is not None, "a placed node has an identifier"
        for member in members:
            self._remember(member)
        self._events.placed(me.identifier, [member.identifier for member in members if member.identifier is not None])

    def entered(self) -> None:
        """All count this node in."""
        if not self._is_in.done():
            self._is_in.set_result(None)

    def joined(self, peer: Peer) -> None:
        """Another node is in the cluster."""
        self._remember(peer)
        log.info("joined", node=peer.identifier, address=peer.address)
        assert peer.identifier is not None, "who has joined has an identifier"
        self._events.peer_joined(peer.identifier)

    def left(self, peer: Peer) -> None:
        """Another node leaves; its link stays until it goes."""
        log.info("left", node=peer.identifier, address=peer.address)
        assert peer.identifier is not None, "who leaves has an identifier"
        self._events.peer_left(peer.identifier)

    def crashed(self, peer: Peer) -> None:
        """Another node is gone without a word."""
        log.warning("lost", node=peer.identifier, address=peer.address)
        if peer.identifier is not None:
            self.lost_nodes.append(peer.identifier)
            self.links.pop(peer.identifier, None)
            self._events.peer_lost(peer.identifier)

    def departed(self) -> None:
        """All have let this node go."""
        if not self._is_out.done():
            self._is_out.set_result(None)

    def refused(self, reason: str) -> None:
        """This node cannot join."""
        if not self._is_in.done():
            said = "".join(f"; {address} said: {refusal}" for address, refusal in self._refusals.items())
            self._is_in.set_exception(JoinError(reason + said))

    # Links.

    def _remember(self, peer: Peer) -> None:
        assert peer.identifier is not None, "only those with an identifier are remembered"
        self._instances[peer.instance] = peer.identifier
        self.links[peer.identifier] = self._link_to(peer)

    def _link_to(self, peer: Peer) -> OutgoingLink:
        link = self._by_address.get(peer.address)
        is_other = link is not None and peer.instance and not link.leads_to(peer.instance)
        if link is None or link.is_closed or is_other:
            link = self.new_link(peer.address, peer.instance, self._link_lost, self._link_refused)
            self._by_address[peer.address] = link
        elif peer.instance and not link.instance:
            link.instance = peer.instance
        return link

    def _link_lost(self, link: OutgoingLink) -> None:
        if self._by_address.get(link.address) is link:
            del self._by_address[link.address]
        self.admission.lost(Peer(link.instance, link.address))
        self._sender.settle()

    def _link_refused(self, link: OutgoingLink, reason: str, is_final: bool) -> None:
        if not self._is_in.done():
            self._refusals[link.address] = reason

    def _tick(self) -> None:
        self.admission.tick(monotonic_us())
        self._sender.settle()
        self._ticking = None
        if self.admission.phase in (Phase.ASKING, Phase.ANNOUNCING, Phase.ENTERING):
            self._ticking = self._loop.call_later(RETRY_TICKS / 4_000_000, self._tick)
