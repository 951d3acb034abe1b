"""Anti-entropy: nodes tell each other what they have, neighbours once per period, and seeds before falling silent.

A node that falls silent compares with a seed first. The comparison also finds an overlay that has fallen into parts,
which no neighbour could tell: where the two differ they become neighbours. Seeds compare with each other. Parts that
differ in nothing are found by pulses (:mod:`antiphon.fabrics.gossip.seeds`).
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.gossip.delivery import GossipDelivery
from antiphon.fabrics.gossip.messages import Beat, Comparison, Report
from antiphon.fabrics.gossip.options import BrisaOptions
from antiphon.fabrics.gossip.parents import LinkMeasurements
from antiphon.fabrics.gossip.quiescence import Quiescence
from antiphon.fabrics.gossip.recovery import Recovery
from antiphon.fabrics.gossip.sampling.service import PeerSampling
from antiphon.fabrics.gossip.seeds import Pulses, Seeds
from antiphon.fabrics.gossip.stream import Stream
from antiphon.fabrics.gossip.trees import Trees
from antiphon.kernel.process import NO_NODE, Environment

ALWAYS: Final[i64] = 1 << 40
"""So many periods back a report goes that leaves nothing out."""


@final
class Reports:
    """Builds the reports of one node on one topic."""

    def __init__(
        self,
        environment: Environment,
        topic: i64,
        options: BrisaOptions,
        streams: dict[i64, Stream],
        trees: Trees,
        pulses: Pulses,
        born: i64,
    ) -> None:
        self._environment: Final[Environment] = environment
        self._topic: Final[i64] = topic
        self._window: Final[i64] = options.window
        self._bandwidth: Final[i64] = options.bandwidth_of(environment.identifier)
        self._streams: Final[dict[i64, Stream]] = streams
        self._trees: Final[Trees] = trees
        self._pulses: Final[Pulses] = pulses
        self._born: Final[i64] = born

    def since(self, periods: i64) -> Report:
        """A report of all sources and structures with news in the last periods."""
        numbers = vec[i64]()
        floors = vec[i64]()
        window = self._window
        has_capacity = window > 0 and self._environment.has_capacity(self._topic)
        for stream in self._streams.values():
            if stream.quiet <= periods:
                numbers = append(numbers, stream.source)
                numbers = append(numbers, stream.received.complete)
                if window > 0:
                    floors = append(floors, stream.ready_for(window, has_capacity))
        keys, positions = self._trees.places(periods)
        uptime = self._environment.now() - self._born
        pulses = self._pulses.as_pairs()
        return Report(numbers, floors, keys, positions, pulses, uptime, self._trees.load(), self._bandwidth)


@final
class GossipAntiEntropy:
    """Compares one node with its neighbours and with seeds on one topic."""

    def __init__(
        self,
        environment: Environment,
        topic: i64,
        options: BrisaOptions,
        overlay: PeerSampling,
        seeds: Seeds,
        pulses: Pulses,
        reports: Reports,
        delivery: GossipDelivery,
        recovery: Recovery,
        quiescence: Quiescence,
    ) -> None:
        self._environment: Final[Environment] = environment
        self._me: Final[i64] = environment.identifier
        self._topic: Final[i64] = topic
        self._patience: Final[i64] = options.patience
        self._oldest_pulse: Final[i64] = max(1, options.patience // 2) * options.period
        self._recovers: Final[bool] = options.rules.recovers
        self._overlay: Final[PeerSampling] = overlay
        self._seeds: Final[Seeds] = seeds
        self._pulses: Final[Pulses] = pulses
        self._reports: Final[Reports] = reports
        self._delivery: Final[GossipDelivery] = delivery
        self._recovery: Final[Recovery] = recovery
        self._quiescence: Final[Quiescence] = quiescence

    # Neighbours.

    def tell_neighbours(self, links: dict[i64, LinkMeasurements]) -> None:
        """Tell the neighbours what there is."""
        report = self._reports.since(self._patience)
        now = self._environment.now()
        for peer in self._overlay.neighbours():
            link = links[peer]
            held = now - link.heard_at
            self._environment.send(peer, Beat(self._me, self._topic, report, now, link.stamp, held))

    def hear_pulses(self, pairs: vec[i64]) -> None:
        """A neighbour tells of pulses: hand on those that are new."""
        was_in_doubt = self._pulses.is_in_doubt
        if self._pulses.on_numbers(pairs):
            self._quiescence.stir()
            self._note_end_of(was_in_doubt)

    def _note_end_of(self, was_in_doubt: bool) -> None:
        if was_in_doubt and not self._pulses.is_in_doubt:
            self._recovery.reconnected()

    def period_passed(self) -> None:
        """Enter again through a seed whose pulse has not come; ask for a pulse where the topic is never silent."""
        missed = self._pulses.missed(self._patience)
        if missed != NO_NODE:
            # This node is apart from the seed, or so far away that it should be nearer.
            self._overlay.join(missed)
            self._quiescence.wake()
        if self._pulses.is_due(self._patience) and self._may_compare():
            self._compare(self._pulses.ask())

    # Seeds.

    def invite(self, seeds: list[i64]) -> None:
        """Let seeds that may not know of this topic take part in it."""
        for seed in seeds:
            self._environment.send(seed, Comparison(self._me, self._topic, self._reports.since(0), False, False))

    def may_fall_silent(self) -> bool:
        """Whether nothing has happened for long and a seed has nothing that this node lacks; if not asked, ask."""
        quiescence = self._quiescence
        if not quiescence.is_quiet() or self._pulses.is_waiting() or self._delivery.is_held:
            return False
        has_asked = quiescence.has_compared and not self._pulses.is_in_doubt
        if has_asked or not self._may_compare():
            return self._delivery.is_idle()
        if quiescence.begin_comparison():
            self._pulses.ask()
            self._compare(quiescence.comparisons - 1)
            return False
        return quiescence.has_given_up_comparing()

    def _may_compare(self) -> bool:
        return self._delivery.is_synchronised and len(self._seeds.others) > 0 and self._recovers

    def _compare(self, attempt: i64) -> None:
        """Ask a seed what it has, and for a pulse if that is in doubt."""
        seed = self._seeds.to_ask(attempt)
        # Nothing is left out here, however long ago it was new.
        report = self._reports.since(ALWAYS)
        question = self._quiescence.next_question()
        in_doubt = self._pulses.is_in_doubt
        self._environment.send(seed, Comparison(self._me, self._topic, report, False, in_doubt, question))

    def on_comparison(self, sender: i64, message: Comparison) -> None:
        """Somebody compares what it has with this seed, or the seed answers."""
        if not self._delivery.is_synchronised:
            # The asker is part of the overlay, and this seed is not yet.
            self._overlay.on_wanted(sender)
            return
        is_behind = self._recovery.learn(sender, message.report, 0)
        if message.is_answer:
            was_in_doubt = self._pulses.is_in_doubt
            self._pulses.promise(sender, message.report.pulses)
            self._note_end_of(was_in_doubt)
            if not is_behind:
                self._quiescence.nothing_missing(message.question)
        else:
            if message.wants_pulse:
                is_new = self._pulses.asked(sender, self._environment.now(), self._oldest_pulse)
                if is_new or self._pulses.is_in_doubt:
                    self._quiescence.stir()
            report = self._reports.since(ALWAYS)
            self._environment.send(sender, Comparison(self._me, self._topic, report, True, False, message.question))
        if is_behind:
            self._quiescence.wake()
            self._overlay.on_wanted(sender)
