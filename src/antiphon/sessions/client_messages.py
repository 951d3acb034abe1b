"""The messages between clients and nodes, after the client's ``Hello``."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from antiphon.membership.messages import FIRST_CONTROL, Control, Name
from antiphon.sessions.dedup import AUTHORS_AT_MOST, GAPS_AT_MOST
from antiphon.sessions.peer_messages import LaneState

FIRST_CLIENT_CONTROL: Final = FIRST_CONTROL + 50
Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]

LANES_AT_MOST: Final = 1 << 20
"""How many lanes a writer may have."""

AHEAD: Final = 16_384
"""How many messages of a subscription are on their way to a client, or wait in it, before it must have taken some."""

AHEAD_BYTES: Final = 16 << 20
"""The same in bytes."""


class LaneOf(msgspec.Struct, frozen=True, array_like=True):
    """The lane of a writer that a batch is of, and the digests with it and before it."""

    writer: Name
    lane: Annotated[int, msgspec.Meta(ge=0, lt=LANES_AT_MOST)]
    digest: Number
    previous: Number


class PublishRequest(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL):
    """A batch of a client. ``payload`` is that of a batch; its first sequence number is the client's own count.

    ``about`` are the numbers of the keys that all its messages are about. ``serial`` counts the client's batches on the
    topic from 1; a batch that is handed in again, at whatever node, has the same. ``lane`` is there if it is one of a
    writer. ``refusals`` counts the refusals of batches on the topic that the client has heard over this connection;
    earlier versions do not count them. A batch that is handed in again ``was_accepted`` if an earlier node has accepted
    it.
    """

    number: Number
    topic: Name
    order: Name
    payload: bytes
    about: Annotated[tuple[Number, ...], msgspec.Meta(max_length=1024)] = ()
    serial: Number = 0
    lane: LaneOf | None = None
    refusals: Number | None = None
    was_accepted: bool = False


class PublishResponse(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 1):
    """The batch with this number, or the reason why it was not taken.

    ``is_known`` if it had been published before: nothing had to be done, and it need not be kept. ``is_denied`` if the
    client has no right to publish there; ``kind`` names the error, if it is one that clients raise as the same.
    ``is_stale`` if the client had not heard of a refusal when it sent the batch: it is to hand the batch in again.
    """

    number: Number
    error: str = ""
    is_known: bool = False
    is_denied: bool = False
    kind: str = ""
    is_stale: bool = False


Ranges = Annotated[list[Number], msgspec.Meta(min_length=1, max_length=1 + 2 * GAPS_AT_MOST)]
SeenOnTopic = Annotated[dict[Number, Ranges], msgspec.Meta(max_length=AUTHORS_AT_MOST)]


class Resume(msgspec.Struct, frozen=True, array_like=True):
    """Of a subscription that was effective at another node: since when, and what was seen on each topic.

    The time is of the receiver's monotonic clock, and rather too early than too late. ``past`` are the publications, by
    publisher and number, that were shown to it or came before it. Earlier versions do not know them.
    """

    since_us: Annotated[int, msgspec.Meta(ge=-(1 << 62), lt=1 << 62)]
    seen: dict[Name, SeenOnTopic]
    past: dict[Name, SeenOnTopic] = msgspec.field(default_factory=dict)


class SubscribeRequest(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 2):
    """Subscribe under a number of the client's choice. ``start``: latest, earliest, an offset, or microseconds.

    With ``resume`` the subscription goes on where it ended at another node.
    """

    number: Number
    pattern: Name
    start: str | int
    is_time: bool
    policy: Name
    limit: Annotated[int, msgspec.Meta(ge=1, le=1 << 30)]
    resume: Resume | None = None


class SubscriptionReady(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 3):
    """The subscription is effective."""

    number: Number


class SubscriptionEnded(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 4):
    """Nothing more will come, for this reason; ``is_denied`` if the client has no right to it, ``kind`` as before."""

    number: Number
    error: str
    dropped: int
    is_denied: bool = False
    kind: str = ""


class Delivery(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 5):
    """A batch for a subscription: from ``from_offset`` on it is wanted.

    ``sequence`` is its number among the publications of its publisher.
    """

    number: Number
    topic: Name
    publisher: Number
    order: Name
    first_offset: Number
    from_offset: Number
    payload: bytes
    sequence: Number


class MessagesConsumed(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 6):
    """The client's application has taken so many messages of a subscription since the last word about it."""

    number: Number
    count: Number


class UnsubscribeRequest(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 7):
    """End a subscription."""

    number: Number


class StatusRequest(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 8):
    """How is this node? Only whoever may look into nodes is told; all are told where the others are."""

    number: Number
    wants_all: bool = True


class StatusResponse(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 9):
    """The answer: what ``/status`` says too, and what the node's monotonic clock shows; or why that is not told."""

    number: Number
    status: dict[str, Any]
    clock_us: Number
    denied: str = ""


class FollowRequest(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 10):
    """A client that comes from another node is about to publish on a topic: that is to follow what it has seen there.

    ``past`` is the last batch of each author that it has seen. ``publications`` are all publications, by publisher and
    number, that brought these batches or came before its subscriptions; none if it cannot say that of all batches.
    """

    number: Number
    topic: Name
    past: Annotated[dict[Number, Number], msgspec.Meta(max_length=AUTHORS_AT_MOST)]
    publications: SeenOnTopic = msgspec.field(default_factory=dict)


class FollowResponse(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 11):
    """The answer: from now on it does; or why not, and which error that is, if it is a particular one."""

    number: Number
    topic: Name
    error: str = ""
    is_denied: bool = False
    kind: Name = ""


class SafeUpTo(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 12):
    """The client's batches on a topic up to this one of its own numbers are not lost if this node is."""

    topic: Name
    serial: Number


class MessagesMissed(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 13):
    """Here messages of a topic may be missing in a subscription that was resumed."""

    number: Number
    topic: Name


class NodeAddresses(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 14):
    """Where the other nodes are. ``is_leaving`` if the client is to go to one of them, because this one goes."""

    addresses: list[Name]
    is_leaving: bool = False


class TopicStarted(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 15):
    """A subscription has begun with a topic, behind what the node had delivered before.

    ``seen`` names the batches of that by author and number, ``past`` the publications by publisher and number.
    """

    number: Number
    topic: Name
    seen: SeenOnTopic
    past: SeenOnTopic = msgspec.field(default_factory=dict)


class BatchesDropped(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 16):
    """Batches of a topic were dropped as the subscription's policy says, and how many messages of it were so far.

    A client must know which: at its next node they would be among what it has not seen, behind what follows them.
    """

    number: Number
    topic: Name
    count: Number
    batches: SeenOnTopic


class HeartbeatRequest(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 17):
    """The sender has heard nothing for a while; the process at the other end answers at once if it runs.

    A client sends one when it connects. A node sends heartbeats only to clients that did: others do not know them.
    """


class HeartbeatResponse(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 18):
    """The sender's process runs. A node that does not read from a client at the moment says so without a request."""


FIRST_LOG_CONTROL: Final = FIRST_CLIENT_CONTROL + 20


class LogsRequest(Control, frozen=True, array_like=True, tag=FIRST_LOG_CONTROL):
    """Which of these topics has the node's log, or, if none are named, which of all that the client may read?

    It is also asked which messages were the first to be appended at some times or later.
    """

    number: Number
    topics: Annotated[list[Name], msgspec.Meta(max_length=1 << 16)] | None = None
    times_us: tuple[Number, ...] = ()


class LogRange(msgspec.Struct, frozen=True, array_like=True):
    """The part of a topic that a log holds, as far as it is on disk: from the first offset to below the end.

    ``at_times`` are the first offsets at the times that were asked for, or the end.
    """

    topic: Name
    first: Number
    end: Number
    at_times: list[Number]


class LogsResponse(Control, frozen=True, array_like=True, tag=FIRST_LOG_CONTROL + 1):
    """The answer. ``log`` is the number that the log was given when it was made; 0 if the node keeps none.

    ``node`` is what the node is called in the cluster now, ``peers`` are the addresses of the others. If no topics were
    named, ``elsewhere`` are those that the node has heard of and does not hold.
    """

    number: Number
    log: Number
    node: int
    topics: list[LogRange]
    elsewhere: list[Name]
    peers: list[Name]
    error: str = ""
    is_denied: bool = False


class RangeRequest(Control, frozen=True, array_like=True, tag=FIRST_LOG_CONTROL + 2):
    """The stored batches of a topic from the one that holds ``offset`` to below ``end``, up to so many bytes.

    ``log`` is the one that is meant. Batches that were published outside of the times are left out.
    """

    number: Number
    log: Number
    topic: Name
    offset: Number
    end: Number
    most_bytes: Annotated[int, msgspec.Meta(ge=1, le=1 << 22)]
    since_us: Number = 0
    until_us: Number | None = None


StoredBatch = tuple[Number, Number, bytes]
"""The offset of its first message, how many it has, and the publication as the node has recorded it."""


class RangeResponse(Control, frozen=True, array_like=True, tag=FIRST_LOG_CONTROL + 3):
    """The answer: some batches, at least one if there is one; ``next_offset`` is where to go on.

    If ``offset`` has been removed, ``removed_below`` is the first that is still there.
    """

    number: Number
    next_offset: Number
    batches: list[StoredBatch]
    removed_below: Number = 0
    error: str = ""
    is_denied: bool = False


class MarksRequest(Control, frozen=True, array_like=True, tag=FIRST_LOG_CONTROL + 4):
    """Whose messages with which numbers has a topic from one offset to below another? Some of them will do."""

    number: Number
    log: Number
    topic: Name
    offset: Number
    end: Number


class MarksResponse(Control, frozen=True, array_like=True, tag=FIRST_LOG_CONTROL + 5):
    """The answer: publishers, first and last sequence numbers, up to ``next_offset``; or why not."""

    number: Number
    next_offset: Number
    marks: list[tuple[Number, Number, Number]]
    error: str = ""
    is_denied: bool = False


LOG_REQUESTS: Final = (LogsRequest, RangeRequest, MarksRequest)
LOG_RESPONSES: Final = (LogsResponse, RangeResponse, MarksResponse)


class ProducerRequest(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 30):
    """How far has a writer come, one lane of it or all, at all nodes; and who is a member of these topics?"""

    number: Number
    writer: Name
    lane: Number | None
    topics: Annotated[list[Name], msgspec.Meta(max_length=1024)]


class NodeProducerState(msgspec.Struct, frozen=True, array_like=True):
    """The answer of one node, after everything that it has delivered is on its disk, if it has one."""

    lane_states: list[LaneState]
    member_of: list[Name]
    has_log: bool


class ProducerResponse(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 31):
    """The answer: what each node says, first the one that was asked."""

    number: Number
    nodes: list[NodeProducerState]


class DismissRequest(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 32):
    """An operator says that brokers of a tree are gone for good."""

    number: Number
    brokers: Annotated[list[Number], msgspec.Meta(min_length=1, max_length=1024)]


class DismissResponse(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 33):
    """The answer: the tree has been told; or why not."""

    number: Number
    error: str = ""
    is_denied: bool = False


class StreamRequest(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 40):
    """A client asks something about streams (:mod:`antiphon.streams.requests`)."""

    number: Number
    payload: bytes


class StreamResponse(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 41):
    """An answer; a request that attaches a member of a consumer has many."""

    number: Number
    payload: bytes


CLIENT_CONTROLS: Final = (
    PublishRequest, PublishResponse, SubscribeRequest, SubscriptionReady, SubscriptionEnded, Delivery,
    MessagesConsumed, UnsubscribeRequest, StatusRequest, StatusResponse, FollowRequest, FollowResponse, SafeUpTo,
    MessagesMissed, NodeAddresses, TopicStarted, BatchesDropped, HeartbeatRequest, HeartbeatResponse, *LOG_REQUESTS,
    *LOG_RESPONSES, ProducerRequest, ProducerResponse, DismissRequest, DismissResponse, StreamRequest, StreamResponse,
)  # fmt: skip
