"""The messages of the topic protocols on the cube.

A publication travels as itself (:class:`antiphon.orders.order.Ordered`): every copy in every tree is the same object.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.message import Message
from antiphon.orders.order import Ordered


@mypyc_attr(acyclic=True)
class Acknowledgement(Message):
    """The whole subtree of the sender has the publication."""


@mypyc_attr(acyclic=True)
class LeafCopy(Message):
    """A publication for the receiver alone: it is not to hand it on."""

    def __init__(self, publication: Ordered) -> None:
        super().__init__(publication.source, publication.sequence, publication.topic)
        self.publication: Final[Ordered] = publication

    def is_control(self) -> bool:
        return False


@mypyc_attr(acyclic=True)
class Refusal(Message):
    """The sender is no member, or not yet able to serve a cluster, and returns a copy; ``was_leaf`` says which kind.

    ``counter`` is that of the sender's last unsubscription: news about any membership before it is out of date.
    """

    def __init__(self, publication: Ordered, counter: i64, was_leaf: bool) -> None:
        super().__init__(publication.source, publication.sequence, publication.topic)
        self.publication: Final[Ordered] = publication
        self.counter: Final[i64] = counter
        self.was_leaf: Final[bool] = was_leaf


@mypyc_attr(acyclic=True)
class Subscribe(Message):
    """The source, which has no view yet, becomes a member. ``sequence`` is the counter of the subscription."""


@mypyc_attr(acyclic=True)
class Synchronise(Message):
    """The source has a complete view now and asks what counts as past. ``sequence`` as in its ``Subscribe``."""


@mypyc_attr(acyclic=True)
class Unsubscribe(Message):
    """The source is no longer a member. ``sequence`` is the counter of the unsubscription."""


@mypyc_attr(acyclic=True)
class Answer(Message):
    """The subtree of the sender has handled a ``Subscribe`` or ``Synchronise``; ``entries`` is what it has to say.

    To a ``Subscribe``: each member's own word for itself (:func:`member_entry`). To a ``Synchronise``: a frontier.
    """

    def __init__(self, source: i64, sequence: i64, topic: i64, entries: vec[i64]) -> None:
        super().__init__(source, sequence, topic)
        self.entries: Final[vec[i64]] = entries


COUNTER_BITS: Final = 38
COUNTER_MASK: Final = (1 << 38) - 1


def member_entry(node: i64, counter: i64, is_active: bool) -> i64:
    """A member, the counter of its subscription and whether it is active, in one integer."""
    return (node << (COUNTER_BITS + 1)) | (counter << 1) | (1 if is_active else 0)
