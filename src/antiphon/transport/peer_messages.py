"""What hosts say to each other, beside the messages of their processes."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from antiphon.transport.schema import EXPELLED_TAG, FIRST_CONTROL, KEEP_ALIVE_TAG

PROTOCOL_VERSION: Final = 8
"""Raised whenever a frame changes its meaning; nodes and clients of different versions refuse each other."""

MAXIMUM_IDENTIFIER: Final = (1 << 22) - 1
"""The greatest identifier that fits below the sequence number in the key of a publication."""

Name = Annotated[str, msgspec.Meta(max_length=255)]
Identifier = Annotated[int, msgspec.Meta(ge=0, le=MAXIMUM_IDENTIFIER)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Number = Annotated[int, msgspec.Meta(ge=0, le=1 << 22)]
Entry = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""Part of a set of publications, as processes write them: all up to this one of its source, or a single one."""


class Peer(msgspec.Struct, frozen=True, array_like=True):
    """One life of a node: ``instance`` is drawn anew for each, ``address`` is where it listens.

    ``identifier`` is its place; None as long as it has none.
    """

    instance: Name
    address: Name
    identifier: Identifier | None = None


class Control(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A message of hosts."""


class Hello(Control, frozen=True, array_like=True, tag=FIRST_CONTROL):
    """The first frame of a connection, from the one who opened it.

    ``target`` is the instance that is meant, or nothing if whoever listens will do. A client has no address, and may
    have a token that says who it is. A broker that is in its tree says its permanent identifier, and which of its
    incarnations it is.
    """

    version: int
    cluster: Name
    instance: Name
    address: Name
    target: Name = ""
    token: Name = ""
    identifier: Annotated[int, msgspec.Meta(ge=-1, le=MAXIMUM_IDENTIFIER)] = -1
    incarnation: Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)] = 0

    def __repr__(self) -> str:
        # The token is nobody's business.
        return f"Hello({self.version}, {self.cluster!r}, {self.instance!r}, {self.address!r}, {self.target!r})"


class Refused(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 1):
    """The connection cannot be used; it is closed after this. ``is_denied`` if the other end has no right to it."""

    reason: Annotated[str, msgspec.Meta(max_length=1023)]
    is_denied: bool = False


class TopicAnnouncement(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 3):
    """The sender publishes, or is about to publish, on these topics.

    ``wants_answer`` if it waits until subscriptions by pattern of the receiver are effective.
    """

    topics: list[Name]
    wants_answer: bool


class TopicAnnouncementAck(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 4):
    """The answer: whoever here subscribes to this topic by a pattern will get what comes."""

    topic: Name


class CreditRequest(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 5):
    """The publisher of what follows on this topic waits for acknowledgements: they are not to wait for company."""

    topic: Count


class Expelled(Control, frozen=True, array_like=True, tag=EXPELLED_TAG):
    """The receiver counts as failed: it will not be heard any more, and is to stop."""

    reason: Annotated[str, msgspec.Meta(max_length=1023)]


class DedupRequest(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 14):
    """Which batches of a client has the receiver delivered on a topic?"""

    number: Count
    topic: Name
    client: Count


class DedupResponse(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 15):
    """The answer: the highest of the client's own numbers, then the first and last of each gap."""

    number: Count
    ranges: Annotated[list[Count], msgspec.Meta(min_length=1)]


class ReplayRequest(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 16):
    """What has the receiver shown on a topic that a client has not seen, which was subscribed for so long?

    To be answered when the sender's publication with the number ``barrier`` has been delivered, and all that is in
    ``past``. With ``wants_batches`` the receiver sends them also if it was a member for a shorter time.
    """

    number: Count
    topic: Name
    barrier: Count
    past: list[Entry]
    client: Count
    age_us: Annotated[int, msgspec.Meta(ge=-(1 << 62), lt=1 << 62)]
    seen: dict[Count, list[Count]]
    wants_batches: bool = False


class ReplayResponse(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 17):
    """The answer, if it is all that the client may lack: publisher, number, order and payload of each batch.

    Otherwise ``unseen`` names the batches by author and number. ``is_whole`` if the receiver has kept everything that
    it has shown and the client has not seen; ``member_us`` says for how long it is a member.
    """

    number: Count
    is_complete: bool
    batches: list[tuple[Count, Count, Name, bytes]]
    is_whole: bool = False
    member_us: Count = 0
    unseen: list[tuple[Count, Count]] = []


class FrontierRequest(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 24):
    """Whose batches has the receiver seen on a topic? To be answered when it has delivered all that is in ``past``."""

    number: Count
    topic: Name
    past: list[Entry]


class FrontierResponse(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 25):
    """The answer, if it ``is_whole``: what has come, by author, all of which counts as past where ``past`` does."""

    number: Count
    is_whole: bool
    past: list[Entry]
    seen: dict[Count, list[Count]]


class PeerProducerRequest(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 20):
    """How far has a writer come at the receiver: this lane, or all if none is named? To be answered from the disk.

    And of which of these topics is the receiver a member?
    """

    number: Count
    writer: Count
    lane: Count | None
    topics: list[Name]


class LaneState(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """How far a lane of a writer has come on a topic: the number of its last batch, and its digest."""

    topic: Name
    lane: Count
    number: Count
    digest: Count


class PeerProducerResponse(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 21):
    """The answer; ``has_log`` if what the receiver has delivered is on a disk."""

    number: Count
    standings: list[LaneState]
    member_of: list[Name]
    has_log: bool


class PlaceRequest(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 10):
    """A newcomer to a fabric asks for an identifier; who has none to give hands the question on, so often at most."""

    newcomer: Peer
    hops: Annotated[int, msgspec.Meta(ge=0, le=64)]
    fabric: Name


class Appointment(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
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
    """Who these are and where they live: said of the sender first, and of everybody before it is first spoken of."""

    peers: list[Peer]


class KeepAlive(Control, frozen=True, array_like=True, tag=KEEP_ALIVE_TAG):
    """The sender's process goes on; the other end says the same on this connection, at once, if its process does too.

    The answer is the same frame in the other direction, and is not answered.
    """


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


PEER_CONTROLS: Final = (
    Hello,
    Refused,
    TopicAnnouncement,
    TopicAnnouncementAck,
    CreditRequest,
    Expelled,
    PlaceRequest,
    PlaceResponse,
    PeerAddresses,
    ContactList,
    DedupRequest,
    DedupResponse,
    ReplayRequest,
    ReplayResponse,
    FrontierRequest,
    FrontierResponse,
    PeerProducerRequest,
    PeerProducerResponse,
    KeepAlive,
    LeaveNotice,
    BlockRequest,
    BlockResponse,
)
MEMBERSHIP_CONTROLS: Final = (
    PlaceRequest,
    PlaceResponse,
    PeerAddresses,
    ContactList,
    KeepAlive,
    LeaveNotice,
    BlockRequest,
    BlockResponse,
)
"""Those by which nodes find each other; each fabric has its own."""
