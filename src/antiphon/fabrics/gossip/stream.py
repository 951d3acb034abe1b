"""The publications of one source at one node: which numbers it received, and those that it keeps for others.

A publication is kept while a neighbour is not known to have it, and the last ``keep`` in any case, for neighbours to
come. A node that has lost a neighbour keeps all: the other side of a partition may lack it. There is a hard bound
beyond which the oldest go; a node that asks for one of these is told that it is gone. If nobody has it any more it is
passed over (:class:`Missed`).

**Slowing publishers.** With a ``window``, nodes tell how far they are ready to go on with each source: as far as they
have everything, unless their application is behind, and no more than a window beyond any neighbour. A publisher is no
more than a window beyond its neighbours either. So somebody ``d`` hops away is at most ``d`` windows behind.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.interval_set import IntervalSet
from antiphon.kernel.message import FIFO, Publication, publication_key
from antiphon.orders.fifo import NO_DEPENDENCIES
from antiphon.orders.order import Order

MOST_FETCHED: Final = 64
"""So many publications are asked for, or sent again, at a time."""

PASSED_AT_MOST: Final = 8192
"""So many publications of a source a node gives up in one period: as many as logs serve."""


@final
@mypyc_attr(acyclic=True)
class Missed(Publication):
    """Stands in the order for a publication that is passed over, so that what comes after it is not held for ever.

    Its followers also follow its dependencies, where these are known. It ``is_late`` if the publication arrived when
    its place in total order was already past; otherwise no node has kept it.
    """

    def __init__(
        self,
        source: i64,
        sequence: i64,
        topic: i64,
        dependencies: vec[i64] = NO_DEPENDENCIES,
        is_late: bool = False,
    ) -> None:
        super().__init__(source, sequence, 0, b"", topic, FIFO, dependencies)
        self.is_late: Final[bool] = is_late


@final
class QueuedRequest:
    """A request of the application that waits until the node is part of the topic: to publish, to come or to go."""

    def __init__(self, sequence: i64, timestamp: i64, payload: bytes | None, order: i64) -> None:
        self.sequence: Final[i64] = sequence
        self.timestamp: Final[i64] = timestamp
        self.payload: Final[bytes | None] = payload
        self.order: Final[i64] = order


@final
class Stream:
    """One source, as one node has received it."""

    def __init__(self, source: i64) -> None:
        self.source: Final[i64] = source
        # The numbers that were received, or count as past.
        self.received: Final = IntervalSet()
        # The highest number that anybody is known to have.
        self.heard: i64 = 0
        self.kept: Final[dict[i64, Publication]] = {}
        self.oldest_kept: i64 = 1
        # The structure of somebody else that this source was last seen to use; -1 if it uses its own.
        self.reused: i64 = -1
        # Periods since something new was heard; periods since something is known to be missing.
        self.quiet: i64 = 0
        self.missing_for: i64 = 0
        # Periods since something is missing and nothing of it has come, and what was missing when that began.
        self.stuck_for: i64 = 0
        # Periods since neighbours are ahead, and none of them has sent it.
        self.unserved_for: i64 = 0
        self._stuck_up_to: i64 = 0
        # How often the source or a contact was asked because nobody nearby had it.
        self.asked_further: i64 = 0
        self.fetches: i64 = 0
        # By node, the questions that it was asked since something of what is missing has come.
        self.asked: Final[dict[i64, i64]] = {}
        # Publications that have come since one before them is missing.
        self.came_beyond: i64 = 0
        # Up to which number neighbours have everything; up to which number somebody has not kept it.
        self.has: Final[dict[i64, i64]] = {}
        # How far neighbours are ready to go on, and how far this node was when it last said so.
        self.floors: Final[dict[i64, i64]] = {}
        self.floor: i64 = 0
        self.gone_at: Final[dict[i64, i64]] = {}
        # New neighbours since the last time that something of what is missing has come.
        self._hoped_for: Final[set[i64]] = set()
        # Up to this number all neighbours had everything at some time.
        self._settled: i64 = 0
        # Up to this number a neighbour's word counts as the past of this node.
        self._assumed: i64 = 0

    def is_here(self, sequence: i64) -> bool:
        """Whether a number was received, or counts as past."""
        return self.received.has(sequence)

    def had(self, sequence: i64) -> bool:
        """Whether this node has received a number, or passed it over because no node had kept it."""
        return sequence > self._assumed and self.received.has(sequence)

    def assume(self) -> None:
        """Count everything up to now as the past of others: this node may never have received it."""
        self._assumed = self.received.highest()

    def take(self, publication: Publication) -> bool:
        """Note a publication that has arrived; false if it came before."""
        sequence = publication.sequence
        if not self.skip(sequence):
            return False
        self.kept[sequence] = publication
        if sequence < self.oldest_kept:
            self.oldest_kept = sequence
        self.hear(sequence)
        self.quiet = 0
        return True

    def hear(self, number: i64) -> bool:
        """Somebody has a number; true if nobody was known to have it. With it comes hope for what is missing."""
        if number <= self.heard:
            return False
        self.heard = number
        self.quiet = 0
        self.fetches = 0
        return True

    def hope(self, peer: i64) -> None:
        """A new neighbour may have what is missing, though all before it said that it is gone; each is asked once.

        ``NO_NODE`` stands for all nodes that were cut off until now.
        """
        if self.stuck_for > 0 and peer not in self._hoped_for:
            self._hoped_for.add(peer)
            self.asked.clear()
            self.stuck_for = 0
            self.unserved_for = 0
            # Questions that nobody could answer before are asked again.
            self.fetches = 0
            self.quiet = 0

    def peer_has(self, peer: i64, number: i64) -> None:
        """Somebody has everything up to a number. If it had less before, it may have got what is missing here."""
        following = self.received.complete + 1
        if number >= following and self.has.get(peer, 0) < following:
            self.asked.pop(peer, None)
            self.fetches = 0
            self.quiet = 0
        self.has[peer] = number

    def peer_lost_it(self, peer: i64, number: i64) -> None:
        """Somebody had everything up to a number and has not kept it."""
        self.gone_at[peer] = max(number, self.gone_at.get(peer, 0))

    def skip(self, sequence: i64) -> bool:
        """Count a number as received; false if it was before."""
        if sequence != self.received.complete + 1:
            return self.received.add(sequence)
        self._advance_to(sequence)
        self._has_moved()
        return True

    def _advance_to(self, sequence: i64) -> None:
        """Count the next number as received, and those beyond it that have come."""
        self.received.add(sequence)
        self.missing_for = 0
        self.fetches = 0
        self.came_beyond = 0

    def _has_moved(self) -> None:
        """There is hope again for what is still missing."""
        self.stuck_for = 0
        if len(self.asked) > 0:
            self.asked.clear()
        self.unserved_for = 0
        if len(self._hoped_for) > 0:
            self._hoped_for.clear()

    def period_passed_missing(self) -> None:
        """Something has been missing for one more period."""
        if self.stuck_for == 0:
            self._stuck_up_to = self.heard
        self.missing_for += 1
        self.stuck_for += 1

    def start_from(self, sequence: i64) -> None:
        """Count all up to a number as received."""
        if sequence > self.received.complete:
            self.received.complete_to(sequence)
            self.oldest_kept = sequence + 1
        if self.received.complete > self.heard:
            self.heard = self.received.complete

    def is_missing(self) -> bool:
        """Whether somebody has something that this node has not."""
        return self.heard > self.received.complete

    def missing(self, last: i64) -> vec[i64]:
        """The first numbers up to ``last`` that are missing."""
        found = vec[i64]()
        for first, end in self.received.outside(self.received.complete + 1, last):
            for number in range(first, min(end, first + MOST_FETCHED - len(found) - 1) + 1):
                found = append(found, number)
        return found

    def kept_after(self, after: i64) -> list[Publication]:
        """The kept publications that follow a number, as many as are sent at a time."""
        found: list[Publication] = []
        number = after + 1
        last = min(self.heard, after + MOST_FETCHED)
        while number <= last:
            publication = self.kept.get(number)
            if publication is not None:
                found.append(publication)
            number += 1
        return found

    def gone_up_to(self, neighbours: list[i64], contacts: list[i64], is_contact: bool) -> i64:
        """Up to which number what is missing next is gone; 0 if that is not certain.

        All neighbours that had it must say so, and beside them the source, or a contact. For a contact its neighbours
        are enough: other contacts may never have had it, and wait as this one does.
        """
        following = self.received.complete + 1
        lowest = self.heard
        # A node that is alone has nobody to ask.
        has_asked = len(contacts) == 0 and len(neighbours) == 0
        for peer in neighbours:
            if self.has.get(peer, 0) >= following:
                lowest = min(lowest, self.gone_at.get(peer, 0))
                has_asked = has_asked or is_contact or len(contacts) == 0
        said = self.gone_at.get(self.source, 0)
        if said >= following:
            has_asked = True
            lowest = min(lowest, said)
        for contact in contacts:
            gone = self.gone_at.get(contact, 0)
            if gone >= following:
                has_asked = True
                lowest = min(lowest, gone)
        return lowest if has_asked and lowest >= following else 0

    def ready_for(self, window: i64, has_capacity: bool) -> i64:
        """How far this node is ready to go on: not beyond what it has, nor more than a window beyond a neighbour."""
        if has_capacity:
            floor = self.received.complete
            for other in self.floors.values():
                floor = min(floor, other + window)
            self.floor = max(self.floor, floor)
        return self.floor

    def lowest_floor(self) -> i64:
        """How far all neighbours are ready to go on."""
        floor = self.received.complete
        for other in self.floors.values():
            floor = min(floor, other)
        return floor

    def settle(self, neighbours: list[i64]) -> i64:
        """Up to which number those neighbours have everything that have said anything; it only grows."""
        lowest: i64 = -1
        for peer in neighbours:
            reached = self.has.get(peer, -1)
            if reached >= 0 and (lowest < 0 or reached < lowest):
                lowest = reached
        self._settled = max(self._settled, lowest)
        return self._settled

    def is_slowed(self, neighbours: list[i64]) -> bool:
        """Whether a neighbour has not said that it is ready for more, or has said that it lacks something."""
        complete = self.received.complete
        if self.lowest_floor() < complete:
            return True
        if self.settle(neighbours) >= complete:
            return False
        return any(self.has.get(peer, complete) < complete for peer in neighbours)

    def pass_over(self, gone: i64, topic: i64) -> list[Missed]:
        """Count as received what is missing up to a number, since nobody has kept it; what stands for it.

        Of a number far ahead, which only a node that lies can give, the rest is passed over in the next periods.
        """
        passed: list[Missed] = []
        while self.received.complete < gone and len(passed) < PASSED_AT_MOST:
            number = self.received.complete + 1
            self._advance_to(number)
            passed.append(Missed(self.source, number, topic))
        if len(passed) > 0:
            # Nodes that could not help with these may help with others.
            self.asked.clear()
        if self.received.complete >= self._stuck_up_to:
            # What is missing now has not been missing for as long.
            self._has_moved()
        return passed

    def collect(self, neighbours: list[i64], keep: i64, buffer: i64, order: Order) -> i64:
        """Forget delivered publications that all neighbours have, or that do not fit into the buffer.

        The result is the number of the latter: other nodes may still miss them. A publication that waits for its turn
        in the order is in no log yet, and is in memory anyway; it is kept.
        """
        if len(self.kept) <= keep:
            return 0
        floor = self.received.complete
        for peer in neighbours:
            floor = min(floor, self.has.get(peer, 0))
        while len(self.kept) > keep and self.oldest_kept <= floor:
            if not order.counts(publication_key(self.source, self.oldest_kept)):
                break
            self.kept.pop(self.oldest_kept, None)
            self.oldest_kept += 1
        return self._collect_overflow(buffer, order) if len(self.kept) > buffer else 0

    def _collect_overflow(self, buffer: i64, order: Order) -> i64:
        overflow: i64 = 0
        number = self.oldest_kept
        while len(self.kept) > buffer and number <= self.heard:
            if order.counts(publication_key(self.source, number)):
                if self.kept.pop(number, None) is not None:
                    overflow += 1
                if number == self.oldest_kept:
                    self.oldest_kept += 1
            number += 1
        return overflow

    def past_of_others(self, neighbours: list[i64]) -> i64:
        """Up to which number everything is past at all neighbours that are ahead of this node; 0 if none is ahead."""
        lowest: i64 = 0
        for peer in neighbours:
            number = self.has.get(peer, 0)
            if number > self.received.complete and (lowest == 0 or number < lowest):
                lowest = number
        return lowest

    def vanished(self, neighbours: list[i64]) -> i64:
        """Up to which number all has been missing for as long as the next one; 0 if a neighbour is ahead."""
        return 0 if self.past_of_others(neighbours) > 0 else self._stuck_up_to

    def count_unserved(self, neighbours: list[i64]) -> None:
        """A period has passed in which nothing of what is missing came, though neighbours may be ahead."""
        self.unserved_for = self.unserved_for + 1 if self.past_of_others(neighbours) > 0 else 0


def stream_of(streams: dict[i64, Stream], source: i64) -> Stream:
    """The stream of a source, which begins when it is first asked for."""
    found = streams.get(source)
    if found is None:
        found = Stream(source)
        streams[source] = found
    return found
