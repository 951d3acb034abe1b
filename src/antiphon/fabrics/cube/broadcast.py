"""Broadcast over cube trees: one tree per source, or one tree for all.

``TreeBroadcast`` is the best-effort broadcast of section 2.4.1 of the thesis: the source sends to its child in each of
its clusters, and whoever gets a copy from a node in its cluster ``s`` hands it on in its clusters ``1 .. s - 1``. When
``acknowledge`` is set an ascending wave of acknowledgements (section 5.4) tells the source that its whole tree
has the publication: a leaf acknowledges when it has handled the copy, an inner node when all its children have.

``SingleTreeBroadcast`` is the rival of Figure 2.9: every publication goes to one fixed root first and down its tree.

Both deliver through an order when they are given one (causal by vector clocks, FIFO, or each once) and at once when
they are not. Copies are sent in ascending order of cluster, as published, or with ``largest_first`` in descending
order, which gives the deepest subtree the head start.

Links are assumed not to duplicate: with ``order=None`` a duplicated copy is delivered twice. Nothing is resent, so a
lost copy loses its subtree; an acknowledgement that nobody waits for is ignored.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube.ack_aggregation import Waves
from antiphon.fabrics.cube.messages import Acknowledgement
from antiphon.fabrics.cube.topology import Cube, cluster
from antiphon.kernel.errors import ProtocolError
from antiphon.kernel.message import UNSPECIFIED, ProtocolMessage, Publication, publication_key
from antiphon.kernel.process import NO_NODE, Environment, Process
from antiphon.orders.order import Order, Ordered


class TreeBroadcast(Process):
    """Each source has its own tree."""

    def __init__(
        self,
        environment: Environment,
        cube: Cube,
        order: Order | None = None,
        acknowledge: bool = True,
        largest_first: bool = False,
    ) -> None:
        super().__init__(environment)
        self._cube: Final[Cube] = cube
        self.order: Final[Order | None] = order
        self._acknowledge: Final[bool] = acknowledge
        self._largest_first: Final[bool] = largest_first
        self._sequence: i64 = 0
        self._waves: Final = Waves()
        self._completed: i64 = 0

    def publish(self, payload: bytes, topic: i64 = 0, order: i64 = UNSPECIFIED) -> i64:
        publication = self._stamped(payload, topic, order)
        self.environment.deliver(publication)
        self._send_down(NO_NODE, publication, self._cube.dimension)
        return publication.sequence

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        if isinstance(message, Publication):
            self._send_down(sender, message, cluster(self.me, sender) - 1)
            self._accept(message)
        elif isinstance(message, Acknowledgement):
            self._acknowledged(message)
        else:
            raise ProtocolError(f"node {sender} sent a {type(message).__name__}, which a tree broadcast does not know")

    def unfinished(self) -> i64:
        waiting: i64 = 0 if self.order is None else self.order.waiting()
        return len(self._waves) + waiting

    def completed(self) -> i64:
        """How many publications that this node is the root of are known to have reached their whole tree."""
        return self._completed

    def _stamped(self, payload: bytes, topic: i64, asked: i64) -> Publication:
        order = self.order
        only: i64 = UNSPECIFIED if order is None else order.strength
        self.check_only_order(asked, only)
        self._sequence += 1
        dependencies = vec[i64]() if order is None else order.stamp(self._sequence)
        return Ordered(self.me, self._sequence, self.environment.now(), payload, dependencies, topic, only)

    def _accept(self, publication: Publication) -> None:
        order = self.order
        if order is None:
            self.environment.deliver(publication)
            return
        for released in order.arrived(publication):
            self.environment.deliver(released)

    def _send_down(self, parent: i64, publication: Publication, height: i64) -> None:
        """Send to the children in clusters 1 .. height and remember whom to tell when they have answered."""
        cube = self._cube
        environment = self.environment
        me = self.me
        count: i64 = 0
        s: i64 = 1
        while s <= height:
            child = cube.first(me, height + 1 - s if self._largest_first else s)
            if child != NO_NODE:
                environment.send(child, publication)
                count += 1
            s += 1
        if not self._acknowledge:
            return
        if count > 0:
            key = publication_key(publication.source, publication.sequence)
            self._waves.open(key, count, parent)
        elif parent == NO_NODE:
            self._completed += 1
        else:
            environment.send(parent, Acknowledgement(publication.source, publication.sequence))

    def _acknowledged(self, message: Acknowledgement) -> None:
        parent = self._waves.on_ack(publication_key(message.source, message.sequence))
        if parent == NO_NODE:
            self._completed += 1
        elif parent >= 0:
            # What the last child said is what the parent must hear, word for word.
            self.environment.send(parent, message)


class SingleTreeBroadcast(TreeBroadcast):
    """All sources share the tree of one root; a publication goes to the root first.

    The publisher delivers at once and takes no notice of the copy that comes back down the tree, except to hand it on.
    """

    def __init__(
        self,
        environment: Environment,
        cube: Cube,
        root: i64,
        order: Order | None = None,
        acknowledge: bool = True,
        largest_first: bool = False,
    ) -> None:
        super().__init__(environment, cube, order, acknowledge, largest_first)
        self._root: Final[i64] = root

    def publish(self, payload: bytes, topic: i64 = 0, order: i64 = UNSPECIFIED) -> i64:
        publication = self._stamped(payload, topic, order)
        self.environment.deliver(publication)
        if self.me == self._root:
            self._send_down(NO_NODE, publication, self._cube.dimension)
        else:
            self.environment.send(self._root, publication)
        return publication.sequence

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        if isinstance(message, Publication):
            at_root = self.me == self._root
            # Nobody is the root's parent; the wave of acknowledgements ends there.
            parent = NO_NODE if at_root else sender
            height = self._cube.dimension if at_root else cluster(self.me, sender) - 1
            self._send_down(parent, message, height)
            if message.source != self.me:
                self._accept(message)
        else:
            super().receive(sender, message)
