"""The messages by which nodes find each other: greetings, places, addresses and signs of life.

They are data descriptions that a host encodes and checks without code of their own: arrays with a tag.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from antiphon.kernel.errors import ProtocolError

PROTOCOL_VERSION: Final = 9
"""The version of the frames that this program speaks. A release that adds a kind of message or a field raises it."""

OLDEST_VERSION: Final = 9
"""The oldest version that this program still understands. docs/architecture.md has the rules for both numbers."""

MAXIMUM_IDENTIFIER: Final = (1 << 22) - 1
"""The greatest identifier that fits below the sequence number in the key of a publication."""

Name = Annotated[str, msgspec.Meta(max_length=255)]
Identifier = Annotated[int, msgspec.Meta(ge=0, le=MAXIMUM_IDENTIFIER)]
Number = Annotated[int, msgspec.Meta(ge=0, le=1 << 22)]

FIRST_CONTROL: Final = 100
"""The tags of messages of hosts begin here; those of processes are below."""

EXPELLED_TAG: Final = FIRST_CONTROL + 6
KEEP_ALIVE_TAG: Final = FIRST_CONTROL + 22


class Peer(msgspec.Struct, frozen=True, array_like=True):
    """One life of a node: ``instance`` is drawn anew for each, ``address`` is where it listens.

    ``identifier`` is its place; None as long as it has none.
    """

    instance: Name
    address: Name
    identifier: Identifier | None = None


class Control(msgspec.Struct, frozen=True, array_like=True):
    """A message of hosts. A later version may add fields at its end, which this one does not read."""


class Hello(Control, frozen=True, array_like=True, tag=FIRST_CONTROL):
    """The first frame of a connection, from the one who opened it.

    ``target`` is the instance that is meant, or nothing if whoever listens will do. A client has no address, and may
    have a token that says who it is. A broker that is in its tree says its permanent identifier, and which of its
    incarnations it is; one that asks for an identifier says the incarnation 1 and none. ``version`` is the latest and
    ``oldest`` the oldest version that the sender speaks; without ``oldest`` it speaks no other. ``number`` counts the
    connections that a node has opened in this life; clients do not count. ``directory`` names the data directory of a
    node, and ``founders`` is a checksum of the list of founders, from a broker that begins as one of them.
    """

    version: int
    cluster: Name
    instance: Name
    address: Name
    target: Name = ""
    token: Name = ""
    identifier: Annotated[int, msgspec.Meta(ge=-1, le=MAXIMUM_IDENTIFIER)] = -1
    incarnation: Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)] = 0
    oldest: int = 0
    number: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)] = 0
    directory: Name = ""
    founders: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)] = 0

    def agreed_version(self) -> int:
        """The version in which both ends speak: the lower of the two, if both know it."""
        oldest = self.oldest or self.version
        if self.version < OLDEST_VERSION or oldest > PROTOCOL_VERSION:
            raise ProtocolError(
                f"the other end speaks versions {oldest} to {self.version}, this one {OLDEST_VERSION} to "
                f"{PROTOCOL_VERSION}; upgrade the older one, over the releases between them"
            )
        return min(self.version, PROTOCOL_VERSION)

    def __repr__(self) -> str:
        # The token is nobody's business.
        return f"Hello({self.version}, {self.cluster!r}, {self.instance!r}, {self.address!r}, {self.target!r})"


class Refused(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 1):
    """The connection cannot be used; it is closed after this. ``is_denied`` if the other end has no right to it."""

    reason: Annotated[str, msgspec.Meta(max_length=1023)]
    is_denied: bool = False


class Expelled(Control, frozen=True, array_like=True, tag=EXPELLED_TAG):
    """The receiver counts as failed: it will not be heard any more, and is to stop."""

    reason: Annotated[str, msgspec.Meta(max_length=1023)]


class PlaceRequest(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 10):
    """A newcomer to a fabric asks for an identifier; a node without one hands it on, ``hops`` times at most."""

    newcomer: Peer
    hops: Annotated[int, msgspec.Meta(ge=0, le=64)]
    fabric: Name
    wish: Identifier | None = None
    """The identifier that the newcomer would like to have, if it is free; it may get another one."""


class Appointment(msgspec.Struct, frozen=True, array_like=True):
    """A contact; of two, the one with the lower number is senior."""

    number: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
    contact: Peer


class PlaceResponse(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 11):
    """The receiver has this identifier, those from ``first`` to below ``end`` to give to others, and these contacts.

    ``founding`` names the cluster among all that were ever founded, where that matters.
    """

    identifier: Identifier
    first: Number
    end: Number
    contacts: list[Appointment]
    founding: Name = ""
    blocks: Number = 0
    """How many blocks of identifiers are taken, where there are any (:mod:`antiphon.membership.address_book`)."""


class PeerAddresses(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 12):
    """Names and addresses of nodes: of the sender first, and of each other node before a message first mentions it.

    ``founding`` names the sender's cluster among all that were ever founded, if the sender knows an address and not who
    lives there.
    """

    peers: list[Peer]
    founding: Name = ""


class KeepAlive(Control, frozen=True, array_like=True, tag=KEEP_ALIVE_TAG):
    """The sender's process goes on; the other end says the same on this connection, at once, if its process does too.

    The answer is the same frame in the other direction, and is not answered.
    """


class SilenceNotice(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 41):
    """These nodes owe the sender a sign of life: the receiver is to ask them for one too."""

    peers: list[Identifier]


class PeersDigest(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 42):
    """A checksum of the nodes that the sender can reach; a receiver with another one says which nodes it can reach.

    ``wants_answer`` if the sender is then to get the checksum of the receiver, and to do the same.
    """

    checksum: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
    wants_answer: bool


class LeaveNotice(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 23):
    """The sender is about to go, and will not be back under this identifier."""


class BlockRequest(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 26):
    """The sender has no identifiers left to give, and wants to take this block of them."""

    number: Number
    block: Number


class BlockResponse(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 27):
    """Whether the sender knew of nobody who has taken the block; on cubes and trees, nor a later one."""

    number: Number
    is_free: bool


class ContactList(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 13):
    """The contacts that the sender knows of."""

    contacts: list[Appointment]


MEMBERSHIP_CONTROLS: Final = (
    PlaceRequest,
    PlaceResponse,
    PeerAddresses,
    ContactList,
    KeepAlive,
    SilenceNotice,
    PeersDigest,
    LeaveNotice,
    BlockRequest,
    BlockResponse,
)
"""Those by which nodes find each other; each fabric has its own."""
