"""The messages of SplitStream about stripes; those of the ring under it are in Pastry's module."""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.gossip.messages import TreePosition
from antiphon.kernel.message import ProtocolMessage, Publication


@mypyc_attr(acyclic=True)
class StripeMessage(ProtocolMessage):
    """A message about the stripe with this key; ``source`` is the node that it is about."""

    def __init__(self, source: i64, topic: i64, key: i64) -> None:
        super().__init__(source, 0, topic)
        self.key: Final[i64] = key


@final
@mypyc_attr(acyclic=True)
class StripeJoin(StripeMessage):
    """The sender wants to be a child of the receiver."""


@final
@mypyc_attr(acyclic=True)
class StripeSeek(StripeMessage):
    """``source`` looks for a parent with room: adopt it, or pass this on, over at most ``hops`` more nodes."""

    def __init__(self, source: i64, topic: i64, key: i64, hops: i64) -> None:
        super().__init__(source, topic, key)
        self.hops: Final[i64] = hops


@final
@mypyc_attr(acyclic=True)
class StripeAccept(StripeMessage):
    """The receiver is a child of the sender, which is at this place."""

    def __init__(self, source: i64, topic: i64, key: i64, position: TreePosition) -> None:
        super().__init__(source, topic, key)
        self.position: Final[TreePosition] = position


@final
@mypyc_attr(acyclic=True)
class StripeDrop(StripeMessage):
    """The receiver is no child of the sender, or no more; ``nodes`` are children that may have room for it."""

    def __init__(self, source: i64, topic: i64, key: i64, nodes: vec[i64]) -> None:
        super().__init__(source, topic, key)
        self.nodes: Final[vec[i64]] = nodes


@final
@mypyc_attr(acyclic=True)
class StripePublish(StripeMessage):
    """A publication on its way to the root of its stripe."""

    def __init__(self, topic: i64, key: i64, publication: Publication) -> None:
        super().__init__(publication.source, topic, key)
        self.publication: Final[Publication] = publication

    def is_control(self) -> bool:
        return False
