"""SplitStream: a stream in stripes, each over a tree of its own, in which most nodes are interior in a single one.

Castro et al. (2003), over Scribe trees on Pastry (:mod:`antiphon_lab.protocols.gossip.pastry`). The thesis of M. Matos
argues about it (section 4.4) and never measures it. Each stripe has a key; the keys differ in their first digit. A node
joins a stripe by a message towards its key, and the first node on the way becomes its parent, so the interior nodes of
a stripe are those whose identifier begins as its key does. The node next to the key is the root, and a publisher hands
its publications to the root of their stripe.

A node has at most ``max_load`` children in all stripes. One with a child too many keeps the newest and drops another
one: a child in a stripe in which it should be a leaf, or the child that shares the fewest digits with the key. The
orphan asks those of its former siblings that should be interior in the stripe, then their children, and so on
(*push-down*). If all refuse, it looks for a node with room anywhere. A node refuses a child that is its ancestor.

Where this departs from the paper: an orphan without a place looks for room by a random walk; the paper keeps the nodes
that have room in a tree of their own. The first digit has as many values as there are stripes, a power of two. Topics,
silence, orders and recovery of missing publications are as for BRISA (:mod:`antiphon.fabrics.gossip.topic`). A root
that fails is replaced by the node that is next to the key then. Links keep order, as connections do: otherwise a node
might hear that it was dropped before it hears that it was accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.gossip.messages import NOWHERE, Data, Deactivate, Moved, TreePosition, structure_key
from antiphon.fabrics.gossip.options import BrisaOptions, rival_rules
from antiphon.fabrics.gossip.parents import LinkMeasurements
from antiphon.fabrics.gossip.process import Brisa
from antiphon.fabrics.gossip.sampling.service import Connections, PeerSampling, draw_without, to_vector
from antiphon.fabrics.gossip.stream import Stream, stream_of
from antiphon.fabrics.gossip.structure import Structure
from antiphon.fabrics.gossip.topic import Group
from antiphon.fabrics.gossip.trees import Trees
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import ProtocolMessage, Publication
from antiphon.kernel.process import NO_NODE, Environment
from antiphon.kernel.randomness import RandomStream, mix64
from antiphon_lab.protocols.gossip.pastry import IDENTIFIER_BITS, Pastry, identifier_of, ring_distance
from antiphon_lab.protocols.gossip.splitstream_messages import (
    StripeAccept,
    StripeDrop,
    StripeJoin,
    StripeMessage,
    StripePublish,
    StripeSeek,
)

SHARED_ROOT: Final[i64] = 1 << 40
"""Stripes are those of a topic and not of a publisher: this is the number of nobody."""

MOST_STRIPES: Final[i64] = 16
WALK_HOPS: Final[i64] = 16
"""So many nodes a walk asks for room; a node that finds none begins another one in the next period."""

PATIENCE: Final[i64] = 2
REJOIN_PERIODS: Final[i64] = 16
"""After so many periods without a place a node looks for room again, or joins anew: what it sent may be lost."""


@final
class SplitStreamOptions(BrisaOptions):
    """A publisher uses ``trees`` stripes in turn; a node has up to ``max_load`` children."""

    def __init__(
        self,
        trees: i64 = 4,
        max_load: i64 = 6,
        contacts: Sequence[int] = (0,),
        order: str = "causal",
        mixed: bool = False,
        period: i64 = 1000,
        patience: i64 = 8,
        keep: i64 = 64,
        buffer: i64 = 1024,
        join_window: i64 = 2000,
    ) -> None:
        if trees < 1 or trees > MOST_STRIPES or trees & (trees - 1) != 0:
            raise UsageError(f"the first digit of keys separates 1, 2, 4, 8 or 16 stripes, not {trees}; choose one")
        if max_load < trees:
            raise UsageError(
                f"in {trees} trees a node has almost {trees} children on average, and may have {max_load}; "
                "raise max_load"
            )
        super().__init__(
            contacts=contacts,
            order=order,
            mixed=mixed,
            trees=trees,
            period=period,
            patience=patience,
            keep=keep,
            buffer=buffer,
            join_window=join_window,
            rules=rival_rules(),
        )
        self.max_load: Final[i64] = max_load
        # How many bits tell the stripes apart.
        self.stripe_bits: Final[i64] = i64(int(trees).bit_length() - 1)


@final
class Search:
    """How a node looks for a parent in one stripe: nodes to ask, those that it has asked, and since when."""

    def __init__(self) -> None:
        self.candidates: Final[list[i64]] = []
        self.asked: Final[set[i64]] = set()
        self.periods: i64 = 0


@final
class StripeTrees(Trees):
    """The stripes of one topic at one node. The targets of a structure are the children."""

    def __init__(
        self,
        environment: Environment,
        topic: i64,
        options: SplitStreamOptions,
        overlay: Pastry,
        streams: dict[i64, Stream],
    ) -> None:
        super().__init__(environment, topic, options, overlay.neighbours(), streams)
        self._overlay: Final[Pastry] = overlay
        self._stripes: Final[i64] = options.trees
        self._stripe_bits: Final[i64] = options.stripe_bits
        self._max_load: Final[i64] = options.max_load
        self._random: Final[RandomStream] = environment.random()
        self._searches: Final[dict[i64, Search]] = {}
        self.dropped: i64 = 0

    def structure(self, key: i64) -> Structure:
        """A stripe, which begins without links; all publishers share it."""
        own = structure_key(SHARED_ROOT, key % self._stripes)
        found = self.structures.get(own)
        if found is None:
            found = Structure(own, self._overlay.me, [])
            self.structures[own] = found
        return found

    # Keys.

    def place_of(self, key: i64) -> i64:
        """The key of a stripe in the ring: its number is the first digit."""
        stripe = key % self._stripes
        low = IDENTIFIER_BITS - self._stripe_bits
        scattered = i64(mix64(int(self._topic * MOST_STRIPES + stripe + 1)) >> (64 - int(low)))
        return (stripe << low) | scattered

    def belongs(self, node: i64, key: i64) -> bool:
        """Whether a node is to be interior in a stripe."""
        return identifier_of(node) >> (IDENTIFIER_BITS - self._stripe_bits) == key % self._stripes

    def stream_load(self) -> i64:
        """The number of children in all stripes."""
        return sum(len(structure.targets) for structure in self.structures.values())

    # Publications.

    def begin(self, publication: Publication) -> None:
        structure = self.structure(publication.sequence)
        self.publish_towards(structure.key, publication)

    def publish_towards(self, key: i64, publication: Publication) -> bool:
        """Pass a publication on to the root of its stripe; true if that is here."""
        structure = self.structure(key)
        following = self._overlay.next_hop(self.place_of(key))
        if following != NO_NODE:
            self._environment.send(following, StripePublish(self._topic, structure.key, publication))
            return False
        self._send_down(structure, publication)
        return True

    def on_data(self, sender: i64, data: Data, is_new: bool) -> None:
        structure = self.structure(data.key)
        structure.quiet = 0
        # A publisher has its publication already, and hands it on when it comes down the tree.
        if is_new or (data.source == self._me and sender in structure.parents):
            self._send_down(structure, data.publication)
        if sender not in structure.parents:
            self._environment.send(sender, Deactivate(structure.key, self._topic))

    def on_fetch_response(self, publication: Publication, sender: i64, reused: i64) -> None:
        self._send_down(self.structure(publication.sequence), publication)

    def _send_down(self, structure: Structure, publication: Publication) -> None:
        data = Data(publication, structure.key, NOWHERE, False)
        for child in structure.targets:
            self._environment.send(child, data)

    # Finding a place.

    def tick(self) -> None:
        """A period has passed: take a place in every stripe."""
        for stripe in range(self._stripes):
            structure = self.structure(stripe)
            structure.quiet += 1
            if self._overlay.next_hop(self.place_of(structure.key)) == NO_NODE:
                self._be_root(structure)
            elif len(structure.parents) == 0:
                self._search_again(structure)

    def _be_root(self, structure: Structure) -> None:
        """No other node is nearer to the key."""
        for parent in list(structure.parents):
            structure.parents.remove(parent)
            self._environment.send(parent, Deactivate(structure.key, self._topic))
        if structure.position.depth != 0:
            self._move(structure, TreePosition(vec[i64]([self._me]), 0))

    def _search_again(self, structure: Structure) -> None:
        search = self._searches.get(structure.key)
        if search is None:
            self._searches[structure.key] = Search()
            self._join(structure)
            return
        search.periods += 1
        if search.periods % REJOIN_PERIODS == 0:
            search.asked.clear()
            self._join(structure)
        elif search.periods % PATIENCE == 0:
            # A request along the digits always drops somebody, once nodes are full.
            self._seek(structure)

    def _join(self, structure: Structure) -> None:
        """Ask the next node on the way to the key."""
        following = self._overlay.next_hop(self.place_of(structure.key))
        if following != NO_NODE:
            self._environment.send(following, StripeJoin(self._me, self._topic, structure.key))

    def _seek(self, structure: Structure) -> None:
        """Ask nodes that are met by chance."""
        peer = self._any_node()
        if peer != NO_NODE:
            self._environment.send(peer, StripeSeek(self._me, self._topic, structure.key, WALK_HOPS))

    def _any_node(self) -> i64:
        # Tables name those that came first more often than others; leaf sets name everybody equally often.
        return draw_without(self._random, self._neighbours, NO_NODE)

    def on_join(self, sender: i64, key: i64) -> None:
        """A node wants to be a child: it is accepted, and if that is one too many another one is dropped."""
        structure = self.structure(key)
        if structure.position.passes(sender) or sender in structure.parents:
            self._drop(structure, sender)
            return
        self._accept(structure, sender)
        if self.stream_load() > self._max_load:
            self._drop_one()
        if len(structure.parents) == 0 and structure.key not in self._searches:
            self._search_again(structure)

    def on_seek(self, message: StripeSeek) -> None:
        """A node looks for room."""
        structure = self.structure(message.key)
        orphan = message.source
        fits = structure.position.depth >= 0 and not structure.position.passes(orphan) and orphan != self._me
        if fits and (self.stream_load() < self._max_load or orphan in structure.targets):
            self._accept(structure, orphan)
        elif message.hops > 0:
            peer = self._any_node()
            if peer != NO_NODE:
                self._environment.send(peer, StripeSeek(orphan, self._topic, message.key, message.hops - 1))

    def _accept(self, structure: Structure, child: i64) -> None:
        if child not in structure.targets:
            structure.targets.append(child)
            self._overlay.connections.hold(child)
        self._environment.send(child, StripeAccept(self._me, self._topic, structure.key, structure.position))

    def _drop(self, structure: Structure, child: i64) -> None:
        """Refuse a child, and name those of the others that are interior in the stripe."""
        self._remove_child(structure, child)
        self.dropped += 1
        others = [peer for peer in structure.targets if self.belongs(peer, structure.key)]
        self._environment.send(child, StripeDrop(self._me, self._topic, structure.key, to_vector(others)))

    def _remove_child(self, structure: Structure, child: i64) -> None:
        if child in structure.targets:
            structure.targets.remove(child)
            self._overlay.connections.release(child)

    def _drop_one(self) -> None:
        """Part with the child that this node should have least."""
        foreign: list[tuple[i64, i64]] = []
        for structure in self.structures.values():
            if not self.belongs(self._me, structure.key):
                foreign.extend((structure.key, child) for child in structure.targets)
        if len(foreign) > 0:
            key, child = foreign[self._random.below(len(foreign))]
            self._drop(self.structure(key), child)
            return
        worst: Structure | None = None
        victim = NO_NODE
        for structure in self.structures.values():
            for child in structure.targets:
                if worst is None or self._is_worse(structure, child, worst, victim):
                    worst, victim = structure, child
        if worst is not None:
            self._drop(worst, victim)

    def _is_worse(self, structure: Structure, child: i64, than: Structure, other: i64) -> bool:
        """Whether a child shares fewer digits with the key of its stripe than another one, or is farther from it."""
        mine, theirs = self.place_of(structure.key), self.place_of(than.key)
        shared = self._overlay.shared_digits(identifier_of(child), mine)
        others = self._overlay.shared_digits(identifier_of(other), theirs)
        if shared != others:
            return shared < others
        return ring_distance(identifier_of(child), mine) > ring_distance(identifier_of(other), theirs)

    def on_accept(self, sender: i64, message: StripeAccept) -> None:
        """A node has taken this one for a child."""
        structure = self.structure(message.key)
        is_root = self._overlay.next_hop(self.place_of(structure.key)) == NO_NODE
        if (
            is_root
            or message.position.passes(self._me)
            or (len(structure.parents) > 0 and sender not in structure.parents)
        ):
            self._environment.send(sender, Deactivate(structure.key, self._topic))
            return
        self._searches.pop(structure.key, None)
        if sender not in structure.parents:
            structure.parents.append(sender)
            self._overlay.connections.hold(sender)
        self._follow(structure, message.position)

    def on_drop(self, sender: i64, message: StripeDrop) -> None:
        """The parent has no room any more, or a node that was asked has none."""
        structure = self.structure(message.key)
        if sender in structure.parents:
            self._lose_parent(structure, sender)
        elif len(structure.parents) > 0:
            return
        search = self._searches.setdefault(structure.key, Search())
        search.candidates.extend(message.nodes)
        while len(search.candidates) > 0:
            peer = search.candidates.pop(int(self._random.below(len(search.candidates))))
            if peer != self._me and peer not in search.asked and peer not in structure.targets:
                search.asked.add(peer)
                self._environment.send(peer, StripeJoin(self._me, self._topic, structure.key))
                return
        self._seek(structure)

    def _lose_parent(self, structure: Structure, parent: i64) -> None:
        structure.parents.remove(parent)
        self._overlay.connections.release(parent)
        self._move(structure, NOWHERE)

    # Places of others.

    def _follow(self, structure: Structure, position: TreePosition) -> None:
        """The own place is below that of the parent."""
        if position.depth < 0:
            self._move(structure, NOWHERE)
        else:
            self._move(structure, TreePosition(append(vec[i64](position.path), self._me), position.depth + 1))

    def _move(self, structure: Structure, position: TreePosition) -> None:
        structure.position = position
        for child in structure.targets:
            self._environment.send(child, Moved(structure.key, self._topic, position))

    def on_moved(self, sender: i64, key: i64, position: TreePosition) -> None:
        structure = self.structure(key)
        if sender not in structure.parents:
            return
        if position.passes(self._me):
            self._lose_parent(structure, sender)
            self._environment.send(sender, Deactivate(structure.key, self._topic))
            self._searches.setdefault(structure.key, Search())
            self._seek(structure)
        else:
            self._follow(structure, position)

    def on_deactivate(self, sender: i64, key: i64) -> None:
        self._remove_child(self.structure(key), sender)

    def on_activate(self, sender: i64, key: i64) -> None:
        """Nothing to do: nodes ask for a place by messages of their own."""

    def seen_ahead(self, structure: Structure) -> None:
        """Nothing to do: a node knows its parents, and misses publications by their numbers."""

    # Links.

    def neighbour_up(self, peer: i64) -> None:
        self.links[peer] = LinkMeasurements()

    def neighbour_down(self, peer: i64) -> None:
        self.links.pop(peer, None)

    def link_lost(self, peer: i64) -> None:
        """A node has failed: it is no child any more, and where it was the parent another one is needed."""
        for structure in self.structures.values():
            self._remove_child(structure, peer)
            if peer in structure.parents:
                self.repairs.parents_lost += 1
                self._lose_parent(structure, peer)
                self._searches[structure.key] = Search()
                self._join(structure)


class SplitStreamGroup(Group):
    """A topic at one node."""

    def new_sampling(self, connections: Connections) -> PeerSampling:
        options = self._options
        assert isinstance(options, SplitStreamOptions), "made with them"
        return Pastry(self._environment, self.topic, connections, self, options.stripe_bits)

    def new_trees(self) -> Trees:
        options, overlay = self._options, self.sampling
        assert isinstance(options, SplitStreamOptions), "made with them"
        assert isinstance(overlay, Pastry), "made as such"
        return StripeTrees(self._environment, self.topic, options, overlay, self.streams)

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        if isinstance(message, StripeMessage):
            self._on_stripe(sender, message)
        else:
            super().receive(sender, message)

    def _on_stripe(self, sender: i64, message: StripeMessage) -> None:
        trees = self.stripes()
        if isinstance(message, StripeJoin):
            trees.on_join(sender, message.key)
        elif isinstance(message, StripeSeek):
            trees.on_seek(message)
        elif isinstance(message, StripeAccept):
            trees.on_accept(sender, message)
        elif isinstance(message, StripeDrop):
            trees.on_drop(sender, message)
        elif isinstance(message, StripePublish) and trees.publish_towards(message.key, message.publication):
            self._take_at_root(message.publication)

    def _take_at_root(self, publication: Publication) -> None:
        """The root delivers what it hands down."""
        if self.delivery.is_synchronised and stream_of(self.streams, publication.source).take(publication):
            self.wake()
            self.application.take(publication)

    def link_lost(self, peer: i64) -> None:
        super().link_lost(peer)
        self.stripes().link_lost(peer)

    def stripes(self) -> StripeTrees:
        """The trees, with SplitStream's additions."""
        trees = self.trees
        assert isinstance(trees, StripeTrees), "made as such"
        return trees


class SplitStream(Brisa):
    """SplitStream at one node: topics and the application are served as by BRISA."""

    def new_group(self, topic: i64) -> Group:
        now = self.environment.now()
        return SplitStreamGroup(self.environment, topic, self.options, self.connections, self.seeds, now)

    def mistaken_for_neighbour(self, sender: i64, topic: i64) -> None:
        """Links of the ring need not agree at both ends."""
