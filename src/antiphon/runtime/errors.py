"""Errors between an application and a node, beside those that every interface shares."""

from __future__ import annotations

from typing import Final

from antiphon.kernel.errors import DeniedError, NoMajorityError, PeerError, RemovedError, UsageError


class WrongTypeError(UsageError, TypeError):
    """An argument has a type that cannot be used."""


class OverloadedError(PeerError):
    """More was published than could be sent, and the publisher did not wait."""


class QuotaError(PeerError):
    """The client's identity has used up one of its quotas at a node; the text names the quota."""


class LostTurnError(PeerError):
    """The acknowledgement of a message came too late: its consumer has handed the message to another member."""


class NobodyServesError(PeerError):
    """No program answers the requests on a topic."""


class NoReplyError(PeerError):
    """A request had no reply in time; it may still be worked on."""


class RequestFailedError(PeerError):
    """The program that was asked says that it cannot answer; the text has its reason."""


class SlowConsumerError(PeerError):
    """A subscription with the policy ``disconnect`` could not keep up."""


KINDS: Final = {
    kind.__name__: kind for kind in (OverloadedError, NoMajorityError, QuotaError, RemovedError, SlowConsumerError)
}
"""Errors of a node that its clients raise as the same; the others reach them as :class:`PeerError`."""


def kind_of(error: BaseException | None) -> str:
    """The name of an error, as a node sends it to a client; empty if clients do not distinguish it."""
    name = type(error).__name__
    return name if name in KINDS else ""


def error_from(reason: str, is_denied: bool, kind: str = "") -> PeerError:
    """The error that a client raises when its node has refused something."""
    return DeniedError(reason) if is_denied else KINDS.get(kind, PeerError)(reason)


class MissedMessagesError(PeerError):
    """Messages of a topic may be missing at this place: no node has kept them.

    That happens to a client that has changed its node, to all subscribers of a node that was away for too long, and
    where total order by gossip has a hole.
    """

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"messages on {topic!r} may be missing here: this node, or the one that this client came from, was away "
            "for a while, and nobody has kept all that was published; bring your state up to date, then iterate again "
            "to go on"
        )
        self.topic = topic


class ClosedError(PeerError):
    """The node or client has been closed, or has lost its connection."""


class JoinError(PeerError):
    """The node got no place in the cluster."""
