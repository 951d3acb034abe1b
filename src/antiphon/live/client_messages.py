"""What clients and nodes say to each other, after the client's ``Hello``."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from antiphon.live.controls import Control, Name
from antiphon.live.wire import FIRST_CONTROL

FIRST_CLIENT_CONTROL: Final = FIRST_CONTROL + 50
Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class Publish(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL):
    """A batch of a client. ``payload`` is that of a batch; its first sequence number is the client's own count.

    ``about`` are the numbers of the keys that all its messages are about.
    """

    number: Number
    topic: Name
    order: Name
    payload: bytes
    about: Annotated[tuple[Number, ...], msgspec.Meta(max_length=1024)] = ()


class Accepted(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 1):
    """The batch with this number, or the reason why it was not taken."""

    number: Number
    error: str = ""


class SubscribeTo(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 2):
    """Subscribe under a number of the client's choice. ``start``: latest, earliest, an offset, or microseconds."""

    number: Number
    pattern: Name
    start: str | int
    is_time: bool
    policy: Name
    limit: Annotated[int, msgspec.Meta(ge=1, le=1 << 30)]


class SubscriptionReady(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 3):
    """The subscription is effective."""

    number: Number


class SubscriptionEnded(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 4):
    """Nothing more will come, for this reason."""

    number: Number
    error: str
    dropped: int


class Delivery(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 5):
    """A batch for a subscription: from ``from_offset`` on it is wanted."""

    number: Number
    topic: Name
    publisher: Number
    order: Name
    first_offset: Number
    from_offset: Number
    payload: bytes


class Taken(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 6):
    """The client's application has taken so many messages of a subscription since the last word about it."""

    number: Number
    count: Number


class Unsubscribe(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 7):
    """End a subscription."""

    number: Number


class AskStatus(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 8):
    """How is this node?"""

    number: Number


class StatusIs(Control, frozen=True, array_like=True, tag=FIRST_CLIENT_CONTROL + 9):
    """The answer: what ``/status`` says too."""

    number: Number
    status: dict[str, Any]


CLIENT_CONTROLS: Final = (
    Publish, Accepted, SubscribeTo, SubscriptionReady, SubscriptionEnded, Delivery, Taken, Unsubscribe, AskStatus,
    StatusIs,
)  # fmt: skip
