"""One topic at one node: its overlay, its structures, what it has received, and how what is missing is recovered.

The structures (:mod:`antiphon.fabrics.gossip.trees`) carry publications; they may fail to, because links lose messages
or a repair takes a while. Reliability does not depend on them. Every period a node tells its neighbours, for each
source, up to which number it has everything. Whoever is behind a neighbour for more than a period asks it for what is
missing, and hands on what it gets. So what any node of a connected overlay has, all will have.

**Silence.** A topic on which nothing happens costs nothing: after some periods without news a node compares what it has
with a contact, and stops its timer when nothing is missing. Anything new wakes it up. The comparison is also what
finds an overlay that has fallen into parts, which no neighbour could tell: where the two differ they become
neighbours. Contacts compare with each other. Parts that differ in nothing are found by pulses
(:mod:`antiphon.fabrics.gossip.seeds`).

**Newcomers** ask a neighbour what counts as past there (``Hello``, ``Welcome``), and start from that: everything that
is published later has a higher number, and will be noticed to be missing. What one node has delivered is closed under
its order, so no more than one need be asked.

**Loss.** A publication may be gone everywhere: kept by nobody any more when one that lacks it comes to ask. A node that
is stuck asks the source, the contacts and others too, and those that have forgotten it ask their neighbours. If it is
stuck for ``HOPELESS`` times the patience, twice as long if the source does not answer, and all neighbours that had the
publication say that it is gone, and so does its source or a contact, then it is passed over: the application is told so
at its place in the order, and what comes after is delivered. So that this is rare, a node that has lost a neighbour
forgets nothing that its buffer holds, and a node that doubts that it is connected with a contact waits ``ALONE`` times
longer: behind a cut somebody may hold it.

**Orders**, total order among them, stand beside all this (:mod:`antiphon.fabrics.gossip.delivery`).

**Leaving.** Who unsubscribes delivers nothing more at once, but goes on relaying until it falls silent, so that what it
published last is with others by then. Contacts stay in the overlay of every topic, subscribed or not.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.gossip.delivery import Deliveries
from antiphon.fabrics.gossip.epto.messages import Ball, Probe
from antiphon.fabrics.gossip.hyparview import HyParView
from antiphon.fabrics.gossip.messages import (
    TREE_BITS,
    Activate,
    Beat,
    Comparison,
    Data,
    Deactivate,
    Fetch,
    Gone,
    Hello,
    Moved,
    Report,
    Resent,
    Welcome,
)
from antiphon.fabrics.gossip.options import BrisaOptions
from antiphon.fabrics.gossip.peer_sampling import Connections, Neighbourhood, PeerSampling, SamplingMessage
from antiphon.fabrics.gossip.reach import SURVEYED, Reach
from antiphon.fabrics.gossip.retransmit import SEARCH_HOPS, Searches, serve
from antiphon.fabrics.gossip.seeds import RELAY_PERIODS, Contacts, Pulses, waiting_periods
from antiphon.fabrics.gossip.stream import Asked, Stream, stream_of
from antiphon.fabrics.gossip.trees import Trees
from antiphon.kernel.message import TOTAL, Message
from antiphon.kernel.process import NO_NODE, UNBOUNDED, Environment
from antiphon.orders.order import Order, Ordered

MOST_ATTEMPTS: Final = 64
"""So often a node tries to join, to fetch a publication or to compare with a contact before it gives up."""

GAP_PATIENCE: Final = 2
"""So many publications come after one that is missing before it is asked for; it may just have been overtaken."""

UNHEARD_PERIODS: Final = 3
"""So many periods a newcomer whom no neighbour answers waits before it turns to a contact again."""

HOPELESS: Final = 4
"""So many times the patience a node waits before it passes over what all whom it asked have not kept."""

ALONE: Final = 20
"""So many times longer it waits if there is nobody to ask: it may be cut off, and the others have what it lacks."""

KEEP_ALL_PERIODS: Final = 600
"""For so many periods after a link has broken nothing is forgotten that fits into the buffer."""

FETCH_AFTER: Final = 1
"""So many periods something is missing before it is asked for; it may just be late."""


class Group(Neighbourhood):
    """One topic at one node, from the moment it joins the overlay of the topic until it has left.

    The rivals of BRISA differ from it in the overlay, in the way of publications over it, and in what is said to whom
    once per period; the rest is the same for all.
    """

    def __init__(
        self,
        environment: Environment,
        topic: i64,
        options: BrisaOptions,
        connections: Connections,
        contacts: Contacts,
        born: i64,
    ) -> None:
        self._environment: Final[Environment] = environment
        self._me: Final[i64] = environment.identifier
        self.topic: Final[i64] = topic
        self._options: Final[BrisaOptions] = options
        self._born: Final[i64] = born
        self.sampling: Final[PeerSampling] = self.new_sampling(connections)
        self._neighbours: Final[list[i64]] = self.sampling.neighbours()
        self._all_contacts: Final[Contacts] = contacts
        self._contacts: Final[list[i64]] = contacts.others
        self._pulses: Final = Pulses(self._me, contacts)
        self.streams: Final[dict[i64, Stream]] = {}
        self.trees: Final[Trees] = self.new_trees()
        self.deliveries: Final = Deliveries(environment, topic, options, self.sampling, self.streams)
        self.order: Final[Order] = self.deliveries.order
        self._reach: Final = Reach(options.period, options.longest_wait)
        self._may_wait: Final[bool] = options.longest_wait > 0 and self.deliveries.has_total_order()
        self._searches: Final = Searches(environment, topic, options.patience * options.period)
        self.is_synchronised: bool = False
        self.is_gone: bool = False
        self.queue: list[Asked] = []
        self.is_ticking: bool = False
        self._quiet: i64 = 0
        self._attempts: i64 = 0
        self._unheard: i64 = 0
        # Periods until the next attempt to enter; how quiet it must be for the next comparison.
        self._enter_after: i64 = 0
        self._compare_after: i64 = 0
        self._comparisons: i64 = 0
        self._has_compared: bool = False
        # How many comparisons this node has asked for, and how many of them before something happened.
        self._questions: i64 = 0
        self._stale_questions: i64 = 0
        # Periods for which everything is kept, since a link has broken.
        self._keep_all_for: i64 = 0
        # Publications that went from here though a neighbour may have lacked them; copies that came again.
        self.overflow: i64 = 0
        self.duplicates: i64 = 0

    def new_sampling(self, connections: Connections) -> PeerSampling:
        """The overlay."""
        return HyParView(self._environment, self.topic, connections, self, self._options.view)

    def new_trees(self) -> Trees:
        """The way of publications over it."""
        return Trees(self._environment, self.topic, self._options, self._neighbours, self.streams)

    # What the application does.

    def found(self) -> None:
        """Be the first node of the topic."""
        self.is_synchronised = True

    def begin(self, delay: i64) -> None:
        """Join the overlay after a while."""
        if not self.is_ticking:
            self.is_ticking = True
            self._environment.set_timer(delay, self.topic)

    def ask(self, asked: Asked) -> None:
        """The application wants something; it happens when the node is part of the overlay."""
        self.queue.append(asked)
        if self._attempts >= MOST_ATTEMPTS:
            # It had given up; the application has not.
            self._attempts = 0
        self.wake()
        if self.is_synchronised:
            self._serve()

    def _serve(self) -> None:
        """Do what the application asked for, in that order, as far as it may happen now."""
        deliveries = self.deliveries
        queue = self.queue
        self.queue = []
        for position, asked in enumerate(queue):
            payload = asked.payload
            if not deliveries.may_begin(asked):
                self.queue = queue[position:]
                return
            if payload is not None:
                self._publish(asked, payload)
            elif deliveries.is_member:
                deliveries.is_member = False
                self._environment.unsubscribed(self.topic)
            else:
                deliveries.is_member = True
                self._environment.subscribed(self.topic)

    def _publish(self, asked: Asked, payload: bytes) -> None:
        publication = self.deliveries.begin(asked, payload)
        own = self.stream(self._me)
        own.take(publication)
        if self._options.window > 0:
            # Who has said nothing yet counts as ready for what came before this.
            for peer in self._neighbours:
                if peer not in own.floors:
                    own.floors[peer] = asked.sequence - 1
        if asked.order != TOTAL:
            self._environment.deliver(publication)
        self.trees.begin(publication)

    def stream(self, source: i64) -> Stream:
        """What this node has of a source, from the moment it first hears of it."""
        return stream_of(self.streams, source)

    # The overlay.

    def neighbours_changed(self, is_loss: bool) -> None:
        """Where links last, a new one or one less is news; without one this node may be apart from others."""
        if is_loss:
            self._pulses.doubt()
        self.wake()

    def neighbour_up(self, peer: i64) -> None:
        self.trees.neighbour_up(peer)
        self._reach.neighbour_up(peer, self._environment.now())
        for stream in self.streams.values():
            stream.hope(peer)
        self.neighbours_changed(False)
        if not self.is_synchronised:
            self._environment.send(peer, Hello(self._me, 0, self.topic))

    def neighbour_down(self, peer: i64) -> None:
        self.trees.neighbour_down(peer)
        self._reach.neighbour_down(peer)
        patience = self._options.patience
        for stream in self.streams.values():
            if stream.has.pop(peer, 0) < stream.complete and stream.quiet <= patience:
                # It may lack something for which it will come back, and nobody else need have it.
                self._keep_all_for = max(self._keep_all_for, 2 * HOPELESS * patience)
            stream.floors.pop(peer, None)
        self.neighbours_changed(True)

    def link_lost(self, peer: i64) -> None:
        """A link is broken. If the network is, the other side will ask for what is published meanwhile."""
        if self.sampling.is_neighbour(peer):
            self._keep_all_for = KEEP_ALL_PERIODS
            if self._may_wait:
                self._reach.link_lost(peer, self._environment.now(), self.sampling.sample(SURVEYED))
        self.sampling.lost(peer)

    def contact_found(self) -> None:
        """There is a contact that was none before, perhaps apart from here: try again what was given up."""
        self._attempts = 0
        self._enter_after = 0
        if self._all_contacts.includes_me:
            self._pulses.doubt()
        self.wake()

    def invite(self, contacts: list[i64]) -> None:
        """Let contacts that may not know of this topic take part in it."""
        for contact in contacts:
            self._environment.send(contact, Comparison(self._me, self.topic, self._report(0), False, False))

    def peer_found(self, peer: i64) -> None:
        """A contact is back: make sure that it is part of the same overlay."""
        if peer in self._contacts and self.is_synchronised:
            self.sampling.wanted(peer)
            self.wake()

    # Messages.

    def receive(self, sender: i64, message: Message) -> None:
        """A message of this topic."""
        if isinstance(message, Data):
            self._data(sender, message)
        elif isinstance(message, Beat):
            self._beat(sender, message)
        elif isinstance(message, (Ball, Probe)):
            self._of_total_order(sender, message)
        elif isinstance(message, SamplingMessage):
            self.sampling.receive(sender, message)
        elif isinstance(message, Deactivate):
            self.trees.deactivated(sender, message.key)
        elif isinstance(message, Activate):
            self.trees.activated(sender, message.key)
            # A new child has all of the root up to a number.
            for publication in self.stream(message.source).kept_after(message.last):
                self._environment.send(sender, Resent(publication))
        elif isinstance(message, Moved):
            self.trees.moved(sender, message.key, message.position)
        else:
            self._recovery(sender, message)

    def _of_total_order(self, sender: i64, message: Message) -> None:
        """A message of EpTO."""
        if self.is_synchronised:
            if isinstance(message, Probe) and message.is_answer:
                self._reach.confirmed(sender, message.sent_at)
            self.deliveries.receive(sender, message)
            self._go_on()

    def _recovery(self, sender: i64, message: Message) -> None:
        """The rarer messages."""
        if isinstance(message, Resent):
            self._resent(sender, message.publication)
        elif isinstance(message, Fetch):
            forgotten = serve(self._environment, self.stream(message.source), sender, message)
            if message.hops > 0 and len(forgotten) > 0:
                self._searches.begin(sender, message.source, forgotten, message.hops, self._neighbours)
        elif isinstance(message, Gone):
            self.stream(message.source).peer_lost_it(sender, message.sequence)
        elif isinstance(message, Hello):
            if self.is_synchronised:
                self._environment.send(sender, self.deliveries.welcome())
        elif isinstance(message, Welcome):
            self._welcomed(message)
        elif isinstance(message, Comparison):
            self.compared(sender, message)

    def _data(self, sender: i64, data: Data) -> None:
        if not self.is_synchronised:
            # It cannot be told yet whether this is past; if not, it will be missed and fetched.
            return
        if sender not in self._neighbours:
            self.sampling.heard_from(sender)
        stream = self.stream(data.source)
        stream.reused = data.key if data.is_upward else -1
        is_new = stream.take(data.publication)
        if is_new:
            if len(stream.beyond) > 0:
                self.notice_gap(sender, stream)
            self._release(data.publication)
        else:
            self.duplicates += 1
        self.trees.arrived(sender, data, is_new)

    def _resent(self, sender: i64, publication: Ordered) -> None:
        if not self.is_synchronised:
            return
        stream = self.stream(publication.source)
        if stream.take(publication):
            self._release(publication)
            self.trees.resent(publication, sender, stream.reused)
        else:
            self.duplicates += 1
        self._searches.found(publication)

    def _release(self, publication: Ordered) -> None:
        """Deliver what may be delivered now."""
        self.wake()
        self.deliveries.arrived(publication)
        self._go_on()

    def round_passed(self) -> None:
        """The timer of total order has run out."""
        self.deliveries.round_passed()
        self._go_on()

    def _go_on(self) -> None:
        """Perhaps something was delivered for which the application's next wish had to wait."""
        if len(self.queue) > 0 and self.is_synchronised and self.deliveries.may_begin(self.queue[0]):
            self._serve()

    def _welcomed(self, message: Welcome) -> None:
        if not self.is_synchronised:
            self.deliveries.welcomed(message.frontier, message.stamp)
            self.is_synchronised = True
            self.wake()
            self._serve()

    # Recovery.

    def _beat(self, sender: i64, beat: Beat) -> None:
        link = self.trees.links.get(sender)
        if link is None:
            self.sampling.heard_from(sender)
        else:
            link.heard(beat, self._environment.now())
            if beat.echo >= 0:
                self._reach.confirmed(sender, beat.echo)
        if not self.is_synchronised:
            return
        report = beat.report
        was_in_doubt = self._pulses.is_in_doubt
        if link is not None and self._pulses.heard(report.pulses):
            self._stir()
            if was_in_doubt and not self._pulses.is_in_doubt:
                self._reconnected()
        if self._options.rules.watches_positions:
            position: i64 = 0
            while position < len(report.keys):
                self.trees.moved(sender, report.keys[position], report.positions[int(position)])
                position += 1
        if self._options.rules.recovers:
            self._learn(sender, report, FETCH_AFTER)

    def _learn(self, sender: i64, report: Report, fetch_after: i64) -> bool:
        """See what somebody else has; ask for what is missing for long enough. True if something is missing."""
        is_behind = False
        numbers = report.numbers
        position: i64 = 0
        while position < len(numbers):
            stream = self.stream(numbers[position])
            number = numbers[position + 1]
            position += 2
            stream.peer_has(sender, number)
            if position <= 2 * len(report.floors) and sender in self.trees.links:
                stream.floors[sender] = report.floors[position // 2 - 1]
            if number <= stream.complete:
                if number < stream.complete and stream.quiet > self._options.patience:
                    # It lacks something that was not spoken of for long; say again that it is here.
                    stream.quiet = 0
                    self.wake()
                continue
            is_behind = True
            if stream.hear(number):
                self.wake()
            if stream.gone_at.get(sender, 0) > stream.complete:
                # It cannot help, and shows nothing about the parents.
                continue
            key = stream.source << TREE_BITS
            if self._options.trees == 1 and key in self.trees.structures:
                self.trees.seen_ahead(self.trees.structures[key])
            if stream.missing_for >= fetch_after and stream.fetches < MOST_ATTEMPTS:
                self._fetch(sender, stream, number)
        return is_behind

    def notice_gap(self, sender: i64, stream: Stream) -> None:
        """Something came after what is missing. When that happens again, what is missing is not just late."""
        stream.came_beyond += 1
        if stream.came_beyond >= GAP_PATIENCE and self._options.rules.recovers:
            stream.came_beyond = 0
            self._fetch(sender, stream, stream.heard)

    def _fetch(self, sender: i64, stream: Stream, last: i64) -> None:
        """Ask somebody for what it has and this node lacks, unless it has said that it is gone."""
        if stream.gone_at.get(sender, 0) <= stream.complete:
            self._ask(sender, stream, last, 0)

    def _ask(self, peer: i64, stream: Stream, last: i64, hops: i64) -> None:
        """Ask somebody for what is missing up to a number."""
        missing = stream.missing(last)
        if len(missing) > 0:
            # Others who say the same in this period need not be asked.
            stream.missing_for = 0
            stream.fetches += 1
            self._environment.send(peer, Fetch(stream.source, self.topic, missing, hops))

    def _hopeless_after(self) -> i64:
        """So many periods something is missing before it may be passed over; who is alone can ask nobody, and waits."""
        return (ALONE if self._is_alone() else 1) * HOPELESS * self._options.patience

    def _longest_stuck(self, stream: Stream) -> i64:
        """So many periods something is missing before it may be passed over: more while its source has said nothing.

        Who doubts that it is connected with a contact waits for as long as others keep everything: those on the other
        side of a cut may have what all on this side have forgotten, its source included.
        """
        if self._is_alone():
            return self._hopeless_after()
        if self._pulses.is_in_doubt:
            return ALONE * self._hopeless_after()
        has_spoken = stream.gone_at.get(stream.source, 0) > stream.complete
        return self._hopeless_after() * (1 if has_spoken else 2)

    def _reconnected(self) -> None:
        """A doubt is over, perhaps because a cut is: what was missing all the time is asked for once more."""
        for stream in self.streams.values():
            if stream.stuck_for > 2 * self._options.patience:
                stream.hope(NO_NODE)

    def _is_alone(self) -> bool:
        """Whether there is nobody else, as far as this node knows."""
        return len(self._neighbours) == 0 and len(self._contacts) == 0

    def _look_further(self, stream: Stream) -> None:
        """Nobody nearby has what is missing: the source, a contact or anybody may, or somebody beside them.

        If it is gone there too, pass it over.
        """
        if stream.stuck_for > self._longest_stuck(stream):
            gone = stream.gone_up_to(self._neighbours, self._contacts, self._all_contacts.includes_me)
            for missed in stream.pass_over(gone, self.topic):
                self._release(missed)
        if stream.missing_for > FETCH_AFTER and stream.is_missing() and stream.fetches < MOST_ATTEMPTS:
            asked = self._to_ask_further(stream)
            stream.asked_further += 1
            if asked not in (NO_NODE, self._me):
                self._ask(asked, stream, stream.heard, SEARCH_HOPS)

    def _to_ask_further(self, stream: Stream) -> i64:
        """The source, and in turn a contact, a neighbour and any node; each of them asks around for what it lost.

        The source had everything, and its word is worth most: it is asked every other time.
        """
        turn = stream.asked_further // 6
        if stream.asked_further % 2 == 0:
            return stream.source
        if stream.asked_further % 6 == 1 and len(self._contacts) > 0:
            return self._contacts[(self._me + turn) % len(self._contacts)]
        if stream.asked_further % 6 == 3 and len(self._neighbours) > 0:
            return self._neighbours[turn % len(self._neighbours)]
        sampled = self.sampling.sample(1)
        return sampled[0] if len(sampled) > 0 else stream.source

    # The periodic part.

    def wake(self) -> None:
        """Something has happened: go on telling neighbours, and compare again before falling silent."""
        self._quiet = 0
        self._comparisons = 0
        self._compare_after = 0
        self._has_compared = False
        self._stale_questions = self._questions
        self._stir()

    def _stir(self) -> None:
        """There is a pulse to tell the neighbours of: speak a few times before falling silent."""
        self._quiet = min(self._quiet, max(0, self._options.patience + 1 - RELAY_PERIODS))
        if not self.is_ticking:
            self.is_ticking = True
            self._reach.woke(self._environment.now())
            self._environment.set_timer(1 + self._environment.random().below(self._options.period), self.topic)

    def tick(self) -> None:
        """A period has passed."""
        self._quiet += 1
        self.sampling.tick()
        if len(self._neighbours) == 0:
            self._enter()
        missed = self._pulses.missed(self._options.patience)
        if missed != NO_NODE:
            # This node is apart from the contact, or so far away that it should be nearer.
            self.sampling.join(missed)
            self.wake()
        if self._pulses.is_due(self._options.patience) and self._may_compare():
            self._compare(self._pulses.ask())
        if not self.is_synchronised and self._all_contacts.is_first():
            self._unheard += 1
            # Whoever was to found the topic did not live to do so.
            self.is_synchronised = self._unheard > 2 * self._options.patience
        if self.is_synchronised:
            self._look_whom_it_reaches()
            self.deliveries.period_passed(2 * (self._hopeless_after() + self._options.patience))
            self._serve()
            self.trees.tick()
            self._tell()
        elif len(self._neighbours) > 0:
            self._environment.send(self.sampling.elder(), Hello(self._me, 0, self.topic))
            if self._quiet >= UNHEARD_PERIODS:
                # Perhaps all neighbours are as new as this node, and apart from all others.
                self._quiet = 0
                self._enter()
        if self._may_fall_silent():
            self.is_ticking = False
            if not self.deliveries.is_member and not self._all_contacts.includes_me and len(self.queue) == 0:
                self.sampling.leave()
                self.is_gone = True
        else:
            self._environment.set_timer(self._options.period, self.topic)

    def _look_whom_it_reaches(self) -> None:
        """Total order waits while this node is apart from most others, and until it has what it missed."""
        if not self._may_wait:
            return
        is_behind = False
        if self._reach.must_wait:
            for stream in self.streams.values():
                is_behind = is_behind or stream.is_missing()
        now = self._environment.now()
        doubtful = self._reach.look(now, self.trees.links, is_behind)
        if self.deliveries.may_probe():
            if self._reach.wants_survey:
                doubtful.extend(self._reach.survey(self.sampling.sample(SURVEYED), now))
            self.deliveries.probe(doubtful)
        self.deliveries.hold(self._reach.must_wait)

    def _enter(self) -> None:
        """There is no neighbour: try the next contact, and wait longer from time to time."""
        if self._enter_after > 0:
            self._enter_after -= 1
        elif len(self._contacts) > 0 and self._attempts < MOST_ATTEMPTS:
            self.sampling.join(self._all_contacts.to_ask(self._attempts))
            self._enter_after = waiting_periods(self._attempts) - 1
            self._attempts += 1

    def tell_neighbours(self) -> None:
        """Tell the neighbours what there is."""
        report = self._report(self._options.patience)
        now = self._environment.now()
        for peer in self._neighbours:
            link = self.trees.links[peer]
            held = now - link.heard_at
            self._environment.send(peer, Beat(self._me, self.topic, report, now, link.stamp, held))

    def _tell(self) -> None:
        """Tell the neighbours what there is, and forget what all of them have."""
        patience = self._options.patience
        neighbours = self._neighbours
        keep = self._options.keep
        if self._keep_all_for > 0 or self._pulses.is_in_doubt:
            keep = self._options.buffer
            self._keep_all_for -= 1
        if len(neighbours) > 0:
            self._attempts = 0
            self._enter_after = 0
        self.tell_neighbours()
        for stream in self.streams.values():
            if stream.quiet > patience:
                continue
            stream.quiet += 1
            if stream.is_missing():
                stream.missing_for += 1
                stream.stuck_for += 1
                if stream.stuck_for > patience and self._options.rules.recovers:
                    self._look_further(stream)
                has_hope = stream.missing_for <= patience or stream.stuck_for <= self._longest_stuck(stream) + patience
                may_wait = self._is_alone() or self._pulses.is_in_doubt
                if has_hope and (stream.fetches < MOST_ATTEMPTS or may_wait):
                    stream.quiet = 0
                    self._quiet = 0
            elif self._options.window > 0 and stream.floor < stream.complete:
                # Somebody waits to hear that this node is ready for more.
                stream.quiet = 0
                self._quiet = 0
            self.overflow += stream.collect(neighbours, keep, self._options.buffer)

    def _report(self, patience: i64) -> Report:
        """What there is that was new in the last periods."""
        numbers = vec[i64]()
        floors = vec[i64]()
        window = self._options.window
        keeps_up = window > 0 and self._environment.keeps_up(self.topic)
        for stream in self.streams.values():
            if stream.quiet <= patience:
                numbers = append(numbers, stream.source)
                numbers = append(numbers, stream.complete)
                if window > 0:
                    floors = append(floors, stream.ready_for(window, keeps_up))
        keys, positions = self.trees.places(patience)
        uptime = self._environment.now() - self._born
        bandwidth = self._options.bandwidth_of(self._me)
        pulses = self._pulses.as_pairs()
        return Report(numbers, floors, keys, positions, pulses, uptime, self.trees.load(), bandwidth)

    # Falling silent.

    def _may_fall_silent(self) -> bool:
        """Whether nothing has happened for long and a contact has nothing that this node lacks."""
        if not self.is_synchronised or (len(self._neighbours) == 0 and len(self._contacts) > 0):
            return self._attempts >= MOST_ATTEMPTS
        if self._quiet <= self._options.patience or self._pulses.is_waiting() or self.deliveries.is_held:
            return False
        has_asked = self._has_compared and not self._pulses.is_in_doubt
        if has_asked or not self._may_compare():
            return self.deliveries.is_idle()
        if self._quiet >= self._compare_after and self._comparisons < MOST_ATTEMPTS:
            self._compare_after = self._quiet + waiting_periods(self._comparisons)
            self._pulses.ask()
            self._compare(self._comparisons)
            self._comparisons += 1
            return False
        return self._comparisons >= MOST_ATTEMPTS

    def _may_compare(self) -> bool:
        return self.is_synchronised and len(self._contacts) > 0 and self._options.rules.recovers

    def _compare(self, attempt: i64) -> None:
        """Ask a contact what it has, and for a pulse if that is in doubt."""
        contact = self._all_contacts.to_ask(attempt)
        # Nothing is left out here, however long ago it was new.
        report = self._report(1 << 40)
        self._questions += 1
        in_doubt = self._pulses.is_in_doubt
        self._environment.send(contact, Comparison(self._me, self.topic, report, False, in_doubt, self._questions))

    def compared(self, sender: i64, message: Comparison) -> None:
        """Somebody compares what it has with this contact, or the contact answers."""
        if not self.is_synchronised:
            # Who asks is part of the overlay, and this contact is not yet.
            self.sampling.wanted(sender)
            return
        is_behind = self._learn(sender, message.report, 0)
        if not message.is_answer:
            if message.wants_pulse:
                oldest = max(1, self._options.patience // 2) * self._options.period
                if self._pulses.asked(sender, self._environment.now(), oldest) or self._pulses.is_in_doubt:
                    self._stir()
            report = self._report(1 << 40)
            self._environment.send(sender, Comparison(self._me, self.topic, report, True, False, message.question))
        else:
            was_in_doubt = self._pulses.is_in_doubt
            self._pulses.promise(sender, message.report.pulses)
            if was_in_doubt and not self._pulses.is_in_doubt:
                self._reconnected()
            # An answer to an earlier question says nothing of what has happened since.
            if not is_behind and message.question > self._stale_questions:
                self._has_compared = True
        if is_behind:
            self.wake()
            self.sampling.wanted(sender)

    def room(self) -> i64:
        """How many publications may begin here now."""
        window = self._options.window
        if window == 0:
            return UNBOUNDED
        if not self.is_synchronised:
            return 0
        own = self.streams.get(self._me)
        ahead: i64 = 0 if own is None else own.complete - own.lowest_floor()
        return max(0, window - ahead - len(self.queue))

    def first_unsettled(self) -> i64:
        """The first own publication that may be lost with this node: not all neighbours have said that they have it."""
        own = self.streams.get(self._me)
        if self._is_alone():
            return UNBOUNDED
        return 1 if own is None else own.settle(self._neighbours) + 1

    def unfinished(self) -> i64:
        """What waits: in its order, in the queue, for neighbours that lack it, or for ever because it is gone."""
        waiting = self.deliveries.unfinished() + len(self.queue)
        own = self.streams.get(self._me)
        if own is not None and self._options.window > 0:
            for peer in self._neighbours:
                if own.has.get(peer, own.complete) < own.complete:
                    waiting += 1
        for stream in self.streams.values():
            if stream.is_missing():
                waiting += 1
        return waiting if self.is_synchronised else waiting + 1
