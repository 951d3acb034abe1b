"""The queue of operations on each topic: publications, and changes of membership.

Operations begin in order, each when the parts of the process allow it. Every event that may let the next one begin
advances the queue (:class:`antiphon.fabrics.cube.agenda.Agenda`): a wave ends, a subscription becomes effective, all
members have closed for a lock.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube.agenda import Agenda
from antiphon.fabrics.cube.dissemination import CubeDissemination
from antiphon.fabrics.cube.membership import TopicMembership
from antiphon.fabrics.cube.surveys import Surveys
from antiphon.fabrics.cube.topic import MEMBER, OUTSIDE, CubeTopic, CubeTopicTable, Options, PendingRequest
from antiphon.fabrics.cube.total_order.ordering import CubeTotalOrder
from antiphon.fabrics.cube.view import View
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import TOTAL
from antiphon.kernel.process import Environment


@final
class Operations(Agenda):
    """Queues what the application asks for, and begins it when it may begin."""

    # Those that begin it. They are made after this, because they ask it to go on: see ``connect``.
    _membership: TopicMembership
    _dissemination: CubeDissemination
    _total_order: CubeTotalOrder
    _surveys: Surveys

    def __init__(self, environment: Environment, topics: CubeTopicTable) -> None:
        self._environment: Final[Environment] = environment
        self._me: Final[i64] = environment.identifier
        self._topics: Final[CubeTopicTable] = topics
        self._options: Final[Options] = topics.options
        # Topics that may go on, once all is used that has come in one message.
        self._opened: dict[i64, CubeTopic] = {}

    def connect(
        self,
        membership: TopicMembership,
        dissemination: CubeDissemination,
        total_order: CubeTotalOrder,
        surveys: Surveys,
    ) -> None:
        """Learn which parts begin operations (before anything is asked for)."""
        self._membership = membership
        self._dissemination = dissemination
        self._total_order = total_order
        self._surveys = surveys

    # What the application asks for.

    def subscribe(self, topic: i64) -> None:
        """Become a member of a topic when it is time."""
        state = self._topics.find(topic)
        if state.wants_membership:
            raise UsageError(f"node {self._me} is subscribed to topic {topic} already; unsubscribe first to start anew")
        state.wants_membership = True
        state.enqueue(PendingRequest(0, self._environment.now(), None))
        self.advance(state)

    def unsubscribe(self, topic: i64) -> None:
        """Stop being a member of a topic when all that was asked for before has begun."""
        state = self._topics.find(topic)
        if not state.wants_membership:
            raise UsageError(f"node {self._me} is not subscribed to topic {topic}; subscribe before unsubscribing")
        state.wants_membership = False
        state.enqueue(PendingRequest(0, self._environment.now(), None))
        self.advance(state)

    def publish(self, keys: vec[i64], payload: bytes, topic: i64, order: i64) -> i64:
        """Publish on a topic when it is time; the answer is the number of the publication."""
        state = self._topics.find(topic)
        if not state.wants_membership:
            raise UsageError(f"node {self._me} is not subscribed to topic {topic}; only subscribers publish: subscribe")
        state.published += 1
        state.enqueue(PendingRequest(state.published, self._environment.now(), payload, order, keys))
        self.advance(state)
        return state.published

    # One thing after the other.

    def advance(self, topic: CubeTopic) -> None:
        while len(topic.queue) > 0 and self._may_begin(topic, topic.queue[0]):
            if topic.queue[0].payload is not None:
                if topic.queue[0].order == TOTAL:
                    self._total_order.start(topic)
                else:
                    self._dissemination.start_publications(topic)
                continue
            # It is taken out first: what begins here may end at once and lead back to this place.
            topic.dequeue(1)
            if topic.state == OUTSIDE:
                self._membership.start_subscribing(topic)
            else:
                self._membership.leave(topic)
        if self._options.total and len(topic.queue) > 0:
            self._total_order.claim_next(topic)

    def _may_begin(self, topic: CubeTopic, pending: PendingRequest) -> bool:
        if pending.payload is not None and pending.order == TOTAL:
            return self._total_order.may_start(topic)
        if self._options.total and not self._total_order.may_begin_weak(topic, pending):
            return False
        if pending.payload is not None:
            return topic.state == MEMBER and topic.in_flight < self._options.window
        # Open waves may still need the old view, which subscribing throws away.
        return topic.state == MEMBER or (topic.state == OUTSIDE and not topic.has_open_waves())

    def advance_later(self, topic: CubeTopic) -> None:
        self._opened[topic.name] = topic

    def advance_opened(self) -> None:
        while len(self._opened) > 0:
            _, topic = self._opened.popitem()
            self.advance(topic)

    def totals_delivered(self, topic: CubeTopic) -> None:
        if topic.undelivered_totals == 0:
            self._surveys.answer_delayed(topic)
        self._opened[topic.name] = topic

    def close_if_outside(self, topic: CubeTopic) -> None:
        if topic.state == OUTSIDE and not topic.has_open_waves():
            topic.view = View(0)
            self.advance(topic)
