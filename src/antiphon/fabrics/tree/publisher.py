"""The requests of the application at a broker: publications and subscriptions, and what they wait for.

Without order a publication waits for its keys to be open; in fifo, causal or total order also for what the same
publisher published before. A total publication in front has to be completed first, unless the next is total too,
sessions are not strict, or the one in front is a barrier. Once in the stream nothing waits any more. Where everything
needs a quorum (``quorum_delivery``) it all takes the way of total publications, in the order in which it was published.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.tree.durable_state import DurableState
from antiphon.fabrics.tree.messages import DATA
from antiphon.fabrics.tree.options import TreeOptions
from antiphon.fabrics.tree.streams import Streams
from antiphon.fabrics.tree.topic import TreeTopic
from antiphon.fabrics.tree.topic_table import TreeTopicTable
from antiphon.fabrics.tree.topology import NO_EPOCH
from antiphon.fabrics.tree.total_order import TreeTotalOrder
from antiphon.fabrics.tree.view import TreeView
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import NONE, TOTAL, UNSPECIFIED, Keyed
from antiphon.kernel.process import UNBOUNDED, Environment, order_name


@final
class TreePublisher:
    """Does what the application asks for, in that order, as soon as it can be done."""

    def __init__(
        self,
        environment: Environment,
        options: TreeOptions,
        view: TreeView,
        topics: TreeTopicTable,
        durable: DurableState,
        streams: Streams,
        total_order: TreeTotalOrder,
    ) -> None:
        self._environment: Final[Environment] = environment
        self._options: Final[TreeOptions] = options
        self._view: Final[TreeView] = view
        self._topics: Final[TreeTopicTable] = topics
        self._durable: Final[DurableState] = durable
        self._streams: Final[Streams] = streams
        self._total_order: Final[TreeTotalOrder] = total_order

    def start(self) -> None:
        """Say which subscriptions are effective from the start."""
        for topic in self._topics.by_number.values():
            if topic.is_subscribed:
                self._environment.subscribed(topic.name)

    # What the application asks for.

    def publish(self, keys: list[int], payload: bytes, number: i64, order: i64) -> i64:
        """Publish about some keys of a topic; the answer is the number of the publication."""
        me = self._view.me
        topic = self._topics.of(number)
        if not topic.is_wanted:
            raise UsageError(f"node {me} is not subscribed to topic {number}; only subscribers publish: subscribe")
        chosen = self._options.strength if order == UNSPECIFIED else order
        if not NONE <= chosen <= TOTAL:
            raise UsageError(f"there is no order {order_name(order)}; choose none, fifo, causal or total")
        topic.published += 1
        if self._durable.needs_numbers(topic.published):
            self._durable.reserve_numbers(topic.published, self._view)
        about = keys_of(keys)
        topic.requests.append(Keyed(me, topic.published, self._environment.now(), payload, number, chosen, about))
        self.advance(topic)
        return topic.published

    def refusal(self, order: i64, number: i64) -> str | None:
        """Why a publication in some order on a topic cannot be accepted now, and what to do; nothing if it can."""
        view = self._view
        chosen = self._options.strength if order == UNSPECIFIED else order
        if view.can_order or not self._options.needs_quorum(number, chosen):
            return None
        if not view.council.bodies or view.current.epoch == NO_EPOCH:
            return "this broker has no place in the tree yet; wait until it has one"
        here = {int(view.me), *view.current.parents}
        missing = sorted({broker for body in view.council.bodies for broker in body if broker not in here})
        named = ", ".join(str(broker) for broker in missing)
        advice = (
            "publish in another order, or wait" if chosen == TOTAL else "every message on this topic needs one: wait"
        )
        return (
            f"this part of the tree cannot order totally: brokers {named} cannot be reached, and without them there "
            f"is no majority; {advice} until enough of them are back with their logs; if they are gone for good, tell "
            "the others so: antiphon dismiss"
        )

    def room(self, number: i64) -> i64:
        """How many publications on a topic would begin at once."""
        topic = self._topics.of(number)
        return self._options.window - (topic.published - topic.settled)

    def first_unsettled(self, number: i64) -> i64:
        """The number of this broker's first publication on a topic that may still be lost with it."""
        topic = self._topics.get(number)
        return UNBOUNDED if topic is None else topic.first_unsettled()

    def wish(self, number: i64, is_wanted: bool) -> None:
        """Subscribe to a topic, or end the subscription."""
        topic = self._topics.of(number)
        if topic.is_wanted == is_wanted:
            state = "subscribed to" if is_wanted else "not subscribed to"
            raise UsageError(f"node {self._view.me} is {state} topic {number} already")
        topic.is_wanted = is_wanted
        topic.requests.append(is_wanted)
        self.advance(topic)

    def unfinished(self) -> i64:
        """How many requests wait, and how many total publications of all brokers."""
        count: i64 = 0
        for topic in self._topics.by_number.values():
            count += topic.unfinished()
        return count

    # What waits.

    def numbers_on_disk(self) -> None:
        """No later incarnation of this broker uses the numbers that are reserved."""
        for topic in self._topics.all():
            if topic.requests:
                self.advance(topic)

    def began_epoch(self) -> None:
        """The root counts this broker: subscriptions can take effect."""
        for topic in self._topics.all():
            if topic.requests:
                self.advance(topic)

    def keys_opened(self, topic: TreeTopic, keys: list[int]) -> None:
        """Let go what waited for some keys."""
        for publication in topic.stop_waiting(keys):
            self._publish_free(topic, publication)
        self.advance(topic)

    def advance(self, topic: TreeTopic) -> None:
        """Do what the application asked for, in that order, as far as it can be done."""
        if topic.is_publishing:
            # A total publication was completed at once, as happens where there is one broker.
            return
        topic.is_publishing = True
        self._publish_ordered(topic)
        while topic.requests:
            request = topic.requests[0]
            if isinstance(request, Keyed):
                if not self._durable.may_publish(request.sequence):
                    break
                topic.requests.popleft()
                self._publish(topic, request)
            elif request is True:
                if not topic.is_settled:
                    self._streams.want(topic)
                if not topic.is_settled or not self._view.is_counted:
                    # The others keep no items for a broker that the root does not know.
                    break
                topic.requests.popleft()
                topic.is_subscribed = True
                topic.subscribed_at = dict(topic.frontier)
                self._environment.subscribed(topic.name)
            else:
                if topic.in_progress() > 0:
                    break
                topic.requests.popleft()
                topic.is_subscribed = False
                self._environment.unsubscribed(topic.name)
        topic.is_publishing = False
        self._streams.leave_if_idle(topic)

    def _publish(self, topic: TreeTopic, publication: Keyed) -> None:
        if publication.order != TOTAL and self._options.needs_quorum(topic.name, publication.order):
            # The root keeps the order of each publisher, so that nothing has to wait here.
            self._total_order.propose(topic, publication)
        elif publication.order == NONE:
            self._publish_free(topic, publication)
        else:
            topic.ordered.append(publication)
            self._publish_ordered(topic)

    def _publish_free(self, topic: TreeTopic, publication: Keyed) -> None:
        if topic.is_closed(publication):
            topic.wait_for_key(publication)
        else:
            self._streams.inject(topic, DATA, publication)

    def _publish_ordered(self, topic: TreeTopic) -> None:
        """Let go what stands in front, as far as it may."""
        strict = self._options.strict_session
        while topic.ordered:
            publication = topic.ordered[0]
            if strict and topic.waiting_free > 0:
                # An earlier one without order waits for a key.
                return
            if publication.order == TOTAL:
                topic.ordered.popleft()
                self._total_order.propose(topic, publication)
            elif topic.is_closed(publication) or (strict and topic.has_proposed()):
                return
            else:
                topic.ordered.popleft()
                self._streams.inject(topic, DATA, publication)


def keys_of(keys: list[int]) -> vec[i64]:
    """Keys without repetition, in order; a publication that names none is about key 0."""
    found = vec[i64]()
    for key in sorted(set(keys)) if keys else [0]:
        found = append(found, key)
    return found
