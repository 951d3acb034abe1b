"""A connection that a peer or a client has opened to this node: the greeting, and whose frames these are.

A connection tells two parts of the node what comes over it: the peers' membership hears of peers and of what they say
about who belongs to the cluster, and the node gets all the rest.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, NamedTuple, Protocol

import msgspec

from antiphon.kernel.errors import DeniedError, ProtocolError, UsageError
from antiphon.kernel.message import ProtocolMessage
from antiphon.membership.host import NOT_HERE
from antiphon.membership.messages import (
    MEMBERSHIP_CONTROLS,
    OLDEST_VERSION,
    Control,
    Expelled,
    Hello,
    KeepAlive,
    Refused,
)
from antiphon.transport.codec import Codec
from antiphon.transport.framing import (
    BUFFER_BYTES,
    FIRST_BUFFER_BYTES,
    FIRST_FRAME_BYTES_AT_MOST,
    SMALL_FRAME_BYTES,
    FrameReader,
    FrameWriter,
)
from antiphon.transport.links import has_closed, split_address
from antiphon.transport.schema import CLIENT_FRAME_BYTES_AT_MOST, FRAME_BYTES_AT_MOST
from antiphon.transport.tls import CertifiedIdentity, check_node, identity_of
from antiphon.transport.turn_share import TurnShare

UNWRITTEN_BYTES_AT_MOST: int = 4 << 20
"""So much waits for a client that does not read before nothing more is sent to it, or read from it."""

FRAMES_PER_LOOK: Final = 4
"""After so many short frames of a client the node looks at the clock."""

UNREAD: Final = "what was sent is not read"
TURN: Final = "its frames wait for a turn"


class ConnectionGreeting(NamedTuple):
    """The facts with which the first frame of a connection is compared."""

    cluster: str
    instance: str
    has_tls: bool
    maximum_connections: int


class ServedClient(Protocol):
    """A client of a node, whatever it speaks."""

    def rights_changed(self) -> None:
        """The rights of clients are others now."""


class FrameClient(ServedClient, Protocol):
    """A client at the other end of an incoming connection."""

    def frame_received(self, frame: memoryview) -> None:
        """A frame of the client."""

    def ended(self) -> None:
        """The client is gone."""

    def writing_paused(self) -> None:
        """The client does not read what it is sent."""

    def writing_resumed(self) -> None:
        """It has read it."""


class Receiver(Protocol):
    """The loop of the node to which somebody has connected."""

    @property
    def codec(self) -> Codec:
        """Reads and writes frames."""

    def received(self, sender: int, message: ProtocolMessage) -> None:
        """A message of a peer's process."""

    def settle(self) -> None:
        """Nothing more has come for now."""

    def unhandled(self, error: Exception) -> None:
        """A step has failed, perhaps because of a message that no correct peer sends."""

    def fail(self, error: BaseException) -> None:
        """Something is wrong that no later step can make good."""


class Reception(Protocol):
    """The part of a node that receives clients, and messages of the hosts of peers."""

    @property
    def greeting(self) -> ConnectionGreeting:
        """The facts with which the first frame is compared."""

    def control_received(self, sender: int, message: msgspec.Struct) -> None:
        """A message of a peer's host."""

    def client_connected(
        self, writer: FrameWriter, hello: Hello, identity: CertifiedIdentity | None, connection: IncomingConnection
    ) -> FrameClient:
        """A client has said who it is."""


class ConnectedPeers(Protocol):
    """The peers that have connected, and who they are."""

    def connection_opened(self, connection: IncomingConnection) -> None:
        """Somebody has connected."""

    def connection_ended(self, connection: IncomingConnection) -> None:
        """A connection that somebody opened has ended."""

    def incoming(self) -> tuple[IncomingConnection, ...]:
        """The connections that others have opened."""

    def greeted(self, connection: IncomingConnection, hello: Hello) -> None:
        """A peer has said who it is."""

    def control_received(self, connection: IncomingConnection, message: Control) -> None:
        """A message about who belongs to the cluster."""

    def identifier_of(self, instance: str) -> int | None:
        """The identifier of a peer by its instance."""


class Accepting(Protocol):
    """Where connections are accepted, and those are cut off that cost too much."""

    def greeted(self, connection: IncomingConnection) -> None:
        """Somebody has said who it is."""

    def ended(self, connection: IncomingConnection) -> None:
        """A connection has ended."""

    def check_certificate(self, connection: IncomingConnection) -> None:
        """Refuse a connection whose certificate has expired or was revoked."""

    def buffer_changed(self, connection: IncomingConnection, size: int) -> None:
        """A connection has a long frame that is not finished, or has finished it."""

    def note_refusal(self, where_from: str, error: BaseException) -> None:
        """Somebody has been cut off, for this reason."""


class IncomingConnection(FrameReader):
    """A connection that a peer or a client has opened to this node."""

    def __init__(
        self,
        receiver: Receiver,
        reception: Reception,
        cluster: ConnectedPeers,
        listener: Accepting | None = None,
        where_from: str = "",
    ) -> None:
        super().__init__(FIRST_BUFFER_BYTES, FIRST_FRAME_BYTES_AT_MOST)
        self._receiver = receiver
        self._reception = reception
        self._cluster = cluster
        self._listener = listener
        self.where_from = where_from
        self.instance = ""
        self.address = ""
        # The version of the frames that both ends understand.
        self.version = OLDEST_VERSION
        # Who it is by its certificate, if it has shown one.
        self.identity: CertifiedIdentity | None = None
        self._sender: int | None = None
        self._client: FrameClient | None = None
        self.is_refused = False
        self._is_closed = False
        self._held: set[str] = set()
        # The identity of the client, if one is at the other end, and its share of the time.
        self.tenant: str | None = None
        self.share: TurnShare | None = None
        self._writer: FrameWriter | None = None
        self._awaits_turn = False

    @property
    def owner(self) -> str:
        """The peer or identity at the other end."""
        return self.instance if self.tenant is None else self.tenant

    @property
    def is_client(self) -> bool:
        """Whether a client is at the other end."""
        return self.tenant is not None

    @property
    def is_held(self) -> bool:
        """Whether nothing is read from it at the moment."""
        return bool(self._held)

    @property
    def is_to_be_looked_at(self) -> bool:
        """Whether it may have to be cut off: a frame is unfinished, nothing is read, or a certificate may expire."""
        return self._filled > 0 or bool(self._held) or self.identity is not None

    @property
    def received(self) -> tuple[int, int]:
        """How many bytes and how many frames have come so far."""
        return self.bytes_received, self.frames_received

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.identity = identity_of(transport)
        self._cluster.connection_opened(self)

    @property
    def certified_name(self) -> str:
        """The name in the certificate of the other end; empty if it has shown none."""
        return "" if self.identity is None else self.identity.name

    def connection_lost(self, exc: Exception | None) -> None:
        # What has come of a long frame is megabytes, and this object is part of a cycle that may stay for long.
        self._forget_input()
        if self._listener is not None:
            self._listener.ended(self)
        self._cluster.connection_ended(self)
        if self._client is not None:
            self._client.ended()

    def buffer_updated(self, nbytes: int) -> None:
        if self.share is not None and not self.share.begin():
            self.is_stopped = True
        super().buffer_updated(nbytes)
        # The first read of a client brings its greeting, and with it the share.
        if self.share is not None:
            self.share.end()
            if self.is_stopped:
                self._await_turn(self.share)

    def _await_turn(self, share: TurnShare) -> None:
        """Handle and read nothing more until the identity has its next turn."""
        if not self._awaits_turn:
            self._awaits_turn = True
            self.hold(TURN)
            share.wait(self)

    def go_on(self) -> None:
        """The identity of this client has its next turn."""
        share = self.share
        self._awaits_turn = False
        if share is None or self._is_closed or self.transport is None or self.transport.is_closing():
            return
        if len(self._held) > 1:
            # It goes on when the other reason is gone.
            return
        share.begin()
        self.handle_rest()
        share.end()
        if self.is_stopped:
            self._await_turn(share)
        else:
            self.release(TURN)

    def input_ended(self) -> None:
        self._receiver.settle()

    def frame_received(self, frame: memoryview) -> None:
        if self._client is not None:
            self._client.frame_received(frame)
            self._look_at_the_time(len(frame) > SMALL_FRAME_BYTES)
            return
        if self._is_closed:
            # It has come together with what the connection was closed for, and must not count.
            return
        codec = self._receiver.codec
        message = codec.decode(frame)
        if isinstance(message, ProtocolMessage):
            sender = self._sender
            if sender is None:
                sender = self._sender = self._sender_identifier()
            try:
                self._receiver.received(sender, message)
            finally:
                codec.forget()
        elif isinstance(message, Hello):
            self._greeted(message)
        elif not self.instance:
            raise ProtocolError(f"a connection began with a {type(message).__name__}; the first frame is a Hello")
        elif isinstance(message, KeepAlive):
            self._give_sign()
        elif isinstance(message, MEMBERSHIP_CONTROLS):
            self._cluster.control_received(self, message)
        else:
            self._reception.control_received(self._sender_identifier(), message)

    def _look_at_the_time(self, is_long: bool) -> None:
        """Stop when the identity has had its turn, and when the client has to wait, or has to read answers first.

        Behind short frames it looks at the clock less often: most reads bring one.
        """
        share, writer = self.share, self._writer
        if share is None or writer is None:
            return
        looks = is_long or self.frames_received % FRAMES_PER_LOOK == 0
        is_late = looks and time.perf_counter() >= share.ends
        if is_late or self._held or writer.queued_bytes > UNWRITTEN_BYTES_AT_MOST:
            self.is_stopped = True

    def _give_sign(self) -> None:
        """Say that this process goes on; not to an end that does not read, which would make what waits grow."""
        if self.transport is not None and self.transport.get_write_buffer_size() == 0:
            self._say(KeepAlive())

    def _sender_identifier(self) -> int:
        sender = self._cluster.identifier_of(self.instance)
        if sender is None:
            raise ProtocolError("somebody who is not in the cluster sent a message of its processes")
        return sender

    def _greeted(self, hello: Hello) -> None:
        greeting = self._reception.greeting
        self.version = hello.agreed_version()
        if hello.cluster != greeting.cluster:
            raise ProtocolError(f"this node is of cluster {greeting.cluster!r}, the other end of {hello.cluster!r}")
        if hello.target and hello.target != greeting.instance:
            raise ProtocolError(NOT_HERE)
        if self.instance or not hello.instance:
            raise ProtocolError("a connection begins with one Hello that names its sender")
        if self._listener is not None:
            self._listener.check_certificate(self)
        if hello.address and greeting.has_tls:
            check_node(self.identity, hello.instance, host_of(hello.address))
        self.instance, self.address = hello.instance, hello.address
        if hello.address:
            if len(self._cluster.incoming()) > greeting.maximum_connections:
                raise ProtocolError("this node has as many connections as it may; connect to another one")
            self._trust(FRAME_BYTES_AT_MOST)
            self._cluster.greeted(self, hello)
            return
        assert self.transport is not None, "there is a connection when a frame arrives"
        writer = self._writer = FrameWriter()
        writer.attach(self.transport)
        self.transport.set_write_buffer_limits(UNWRITTEN_BYTES_AT_MOST)
        self._client = self._reception.client_connected(writer, hello, self.identity, self)
        if self.share is not None:
            self.share.begin()
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
        if self.share is not None and self.is_stopped and self._held == {TURN}:
            self._await_turn(self.share)
        elif not self._held and self.transport is not None and not self.transport.is_closing():
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

    def unhandled(self, error: Exception) -> None:
        """End the connection, and not the node: otherwise one lying peer could end all nodes, one after the other."""
        self._receiver.unhandled(error)
        self.refuse(ProtocolError(f"a message failed in the node that received it ({type(error).__name__})"))

    def broken(self, error: Exception) -> None:
        """The process may be in no defined state any more: better no node than a wrong one."""
        self._receiver.fail(error)

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
        self._forget_input()
        self.close()

    def expel(self, reason: str) -> None:
        """Tell the other end that it counts as failed, and do not listen to it any more."""
        self._say(Expelled(reason))
        self.close()

    def _say(self, control: Control) -> None:
        if self.transport is not None and not self.transport.is_closing():
            writer = FrameWriter()
            writer.attach(self.transport)
            writer.send(self._receiver.codec.encode_control(control))
            writer.flush()

    def close(self) -> None:
        """The node goes, or the other end counts as gone."""
        self._is_closed = True
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """End without taking leave."""
        self._is_closed = True
        if self.transport is not None:
            self.transport.abort()


def host_of(address: str) -> str:
    """The host of an address that somebody else has written."""
    try:
        return split_address(address)[0]
    except UsageError as error:
        raise ProtocolError(f"the other end says that it lives at {address!r}, which is no address") from error
