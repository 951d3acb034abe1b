"""One topic at one node, as a composition of parts: each has its own state, and this module leads messages to them.

* the **overlay** (:mod:`antiphon.fabrics.gossip.sampling.hyparview`), and how a node enters it
  (:mod:`antiphon.fabrics.gossip.joining`);
* the **trees** over it, which carry publications (:mod:`antiphon.fabrics.gossip.trees`);
* **delivery** in an order, total order by EpTO among them (:mod:`antiphon.fabrics.gossip.delivery`), and what the
  application asks for (:mod:`antiphon.fabrics.gossip.application`);
* **recovery** of what is missing (:mod:`antiphon.fabrics.gossip.recovery`), from nodes that send it again
  (:mod:`antiphon.fabrics.gossip.retransmit`);
* **anti-entropy** between neighbours and with seeds (:mod:`antiphon.fabrics.gossip.anti_entropy`), until the topic is
  silent (:mod:`antiphon.fabrics.gossip.quiescence`).

**Leaving.** A node that unsubscribes delivers nothing more at once, but goes on relaying until it falls silent, so that
what it published last is with others by then. Seeds stay in the overlay of every topic, subscribed or not.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from antiphon.fabrics.gossip.anti_entropy import GossipAntiEntropy, Reports
from antiphon.fabrics.gossip.application import Application
from antiphon.fabrics.gossip.delivery import GossipDelivery
from antiphon.fabrics.gossip.epto.messages import Ball, Probe
from antiphon.fabrics.gossip.joining import GossipJoining
from antiphon.fabrics.gossip.messages import (
    Activate,
    Beat,
    Comparison,
    Data,
    Deactivate,
    FetchRequest,
    FetchResponse,
    GossipFrontierRequest,
    GossipFrontierResponse,
    Moved,
    NotKept,
)
from antiphon.fabrics.gossip.options import BrisaOptions
from antiphon.fabrics.gossip.quiescence import Quiescence
from antiphon.fabrics.gossip.reach import PartitionGuard, Reach
from antiphon.fabrics.gossip.recovery import FETCH_AFTER, Recovery
from antiphon.fabrics.gossip.retransmit import GossipRetransmission
from antiphon.fabrics.gossip.sampling.hyparview import HyParView
from antiphon.fabrics.gossip.sampling.service import Connections, Neighbourhood, PeerSampling, SamplingMessage
from antiphon.fabrics.gossip.seeds import Pulses, Seeds
from antiphon.fabrics.gossip.stream import QueuedRequest, Stream, stream_of
from antiphon.fabrics.gossip.trees import Trees
from antiphon.kernel.message import ProtocolMessage, Publication
from antiphon.kernel.process import Environment
from antiphon.orders.order import Order


class Group(Neighbourhood):
    """One topic at one node, from the moment it joins the overlay of the topic until it has left.

    The rivals of BRISA differ from it in the overlay, in the way of publications over it, and in the messages of each
    period; the rest is the same for all.
    """

    def __init__(
        self,
        environment: Environment,
        topic: i64,
        options: BrisaOptions,
        connections: Connections,
        seeds: Seeds,
        born: i64,
    ) -> None:
        self._environment: Final[Environment] = environment
        self._me: Final[i64] = environment.identifier
        self.topic: Final[i64] = topic
        self._options: Final[BrisaOptions] = options
        self._seeds: Final[Seeds] = seeds
        streams: dict[i64, Stream] = {}
        self.streams: Final[dict[i64, Stream]] = streams
        overlay = self.new_sampling(connections)
        self.sampling: Final[PeerSampling] = overlay
        self._neighbours: Final[list[i64]] = overlay.neighbours()
        trees = self.new_trees()
        self.trees: Final[Trees] = trees
        delivery = GossipDelivery(environment, topic, options, overlay, streams)
        self.delivery: Final[GossipDelivery] = delivery
        self.order: Final[Order] = delivery.order
        pulses = Pulses(self._me, seeds)
        self._pulses: Final[Pulses] = pulses
        self._reach: Final = Reach(options.period, options.longest_wait)
        self._guard: Final = PartitionGuard(
            environment, self._reach, overlay, trees.links, streams, delivery, options.longest_wait
        )
        quiescence = Quiescence(environment, topic, options, self._reach)
        self._quiescence: Final[Quiescence] = quiescence
        self.application: Final = Application(
            environment, topic, options, self._neighbours, streams, trees, delivery, quiescence
        )
        self._joining: Final = GossipJoining(
            environment, topic, options, overlay, seeds, delivery, self.application, quiescence
        )
        self._retransmission: Final = GossipRetransmission(
            environment, topic, self._neighbours, streams, options.patience * options.period
        )
        self._recovery: Final = Recovery(
            environment,
            topic,
            options,
            overlay,
            seeds,
            pulses,
            streams,
            trees,
            delivery.order,
            self.application,
            quiescence,
        )
        reports = Reports(environment, topic, options, streams, trees, pulses, born)
        self._anti_entropy: Final = GossipAntiEntropy(
            environment, topic, options, overlay, seeds, pulses, reports, delivery, self._recovery, quiescence
        )
        self.is_gone: bool = False
        # Copies that came again.
        self.duplicates: i64 = 0

    def new_sampling(self, connections: Connections) -> PeerSampling:
        """The overlay."""
        return HyParView(self._environment, self.topic, connections, self, self._options.view)

    def new_trees(self) -> Trees:
        """The way of publications over it."""
        return Trees(self._environment, self.topic, self._options, self._neighbours, self.streams)

    # Calls of the process.

    def found(self) -> None:
        """Be the first node of the topic."""
        self.delivery.is_synchronised = True

    def begin(self, delay: i64) -> None:
        """Join the overlay after a while."""
        self._quiescence.begin(delay)

    def ask(self, asked: QueuedRequest) -> None:
        """The application wants something; it happens when the node is part of the overlay."""
        self._joining.on_wanted()
        self.application.ask(asked)

    def invite(self, seeds: list[i64]) -> None:
        """Let seeds that may not know of this topic take part in it."""
        self._anti_entropy.invite(seeds)

    # The overlay.

    def neighbours_changed(self, is_loss: bool) -> None:
        """Where links last, a new one or one less is news; without one this node may be apart from others."""
        if is_loss:
            self._pulses.doubt()
        self.wake()

    def neighbour_up(self, peer: i64) -> None:
        self.trees.neighbour_up(peer)
        self._reach.neighbour_up(peer, self._environment.now())
        self._recovery.neighbour_up(peer)
        self.neighbours_changed(False)
        if not self.delivery.is_synchronised:
            self._joining.greet(peer)

    def neighbour_down(self, peer: i64) -> None:
        self.trees.neighbour_down(peer)
        self._reach.neighbour_down(peer)
        self._recovery.neighbour_down(peer)
        self.neighbours_changed(True)

    def link_lost(self, peer: i64) -> None:
        """A link is broken."""
        if self.sampling.is_neighbour(peer):
            self._recovery.link_lost()
            self._guard.link_lost(peer)
        self.sampling.lost(peer)

    def seed_found(self) -> None:
        """There is a seed that was none before, perhaps apart from here: try again what was given up."""
        self._joining.begin_anew()
        if self._seeds.includes_me:
            self._pulses.doubt()
        self.wake()

    def peer_found(self, peer: i64) -> None:
        """A seed is back: make sure that it is part of the same overlay."""
        if peer in self._seeds.others and self.delivery.is_synchronised:
            self.sampling.on_wanted(peer)
            self.wake()

    # Messages.

    def receive(self, sender: i64, message: ProtocolMessage) -> None:  # noqa: C901, PLR0912 (one table for all messages)
        """Lead a message of this topic to its handler; the most frequent come first."""
        if isinstance(message, Data):
            self._on_data(sender, message)
        elif isinstance(message, Beat):
            self._on_beat(sender, message)
        elif isinstance(message, Ball):
            self._on_ball(sender, message)
        elif isinstance(message, Probe):
            self._on_probe(sender, message)
        elif isinstance(message, SamplingMessage):
            self.sampling.receive(sender, message)
        elif isinstance(message, Deactivate):
            self.trees.on_deactivate(sender, message.key)
        elif isinstance(message, Activate):
            self.trees.on_activate(sender, message.key)
            self._retransmission.on_activate(sender, message)
        elif isinstance(message, Moved):
            self.trees.on_moved(sender, message.key, message.position)
        elif isinstance(message, FetchResponse):
            self._on_fetch_response(sender, message.publication)
        elif isinstance(message, FetchRequest):
            self._retransmission.on_fetch(sender, message)
        elif isinstance(message, NotKept):
            self._recovery.on_not_kept(sender, message)
        elif isinstance(message, GossipFrontierRequest):
            self._joining.on_frontier_request(sender)
        elif isinstance(message, GossipFrontierResponse):
            self._joining.on_frontier_response(message)
        elif isinstance(message, Comparison):
            self.compared(sender, message)

    def _on_data(self, sender: i64, data: Data) -> None:
        if not self.delivery.is_synchronised:
            # It cannot be told yet whether this is past; if not, it will be missed and fetched.
            return
        if sender not in self._neighbours:
            self.sampling.heard_from(sender)
        stream = stream_of(self.streams, data.source)
        stream.reused = data.key if data.is_upward else -1
        is_new = stream.take(data.publication)
        if is_new:
            if stream.received.has_gaps():
                self.notice_gap(sender, stream)
            self.application.take(data.publication)
        else:
            self.duplicates += 1
        self.trees.on_data(sender, data, is_new)

    def _on_fetch_response(self, sender: i64, publication: Publication) -> None:
        if not self.delivery.is_synchronised:
            return
        stream = stream_of(self.streams, publication.source)
        if stream.take(publication):
            self.application.take(publication)
            self.trees.on_fetch_response(publication, sender, stream.reused)
        else:
            self.duplicates += 1
        self._retransmission.found(publication)

    def _on_beat(self, sender: i64, beat: Beat) -> None:
        link = self.trees.links.get(sender)
        if link is None:
            self.sampling.heard_from(sender)
        else:
            link.on_beat(beat, self._environment.now())
            if beat.echo >= 0:
                self._reach.confirmed(sender, beat.echo)
        if not self.delivery.is_synchronised:
            return
        report = beat.report
        if link is not None:
            self._anti_entropy.hear_pulses(report.pulses)
        self.trees.on_report(sender, report)
        if self._options.rules.recovers:
            self._recovery.learn(sender, report, FETCH_AFTER)
            if link is not None:
                self._recovery.answer_slowed(sender, report)

    def _on_ball(self, sender: i64, ball: Ball) -> None:
        if self.delivery.is_synchronised:
            self.delivery.on_ball(sender, ball)
            self.application.advance()

    def _on_probe(self, sender: i64, probe: Probe) -> None:
        if self.delivery.is_synchronised:
            if probe.is_answer:
                self._reach.confirmed(sender, probe.sent_at)
            self.delivery.on_probe(sender, probe)

    def notice_gap(self, sender: i64, stream: Stream) -> None:
        """Something came after what is missing."""
        self._recovery.notice_gap(sender, stream)

    def compared(self, sender: i64, message: Comparison) -> None:
        """Somebody compares what it has with this seed, or the seed answers."""
        self._anti_entropy.on_comparison(sender, message)

    # The periodic part.

    def wake(self) -> None:
        """Something has happened: go on telling neighbours, and compare again before falling silent."""
        self._quiescence.wake()

    def round_passed(self) -> None:
        """The timer of total order has run out."""
        self.delivery.round_passed()
        self.application.advance()

    def tick(self) -> None:
        """A period has passed."""
        self._quiescence.quiet += 1
        self.sampling.tick()
        if len(self._neighbours) == 0:
            self._joining.enter()
        self._anti_entropy.period_passed()
        self._joining.period_passed()
        if self.delivery.is_synchronised:
            self._guard.period_passed()
            self.delivery.period_passed(2 * (self._recovery.hopeless_after() + self._options.patience))
            self.application.serve()
            self.trees.tick()
            if len(self._neighbours) > 0:
                self._joining.begin_anew()
            self.tell_neighbours()
            self._recovery.period_passed()
        elif len(self._neighbours) > 0:
            self._joining.ask_neighbour()
        if self._may_fall_silent():
            self._fall_silent()
        else:
            self._quiescence.next_period()

    def tell_neighbours(self) -> None:
        """Tell the neighbours what there is."""
        self._anti_entropy.tell_neighbours(self.trees.links)

    def _may_fall_silent(self) -> bool:
        is_outside = len(self._neighbours) == 0 and len(self._seeds.others) > 0
        if is_outside or not self.delivery.is_synchronised:
            return self._joining.has_given_up()
        return self._anti_entropy.may_fall_silent()

    def _fall_silent(self) -> None:
        """Stop the timer; a node that nobody needs here leaves the topic."""
        self._quiescence.stop()
        if not self.delivery.is_member and not self._seeds.includes_me and len(self.application.queue) == 0:
            self.sampling.leave()
            self.is_gone = True

    # Questions of others.

    def stream(self, source: i64) -> Stream:
        """The publications of a source at this node, from the moment it first hears of the source."""
        return stream_of(self.streams, source)

    @property
    def is_synchronised(self) -> bool:
        """Whether this node knows what counts as past on the topic."""
        return self.delivery.is_synchronised

    def first_unsettled(self) -> i64:
        """The first own publication that may be lost with this node: not all neighbours have said that they have it."""
        return self._recovery.first_unsettled()

    def unfinished(self) -> i64:
        """How much waits: in its order, in the queue, for neighbours that lack it, or for ever because it is gone."""
        waiting = self.delivery.unfinished() + len(self.application.queue) + self._recovery.unfinished()
        return waiting if self.delivery.is_synchronised else waiting + 1
