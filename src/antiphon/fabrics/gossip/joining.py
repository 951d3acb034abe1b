"""How a node joins a topic: it enters the overlay through a seed, and asks a neighbour for its frontier.

**Newcomers** send a ``GossipFrontierRequest`` to a neighbour and start from its ``GossipFrontierResponse``. Later
publications have higher numbers, so the newcomer notices if one is missing. The publications that one node has
delivered are closed under its order, so one neighbour is enough.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.fabrics.gossip.application import Application
from antiphon.fabrics.gossip.delivery import GossipDelivery
from antiphon.fabrics.gossip.messages import GossipFrontierRequest, GossipFrontierResponse
from antiphon.fabrics.gossip.options import BrisaOptions
from antiphon.fabrics.gossip.quiescence import Quiescence
from antiphon.fabrics.gossip.sampling.service import PeerSampling
from antiphon.fabrics.gossip.seeds import MOST_ATTEMPTS, Seeds, waiting_periods
from antiphon.kernel.process import Environment

UNHEARD_PERIODS: Final = 3
"""After so many periods without an answer of a neighbour a newcomer turns to a seed again."""


@final
class GossipJoining:
    """How one node enters one topic, and enters it again when it has no neighbour left."""

    def __init__(
        self,
        environment: Environment,
        topic: i64,
        options: BrisaOptions,
        overlay: PeerSampling,
        seeds: Seeds,
        delivery: GossipDelivery,
        application: Application,
        quiescence: Quiescence,
    ) -> None:
        self._environment: Final[Environment] = environment
        self._me: Final[i64] = environment.identifier
        self._topic: Final[i64] = topic
        self._patience: Final[i64] = options.patience
        self._overlay: Final[PeerSampling] = overlay
        self._seeds: Final[Seeds] = seeds
        self._delivery: Final[GossipDelivery] = delivery
        self._application: Final[Application] = application
        self._quiescence: Final[Quiescence] = quiescence
        self._attempts: i64 = 0
        # Periods until the next attempt; periods in which nobody founded a topic that this node may found.
        self._enter_after: i64 = 0
        self._unfounded: i64 = 0

    # The overlay.

    def enter(self) -> None:
        """There is no neighbour: try the next seed, and wait longer from time to time."""
        if self._enter_after > 0:
            self._enter_after -= 1
        elif len(self._seeds.others) > 0 and self._attempts < MOST_ATTEMPTS:
            self._overlay.join(self._seeds.to_ask(self._attempts))
            self._enter_after = waiting_periods(self._attempts) - 1
            self._attempts += 1

    def begin_anew(self) -> None:
        """There is a neighbour, or a seed that was none before: attempts until now do not count."""
        self._attempts = 0
        self._enter_after = 0

    def has_given_up(self) -> bool:
        """Whether no seed has let this node in, however often it tried."""
        return self._attempts >= MOST_ATTEMPTS

    def on_wanted(self) -> None:
        """The application wants something; if this node had given up, the application has not."""
        if self.has_given_up():
            self._attempts = 0

    # What counts as past.

    def period_passed(self) -> None:
        """Found a topic whose founder did not live to do so."""
        if not self._delivery.is_synchronised and self._seeds.is_first():
            self._unfounded += 1
            self._delivery.is_synchronised = self._unfounded > 2 * self._patience

    def ask_neighbour(self) -> None:
        """Nobody has said what counts as past: ask again, and turn to a seed if that does not help."""
        self.greet(self._overlay.elder())
        if self._quiescence.quiet >= UNHEARD_PERIODS:
            # Perhaps all neighbours are as new as this node, and apart from all others.
            self._quiescence.quiet = 0
            self.enter()

    def greet(self, peer: i64) -> None:
        """Ask a neighbour what counts as past."""
        self._environment.send(peer, GossipFrontierRequest(self._me, 0, self._topic))

    def on_frontier_request(self, sender: i64) -> None:
        """A newcomer asks what counts as past."""
        if self._delivery.is_synchronised:
            self._environment.send(sender, self._delivery.welcome())

    def on_frontier_response(self, message: GossipFrontierResponse) -> None:
        """A neighbour has said what counts as past: take part, and do what the application waits for."""
        if not self._delivery.is_synchronised:
            self._delivery.welcomed(message)
            self._quiescence.wake()
            self._application.serve()
