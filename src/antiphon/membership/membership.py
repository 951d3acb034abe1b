"""Who else is there: what every way of being a cluster has in common, and the connections that others open.

On cubes and trees each node keeps a connection to every other (:mod:`antiphon.membership.full_mesh`); in gossip nobody
knows everybody (:mod:`antiphon.membership.partial_view`).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol
from weakref import WeakSet

from antiphon.kernel.errors import ProtocolError
from antiphon.kernel.message import Message
from antiphon.kernel.process import Process
from antiphon.membership.heartbeats import Vigil
from antiphon.runtime.logging import logger
from antiphon.runtime.tasks import Tasks
from antiphon.storage.disk import Disk
from antiphon.transport.codec import Codec
from antiphon.transport.incoming import IncomingConnection
from antiphon.transport.links import FrameWriter, OutgoingLink
from antiphon.transport.peer_messages import PROTOCOL_VERSION, Control, Hello, KeepAlive, Peer, PlaceRequest

WRITTEN_SECONDS: Final = 0.005
"""How often a node that leaves looks whether everything has been written."""

log = logger("membership")


class MembershipSettings(Protocol):
    """The settings of a node that say how it belongs to a cluster."""

    @property
    def fabric(self) -> str:
        """How messages travel."""

    @property
    def cluster(self) -> str:
        """The name of the cluster."""

    @property
    def join(self) -> list[str]:
        """The nodes that are asked for a place."""

    @property
    def join_seconds(self) -> float:
        """How long joining may take."""

    @property
    def lost_seconds(self) -> float:
        """After how long a silent peer counts as lost."""

    @property
    def forget_seconds(self) -> float:
        """After how long nobody looks for a lost node any more."""

    @property
    def maximum_nodes(self) -> int:
        """How many nodes a cluster may have."""


class Sender(Protocol):
    """Encodes frames and writes them when the node settles."""

    @property
    def codec(self) -> Codec:
        """Reads and writes frames."""

    def write(self, writer: FrameWriter, frame: bytes) -> None:
        """Send a frame when the node settles."""

    def settle(self) -> None:
        """Bring the outside up to date with the process."""


class MemberEvents(Protocol):
    """What happens to the membership of a node, for the rest of the node."""

    @property
    def process(self) -> Process | None:
        """The process of the node, from the moment it has its place."""

    def placed(self, identifier: int, members: list[int]) -> None:
        """This node has its place beside these others."""

    def displaced(self) -> None:
        """This node has no place after all, and asks for another one."""

    def past_is_void(self) -> None:
        """What an earlier life of this node delivered means nothing in this cluster."""

    def peer_lost(self, identifier: int) -> None:
        """Another node is gone without a word."""

    def peer_found(self, identifier: int) -> None:
        """Another node can be reached, for the first time or again."""

    def link_lost(self, identifier: int) -> None:
        """A peer that the process watches is lost."""

    def link_found(self, identifier: int) -> None:
        """A peer that the process watches, and that was lost, can be reached again."""

    def peers_changed(self) -> None:
        """Clients are to know that they can go to others than before."""

    def topic_names(self) -> set[str]:
        """The topics that this node has heard of."""

    def keep_highest(self) -> None:
        """Remember which identifiers there were."""

    def fail(self, error: BaseException) -> None:
        """Something is wrong that no later step can make good."""


class Place(NamedTuple):
    """Where a membership lives: the node it is for, and the parts of the node that it uses."""

    instance: str
    address: str
    settings: MembershipSettings
    context: ssl.SSLContext | None
    sender: Sender
    events: MemberEvents
    disk: Disk
    tasks: Tasks


class Membership:
    """The others as one node sees them: the links to them, joining and leaving."""

    knows_everybody = True
    """Whether this node can say something to all others and wait for their answers."""

    is_returning = False
    """Whether this node is who it was in an earlier life."""

    @property
    def incarnation(self) -> int:
        """How many lives this node had before under the identifier that it has."""
        return 0

    def __init__(self, place: Place) -> None:
        self._instance = place.instance
        self._address = place.address
        self._settings = place.settings
        self._context = place.context
        self._sender = place.sender
        self._events = place.events
        self._disk = place.disk
        self._loop = asyncio.get_running_loop()
        self.links: dict[int, OutgoingLink] = {}
        self.lost_nodes: list[int] = []
        self._incoming: set[IncomingConnection] = set()
        self._outgoing: WeakSet[OutgoingLink] = WeakSet()
        self._is_closed = False
        self._vigil = Vigil(self._settings.lost_seconds, self._loop.time())
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
        self._sender.settle()
        while any(link.unwritten_bytes() for link in self.links_in_use()):
            await asyncio.sleep(WRITTEN_SECONDS)

    def links_in_use(self) -> list[OutgoingLink]:
        """The links over which something can be said now."""
        return list(self.links.values())

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
        fabric = self._settings.fabric
        raise ProtocolError(f"a {type(message).__name__} has no meaning in the fabric {fabric!r} of this node")

    def check_fabric(self, wanted: PlaceRequest) -> None:
        """Refuse whoever asks for a place in another fabric."""
        fabric = self._settings.fabric
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

    def bytes_heard(self) -> dict[int, int]:
        """How many bytes have come from each of those who are to give signs of life."""
        return {}

    def silent(self, identifier: int) -> None:
        """A peer has given no sign of life for so long that it counts as lost."""

    # What they share.

    def look_out(self) -> None:
        """Ask those who are silent for a sign of life, and count those as lost who have given none; again and again."""
        if self._is_closed:
            return
        silent = self._vigil.poll(self._loop.time(), self.bytes_heard())
        for identifier in silent.asked:
            self.tell(identifier, KeepAlive())
        for identifier in silent.lost:
            log.warning("silent", node=identifier, seconds=self._settings.lost_seconds)
            self.silent(identifier)
        if silent.asked or silent.lost:
            self._sender.settle()
        self._looking_out = self._loop.call_later(self._vigil.look_seconds, self.look_out)

    def hello(self, target: str = "") -> bytes:
        """The first frame of a connection to a peer."""
        hello = Hello(PROTOCOL_VERSION, self._settings.cluster, self._instance, self._address, target)
        return self._sender.codec.encode_control(hello)

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
            self._context,
            expected_name,
        )
        self._outgoing.add(link)
        return link

    def addresses(self) -> list[str]:
        """Where the others are that are there."""
        return [peer.address for peer in self.peers()]

    def identifiers(self) -> set[int]:
        """The identifiers of the others that are there."""
        return {peer.identifier for peer in self.peers() if peer.identifier is not None}

    def tell(self, identifier: int, control: Control) -> None:
        """Send a message of hosts to a peer."""
        link = self.links.get(identifier)
        if link is not None:
            self._sender.write(link, self._sender.codec.encode_control(control))

    def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        if self._looking_out is not None:
            self._looking_out.cancel()
        for connection in tuple(self._incoming):
            connection.close()

    async def until_closed(self, seconds: float) -> None:
        """Wait until nothing is left of connections that were closed; end those that take too long."""
        until = self._loop.time() + seconds
        while self._incoming or not all(link.has_ended for link in self._outgoing):
            if self._loop.time() >= until:
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
