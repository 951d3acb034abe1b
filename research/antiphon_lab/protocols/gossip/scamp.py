"""Scamp: views that size themselves, about ``(copies + 1) ln n`` entries for n nodes, without counting nodes.

Ganesh, Kermarrec and Massoulié (2001); the topic overlays of the thesis assume it (section 3.2.1). A newcomer's
subscription is forwarded to all nodes in the contact's view and ``copies`` times more. A node that gets one keeps it
with a probability that falls with the size of its view, and else forwards it to a random entry.

Where this departs from the published rules: a subscription that was forwarded ``most_hops`` times is kept where it is,
so that no walk is endless; a neighbour that failed is dropped when its link breaks; a node that is in no view any more
subscribes again when it has an empty view itself. The periodic lease of the authors is left out: it makes the views
grow.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.gossip.sampling.service import (
    Connections,
    Neighbourhood,
    PeerSampling,
    SamplingMessage,
    draw_some,
    draw_without,
)
from antiphon.kernel.errors import UsageError
from antiphon.kernel.process import NO_NODE, Environment


@final
class ScampOptions:
    """``copies`` of a subscription beyond those of the contact's view; kept after ``most_hops`` at the latest."""

    def __init__(self, copies: i64 = 0, most_hops: i64 = 100) -> None:
        if copies < 0:
            raise UsageError(f"a subscription cannot have {copies} more copies; choose 0 or more")
        if most_hops < 1:
            raise UsageError(f"a subscription travels at least 1 hop, not {most_hops}")
        self.copies: Final[i64] = copies
        self.most_hops: Final[i64] = most_hops


@mypyc_attr(acyclic=True)
class Subscription(SamplingMessage):
    """The source wants to be known; ``hops`` are left. Negative if it speaks to its contact."""

    def __init__(self, source: i64, topic: i64, hops: i64) -> None:
        super().__init__(source, topic)
        self.hops: Final[i64] = hops


@mypyc_attr(acyclic=True)
class Kept(SamplingMessage):
    """The sender has the receiver in its view."""


@mypyc_attr(acyclic=True)
class Replaced(SamplingMessage):
    """The sender leaves: the receiver should know ``other`` instead, or no node."""

    def __init__(self, source: i64, topic: i64, other: i64) -> None:
        super().__init__(source, topic)
        self.other: Final[i64] = other


class Scamp(PeerSampling):
    """Scamp at one node."""

    def __init__(
        self,
        environment: Environment,
        topic: i64,
        connections: Connections,
        listener: Neighbourhood,
        options: ScampOptions,
    ) -> None:
        super().__init__(environment, topic, connections, listener)
        self._options: Final[ScampOptions] = options
        self._view: list[i64] = []
        # The nodes with this node in their views.
        self._known_to: list[i64] = []

    def neighbours(self) -> list[i64]:
        return self._view

    def sample(self, count: i64) -> list[i64]:
        return draw_some(self.random, self._view, count)

    def join(self, contact: i64) -> None:
        self._insert(contact)
        self.environment.send(contact, Subscription(self.me, self.topic, -1))

    def leave(self) -> None:
        """Replace this node by entries of its view at the nodes that know it, except ``copies + 1`` of them."""
        heirs = len(self._known_to) - self._options.copies - 1
        for position, peer in enumerate(self._known_to):
            other = NO_NODE
            if position < heirs and len(self._view) > 0:
                other = self._view[position % len(self._view)]
            self.environment.send(peer, Replaced(self.me, self.topic, other))
        for peer in list(self._view):
            self._drop(peer)

    def lost(self, peer: i64) -> None:
        if peer in self._known_to:
            self._known_to.remove(peer)
        if peer in self._view:
            self._drop(peer)

    def receive(self, sender: i64, message: SamplingMessage) -> None:
        if isinstance(message, Subscription):
            if message.hops < 0:
                self._subscribed(message.source)
            else:
                self._handed(message)
        elif isinstance(message, Kept):
            if sender not in self._known_to:
                self._known_to.append(sender)
        elif isinstance(message, Replaced):
            if sender in self._view:
                self._drop(sender)
            if message.other not in (NO_NODE, self.me) and message.other not in self._view:
                self._keep(message.other)

    def _subscribed(self, newcomer: i64) -> None:
        """A newcomer has chosen this node as its contact, and has it in its view."""
        if newcomer not in self._known_to:
            self._known_to.append(newcomer)
        subscription = Subscription(newcomer, self.topic, self._options.most_hops)
        targets = [peer for peer in self._view if peer != newcomer]
        if len(targets) == 0:
            self._keep(newcomer)
            return
        for peer in targets:
            self.environment.send(peer, subscription)
        for _ in range(int(self._options.copies)):
            self.environment.send(targets[self.random.below(len(targets))], subscription)

    def _handed(self, message: Subscription) -> None:
        newcomer = message.source
        can_keep = newcomer != self.me and newcomer not in self._view
        is_last = message.hops == 0
        if can_keep and (is_last or self.random.below(len(self._view) + 1) == 0):
            self._keep(newcomer)
            return
        following = draw_without(self.random, self._view, newcomer)
        if following != NO_NODE and not is_last:
            self.environment.send(following, Subscription(newcomer, self.topic, message.hops - 1))

    def _keep(self, newcomer: i64) -> None:
        self._insert(newcomer)
        self.environment.send(newcomer, Kept(self.me, self.topic))

    def _insert(self, node: i64) -> None:
        if node != self.me and node not in self._view:
            self._view.append(node)
            self.connections.hold(node)
            self.listener.neighbour_up(node)

    def _drop(self, node: i64) -> None:
        self._view.remove(node)
        self.connections.release(node)
        self.listener.neighbour_down(node)
