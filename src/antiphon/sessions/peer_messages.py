"""The messages by which nodes help each other's clients: to resume elsewhere, and to write exactly once."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from antiphon.membership.messages import FIRST_CONTROL, Control, Name

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Ranges = Annotated[list[Count], msgspec.Meta(min_length=1)]
"""The numbers of one author that have come: the highest, then the first and last of each gap."""

Entry = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""Part of a set of publications, as processes write them: all up to this one of its source, or a single one."""


class DedupRequest(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 14):
    """Which batches of a client has the receiver delivered on a topic?"""

    number: Count
    topic: Name
    client: Count


class DedupResponse(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 15):
    """The answer: the highest of the client's own numbers, then the first and last of each gap."""

    number: Count
    ranges: Ranges


class ReplayRequest(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 16):
    """Asks for the batches that the receiver has shown and that a client, subscribed for so long, has not seen.

    To be answered when the sender's publication with the number ``barrier`` has been delivered, and all that is in
    ``past``. With ``wants_batches`` the receiver sends them also if it was a member for a shorter time. A receiver that
    became a member after the barrier, which is at most ``barrier_age_us`` old, never delivers it.
    """

    number: Count
    topic: Name
    barrier: Count
    past: list[Entry]
    client: Count
    age_us: Annotated[int, msgspec.Meta(ge=-(1 << 62), lt=1 << 62)]
    seen: dict[Count, Ranges]
    wants_batches: bool = False
    barrier_age_us: Count = 0


class ReplayResponse(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 17):
    """The answer, if it is all that the client may lack: publisher, number, order and payload of each batch.

    Otherwise ``unseen`` names the batches by author and number. ``is_whole`` if the receiver has kept everything that
    it has shown and the client has not seen; ``member_us`` says for how long it is a member, and ``before`` which
    publications, by publisher and number, counted as past when it became one. Unless ``has_come``, the barrier or the
    past that the question names did not come in time.
    """

    number: Count
    is_complete: bool
    batches: list[tuple[Count, Count, Name, bytes]]
    is_whole: bool = False
    member_us: Count = 0
    unseen: list[tuple[Count, Count]] = msgspec.field(default_factory=list)
    before: dict[Count, Ranges] = msgspec.field(default_factory=dict)
    has_come: bool = True


class FrontierRequest(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 24):
    """Whose batches has the receiver seen on a topic? To be answered when it has delivered all that is in ``past``.

    And which of these ``authors`` does it have as clients that will not hand in again their batch of this number?
    """

    number: Count
    topic: Name
    past: list[Entry]
    authors: dict[Count, Count] = msgspec.field(default_factory=dict)


class FrontierResponse(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 25):
    """The answer, if it ``is_whole``: what has come, by author, all of which counts as past where ``past`` does.

    ``logged`` is what the log of an earlier life holds; None if the receiver has not returned with a log, or is no
    member. ``settled`` are the authors of which the question was asked that have nothing to hand in.
    """

    number: Count
    is_whole: bool
    past: list[Entry]
    seen: dict[Count, Ranges]
    logged: dict[Count, Ranges] | None = None
    settled: list[Count] = msgspec.field(default_factory=list)


class PeerProducerRequest(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 20):
    """How far has a writer come at the receiver: this lane, or all if none is named? To be answered from the disk.

    And of which of these topics is the receiver a member?
    """

    number: Count
    writer: Count
    lane: Count | None
    topics: list[Name]


class LaneState(msgspec.Struct, frozen=True, array_like=True):
    """How far a lane of a writer has come on a topic: the number of its last batch, and its digest."""

    topic: Name
    lane: Count
    number: Count
    digest: Count


class PeerProducerResponse(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 21):
    """The answer; ``has_log`` if what the receiver has delivered is on a disk."""

    number: Count
    lane_states: list[LaneState]
    member_of: list[Name]
    has_log: bool


SESSION_CONTROLS: Final = (
    DedupRequest,
    DedupResponse,
    ReplayRequest,
    ReplayResponse,
    FrontierRequest,
    FrontierResponse,
    PeerProducerRequest,
    PeerProducerResponse,
)
"""Those that nodes send to each other for their clients."""
