"""Carries out the requests of the application on a topic, to publish, to come and to go, in the order of the requests.

A request waits until the node is part of the topic. All requests after a total publication wait until that is delivered
here (:mod:`antiphon.fabrics.gossip.epto.topic`).
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.fabrics.gossip.delivery import GossipDelivery
from antiphon.fabrics.gossip.options import BrisaOptions
from antiphon.fabrics.gossip.quiescence import Quiescence
from antiphon.fabrics.gossip.stream import QueuedRequest, Stream, stream_of
from antiphon.fabrics.gossip.trees import Trees
from antiphon.kernel.message import TOTAL, Publication
from antiphon.kernel.process import UNBOUNDED, Environment


@final
class Application:
    """The application of one node, as one topic sees it."""

    def __init__(
        self,
        environment: Environment,
        topic: i64,
        options: BrisaOptions,
        neighbours: list[i64],
        streams: dict[i64, Stream],
        trees: Trees,
        delivery: GossipDelivery,
        quiescence: Quiescence,
    ) -> None:
        self._environment: Final[Environment] = environment
        self._me: Final[i64] = environment.identifier
        self._topic: Final[i64] = topic
        self._window: Final[i64] = options.window
        self._neighbours: Final[list[i64]] = neighbours
        self._streams: Final[dict[i64, Stream]] = streams
        self._trees: Final[Trees] = trees
        self._delivery: Final[GossipDelivery] = delivery
        self._quiescence: Final[Quiescence] = quiescence
        self.queue: list[QueuedRequest] = []

    def is_wanted(self) -> bool:
        """Whether the application is subscribed, or will be when all that it asked for has happened."""
        wanted = self._delivery.is_member
        for asked in self.queue:
            if asked.payload is None:
                wanted = not wanted
        return wanted

    def room(self) -> i64:
        """How many publications may begin here now."""
        if self._window == 0:
            return UNBOUNDED
        if not self._delivery.is_synchronised:
            return 0
        own = self._streams.get(self._me)
        ahead: i64 = 0 if own is None else own.received.complete - own.lowest_floor()
        return max(0, self._window - ahead - len(self.queue))

    def ask(self, asked: QueuedRequest) -> None:
        """The application wants something; it happens when the node is part of the topic."""
        self.queue.append(asked)
        self._quiescence.wake()
        if self._delivery.is_synchronised:
            self.serve()

    def take(self, publication: Publication) -> None:
        """A publication has come, or never will: deliver what may be delivered now."""
        self._quiescence.wake()
        self._delivery.arrived(publication)
        self.advance()

    def advance(self) -> None:
        """Perhaps something was delivered for which the application's next wish had to wait."""
        if len(self.queue) > 0 and self._delivery.is_synchronised and self._delivery.may_begin(self.queue[0]):
            self.serve()

    def serve(self) -> None:
        """Do what the application asked for, in that order, as far as it may happen now."""
        delivery = self._delivery
        queue = self.queue
        self.queue = []
        for position, asked in enumerate(queue):
            payload = asked.payload
            if not delivery.may_begin(asked):
                self.queue = queue[position:]
                return
            # It may have waited for long behind something total: others have yet to hear of it.
            self._quiescence.wake()
            if payload is not None:
                self._publish(asked, payload)
            elif delivery.is_member:
                delivery.is_member = False
                self._environment.unsubscribed(self._topic)
            else:
                delivery.is_member = True
                self._environment.subscribed(self._topic)

    def _publish(self, asked: QueuedRequest, payload: bytes) -> None:
        publication = self._delivery.begin(asked, payload)
        own = stream_of(self._streams, self._me)
        own.take(publication)
        if self._window > 0:
            # A neighbour that has said nothing yet counts as ready for what came before this.
            for peer in self._neighbours:
                if peer not in own.floors:
                    own.floors[peer] = asked.sequence - 1
        if asked.order != TOTAL:
            self._environment.deliver(publication)
        self._trees.begin(publication)
