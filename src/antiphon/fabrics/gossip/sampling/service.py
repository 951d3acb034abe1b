"""Peer sampling: which other nodes a node knows, and what a protocol above may ask about them.

Nobody knows everybody in a large system. A peer sampling service keeps a small **view** of others at each node, such
that all views together form a graph that holds together when nodes fail (thesis, section 2.2.2). The
protocol above asks for neighbours or for a sample, and is told when a neighbour comes or goes.

One service is one module: :mod:`~antiphon.fabrics.gossip.sampling.hyparview` (links that last, both ends know of them),
:mod:`~antiphon.fabrics.gossip.sampling.cyclon` and :mod:`~antiphon_lab.protocols.gossip.newscast` (views that are
exchanged all the time), :mod:`~antiphon_lab.protocols.gossip.scamp` (views that size themselves). They are driven from
outside: ``tick`` is called once per period, ``receive`` for each message, ``lost`` when a link breaks.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import append, vec
from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.message import ProtocolMessage
from antiphon.kernel.process import NO_NODE, Environment
from antiphon.kernel.randomness import RandomStream


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class SamplingMessage(ProtocolMessage):
    """A message by which a peer sampling service keeps its views; ``source`` is the node that it is about."""

    def __init__(self, source: i64, topic: i64) -> None:
        super().__init__(source, 0, topic)


@mypyc_attr(allow_interpreted_subclasses=True)
class Neighbourhood:
    """Listens for neighbours that come and go; this one ignores them."""

    def neighbour_up(self, peer: i64) -> None:
        """A node has become a neighbour."""

    def neighbour_down(self, peer: i64) -> None:
        """A node is no neighbour any more: it failed, left, or was replaced by another."""


class Connections:
    """The links of one process that some service of it wants to keep; several may want the same one."""

    def __init__(self, environment: Environment) -> None:
        self._environment: Final[Environment] = environment
        self._wanted: Final[dict[i64, i64]] = {}
        # Links that are broken and still wanted.
        self._broken: Final[set[i64]] = set()

    def hold(self, peer: i64) -> None:
        """One more service wants the link. If it is broken that is said again: this service has not heard of it."""
        count = self._wanted.get(peer, 0)
        self._wanted[peer] = count + 1
        if peer in self._broken:
            self._broken.remove(peer)
            self._environment.unwatch(peer)
            self._environment.watch(peer)
        elif count == 0:
            self._environment.watch(peer)

    def release(self, peer: i64) -> None:
        """One service less wants the link."""
        count = self._wanted[peer]
        if count > 1:
            self._wanted[peer] = count - 1
        else:
            del self._wanted[peer]
            self._broken.discard(peer)
            self._environment.unwatch(peer)

    def lost(self, peer: i64) -> None:
        """The link is broken."""
        if peer in self._wanted:
            self._broken.add(peer)

    def found(self, peer: i64) -> None:
        """The link is there again."""
        self._broken.discard(peer)

    def count(self) -> i64:
        """How many different links are wanted."""
        return len(self._wanted)


@mypyc_attr(allow_interpreted_subclasses=True)
class PeerSampling:
    """The interface of every peer sampling service. One instance serves one topic at one node."""

    def __init__(self, environment: Environment, topic: i64, connections: Connections, listener: Neighbourhood) -> None:
        self.environment: Final[Environment] = environment
        self.me: Final[i64] = environment.identifier
        self.topic: Final[i64] = topic
        self.connections: Final[Connections] = connections
        self.listener: Final[Neighbourhood] = listener
        self.random: Final[RandomStream] = environment.random()

    def neighbours(self) -> list[i64]:
        """The nodes to exchange messages with. The list is the service's own: look, and do not change it."""
        raise NotImplementedError

    def is_neighbour(self, peer: i64) -> bool:
        """Whether a node is a neighbour."""
        return peer in self.neighbours()

    def sample(self, count: i64) -> list[i64]:
        """Up to so many other nodes, drawn from all that this node knows of beyond its neighbours, if there are any."""
        raise NotImplementedError

    def elder(self) -> i64:
        """A neighbour that a newcomer may ask what is past: a random one, unless it is known which came before."""
        return draw_without(self.random, self.neighbours(), NO_NODE)

    def join(self, contact: i64) -> None:
        """Enter the overlay through a node that is in it. To be called again while there is no neighbour."""
        raise NotImplementedError

    def leave(self) -> None:
        """Say goodbye to all that would miss this node."""

    def part_again(self) -> bool:
        """Say goodbye again to all that have not answered; true if there are any."""
        return False

    def tick(self) -> None:
        """A period has passed: do what is done periodically."""

    def receive(self, sender: i64, message: SamplingMessage) -> None:
        """A message of this service has arrived."""
        raise NotImplementedError

    def lost(self, peer: i64) -> None:
        """The link to a node is broken."""

    def heard_from(self, sender: i64) -> None:
        """A node has sent something that only neighbours send; if it is none here, the two disagree."""

    def on_wanted(self, peer: i64) -> None:
        """The protocol above wants a node for a neighbour, for example because it knows more than all others."""


def draw_without(random: RandomStream, nodes: list[i64], excluded: i64) -> i64:
    """A uniform element that is not the excluded one; -1 if there is none."""
    count: i64 = len(nodes)
    if count == 0:
        return -1
    position = random.below(count)
    if nodes[position] != excluded:
        return nodes[position]
    if count == 1:
        return -1
    # Uniform over the others: shift by 1 to count - 1 places.
    return nodes[(position + 1 + random.below(count - 1)) % count]


def draw_some(random: RandomStream, nodes: list[i64], count: i64) -> list[i64]:
    """So many different elements in random order; all if there are fewer."""
    pool = list(nodes)
    size: i64 = len(pool)
    wanted = count if count < size else size
    position: i64 = 0
    while position < wanted:
        other = position + random.below(size - position)
        chosen = pool[other]
        pool[other] = pool[position]
        pool[position] = chosen
        position += 1
    return pool[: int(wanted)]


def to_vector(nodes: list[i64]) -> vec[i64]:
    """A list as it travels in a message."""
    found = vec[i64](capacity=len(nodes))
    for node in nodes:
        found = append(found, node)
    return found
