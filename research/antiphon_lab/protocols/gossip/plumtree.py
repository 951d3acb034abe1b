"""Plumtree: a tree of eager links in an epidemic overlay, and announcements on all the others.

Leitão, Pereira and Rodrigues (2007), "Epidemic Broadcast Trees", over HyParView. The thesis of M. Matos argues about it
(section 4.4) and never measures it. As in BRISA the first publication floods the overlay, and a node that gets an extra
copy tells its sender to stop (*prune*). Unlike in BRISA both ends of a link then treat it as *lazy*: it still carries
the name of every publication. A node that learns of a missing one waits for ``graft_after`` ticks; if it has not
arrived by then the link on which it was announced is made eager again and the publication is requested (*graft*), then
from the next node that announced it, and so on. So a tree heals by missing publications, and not by knowledge about
neighbours: it needs no paths, and pays with a message per link and publication.

The tree may be one for all publishers or one for each (``per_source``), as the thesis discusses.

Where this departs from the paper: the wait before the second graft is as long as before the first. Announcements are
sent at once, each for itself. Trees are not reshaped when an announcement shows a shorter way. Topics, newcomers,
silence, orders and recovery on links that lose messages are as for BRISA (:mod:`antiphon.fabrics.gossip.topic`); with
``recovers=False`` there are announcements alone, as published.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.gossip.messages import Data, Deactivate, FetchRequest, TreePosition, structure_key
from antiphon.fabrics.gossip.options import BrisaOptions, rival_rules
from antiphon.fabrics.gossip.process import Brisa
from antiphon.fabrics.gossip.sampling.hyparview import HyParViewOptions
from antiphon.fabrics.gossip.stream import Stream
from antiphon.fabrics.gossip.structure import Structure
from antiphon.fabrics.gossip.topic import Group
from antiphon.fabrics.gossip.trees import Trees
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK, ProtocolMessage, Publication, publication_key
from antiphon.kernel.process import NO_NODE, Environment


class PlumtreeOptions(BrisaOptions):
    """An announced publication that has not arrived after ``graft_after`` ticks is requested."""

    def __init__(
        self,
        view: HyParViewOptions | None = None,
        graft_after: i64 = 500,
        per_source: bool = False,
        contacts: Sequence[int] = (0,),
        order: str = "causal",
        mixed: bool = False,
        period: i64 = 1000,
        patience: i64 = 8,
        keep: i64 = 64,
        buffer: i64 = 1024,
        join_window: i64 = 2000,
        recovers: bool = True,
        trees: i64 = 1,
    ) -> None:
        if graft_after < 1:
            raise UsageError(
                f"after {graft_after} ticks nothing can have come; let graft_after be longer than a copy may be late, "
                "for example 500"
            )
        super().__init__(
            view,
            contacts,
            order,
            mixed,
            trees=trees,
            period=period,
            patience=patience,
            keep=keep,
            buffer=buffer,
            join_window=join_window,
            rules=rival_rules(recovers),
        )
        self.graft_after: Final[i64] = graft_after
        self.per_source: Final[bool] = per_source

    def new_trees(
        self, environment: Environment, topic: i64, neighbours: list[i64], streams: dict[i64, Stream]
    ) -> EagerTrees:
        """The trees of a topic at one node."""
        return EagerTrees(environment, topic, self, neighbours, streams)


@mypyc_attr(acyclic=True)
class Announce(ProtocolMessage):
    """The sender has a publication (*IHAVE*)."""


@mypyc_attr(acyclic=True)
class Graft(FetchRequest):
    """The sender misses a publication, and wants the later ones of a tree from now on; ``insists`` if all refused."""

    def __init__(self, source: i64, topic: i64, numbers: vec[i64], key: i64, insists: bool = False) -> None:
        super().__init__(source, topic, numbers)
        self.key: Final[i64] = key
        self.insists: Final[bool] = insists


@final
class Announced:
    """A publication that others have announced: nodes that were not asked yet, and when to ask the next."""

    def __init__(self, deadline: i64, peer: i64) -> None:
        self.deadline: i64 = deadline
        self.peers: Final[list[i64]] = [peer]


class EagerTrees(Trees):
    """The trees of eager links. The targets of a structure are its eager links; all other neighbours are lazy."""

    def __init__(
        self,
        environment: Environment,
        topic: i64,
        options: PlumtreeOptions,
        neighbours: list[i64],
        streams: dict[i64, Stream],
    ) -> None:
        super().__init__(environment, topic, options, neighbours, streams)
        self._per_source: Final[bool] = options.per_source
        self._graft_after: Final[i64] = options.graft_after
        # In the order of their deadlines.
        self._announced: Final[dict[i64, Announced]] = {}
        self._is_waiting: bool = False
        self.grafts: i64 = 0

    def key_of(self, source: i64, sequence: i64) -> i64:
        """The tree of a publication."""
        return structure_key(source if self._per_source else 0, sequence % self._options.trees)

    # Publications.

    def begin(self, publication: Publication) -> None:
        structure = self.structure(self.key_of(publication.source, publication.sequence))
        structure.position = TreePosition(vec[i64](), 0)
        self._push(structure, publication, NO_NODE)

    def on_data(self, sender: i64, data: Data, is_new: bool) -> None:
        structure = self.structure(data.key)
        structure.quiet = 0
        if not is_new:
            if sender in structure.targets:
                structure.targets.remove(sender)
            self._environment.send(sender, Deactivate(data.key, self._topic))
            return
        self._make_eager(structure, sender)
        structure.parents.clear()
        structure.parents.append(sender)
        structure.position = TreePosition(vec[i64](), data.position.depth + 1)
        self._push(structure, data.publication, sender)

    def on_fetch_response(self, publication: Publication, sender: i64, reused: i64) -> None:
        self._push(self.structure(self.key_of(publication.source, publication.sequence)), publication, sender)

    def _push(self, structure: Structure, publication: Publication, sender: i64) -> None:
        self._announced.pop(publication_key(publication.source, publication.sequence), None)
        data = Data(publication, structure.key, structure.position, False)
        announce = self.announcement_of(structure, publication)
        for peer in self._neighbours:
            if peer != sender:
                self._environment.send(peer, data if peer in structure.targets else announce)

    def announcement_of(self, structure: Structure, publication: Publication) -> Announce:
        """The announcement that a lazy link carries instead of a publication."""
        return Announce(publication.source, publication.sequence, self._topic)

    # Announcements.

    def hear(self, sender: i64, message: ProtocolMessage) -> None:
        """A message has come and will be handled: see what it says about its sender."""

    def announced(self, sender: i64, source: i64, sequence: i64) -> None:
        """A neighbour has a publication that is missing here."""
        key = publication_key(source, sequence)
        known = self._announced.get(key)
        if known is not None:
            known.peers.append(sender)
            return
        self._announced[key] = Announced(self._environment.now() + self._graft_after, sender)
        self._wait()

    def _wait(self) -> None:
        """Look again when the first announcement is old enough."""
        if self._is_waiting:
            return
        for first in self._announced.values():
            self._is_waiting = True
            self._environment.set_timer(max(1, first.deadline - self._environment.now()), ~self._topic)
            return

    def expire(self) -> None:
        """Request publications that were announced long enough ago; if one does not arrive, ask another node the next
        time.
        """
        self._is_waiting = False
        now = self._environment.now()
        due: list[i64] = []
        for key, announced in self._announced.items():
            if announced.deadline > now:
                break
            due.append(key)
        for key in due:
            announced = self._announced.pop(key)
            self._graft(key & SOURCE_MASK, key >> SOURCE_BITS, announced.peers)
            if len(announced.peers) > 0:
                announced.deadline = now + self._graft_after
                self._announced[key] = announced
        self._wait()

    def _graft(self, source: i64, sequence: i64, peers: list[i64]) -> None:
        stream = self._streams.get(source)
        if stream is not None and stream.is_here(sequence):
            peers.clear()
        structure = self.structure(self.key_of(source, sequence))
        while len(peers) > 0:
            peer = self.best_of(structure, peers)
            peers.remove(peer)
            if peer in self._neighbours:
                self.grafts += 1
                self._make_eager(structure, peer)
                self._environment.send(peer, self.graft_of(structure, peer, source, sequence, peers))
                return

    def best_of(self, structure: Structure, peers: list[i64]) -> i64:
        """The node to ask first, of those that have announced a publication: the first of them."""
        return peers[0]

    def graft_of(self, structure: Structure, peer: i64, source: i64, sequence: i64, others: list[i64]) -> Graft:
        """The question to that node, while ``others`` have announced the publication too."""
        return Graft(source, self._topic, vec[i64]([sequence]), structure.key)

    # Links.

    def _make_eager(self, structure: Structure, peer: i64) -> None:
        if peer in self._neighbours and peer not in structure.targets:
            structure.targets.append(peer)

    def on_activate(self, sender: i64, key: i64) -> None:
        self._make_eager(self.structure(key), sender)

    def on_graft(self, sender: i64, graft: Graft) -> None:
        """A neighbour wants the later publications of a tree from here."""
        self.on_activate(sender, graft.key)

    def on_moved(self, sender: i64, key: i64, position: TreePosition) -> None:
        """Nothing to do: nodes have no position that others must know."""

    def seen_ahead(self, structure: Structure) -> None:
        """Nothing to do: announcements show missing publications."""

    def neighbour_down(self, peer: i64) -> None:
        self.links.pop(peer, None)
        for structure in self.structures.values():
            if peer in structure.targets:
                structure.targets.remove(peer)
            if peer in structure.parents:
                structure.parents.remove(peer)
                self.repairs.parents_lost += 1


class PlumtreeGroup(Group):
    """A topic at one node."""

    def new_trees(self) -> Trees:
        options = self._options
        assert isinstance(options, PlumtreeOptions), "made with them"
        return options.new_trees(self._environment, self.topic, self._neighbours, self.streams)

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        self.eager_trees().hear(sender, message)
        if isinstance(message, Announce):
            self._announced(sender, message)
            return
        if isinstance(message, Graft):
            self.eager_trees().on_graft(sender, message)
        super().receive(sender, message)

    def _announced(self, sender: i64, announce: Announce) -> None:
        if not self.is_synchronised:
            return
        stream = self.stream(announce.source)
        if stream.is_here(announce.sequence):
            return
        if announce.sequence > stream.heard:
            stream.heard = announce.sequence
            stream.quiet = 0
            self.wake()
        self.eager_trees().announced(sender, announce.source, announce.sequence)

    def notice_gap(self, sender: i64, stream: Stream) -> None:
        """Nothing to do: announcements show missing publications."""

    def eager_trees(self) -> EagerTrees:
        """The trees, with Plumtree's additions."""
        trees = self.trees
        assert isinstance(trees, EagerTrees), "made as such"
        return trees


class Plumtree(Brisa):
    """Plumtree at one node: topics and the application are served as by BRISA."""

    def new_group(self, topic: i64) -> Group:
        now = self.environment.now()
        return PlumtreeGroup(self.environment, topic, self.options, self.connections, self.seeds, now)

    def expire(self, name: i64) -> None:
        super().expire(name)
        group = self._groups.get(~name)
        if name < 0 and isinstance(group, PlumtreeGroup):
            group.eager_trees().expire()
