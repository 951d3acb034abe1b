"""VCube-PS whose trees lead around those who are lost: waves that go on, subscriptions that come to an end.

The part of :mod:`antiphon.fabrics.cube.lasting` that acts at once when a link breaks. The host says who can be reached
(``peer_found``) and who cannot any more (``peer_lost``); it may be wrong about crashes, but both ends of a link hear of
it, and what was sent over it and has not arrived by then is gone.

* **Waves.** A node remembers to whom it has handed a packet and who has not answered
  (:mod:`antiphon.fabrics.cube.route`). When one of them is lost its cluster goes to the next member there. So an
  acknowledgement still means that all members whom the sender can reach have the packet, and nobody waits for the lost.
* **Window.** A publisher goes on when all of its publications up to a window behind are acknowledged, the first of them
  included. So nobody is more than a window behind, except for those who are out of reach.
* **Subscriptions.** A newcomer asks each node itself, which costs as many messages as a tree of questions and does not
  depend on anybody between. Who is lost is not waited for.
* **Members that are lost** are out of the view and remembered as being *away*.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube.keeping import Keeping
from antiphon.fabrics.cube.membership import Survey, survey_key
from antiphon.fabrics.cube.messages import Acknowledgement, Answer, Bundle, LeafCopy, Question, Refusal, Synchronise
from antiphon.fabrics.cube.route import Route
from antiphon.fabrics.cube.topic import MEMBER, OUTSIDE, Options, Topic
from antiphon.fabrics.cube.topology import Cube, cluster
from antiphon.fabrics.cube.total_messages import KeyLock
from antiphon.fabrics.cube.vcube_ps import VCubePs
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import Message, publication_key
from antiphon.kernel.process import NO_NODE, UNBOUNDED, Environment
from antiphon.orders.mixed import MixedOrder
from antiphon.orders.order import Ordered


@final
class FaultOptions:
    """How a member helps others over faults; shared by all nodes of a system.

    ``keep`` is how many publications of each source are kept for whoever lacks them: at least ``window`` and ``bundle``
    together. ``compare_ticks`` is how often members compare what they have while something is wrong: several round
    trips. After ``forget_ticks`` a member that is away is not expected back, and what others wait for and nobody has is
    given up: longer than partitions last. Total order waits for ``exclude_ticks`` for who cannot be reached, and then,
    where there is a majority, goes on without it: longer than it takes all to notice a crash.
    """

    def __init__(
        self, keep: i64 = 256, compare_ticks: i64 = 1000, forget_ticks: i64 = 1_000_000, exclude_ticks: i64 = 2000
    ) -> None:
        if compare_ticks < 1 or forget_ticks < compare_ticks:
            raise UsageError("members compare after at least one tick, and do not forget before they have compared")
        self.keep: Final[i64] = keep
        self.compare_ticks: Final[i64] = compare_ticks
        self.forget_ticks: Final[i64] = forget_ticks
        self.exclude_ticks: Final[i64] = exclude_ticks


class ReroutingVCubePs(VCubePs):
    """One node that loses and finds others."""

    def __init__(self, environment: Environment, cube: Cube, options: Options, faults: FaultOptions) -> None:
        super().__init__(environment, cube, options)
        if not options.mixed or options.directory:
            raise UsageError("where nodes may fail, orders are mixed and there is no directory; set the options so")
        if faults.keep < options.window + options.bundle:
            raise UsageError(
                f"{faults.keep} publications are kept, fewer than may be under way; keep at least "
                f"{options.window + options.bundle}, or choose a smaller window"
            )
        self.faults: Final[FaultOptions] = faults
        # Who can be reached, and since when others cannot.
        self.present: dict[i64, bool] = {node: True for node in cube.members() if node != self.me}
        self.lost_at: dict[i64, i64] = {}
        # By own question, who has not answered it.
        self._unanswered: dict[i64, dict[i64, bool]] = {}
        # By topic that this node is about to join, who was found since it began to ask.
        self._met: dict[i64, dict[i64, bool]] = {}

    def start(self) -> None:
        super().start()
        for node in self.present:
            self.environment.watch(node)

    # What the part above adds.

    def member_lost(self, topic: Topic, peer: i64) -> None:
        """A member of a topic of which this node is one is out of reach."""

    def member_met(self, topic: Topic, peer: i64) -> None:
        """Somebody who may be a member of a topic of which this node is one can be reached."""

    # Who is there.

    def joined(self, node: i64) -> None:
        if node not in self.present:
            self.environment.watch(node)
            self._found(node)

    def left(self, node: i64) -> None:
        self.peer_lost(node)

    def peer_found(self, peer: i64) -> None:
        if peer not in self.present:
            self._found(peer)

    def _found(self, peer: i64) -> None:
        self.present[peer] = True
        self.lost_at.pop(peer, None)
        super().joined(peer)
        for topic in self.topics():
            # It may also lack what this node said before it left.
            if topic.state == MEMBER or (topic.state == OUTSIDE and topic.keeping is not None):
                self.member_met(topic, peer)
            elif topic.state != OUTSIDE:
                self._met.setdefault(topic.name, {})[peer] = True

    def peer_lost(self, peer: i64) -> None:
        if peer not in self.present:
            return
        del self.present[peer]
        self.lost_at[peer] = self.environment.now()
        super().left(peer)
        for key, unanswered in list(self._unanswered.items()):
            if peer in unanswered:
                self._one_answered(key, unanswered, peer)
        if self.options.total:
            self.go_on_opened()

    def forget_member(self, topic: Topic, node: i64) -> None:
        counter = topic.view.counter_of(node)
        if counter >= 0:
            topic.view.forget(node)
            topic.away[node] = counter
        self._route_around(topic, node)
        if topic.state == MEMBER and node in topic.away:
            self.member_lost(topic, node)

    # Waves.

    def receive(self, sender: i64, message: Message) -> None:
        if isinstance(message, Acknowledgement):
            self._acknowledged(sender, message)
            if self.options.total:
                self.go_on_opened()
        elif isinstance(message, Answer):
            key = survey_key(message)
            unanswered = self._unanswered.get(key)
            # Who was lost and found may still answer what nobody expects any more.
            is_wanted = (
                unanswered is not None and isinstance(self.surveys[key].question, Synchronise) == message.is_past
            )
            if unanswered is not None and is_wanted and sender in unanswered:
                del unanswered[sender]
                if len(unanswered) == 0:
                    del self._unanswered[key]
                self.receive_answer(message)
        else:
            super().receive(sender, message)

    def receive_packet(self, sender: i64, packet: Message) -> None:
        topic = self.find_topic(packet.topic)
        if not topic.is_active():
            self.environment.unwanted(packet)
            self.environment.send(sender, Refusal(packet, topic.left_counter, False))
            return
        key = publication_key(packet.source, packet.sequence)
        height = cluster(self.me, sender) - 1
        route = topic.routes.get(key)
        if route is None:
            route = Route(packet)
            topic.routes[key] = route
        # It may have come before, from somebody who is lost by now.
        route.parents[sender] = height
        self._serve(topic, route, height)
        self.take(topic, packet)
        self._settle_route(topic, key, route)

    def _serve(self, topic: Topic, route: Route, height: i64) -> None:
        s = height
        while s > route.height:
            self._hand_on(topic, route, s)
            s -= 1
        route.height = max(route.height, height)

    def _hand_on(self, topic: Topic, route: Route, s: i64) -> None:
        view = topic.view
        child = view.first(self.me, s)
        if child != NO_NODE:
            route.sent(child, True)
            self.environment.send(child, route.packet)
        if view.has_passive():
            # The first of them may not know these yet.
            for newcomer in view.passive_in_cluster(self.me, s):
                route.sent(newcomer, False)
                self.environment.send(newcomer, LeafCopy(route.packet))

    def send_own(self, topic: Topic, packet: Message) -> i64:
        self._keep_packet(topic, packet)
        route = Route(packet)
        route.parents[NO_NODE] = self.cube.dimension
        self._serve(topic, route, self.cube.dimension)
        count = len(route.awaited)
        if count > 0:
            topic.routes[publication_key(self.me, packet.sequence)] = route
            topic.own_open[packet.sequence] = True
            self._count_in_flight(topic)
        return count

    def _count_in_flight(self, topic: Topic) -> None:
        """How many own publications have begun since the first that is not acknowledged, that one included."""
        topic.in_flight = 0
        for first in topic.own_open:
            topic.in_flight = topic.begun - first + 1
            break

    def first_unsettled(self, topic: i64) -> i64:
        state = self.topic(topic)
        if state is None:
            return UNBOUNDED
        for first in state.own_open:
            return first
        return UNBOUNDED if state.published == state.begun else state.begun + 1

    def _acknowledged(self, sender: i64, message: Message) -> None:
        topic = self.find_topic(message.topic)
        key = publication_key(message.source, message.sequence)
        route = topic.routes.get(key)
        if route is not None and route.answered(sender):
            self._settle_route(topic, key, route)

    def receive_refusal(self, sender: i64, refusal: Refusal) -> None:
        topic = self.find_topic(refusal.topic)
        if isinstance(refusal.packet, KeyLock):
            topic.view.remove(sender, refusal.counter)
            self.lock_refused(topic, sender, refusal)
            return
        key = publication_key(refusal.source, refusal.sequence)
        route = topic.routes.get(key)
        topic.view.remove(sender, refusal.counter)
        if route is None or not route.answered(sender):
            return
        if not refusal.was_leaf:
            self._hand_on(topic, route, cluster(self.me, sender))
        self._settle_route(topic, key, route)

    def _route_around(self, topic: Topic, peer: i64) -> None:
        """Nobody waits for the answer of one who is lost, and its clusters are served by others."""
        for key, route in list(topic.routes.items()):
            route.parents.pop(peer, None)
            if peer in route.awaited:
                if route.lost(peer):
                    self._hand_on(topic, route, cluster(self.me, peer))
                self._settle_route(topic, key, route)

    def _settle_route(self, topic: Topic, key: i64, route: Route) -> None:
        packet = route.packet
        is_own_served = False
        for parent in route.served(self.me):
            if parent == NO_NODE:
                is_own_served = True
            else:
                self.environment.send(parent, Acknowledgement(packet.source, packet.sequence, packet.topic))
        if len(route.awaited) == 0:
            topic.routes.pop(key, None)
        if is_own_served:
            topic.own_open.pop(packet.sequence, None)
            self._count_in_flight(topic)
            self.go_on(topic)
        self.close_if_outside(topic)

    # What is kept.

    def keeping(self, topic: Topic) -> Keeping:
        """What this node keeps of a topic for others."""
        kept = topic.keeping
        if kept is None:
            kept = Keeping(self.faults.keep)
            topic.keeping = kept
        return kept

    def _keep_packet(self, topic: Topic, packet: Message) -> None:
        kept = self.keeping(topic)
        if isinstance(packet, Ordered):
            kept.add(packet)
        elif isinstance(packet, Bundle):
            for publication in packet.publications:
                kept.add(publication)

    def arrived(self, topic: Topic, publication: Ordered) -> None:
        if not mixed(topic).counts(publication_key(publication.source, publication.sequence)):
            self.keeping(topic).add(publication)
        super().arrived(topic, publication)

    # Subscribing.

    def start_subscribing(self, topic: Topic) -> None:
        self._met.pop(topic.name, None)
        super().start_subscribing(topic)

    def ask_everybody(self, question: Question) -> None:
        survey = Survey(question, NO_NODE, len(self.present))
        if len(self.present) == 0:
            self.finish_survey(survey)
            return
        key = survey_key(question)
        self.surveys[key] = survey
        self._unanswered[key] = dict(self.present)
        # Nobody is to pass it on.
        alone = question.narrowed_to(vec[i64]())
        for node in self.present:
            self.environment.send(node, alone)

    def _one_answered(self, key: i64, unanswered: dict[i64, bool], peer: i64) -> None:
        """Somebody will not answer a question any more."""
        del unanswered[peer]
        if len(unanswered) == 0:
            del self._unanswered[key]
        survey = self.surveys[key]
        survey.missing -= 1
        if survey.missing == 0:
            del self.surveys[key]
            self.finish_survey(survey)

    def met(self, topic: Topic) -> list[i64]:
        """Who can be reached and was found since this node began to ask who the members of a topic are."""
        return [peer for peer in self._met.get(topic.name, {}) if peer in self.present]

    def after_joining(self, topic: Topic, early: list[Message]) -> None:
        super().after_joining(topic, early)
        for peer in self._met.pop(topic.name, {}):
            if peer in self.present:
                self.member_met(topic, peer)

    def state(self) -> str:
        unanswered = [(key, sorted(nodes)) for key, nodes in sorted(self._unanswered.items())]
        met = [(name, sorted(nodes)) for name, nodes in sorted(self._met.items())]
        return f"{super().state()} {sorted(self.present)} {unanswered} {met}"


def mixed(topic: Topic) -> MixedOrder:
    """The order of a topic where nodes may fail."""
    order = topic.order
    assert isinstance(order, MixedOrder), "where nodes may fail orders are mixed"
    return order
