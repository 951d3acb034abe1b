"""The messages of anti-entropy: digests, and the publications that the other member lacks."""

from __future__ import annotations

from typing import Any, Final

from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.cube.messages import PublicationList
from antiphon.kernel.message import ProtocolMessage, Publication

RESPONSE: Final[i64] = 0
REQUEST: Final[i64] = 1
REQUEST_TO_ALL: Final[i64] = 2
RESPONSE_TO_ALL: Final[i64] = 3


@mypyc_attr(acyclic=True)
class Digest(ProtocolMessage):
    """The source, a member of the topic, says what it has; ``sequence`` is the counter of its subscription.

    ``members`` are the members that it knows (:func:`antiphon.fabrics.cube.messages.member_entry`), ``have`` is a set
    of publications. ``asks`` says which answer it expects: one if there is news (``REQUEST``), one in any case
    (``REQUEST_TO_ALL``), or none because it answers itself (``RESPONSE``, ``RESPONSE_TO_ALL``). Before a
    ``RESPONSE_TO_ALL`` the source has sent everything that the receiver lacks. ``question`` is the number of the
    question to all that is asked or answered, else 0: a late answer to an earlier question must not count for the next.
    """

    def __init__(
        self,
        source: i64,
        sequence: i64,
        topic: i64,
        members: vec[i64],
        have: vec[i64],
        asks: i64,
        is_member: bool,
        question: i64,
    ) -> None:
        super().__init__(source, sequence, topic)
        self.members: Final[vec[i64]] = members
        self.have: Final[vec[i64]] = have
        self.asks: Final[i64] = asks
        self.is_member: Final[bool] = is_member
        self.question: Final[i64] = question

    def entries_carried(self) -> i64:
        return len(self.members) + len(self.have)


@mypyc_attr(acyclic=True)
class RepairBatch(PublicationList):
    """Publications of any sources that the receiver lacks; ``is_last`` if the sender has no more for it."""

    def __init__(self, publications: list[Publication], is_last: bool) -> None:
        super().__init__(publications)
        self.is_last: Final[bool] = is_last


@mypyc_attr(acyclic=True)
class Unavailable(ProtocolMessage):
    """The sender has delivered, and does not have any more, what the receiver lacks.

    ``entries`` are keys: up to this publication of its source all that the receiver lacks is gone.
    """

    def __init__(self, source: i64, topic: i64, entries: vec[i64]) -> None:
        super().__init__(source, 0, topic)
        self.entries: Final[vec[i64]] = entries

    def entries_carried(self) -> i64:
        return len(self.entries)


NUMBERED: Final[dict[int, type[Any]]] = {73: Digest, 74: RepairBatch, 75: Unavailable}
"""The messages by their numbers on the wire (:class:`antiphon.fabrics.fabric.Implementation`)."""
