"""A broker of the tree: topics, keys, and an order chosen per publication, through crashes.

Follows the dissertation of P. Matos on fault tolerance in Ginger (2024). A broker is put together of four parts, each
in a module of its own: its place in the tree (``attachment.py``), the streams of topics (``streams.py``), total order
(``total_order.py``), and here what the application at this broker does. ``docs/architecture.md`` states the whole protocol
and argues it.

What a publication waits for at its publisher's broker: without order, for its keys to be open; in fifo, causal or total
order also for what the same publisher published before. A total publication in front has to be completed first, unless
the next is total too, or sessions are not strict. Once in the stream nothing waits any more. Where everything needs a
quorum (``quorum_delivery``) it all takes the way of total publications, in the order in which it was published.
"""

from __future__ import annotations

from librt.vecs import append, vec
from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.tree.attachment import NO_EPOCH
from antiphon.fabrics.tree.durable_state import NUMBERS, Wait
from antiphon.fabrics.tree.messages import DATA
from antiphon.fabrics.tree.topic import Topic
from antiphon.fabrics.tree.total_order import Totals
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import NONE, TOTAL, UNSPECIFIED, Keyed, Message, Publication
from antiphon.kernel.process import UNBOUNDED, order_name


@mypyc_attr(allow_interpreted_subclasses=True)
class TreeBroker(Totals):
    """One broker, with an application that publishes and subscribes."""

    def start(self) -> None:
        super().start()
        for topic in self.topics.values():
            if topic.is_subscribed:
                self.environment.subscribed(topic.name)

    def publish(self, payload: bytes, topic: i64 = 0, order: i64 = UNSPECIFIED) -> i64:
        return self.publish_about([], payload, topic, order)

    def publish_about(self, keys: list[int], payload: bytes, topic: i64 = 0, order: i64 = UNSPECIFIED) -> i64:
        state = self.topic(topic)
        if not state.is_wanted:
            raise UsageError(f"node {self.me} is not subscribed to topic {topic}; only subscribers publish: subscribe")
        chosen = self.options.strength if order == UNSPECIFIED else order
        if not NONE <= chosen <= TOTAL:
            raise UsageError(f"there is no order {order_name(order)}; choose none, fifo, causal or total")
        state.published += 1
        if self.journal.needs_numbers(state.published):
            self.reserve_numbers(state.published)
        about = keys_of(keys)
        publication = Keyed(self.me, state.published, self.environment.now(), payload, topic, chosen, about)
        state.requests.append(publication)
        self._go_on(state)
        return state.published

    def refusal(self, order: i64, topic: i64 = 0) -> str | None:
        chosen = self.options.strength if order == UNSPECIFIED else order
        if self.can_order or not self.options.needs_quorum(topic, chosen):
            return None
        if not self.council.bodies or self.current.epoch == NO_EPOCH:
            return "this broker has no place in the tree yet; wait until it has one"
        here = {int(self.me), *self.current.parents}
        missing = sorted({broker for body in self.council.bodies for broker in body if broker not in here})
        named = ", ".join(str(broker) for broker in missing)
        advice = (
            "publish in another order, or wait" if chosen == TOTAL else "every message on this topic needs one: wait"
        )
        return (
            f"this part of the tree cannot order totally: brokers {named} cannot be reached, and without them there "
            f"is no majority; {advice} until enough of them are back with their logs; if they are gone for good, tell "
            "the others so: antiphon dismiss"
        )

    def room(self, topic: i64) -> i64:
        state = self.topic(topic)
        return self.options.window - (state.published - state.settled)

    def first_unsettled(self, topic: i64) -> i64:
        state = self.topics.get(topic)
        return UNBOUNDED if state is None else state.first_unsettled()

    def subscribe(self, topic: i64) -> None:
        self._wish(self.topic(topic), True)

    def unsubscribe(self, topic: i64) -> None:
        self._wish(self.topic(topic), False)

    def _wish(self, topic: Topic, is_wanted: bool) -> None:
        if topic.is_wanted == is_wanted:
            state = "subscribed to" if is_wanted else "not subscribed to"
            raise UsageError(f"node {self.me} is {state} topic {topic.name} already")
        topic.is_wanted = is_wanted
        topic.requests.append(is_wanted)
        self._go_on(topic)

    def carried(self, topic: Topic) -> None:
        self._go_on(topic)

    def is_on_disk(self, wait: Wait) -> None:
        if wait.kind == NUMBERS:
            for topic in list(self.topics.values()):
                if topic.requests:
                    self._go_on(topic)
        else:
            super().is_on_disk(wait)

    def recorded(self, publication: Publication) -> Message:
        """A log holds entries of streams, so that they can go back to where they were."""
        handled = self.handled
        if handled is not None and handled.publication is publication:
            return handled
        # A publication of this broker itself whose place in the stream was skipped.
        return publication

    def deliver(self, topic: Topic, publication: Keyed) -> None:
        if topic.is_subscribed:
            self.environment.deliver(publication)

    def let_go(self, topic: Topic, keys: vec[i64]) -> None:
        for publication in topic.stop_waiting(keys):
            self._publish_free(topic, publication)
        self._go_on(topic)

    # What waits.

    def _go_on(self, topic: Topic) -> None:
        """Do what the application asked for, in that order, as far as it can be done."""
        if topic.is_publishing:
            # A total publication was completed at once, as happens where there is one broker.
            return
        topic.is_publishing = True
        self._publish_ordered(topic)
        while topic.requests:
            request = topic.requests[0]
            if isinstance(request, Keyed):
                if not self.journal.may_publish(request.sequence):
                    break
                topic.requests.popleft()
                self._publish(topic, request)
            elif request is True:
                if not topic.is_settled:
                    self.want(topic)
                if not topic.is_settled:
                    break
                topic.requests.popleft()
                topic.is_subscribed = True
                topic.subscribed_at = dict(topic.frontier)
                self.environment.subscribed(topic.name)
            else:
                if topic.in_progress() > 0:
                    break
                topic.requests.popleft()
                topic.is_subscribed = False
                self.environment.unsubscribed(topic.name)
        topic.is_publishing = False
        self.leave_if_idle(topic)

    def _publish(self, topic: Topic, publication: Keyed) -> None:
        if publication.order != TOTAL and self.options.needs_quorum(topic.name, publication.order):
            # The root keeps the order of each publisher, so that nothing has to wait here.
            self.propose(topic, publication)
        elif publication.order == NONE:
            self._publish_free(topic, publication)
        else:
            topic.ordered.append(publication)
            self._publish_ordered(topic)

    def _publish_free(self, topic: Topic, publication: Keyed) -> None:
        if topic.is_closed(publication):
            topic.wait_for_key(publication)
        else:
            self.inject(topic, DATA, publication)

    def _publish_ordered(self, topic: Topic) -> None:
        """Let go what stands in front, as far as it may."""
        strict = self.options.strict_session
        while topic.ordered:
            publication = topic.ordered[0]
            if strict and topic.waiting_free > 0:
                # An earlier one without order waits for a key.
                return
            if publication.order == TOTAL:
                topic.ordered.popleft()
                self.propose(topic, publication)
            elif topic.is_closed(publication) or (strict and topic.proposed):
                return
            else:
                topic.ordered.popleft()
                self.inject(topic, DATA, publication)

    def unfinished(self) -> i64:
        return super().unfinished() + sum(topic.unfinished() for topic in self.topics.values())


def keys_of(keys: list[int]) -> vec[i64]:
    """Keys without repetition, in order; a publication that names none is about key 0."""
    found = vec[i64]()
    for key in sorted(set(keys)) if keys else [0]:
        found = append(found, key)
    return found
