"""The two families of errors: you misused an interface, or somebody else did something wrong.

Every message says what was wrong and what to do about it. Low-level exceptions (of sockets, files, decoders)
are translated into one of these families at the edge where they enter, never further inside.
"""

from __future__ import annotations


class AntiphonError(Exception):
    """Base of everything that Antiphon raises on purpose."""


class UsageError(AntiphonError):
    """The caller misused an interface; calling again in the same way will fail in the same way."""


class ScenarioError(UsageError):
    """A scenario file says something that cannot be run; the message names the line or key."""


class PeerError(AntiphonError):
    """A peer, the network or the disk did something wrong; the caller is not to blame."""


class ProtocolError(PeerError):
    """A peer sent a message that no correct peer sends."""


class NoMajorityError(PeerError):
    """A node that is cut off from a majority of the nodes cannot order totally."""


class DeniedError(PeerError):
    """The node knows no such client, or the client has no right to what it asked for."""


class RemovedError(PeerError):
    """Retention has removed the position at which somebody wanted to read; the text names the earliest one."""
