"""The requests of clients about streams, and the answers: data descriptions, carried by two kinds of frames.

A request goes to any node. A node that cannot answer says which nodes to ask instead (:class:`Redirect`).
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from antiphon.streams.commands import ConsumerSettings
from antiphon.streams.retention import Bounds

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
Positions = Annotated[list[Count], msgspec.Meta(max_length=65536)]

LATEST: Final = -1
"""In the place of a position: behind the last message that is settled."""

EARLIEST: Final = -2
"""In the place of a position: the first one that is kept."""

Start = Annotated[int, msgspec.Meta(ge=-2, lt=1 << 62)]

REPLACE_US: Final = 600_000_000
"""Unless a policy says otherwise, a replica that is away for so long is replaced by another node."""


class Policy(msgspec.Struct, frozen=True, array_like=True):
    """How a topic's history is kept."""

    replicas: Annotated[int, msgspec.Meta(ge=1, le=7)] = 3
    retention_bytes: Count = 0
    """The newest messages are kept up to so many bytes; 0: no bound."""
    retention_us: Count = 0
    """Messages are kept for so long; 0: no bound."""
    hold: Annotated[float, msgspec.Meta(ge=1.0, le=1000.0)] = 2.0
    """Messages that a named consumer has not done are kept up to so many times the bounds."""
    replace_us: Annotated[int, msgspec.Meta(ge=1_000_000, lt=1 << 62)] = REPLACE_US
    """After how long a replica that is away is replaced by another node."""
    compact: bool = False
    """Whether the newest message of each key is kept beyond the bounds."""

    @property
    def bounds(self) -> Bounds:
        """How much is kept."""
        return Bounds(self.retention_bytes, self.retention_us, self.hold, self.compact)


class StreamInfo(msgspec.Struct, frozen=True, array_like=True):
    """A topic with a history: its number, which is never used again, its policy, and its first replicas.

    ``assigned`` are the nodes that are to keep it now, if others than the first ones.
    """

    number: Count
    name: Name
    policy: Policy
    voters: list[Count]
    assigned: list[Count] = []
    owner: str = ""
    """The identity that has begun its history."""
    changed: Count = 0
    """The number of the entry of the directory that changed this last: several nodes tell of it, some of them late."""

    @property
    def keepers(self) -> list[int]:
        """The nodes that are to keep it now."""
        return self.assigned or self.voters


class CreateTopic(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Keep the history of a topic."""

    name: Name
    policy: Policy


class RemoveTopic(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Remove the history of a topic."""

    name: Name


class ListTopics(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Which topics have a history?"""


class DescribeTopic(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """How is a topic's history kept, and how far is it; and its consumers?"""

    topic: Name


class AttachConsumer(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Hand messages of a consumer to this client, which is one of its members; make the consumer if there is none."""

    topic: Name
    consumer: Name
    settings: ConsumerSettings
    start: Start
    member: Count
    held: Annotated[list[tuple[Count, Count]], msgspec.Meta(max_length=65536)]
    window: Annotated[int, msgspec.Meta(ge=0, le=65536)]
    generation: Count = 0
    start_us: Count = 0
    """Begin at a time of day instead; 0: at ``start``."""


class AckMessages(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """These messages are done."""

    topic: Name
    consumer: Name
    member: Count
    positions: Positions


class ReturnMessage(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Hand a message out again, after a while."""

    topic: Name
    consumer: Name
    member: Count
    position: Count
    delay_us: Count


class ExtendLease(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """This member works on a message for longer."""

    topic: Name
    consumer: Name
    member: Count
    position: Count


class SetWindow(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """This member takes another number of messages at a time."""

    topic: Name
    consumer: Name
    member: Count
    window: Annotated[int, msgspec.Meta(ge=0, le=65536)]


class DetachConsumer(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """This member takes nothing more."""

    topic: Name
    consumer: Name
    member: Count


class RemoveConsumerRequest(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Forget a consumer, and which messages are done for it."""

    topic: Name
    consumer: Name


class ReadHistory(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """The messages from a position on; if there are none yet, wait for them for a while.

    ``generation`` says of which history the position is; 0: of any.
    """

    topic: Name
    position: Start
    most_bytes: Count
    wait_us: Count
    generation: Count = 0
    start_us: Count = 0
    """Begin at a time of day instead; 0: at ``position``."""


MESSAGES_AWAITED: Final = 65_536
"""The positions of so many messages may be asked for at one time."""


class AwaitPosition(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Which positions have messages, named by their author and the author's numbers from one on; answered when all of
    them are settled.
    """

    topic: Name
    author: Count
    sequence: Count
    all_us: Count = 0
    """Wait for so long until all replicas have them; 0: a majority is enough."""
    count: Annotated[int, msgspec.Meta(ge=1, le=MESSAGES_AWAITED)] = 1
    """How many messages."""


class SetPolicy(msgspec.Struct, frozen=True, array_like=True, tag=40):
    """Keep the history of a topic differently from now on."""

    name: Name
    policy: Policy


class FoundDirectory(msgspec.Struct, frozen=True, array_like=True, tag=41):
    """Begin the list of topics with a history at the node that is asked."""


class ResetConsumerRequest(msgspec.Struct, frozen=True, array_like=True, tag=42):
    """Let a consumer without members begin anew."""

    topic: Name
    consumer: Name
    start: Start
    generation: Count = 0
    start_us: Count = 0


Request = (
    CreateTopic
    | RemoveTopic
    | ListTopics
    | DescribeTopic
    | AttachConsumer
    | AckMessages
    | ReturnMessage
    | ExtendLease
    | SetWindow
    | DetachConsumer
    | RemoveConsumerRequest
    | ReadHistory
    | AwaitPosition
    | SetPolicy
    | FoundDirectory
    | ResetConsumerRequest
)


class Redirect(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Ask one of these nodes instead; none if nobody can answer now: then ask again after a while.

    If all nodes say that they keep no streams, there are none.
    """

    addresses: list[str]
    reason: str
    keeps_none: bool = False


class StreamFailure(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """It cannot be done."""

    error: str
    is_denied: bool = False
    kind: str = ""


class Done(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """It is done; or, of an acknowledgement, it does not count."""

    counts: bool = True


class ConsumerInfo(msgspec.Struct, frozen=True, array_like=True):
    """How far a consumer has come."""

    name: str
    mode: str
    done_below: int
    lag: int
    handed_out: int
    members: int
    missed: int = 0
    """How many messages retention has removed before they were done."""
    redelivered: int = 0
    """How often messages came back, all in all."""
    returned: int = 0
    """How many messages have come back and are not done."""
    ack_us: int = 0
    max_deliveries: int = 0
    is_ephemeral: bool = False


class TopicInfo(msgspec.Struct, frozen=True, array_like=True):
    """A topic with a history, as the leader sees it; ``end`` is -1 at a node that does not lead."""

    name: str
    replicas: int
    generation: int
    end: int = -1
    connected: int = -1
    consumers: list[ConsumerInfo] = []
    policy: Policy = Policy()
    earliest: int = -1
    """The first position that is kept."""
    bytes: int = -1


class TopicList(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Topics with a history."""

    topics: list[TopicInfo]


class BatchContent(msgspec.Struct, frozen=True, array_like=True):
    """The messages of a publication, and the position of its first one."""

    position: int
    publisher: int
    sequence: int
    order: str
    payload: bytes


class Handed(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Messages for a member: places in a batch, each with the number of its delivery."""

    batch: BatchContent
    places: list[tuple[int, int]]
    generation: int = 0


class HistoryPiece(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """A piece of the history; the next one begins at ``next_position``."""

    batches: list[BatchContent]
    next_position: int
    generation: int = 0
    is_compacted: bool = False
    """Whether positions between the batches were removed, and not missed."""


class PositionFound(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Messages have positions, and are on so many disks. ``position`` is that of the first one."""

    generation: int
    position: int
    disks: int
    jumps: list[Count] = []
    """Messages whose positions do not follow those before them: by turns the place among those that were asked for,
    from 1 on, and the position."""

    def position_of(self, place: int) -> int:
        """The position of a message, by its place among those that were asked for."""
        first, position = 0, self.position
        for number in range(0, len(self.jumps), 2):
            if self.jumps[number] > place:
                break
            first, position = self.jumps[number], self.jumps[number + 1]
        return position + place - first


class MissedMessages(msgspec.Struct, frozen=True, array_like=True, tag=40):
    """So many messages were removed before they were done, since there is the consumer."""

    total: int


Response = Redirect | StreamFailure | Done | TopicList | Handed | HistoryPiece | PositionFound | MissedMessages

_REQUESTS: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder(Request)
_RESPONSES: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder(Response)


def encode(message: Request | Response) -> bytes:
    """A request or an answer as bytes."""
    return msgspec.msgpack.encode(message)


def decode_request(payload: bytes) -> Request:
    """The request in some bytes."""
    found: Request = _REQUESTS.decode(payload)
    return found


def decode_response(payload: bytes) -> Response:
    """The answer in some bytes."""
    found: Response = _RESPONSES.decode(payload)
    return found
