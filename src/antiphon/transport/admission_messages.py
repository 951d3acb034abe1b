"""The messages by which nodes join a cluster and leave it.

They are data descriptions, so that a host can encode and check them without code of its own: arrays with a tag, decoded
as one union (``AdmissionMessage``). Every message names its sender, because a newcomer has no identifier to be known
by. What they are for is told in :mod:`antiphon.membership.admission`.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

MAXIMUM_IDENTIFIER = (1 << 22) - 1
"""The greatest identifier that fits below the sequence number in the key of a publication."""
NONE_YET = -1
"""Where a highest identifier is asked for and none was ever given."""

Identifier = Annotated[int, Meta(ge=0, le=MAXIMUM_IDENTIFIER)]
Highest = Annotated[int, Meta(ge=NONE_YET, le=MAXIMUM_IDENTIFIER)]
Name = Annotated[str, Meta(max_length=255)]


class Peer(Struct, frozen=True, array_like=True):
    """One life of a node: ``instance`` is drawn anew for each, ``address`` is where it listens.

    ``identifier`` is its place, or the place that it claims; None as long as it has none. Somebody of whom only the
    address is known has an empty instance.
    """

    instance: Name
    address: Name
    identifier: Identifier | None = None

    def __str__(self) -> str:
        place = "newcomer" if self.identifier is None else f"node {self.identifier}"
        return f"{place} at {self.address}"


class Listed(Struct, frozen=True, array_like=True):
    """A peer as another knows it: before ``has_entered`` it does not belong to the cluster and only claims a place."""

    peer: Peer
    has_entered: bool


class AdmissionStruct(Struct, frozen=True, array_like=True):
    """What all messages of admission have in common."""

    sender: Peer


class JoinRequest(AdmissionStruct, frozen=True, array_like=True, tag=1):
    """A newcomer asks for a place above ``highest``, or for its former place ``wanted``, held under ``former``."""

    highest: Highest
    wanted: Identifier | None = None
    former: Name = ""


class Redirect(AdmissionStruct, frozen=True, array_like=True, tag=2):
    """Ask the registrar instead."""

    registrar: Peer


class Wait(AdmissionStruct, frozen=True, array_like=True, tag=3):
    """Ask again later, here or elsewhere: the sender has no place itself, or is about to leave."""


class Grant(AdmissionStruct, frozen=True, array_like=True, tag=4):
    """The registrar offers a place and names all whom it knows."""

    identifier: Identifier
    peers: tuple[Listed, ...]


class Full(AdmissionStruct, frozen=True, array_like=True, tag=5):
    """There is no room for the newcomer."""

    reason: Annotated[str, Meta(max_length=1023)]


class Announce(AdmissionStruct, frozen=True, array_like=True, tag=6):
    """The sender claims the identifier that it names. ``known``: whom it knows to have entered, by instance."""

    known: tuple[Name, ...]
    former: Name = ""


class Accept(AdmissionStruct, frozen=True, array_like=True, tag=7):
    """Nobody else holds the claimed identifier here. ``peers`` are those whom the newcomer may not know."""

    claimed: Identifier
    has_entered: bool
    highest: Highest
    peers: tuple[Listed, ...]


class Reject(AdmissionStruct, frozen=True, array_like=True, tag=8):
    """Somebody else holds or held the claimed identifier."""

    claimed: Identifier
    highest: Highest


class Withdraw(AdmissionStruct, frozen=True, array_like=True, tag=9):
    """The sender gives up the identifier that it claimed."""


class EnterRequest(AdmissionStruct, frozen=True, array_like=True, tag=10):
    """Everybody has accepted the sender's claim: it belongs to the cluster."""


class EnterResponse(AdmissionStruct, frozen=True, array_like=True, tag=11):
    """The sender counts the newcomer as one of the cluster."""


class LeaveRequest(AdmissionStruct, frozen=True, array_like=True, tag=12):
    """The sender is about to leave: no new work for it."""


class LeaveResponse(AdmissionStruct, frozen=True, array_like=True, tag=13):
    """The sender will not ask the leaver for anything new."""


AdmissionMessage = (
    JoinRequest
    | Redirect
    | Wait
    | Grant
    | Full
    | Announce
    | Accept
    | Reject
    | Withdraw
    | EnterRequest
    | EnterResponse
    | LeaveRequest
    | LeaveResponse
)
