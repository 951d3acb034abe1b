"""What can go wrong between an application and a node, beside what every interface shares."""

from __future__ import annotations

from antiphon.kernel.errors import PeerError, UsageError


class WrongTypeError(UsageError, TypeError):
    """An argument has a type that cannot be used."""


class OverloadedError(PeerError):
    """More was published than could be sent, and the publisher did not wait."""


class SlowConsumerError(PeerError):
    """A subscription with the policy ``disconnect`` could not keep up."""


class ClosedError(PeerError):
    """The node or client has been closed, or has lost its connection."""


class JoinError(PeerError):
    """No place in the cluster was to be had."""
