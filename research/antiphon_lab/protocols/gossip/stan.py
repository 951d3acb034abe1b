"""StaN: overlays of many topics whose links fall onto each other.

Thesis of M. Matos, section 3.2. Every topic has a random overlay of its own, so that every node gets all of its topics
and nothing else. That costs a link for each entry of each view. StaN makes overlapping topics choose the same
neighbours: a node ranks all others by a pseudo-random weight (:mod:`antiphon_lab.protocols.gossip.stan_weights`),
collects members of each topic by random walks, and replaces entries by others of lower weight
(:mod:`antiphon_lab.protocols.gossip.stan_view`; Algorithm 2). The number of **logical** links, entries of views, stays;
the number of **physical** links, different neighbours, falls to about half. Events are flooded along the views
(:mod:`antiphon_lab.protocols.gossip.crosspost`; Algorithm 3).

**Fixed point.** Ranks within a view only ever fall. Where members stay the same, no walk changes anything any more when
each view holds the lowest-ranking members of its topic. :mod:`antiphon_lab.universes.stan_links` computes that
directly.

Where this departs from the thesis:

* A walk continues with its remaining hops. In line 11 it starts afresh at every hop and never ends.
* A node does not take itself into its view, although walks meet it.
* **No node is lost.** As published, a node may be dropped from the last view that held it, before it was met by nodes
  that would rank it high. No walk finds it then, and no event. So a node that a walk visits considers the node that
  sent it (``learning``); the thesis proposes that to save messages (section 3.5). It may also learn all nodes that the
  walk met, or keep some entries as they were drawn.
* Neighbours that fail are dropped when the link breaks, and are not taken up again for a while. In the thesis the peer
  sampling service does that, and it does not mention nodes that still name them.
* A node without changes for a while sends no walks; the thesis proposes longer periods (section 3.5).
* Newcomers come by the rules of Scamp, through a member that a rendezvous names. A newcomer is subscribed when a
  node has it in its view.

There are no acknowledgements: an event reaches all nodes if the overlay is connected.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import append, vec
from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.gossip.sampling.service import Connections, Neighbourhood, SamplingMessage
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import NONE, UNSPECIFIED, ProtocolMessage
from antiphon.kernel.process import NO_NODE, Environment, Process
from antiphon_lab.protocols.gossip.crosspost import CrosspostFlood, SimpleFlood
from antiphon_lab.protocols.gossip.scamp import Kept
from antiphon_lab.protocols.gossip.stan_messages import Found, Post, Walk
from antiphon_lab.protocols.gossip.stan_options import Rendezvous, StanOptions
from antiphon_lab.protocols.gossip.stan_view import AlignedView, Suspects
from antiphon_lab.protocols.gossip.stan_weights import Ranking

ROUND: Final[i64] = 0
"""The name of the timer of rounds."""

PATIENCE_ROUNDS: Final[i64] = 4
"""The number of rounds that a newcomer waits before it asks another node. A subscription travels until a node keeps it,
and a second request is kept as often again: views would grow.
"""


@mypyc_attr(allow_interpreted_subclasses=True)
class Stan(Process):
    """StaN at one node."""

    def __init__(self, environment: Environment, options: StanOptions, rendezvous: Rendezvous) -> None:
        super().__init__(environment)
        self.options: Final[StanOptions] = options
        self.connections: Final = Connections(environment)
        self._rendezvous: Final[Rendezvous] = rendezvous
        self._listener: Final = Neighbourhood()
        self._views: Final[dict[i64, AlignedView]] = {}
        self._ranking: Final = Ranking(self.me, options.key)
        self._suspects: Final = Suspects()
        flood = CrosspostFlood if options.shares_links else SimpleFlood
        self.flood: Final[CrosspostFlood] = flood(environment, self._views, options.remembered)
        # Topics in which no node is known to have this one in its view, and the round of the last attempt.
        self._entering: Final[dict[i64, i64]] = {}
        # The first views are used when all nodes are present.
        self._first_views: Final[dict[i64, list[int]]] = {}
        self._late: Final[list[i64]] = []
        self._is_awake: bool = False
        self._still_rounds: i64 = 0
        self._changes: i64 = 0
        self.walks_sent: i64 = 0
        self.entries_sent: i64 = 0
        # How often a view had lost its last entry.
        self.isolations: i64 = 0

    # Before the start.

    def begin_as_member(self, topic: i64, view: list[int]) -> None:
        """Be subscribed from the start, in an overlay that is there already."""
        self._rendezvous.enter(topic, self.me)
        self._first_views[topic] = view

    def begin_as_newcomer(self, topic: i64) -> None:
        """Subscribe as soon as the node is up."""
        self._late.append(topic)

    def start(self) -> None:
        for topic, view in self._first_views.items():
            self._open(topic).begin_with(view)
            self.environment.subscribed(topic)
        self._first_views.clear()
        for topic in self._late:
            self._enter(topic)
        self._late.clear()
        self._wake()

    # Operations of the application.

    def publish(self, payload: bytes, topic: i64 = 0, order: i64 = UNSPECIFIED) -> i64:
        self.check_only_order(order, NONE)
        return self.crosspost(payload, [topic])

    def crosspost(self, payload: bytes, topics: list[i64]) -> i64:
        """Post an event to several topics; the answer is its sequence number in the first."""
        for topic in topics:
            if topic not in self._views:
                raise UsageError(
                    f"node {self.me} is not subscribed to topic {topic}; subscribe before publishing on it"
                )
        return self.flood.post(payload, topics)

    def subscribe(self, topic: i64) -> None:
        if topic in self._views:
            raise UsageError(f"node {self.me} is subscribed to topic {topic} already; unsubscribe first")
        self._enter(topic)
        self._wake()

    def unsubscribe(self, topic: i64) -> None:
        if topic not in self._views:
            raise UsageError(f"node {self.me} is not subscribed to topic {topic} and cannot unsubscribe")
        if topic in self._entering:
            # No other node knows of it yet: both take effect at once.
            self._is_subscribed(topic)
        self._views[topic].leave()
        del self._views[topic]
        self._rendezvous.leave(topic, self.me)
        self.environment.unsubscribed(topic)

    def _open(self, topic: i64) -> AlignedView:
        view = AlignedView(
            self.environment, topic, self.connections, self._listener, self.options, self._ranking, self._suspects
        )
        self._views[topic] = view
        return view

    def _enter(self, topic: i64) -> None:
        """Come to a topic in which there may be others."""
        view = self._open(topic)
        self._entering[topic] = self._suspects.round
        self._join(topic, view)
        self._rendezvous.enter(topic, self.me)

    def _join(self, topic: i64, view: AlignedView) -> None:
        contact = self._rendezvous.contact(topic, self.me, self.environment.random())
        if contact != NO_NODE:
            view.join(contact)
        else:
            self._is_subscribed(topic)

    def _ask_again(self, topic: i64, view: AlignedView) -> None:
        """No node has kept this one in its view yet: perhaps the contact had failed."""
        if self._suspects.round - self._entering[topic] >= PATIENCE_ROUNDS:
            self._entering[topic] = self._suspects.round
            self._join(topic, view)

    def _is_subscribed(self, topic: i64) -> None:
        if self._entering.pop(topic, -1) >= 0:
            self.environment.subscribed(topic)

    # Rounds.

    def _wake(self) -> None:
        """Send walks again, if this node had stopped to."""
        self._still_rounds = 0
        if not self._is_awake:
            self._is_awake = True
            period = self.options.period
            delay = period - self.environment.now() % period
            if not self.options.in_step:
                delay = 1 + self.environment.random().below(period)
            self.environment.set_timer(delay, ROUND)

    def expire(self, name: i64) -> None:
        self._suspects.round += 1
        for topic in list(self._views):
            view = self._views[topic]
            if topic in self._entering:
                self._ask_again(topic, view)
            elif len(view.neighbours()) == 0 and self._rendezvous.count(topic) > 1:
                self.isolations += 1
                self._join(topic, view)
            self._send_walk(view)
        changes = self._all_changes()
        self._still_rounds = self._still_rounds + 1 if changes == self._changes else 0
        self._changes = changes
        patience = self.options.patience
        if patience > 0 and self._still_rounds >= patience and len(self._entering) == 0:
            self._is_awake = False
        else:
            self.environment.set_timer(self.options.period, ROUND)

    def _all_changes(self) -> i64:
        changes: i64 = 0
        for view in self._views.values():
            changes += view.swaps + view.resizes
        return changes

    def _send_walk(self, view: AlignedView) -> None:
        """Begin a walk (Algorithm 2, lines 1 to 4)."""
        neighbours = view.neighbours()
        if len(neighbours) > 0:
            first = neighbours[self.environment.random().below(len(neighbours))]
            self.walks_sent += 1
            self.environment.send(first, Walk(self.me, view.topic, self.options.hops, vec[i64]()))

    # Calls of the host.

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        self._suspects.clear(sender)
        if isinstance(message, Walk):
            self._visited(message)
        elif isinstance(message, Found):
            view = self._views.get(message.topic)
            if view is not None:
                self._improve(view, message.known)
        elif isinstance(message, Post):
            self.flood.receive(sender, message)
        else:
            assert isinstance(message, SamplingMessage), "StaN has no other message"
            self._sampled(sender, message)

    def _visited(self, walk: Walk) -> None:
        """A walk has come by (Algorithm 2, lines 5 to 13)."""
        view = self._views.get(walk.topic)
        if view is None:
            # Not a member any more: the walk ends here.
            self._end(walk, walk.known)
            return
        neighbours = view.neighbours()
        count: i64 = len(neighbours)
        known = vec[i64](capacity=len(walk.known) + count + 1)
        for node in walk.known:
            known = append(known, node)
        known = append(known, self.me)
        for node in neighbours:
            known = append(known, node)
        if walk.hops > 0 and count > 0:
            following = neighbours[self.environment.random().below(count)]
            self.entries_sent += len(known)
            self.environment.send(following, Walk(walk.source, walk.topic, walk.hops - 1, known))
        else:
            self._end(walk, known)
        if self.options.learns_walks:
            self._improve(view, walk.known)
        if self.options.learns_sources:
            self._improve_by(view, walk.source)

    def _end(self, walk: Walk, known: vec[i64]) -> None:
        self.entries_sent += len(known)
        self.environment.send(walk.source, Found(self.me, walk.topic, known))

    def _improve(self, view: AlignedView, known: vec[i64]) -> None:
        before = view.swaps + view.resizes
        view.found(known)
        if view.swaps + view.resizes != before:
            self._wake()

    def _improve_by(self, view: AlignedView, node: i64) -> None:
        before = view.swaps
        view.consider(node)
        if view.swaps != before:
            self._wake()

    def _sampled(self, sender: i64, message: SamplingMessage) -> None:
        view = self._views.get(message.topic)
        if view is None:
            return
        if isinstance(message, Kept):
            self._is_subscribed(message.topic)
        before = view.resizes
        view.receive(sender, message)
        if view.resizes != before:
            self._wake()

    def peer_lost(self, peer: i64) -> None:
        self._suspects.add(peer)
        for view in self._views.values():
            view.lost(peer)
        self._wake()

    def peer_found(self, peer: i64) -> None:
        self._suspects.clear(peer)

    def leave(self) -> None:
        for topic, view in self._views.items():
            view.leave()
            self._rendezvous.leave(topic, self.me)

    def unfinished(self) -> i64:
        return len(self._entering)

    # For measurements.

    def topics(self) -> list[i64]:
        """The topics that this node is subscribed to."""
        return list(self._views)

    def view(self, topic: i64) -> list[i64]:
        """The neighbours in a topic."""
        return self._views[topic].neighbours()

    def logical_links(self) -> i64:
        """Entries of all views together."""
        count: i64 = 0
        for view in self._views.values():
            count += len(view.neighbours())
        return count

    def physical_links(self) -> i64:
        """Different neighbours of all views together."""
        return self.connections.count()
