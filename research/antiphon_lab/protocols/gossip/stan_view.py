"""One topic of StaN at one node: a view whose entries are replaced by others of lower weight.

StaN does not decide the size of the view (thesis of M. Matos, section 3.2.3). Entries come and go by the rules of Scamp
(:mod:`antiphon_lab.protocols.gossip.scamp`): newcomers are added, failed ones dropped. StaN swaps entries, one for one.

Some entries may be left as they were drawn (``random_slots``). Drawing them again from the findings of
walks would not help: no walk meets a node that is in no view.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.gossip.sampling.service import Connections, Neighbourhood
from antiphon.kernel.process import Environment
from antiphon_lab.protocols.gossip.scamp import Scamp
from antiphon_lab.protocols.gossip.stan_options import StanOptions
from antiphon_lab.protocols.gossip.stan_weights import Ranking

SUSPECTED_ROUNDS: Final[i64] = 16
"""The number of rounds for which a failed node is not taken into a view again. Other nodes that have not noticed still
name it; with a low weight it would come back with each of their walks.
"""

MOST_SUSPECTS: Final = 1024


class Suspects:
    """Nodes that failed lately, as one node knows; shared by all its topics."""

    def __init__(self) -> None:
        self._until: Final[dict[i64, i64]] = {}
        self.round: i64 = 0

    def add(self, node: i64) -> None:
        """A link has broken; the longest suspected is forgotten if there are too many."""
        self._until.pop(node, None)
        if len(self._until) >= MOST_SUSPECTS:
            del self._until[next(iter(self._until))]
        self._until[node] = self.round + SUSPECTED_ROUNDS

    def clear(self, node: i64) -> None:
        """A node has sent something: it is up."""
        if len(self._until) > 0:
            self._until.pop(node, None)

    def contains(self, node: i64) -> bool:
        """Whether a node is not to be taken up now."""
        if len(self._until) == 0:
            return False
        return self._until.get(node, -1) > self.round


class AlignedView(Scamp):
    """A view of which StaN chooses the entries."""

    def __init__(
        self,
        environment: Environment,
        topic: i64,
        connections: Connections,
        listener: Neighbourhood,
        options: StanOptions,
        ranking: Ranking,
        suspects: Suspects,
    ) -> None:
        super().__init__(environment, topic, connections, listener, options.scamp)
        self._ranking: Final[Ranking] = ranking
        self._slots: Final[i64] = options.random_slots
        self._refill: Final[i64] = options.refill
        self._suspects: Final[Suspects] = suspects
        # The ranks of entries that are chosen by weight, ascending; and the entries that stay as they were drawn.
        self._ranks: Final[list[i64]] = []
        self._drawn: Final[list[i64]] = []
        # How often an entry was replaced by a better one, and how often the view has grown or shrunk.
        self.swaps: i64 = 0
        self.resizes: i64 = 0

    def begin_with(self, view: list[int]) -> None:
        """Be given the view of an overlay that is there from the start."""
        for node in view:
            self._insert(i64(node))

    # Entries come and go.

    def _insert(self, node: i64) -> None:
        if node == self.me or node in self._view:
            return
        super()._insert(node)
        self.resizes += 1
        if len(self._drawn) < self._slots:
            self._drawn.append(node)
        else:
            insort(self._ranks, self._ranking.rank_of(node))

    def _drop(self, node: i64) -> None:
        super()._drop(node)
        self.resizes += 1
        if node in self._drawn:
            self._drawn.remove(node)
        else:
            self._ranks.remove(self._ranking.rank_of(node))

    # Entries are replaced.

    def found(self, known: vec[i64]) -> None:
        """A walk has come back: the best of all known ones stay (Algorithm 2, lines 14 to 17)."""
        for node in known:
            self.consider(node)
        if len(self._view) < self._refill:
            self._fill(known)

    def consider(self, node: i64) -> None:
        """Take a node instead of the worst entry, if it is better."""
        ranks = self._ranks
        count: i64 = len(ranks)
        if count == 0 or node == self.me:
            return
        rank = self._ranking.rank_of(node)
        worst = ranks[count - 1]
        if rank >= worst or ranks[bisect_left(ranks, rank)] == rank:
            return
        if node in self._drawn or self._suspects.contains(node):
            return
        self.swaps += 1
        ranks.pop()
        insort(ranks, rank)
        self._exchange(self._ranking.node_of(worst), node)

    def _exchange(self, old: i64, new: i64) -> None:
        """Replace an entry, in its place."""
        self._view[self._view.index(old)] = new
        self.connections.hold(new)
        self.connections.release(old)
        self.listener.neighbour_down(old)
        self.listener.neighbour_up(new)

    def _fill(self, known: vec[i64]) -> None:
        """Add the best of those that are known until there are enough (section 3.3.6)."""
        ranks: list[i64] = [self._ranking.rank_of(node) for node in known if not self._suspects.contains(node)]
        ranks.sort()
        for rank in ranks:
            if len(self._view) >= self._refill:
                return
            self._insert(self._ranking.node_of(rank))
