"""Membership of topics: how a node becomes a member, and how it stops being one.

A newcomer conducts two surveys (:mod:`antiphon.fabrics.cube.surveys`). ``Subscribe`` makes it *passive* for whoever
knows it. When all have answered it has a complete view: each member has spoken for itself, and nobody for others.
``Synchronise`` makes it *active*; the answers carry what each node counts as past. Their union is a consistent cut, the
newcomer's starting point. With a directory the surveys ask those whom the topic's home node has listed and whom the
newcomer has heard of since.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube.agenda import Agenda
from antiphon.fabrics.cube.delivery import CubeDelivery
from antiphon.fabrics.cube.directory import Directory
from antiphon.fabrics.cube.dissemination import CubeDissemination
from antiphon.fabrics.cube.messages import (
    COUNTER_BITS,
    COUNTER_MASK,
    RegisterRequest,
    RegisterResponse,
    Subscribe,
    Synchronise,
    Unregister,
    Unsubscribe,
)
from antiphon.fabrics.cube.nodes import CubeNodes
from antiphon.fabrics.cube.surveys import Survey, SurveyClient, Surveys
from antiphon.fabrics.cube.topic import (
    MEMBER,
    NO_COUNTERS,
    NO_MESSAGES,
    NO_NUMBERS,
    OUTSIDE,
    SUBSCRIBING,
    SYNCHRONISING,
    CubeTopic,
    CubeTopicTable,
    Options,
)
from antiphon.fabrics.cube.topology import cluster
from antiphon.fabrics.cube.total_order.ordering import CubeTotalOrder
from antiphon.fabrics.cube.view import View
from antiphon.kernel.message import ProtocolMessage
from antiphon.kernel.process import Environment
from antiphon.orders.order import Order, merged_frontiers


class MembershipListener:
    """Another part that acts when this node becomes a member of a topic, or stops being one; here it does nothing."""

    def resume(self, topic: CubeTopic) -> bool:
        """Whether this node has become a member again at once, from its log; if not, it asks others."""
        return False

    def on_joined(self, topic: CubeTopic, early: list[ProtocolMessage]) -> None:
        """This node has become a member and has used the publications that came early."""

    def on_leaving(self, topic: CubeTopic) -> None:
        """This node is about to stop being a member: it must send now what it owes to others."""

    def is_news(self, topic: CubeTopic, word: Unsubscribe) -> bool:
        """Whether an unsubscription has to go on down its tree."""
        return True

    def on_member_left(self, topic: CubeTopic, word: Unsubscribe) -> None:
        """Another member has left."""


@final
class TopicMembership(SurveyClient):
    """The subscriptions of one node."""

    def __init__(
        self,
        environment: Environment,
        topics: CubeTopicTable,
        nodes: CubeNodes,
        agenda: Agenda,
        dissemination: CubeDissemination,
        delivery: CubeDelivery,
        total_order: CubeTotalOrder,
        surveys: Surveys,
        listener: MembershipListener,
    ) -> None:
        self._environment: Final[Environment] = environment
        self._me: Final[i64] = environment.identifier
        self._topics: Final[CubeTopicTable] = topics
        self._options: Final[Options] = topics.options
        self._nodes: Final[CubeNodes] = nodes
        self._agenda: Final[Agenda] = agenda
        self._dissemination: Final[CubeDissemination] = dissemination
        self._delivery: Final[CubeDelivery] = delivery
        self._total_order: Final[CubeTotalOrder] = total_order
        self._surveys: Final[Surveys] = surveys
        self._listener: Final[MembershipListener] = listener
        self._directory: Final = Directory(nodes.cube)

    # Before the start.

    def begin_as_member(self, topic: i64, view: View) -> None:
        """Be a member from the start, knowing all other members: no messages are needed."""
        state = self._topics.find(topic)
        state.view = view.copy()
        state.state = MEMBER
        state.wants_membership = True
        self._environment.subscribed(topic)

    def begin_as_home(self, topic: i64, members: Sequence[int]) -> None:
        """List the members from the start, if this node is the topic's home."""
        if self._directory.home_of(topic) == self._me:
            for member in members:
                self._directory.register(topic, member, 0)

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        """A member has left, or the home of a topic and its members speak to each other."""
        if isinstance(message, Unsubscribe):
            self._on_unsubscribe(sender, message)
        elif isinstance(message, RegisterRequest):
            self._on_register(sender, message)
        elif isinstance(message, RegisterResponse):
            self._on_registered(self._topics.find(message.topic), message.members, message.past)
        elif isinstance(message, Unregister):
            self._directory.unregister(message.topic, message.source, message.sequence, message.past)

    # Becoming a member.

    def start_subscribing(self, topic: CubeTopic) -> None:
        """Ask who the members are, or go on from the log."""
        if self._listener.resume(topic):
            return
        topic.joined_counter = self._topics.next_counter()
        topic.state = SUBSCRIBING
        topic.view = View(self._nodes.cube.dimension)
        topic.heard = NO_NUMBERS
        if not self._options.directory:
            self._surveys.ask_all(Subscribe(self._me, topic.joined_counter, topic.name))
            return
        home = self._directory.home_of(topic.name)
        if home == self._me:
            others = self._directory.register(topic.name, self._me, topic.joined_counter)
            self._on_registered(topic, others, self._directory.past(topic.name))
        else:
            self._environment.send(home, RegisterRequest(self._me, topic.joined_counter, topic.name))

    def _on_register(self, sender: i64, message: RegisterRequest) -> None:
        """A newcomer asks this node, which is the topic's home, who the members are."""
        others = self._directory.register(message.topic, message.source, message.sequence)
        past = self._directory.past(message.topic)
        self._environment.send(sender, RegisterResponse(message.source, message.sequence, message.topic, others, past))

    def _on_registered(self, topic: CubeTopic, members: vec[i64], past: vec[i64]) -> None:
        topic.inherited = past
        for member in members:
            topic.hear_of(member)
        self._surveys.ask(Subscribe(self._me, topic.joined_counter, topic.name, members))

    def on_survey_done(self, topic: CubeTopic, survey: Survey) -> None:
        if isinstance(survey.question, Synchronise):
            self._become_member(topic, survey)
        else:
            self._become_active(topic, survey.entries)

    def _become_active(self, topic: CubeTopic, members: vec[i64]) -> None:
        """Everybody has heard of this node, and every member has spoken for itself: the view is complete."""
        for entry in members:
            node = entry >> (COUNTER_BITS + 1)
            counter = (entry >> 1) & COUNTER_MASK
            # Who is not in the cube any more has left since it gave its word.
            if topic.departed.get(node, -1) < counter and self._nodes.cube.contains(node):
                topic.view.add(node, counter, (entry & 1) == 1)
        topic.departed = NO_COUNTERS
        topic.state = SYNCHRONISING
        if not self._options.directory:
            self._surveys.ask_all(Synchronise(self._me, topic.joined_counter, topic.name))
            return
        # Whoever published before all had heard of this node is listed, or was heard of, or has left its past behind.
        heard = vec[i64]([node for node in topic.heard if node != self._me])
        self._surveys.ask(Synchronise(self._me, topic.joined_counter, topic.name, heard))

    def _become_member(self, topic: CubeTopic, survey: Survey) -> None:
        """All that began before anybody answered counts as past; all that begins later will come."""
        if len(survey.announced) > 0:
            self._total_order.adopt(topic, survey.announced)
        topic.order.start_from(merged_frontiers(topic.inherited, survey.entries))
        topic.heard = NO_NUMBERS
        topic.state = MEMBER
        self._environment.subscribed(topic.name)
        early = topic.early
        topic.early = NO_MESSAGES
        for publication in early:
            self._delivery.take(topic, publication)
        self._listener.on_joined(topic, early)
        self._agenda.advance(topic)

    # Ceasing to be one.

    def leave(self, topic: CubeTopic) -> None:
        """Tell the members that this node is none any more."""
        self._listener.on_leaving(topic)
        topic.left_counter = self._topics.next_counter()
        topic.state = OUTSIDE
        word = Unsubscribe(self._me, topic.left_counter, topic.name)
        self._dissemination.send_down(topic, word, self._nodes.cube.dimension)
        topic.order = self._successor_of(topic.order)
        if self._options.directory:
            self._unregister(topic)
        self._environment.unsubscribed(topic.name)
        self._agenda.close_if_outside(topic)

    def _unregister(self, topic: CubeTopic) -> None:
        home = self._directory.home_of(topic.name)
        past = topic.order.frontier()
        if home == self._me:
            self._directory.unregister(topic.name, self._me, topic.left_counter, past)
        else:
            self._environment.send(home, Unregister(self._me, topic.left_counter, topic.name, past))

    def _successor_of(self, order: Order) -> Order:
        """A new order that remembers what counts as past and what own publications follow, and nothing that waits.

        The counters of what had to wait are those of the topic, whatever the memberships.
        """
        successor = self._options.new_order(self._me)
        successor.start_from(order.frontier())
        successor.adopt_barrier(order.barrier())
        successor.held_total = order.held_total
        successor.held_peak = order.held_peak
        return successor

    def _on_unsubscribe(self, sender: i64, message: Unsubscribe) -> None:
        """A member has left."""
        topic = self._topics.find(message.topic)
        if self._listener.is_news(topic, message):
            self._remove(topic, sender, message)
        self._listener.on_member_left(topic, message)

    def _remove(self, topic: CubeTopic, sender: i64, message: Unsubscribe) -> None:
        topic.view.remove(message.source, message.sequence)
        if topic.is_active():
            self._dissemination.send_down(topic, message, cluster(self._me, sender) - 1)
        elif topic.state == SUBSCRIBING:
            topic.add_departed(message.source, message.sequence)

    def text(self) -> str:
        """The state as text, to compare states."""
        return self._directory.state()
