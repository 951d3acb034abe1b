"""The messages by which nodes of a cube agree on total order (:mod:`antiphon.fabrics.cube.total_order.ordering`).

``source`` and ``sequence`` are those of the total publication that is to come, unless something else is said.
"""

from __future__ import annotations

from typing import Any, Final

from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.message import ProtocolMessage


@mypyc_attr(acyclic=True)
class LockManagerMessage(ProtocolMessage):
    """A request of a publisher to the lock manager of an ``epoch``; any other lock manager ignores it."""

    def __init__(self, source: i64, sequence: i64, topic: i64, epoch: i64) -> None:
        super().__init__(source, sequence, topic)
        self.epoch: Final[i64] = epoch


@mypyc_attr(acyclic=True)
class GrantRequest(LockManagerMessage):
    """The source wants to publish about some keys."""

    def __init__(self, source: i64, sequence: i64, topic: i64, epoch: i64, keys: vec[i64]) -> None:
        super().__init__(source, sequence, topic, epoch)
        self.keys: Final[vec[i64]] = keys

    def entries_carried(self) -> i64:
        return len(self.keys)


@mypyc_attr(acyclic=True)
class GrantRelease(LockManagerMessage):
    """The publication has started."""


@mypyc_attr(acyclic=True)
class GrantResponse(ProtocolMessage):
    """From the lock manager of an epoch: nobody else is about to; grants are counted by ``place``.

    It answers what the claimant has said in its ``attempt``, and does not count in a later one.
    """

    def __init__(self, source: i64, sequence: i64, topic: i64, epoch: i64, place: i64, attempt: i64) -> None:
        super().__init__(source, sequence, topic)
        self.epoch: Final[i64] = epoch
        self.place: Final[i64] = place
        self.attempt: Final[i64] = attempt


@mypyc_attr(acyclic=True)
class KeyLockRequest(ProtocolMessage):
    """Down the tree of the source: begin nothing more about these keys until the publication was delivered.

    ``attempt`` counts how often the source has taken back its locks.
    """

    def __init__(self, source: i64, sequence: i64, topic: i64, keys: vec[i64], place: i64, attempt: i64) -> None:
        super().__init__(source, sequence, topic)
        self.keys: Final[vec[i64]] = keys
        self.place: Final[i64] = place
        self.attempt: Final[i64] = attempt

    def entries_carried(self) -> i64:
        return len(self.keys)


@mypyc_attr(acyclic=True)
class KeyLockResponse(ProtocolMessage):
    """Back up: the whole subtree of the sender is closed; ``entries`` are the last publications of its members.

    ``place`` is that of the lock, which may have been given anew.
    """

    def __init__(self, source: i64, sequence: i64, topic: i64, place: i64, entries: vec[i64]) -> None:
        super().__init__(source, sequence, topic)
        self.place: Final[i64] = place
        self.entries: Final[vec[i64]] = entries

    def entries_carried(self) -> i64:
        return len(self.entries)


@mypyc_attr(acyclic=True)
class Unlock(ProtocolMessage):
    """From the source of locks: it has none for this topic of an attempt before ``sequence``, or only what follows.

    Up to ``number`` its publications have begun. Their locks stay until they come, which may be later than this.
    """

    def __init__(self, source: i64, sequence: i64, topic: i64, number: i64) -> None:
        super().__init__(source, sequence, topic)
        self.number: Final[i64] = number


@mypyc_attr(acyclic=True)
class LockManagerNotice(ProtocolMessage):
    """The lock manager of the epoch ``sequence`` is ``origin``. Its predecessor tells it, and it tells everybody.

    ``voters`` are those of whom a majority is needed, where nodes may fail; ``version`` counts how often they changed.
    ``proposed`` are those that are to follow them as version ``proposal``, which is 0 if none are.
    """

    def __init__(
        self,
        source: i64,
        sequence: i64,
        origin: i64,
        version: i64,
        voters: vec[i64],
        proposal: i64,
        proposed: vec[i64],
    ) -> None:
        super().__init__(source, sequence)
        self.origin: Final[i64] = origin
        self.version: Final[i64] = version
        self.voters: Final[vec[i64]] = voters
        self.proposal: Final[i64] = proposal
        self.proposed: Final[vec[i64]] = proposed

    def entries_carried(self) -> i64:
        return len(self.voters) + len(self.proposed)


@mypyc_attr(acyclic=True)
class VoterChange(ProtocolMessage):
    """From the lock manager of the epoch ``sequence``: a proposal that these become voters, and those do not count.

    It changes the version ``before``, and is of no use to a node that has another one.
    """

    def __init__(
        self, source: i64, sequence: i64, before: i64, version: i64, added: vec[i64], removed: vec[i64]
    ) -> None:
        super().__init__(source, sequence)
        self.before: Final[i64] = before
        self.version: Final[i64] = version
        self.added: Final[vec[i64]] = added
        self.removed: Final[vec[i64]] = removed

    def entries_carried(self) -> i64:
        return len(self.added) + len(self.removed)


@mypyc_attr(acyclic=True)
class VoterChangeResponse(ProtocolMessage):
    """To the lock manager of the epoch ``sequence``: its proposal ``version`` is on the disk of the source."""

    def __init__(self, source: i64, sequence: i64, version: i64) -> None:
        super().__init__(source, sequence)
        self.version: Final[i64] = version


@mypyc_attr(acyclic=True)
class VoterAgreement(ProtocolMessage):
    """From the lock manager of the epoch ``sequence``: majorities agreed on its proposal ``version``."""

    def __init__(self, source: i64, sequence: i64, version: i64) -> None:
        super().__init__(source, sequence)
        self.version: Final[i64] = version


@mypyc_attr(acyclic=True)
class VoterNotice(ProtocolMessage):
    """The source is the voter ``origin``, in its incarnation ``sequence``; also what it writes down for its next life.

    A voter has the identifier of its first life; whatever was said by an earlier life does not count any more.
    """

    def __init__(self, source: i64, sequence: i64, origin: i64) -> None:
        super().__init__(source, sequence)
        self.origin: Final[i64] = origin


@mypyc_attr(acyclic=True)
class OpenClaims(ProtocolMessage):
    """To the lock manager of the epoch ``sequence``: all that the source has claimed and not released.

    ``entries`` holds for each the topic, number, place or 0, count of keys and keys. ``attempt`` counts how often the
    source has taken back its locks.
    """

    def __init__(self, source: i64, sequence: i64, attempt: i64, entries: vec[i64]) -> None:
        super().__init__(source, sequence)
        self.attempt: Final[i64] = attempt
        self.entries: Final[vec[i64]] = entries

    def entries_carried(self) -> i64:
        return len(self.entries)


NUMBERED: Final[dict[int, type[Any]]] = {
    66: GrantRequest,
    67: GrantResponse,
    68: GrantRelease,
    69: KeyLockRequest,
    70: KeyLockResponse,
    71: LockManagerNotice,
    72: OpenClaims,
    76: Unlock,
    77: VoterChange,
    85: VoterNotice,
    86: VoterChangeResponse,
    87: VoterAgreement,
}
"""The messages by their numbers on the wire (:class:`antiphon.fabrics.fabric.Implementation`)."""
