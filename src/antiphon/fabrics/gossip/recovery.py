"""Fetches missing publications, decides how long others are kept, and passes over those that no node has kept.

The trees carry publications. They may fail, because links lose messages or a repair takes a while, so reliability does
not depend on them. Every period a node tells its neighbours, for each source, up to which number it has everything. A
node that is behind a neighbour for more than a period requests the missing publications and hands them on. So all nodes
of a connected overlay receive everything that one of them has.

**Loss.** No node may have kept a publication when another one requests it. A stuck node asks the source, the seeds and
others too, and nodes that have forgotten the publication ask their neighbours
(:mod:`antiphon.fabrics.gossip.retransmit`). The node passes the publication over if it is stuck for ``HOPELESS`` times
the patience, twice as long if the source does not answer, and all neighbours that had the publication say that it is
gone, and so does its source or a seed. The application is told so at its place in the order, and later publications are
delivered. Other publications that have been missing for as long are passed over with it: the wait does not grow with
their number. To make this rare, a node that has lost a neighbour forgets nothing that its buffer holds. A node that
doubts that it is connected with a seed waits ``ALONE`` times longer: nodes behind a partition may have the publication.
A publication that only its source had, and nodes that have failed with it, is no node's to speak of. A node that has
heard of it, or of a later one, passes it over after ``VANISHED`` times that wait.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.fabrics.gossip.application import Application
from antiphon.fabrics.gossip.messages import TREE_BITS, FetchRequest, NotKept, Report
from antiphon.fabrics.gossip.options import BrisaOptions
from antiphon.fabrics.gossip.quiescence import Quiescence
from antiphon.fabrics.gossip.retransmit import SEARCH_HOPS
from antiphon.fabrics.gossip.sampling.service import PeerSampling
from antiphon.fabrics.gossip.seeds import MOST_ATTEMPTS, Pulses, Seeds
from antiphon.fabrics.gossip.stream import Stream, stream_of
from antiphon.fabrics.gossip.trees import Trees
from antiphon.kernel.process import NO_NODE, UNBOUNDED, Environment
from antiphon.orders.order import Order

GAP_PATIENCE: Final = 2
"""So many publications come after one that is missing before it is asked for; it may just have been overtaken."""

HOPELESS: Final = 4
"""So many times the patience a node waits before it passes over a publication that no node that it asked has kept."""

ALONE: Final = 20
"""So many times longer it waits if there is nobody to ask: it may be cut off, and the others have what it lacks."""

LAST_RESORT: Final = 40
"""So many times longer it waits for the word of a node that had the publication. After that it is enough that
neighbours count it as past. They may be newcomers that never had it, and every node that had it may have failed."""

VANISHED: Final = 25
"""So many times longer it waits if no neighbour is ahead and the source says nothing: the source has failed, and every
node that had the publication with it. It is longer than others keep everything for nodes behind a partition."""

ASKED_IN_VAIN: Final = 6
"""So many questions a node sends to a neighbour that never answers before it asks only others; links lose messages."""

KEEP_ALL_PERIODS: Final = 600
"""For so many periods after a link has broken nothing is forgotten that fits into the buffer."""

FETCH_AFTER: Final = 1
"""So many periods something is missing before it is asked for; it may just be late."""


@final
class Recovery:
    """Asks for the publications of one topic that one node lacks, and decides how long it keeps others."""

    def __init__(
        self,
        environment: Environment,
        topic: i64,
        options: BrisaOptions,
        overlay: PeerSampling,
        seeds: Seeds,
        pulses: Pulses,
        streams: dict[i64, Stream],
        trees: Trees,
        order: Order,
        application: Application,
        quiescence: Quiescence,
    ) -> None:
        self._environment: Final[Environment] = environment
        self._me: Final[i64] = environment.identifier
        self._topic: Final[i64] = topic
        self._options: Final[BrisaOptions] = options
        self._overlay: Final[PeerSampling] = overlay
        self._neighbours: Final[list[i64]] = overlay.neighbours()
        self._seeds: Final[Seeds] = seeds
        self._pulses: Final[Pulses] = pulses
        self._streams: Final[dict[i64, Stream]] = streams
        self._trees: Final[Trees] = trees
        self._order: Final[Order] = order
        self._application: Final[Application] = application
        self._quiescence: Final[Quiescence] = quiescence
        # Periods for which everything is kept, since a link has broken.
        self._keep_all_for: i64 = 0
        # Periods after which it is enough that neighbours count a publication as past.
        self._last_resort: Final[i64] = LAST_RESORT * HOPELESS * options.patience
        # Periods after which a publication of which no neighbour has heard more than this node has vanished.
        self._vanished_after: Final[i64] = VANISHED * HOPELESS * options.patience
        # Publications that went from here though a neighbour may have lacked them.
        self.overflow: i64 = 0

    # Reports and gaps.

    def learn(self, sender: i64, report: Report, fetch_after: i64) -> bool:
        """See what somebody else has; ask for what is missing for long enough. True if something is missing."""
        is_behind = False
        numbers = report.numbers
        trees = self._trees
        position: i64 = 0
        while position < len(numbers):
            stream = stream_of(self._streams, numbers[position])
            number = numbers[position + 1]
            position += 2
            stream.peer_has(sender, number)
            if position <= 2 * len(report.floors) and sender in trees.links:
                stream.floors[sender] = report.floors[position // 2 - 1]
            if number <= stream.received.complete:
                if number < stream.received.complete and stream.quiet > self._options.patience:
                    # It lacks something that was not spoken of for long; say again that it is here.
                    stream.quiet = 0
                    self._quiescence.wake()
                continue
            is_behind = True
            if stream.hear(number):
                self._quiescence.wake()
            if stream.gone_at.get(sender, 0) > stream.received.complete:
                # It cannot help, and shows nothing about the parents.
                continue
            key = stream.source << TREE_BITS
            if self._options.trees == 1 and key in trees.structures:
                trees.seen_ahead(trees.structures[key])
            if stream.missing_for >= fetch_after and stream.fetches < MOST_ATTEMPTS:
                self._fetch(sender, stream, number)
        return is_behind

    def answer_slowed(self, sender: i64, report: Report) -> None:
        """Say again how far this node is ready, if a neighbour still reports a source that may wait to hear it.

        An earlier report may be lost, and neither of the two would ever speak again. Only a source, or a node that is
        slowed itself, is answered; so no answer causes another.
        """
        patience = self._options.patience
        position: i64 = 0
        while position < len(report.floors):
            source = report.numbers[2 * position]
            is_slowed = report.floors[position] < report.numbers[2 * position + 1]
            position += 1
            stream = stream_of(self._streams, source)
            if stream.quiet > patience and (is_slowed or sender == source):
                stream.quiet = patience
                self._quiescence.stir()

    def notice_gap(self, sender: i64, stream: Stream) -> None:
        """Something came after what is missing. When that happens again, what is missing is not just late."""
        stream.came_beyond += 1
        if stream.came_beyond >= GAP_PATIENCE and self._options.rules.recovers:
            stream.came_beyond = 0
            self._fetch(sender, stream, stream.heard)

    def on_not_kept(self, sender: i64, message: NotKept) -> None:
        """Somebody that was asked has not kept what is missing."""
        stream_of(self._streams, message.source).peer_lost_it(sender, message.sequence)

    def _fetch(self, sender: i64, stream: Stream, last: i64) -> None:
        """Ask a node for publications that it has and this node misses, unless it could not help before.

        It has said that they are gone, or it has not answered: a newcomer counts publications as past that it never
        had. Then this node searches further (:meth:`_search_further`).
        """
        asked = stream.asked.get(sender, 0)
        if asked < ASKED_IN_VAIN and stream.gone_at.get(sender, 0) <= stream.received.complete:
            stream.asked[sender] = asked + 1
            self._ask(sender, stream, last, 0)

    def _ask(self, peer: i64, stream: Stream, last: i64, hops: i64) -> None:
        """Ask somebody for what is missing up to a number."""
        missing = stream.missing(last)
        if len(missing) > 0:
            # Others that say the same in this period need not be asked.
            stream.missing_for = 0
            stream.fetches += 1
            self._environment.send(peer, FetchRequest(stream.source, self._topic, missing, hops))

    # Neighbours come and go.

    def neighbour_up(self, peer: i64) -> None:
        """A new neighbour may have what is missing."""
        for stream in self._streams.values():
            stream.hope(peer)

    def neighbour_down(self, peer: i64) -> None:
        """A neighbour has gone, and may come back for what it lacks."""
        patience = self._options.patience
        for stream in self._streams.values():
            if stream.has.pop(peer, 0) < stream.received.complete and stream.quiet <= patience:
                # Nobody else need have it.
                self._keep_all_for = max(self._keep_all_for, 2 * HOPELESS * patience)
            stream.floors.pop(peer, None)

    def link_lost(self) -> None:
        """A link is broken. If the network is, the other side will ask for what is published meanwhile."""
        self._keep_all_for = KEEP_ALL_PERIODS

    def reconnected(self) -> None:
        """A doubt is over, perhaps because a cut is: what was missing all the time is asked for once more."""
        for stream in self._streams.values():
            if stream.stuck_for > 2 * self._options.patience:
                stream.hope(NO_NODE)

    # The periodic part.

    def period_passed(self) -> None:
        """Look further for what is still missing, pass over what is gone, and forget what all neighbours have."""
        patience = self._options.patience
        keep = self._options.keep
        if self._keep_all_for > 0 or self._pulses.is_in_doubt:
            keep = self._options.buffer
            self._keep_all_for -= 1
        for stream in self._streams.values():
            if stream.quiet > patience:
                continue
            stream.quiet += 1
            if stream.is_missing():
                stream.period_passed_missing()
                stream.count_unserved(self._neighbours)
                if stream.stuck_for > patience and self._options.rules.recovers:
                    self._search_further(stream)
                if self._is_hopeful(stream):
                    stream.quiet = 0
                    self._quiescence.quiet = 0
            elif self._options.window > 0 and self._is_slow_or_slowed(stream):
                # A neighbour waits to hear that this node is ready for more; or this node waits to hear it.
                stream.quiet = 0
                self._quiescence.quiet = 0
            self.overflow += stream.collect(self._neighbours, keep, self._options.buffer, self._order)

    def _is_slow_or_slowed(self, stream: Stream) -> bool:
        """Whether this node is not ready to go on with a source; or is the source, and waits to hear of neighbours."""
        is_slow = stream.floor < stream.received.complete
        return is_slow or (stream.source == self._me and stream.is_slowed(self._neighbours))

    def _is_hopeful(self, stream: Stream) -> bool:
        """Whether what is missing may still come, so that this node must not fall silent."""
        patience = self._options.patience
        if 0 < stream.unserved_for <= self._last_resort + patience or stream.stuck_for <= self._vanished_after:
            return True
        if stream.missing_for > patience and stream.stuck_for > self._longest_stuck(stream) + patience:
            return False
        return stream.fetches < MOST_ATTEMPTS or self._is_alone() or self._pulses.is_in_doubt

    def _search_further(self, stream: Stream) -> None:
        """Nobody nearby has what is missing: the source, a seed or anybody may, or somebody beside them.

        If it is gone there too, pass it over.
        """
        if stream.stuck_for > self._longest_stuck(stream):
            gone = stream.gone_up_to(self._neighbours, self._seeds.others, self._seeds.includes_me)
            if gone == 0 and stream.unserved_for > self._last_resort and not self._pulses.is_in_doubt:
                gone = stream.past_of_others(self._neighbours)
            if gone == 0 and stream.stuck_for > self._vanished_after and not self._pulses.is_in_doubt:
                gone = stream.vanished(self._neighbours)
            for missed in stream.pass_over(gone, self._topic):
                self._application.take(missed)
        if stream.missing_for > FETCH_AFTER and stream.is_missing() and stream.fetches < MOST_ATTEMPTS:
            asked = self._to_ask_further(stream)
            stream.asked_further += 1
            if asked not in (NO_NODE, self._me):
                self._ask(asked, stream, stream.heard, SEARCH_HOPS)

    def _to_ask_further(self, stream: Stream) -> i64:
        """The source, and in turn a seed, a neighbour and any node; each of them asks around for what it lost.

        The source had everything, and its word is worth most: it is asked every other time.
        """
        turn = stream.asked_further // 6
        seeds = self._seeds.others
        if stream.asked_further % 2 == 0:
            return stream.source
        if stream.asked_further % 6 == 1 and len(seeds) > 0:
            return seeds[(self._me + turn) % len(seeds)]
        if stream.asked_further % 6 == 3 and len(self._neighbours) > 0:
            return self._neighbours[turn % len(self._neighbours)]
        sampled = self._overlay.sample(1)
        return sampled[0] if len(sampled) > 0 else stream.source

    def hopeless_after(self) -> i64:
        """So many periods something is missing before it may be passed over; a lonely node can only wait."""
        return (ALONE if self._is_alone() else 1) * HOPELESS * self._options.patience

    def _longest_stuck(self, stream: Stream) -> i64:
        """So many periods something is missing before it may be passed over: more while its source has said nothing.

        A node that doubts that it is connected with a seed waits for as long as others keep everything: those on the
        other side of a cut may have what all on this side have forgotten, its source included.
        """
        if self._is_alone():
            return self.hopeless_after()
        if self._pulses.is_in_doubt:
            return ALONE * self.hopeless_after()
        has_spoken = stream.gone_at.get(stream.source, 0) > stream.received.complete
        return self.hopeless_after() * (1 if has_spoken else 2)

    def _is_alone(self) -> bool:
        """Whether there is nobody else, as far as this node knows."""
        return len(self._neighbours) == 0 and len(self._seeds.others) == 0

    # Questions of others.

    def first_unsettled(self) -> i64:
        """The first own publication that may be lost with this node: not all neighbours have said that they have it."""
        own = self._streams.get(self._me)
        if self._is_alone():
            return UNBOUNDED
        return 1 if own is None else own.settle(self._neighbours) + 1

    def unfinished(self) -> i64:
        """How many sources something is missing of, with this node itself if neighbours slow it down."""
        waiting: i64 = 0
        own = self._streams.get(self._me)
        if own is not None and self._options.window > 0 and self._is_slow_or_slowed(own):
            waiting += 1
        for stream in self._streams.values():
            if stream.is_missing():
                waiting += 1
        return waiting
