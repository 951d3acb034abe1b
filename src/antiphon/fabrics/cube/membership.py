"""Membership of topics: how a node becomes a member, and how it stops being one.

The part of VCube-PS (:mod:`antiphon.fabrics.cube.vcube_ps`) that is about members and not about publications. A
newcomer conducts two surveys, ``Subscribe`` and ``Synchronise``; each goes down a tree of the cube and its answers come
back up. Whom a survey asks is either everybody, or, with a directory, those whom the topic's home node has listed and
whom the newcomer has heard of since. ``docs/architecture.md`` argues that either is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.cube.directory import Directory
from antiphon.fabrics.cube.messages import (
    COUNTER_BITS,
    COUNTER_MASK,
    Answer,
    Bequest,
    Question,
    Register,
    Registered,
    Subscribe,
    Synchronise,
    Unregister,
    Unsubscribe,
    member_entry,
)
from antiphon.fabrics.cube.topic import MEMBER, OUTSIDE, SUBSCRIBING, SYNCHRONISING, Options, Pending, Topic
from antiphon.fabrics.cube.topology import Cube, PartialCube, cluster
from antiphon.fabrics.cube.view import View
from antiphon.kernel.errors import ProtocolError, UsageError
from antiphon.kernel.message import TOTAL, Message, publication_key
from antiphon.kernel.process import NO_NODE, Environment, Process
from antiphon.orders.order import Order, merged_frontiers

LARGEST_BEQUEST: Final = 1 << 16
"""So many integers fit one bequest, about; what is more goes into the next."""


@final
class Survey:
    """A question on its way through this node: who is to be told, and what was gathered."""

    def __init__(self, question: Question, parent: i64, missing: i64) -> None:
        self.question: Final[Question] = question
        self.parent: Final[i64] = parent
        self.missing: i64 = missing
        self.entries: vec[i64] = vec[i64]()
        self.announced: vec[i64] = vec[i64]()


class Membership(Process):
    """The topics of one node. ``cube`` holds all nodes; views hold the members of each topic.

    Nodes of a system that does not change share one cube. A node that is told of a change has its own from then on.
    """

    def __init__(self, environment: Environment, cube: Cube, options: Options) -> None:
        super().__init__(environment)
        self.cube: Cube = cube
        self._own_cube: PartialCube | None = None
        self._is_leaving: bool = False
        self.options: Final[Options] = options
        self._topics: dict[i64, Topic] = {}
        # The topic that was asked for last: mostly the next message is about the same one.
        self._recent: Topic | None = None
        self.surveys: dict[i64, Survey] = {}
        # By topic, those that this node cannot answer yet.
        self._delayed: dict[i64, list[Survey]] = {}
        self._directory: Final = Directory(cube)
        self.counter: i64 = 0

    # What the application does.

    def subscribe(self, topic: i64) -> None:
        state = self.find_topic(topic)
        if state.wants_membership:
            raise UsageError(f"node {self.me} is subscribed to topic {topic} already; unsubscribe first to start anew")
        state.wants_membership = True
        state.queue.append(Pending(0, self.environment.now(), None))
        self.go_on(state)

    def unsubscribe(self, topic: i64) -> None:
        state = self.find_topic(topic)
        if not state.wants_membership:
            raise UsageError(f"node {self.me} is not subscribed to topic {topic}; subscribe before unsubscribing")
        state.wants_membership = False
        state.queue.append(Pending(0, self.environment.now(), None))
        self.go_on(state)

    def begin_as_member(self, topic: i64, view: View) -> None:
        """Be a member from the start, knowing all other members: no messages are needed (before ``start``)."""
        state = self.find_topic(topic)
        state.view = view.copy()
        state.state = MEMBER
        state.wants_membership = True
        self.environment.subscribed(topic)

    def begin_as_home(self, topic: i64, members: Sequence[int]) -> None:
        """List the members from the start, if this node is the topic's home (at every node, before ``start``)."""
        if self._directory.home_of(topic) == self.me:
            for member in members:
                self._directory.register(topic, member, 0)

    def begin_counting_at(self, counter: i64) -> None:
        """Number subscriptions above those of a former life under the same identifier (before ``start``)."""
        self.counter = max(self.counter, counter)

    def is_subscribed(self, topic: i64) -> bool:
        """Whether the application's last word on this topic was to subscribe."""
        known = self._topics.get(topic)
        return known is not None and known.wants_membership

    def state(self) -> str:
        topics = [topic.text() for _, topic in sorted(self._topics.items())]
        surveys = [
            (key, survey.missing, list(survey.entries), list(survey.announced))
            for key, survey in sorted(self.surveys.items())
        ]
        delayed = [
            (name, [(survey_key(one.question), list(one.entries), list(one.announced)) for one in waiting])
            for name, waiting in sorted(self._delayed.items())
        ]
        nodes = [] if self._own_cube is None else self._own_cube.members()
        return f"{self.counter} {topics} {surveys} {delayed} {self._directory.state()} {nodes} {self._is_leaving}"

    def unfinished(self) -> i64:
        count: i64 = len(self.surveys)
        for topic in self._topics.values():
            count += topic.unfinished()
        for waiting in self._delayed.values():
            count += len(waiting)
        return count

    def topic(self, name: i64) -> Topic | None:
        """What this node knows about a topic, for inspection."""
        return self._topics.get(name)

    def topics(self) -> list[Topic]:
        """What this node knows about each topic that it has heard of, for inspection."""
        return list(self._topics.values())

    # Nodes that come and go.

    def joined(self, node: i64) -> None:
        self.changing_cube().include(node)
        self._bequeath([node], self._is_leaving)

    def left(self, node: i64) -> None:
        self.changing_cube().remove(node)
        for topic in self.topics():
            self.forget_member(topic, node)

    def forget_member(self, topic: Topic, node: i64) -> None:
        """A node is not there any more, member or not."""
        topic.view.forget(node)

    def leave(self) -> None:
        self._is_leaving = True
        self._bequeath([node for node in self.cube.members() if node != self.me], True)

    def changing_cube(self) -> PartialCube:
        if self.options.directory:
            raise UsageError("with a directory the set of nodes is fixed; run without it where nodes come and go")
        cube = self._own_cube
        if cube is None:
            cube = self.cube.to_change()
            self._own_cube = cube
            self.cube = cube
        return cube

    def _bequeath(self, heirs: list[int], with_own_past: bool) -> None:
        """Tell others what the departed counted as past, and if this node departs too, what it does."""
        entries = vec[i64]()
        for name, topic in self._topics.items():
            past = topic.inherited
            if with_own_past:
                past = merged_frontiers(past, topic.order.frontier())
            if len(past) == 0:
                continue
            entries = append_all(append(append(entries, name), len(past)), past)
            if len(entries) >= LARGEST_BEQUEST:
                self._send_bequest(heirs, entries)
                entries = vec[i64]()
        if len(entries) > 0:
            self._send_bequest(heirs, entries)

    def _send_bequest(self, heirs: list[int], entries: vec[i64]) -> None:
        for heir in heirs:
            self.environment.send(heir, Bequest(self.me, entries))

    def _receive_bequest(self, message: Bequest) -> None:
        entries = message.entries
        position: i64 = 0
        while position + 1 < len(entries):
            topic = self.find_topic(entries[position])
            end = position + 2 + entries[position + 1]
            if end > len(entries) or end < position + 2:
                raise ProtocolError(f"node {message.source} sent a bequest that is cut off")
            topic.inherited = merged_frontiers(topic.inherited, vec[i64](entries[position + 2 : end]))
            position = end

    # What a subclass does with publications.

    def start_publications(self, topic: Topic) -> None:
        """Start the publication at the head of the queue, and any that may travel with it."""
        raise NotImplementedError

    def take(self, topic: Topic, packet: Message) -> None:
        """Use a publication, or a bundle of them, that has arrived at a member."""
        raise NotImplementedError

    def send_down(self, topic: Topic, message: Message, height: i64) -> i64:
        """Send to the members in this node's clusters up to ``height``; the answer is how many copies left."""
        raise NotImplementedError

    def after_joining(self, topic: Topic, early: list[Message]) -> None:
        """This node has become a member and has used what had come early."""

    def before_leaving(self, topic: Topic) -> None:
        """This node is about to stop being a member: whatever it owes to others must leave now."""

    # What total order adds.

    def may_begin_weak(self, topic: Topic, pending: Pending) -> bool:
        """Whether total order lets something weaker begin, or a change of membership."""
        return True

    def claim_next(self, topic: Topic) -> None:
        """Prepare total publications that stand at the head of the queue."""

    def may_start_total(self, topic: Topic) -> bool:
        """Whether the total publication at the head of the queue is prepared."""
        raise NotImplementedError

    def start_total(self, topic: Topic) -> None:
        """Start the total publication at the head of the queue, which is prepared."""
        raise NotImplementedError

    def announced(self, topic: Topic) -> vec[i64]:
        """Own total publications that a newcomer must know of though they have not started."""
        raise NotImplementedError

    def adopt(self, topic: Topic, announced: vec[i64]) -> None:
        """This newcomer has heard of total publications that have not started."""
        raise NotImplementedError

    def receive(self, sender: i64, message: Message) -> None:
        if isinstance(message, Question):
            self._receive_question(sender, message)
        elif isinstance(message, Answer):
            self.receive_answer(message)
        elif isinstance(message, Unsubscribe):
            self.receive_unsubscribe(sender, message)
        elif isinstance(message, Register):
            self._receive_register(sender, message)
        elif isinstance(message, Registered):
            self._registered(self.find_topic(message.topic), message.members, message.past)
        elif isinstance(message, Unregister):
            self._directory.unregister(message.topic, message.source, message.sequence, message.past)
        elif isinstance(message, Bequest):
            self._receive_bequest(message)
        else:
            raise ProtocolError(f"node {sender} sent a {type(message).__name__}, which VCube-PS does not know")

    # One thing after the other.

    def go_on(self, topic: Topic) -> None:
        """Begin what the application asked for, one after the other, as far as that is possible now."""
        while len(topic.queue) > 0 and self._may_begin(topic, topic.queue[0]):
            if topic.queue[0].payload is not None:
                if topic.queue[0].order == TOTAL:
                    self.start_total(topic)
                else:
                    self.start_publications(topic)
                continue
            # It is taken out first: what begins here may end at once and lead back to this place.
            del topic.queue[0]
            if topic.state == OUTSIDE:
                self.start_subscribing(topic)
            else:
                self._leave_topic(topic)
        if self.options.total:
            self.claim_next(topic)

    def _may_begin(self, topic: Topic, pending: Pending) -> bool:
        if pending.payload is not None and pending.order == TOTAL:
            return self.may_start_total(topic)
        if self.options.total and not self.may_begin_weak(topic, pending):
            return False
        if pending.payload is not None:
            return topic.state == MEMBER and topic.in_flight < self.options.window
        # Open waves may still need the old view, which subscribing throws away.
        return topic.state == MEMBER or (topic.state == OUTSIDE and not topic.has_open_waves())

    # Becoming a member.

    def start_subscribing(self, topic: Topic) -> None:
        self.counter += 1
        topic.joined_counter = self.counter
        topic.state = SUBSCRIBING
        topic.view = View(self.cube.dimension)
        topic.heard.clear()
        if not self.options.directory:
            self.ask_everybody(Subscribe(self.me, topic.joined_counter, topic.name))
            return
        home = self._directory.home_of(topic.name)
        if home == self.me:
            others = self._directory.register(topic.name, self.me, topic.joined_counter)
            self._registered(topic, others, self._directory.past(topic.name))
        else:
            self.environment.send(home, Register(self.me, topic.joined_counter, topic.name))

    def _receive_register(self, sender: i64, message: Register) -> None:
        """A newcomer asks this node, which is the topic's home, who the members are."""
        others = self._directory.register(message.topic, message.source, message.sequence)
        past = self._directory.past(message.topic)
        self.environment.send(sender, Registered(message.source, message.sequence, message.topic, others, past))

    def _registered(self, topic: Topic, members: vec[i64], past: vec[i64]) -> None:
        topic.inherited = past
        for member in members:
            topic.heard[member] = True
        self._ask(Subscribe(self.me, topic.joined_counter, topic.name, members))

    def ask_everybody(self, question: Question) -> None:
        self._conduct(question, NO_NODE, self._flood(question, self.cube.dimension))

    def _ask(self, question: Question) -> None:
        self._conduct(question, NO_NODE, self._pass_on(question))

    def _conduct(self, question: Question, parent: i64, missing: i64) -> None:
        """Wait for the answers of those below; answer at once if there are none."""
        survey = Survey(question, parent, missing)
        if missing == 0:
            self.finish_survey(survey)
        else:
            self.surveys[survey_key(question)] = survey

    def _flood(self, question: Question, height: i64) -> i64:
        """Ask all nodes of this node's clusters up to ``height``, members or not; how many copies left."""
        count: i64 = 0
        s: i64 = 1
        while s <= height:
            child = self.cube.first(self.me, s)
            if child != NO_NODE:
                self.environment.send(child, question)
                count += 1
            s += 1
        return count

    def _pass_on(self, question: Question) -> i64:
        """Ask those whom the question names: the first of each cluster, who asks the others there; how many copies."""
        groups: dict[i64, list[i64]] = {}
        targets = question.targets
        assert targets is not None, "a question that is passed on names whom it is for"
        for target in targets:
            groups.setdefault(cluster(self.me, target), []).append(target)
        for group in groups.values():
            self.environment.send(group[0], question.narrowed_to(vec[i64](group[1:])))
        return len(groups)

    def _receive_question(self, sender: i64, question: Question) -> None:
        """A newcomer is passive when it subscribes and active when it synchronises."""
        topic = self._topics.get(question.topic)
        if topic is not None and topic.state != OUTSIDE:
            topic.view.add(question.source, question.sequence, isinstance(question, Synchronise))
            if self.options.directory and topic.state == SUBSCRIBING:
                topic.heard[question.source] = True
        if question.targets is None:
            self._conduct(question, sender, self._flood(question, cluster(self.me, sender) - 1))
        else:
            self._conduct(question, sender, self._pass_on(question))

    def receive_answer(self, answer: Answer) -> None:
        """Somebody below has answered a question."""
        key = survey_key(answer)
        survey = self.surveys.get(key)
        if survey is None:
            raise ProtocolError(f"an answer about {answer} came to node {self.me}, which did not ask")
        if isinstance(survey.question, Synchronise):
            survey.entries = merged_frontiers(survey.entries, answer.entries)
            survey.announced = append_all(survey.announced, answer.announced)
        else:
            survey.entries = append_all(survey.entries, answer.entries)
        survey.missing -= 1
        if survey.missing == 0:
            del self.surveys[key]
            self.finish_survey(survey)

    def finish_survey(self, survey: Survey) -> None:
        """All children have answered: add the own word and tell the parent, or use what was gathered."""
        question = survey.question
        topic = self._topics.get(question.topic)
        if survey.parent == NO_NODE:
            assert topic is not None, "who asks about a topic knows it"
            if isinstance(question, Synchronise):
                self._become_member(topic, survey)
            else:
                self._become_active(topic, survey.entries)
            return
        entries = survey.entries
        announced = survey.announced
        if topic is not None:
            if isinstance(question, Synchronise):
                if topic.undelivered_totals > 0:
                    # Not past here, and it will not reach the newcomer: it is to be past there, with all it names.
                    self._delayed.setdefault(topic.name, []).append(survey)
                    return
                if self.options.total:
                    announced = append_all(announced, self.announced(topic))
                # Whoever does not ask a node that has left speaks for it.
                past = merged_frontiers(topic.inherited, topic.order.frontier())
                entries = merged_frontiers(entries, past)
            elif topic.state != OUTSIDE:
                entries = append(entries, member_entry(self.me, topic.joined_counter, topic.is_active()))
        is_past = isinstance(question, Synchronise)
        answer = Answer(question.source, question.sequence, question.topic, entries, announced, is_past)
        self.environment.send(survey.parent, answer)

    def answer_delayed(self, topic: Topic) -> None:
        """What kept this node from answering is over."""
        for survey in self._delayed.pop(topic.name, []):
            self.finish_survey(survey)

    def _become_active(self, topic: Topic, members: vec[i64]) -> None:
        """Everybody has heard of this node, and every member has spoken for itself: the view is complete."""
        for entry in members:
            node = entry >> (COUNTER_BITS + 1)
            counter = (entry >> 1) & COUNTER_MASK
            # Who is not in the cube any more has left since it gave its word.
            if topic.departed.get(node, -1) < counter and self.cube.contains(node):
                topic.view.add(node, counter, (entry & 1) == 1)
        topic.departed.clear()
        topic.state = SYNCHRONISING
        if not self.options.directory:
            self.ask_everybody(Synchronise(self.me, topic.joined_counter, topic.name))
            return
        # Whoever published before all had heard of this node is listed, or was heard of, or has left its past behind.
        heard = vec[i64]([node for node in topic.heard if node != self.me])
        self._ask(Synchronise(self.me, topic.joined_counter, topic.name, heard))

    def _become_member(self, topic: Topic, survey: Survey) -> None:
        """All that began before anybody answered counts as past; all that begins later will come."""
        if len(survey.announced) > 0:
            self.adopt(topic, survey.announced)
        topic.order.start_from(merged_frontiers(topic.inherited, survey.entries))
        topic.heard.clear()
        topic.state = MEMBER
        self.environment.subscribed(topic.name)
        early = topic.early
        topic.early = []
        for publication in early:
            self.take(topic, publication)
        self.after_joining(topic, early)
        self.go_on(topic)

    def _leave_topic(self, topic: Topic) -> None:
        self.before_leaving(topic)
        self.counter += 1
        topic.left_counter = self.counter
        topic.state = OUTSIDE
        self.send_down(topic, Unsubscribe(self.me, topic.left_counter, topic.name), self.cube.dimension)
        topic.order = self._successor_of(topic.order)
        if self.options.directory:
            self._unregister(topic)
        self.environment.unsubscribed(topic.name)
        self.close_if_outside(topic)

    def _unregister(self, topic: Topic) -> None:
        home = self._directory.home_of(topic.name)
        past = topic.order.frontier()
        if home == self.me:
            self._directory.unregister(topic.name, self.me, topic.left_counter, past)
        else:
            self.environment.send(home, Unregister(self.me, topic.left_counter, topic.name, past))

    def _successor_of(self, order: Order) -> Order:
        """A new order that remembers what counts as past and what own publications follow, and nothing that waits.

        The counters of what had to wait are those of the topic, whatever the memberships.
        """
        successor = self.options.new_order(self.me)
        successor.start_from(order.frontier())
        successor.adopt_barrier(order.barrier())
        successor.held_total = order.held_total
        successor.held_peak = order.held_peak
        return successor

    def close_if_outside(self, topic: Topic) -> None:
        """When nobody waits for the answer of one who has left, it needs no view, and may subscribe again."""
        if topic.state == OUTSIDE and not topic.has_open_waves():
            topic.view = View(0)
            self.go_on(topic)

    def receive_unsubscribe(self, sender: i64, message: Unsubscribe) -> None:
        """A member has left."""
        topic = self.find_topic(message.topic)
        topic.view.remove(message.source, message.sequence)
        if topic.is_active():
            self.send_down(topic, message, cluster(self.me, sender) - 1)
        elif topic.state == SUBSCRIBING:
            topic.departed[message.source] = max(message.sequence, topic.departed.get(message.source, 0))

    def find_topic(self, name: i64) -> Topic:
        """What this node knows about a topic, from now on if not before."""
        recent = self._recent
        if recent is not None and recent.name == name:
            return recent
        found = self._topics.get(name)
        if found is None:
            found = Topic(name, self.options.new_order(self.me))
            self._topics[name] = found
        self._recent = found
        return found


def survey_key(about: Message) -> i64:
    """Subscriptions are numbered per node over all topics, so source and counter name a survey."""
    return publication_key(about.source, about.sequence)


def append_all(entries: vec[i64], more: vec[i64]) -> vec[i64]:
    """Both lists, one after the other."""
    if len(entries) == 0:
        return more
    for entry in more:
        entries = append(entries, entry)
    return entries
