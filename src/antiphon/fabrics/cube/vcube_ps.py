"""VCube-PS, repaired: topics with per-publisher trees of subscribers only, through joins and leaves.

Follows chapter 5 of the thesis: a publication goes down a tree that is rooted at its publisher and holds subscribers
only; a wave of acknowledgements comes back up; causal order is kept per topic by causal barriers. The printed
algorithms lose publications and block subscribers when membership changes
(:mod:`antiphon.fabrics.cube.vcube_ps_published` has them as they are). What is different here:

* A newcomer floods ``Subscribe`` to all nodes; it is *passive* for whoever knows it. When all have answered it has a
  complete view: each member has spoken for itself, and nobody for others. It floods ``Synchronise``, which makes it
  *active*; the answers carry what each node counts as past. Their union is a consistent cut, the newcomer's starting
  point. Then the subscription is effective, and the environment is told.
* Only active members are given a cluster to serve. Passive ones get a copy of their own where a cluster has no active
  member.
* Who is addressed and is no member returns the copy; the sender forgets it and gives the cluster to the next member.
  So there are no relays, nothing is lost to a stale view, and a stale entry is corrected at its first use. An
  ``Unsubscribe`` therefore needs neither acknowledgement nor tombstones.
* Publications are numbered per topic without gaps, so several can be in flight (``window``): order is restored at the
  receiver and no longer bought with one round trip per publication.

``docs/architecture.md`` argues why nothing is lost and nobody blocks; the tests explore all schedules of small systems.
Links must not lose or duplicate; they may reorder. Nodes do not fail here.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.cube.messages import (
    COUNTER_BITS,
    COUNTER_MASK,
    Acknowledgement,
    Answer,
    LeafCopy,
    Refusal,
    Subscribe,
    Synchronise,
    Unsubscribe,
    member_entry,
)
from antiphon.fabrics.cube.topology import Cube, cluster
from antiphon.fabrics.cube.view import View
from antiphon.fabrics.cube.waves import Waves
from antiphon.kernel.errors import ProtocolError, UsageError
from antiphon.kernel.message import SOURCE_MASK, Message, publication_key
from antiphon.kernel.process import NO_NODE, Environment, Process
from antiphon.orders.barriers import CausalBarriers
from antiphon.orders.fifo import Fifo, Unordered
from antiphon.orders.order import Order, Ordered

OUTSIDE: Final[i64] = 0
SUBSCRIBING: Final[i64] = 1
SYNCHRONISING: Final[i64] = 2
MEMBER: Final[i64] = 3

ORDERS: Final = ("none", "fifo", "causal")
DEFAULT_WINDOW: Final = 64


@final
class Options:
    """How a VCube-PS process behaves; shared by all nodes of a system.

    ``window`` bounds the own publications per topic whose wave is open; the printed protocol has 1. ``largest_first``
    serves the cluster with the deepest subtree first, which shortens the longest path; the printed one serves it last.
    """

    def __init__(self, order: str = "causal", window: i64 = DEFAULT_WINDOW, largest_first: bool = True) -> None:
        if order not in ORDERS:
            raise UsageError(f"VCube-PS orders by {', '.join(ORDERS)}, not {order!r}; choose one of these")
        if window < 1:
            raise UsageError(f"the window of open publications must be at least 1, not {window}")
        self.order: Final[str] = order
        self.window: Final[i64] = window
        self.largest_first: Final[bool] = largest_first

    def new_order(self, me: i64) -> Order:
        """An order of the chosen kind for one topic at one node."""
        if self.order == "causal":
            return CausalBarriers(me)
        return Fifo(me) if self.order == "fifo" else Unordered(me)


@final
class Pending:
    """Something the application asked for that has not begun: a publication, or else a change of membership."""

    def __init__(self, sequence: i64, timestamp: i64, payload: bytes | None) -> None:
        self.sequence: Final[i64] = sequence
        self.timestamp: Final[i64] = timestamp
        self.payload: Final[bytes | None] = payload


@final
class Topic:
    """All that one node knows about one topic. It outlives a membership: numbers are not used again."""

    def __init__(self, name: i64, order: Order) -> None:
        self.name: Final[i64] = name
        self.state: i64 = OUTSIDE
        self.view: View = View(0)
        self.order: Order = order
        self.waves: Final = Waves()
        self.queue: list[Pending] = []
        self.wants_membership: bool = False
        self.published: i64 = 0
        self.in_flight: i64 = 0
        self.joined_counter: i64 = 0
        self.left_counter: i64 = 0
        # Publications that came between subscribing and being synchronised.
        self.early: list[Ordered] = []
        # Who unsubscribed while this node was subscribing: their word for themselves may still be on its way.
        self.departed: dict[i64, i64] = {}

    def text(self) -> str:
        """Everything as text, for those who compare states."""
        queued = [(pending.sequence, pending.payload) for pending in self.queue]
        early = [(publication.source, publication.sequence) for publication in self.early]
        counters = (self.state, self.published, self.in_flight, self.joined_counter, self.left_counter)
        return (
            f"{self.name} {counters} {queued} {early} {sorted(self.departed.items())} "
            f"[{self.view.state()}] [{self.order.state()}] [{self.waves.state()}]"
        )

    def unfinished(self) -> i64:
        """What waits: for others, for acknowledgements, for its turn, or for a subscription to take effect."""
        joining = 1 if self.state == SUBSCRIBING or self.state == SYNCHRONISING else 0
        return self.order.waiting() + len(self.waves) + len(self.queue) + len(self.early) + joining

    def is_active(self) -> bool:
        """Whether this node has a complete view and can serve clusters."""
        return self.state >= SYNCHRONISING


@final
class Survey:
    """A ``Subscribe`` or ``Synchronise`` on its way through this node: who is to be told, and what was gathered."""

    def __init__(self, question: Message, parent: i64, missing: i64) -> None:
        self.question: Final[Message] = question
        self.parent: Final[i64] = parent
        self.missing: i64 = missing
        self.entries: vec[i64] = vec[i64]()


class VCubePs(Process):
    """One node of the topic system. ``cube`` holds all nodes; views hold the members of each topic."""

    def __init__(self, environment: Environment, cube: Cube, options: Options) -> None:
        super().__init__(environment)
        self._cube: Final[Cube] = cube
        self._options: Final[Options] = options
        self._topics: dict[i64, Topic] = {}
        self._surveys: dict[i64, Survey] = {}
        self._counter: i64 = 0

    # What the application does.

    def subscribe(self, topic: i64) -> None:
        state = self._topic(topic)
        if state.wants_membership:
            raise UsageError(f"node {self.me} is subscribed to topic {topic} already; unsubscribe first to start anew")
        state.wants_membership = True
        state.queue.append(Pending(0, self.environment.now(), None))
        self._go_on(state)

    def unsubscribe(self, topic: i64) -> None:
        state = self._topic(topic)
        if not state.wants_membership:
            raise UsageError(f"node {self.me} is not subscribed to topic {topic}; subscribe before unsubscribing")
        state.wants_membership = False
        state.queue.append(Pending(0, self.environment.now(), None))
        self._go_on(state)

    def publish(self, payload: bytes, topic: i64 = 0) -> i64:
        state = self._topic(topic)
        if not state.wants_membership:
            raise UsageError(f"node {self.me} is not subscribed to topic {topic}; only subscribers publish: subscribe")
        state.published += 1
        state.queue.append(Pending(state.published, self.environment.now(), payload))
        self._go_on(state)
        return state.published

    def begin_as_member(self, topic: i64, view: View) -> None:
        """Be a member from the start, knowing all other members: no messages are needed (before ``start``)."""
        state = self._topic(topic)
        state.view = view.copy()
        state.state = MEMBER
        state.wants_membership = True
        self.environment.subscribed(topic)

    def is_subscribed(self, topic: i64) -> bool:
        """Whether the application's last word on this topic was to subscribe."""
        known = self._topics.get(topic)
        return known is not None and known.wants_membership

    def state(self) -> str:
        topics = [topic.text() for _, topic in sorted(self._topics.items())]
        surveys = [(key, survey.missing, list(survey.entries)) for key, survey in sorted(self._surveys.items())]
        return f"{self._counter} {topics} {surveys}"

    def unfinished(self) -> i64:
        count: i64 = len(self._surveys)
        for topic in self._topics.values():
            count += topic.unfinished()
        return count

    def topic(self, name: i64) -> Topic | None:
        """What this node knows about a topic, for inspection."""
        return self._topics.get(name)

    def topics(self) -> list[Topic]:
        """What this node knows about each topic that it has heard of, for inspection."""
        return list(self._topics.values())

    # What arrives.

    def receive(self, sender: i64, message: Message) -> None:
        if isinstance(message, Ordered):
            self._receive_publication(sender, message)
        elif isinstance(message, Acknowledgement):
            self._close_one(self._topic(message.topic), message)
        elif isinstance(message, (Subscribe, Synchronise)):
            self._receive_question(sender, message)
        elif isinstance(message, Answer):
            self._receive_answer(message)
        elif isinstance(message, LeafCopy):
            self._receive_leaf_copy(sender, message)
        elif isinstance(message, Refusal):
            self._receive_refusal(sender, message)
        elif isinstance(message, Unsubscribe):
            self._receive_unsubscribe(sender, message)
        else:
            raise ProtocolError(f"node {sender} sent a {type(message).__name__}, which VCube-PS does not know")

    def _receive_publication(self, sender: i64, publication: Ordered) -> None:
        topic = self._topic(publication.topic)
        if not topic.is_active():
            self.environment.send(sender, Refusal(publication, topic.left_counter, False))
            return
        key = publication_key(publication.source, publication.sequence)
        count = self._send_down(topic, publication, cluster(self.me, sender) - 1)
        if count > 0:
            topic.waves.open(key, count, sender)
        else:
            self.environment.send(sender, Acknowledgement(publication.source, publication.sequence, publication.topic))
        self._take(topic, publication)

    def _receive_leaf_copy(self, sender: i64, copy: LeafCopy) -> None:
        topic = self._topic(copy.topic)
        if topic.state == OUTSIDE:
            self.environment.send(sender, Refusal(copy.publication, topic.left_counter, True))
            return
        self.environment.send(sender, Acknowledgement(copy.source, copy.sequence, copy.topic))
        self._take(topic, copy.publication)

    def _take(self, topic: Topic, publication: Ordered) -> None:
        if topic.state != MEMBER:
            topic.early.append(publication)
            return
        for released in topic.order.arrived(publication):
            self.environment.deliver(released)

    def _receive_refusal(self, sender: i64, refusal: Refusal) -> None:
        """Forget a stale member; if it was to serve a cluster, somebody else must."""
        topic = self._topic(refusal.topic)
        topic.view.remove(sender, refusal.counter)
        if not refusal.was_leaf:
            key = publication_key(refusal.source, refusal.sequence)
            count = self._send_to_cluster(topic, refusal.publication, cluster(self.me, sender))
            topic.waves.expect_more(key, count)
        self._close_one(topic, refusal)

    def _close_one(self, topic: Topic, message: Message) -> None:
        """One child has answered for a publication."""
        parent = topic.waves.answered(publication_key(message.source, message.sequence))
        if parent >= 0:
            if not isinstance(message, Acknowledgement):
                message = Acknowledgement(message.source, message.sequence, message.topic)
            self.environment.send(parent, message)
        elif parent == NO_NODE:
            topic.in_flight -= 1
            self._go_on(topic)
        if topic.state == OUTSIDE and len(topic.waves) == 0:
            self._close_outside(topic)

    # Sending down trees.

    def _send_down(self, topic: Topic, message: Message, height: i64) -> i64:
        """Send to one member in each of this node's clusters up to ``height``; the answer is how many copies left."""
        count: i64 = 0
        largest_first = self._options.largest_first
        s: i64 = 1
        while s <= height:
            count += self._send_to_cluster(topic, message, height + 1 - s if largest_first else s)
            s += 1
        return count

    def _send_to_cluster(self, topic: Topic, message: Message, s: i64) -> i64:
        view = topic.view
        child = view.first(self.me, s)
        if child != NO_NODE:
            self.environment.send(child, message)
            return 1
        if not view.has_passive():
            return 0
        passive = view.passive_in_cluster(self.me, s)
        if isinstance(message, Ordered):
            message = LeafCopy(message)
        for newcomer in passive:
            self.environment.send(newcomer, message)
        return len(passive)

    def _start_publication(self, topic: Topic, pending: Pending, payload: bytes) -> None:
        dependencies = topic.order.stamp(pending.sequence)
        publication = Ordered(self.me, pending.sequence, pending.timestamp, payload, dependencies, topic.name)
        self.environment.deliver(publication)
        count = self._send_down(topic, publication, self._cube.dimension)
        if count > 0:
            topic.in_flight += 1
            topic.waves.open(publication_key(self.me, pending.sequence), count, NO_NODE)

    # Membership.

    def _go_on(self, topic: Topic) -> None:
        """Begin what the application asked for, one after the other, as far as that is possible now."""
        while len(topic.queue) > 0 and self._may_begin(topic, topic.queue[0]):
            # It is taken out first: what begins here may end at once and lead back to this place.
            self._begin(topic, topic.queue.pop(0))

    def _may_begin(self, topic: Topic, pending: Pending) -> bool:
        if pending.payload is not None:
            return topic.state == MEMBER and topic.in_flight < self._options.window
        # Open waves may still need the old view, which subscribing throws away.
        return topic.state == MEMBER or (topic.state == OUTSIDE and len(topic.waves) == 0)

    def _begin(self, topic: Topic, pending: Pending) -> None:
        payload = pending.payload
        if payload is not None:
            self._start_publication(topic, pending, payload)
        elif topic.state == OUTSIDE:
            self._start_subscribing(topic)
        else:
            self._leave_topic(topic)

    def _start_subscribing(self, topic: Topic) -> None:
        self._counter += 1
        topic.joined_counter = self._counter
        topic.state = SUBSCRIBING
        topic.view = View(self._cube.dimension)
        self._survey(Subscribe(self.me, topic.joined_counter, topic.name), NO_NODE, self._cube.dimension)

    def _survey(self, question: Message, parent: i64, height: i64) -> None:
        """Ask all nodes below this one; answer at once if there are none."""
        survey = Survey(question, parent, self._flood(question, height))
        if survey.missing == 0:
            self._finish_survey(survey)
        else:
            self._surveys[survey_key(question)] = survey

    def _flood(self, message: Message, height: i64) -> i64:
        """Send to all nodes of this node's clusters up to ``height``, members or not; how many copies left."""
        count: i64 = 0
        s: i64 = 1
        while s <= height:
            child = self._cube.first(self.me, s)
            if child != NO_NODE:
                self.environment.send(child, message)
                count += 1
            s += 1
        return count

    def _receive_question(self, sender: i64, question: Message) -> None:
        """A newcomer is passive when it subscribes and active when it synchronises."""
        topic = self._topics.get(question.topic)
        if topic is not None and topic.state != OUTSIDE:
            topic.view.add(question.source, question.sequence, isinstance(question, Synchronise))
        self._survey(question, sender, cluster(self.me, sender) - 1)

    def _receive_answer(self, answer: Answer) -> None:
        key = survey_key(answer)
        survey = self._surveys.get(key)
        if survey is None:
            raise ProtocolError(f"an answer about {answer} came to node {self.me}, which did not ask")
        if isinstance(survey.question, Synchronise):
            survey.entries = merged(survey.entries, answer.entries)
        else:
            survey.entries = append_all(survey.entries, answer.entries)
        survey.missing -= 1
        if survey.missing == 0:
            del self._surveys[key]
            self._finish_survey(survey)

    def _finish_survey(self, survey: Survey) -> None:
        """All children have answered: add the own word and tell the parent, or use what was gathered."""
        question = survey.question
        topic = self._topics.get(question.topic)
        if survey.parent == NO_NODE:
            assert topic is not None, "who asks about a topic knows it"
            if isinstance(question, Synchronise):
                self._become_member(topic, survey.entries)
            else:
                self._become_active(topic, survey.entries)
            return
        entries = survey.entries
        if topic is not None:
            if isinstance(question, Synchronise):
                entries = merged(entries, topic.order.frontier())
            elif topic.state != OUTSIDE:
                entries = append(entries, member_entry(self.me, topic.joined_counter, topic.is_active()))
        self.environment.send(survey.parent, Answer(question.source, question.sequence, question.topic, entries))

    def _become_active(self, topic: Topic, members: vec[i64]) -> None:
        """Everybody has heard of this node, and every member has spoken for itself: the view is complete."""
        for entry in members:
            node = entry >> (COUNTER_BITS + 1)
            counter = (entry >> 1) & COUNTER_MASK
            if topic.departed.get(node, -1) < counter:
                topic.view.add(node, counter, (entry & 1) == 1)
        topic.departed.clear()
        topic.state = SYNCHRONISING
        self._survey(Synchronise(self.me, topic.joined_counter, topic.name), NO_NODE, self._cube.dimension)

    def _become_member(self, topic: Topic, frontier: vec[i64]) -> None:
        """All that began before anybody answered counts as past; all that begins later will come."""
        topic.order.start_from(frontier)
        topic.state = MEMBER
        self.environment.subscribed(topic.name)
        early = topic.early
        topic.early = []
        for publication in early:
            self._take(topic, publication)
        self._go_on(topic)

    def _leave_topic(self, topic: Topic) -> None:
        self._counter += 1
        topic.left_counter = self._counter
        topic.state = OUTSIDE
        self._send_down(topic, Unsubscribe(self.me, topic.left_counter, topic.name), self._cube.dimension)
        topic.order = self._successor_of(topic.order)
        self.environment.unsubscribed(topic.name)
        if len(topic.waves) == 0:
            self._close_outside(topic)

    def _successor_of(self, order: Order) -> Order:
        """A new order that remembers what counts as past and what own publications follow, and nothing that waits.

        The counters of what had to wait are those of the topic, whatever the memberships.
        """
        successor = self._options.new_order(self.me)
        successor.start_from(order.frontier())
        successor.adopt_barrier(order.barrier())
        successor.held_total = order.held_total
        successor.held_peak = order.held_peak
        return successor

    def _close_outside(self, topic: Topic) -> None:
        """Nobody waits for this node's answer any more: the view is not needed, and it may subscribe again."""
        topic.view = View(0)
        self._go_on(topic)

    def _receive_unsubscribe(self, sender: i64, message: Unsubscribe) -> None:
        topic = self._topic(message.topic)
        topic.view.remove(message.source, message.sequence)
        if topic.is_active():
            self._send_down(topic, message, cluster(self.me, sender) - 1)
        elif topic.state == SUBSCRIBING:
            topic.departed[message.source] = max(message.sequence, topic.departed.get(message.source, 0))

    def _topic(self, name: i64) -> Topic:
        found = self._topics.get(name)
        if found is None:
            found = Topic(name, self._options.new_order(self.me))
            self._topics[name] = found
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


def merged(entries: vec[i64], frontier: vec[i64]) -> vec[i64]:
    """The union of two frontiers, both sorted by source: per source the highest number."""
    if len(entries) == 0:
        return frontier
    union = vec[i64](capacity=len(entries))
    position: i64 = 0
    for key in frontier:
        source = key & SOURCE_MASK
        while position < len(entries) and (entries[position] & SOURCE_MASK) < source:
            union = append(union, entries[position])
            position += 1
        if position < len(entries) and (entries[position] & SOURCE_MASK) == source:
            # The sequence number is in the high bits, so the greater key is the later publication.
            union = append(union, entries[position] if entries[position] > key else key)
            position += 1
        else:
            union = append(union, key)
    while position < len(entries):
        union = append(union, entries[position])
        position += 1
    return union
