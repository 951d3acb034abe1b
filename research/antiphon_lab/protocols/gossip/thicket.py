"""Thicket: several trees of eager links in one epidemic overlay, in which most nodes are interior in a single one.

Ferreira, Leitão and Rodrigues (2010), "Thicket: A Protocol for Building and Maintaining Multiple Trees in a P2P
Overlay", over HyParView. The thesis of M. Matos argues about it (section 4.4) and never measures it. A source uses its
trees in turn. It begins each with ``fanout`` links that no tree uses yet. A node that is interior in no tree when the
first publication of a tree reaches it sends to ``fanout`` - 1 further unused links; a node that is interior elsewhere
becomes a leaf. So the first pushes do not reach every node. As in Plumtree
(:mod:`antiphon_lab.protocols.gossip.plumtree`) a copy too many prunes a link, other links carry names, and a node
requests a publication that was announced and has not come. Announcements also say how many children the sender has and
whether it is interior in the tree. A node asks interior nodes of that tree first, those with few children before
others. A node accepts a child if that makes it interior in no second tree and it has less than ``max_load`` children;
otherwise it sends the publication and refuses the place, and the asker turns to the next node that has announced it.

Where this departs from the paper: announcements are sent at once and to all neighbours, and not as periodic summaries
to unused ones. Trees are not reshaped while they work. A node that was refused by all nodes that it knows to have
a publication *insists*, and the next accepts it whatever its load: the paper leaves such a node to its announcements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.gossip.messages import Data, Deactivate
from antiphon.fabrics.gossip.parents import LinkMeasurements
from antiphon.fabrics.gossip.sampling.hyparview import HyParViewOptions
from antiphon.fabrics.gossip.sampling.service import draw_some
from antiphon.fabrics.gossip.stream import Stream
from antiphon.fabrics.gossip.structure import Structure
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import ProtocolMessage, Publication
from antiphon.kernel.process import NO_NODE, Environment
from antiphon_lab.protocols.gossip.plumtree import Announce, EagerTrees, Graft, PlumtreeOptions

UNUSED_RANK: Final[i64] = 1 << 20
BUSY_RANK: Final[i64] = 1 << 30
REFUSED_RANK: Final[i64] = 1 << 40
"""Nodes that are interior in the tree are asked first, then leaves of all trees, then nodes that may refuse."""


@final
class ThicketOptions(PlumtreeOptions):
    """A publisher uses ``trees`` in turn; ``fanout`` and ``max_load`` bound the links of a node in them."""

    def __init__(
        self,
        view: HyParViewOptions | None = None,
        trees: i64 = 5,
        fanout: i64 = 5,
        max_load: i64 = 7,
        graft_after: i64 = 500,
        contacts: Sequence[int] = (0,),
        order: str = "causal",
        mixed: bool = False,
        period: i64 = 1000,
        patience: i64 = 8,
        keep: i64 = 64,
        buffer: i64 = 1024,
        join_window: i64 = 2000,
        recovers: bool = True,
    ) -> None:
        if fanout < 2:
            raise UsageError(f"with a fanout of {fanout} a node hands nothing on; choose a fanout of at least 2")
        if max_load < fanout:
            raise UsageError(
                f"a node that begins with {fanout - 1} children must accept as many as the source begins with, "
                f"{fanout}, not {max_load}; raise max_load"
            )
        if max_load < trees:
            raise UsageError(
                f"in {trees} trees a node has almost {trees} children on average, and may have {max_load}; "
                "raise max_load"
            )
        super().__init__(
            view,
            graft_after,
            True,
            contacts,
            order,
            mixed,
            period,
            patience,
            keep,
            buffer,
            join_window,
            recovers,
            trees,
        )
        self.fanout: Final[i64] = fanout
        self.max_load: Final[i64] = max_load

    def new_trees(
        self, environment: Environment, topic: i64, neighbours: list[i64], streams: dict[i64, Stream]
    ) -> EagerTrees:
        return ThicketTrees(environment, topic, self, neighbours, streams)


@final
@mypyc_attr(acyclic=True)
class LoadedAnnounce(Announce):
    """The sender has a publication, ``load`` children in all trees, and some or none in the tree of this one."""

    def __init__(self, source: i64, sequence: i64, topic: i64, key: i64, load: i64, is_interior: bool) -> None:
        super().__init__(source, sequence, topic)
        self.key: Final[i64] = key
        self.load: Final[i64] = load
        self.is_interior: Final[bool] = is_interior


@final
@mypyc_attr(acyclic=True)
class Refused(Deactivate):
    """The sender has no room for the receiver in a tree."""


@final
class ThicketTrees(EagerTrees):
    """The trees of one topic at one node. The targets of a structure are the parent and the children in it."""

    def __init__(
        self,
        environment: Environment,
        topic: i64,
        options: ThicketOptions,
        neighbours: list[i64],
        streams: dict[i64, Stream],
    ) -> None:
        super().__init__(environment, topic, options, neighbours, streams)
        self._fanout: Final[i64] = options.fanout
        self._max_load: Final[i64] = options.max_load
        self._random: Final = environment.random()
        self._branched: Final[set[i64]] = set()
        # By neighbour: its children in all trees as it last said, the trees in which it is interior, and those in
        # which it refused a place.
        self._loads: Final[dict[i64, i64]] = {}
        self._interior: Final[dict[i64, set[i64]]] = {}
        self._refusals: Final[dict[i64, set[i64]]] = {}
        # By tree: the nodes that announced the publication that was requested last, and its number.
        self._candidates: Final[dict[i64, list[i64]]] = {}
        self.refused: i64 = 0

    def structure(self, key: i64) -> Structure:
        """A structure, which begins without links."""
        found = self.structures.get(key)
        if found is None:
            found = Structure(key, self._me, [])
            self.structures[key] = found
        return found

    # The shape of the trees.

    def children(self, structure: Structure) -> i64:
        """The number of nodes to which this one sends in a tree."""
        count: i64 = 0
        for target in structure.targets:
            if target not in structure.parents:
                count += 1
        return count

    def _has_parent(self, structure: Structure) -> bool:
        """Whether some node is known to send to this one in a tree."""
        return len(structure.targets) > self.children(structure)

    def stream_load(self, root: i64) -> i64:
        """The number of children in all trees of a source."""
        count: i64 = 0
        for structure in self.structures.values():
            if structure.root == root:
                count += self.children(structure)
        return count

    def _is_interior_elsewhere(self, structure: Structure) -> bool:
        """Whether this node has children in another tree of the same source."""
        return self.stream_load(structure.root) > self.children(structure)

    def _branch(self, structure: Structure, parent: i64) -> None:
        """Choose the first children in a tree, over links that no tree of the source uses; once for each tree."""
        if structure.key in self._branched:
            return
        self._branched.add(structure.key)
        if not structure.is_root and self._is_interior_elsewhere(structure):
            return
        used = {parent}
        for other in self.structures.values():
            if other.root == structure.root:
                used.update(other.targets)
        unused = [peer for peer in self._neighbours if peer not in used]
        wanted = self._fanout if structure.is_root else self._fanout - 1
        structure.targets.extend(draw_some(self._random, unused, wanted))
        if len(structure.targets) == 0 and structure.is_root and len(self._neighbours) > 0:
            # A source with more trees than links begins some of them over the same one.
            structure.targets.extend(draw_some(self._random, self._neighbours, 1))

    # Publications.

    def begin(self, publication: Publication) -> None:
        self._branch(self.structure(self.key_of(publication.source, publication.sequence)), NO_NODE)
        super().begin(publication)

    def on_data(self, sender: i64, data: Data, is_new: bool) -> None:
        structure = self.structure(data.key)
        if is_new:
            self._branch(structure, sender)
        elif not self._has_parent(structure):
            # The first copy came with the answer to a graft, so this link may not be one too many.
            return
        super().on_data(sender, data, is_new)

    def announcement_of(self, structure: Structure, publication: Publication) -> Announce:
        return LoadedAnnounce(
            publication.source,
            publication.sequence,
            self._topic,
            structure.key,
            self.stream_load(structure.root),
            self.children(structure) > 0,
        )

    # Places.

    def hear(self, sender: i64, message: ProtocolMessage) -> None:
        if isinstance(message, LoadedAnnounce):
            self._note_load(sender, message)
        elif isinstance(message, Refused):
            self._note_refusal(sender, message.key)

    def _note_load(self, sender: i64, announce: LoadedAnnounce) -> None:
        """A neighbour says how much it carries."""
        self._loads[sender] = announce.load
        keys = self._interior.setdefault(sender, set())
        if announce.is_interior:
            keys.add(announce.key)
        else:
            keys.discard(announce.key)

    def _note_refusal(self, sender: i64, key: i64) -> None:
        """A neighbour has no room in a tree: ask the next one, unless another node sends by now."""
        self._refusals.setdefault(sender, set()).add(key)
        structure = self.structure(key)
        if self._has_parent(structure):
            return
        candidates = [peer for peer in self._candidates.get(key, []) if peer in self._neighbours]
        if len(candidates) > 0:
            peer = self.best_of(structure, candidates)
            self._make_eager(structure, peer)
            # The publication itself came with the refusal.
            insists = self._has_refused(peer, key)
            self._environment.send(peer, Graft(structure.root, self._topic, vec[i64](), key, insists))

    def _has_refused(self, peer: i64, key: i64) -> bool:
        refusals = self._refusals.get(peer)
        return refusals is not None and key in refusals

    def _rank(self, structure: Structure, peer: i64) -> i64:
        load = self._loads.get(peer, 0)
        keys = self._interior.get(peer)
        if self._has_refused(peer, structure.key):
            return REFUSED_RANK + load
        if load >= self._max_load:
            return BUSY_RANK + load
        if keys is not None and structure.key in keys:
            return load
        return UNUSED_RANK if load == 0 else BUSY_RANK + load

    def best_of(self, structure: Structure, peers: list[i64]) -> i64:
        best = peers[0]
        for peer in peers:
            if self._rank(structure, peer) < self._rank(structure, best):
                best = peer
        return best

    def graft_of(self, structure: Structure, peer: i64, source: i64, sequence: i64, others: list[i64]) -> Graft:
        self._candidates[structure.key] = [peer, *others]
        # The parent does not send: it misses the publication too, or has forgotten this node.
        structure.parents.clear()
        # The best one has refused before only if all have.
        insists = self._has_refused(peer, structure.key)
        return Graft(source, self._topic, vec[i64]([sequence]), structure.key, insists)

    def on_graft(self, sender: i64, graft: Graft) -> None:
        structure = self.structure(graft.key)
        if graft.insists or self._has_room(structure):
            self._make_eager(structure, sender)
        else:
            self.refused += 1
            self._environment.send(sender, Refused(graft.key, self._topic))

    def _has_room(self, structure: Structure) -> bool:
        """Whether a further child is welcome in a tree."""
        if structure.is_root:
            return self.children(structure) < self._max_load
        return not self._is_interior_elsewhere(structure) and self.children(structure) < self._max_load

    # Links.

    def neighbour_up(self, peer: i64) -> None:
        """A new neighbour gets announcements, and asks for what it misses."""
        self.links[peer] = LinkMeasurements()

    def neighbour_down(self, peer: i64) -> None:
        super().neighbour_down(peer)
        self._loads.pop(peer, None)
        self._interior.pop(peer, None)
        self._refusals.pop(peer, None)
