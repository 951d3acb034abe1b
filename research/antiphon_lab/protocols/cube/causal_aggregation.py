"""Causal aggregation: publications that a neighbour could not deliver yet wait for its missing ones, and go with them.

Chapter 4 of the thesis (the ICPP paper), its Algorithm 2. A node may hold a publication back from a child if a causal
predecessor is still missing here *and* this node must send the predecessor to that child: the child could not deliver
the publication any earlier. When the predecessor arrives both go in one packet.
There are fewer packets, and no delivery is later.

The printed algorithm scans, at every arrival and for every child, all pending publications and compares vectors of N
entries. This one finds the publications that become *free* when an entry rises:

* The children of a node in the tree of a source are those in its clusters ``1 .. height``, where the height depends on
  the source (:meth:`Cube.height_in_tree`). So a missing publication of height ``h`` blocks the clusters ``1 .. h``, and
  the blocked clusters of a publication are always ``1 .. blocked``, the greatest height of anything that it misses.
* The missing predecessors of a publication are found once, when it arrives. It waits for *one* of them, a highest one,
  is checked again exactly when that arrives, and then goes to the clusters that are free now.

Where the printed algorithm is open or wrong:

* B-1. Algorithm 1 leaves out cluster 1; it belongs to the range.
* B-2. The thesis lost two lines (an empty packet at the start, the call that delivers); the paper has them.
* B-3. The delivery test is about all sources other than the publication's own.
* B-4. The order in which a receiver walks through a packet decides what it forwards together. Here a packet is one
  unit: all of it is entered, then everything that has become free for a child goes to it, in the order of arrival. With
  ``causal_walk`` publications are entered one by one, causes first, which undoes much of the aggregation.
* B-5. Deliveries follow when the whole packet has been entered; whether they come in between makes no difference.
* B-6. Compressed vectors name only changes since the source's previous publication. The missing predecessors of that
  one are added to those of a publication, so that the decisions are those of full vectors. With
  ``forgets_predecessors`` this is left out, as when the test is applied to compressed vectors as they are.

Links may reorder as they like and must not lose. A publication that arrives again is ignored.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.cube.aggregation.packets import PacketFormat, Traffic
from antiphon.fabrics.cube.topology import Cube
from antiphon.kernel.counters import Counters
from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK, UNSPECIFIED, ProtocolMessage, Publication, publication_key
from antiphon.kernel.process import NO_NODE, Environment
from antiphon_lab.protocols.cube.packet_broadcast import PacketBroadcast
from antiphon_lab.protocols.cube.riding_aggregation import Riders, RidingOptions


class AggregationOptions:
    """How the published protocol is read. The defaults are the reading that its figures need."""

    def __init__(self, causal_walk: bool = False, forgets_predecessors: bool = False) -> None:
        self.causal_walk: Final[bool] = causal_walk
        self.forgets_predecessors: Final[bool] = forgets_predecessors


class Arrived:
    """A publication that has arrived here, as number ``number`` of all.

    ``missing`` has the publications that block it: pairs of a height and a key, highest first; those before
    ``position`` have arrived. It still has to go to the clusters ``1 .. blocked``.
    """

    def __init__(self, publication: Publication, number: i64) -> None:
        self.publication: Final[Publication] = publication
        self.number: Final[i64] = number
        self.missing: list[tuple[i64, i64]] = []
        self.position: i64 = 0
        self.blocked: i64 = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class CausalAggregation(PacketBroadcast):
    """The published protocol.

    With ``riding``, publications may wait for company (:mod:`antiphon_lab.protocols.cube.riding_aggregation`).

    With a ``root``, everything goes to that node first and down its tree (section 4.5.6): all share the same edges
    there, and whatever is out of order was reordered by a link. The publisher delivers at once. Its own publication
    comes back down the tree; it is entered like any other, since it has to be handed on, and not delivered again.
    """

    def __init__(
        self,
        environment: Environment,
        cube: Cube,
        form: PacketFormat | None = None,
        traffic: Traffic | None = None,
        options: AggregationOptions | None = None,
        riding: RidingOptions | None = None,
        root: i64 = NO_NODE,
    ) -> None:
        super().__init__(environment, cube, form, traffic)
        self._options: Final[AggregationOptions] = AggregationOptions() if options is None else options
        self._root: Final[i64] = root
        self.riders: Final[Riders | None] = None if riding is None else Riders(self, riding)
        # Publications up to this number arrived before the current packet.
        self._arrived_before: i64 = 0
        # Per source, up to which number all of its publications have arrived (the document's vector_max).
        self._received: Final = Counters()
        # Those that came before an earlier one of their source.
        self._early: dict[i64, Arrived] = {}
        # Keyed by the one publication that each of the listed ones waits for.
        self._waiting_for: dict[i64, list[Arrived]] = {}
        # Per source, its last publication that has arrived, while that one is blocked.
        self._last_blocked: dict[i64, Arrived] = {}
        self._arrivals: i64 = 0
        # How many publications are held back from the clusters 1 .. s and no further, by s.
        self._held_up_to: Final[list[int]] = [0] * (int(cube.dimension) + 1)
        # The publications that the current packet frees, by cluster; empty between two packets.
        self._free: Final[list[list[Arrived]]] = [[] for _ in range(cube.dimension + 1)]

    def publish(self, payload: bytes, topic: i64 = 0, order: i64 = UNSPECIFIED) -> i64:
        publication = self.stamped(payload, topic, order)
        self.environment.deliver(publication)
        if self._root == self.me:
            self.enter([publication])
            return publication.sequence
        if self._root != NO_NODE:
            self.send_all(self._root, [publication])
            return publication.sequence
        # Everything it follows was delivered here, so it has arrived here and was forwarded: nothing blocks it.
        self._received.put(self.me, publication.sequence)
        self.hand_on(publication, 0, self.cube.dimension)
        return publication.sequence

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        self._arrived_before = self._arrivals
        publications = self.opened(sender, message)
        if self._options.causal_walk and len(publications) > 1:
            for publication in causes_first(publications):
                self.enter([publication])
        else:
            self.enter(publications)
        self.accept(publications)

    def unfinished(self) -> i64:
        riding: i64 = 0 if self.riders is None else self.riders.count()
        return self.order.waiting() + self.held_back() + riding

    def held_back(self) -> i64:
        """How many publications still have to go to some child."""
        waiting: i64 = len(self._early)
        for queue in self._waiting_for.values():
            waiting += len(queue)
        return waiting

    def holds_for(self, s: i64) -> bool:
        """Whether something is held back from the child in cluster ``s``."""
        while s < len(self._held_up_to):
            if self._held_up_to[s] > 0:
                return True
            s += 1
        return False

    def state(self) -> str:
        queues = {
            key: [(publication_key(one.publication.source, one.publication.sequence), one.blocked) for one in queue]
            for key, queue in sorted(self._waiting_for.items())
        }
        riders = "" if self.riders is None else self.riders.state()
        received = f"{self._received.sorted_items()} {sorted(self._early)}"
        return f"{self._sequence} {self.order.state()} {received} {queues} {riders}"

    def height_of(self, source: i64) -> i64:
        """This node has children in its clusters ``1 .. height`` in the tree that a source's publications take."""
        return self.cube.height_in_tree(self.me, source if self._root == NO_NODE else self._root)

    def enter(self, publications: list[Publication]) -> None:
        """Add publications that arrived together, then send the publications that they free to each child in turn."""
        risen: list[Arrived] = []
        for publication in publications:
            self._count(publication, risen)
        if len(self._waiting_for) > 0:
            for arrived in risen:
                self._look_again(publication_key(arrived.publication.source, arrived.publication.sequence))
        elif len(risen) == 1 and len(risen[0].publication.dependencies) == 0:
            # Most often nothing waits and nothing can be missing; there is nothing to collect then.
            self.hand_on(risen[0].publication, 0, self.height_of(risen[0].publication.source))
            return
        highest: i64 = 0
        for arrived in risen:
            height = self.height_of(arrived.publication.source)
            if height > highest:
                highest = height
            self._find_missing(arrived, height)
        self._send_free(highest)

    def _count(self, publication: Publication, risen: list[Arrived]) -> None:
        """Raise the entry of a source as far as it goes; ``risen`` gets all that it has risen over."""
        source, sequence = publication.source, publication.sequence
        reached = self._received.get(source)
        key = publication_key(source, sequence)
        if sequence <= reached or key in self._early:
            return
        self._arrivals += 1
        arrived: Arrived | None = Arrived(publication, self._arrivals)
        if sequence > reached + 1:
            assert arrived is not None, "it has just been made"
            self._early[key] = arrived
            self._held_up_to[self.height_of(source)] += 1
            return
        while arrived is not None:
            risen.append(arrived)
            self._received.put(source, arrived.publication.sequence)
            if len(self._early) == 0:
                return
            arrived = self._early.pop(publication_key(source, arrived.publication.sequence + 1), None)
            if arrived is not None:
                self._held_up_to[self.height_of(source)] -= 1

    def _find_missing(self, arrived: Arrived, height: i64) -> None:
        """Find the publications that block a new one; to the clusters above them it goes now."""
        if height == 0:
            return
        publication = arrived.publication
        keys = publication.dependencies
        received = self._received
        missing: list[tuple[i64, i64]] = []
        position = received.first_behind(keys, 0)
        while position != -1:
            key = keys[position]
            shared = self.height_of(key & SOURCE_MASK)
            if shared > 0:
                missing.append((shared if shared < height else height, key))
            position = received.first_behind(keys, position + 1)
        before = self._last_blocked.pop(publication.source, None) if len(self._last_blocked) > 0 else None
        if before is not None and before.blocked > 0 and not self._options.forgets_predecessors:
            missing.extend(before.missing[before.position :])
        if len(missing) > 0:
            missing.sort(reverse=True)
            arrived.missing = missing
            self._last_blocked[publication.source] = arrived
        self._free_down_to(arrived, height)

    def _look_again(self, key: i64) -> None:
        """A publication has arrived that others may have waited for."""
        queue = self._waiting_for.pop(key, None)
        if queue is None:
            return
        for arrived in queue:
            self._held_up_to[arrived.blocked] -= 1
            self._free_down_to(arrived, arrived.blocked)

    def _free_down_to(self, arrived: Arrived, above: i64) -> None:
        """Note that a publication may go to the clusters from ``above`` down to those that are still blocked."""
        missing = arrived.missing
        position = arrived.position
        received = self._received
        while position < len(missing):
            key = missing[position][1]
            if received.get(key & SOURCE_MASK) < key >> SOURCE_BITS:
                break
            position += 1
        arrived.position = position
        arrived.blocked = 0
        if position < len(missing):
            arrived.blocked, key = missing[position]
            self._held_up_to[arrived.blocked] += 1
            queue = self._waiting_for.get(key)
            if queue is None:
                self._waiting_for[key] = [arrived]
            else:
                queue.append(arrived)
        s = arrived.blocked + 1
        while s <= above:
            self._free[s].append(arrived)
            s += 1

    def _send_free(self, highest: i64) -> None:
        """Send to each child, in ascending order of cluster, all that has become free for it."""
        s: i64 = 1
        while s <= highest:
            free = self._free[s]
            if len(free) > 0:
                self._free[s] = []
                child = self.cube.first(self.me, s)
                if child != NO_NODE:
                    if len(free) > 1:
                        free.sort(key=arrival_number)
                    self._send_to(s, child, free)
            s += 1

    def _send_to(self, s: i64, child: i64, free: list[Arrived]) -> None:
        """Send a child the publications that have become free for it, in the order of arrival."""
        publications = [arrived.publication for arrived in free]
        riders = self.riders
        if riders is None:
            self.send_all(child, publications)
        elif free[0].number <= self._arrived_before:
            # It was held back until now: this is the packet that the riders have waited for.
            riders.depart(s, child, publications)
        else:
            self._offer(riders, s, child, publications)

    # Riders.

    def hand_on(self, publication: Publication, above: i64, height: i64) -> None:
        riders = self.riders
        if riders is None:
            super().hand_on(publication, above, height)
            return
        s = above + 1
        while s <= height:
            child = self.cube.first(self.me, s)
            if child != NO_NODE:
                self._offer(riders, s, child, [publication])
            s += 1

    def rides(self, s: i64) -> bool:
        """Whether publications for the child in cluster ``s`` wait."""
        return self.riders is not None and (self.riders.options.always or self.holds_for(s))

    def _offer(self, riders: Riders, s: i64, child: i64, publications: list[Publication]) -> None:
        """Publications may leave: they do, unless there is something to wait for."""
        if self.rides(s):
            riders.add(s, child, publications)
        else:
            riders.depart(s, child, publications)

    def expire(self, name: i64) -> None:
        assert self.riders is not None, "only riders set timers"
        self.riders.expire(name)


def arrival_number(arrived: Arrived) -> int:
    """Sorts publications into the order in which they arrived."""
    return int(arrived.number)


def causes_first(publications: list[Publication]) -> list[Publication]:
    """The publications of one packet in an order in which none stands before one that it names."""
    sorted_ones: list[Publication] = []
    rest = publications
    while len(rest) > 0:
        later: list[Publication] = []
        for publication in rest:
            if any(follows(publication, other) for other in rest if other is not publication):
                later.append(publication)
            else:
                sorted_ones.append(publication)
        rest = later
    return sorted_ones


def follows(publication: Publication, other: Publication) -> bool:
    """Whether a publication names another one, or comes later from the same source."""
    if publication.source == other.source:
        return publication.sequence > other.sequence
    for key in publication.dependencies:
        if key & SOURCE_MASK == other.source and key >> SOURCE_BITS >= other.sequence:
            return True
    return False
