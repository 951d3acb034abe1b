"""TAG's list and tree: all nodes in the order of joining, and a parent among the earlier ones.

Liu and Zhou (2006), as the thesis of M. Matos describes it (section 4.3.5). A newcomer is told where the list ends and
goes along it backwards, from node to node, until it meets one that may be its parent: one with fewer than ``capacity``
children that is less than ``deepest`` hops from the root. It remembers some of the nodes that it passes. Each step is a
connection that is opened and closed; opening one takes ``handshakes`` round trips. Parents come before their children
in the list, so there is no cycle.

Every node knows two predecessors. When one fails the next takes its place. A node that loses its parent goes along the
list again, from its own place. When two predecessors in a row fail the list is broken, and the node has to be put into
it again: it asks the coordinator, which knows the order of joins. If it has no parent either, that is a *hard* repair.

Open points of the thesis, and how they are read here: the conditions of a suitable parent; the first contact is the
coordinator, the first of the list and the root of the tree; places are numbered, so that a restarted node is not
mistaken for its earlier incarnation.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final

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
from antiphon.fabrics.gossip.structure import Repairs
from antiphon.kernel.process import NO_NODE, Environment

PATIENCE_PERIODS: Final = 3
"""The number of periods without an answer after which a walk begins again; a message may have been lost."""

MOST_DEAD: Final = 8
"""The most failed nodes that are named to the coordinator."""


@mypyc_attr(acyclic=True)
class Enter(SamplingMessage):
    """The sender wants a place in the list: the last one, or (with a rank) to know again which node is before it.

    ``born`` is when its incarnation began, by its own clock: a second request of one incarnation gets the same place.
    """

    def __init__(self, source: i64, topic: i64, rank: i64, dead: vec[i64], born: i64) -> None:
        super().__init__(source, topic)
        self.rank: Final[i64] = rank
        self.born: Final[i64] = born
        self.dead: Final[vec[i64]] = dead


@mypyc_attr(acyclic=True)
class Seat(SamplingMessage):
    """The receiver's place, and the two before it."""

    def __init__(self, source: i64, topic: i64, rank: i64, predecessor: i64, second: i64) -> None:
        super().__init__(source, topic)
        self.rank: Final[i64] = rank
        self.predecessor: Final[i64] = predecessor
        self.second: Final[i64] = second


@mypyc_attr(acyclic=True)
class Visit(SamplingMessage):
    """The sender has come to the receiver: it ``follows`` it in the list, or looks for a parent.

    ``handshakes`` round trips are still needed before the two are connected.
    """

    def __init__(self, source: i64, topic: i64, handshakes: i64, follows: bool) -> None:
        super().__init__(source, topic)
        self.handshakes: Final[i64] = handshakes
        self.follows: Final[bool] = follows


@mypyc_attr(acyclic=True)
class Visited(SamplingMessage):
    """The place of the sender: its rank, its predecessor, its depth (-1 without a place), and whether it has room."""

    def __init__(
        self, source: i64, topic: i64, rank: i64, predecessor: i64, depth: i64, has_room: bool, handshakes: i64
    ) -> None:
        super().__init__(source, topic)
        self.rank: Final[i64] = rank
        self.predecessor: Final[i64] = predecessor
        self.depth: Final[i64] = depth
        self.has_room: Final[bool] = has_room
        self.handshakes: Final[i64] = handshakes


@mypyc_attr(acyclic=True)
class Adopt(SamplingMessage):
    """The receiver should be the sender's parent; ``is_urgent`` if there is no other candidate."""

    def __init__(self, source: i64, topic: i64, rank: i64, is_urgent: bool) -> None:
        super().__init__(source, topic)
        self.rank: Final[i64] = rank
        self.is_urgent: Final[bool] = is_urgent


@mypyc_attr(acyclic=True)
class Adopted(SamplingMessage):
    """The sender is the receiver's parent, and so deep."""

    def __init__(self, source: i64, topic: i64, depth: i64) -> None:
        super().__init__(source, topic)
        self.depth: Final[i64] = depth


@mypyc_attr(acyclic=True)
class NoChild(SamplingMessage):
    """The sender has another parent."""


class ListOfNodes:
    """The knowledge of the coordinator: the nodes in the list, in order."""

    def __init__(self, first: i64) -> None:
        self._ranks: Final[list[i64]] = [0]
        self._node_at: Final[dict[i64, i64]] = {0: first}
        self._rank_of: Final[dict[i64, i64]] = {first: 0}
        self._born: Final[dict[i64, i64]] = {}
        self._next: i64 = 1

    def add(self, node: i64, born: i64) -> i64:
        """Put a node at the end, unless it is there; a place that it had in an earlier life is given up."""
        if node in self._rank_of and self._born.get(node, -1) == born:
            return self._rank_of[node]
        self.strike(node)
        self._born[node] = born
        rank = self._next
        self._next += 1
        insort(self._ranks, rank)
        self._node_at[rank] = node
        self._rank_of[node] = rank
        return rank

    def strike(self, node: i64) -> None:
        """A node has failed; the first never does."""
        rank = self._rank_of.get(node, 0)
        if rank > 0:
            self._ranks.remove(rank)
            del self._node_at[rank]
            del self._rank_of[node]

    def before(self, rank: i64, steps: i64) -> i64:
        """The node a number of steps before a place; NO_NODE if there is none."""
        position: i64 = bisect_left(self._ranks, rank) - steps
        return self._node_at[self._ranks[position]] if position >= 0 else NO_NODE


class TagList(PeerSampling):
    """The place of one node in list and tree; neighbours are the parent and the children."""

    def __init__(
        self,
        environment: Environment,
        topic: i64,
        connections: Connections,
        listener: Neighbourhood,
        coordinator: i64,
        capacity: i64,
        deepest: i64,
        peers: i64,
        handshakes: i64,
    ) -> None:
        super().__init__(environment, topic, connections, listener)
        self._coordinator: Final[i64] = coordinator
        self._capacity: Final[i64] = capacity
        self._deepest: Final[i64] = deepest
        self._most_peers: Final[i64] = peers
        self._handshakes: Final[i64] = handshakes
        self.is_first: Final[bool] = coordinator == self.me
        self._register: Final[ListOfNodes] = ListOfNodes(self.me)
        self._born: Final[i64] = environment.now()
        self.rank: i64 = 0 if self.is_first else -1
        self.predecessor: i64 = NO_NODE
        self.second: i64 = NO_NODE
        self.successor: i64 = NO_NODE
        self.parent: i64 = NO_NODE
        self.depth: i64 = 0 if self.is_first else -1
        self.children: Final[list[i64]] = []
        self.peers: Final[list[i64]] = []
        self._neighbours: Final[list[i64]] = []
        self._dead: Final[list[i64]] = []
        # The walk: its present node, the periods there, the number of passed nodes, and the asked nodes.
        self._visiting: i64 = NO_NODE
        self._waited: i64 = 0
        self._passed: i64 = 0
        self._last_rank: i64 = 0
        self.visits: i64 = 0
        self.repairs: Final = Repairs()
        self._orphaned_at: i64 = -1
        # Whether the list was broken before this node while it had no parent; how often it was broken at all.
        self._is_lost: bool = False
        self.breaks: i64 = 0

    # Questions of other nodes.

    def neighbours(self) -> list[i64]:
        return self._neighbours

    def sample(self, count: i64) -> list[i64]:
        return draw_some(self.random, self.peers, count)

    def elder(self) -> i64:
        return super().elder() if self.parent == NO_NODE else self.parent

    def join(self, contact: i64) -> None:
        # A node with a place and without a parent is already looking for one.
        if self.rank < 0:
            self.environment.send(contact, Enter(self.me, self.topic, -1, vec[i64](), self._born))

    def tick(self) -> None:
        if self.is_first or self.rank < 0:
            return
        if self.predecessor == NO_NODE:
            self._ask_again()
        elif self.parent == NO_NODE:
            self._waited += 1
            if self._visiting == NO_NODE or self._waited > PATIENCE_PERIODS:
                self._walk()

    # Messages.

    def receive(self, sender: i64, message: SamplingMessage) -> None:
        if isinstance(message, Visit):
            if message.follows:
                self.successor = sender
            self._say_where(sender, message.handshakes)
        elif isinstance(message, Visited):
            self._visited(sender, message)
        elif isinstance(message, Adopt):
            self._adopt(sender, message)
        elif isinstance(message, Adopted):
            self._adopted(sender, message.depth)
        elif isinstance(message, Seat):
            self._seated(message)
        elif isinstance(message, Enter):
            self._enter(sender, message)
        elif isinstance(message, NoChild):
            self._lose_child(sender)

    def _enter(self, sender: i64, message: Enter) -> None:
        """At the coordinator: a node wants a place."""
        for node in message.dead:
            self._register.strike(node)
        rank = self._register.add(sender, message.born) if message.rank < 0 else message.rank
        before, second = self._register.before(rank, 1), self._register.before(rank, 2)
        self.environment.send(sender, Seat(self.me, self.topic, rank, before, second))

    def _seated(self, seat: Seat) -> None:
        if seat.rank < self.rank or (self.rank == seat.rank and self.predecessor != NO_NODE):
            return
        self.rank = seat.rank
        self._follow(seat.predecessor)
        self._remember_second(seat.second)
        if self.parent == NO_NODE:
            self._walk()

    def _say_where(self, peer: i64, handshakes: i64) -> None:
        has_room = len(self.children) < self._capacity and self.depth < self._deepest
        self.environment.send(
            peer, Visited(self.me, self.topic, self.rank, self.predecessor, self.depth, has_room, handshakes)
        )

    def _visited(self, sender: i64, message: Visited) -> None:
        if sender == self.predecessor:
            if message.rank < 0 or message.rank > self.rank:
                # It has failed and restarted since: it is a new node now.
                self._lose_predecessor()
                return
            self._remember_second(message.predecessor)
        if sender != self._visiting or self.parent != NO_NODE:
            return
        self._waited = 0
        if message.handshakes > 0:
            self.environment.send(sender, Visit(self.me, self.topic, message.handshakes - 1, False))
            return
        if not 0 <= message.rank <= self._last_rank:
            # It has restarted since, at another place. The node that led here will notice; then there is another path.
            self._visit(NO_NODE)
            return
        self._last_rank = message.rank
        self._remember_peer(sender)
        if message.depth >= 0 and (message.has_room or message.predecessor == NO_NODE):
            self.environment.send(sender, Adopt(self.me, self.topic, self.rank, not message.has_room))
        else:
            self._visit(message.predecessor)

    def _adopt(self, sender: i64, message: Adopt) -> None:
        is_child = sender in self.children
        has_room = is_child or message.is_urgent or len(self.children) < self._capacity
        if self.depth < 0 or message.rank <= self.rank or not has_room:
            self._say_where(sender, 0)
            return
        if is_child:
            # It is a new incarnation, or it did not receive the answer.
            self._lose_child(sender)
        self.children.append(sender)
        self._link(sender)
        self.environment.send(sender, Adopted(self.me, self.topic, self.depth))

    def _adopted(self, sender: i64, depth: i64) -> None:
        if self.parent == sender:
            return
        if self.parent != NO_NODE or sender != self._visiting:
            self.environment.send(sender, NoChild(self.me, self.topic))
            return
        self.parent = sender
        self.depth = depth + 1
        self._link(sender)
        self._visit(NO_NODE)

    # The list.

    def _follow(self, predecessor: i64) -> None:
        """Come after another node, and say so."""
        self.predecessor = self._exchange(self.predecessor, predecessor)
        if predecessor != NO_NODE:
            self.environment.send(predecessor, Visit(self.me, self.topic, 0, True))
        if self.successor != NO_NODE:
            self._say_where(self.successor, 0)

    def _remember_second(self, second: i64) -> None:
        self.second = self._exchange(self.second, second)

    def _lose_predecessor(self) -> None:
        second = self.second
        self._remember_second(NO_NODE)
        self._follow(second)
        if second == NO_NODE:
            self.breaks += 1
            self._ask_again()

    def _ask_again(self) -> None:
        """The list is broken before this node: the coordinator knows the remaining nodes there."""
        if self._orphaned_at >= 0 and not self._is_lost:
            self._is_lost = True
            self.repairs.hard += 1
        dead = to_vector(self._dead)
        self.environment.send(self._coordinator, Enter(self.me, self.topic, self.rank, dead, self._born))

    # The tree.

    def _walk(self) -> None:
        """Look for a parent, from the own place backwards."""
        self._passed = 0
        self._last_rank = self.rank
        self._visit(self.predecessor)

    def _visit(self, peer: i64) -> None:
        self._visiting = self._exchange(self._visiting, peer)
        self._waited = 0
        if peer != NO_NODE:
            self.visits += 1
            self.environment.send(peer, Visit(self.me, self.topic, self._handshakes, False))

    def _remember_peer(self, peer: i64) -> None:
        """Keep some of all that were passed, each with the same chance."""
        self._passed += 1
        if peer in self.peers:
            return
        if len(self.peers) < self._most_peers:
            self.peers.append(peer)
        else:
            place = self.random.below(self._passed)
            if place < self._most_peers:
                self.peers[place] = peer

    def _link(self, peer: i64) -> None:
        self._neighbours.append(peer)
        self.connections.hold(peer)
        self.listener.neighbour_up(peer)

    def _unlink(self, peer: i64) -> None:
        self._neighbours.remove(peer)
        self.connections.release(peer)
        self.listener.neighbour_down(peer)

    def _lose_child(self, peer: i64) -> None:
        if peer in self.children:
            self.children.remove(peer)
            self._unlink(peer)

    def _exchange(self, old: i64, new: i64) -> i64:
        """Watch another node instead of one."""
        if old != new:
            if new != NO_NODE:
                self.connections.hold(new)
            if old != NO_NODE:
                self.connections.release(old)
        return new

    # Failures.

    def lost(self, peer: i64) -> None:
        self._note_dead(peer)
        if peer in self.peers:
            self.peers.remove(peer)
        if peer == self.successor:
            self.successor = NO_NODE
        self._lose_child(peer)
        if peer == self.parent:
            self.parent = NO_NODE
            self.repairs.parents_lost += 1
            self.repairs.orphaned += 1
            if self._orphaned_at < 0:
                self._orphaned_at = self.environment.now()
            self._unlink(peer)
        if peer == self.second:
            self._remember_second(NO_NODE)
        if peer == self._visiting:
            self._visit(NO_NODE)
        if peer == self.predecessor:
            self._lose_predecessor()
        if self.parent == NO_NODE and self.predecessor != NO_NODE and self._visiting == NO_NODE:
            self._walk()

    def _note_dead(self, peer: i64) -> None:
        self._dead.append(peer)
        if len(self._dead) > MOST_DEAD:
            self._dead.pop(0)

    def leave(self) -> None:
        """Nothing to do: nodes that notice that this one is gone repair the list."""

    def note_recovery(self) -> None:
        """A publication has arrived from the parent: an orphan has recovered."""
        if self._orphaned_at >= 0:
            self.repairs.note(self.environment.now() - self._orphaned_at, self._is_lost)
            if not self._is_lost:
                self.repairs.soft += 1
            self._orphaned_at = -1
            self._is_lost = False
