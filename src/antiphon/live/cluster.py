"""The cluster as one node sees it: who is in it, the links to them, and joining and leaving.

What decides is :class:`antiphon.fabrics.admission.Admission`, a pure state machine; here are its sockets and its clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from antiphon.fabrics.admission import Admission, AdmissionOptions, Phase
from antiphon.fabrics.admission_messages import AdmissionMessage, Peer
from antiphon.kernel.errors import ProtocolError
from antiphon.kernel.message import Message
from antiphon.live.clocks import monotonic_us
from antiphon.live.controls import PROTOCOL_VERSION, Admit, Control, Hello, Refused
from antiphon.live.errors import JoinError
from antiphon.live.links import FrameReader, FrameWriter, OutgoingLink
from antiphon.live.logs import logger

if TYPE_CHECKING:
    from antiphon.live.node import Node

RETRY_TICKS: Final = 200_000
"""How long a newcomer waits before it asks again, in microseconds."""

log = logger("cluster")


class Cluster:
    """Implements the host of admission."""

    def __init__(self, node: Node, instance: str, address: str, highest: int) -> None:
        settings = node.settings
        self._node = node
        self._instance = instance
        self._address = address
        attempts = max(1, round(settings.join_seconds * 1_000_000 / RETRY_TICKS / max(1, len(settings.join))))
        options = AdmissionOptions(settings.maximum_nodes, RETRY_TICKS, attempts)
        self.admission = Admission(self, Peer(instance, address), options, highest)
        self.links: dict[int, OutgoingLink] = {}
        self._by_address: dict[str, OutgoingLink] = {}
        self._instances: dict[str, int] = {}
        self._incoming: set[IncomingConnection] = set()
        self._is_closed = False
        self._is_in: asyncio.Future[None] = node.loop.create_future()
        self._is_out: asyncio.Future[None] = node.loop.create_future()
        self._ticking: asyncio.TimerHandle | None = None
        self.lost_nodes: list[int] = []
        # Why those who were asked for a place closed the connection, by address.
        self._refusals: dict[str, str] = {}

    # What the node does.

    async def join(self, contacts: Sequence[str]) -> None:
        """Get a place, or found a cluster."""
        self.admission.start(contacts, monotonic_us())
        self._node.settle()
        self._tick()
        await self._is_in

    async def leave(self) -> None:
        """Say goodbye, and wait until all have confirmed."""
        self.admission.leave()
        self._node.settle()
        await self._is_out

    def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        if self._ticking is not None:
            self._ticking.cancel()
        for link in self._by_address.values():
            link.close()
        for connection in tuple(self._incoming):
            connection.close()
        for future in (self._is_in, self._is_out):
            future.cancel()

    def hello(self, target: str = "") -> bytes:
        """The first frame of a connection to a peer."""
        settings = self._node.settings
        hello = Hello(PROTOCOL_VERSION, settings.cluster, self._instance, self._address, target)
        return self._node.codec.encode_control(hello)

    def peers(self) -> list[Peer]:
        """The others that are in the cluster."""
        return self.admission.roster.entered()

    def tell(self, identifier: int, control: Control) -> None:
        """Send a message of hosts to a node of the cluster."""
        link = self.links.get(identifier)
        if link is not None:
            self._node.write(link, self._node.codec.encode_control(control))

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
        self._node.write(self._link_to(target), self._node.codec.encode_control(Admit(message)))

    def placed(self, me: Peer, members: Sequence[Peer]) -> None:
        """This node has its identifier."""
        assert me.identifier is not None, "a placed node has an identifier"
        for member in members:
            self._remember(member)
        self._node.placed(me.identifier, [member.identifier for member in members if member.identifier is not None])

    def entered(self) -> None:
        """All count this node in."""
        if not self._is_in.done():
            self._is_in.set_result(None)

    def joined(self, peer: Peer) -> None:
        """Another node is in the cluster."""
        self._remember(peer)
        log.info("joined", node=peer.identifier, address=peer.address)
        assert peer.identifier is not None, "who has joined has an identifier"
        self._node.peer_joined(peer.identifier)

    def left(self, peer: Peer) -> None:
        """Another node leaves; its link stays until it goes."""
        log.info("left", node=peer.identifier, address=peer.address)
        assert peer.identifier is not None, "who leaves has an identifier"
        self._node.peer_left(peer.identifier)

    def crashed(self, peer: Peer) -> None:
        """Another node is gone without a word."""
        log.warning("lost", node=peer.identifier, address=peer.address)
        if peer.identifier is not None:
            self.lost_nodes.append(peer.identifier)
            self.links.pop(peer.identifier, None)
            self._node.peer_lost(peer.identifier)

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
        if link is None or link.is_closed or (peer.instance and link.instance not in ("", peer.instance)):
            link = OutgoingLink(
                peer.address, peer.instance, self.hello(peer.instance), self._link_lost, self._link_refused
            )
            self._by_address[peer.address] = link
        elif peer.instance and not link.instance:
            link.instance = peer.instance
        return link

    def _link_lost(self, link: OutgoingLink) -> None:
        if self._by_address.get(link.address) is link:
            del self._by_address[link.address]
        self.admission.lost(Peer(link.instance, link.address))
        self._node.settle()

    def _link_refused(self, link: OutgoingLink, reason: str) -> None:
        if not self._is_in.done():
            self._refusals[link.address] = reason

    def _tick(self) -> None:
        self.admission.tick(monotonic_us())
        self._node.settle()
        self._ticking = None
        if self.admission.phase in (Phase.ASKING, Phase.ANNOUNCING, Phase.ENTERING):
            self._ticking = self._node.loop.call_later(RETRY_TICKS / 4_000_000, self._tick)

    def connection_opened(self, connection: IncomingConnection) -> None:
        """Somebody has connected."""
        self._incoming.add(connection)
        if self._is_closed:
            # Accepted while the node was shut: whoever waits for an answer must learn that there is nobody.
            connection.close()

    def connection_ended(self, connection: IncomingConnection) -> None:
        """A connection that somebody opened has ended."""
        self._incoming.discard(connection)


class IncomingConnection(FrameReader):
    """A connection that a peer or a client has opened to this node."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self._node = node
        self._instance = ""
        self._sender: int | None = None
        self._client: FrameClient | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._node.cluster.connection_opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._node.cluster.connection_ended(self)
        if self._client is not None:
            self._client.ended()

    def input_ended(self) -> None:
        self._node.settle()

    def frame_received(self, frame: memoryview) -> None:
        if self._client is not None:
            self._client.frame_received(frame)
            return
        codec = self._node.codec
        message = codec.decode(frame)
        if isinstance(message, Message):
            self._receive(message)
            codec.forget()
        elif isinstance(message, Hello):
            self._greeted(message)
        elif not self._instance:
            raise ProtocolError(f"a connection began with a {type(message).__name__}; the first frame is a Hello")
        elif isinstance(message, Admit):
            self._node.cluster.admission.receive(message.message)
        else:
            self._node.control_received(self._sender_identifier(), message)

    def _receive(self, message: Message) -> None:
        sender = self._sender
        if sender is None:
            sender = self._sender = self._sender_identifier()
        self._node.received(sender, message)

    def _sender_identifier(self) -> int:
        sender = self._node.cluster.identifier_of(self._instance)
        if sender is None:
            raise ProtocolError("somebody who is not in the cluster sent a message of its processes")
        return sender

    def _greeted(self, hello: Hello) -> None:
        settings = self._node.settings
        if hello.version != PROTOCOL_VERSION:
            raise ProtocolError(
                f"the other end speaks version {hello.version}, this node {PROTOCOL_VERSION}; upgrade the older one"
            )
        if hello.cluster != settings.cluster:
            raise ProtocolError(f"this node is of cluster {settings.cluster!r}, the other end of {hello.cluster!r}")
        if hello.target and hello.target != self._node.instance:
            raise ProtocolError("the node that is meant does not live here any more")
        if self._instance or not hello.instance:
            raise ProtocolError("a connection begins with one Hello that names its sender")
        self._instance = hello.instance
        if not hello.address:
            assert self.transport is not None, "there is a connection when a frame arrives"
            writer = FrameWriter()
            writer.attach(self.transport)
            self._client = self._node.client_connected(writer)

    def broken(self, error: Exception) -> None:
        """The process may be in no defined state any more: better no node than a wrong one."""
        self._node.fail(error)

    def refuse(self, error: Exception) -> None:
        """Tell the other end why, and close."""
        if self.transport is not None and not self.transport.is_closing():
            writer = FrameWriter()
            writer.attach(self.transport)
            writer.send(self._node.codec.encode_control(Refused(str(error)[:1000])))
            writer.flush()
        super().refuse(error)

    def close(self) -> None:
        """The node goes."""
        if self.transport is not None:
            self.transport.close()


class FrameClient:
    """A client at the other end of an incoming connection."""

    def frame_received(self, frame: memoryview) -> None:
        """A frame of the client."""
        raise NotImplementedError

    def ended(self) -> None:
        """The client is gone."""
        raise NotImplementedError
