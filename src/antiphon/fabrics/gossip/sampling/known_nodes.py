"""Peer sampling where everybody is known: what the analysis of epidemic protocols assumes.

A node draws from a list of all nodes that all processes share. The list is kept by somebody else: an experiment whose
peer sampling is to be perfect changes it when nodes come and go, and elsewhere it is fixed.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.fabrics.gossip.sampling.service import Connections, Neighbourhood, PeerSampling, SamplingMessage
from antiphon.kernel.process import Environment


@final
class KnownNodes:
    """A list of nodes that changes in constant time."""

    def __init__(self) -> None:
        self.nodes: Final[list[i64]] = []
        self._place_of: Final[dict[i64, i64]] = {}

    def add(self, node: i64) -> None:
        """A node has come; it is not in the list yet."""
        self._place_of[node] = len(self.nodes)
        self.nodes.append(node)

    def remove(self, node: i64) -> None:
        """A node has gone; the last one takes its place."""
        place = self._place_of.pop(node)
        last = self.nodes.pop()
        if last != node:
            self.nodes[place] = last
            self._place_of[last] = place

    def contains(self, node: i64) -> bool:
        """Whether a node is in the list."""
        return node in self._place_of


class Everybody(PeerSampling):
    """Samples of all nodes there are, each set of them as likely as any other."""

    def __init__(
        self, environment: Environment, topic: i64, connections: Connections, listener: Neighbourhood, known: KnownNodes
    ) -> None:
        super().__init__(environment, topic, connections, listener)
        self._known: Final[KnownNodes] = known

    def neighbours(self) -> list[i64]:
        return self._known.nodes

    def is_neighbour(self, peer: i64) -> bool:
        return peer != self.me and self._known.contains(peer)

    def sample(self, count: i64) -> list[i64]:
        """So many others. Draws are repeated when they meet the same node again; no list of all is made."""
        nodes = self._known.nodes
        size: i64 = len(nodes)
        others = size - 1 if self._known.contains(self.me) else size
        if count >= others:
            return [node for node in nodes if node != self.me]
        if 2 * count > others:
            return self._all_but(others - count)
        chosen: list[i64] = []
        seen: set[i64] = {self.me}
        while len(chosen) < count:
            node = nodes[self.random.below(size)]
            if node not in seen:
                seen.add(node)
                chosen.append(node)
        return chosen

    def _all_but(self, count: i64) -> list[i64]:
        """Most of the others: it is quicker to draw those that are left out."""
        left_out = set(self.sample(count)) if count > 0 else set()
        return [node for node in self._known.nodes if node != self.me and node not in left_out]

    def join(self, contact: i64) -> None:
        """Nobody has to be told."""

    def receive(self, sender: i64, message: SamplingMessage) -> None:
        raise AssertionError("a service that knows everybody sends nothing")
