"""Messages between hosts about topics and clients; for the rest see :mod:`antiphon.membership.messages`."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from antiphon.membership.messages import (
    FIRST_CONTROL,
    BlockRequest,
    BlockResponse,
    ContactList,
    Control,
    Expelled,
    Hello,
    KeepAlive,
    LeaveNotice,
    Name,
    PeerAddresses,
    PeersDigest,
    PlaceRequest,
    PlaceResponse,
    Refused,
    SilenceNotice,
)
from antiphon.sessions.peer_messages import SESSION_CONTROLS

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class TopicAnnouncement(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 3):
    """The sender publishes, or is about to publish, on these topics.

    ``wants_answer`` if it waits until subscriptions by pattern of the receiver are effective.
    """

    topics: list[Name]
    wants_answer: bool


class StreamFrame(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 28):
    """A message of a replica of a stream to another one, or of a node about the streams that it keeps."""

    is_replica: bool
    payload: Annotated[bytes, msgspec.Meta(max_length=64 << 20)]


class TopicAnnouncementAck(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 4):
    """The answer: whoever here subscribes to this topic by a pattern will get what comes."""

    topic: Name


class CreditRequest(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 5):
    """The publisher of what follows on this topic waits for acknowledgements: they are not to wait for company."""

    topic: Count


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
    KeepAlive,
    SilenceNotice,
    PeersDigest,
    LeaveNotice,
    BlockRequest,
    BlockResponse,
    *SESSION_CONTROLS,
    StreamFrame,
)
