"""The structures that emerge at one node: its parents, the neighbours that it sends to, and how both are repaired.

BRISA (thesis, section 4.2). The first publication floods the overlay. A node that gets it twice has a link too many,
and tells one of the two senders to stop; when the flood is over every node has ``parents`` active links towards it and
what is left is a tree, or a graph without cycles. Links that are not used stay known, and are used again when a parent
fails.

A cycle is avoided by what travels with the data: in trees the path from the root, in graphs the depth. A node adopts
no node whose path it is on, or that is deeper than itself. Which of several senders is kept is the strategy's affair
(:mod:`antiphon.fabrics.gossip.parents`).

**Repair.** *Soft*: a neighbour that is known to be no descendant becomes the parent; one message. *Hard*: there is
none; the node forgets its place and asks all neighbours. A child that its own parent asks has lost its place too.

The published rules leave races open. Here is how each is closed (:class:`antiphon.fabrics.gossip.options.Rules`):

* Two nodes adopt each other, or each a descendant of the other, because what they know of each other's paths is out of
  date. No data goes through a closed cycle, so the check on data never sees it. Here a new parent answers with its
  place, periodic messages carry places too, and a node whose neighbours are ahead while its parents are silent takes
  itself for an orphan.
* In graphs two nodes of equal depth adopt each other, and each goes one deeper than the other for ever. Here only the
  one with the higher identifier may adopt the other; a parent with a higher identifier that has come to be as deep as
  its child is given up if there is another; and a node beyond ``deepest`` gives up its place.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.gossip.messages import (
    NOWHERE,
    Activate,
    Data,
    Deactivate,
    Moved,
    Report,
    TreePosition,
    structure_key,
)
from antiphon.fabrics.gossip.options import BrisaOptions
from antiphon.fabrics.gossip.parents import FIRST_COME, LinkMeasurements
from antiphon.fabrics.gossip.stream import Stream
from antiphon.fabrics.gossip.structure import Repairs, Structure
from antiphon.kernel.message import Publication
from antiphon.kernel.process import NO_NODE, Environment

MOST_HARD_REPAIRS: Final = 6
"""So often a node asks all its neighbours for a place while nothing new comes; each wait is twice as long as the last.

A node that asks takes the place of its children away, and they ask in turn. While data flows places are soon known
again; where none does, such a wave could go round for ever.
"""

STALL_PERIODS: Final = 2
"""So many periods others may be ahead while the parents are silent."""


class Trees:
    """All structures of one topic at one node."""

    def __init__(
        self,
        environment: Environment,
        topic: i64,
        options: BrisaOptions,
        neighbours: list[i64],
        streams: dict[i64, Stream],
    ) -> None:
        self._environment: Final[Environment] = environment
        self._me: Final[i64] = environment.identifier
        self._topic: Final[i64] = topic
        self._options: Final[BrisaOptions] = options
        self._neighbours: Final[list[i64]] = neighbours
        # The publications of each source at this node; new parents are told how far it is.
        self._streams: Final[dict[i64, Stream]] = streams
        self.links: Final[dict[i64, LinkMeasurements]] = {}
        self.structures: Final[dict[i64, Structure]] = {}
        self.repairs: Final = Repairs()
        self._reused: i64 = -1

    def structure(self, key: i64) -> Structure:
        """A structure, which begins when it is first heard of."""
        found = self.structures.get(key)
        if found is None:
            found = Structure(key, self._me, self._neighbours)
            self.structures[key] = found
        return found

    def load(self) -> i64:
        """To how many others this node sends, added up over the structures that are in use."""
        total: i64 = 0
        for structure in self.structures.values():
            if structure.quiet < self._options.patience:
                total += len(structure.targets)
        return total

    def places(self, patience: i64) -> tuple[vec[i64], list[TreePosition]]:
        """The structures in use, and where this node is in each; nothing if neighbours do not look at it."""
        keys = vec[i64]()
        positions: list[TreePosition] = []
        if self._options.rules.watches_positions:
            for structure in self.structures.values():
                if structure.quiet <= patience:
                    keys = append(keys, structure.key)
                    positions.append(structure.position)
        return keys, positions

    def on_report(self, sender: i64, report: Report) -> None:
        """A neighbour says where it is in all structures that are in use."""
        if self._options.rules.watches_positions:
            position: i64 = 0
            while position < len(report.keys):
                self.on_moved(sender, report.keys[position], report.positions[int(position)])
                position += 1

    # Data.

    def begin(self, publication: Publication) -> None:
        """Send off an own publication."""
        structure = self._chosen(publication.sequence)
        self._hand_on(structure, publication, NO_NODE, not structure.is_root)

    def _chosen(self, sequence: i64) -> Structure:
        """The structure for an own publication: one of the own, or one of somebody else whose root is near."""
        own = structure_key(self._me, sequence % self._options.trees)
        if self._options.reuse_depth == 0 or own in self.structures:
            return self.structure(own)
        best = self.structures.get(self._reused)
        if best is None or not self._is_near(best):
            best = None
            for structure in self.structures.values():
                if self._is_near(structure) and (best is None or structure.position.depth < best.position.depth):
                    best = structure
        if best is None:
            return self.structure(own)
        self._reused = best.key
        return best

    def _is_near(self, structure: Structure) -> bool:
        return 0 <= structure.position.depth <= self._options.reuse_depth and len(structure.parents) > 0

    def on_data(self, sender: i64, data: Data, is_new: bool) -> None:
        """A copy has come: hand it on if it is the first, and see what it says about the sender."""
        structure = self.structure(data.key)
        is_parent = sender in structure.parents
        structure.quiet = 0
        if is_parent:
            structure.behind_for = -1
            self._note_recovery(structure)
            self._parent_moved(structure, sender, data.position)
        elif sender in self.links:
            structure.known[sender] = data.position
            # A publication that goes up a tree comes from a child, which is no candidate.
            if is_new and not data.is_upward:
                self.seen_ahead(structure)
                if len(structure.parents) == 0 and self._is_eligible(structure, sender):
                    self._adopt(structure, sender)
                    self._note_recovery(structure)
        if is_new:
            structure.hard_repairs = 0
            structure.next_hard_repair = 0
            self._hand_on(structure, data.publication, sender, data.is_upward)
        if not is_parent and not data.is_upward and not self._options.floods and sender not in structure.parents:
            self._contend(structure, sender)

    def on_fetch_response(self, publication: Publication, sender: i64, reused: i64) -> None:
        """A publication that had been missed has come outside of the structures: hand it on in its own.

        ``reused`` is the structure of somebody else that its source was seen to use, or -1.
        """
        if reused >= 0:
            self._hand_on(self.structure(reused), publication, sender, True)
            return
        structure = self.structure(structure_key(publication.source, publication.sequence % self._options.trees))
        self.seen_ahead(structure)
        self._hand_on(structure, publication, sender, False)

    def _hand_on(self, structure: Structure, publication: Publication, sender: i64, is_upward: bool) -> None:
        data = Data(publication, structure.key, structure.position, is_upward)
        environment = self._environment
        for target in structure.targets:
            if target != sender:
                environment.send(target, data)
        if is_upward:
            for parent in structure.parents:
                if parent != sender and parent not in structure.targets:
                    environment.send(parent, data)

    # Choosing parents.

    def _is_eligible(self, structure: Structure, peer: i64, has_time: bool = False) -> bool:
        """Whether adopting a node would, as far as is known, make no cycle.

        Of two nodes of equal depth that adopt each other at the same time both would go down for ever. While the first
        flood passes, when that is likely, the identifiers decide; later, when there is time, the first to ask wins.
        """
        if structure.is_root:
            return False
        position = structure.known.get(peer, NOWHERE)
        if position.depth < 0:
            return False
        if not self._options.is_graph:
            return not position.passes(self._me)
        mine = structure.position.depth
        if mine < 0 or position.depth < mine:
            return True
        return position.depth == mine and (peer < self._me or has_time or not self._options.rules.breaks_ties)

    def _contend(self, structure: Structure, sender: i64) -> None:
        """A copy too many has come from a node that is no parent."""
        if not self._is_eligible(structure, sender):
            self._deactivate(structure, sender)
            return
        if len(structure.parents) < self._options.parents:
            self._adopt(structure, sender)
            return
        strategy = self._options.strategy
        if strategy == FIRST_COME:
            self._deactivate(structure, sender)
            if not self._options.is_graph and sender in structure.targets:
                # It had the publication before: it can never need it from here, unless it asks.
                structure.targets.remove(sender)
            return
        worst = self._worst(structure)
        if self._rank(structure, sender) < self._rank(structure, worst):
            structure.parents.remove(worst)
            self._deactivate(structure, worst)
            self._adopt(structure, sender)
        else:
            self._deactivate(structure, sender)

    def _rank(self, structure: Structure, peer: i64) -> i64:
        link = self.links.get(peer)
        position = structure.known.get(peer, NOWHERE)
        return (
            LinkMeasurements().rank(self._options.strategy, position)
            if link is None
            else link.rank(self._options.strategy, position)
        )

    def _worst(self, structure: Structure) -> i64:
        worst = structure.parents[0]
        for parent in structure.parents:
            if self._rank(structure, parent) > self._rank(structure, worst):
                worst = parent
        return worst

    def _best(self, structure: Structure, has_time: bool) -> i64:
        """The best neighbour that may be adopted and is no parent; NO_NODE if there is none."""
        best = NO_NODE
        for peer in self._neighbours:
            if peer in structure.parents or not self._is_eligible(structure, peer, has_time):
                continue
            if best == NO_NODE or self._rank(structure, peer) < self._rank(structure, best):
                best = peer
        return best

    def _deactivate(self, structure: Structure, peer: i64) -> None:
        self._environment.send(peer, Deactivate(structure.key, self._topic))

    def _adopt(self, structure: Structure, peer: i64) -> None:
        structure.parents.append(peer)
        structure.behind_for = -1
        self._take_place(structure, structure.known[peer])

    def _take_place(self, structure: Structure, parent: TreePosition) -> None:
        """The own place follows from that of a parent."""
        if parent is structure.base:
            return
        if not self._options.is_graph:
            structure.base = parent
            structure.position = TreePosition(append(vec[i64](parent.path), self._me), parent.depth + 1)
        elif parent.depth >= structure.position.depth:
            self._go_down(structure, parent.depth + 1)

    def _go_down(self, structure: Structure, depth: i64) -> None:
        """In a graph: be deeper than before, and say so to the children."""
        had_place = structure.position.depth >= 0
        structure.position = TreePosition(vec[i64](), depth)
        if depth > self._options.deepest:
            # Only a cycle makes anybody so deep.
            self._lose_place(structure)
            return
        if had_place:
            moved = Moved(structure.key, self._topic, structure.position)
            for target in structure.targets:
                self._environment.send(target, moved)

    # Messages of neighbours.

    def on_deactivate(self, sender: i64, key: i64) -> None:
        """A neighbour wants nothing more of a structure."""
        structure = self.structure(key)
        if sender in structure.targets and not self._options.floods:
            structure.targets.remove(sender)

    def on_activate(self, sender: i64, key: i64) -> None:
        """A neighbour wants what comes through a structure; if it was a parent, it has lost its place."""
        structure = self.structure(key)
        if sender in self._neighbours and sender not in structure.targets:
            structure.targets.append(sender)
        if sender in structure.parents:
            structure.parents.remove(sender)
            structure.known.pop(sender, None)
            self.repairs.parents_lost += 1
            if len(structure.parents) == 0:
                self._orphaned(structure)
        if self._options.rules.asks_back:
            self._environment.send(sender, Moved(key, self._topic, structure.position))

    def on_moved(self, sender: i64, key: i64, position: TreePosition) -> None:
        """A neighbour says where it is in a structure."""
        structure = self.structure(key)
        if sender in structure.parents:
            self._parent_moved(structure, sender, position)
            return
        if sender not in self.links:
            return
        structure.known[sender] = position
        is_asking = self._options.rules.asks_back and structure.orphaned_at >= 0 and len(structure.parents) == 0
        if is_asking and self._is_eligible(structure, sender):
            self._adopt(structure, sender)

    def _parent_moved(self, structure: Structure, parent: i64, position: TreePosition) -> None:
        """A parent has said where it is: follow it, or give it up if it has come to be below this node."""
        structure.known[parent] = position
        if position is structure.base and not self._options.is_graph:
            return
        if position.depth < 0:
            if self._options.rules.asks_back and structure.orphaned_at >= 0:
                # Just adopted, and it has no place itself.
                self._take_back(structure, parent)
            return
        if not self._options.is_graph:
            if position.passes(self._me):
                self._take_back(structure, parent)
            else:
                self._take_place(structure, position)
            return
        if position.depth >= structure.position.depth:
            if self._options.rules.breaks_ties and parent > self._me and len(structure.parents) > 1:
                self._take_back(structure, parent)
            else:
                self._go_down(structure, position.depth + 1)

    def _take_back(self, structure: Structure, parent: i64) -> None:
        """A parent turns out to be none."""
        self.repairs.taken_back += 1
        structure.parents.remove(parent)
        self._deactivate(structure, parent)
        if len(structure.parents) == 0:
            self._orphaned(structure)

    # Neighbours come and go.

    def neighbour_up(self, peer: i64) -> None:
        """A new neighbour gets everything, until it says that it has enough."""
        self.links[peer] = LinkMeasurements()
        for structure in self.structures.values():
            if peer not in structure.targets:
                structure.targets.append(peer)

    def neighbour_down(self, peer: i64) -> None:
        """A neighbour has gone, and with it perhaps a parent."""
        self.links.pop(peer, None)
        for structure in self.structures.values():
            if peer in structure.targets:
                structure.targets.remove(peer)
            structure.known.pop(peer, None)
            if peer in structure.parents:
                structure.parents.remove(peer)
                self.repairs.parents_lost += 1
                if len(structure.parents) == 0:
                    self._orphaned(structure)
                else:
                    self._soften(structure)

    # Repair.

    def seen_ahead(self, structure: Structure) -> None:
        """Something shows that others get what the parents of this node do not send."""
        if structure.behind_for < 0 and not structure.is_root and not self._options.floods:
            structure.behind_for = 0

    def tick(self) -> None:
        """A period has passed: replace parents that are silent for too long."""
        for structure in self.structures.values():
            structure.quiet += 1
            if structure.behind_for >= 0:
                structure.behind_for += 1
                if structure.behind_for > STALL_PERIODS and self._options.rules.detects_stalls:
                    self._stalled(structure)
            if structure.orphaned_at >= 0 and len(structure.parents) == 0 and self._options.rules.detects_stalls:
                # It may have been too early to ask, or what was asked or answered is lost.
                self._ask_all(structure)
            if 0 < len(structure.parents) < self._options.parents and self._options.rules.watches_positions:
                # Somebody may have become eligible since it was turned down.
                self._soften(structure)

    def _stalled(self, structure: Structure) -> None:
        self.repairs.stalls += 1
        structure.behind_for = -1
        for parent in list(structure.parents):
            structure.parents.remove(parent)
            structure.known.pop(parent, None)
            self._deactivate(structure, parent)
        self._repair(structure)

    def _orphaned(self, structure: Structure) -> None:
        """The last parent has gone."""
        self.repairs.orphaned += 1
        if structure.orphaned_at < 0:
            structure.orphaned_at = self._environment.now()
        self._repair(structure)

    def _note_recovery(self, structure: Structure) -> None:
        if structure.orphaned_at >= 0:
            self.repairs.note(self._environment.now() - structure.orphaned_at, structure.is_lost)
            structure.orphaned_at = -1
            structure.is_lost = False

    def _soften(self, structure: Structure) -> None:
        """In a graph: one parent of several has gone; another one is welcome but nothing is interrupted."""
        best = self._best(structure, True)
        if best != NO_NODE:
            self.repairs.topped_up += 1
            self._adopt(structure, best)
            self._activate(structure, best)

    def _repair(self, structure: Structure) -> None:
        """Find a parent: among the neighbours that are known to be no descendants, or by asking all of them."""
        best = self._best(structure, False)
        if best == NO_NODE:
            self._lose_place(structure)
            return
        self.repairs.soft += 1
        self._adopt(structure, best)
        self._activate(structure, best)

    def _lose_place(self, structure: Structure) -> None:
        """Hard repair: no neighbour is known to be fit as a parent."""
        for parent in structure.parents:
            structure.known.pop(parent, None)
        structure.parents.clear()
        structure.position = NOWHERE
        structure.base = NOWHERE
        if structure.orphaned_at < 0:
            structure.orphaned_at = self._environment.now()
        structure.is_lost = True
        self._ask_all(structure)

    def _ask_all(self, structure: Structure) -> None:
        """Ask all neighbours for a place, unless that was done a moment ago or so often in vain."""
        now = self._environment.now()
        if now < structure.next_hard_repair or structure.hard_repairs >= MOST_HARD_REPAIRS:
            return
        structure.next_hard_repair = now + (self._options.period << structure.hard_repairs)
        structure.hard_repairs += 1
        self.repairs.hard += 1
        for peer in self._neighbours:
            self._activate(structure, peer)

    def _activate(self, structure: Structure, peer: i64) -> None:
        stream = self._streams.get(structure.root)
        last: i64 = 0 if stream is None else stream.received.complete
        self._environment.send(peer, Activate(structure.key, self._topic, last))
