"""HyParView: a small active view of links that both ends know of, and a larger passive view to replace them from.

Leitão, Pereira and Rodrigues (2007), with the expansion factor of the thesis (section 4.2.1). A newcomer sends ``Join``
to a contact, which makes it a neighbour and sends random walks through the overlay; where a walk ends the newcomer gets
another neighbour, and on the way it is remembered. A neighbour that fails is replaced from the passive view, by a
request that a full node refuses unless the asker has nobody. Shuffles keep the passive views fresh.

The active view aims at ``active`` links and may grow to ``active * expansion``. With a hard bound a newcomer drives
out a neighbour, which looks for another one and drives out somebody there, and so on; with the slack between the two, a
node that loses a neighbour to a newcomer mostly has enough others and does nothing.

Where this departs from the published rules:

* A request of low priority is accepted while there is room up to the expanded bound. (The thesis does not say.)
* ``Join`` and the end of a walk are answered by ``Connected``, which stands for the connection that is opened there.
* Messages may be lost. A node that hears something that only neighbours send from a node that is none makes it one if
  there is room, and else says ``Disconnect``: views that differ because a message was lost agree again.
* ``Disconnect`` is said again until it is answered by ``Parted``: a silent node would never find out. It is
  said to a node whose link broke too, which may live, perhaps in a new life that its neighbours took for the old.
* A ``Join`` of a node that is in the view already is that of a new life: the neighbour goes down and comes up again.
"""

from __future__ import annotations

from typing import Any, Final, final

from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.gossip.sampling.service import (
    Connections,
    Neighbourhood,
    PeerSampling,
    SamplingMessage,
    draw_some,
    draw_without,
    to_vector,
)
from antiphon.kernel.errors import UsageError
from antiphon.kernel.process import NO_NODE, Environment

FEWEST_LINKS: Final = 3
"""With fewer links per node there is no graph that is more than a ring."""

REQUESTS_PER_PERIOD: Final = 4
"""How many nodes are asked to become neighbours in one period, one after the other."""

PARTING_PERIODS: Final = 8
"""For so many periods a node that is no neighbour any more is told so again, until it has answered."""

PATIENCE_PERIODS: Final = 3
"""After so many periods without an answer a request counts as refused; the message may have been lost."""


@final
class HyParViewOptions:
    """The parameters of HyParView, with the defaults of its authors where the thesis has none.

    ``active`` links are kept up, at most ``active * expansion`` are had; ``passive`` others are remembered. Walks of
    newcomers have ``walk`` hops and are remembered after all but ``passive_walk`` of them. A shuffle is sent every
    ``shuffle_periods`` ticks, with ``shuffle_active`` neighbours and ``shuffle_passive`` others.
    """

    def __init__(
        self,
        active: i64 = 4,
        passive: i64 = 30,
        expansion: float = 2.0,
        walk: i64 = 6,
        passive_walk: i64 = 3,
        shuffle_periods: i64 = 10,
        shuffle_active: i64 = 3,
        shuffle_passive: i64 = 4,
    ) -> None:
        if active < 1:
            raise UsageError(
                f"an active view of {active} links leaves every node alone; choose at least 1, for example 4"
            )
        if passive < active:
            raise UsageError(
                f"a passive view of {passive} cannot replace an active view of {active} after a failure; choose at "
                f"least {active}, for example 30"
            )
        if expansion < 1:
            raise UsageError(
                f"an expansion factor of {expansion} would drop links below the active view of {active}; choose 1 (a "
                "hard bound) or more, for example 2"
            )
        capacity = int(int(active) * expansion)
        if capacity < FEWEST_LINKS:
            raise UsageError(
                f"with at most {capacity} links per node (active {active}, expansion {expansion}) an overlay is a "
                f"chain or a ring, and a newcomer cuts it; let active times expansion be at least {FEWEST_LINKS}"
            )
        if not 0 <= passive_walk <= walk:
            raise UsageError(
                f"a walk of {walk} hops never has {passive_walk} left; choose passive_walk from 0 to {walk}"
            )
        if shuffle_periods < 1:
            raise UsageError(f"a shuffle every {shuffle_periods} periods cannot be; choose 1 or more, for example 10")
        if shuffle_active < 0 or shuffle_passive < 0:
            raise UsageError("a shuffle carries numbers of nodes, which cannot be negative; choose for example 3 and 4")
        self.active: Final[i64] = active
        self.passive: Final[i64] = passive
        self.capacity: Final[i64] = capacity
        self.walk: Final[i64] = walk
        self.passive_walk: Final[i64] = passive_walk
        self.shuffle_periods: Final[i64] = shuffle_periods
        self.shuffle_active: Final[i64] = shuffle_active
        self.shuffle_passive: Final[i64] = shuffle_passive


@mypyc_attr(acyclic=True)
class Join(SamplingMessage):
    """The source wants to enter the overlay through the receiver."""


@mypyc_attr(acyclic=True)
class ForwardJoin(SamplingMessage):
    """A walk for the source, which has joined; ``hops`` are left."""

    def __init__(self, source: i64, topic: i64, hops: i64) -> None:
        super().__init__(source, topic)
        self.hops: Final[i64] = hops


@mypyc_attr(acyclic=True)
class Connected(SamplingMessage):
    """The sender has made the receiver its neighbour."""


@mypyc_attr(acyclic=True)
class Disconnect(SamplingMessage):
    """The sender is no neighbour of the receiver any more."""


@mypyc_attr(acyclic=True)
class Parted(SamplingMessage):
    """The sender knows that the receiver is no neighbour any more."""


@mypyc_attr(acyclic=True)
class NeighbourRequest(SamplingMessage):
    """The sender wants to be a neighbour; it is ``urgent`` if it has no other."""

    def __init__(self, source: i64, topic: i64, is_urgent: bool) -> None:
        super().__init__(source, topic)
        self.is_urgent: Final[bool] = is_urgent


@mypyc_attr(acyclic=True)
class NeighbourRefusal(SamplingMessage):
    """The sender has neighbours enough."""


@mypyc_attr(acyclic=True)
class Shuffle(SamplingMessage):
    """Nodes that the source knows, on a walk of which ``hops`` are left."""

    def __init__(self, source: i64, topic: i64, nodes: vec[i64], hops: i64) -> None:
        super().__init__(source, topic)
        self.nodes: Final[vec[i64]] = nodes
        self.hops: Final[i64] = hops


@mypyc_attr(acyclic=True)
class ShuffleReply(SamplingMessage):
    """Nodes that the sender knows, in return for a shuffle."""

    def __init__(self, source: i64, topic: i64, nodes: vec[i64]) -> None:
        super().__init__(source, topic)
        self.nodes: Final[vec[i64]] = nodes


class HyParView(PeerSampling):
    """HyParView at one node."""

    def __init__(
        self,
        environment: Environment,
        topic: i64,
        connections: Connections,
        listener: Neighbourhood,
        options: HyParViewOptions,
    ) -> None:
        super().__init__(environment, topic, connections, listener)
        self._options: Final[HyParViewOptions] = options
        self._active: list[i64] = []
        self._passive: list[i64] = []
        # The node that was asked to be a neighbour, and how long ago; those not to be asked again in this period.
        self._asked: i64 = NO_NODE
        self._asked_periods: i64 = 0
        self._tried: list[i64] = []
        # Former neighbours that have not answered, and how often each was told.
        self._parting: Final[dict[i64, i64]] = {}
        self._periods: i64 = 0
        # The nodes of the last shuffle; their places in the passive view go first to nodes that come in return.
        self._shuffled: list[i64] = []

    # Questions of others.

    def neighbours(self) -> list[i64]:
        return self._active

    def is_neighbour(self, peer: i64) -> bool:
        return peer in self._active

    def passive_view(self) -> list[i64]:
        """The nodes that could replace neighbours."""
        return self._passive

    def sample(self, count: i64) -> list[i64]:
        return draw_some(self.random, self._passive, count)

    def join(self, contact: i64) -> None:
        self.environment.send(contact, Join(self.me, self.topic))

    def leave(self) -> None:
        for peer in list(self._active):
            self._remove(peer)
            self._part(peer)
        self._stop_asking()

    def heard_from(self, sender: i64) -> None:
        if sender in self._active:
            return
        if len(self._active) < self._options.capacity:
            self._add(sender)
        else:
            self.environment.send(sender, Disconnect(self.me, self.topic))

    def on_wanted(self, peer: i64) -> None:
        if peer not in self._active:
            self.environment.send(peer, NeighbourRequest(self.me, self.topic, True))

    # The periodic part.

    def tick(self) -> None:
        self._periods += 1
        self._tried.clear()
        if len(self._parting) > 0:
            self.part_again()
        if self._asked != NO_NODE:
            self._asked_periods += 1
            if self._asked_periods >= PATIENCE_PERIODS:
                self._stop_asking()
        if self._periods % self._options.shuffle_periods == 0:
            self._shuffle()
        self._replace()

    def _shuffle(self) -> None:
        """Send some of what this node knows on a walk."""
        target = draw_without(self.random, self._active, NO_NODE)
        if target == NO_NODE:
            return
        self._shuffled = draw_some(self.random, self._passive, self._options.shuffle_passive)
        nodes = [self.me, *draw_some(self.random, self._active, self._options.shuffle_active), *self._shuffled]
        self.environment.send(target, Shuffle(self.me, self.topic, to_vector(nodes), self._options.walk))

    # Messages.

    def receive(self, sender: i64, message: SamplingMessage) -> None:
        if isinstance(message, ForwardJoin):
            self._walk(sender, message)
        elif isinstance(message, Shuffle):
            self._shuffled_by(sender, message)
        elif isinstance(message, ShuffleReply):
            self._integrate(message.nodes, self._shuffled)
        elif isinstance(message, Join):
            self._joined(message.source)
        elif isinstance(message, Connected):
            self._add(sender)
        elif isinstance(message, Disconnect):
            self._let_go_by(sender)
        elif isinstance(message, Parted):
            self._parting.pop(sender, None)
        elif isinstance(message, NeighbourRequest):
            self._requested(sender, message)
        elif isinstance(message, NeighbourRefusal) and sender == self._asked:
            self._stop_asking()
            self._replace()

    def _let_go_by(self, sender: i64) -> None:
        """Somebody says that this node is no neighbour of it any more."""
        self.environment.send(sender, Parted(self.me, self.topic))
        self._parting.pop(sender, None)
        if sender in self._active:
            self._remove(sender)
            self._remember(sender)
            self._replace()

    def _joined(self, newcomer: i64) -> None:
        """Somebody enters the overlay here: it becomes a neighbour, and walks look for more of them."""
        if newcomer == self.me:
            return
        if newcomer in self._active:
            self._remove(newcomer)
        walk = ForwardJoin(newcomer, self.topic, self._options.walk)
        for peer in self._active:
            self.environment.send(peer, walk)
        self._add(newcomer)
        self.environment.send(newcomer, Connected(self.me, self.topic))

    def _walk(self, sender: i64, message: ForwardJoin) -> None:
        """A walk for a newcomer goes on, or ends here."""
        newcomer = message.source
        following = NO_NODE
        if message.hops > 0 and len(self._active) > 1:
            following = draw_without(self.random, self._active, sender)
        if following == NO_NODE or following == newcomer:  # noqa: SIM109 (a tuple would box both)
            if newcomer != self.me and newcomer not in self._active:
                self._add(newcomer)
                self.environment.send(newcomer, Connected(self.me, self.topic))
            return
        if message.hops == self._options.passive_walk:
            self._remember(newcomer)
        self.environment.send(following, ForwardJoin(newcomer, self.topic, message.hops - 1))

    def _requested(self, sender: i64, message: NeighbourRequest) -> None:
        if message.is_urgent or len(self._active) < self._options.capacity or sender in self._active:
            self._add(sender)
            self.environment.send(sender, Connected(self.me, self.topic))
        else:
            self.environment.send(sender, NeighbourRefusal(self.me, self.topic))

    def _shuffled_by(self, sender: i64, message: Shuffle) -> None:
        """A shuffle goes on, or ends here and is answered."""
        if message.hops > 0 and len(self._active) > 1:
            following = draw_without(self.random, self._active, sender)
            if following != message.source:
                shorter = Shuffle(message.source, self.topic, message.nodes, message.hops - 1)
                self.environment.send(following, shorter)
                return
        if message.source == self.me:
            return
        given = draw_some(self.random, self._passive, len(message.nodes))
        self.environment.send(message.source, ShuffleReply(self.me, self.topic, to_vector(given)))
        self._integrate(message.nodes, given)

    # The active view.

    def _add(self, peer: i64) -> None:
        """Make a node a neighbour; where there is no room another one has to go."""
        if peer == self._asked:
            self._stop_asking()
        if peer == self.me or peer in self._active:
            return
        if len(self._active) >= self._options.capacity:
            evicted = draw_without(self.random, self._active, NO_NODE)
            self._remove(evicted)
            self._part(evicted)
            self._remember(evicted)
        if peer in self._passive:
            self._passive.remove(peer)
        self._parting.pop(peer, None)
        self._active.append(peer)
        self.connections.hold(peer)
        self.listener.neighbour_up(peer)

    def _remove(self, peer: i64) -> None:
        self._active.remove(peer)
        self.connections.release(peer)
        self.listener.neighbour_down(peer)

    def _part(self, peer: i64) -> None:
        """Tell a node that it is no neighbour any more."""
        self._parting[peer] = 0
        self.environment.send(peer, Disconnect(self.me, self.topic))

    def part_again(self) -> bool:
        for peer, told in list(self._parting.items()):
            if told >= PARTING_PERIODS:
                del self._parting[peer]
            else:
                self._parting[peer] = told + 1
                self.environment.send(peer, Disconnect(self.me, self.topic))
        return len(self._parting) > 0

    def lost(self, peer: i64) -> None:
        self._parting.pop(peer, None)
        if peer in self._passive:
            self._passive.remove(peer)
        if peer == self._asked:
            self._stop_asking()
        if peer in self._active:
            self._remove(peer)
            # If it lives, in a new life perhaps, it may take this node for its neighbour and be silent.
            self._part(peer)
        self._replace()

    def _stop_asking(self) -> None:
        if self._asked != NO_NODE:
            self.connections.release(self._asked)
            self._asked = NO_NODE

    def _replace(self) -> None:
        """If there are too few neighbours, ask somebody of the passive view to become one."""
        if self._asked != NO_NODE or len(self._active) >= self._options.active:
            return
        if len(self._tried) >= REQUESTS_PER_PERIOD:
            return
        candidates = [peer for peer in self._passive if peer not in self._tried]
        if len(candidates) == 0:
            return
        peer = candidates[self.random.below(len(candidates))]
        self._tried.append(peer)
        self._asked = peer
        self._asked_periods = 0
        # Opening the connection is what finds out whether it is still there.
        self.connections.hold(peer)
        self.environment.send(peer, NeighbourRequest(self.me, self.topic, len(self._active) == 0))

    # The passive view.

    def _remember(self, peer: i64) -> None:
        """Add a node to the passive view, in the place of a random one if it is full."""
        if peer == self.me or peer in self._active or peer in self._passive:
            return
        if len(self._passive) < self._options.passive:
            self._passive.append(peer)
        else:
            self._passive[self.random.below(len(self._passive))] = peer

    def _integrate(self, nodes: vec[i64], given: list[i64]) -> None:
        """Add nodes to the passive view, at first in the places of those that were given away."""
        spare = list(given)
        for peer in nodes:
            if peer == self.me or peer in self._active or peer in self._passive:
                continue
            while len(self._passive) >= self._options.passive and len(spare) > 0:
                leaving = spare.pop()
                if leaving in self._passive:
                    self._passive.remove(leaving)
            self._remember(peer)


NUMBERED: Final[dict[int, type[Any]]] = {
    53: Join,
    54: ForwardJoin,
    55: Connected,
    56: Disconnect,
    57: NeighbourRequest,
    58: NeighbourRefusal,
    59: Shuffle,
    60: ShuffleReply,
    61: Parted,
}
"""The messages by their numbers on the wire (:class:`antiphon.fabrics.fabric.Implementation`)."""
