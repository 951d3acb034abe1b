"""Who else is there: what every way of being a cluster has in common, and the connections that others open.

The cube's nodes admit each other (:mod:`antiphon.live.cluster`); the brokers of a tree know each other from the start
(:mod:`antiphon.live.brokers`); in gossip nobody knows everybody (:mod:`antiphon.live.acquaintances`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from antiphon.fabrics.admission_messages import Peer
from antiphon.kernel.errors import ProtocolError, UsageError
from antiphon.kernel.message import Message
from antiphon.live.controls import (
    MEMBERSHIP_CONTROLS,
    PROTOCOL_VERSION,
    Control,
    Expelled,
    Hello,
    PlaceWanted,
    Refused,
    StillHere,
)
from antiphon.live.errors import DeniedError
from antiphon.live.links import (
    BUFFER_BYTES,
    FIRST_BUFFER_BYTES,
    FIRST_FRAME_BYTES_AT_MOST,
    FrameReader,
    FrameWriter,
    OutgoingLink,
    has_closed,
    split_address,
)
from antiphon.live.logs import logger
from antiphon.live.signs import Vigil
from antiphon.live.tls import Identity, check_node, identity_of
from antiphon.live.wire import CLIENT_FRAME_BYTES_AT_MOST, FRAME_BYTES_AT_MOST

if TYPE_CHECKING:
    from antiphon.live.listener import Listener
    from antiphon.live.node import Node

WRITTEN_SECONDS: Final = 0.005
"""How often a node that leaves looks whether everything has been written."""

UNWRITTEN_BYTES_AT_MOST: Final = 4 << 20
"""So much waits for a client that does not read before nothing more is sent to it, or read from it."""

log = logger("membership")

UNREAD: Final = "what was sent is not read"
NOT_HERE: Final = "the node that is meant does not live here any more"


class Membership:
    """The others as one node sees them: the links to them, joining and leaving."""

    survives_crashes = False
    """Whether the others go on by themselves when a node is lost."""

    knows_everybody = True
    """Whether this node can say something to all others and wait for their answers."""

    is_returning = False
    """Whether this node is who it was in an earlier life."""

    @property
    def incarnation(self) -> int:
        """How many lives this node had before under the identifier that it has."""
        return 0

    def __init__(self, node: Node, instance: str, address: str) -> None:
        self._node = node
        self._instance = instance
        self._address = address
        self.links: dict[int, OutgoingLink] = {}
        self.lost_nodes: list[int] = []
        self._incoming: set[IncomingConnection] = set()
        self._outgoing: WeakSet[OutgoingLink] = WeakSet()
        self._is_closed = False
        self._vigil = Vigil(node.settings.lost_seconds, node.loop.time())
        self._looking_out: asyncio.TimerHandle | None = None

    # What the fabrics do differently.

    async def join(self, contacts: Sequence[str]) -> None:
        """Get a place; done when the node may be used."""
        raise NotImplementedError

    async def leave(self) -> None:
        """Go in an orderly way; done when nobody needs this node any more.

        Where others go on by themselves everything that was said has to be written, and no more: they notice the end
        of the connections.
        """
        self._node.settle()
        while any(link.unwritten_bytes() for link in self.links_in_use()):
            await asyncio.sleep(WRITTEN_SECONDS)

    def links_in_use(self) -> list[OutgoingLink]:
        """The links over which something can be said now."""
        return list(self.links.values())

    def awaited(self) -> list[str]:
        """Whose answer a node that leaves waits for."""
        return []

    def peers(self) -> list[Peer]:
        """The others that are there."""
        raise NotImplementedError

    def highest_identifier(self) -> int:
        """The highest identifier that any node ever had, as far as this one knows."""
        raise NotImplementedError

    def identifier_of(self, instance: str) -> int | None:
        """The identifier of a peer by its instance."""
        raise NotImplementedError

    def greeted(self, connection: IncomingConnection, hello: Hello) -> None:
        """A peer has said who it is."""

    def control_received(self, connection: IncomingConnection, message: Control) -> None:
        """A message about who belongs to the cluster."""
        fabric = self._node.settings.fabric
        raise ProtocolError(f"a {type(message).__name__} has no meaning in the fabric {fabric!r} of this node")

    def check_fabric(self, wanted: PlaceWanted) -> None:
        """Refuse whoever asks for a place in another fabric."""
        fabric = self._node.settings.fabric
        if wanted.fabric != fabric:
            raise ProtocolError(
                f"a place in the fabric {wanted.fabric!r} has no meaning in the fabric {fabric!r} of this node"
            )

    def spread(self, control: Control, received_from: int = -1) -> None:
        """Tell those to whom there is a link, except whoever has said it."""
        for identifier in self.links:
            if identifier != received_from:
                self.tell(identifier, control)

    def link_for(self, identifier: int, message: Message) -> OutgoingLink | None:
        """The link over which a message of the process is to go; None where there is nobody any more."""
        return self.links.get(identifier)

    def membership_began(self, number: int) -> None:
        """The process takes part in something that is no topic of applications."""
        raise ProtocolError(f"the process takes part in topic {number}, for which nobody has asked")

    def dismiss(self, brokers: Sequence[int]) -> str:
        """An operator says that others are gone for good; the answer is why that means nothing here, if so."""
        return "only trees with a quorum and cubes wait for nodes that are gone; here nobody has to be dismissed"

    def figures(self) -> dict[str, Any]:
        """What the status says besides, in this fabric."""
        return {}

    def figures_of(self, number: int) -> dict[str, Any]:
        """The same of a topic."""
        return {}

    def watch(self, identifier: int) -> None:
        """The process wants to know when this peer is lost."""

    def unwatch(self, identifier: int) -> None:
        """It does not want to know any more."""

    def heard(self) -> dict[int, int]:
        """How many bytes have come from each of those who are to give signs of life."""
        return {}

    def silent(self, identifier: int) -> None:
        """A peer has given no sign of life for so long that it counts as lost."""

    # What they share.

    def look_out(self) -> None:
        """Ask those who are silent for a sign of life, and count those as lost who have given none; again and again."""
        if self._is_closed:
            return
        silent = self._vigil.look(self._node.loop.time(), self.heard())
        for identifier in silent.asked:
            self.tell(identifier, StillHere())
        for identifier in silent.lost:
            log.warning("silent", node=identifier, seconds=self._node.settings.lost_seconds)
            self.silent(identifier)
        if silent.asked or silent.lost:
            self._node.settle()
        self._looking_out = self._node.loop.call_later(self._vigil.look_seconds, self.look_out)

    def hello(self, target: str = "") -> bytes:
        """The first frame of a connection to a peer."""
        settings = self._node.settings
        hello = Hello(PROTOCOL_VERSION, settings.cluster, self._instance, self._address, target)
        return self._node.codec.encode_control(hello)

    def new_link(
        self,
        address: str,
        instance: str,
        when_lost: Callable[[OutgoingLink], None],
        when_refused: Callable[[OutgoingLink, str, bool], None],
        connect_seconds: float = 0.0,
        silent_seconds: float | None = None,
        when_opened: Callable[[OutgoingLink], None] | None = None,
        expected_name: str = "",
    ) -> OutgoingLink:
        """A link to a life of a node, or to whoever lives there."""
        link = OutgoingLink(
            address,
            instance,
            self.hello(instance),
            when_lost,
            when_refused,
            connect_seconds,
            silent_seconds,
            when_opened,
            self._node.outgoing_context,
            expected_name,
        )
        self._outgoing.add(link)
        return link

    def tell(self, identifier: int, control: Control) -> None:
        """Send a message of hosts to a peer."""
        link = self.links.get(identifier)
        if link is not None:
            self._node.write(link, self._node.codec.encode_control(control))

    def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        if self._looking_out is not None:
            self._looking_out.cancel()
        for connection in tuple(self._incoming):
            connection.close()

    async def until_closed(self, seconds: float) -> None:
        """Wait until nothing is left of connections that were closed; end those that take too long."""
        until = self._node.loop.time() + seconds
        while self._incoming or not all(link.has_ended for link in self._outgoing):
            if self._node.loop.time() >= until:
                for connection in self._incoming:
                    connection.abort()
                for link in self._outgoing:
                    link.abort()
                return
            await asyncio.sleep(WRITTEN_SECONDS)

    def connection_opened(self, connection: IncomingConnection) -> None:
        """Somebody has connected."""
        self._incoming.add(connection)
        if self._is_closed:
            # Accepted while the node was shut: whoever waits for an answer must learn that there is nobody.
            connection.close()

    def incoming(self) -> tuple[IncomingConnection, ...]:
        """The connections that others have opened."""
        return tuple(self._incoming)

    def connection_ended(self, connection: IncomingConnection) -> None:
        """A connection that somebody opened has ended."""
        self._incoming.discard(connection)


class IncomingConnection(FrameReader):
    """A connection that a peer or a client has opened to this node."""

    def __init__(self, node: Node, listener: Listener | None = None, where_from: str = "") -> None:
        super().__init__(FIRST_BUFFER_BYTES, FIRST_FRAME_BYTES_AT_MOST)
        self._node = node
        self._listener = listener
        self.where_from = where_from
        self.instance = ""
        self.address = ""
        # Who it is by its certificate, if it has shown one.
        self.identity: Identity | None = None
        self._sender: int | None = None
        self._client: FrameClient | None = None
        self.is_refused = False
        self._is_expelled = False
        self._held: set[str] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.identity = identity_of(transport)
        self._node.cluster.connection_opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._listener is not None:
            self._listener.ended(self)
        self._node.cluster.connection_ended(self)
        if self._client is not None:
            self._client.ended()

    def input_ended(self) -> None:
        self._node.settle()

    def frame_received(self, frame: memoryview) -> None:
        if self._client is not None:
            self._client.frame_received(frame)
            return
        if self._is_expelled:
            # It has come together with what the other end was expelled for.
            return
        codec = self._node.codec
        message = codec.decode(frame)
        if isinstance(message, Message):
            self._receive(message)
            codec.forget()
        elif isinstance(message, Hello):
            self._greeted(message)
        elif not self.instance:
            raise ProtocolError(f"a connection began with a {type(message).__name__}; the first frame is a Hello")
        elif isinstance(message, StillHere):
            self._give_sign()
        elif isinstance(message, MEMBERSHIP_CONTROLS):
            self._node.cluster.control_received(self, message)
        else:
            self._node.control_received(self._sender_identifier(), message)

    def _give_sign(self) -> None:
        """Say that this process goes on; not to an end that does not read, which would make what waits grow."""
        if self.transport is not None and self.transport.get_write_buffer_size() == 0:
            self._say(StillHere())

    def _receive(self, message: Message) -> None:
        sender = self._sender
        if sender is None:
            sender = self._sender = self._sender_identifier()
        self._node.received(sender, message)

    def _sender_identifier(self) -> int:
        sender = self._node.cluster.identifier_of(self.instance)
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
            raise ProtocolError(NOT_HERE)
        if self.instance or not hello.instance:
            raise ProtocolError("a connection begins with one Hello that names its sender")
        if hello.address and self._node.outgoing_context is not None:
            check_node(self.identity, hello.instance, host_of(hello.address))
        self.instance, self.address = hello.instance, hello.address
        if hello.address:
            if len(self._node.cluster.incoming()) > self._node.settings.maximum_connections():
                raise ProtocolError("this node has as many connections as it may; connect to another one")
            self._trust(FRAME_BYTES_AT_MOST)
            self._node.cluster.greeted(self, hello)
            return
        assert self.transport is not None, "there is a connection when a frame arrives"
        writer = FrameWriter()
        writer.attach(self.transport)
        self.transport.set_write_buffer_limits(UNWRITTEN_BYTES_AT_MOST)
        self._client = self._node.client_connected(writer, hello, self.identity, self)
        self._trust(CLIENT_FRAME_BYTES_AT_MOST)

    def _trust(self, frame_bytes_at_most: int) -> None:
        """It has said who it is: from now on it may send as much as others."""
        self.buffer_bytes = BUFFER_BYTES
        self.frame_bytes_at_most = frame_bytes_at_most
        if self._listener is not None:
            self._listener.greeted(self)

    def hold(self, reason: str) -> None:
        """Read nothing more from the other end for a while, for this reason among others."""
        if not self._held and self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()
        self._held.add(reason)

    def release(self, reason: str) -> None:
        """The reason is gone."""
        self._held.discard(reason)
        if not self._held and self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def end_if_left(self) -> None:
        """End a connection that is not read from and whose other end is gone: nobody would notice otherwise."""
        if self._held and self.transport is not None and not self.transport.is_closing() and has_closed(self.transport):
            self.transport.abort()

    def pause_writing(self) -> None:
        # Whoever does not read answers is not to ask for more of them.
        if self._client is not None:
            self._client.writing_paused()
            self.hold(UNREAD)

    def resume_writing(self) -> None:
        if self._client is not None:
            self._client.writing_resumed()
            self.release(UNREAD)

    def buffer_changed(self, size: int) -> None:
        if self._listener is not None:
            self._listener.buffer_changed(self, size)

    def broken(self, error: Exception) -> None:
        """The process may be in no defined state any more: better no node than a wrong one."""
        self._node.fail(error)

    def refuse(self, error: Exception) -> None:
        """Tell the other end why, and close."""
        if self.is_refused:
            return
        self.is_refused = True
        self._say(Refused(str(error)[:1000], isinstance(error, DeniedError)))
        if self._listener is None:
            super().refuse(error)
            return
        self._listener.note_refusal(self.where_from, error)
        self._filled = 0
        self.close()

    def expel(self, reason: str) -> None:
        """Tell the other end that it counts as failed, and do not listen to it any more."""
        self._is_expelled = True
        self._say(Expelled(reason))
        self.close()

    def _say(self, control: Control) -> None:
        if self.transport is not None and not self.transport.is_closing():
            writer = FrameWriter()
            writer.attach(self.transport)
            writer.send(self._node.codec.encode_control(control))
            writer.flush()

    def close(self) -> None:
        """The node goes, or the other end counts as gone."""
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """End without taking leave."""
        if self.transport is not None:
            self.transport.abort()


def host_of(address: str) -> str:
    """The host of an address that somebody else has written."""
    try:
        return split_address(address)[0]
    except UsageError as error:
        raise ProtocolError(f"the other end says that it lives at {address!r}, which is no address") from error


class FrameClient:
    """A client at the other end of an incoming connection."""

    def frame_received(self, frame: memoryview) -> None:
        """A frame of the client."""
        raise NotImplementedError

    def ended(self) -> None:
        """The client is gone."""
        raise NotImplementedError

    def rights_changed(self) -> None:
        """The rights of clients are others now."""
        raise NotImplementedError

    def writing_paused(self) -> None:
        """The client does not read what it is sent."""
        raise NotImplementedError

    def writing_resumed(self) -> None:
        """It has read it."""
        raise NotImplementedError
