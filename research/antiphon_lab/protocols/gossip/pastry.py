"""Pastry: routing by the digits of identifiers, in a ring of all nodes.

Rowstron and Druschel (2001), as SplitStream needs it (:mod:`antiphon_lab.protocols.gossip.splitstream`). A node has an
identifier of 48 bits, which follows from its number. Its **leaf set** are the nodes next to it in the ring, on either
side; its **table** has, for each number of leading digits that another identifier may share with its own, one node for
each next digit. A message to a key goes to a node that shares one more digit with the key, or, at the end, to the leaf
whose identifier is nearest. A newcomer's request to join is routed to its own identifier, and every node on the way
sends what it knows. The newcomer greets all of these nodes, and they take it into their tables.

Digits have four bits. The first one may have fewer (``first_bits``): SplitStream separates its trees by it.

Where this departs from the paper: of the nodes that fit a place in the table any one is kept, each as likely as the
others, and not the nearest one: delays are drawn for each message, so nobody is near. A node that fails leaves tables
and leaf sets at once; its place in a leaf set is filled from the leaf sets of the others. Neighbours of the protocol
above are the leaf set.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.gossip.sampling.service import (
    Connections,
    Neighbourhood,
    PeerSampling,
    SamplingMessage,
    draw_some,
    to_vector,
)
from antiphon.kernel.process import NO_NODE, Environment
from antiphon.kernel.randomness import GOLDEN_GAMMA, mix64, product64

IDENTIFIER_BITS: Final[i64] = 48
RING: Final[i64] = 1 << IDENTIFIER_BITS
DIGIT_BITS: Final[i64] = 4
SIDE: Final[i64] = 4
"""Leaves on either side."""


def identifier_of(node: i64) -> i64:
    """The place of a node in the ring."""
    return i64(mix64(product64(int(node), GOLDEN_GAMMA) + 1) >> (64 - int(IDENTIFIER_BITS)))


def ring_distance(one: i64, other: i64) -> i64:
    """How far two places are apart, the shorter way round."""
    apart = one - other if one > other else other - one
    return apart if apart <= RING - apart else RING - apart


@mypyc_attr(acyclic=True)
class PastryJoin(SamplingMessage):
    """``source`` joins: pass it on towards its identifier."""


@mypyc_attr(acyclic=True)
class PastryState(SamplingMessage):
    """Nodes that the sender knows, for a newcomer or a leaf of it."""

    def __init__(self, source: i64, topic: i64, nodes: vec[i64]) -> None:
        super().__init__(source, topic)
        self.nodes: Final[vec[i64]] = nodes


@mypyc_attr(acyclic=True)
class PastryHello(SamplingMessage):
    """The sender is there, and knows the receiver."""


@final
class Pastry(PeerSampling):
    """What one node knows of the ring. ``first_bits`` is the size of the first digit, 0 for that of the others."""

    def __init__(
        self,
        environment: Environment,
        topic: i64,
        connections: Connections,
        listener: Neighbourhood,
        first_bits: i64 = 0,
    ) -> None:
        super().__init__(environment, topic, connections, listener)
        self.identifier: Final[i64] = identifier_of(self.me)
        self._first_bits: Final[i64] = first_bits if first_bits > 0 else DIGIT_BITS
        # The leaves, and the table by row and digit.
        self._leaves: Final[list[i64]] = []
        self._table: Final[dict[i64, i64]] = {}
        # By place in the table, how often a node was heard of that might be there.
        self._heard: Final[dict[i64, i64]] = {}
        self._greeted: Final[set[i64]] = set()

    # The ring.

    def shared_digits(self, one: i64, other: i64) -> i64:
        """How many leading digits two identifiers have in common."""
        count: i64 = 0
        shift = IDENTIFIER_BITS - self._first_bits
        while (one >> shift) == (other >> shift):
            count += 1
            if shift == 0:
                break
            shift -= DIGIT_BITS if shift >= DIGIT_BITS else shift
        return count

    def _digit(self, identifier: i64, place: i64) -> i64:
        shift = IDENTIFIER_BITS - self._first_bits - place * DIGIT_BITS
        if place == 0:
            return identifier >> shift
        return (identifier >> (shift if shift > 0 else 0)) & ((1 << DIGIT_BITS) - 1)

    def next_hop(self, key: i64) -> i64:
        """The node to which a message for a key goes next; NO_NODE if this one is the nearest that is known."""
        if key == self.identifier:
            return NO_NODE
        best, distance = self.me, ring_distance(self.identifier, key)
        digits = self.shared_digits(self.identifier, key)
        entry = self._table.get((digits << DIGIT_BITS) | self._digit(key, digits), NO_NODE)
        if entry != NO_NODE and not self._is_among_leaves(key):
            return entry
        for peer in self._leaves:
            other = identifier_of(peer)
            apart = ring_distance(other, key)
            if apart < distance or (apart == distance and peer < best):
                best, distance = peer, apart
        for peer in self._table.values():
            other = identifier_of(peer)
            if self.shared_digits(other, key) >= digits and ring_distance(other, key) < distance:
                best, distance = peer, ring_distance(other, key)
        return NO_NODE if best == self.me else best

    def _is_among_leaves(self, key: i64) -> bool:
        """Whether a key lies within the leaf set, so that the nearest node is a leaf or this one."""
        if len(self._leaves) < 2 * SIDE:
            return True
        below: i64 = 0
        above: i64 = 0
        for peer in self._leaves:
            after = (identifier_of(peer) - self.identifier) % RING
            if after <= RING // 2:
                above = max(above, after)
            else:
                below = max(below, RING - after)
        place = (key - self.identifier) % RING
        return place <= above or RING - place <= below

    # What is known.

    def neighbours(self) -> list[i64]:
        return self._leaves

    def sample(self, count: i64) -> list[i64]:
        return draw_some(self.random, [peer for peer in self._table.values() if peer not in self._leaves], count)

    def _known(self) -> list[i64]:
        found = list(self._leaves)
        found.extend(peer for peer in self._table.values() if peer not in self._leaves)
        return found

    def learn(self, node: i64) -> None:
        """A node has been heard of: it may belong into the table and the leaf set."""
        if node == self.me:
            return
        other = identifier_of(node)
        digits = self.shared_digits(self.identifier, other)
        place = (digits << DIGIT_BITS) | self._digit(other, digits)
        heard = self._heard.get(place, 0) + 1
        self._heard[place] = heard
        before = self._table.get(place, NO_NODE)
        if before == NO_NODE or (before != node and self.random.below(heard) == 0):
            self._table[place] = node
            self.connections.hold(node)
            if before != NO_NODE:
                self.connections.release(before)
        if node not in self._leaves:
            self._offer_leaf(node)

    def _offer_leaf(self, node: i64) -> None:
        """Take a node into the leaf set if it is among the next on its side, and let the farthest go."""
        clockwise = (identifier_of(node) - self.identifier) % RING <= RING // 2
        same = [
            peer for peer in self._leaves if ((identifier_of(peer) - self.identifier) % RING <= RING // 2) == clockwise
        ]
        if len(same) >= SIDE:
            farthest = same[0]
            for peer in same:
                if ring_distance(identifier_of(peer), self.identifier) > ring_distance(
                    identifier_of(farthest), self.identifier
                ):
                    farthest = peer
            if ring_distance(identifier_of(node), self.identifier) >= ring_distance(
                identifier_of(farthest), self.identifier
            ):
                return
            self._leaves.remove(farthest)
            self.connections.release(farthest)
            self.listener.neighbour_down(farthest)
        self._leaves.append(node)
        self.connections.hold(node)
        self.listener.neighbour_up(node)

    # Joining and failing.

    def join(self, contact: i64) -> None:
        self.environment.send(contact, PastryJoin(self.me, self.topic))

    def receive(self, sender: i64, message: SamplingMessage) -> None:
        if isinstance(message, PastryJoin):
            self._on_join(message)
        elif isinstance(message, PastryState):
            self.learn(sender)
            self._greet(sender)
            for node in message.nodes:
                self.learn(node)
                self._greet(node)
        elif isinstance(message, PastryHello):
            self.learn(sender)
            if sender in self._leaves:
                self.environment.send(sender, PastryState(self.me, self.topic, to_vector(self._leaves)))

    def _on_join(self, message: PastryJoin) -> None:
        newcomer = message.source
        if newcomer == self.me:
            return
        self.environment.send(newcomer, PastryState(self.me, self.topic, to_vector(self._known())))
        following = self.next_hop(identifier_of(newcomer))
        self.learn(newcomer)
        if following != NO_NODE and following != newcomer:
            self.environment.send(following, message)

    def _greet(self, node: i64) -> None:
        if node != self.me and node not in self._greeted:
            self._greeted.add(node)
            self.environment.send(node, PastryHello(self.me, self.topic))

    def lost(self, peer: i64) -> None:
        for place in [place for place, node in self._table.items() if node == peer]:
            del self._table[place]
            self.connections.release(peer)
        self._greeted.discard(peer)
        if peer not in self._leaves:
            return
        self._leaves.remove(peer)
        self.connections.release(peer)
        self.listener.neighbour_down(peer)
        for node in self._known():
            if node not in self._leaves:
                self._offer_leaf(node)
        for leaf in self._leaves:
            self.environment.send(leaf, PastryHello(self.me, self.topic))
