"""VCube-PS as published: Algorithms 3 and 4 of the thesis (2 and 3 of the SBAC-PAD paper), defects included.

Every operation (SUB, UNS, PUB) of a node on a topic goes into the topic's queue. A sender task takes them out one by
one, sends each down a tree rooted at the node and waits until the ascending wave of acknowledgements is complete; that
gives per-source order of *reception*. A SUB goes to all nodes, and members answer it with their knowledge of the
membership; PUB and UNS go to the members in the sender's view. Delivery follows causal barriers
(:mod:`antiphon_lab.protocols.cube.published_delivery`). A node that left still forwards by its old view.

As printed this does not work. :class:`PublishedVCubeOptions` has one switch for every defect whose effect can be seen
from outside, and two presets. ``minimal`` repairs what contradicts itself and is meant for comparison with the
published figures; publications are still lost and subscribers still block when membership changes
(:mod:`antiphon.fabrics.cube.vcube_ps` does better). ``as_printed`` takes the listing of the thesis at its word.

Departures: counters start at 1, so that 0 is the subscription of a member from the start; refused operations raise
``UsageError`` instead of answering NOK. Sending before registering the expected acknowledgements (line 30 of Algorithm
4) is no defect here: a process handles one event at a time, and no acknowledgement can come in between.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.cube.ack_aggregation import NOT_OPEN, STILL_OPEN, Waves
from antiphon.fabrics.cube.messages import COUNTER_BITS, COUNTER_MASK, append_all, member_entry
from antiphon.fabrics.cube.topology import Cube, cluster
from antiphon.fabrics.cube.view import View
from antiphon.kernel.errors import ProtocolError, UsageError
from antiphon.kernel.message import CAUSAL, UNSPECIFIED, ProtocolMessage, publication_key
from antiphon.kernel.process import NO_NODE, Environment, Process
from antiphon_lab.protocols.cube.published_delivery import NOTHING, PublishedDelivery
from antiphon_lab.protocols.cube.published_gathering import Gathering, Gatherings
from antiphon_lab.protocols.cube.published_messages import NO_ENTRIES, Ack, Pub, Sub, Uns, merged_entries
from antiphon_lab.protocols.cube.published_view import PublishedMemberView

SUBSCRIBING: Final[i64] = 0
UNSUBSCRIBING: Final[i64] = 1
PUBLISHING: Final[i64] = 2

NEVER_RESET: Final[i64] = 0


@final
class PublishedVCubeOptions:
    """Which reading of the printed algorithms a system follows; shared by all its nodes. The defaults are ``minimal``.

    * ``single_sender``: subscribing starts a sender task only if the topic has none. The thesis always starts one;
      after a quick UNS and SUB two of them send at the same time, which ends the per-source order of reception.
    * ``prunes_barriers``: CHECKCB works on a copy of the barrier. Otherwise it empties what the delivery is about to
      subtract, and barriers grow to everything delivered since the last publication.
    * ``waits_for_unheard``: a node waits for a dependency on a source without receptions, as in the listing; perhaps
      for ever. The prose does not wait, which breaks causal order.
    * ``inner_nodes_introduce_themselves``: an inner node adds itself to the acknowledgement of the first PUB of a
      source, as leaves do. As printed it finds, when its children have answered, that the PUB is no longer the first.
    * ``whole_view_in_acknowledgements``: members answer with the SUB tuples of their whole view, as in the prose; in
      the listing they answer with their own tuple. Whole views bring back members that have left.
    * ``leaves_keep_payload``: line 54 means the acknowledgement. As printed a leaf empties the message itself.
    * ``matches_acknowledgements``: an acknowledgement is looked for under the key (s, t, c) under which it is
      registered. As printed it is looked for under (s, c, t): nothing after a node's first operation leaves its queue.
    * ``forgets_last_deliveries``: leaving clears last_delvs. The listing clears a variable that it uses nowhere else.
    * ``updates_whole_view``: UPDATE returns after its loop, not inside it.
    * ``keeps_tombstones``: UPDATE keeps the tuples of nodes that left; the prose keeps current subscribers only.
    * ``leaves_under_any_counter``: unsubscribing takes the own tuple out of the view whatever its counter. In the
      SBAC-PAD paper it must have the present counter, which it never has: no node ever leaves its own view.
    * ``joins_when_started``: the view is reset when the SUB leaves the queue. As printed it is reset at the call, and
      an UNS that is still queued then finds no receiver.
    * ``leaves_when_started``: membership ends when the UNS leaves the queue. As printed it ends at the call, and
      publications that are still queued are delivered here and sent by a non-member.
    * ``forgets_barrier``: leaving clears the causal barrier. Nothing printed does that, rightly: deliveries
      still precede later publications.
    * ``relays_learn``: a node that left applies SUB and UNS to the view by which it forwards.
    """

    def __init__(
        self,
        *,
        single_sender: bool = True,
        prunes_barriers: bool = True,
        waits_for_unheard: bool = True,
        inner_nodes_introduce_themselves: bool = False,
        whole_view_in_acknowledgements: bool = False,
        leaves_keep_payload: bool = True,
        matches_acknowledgements: bool = True,
        forgets_last_deliveries: bool = True,
        updates_whole_view: bool = True,
        keeps_tombstones: bool = True,
        leaves_under_any_counter: bool = True,
        joins_when_started: bool = False,
        leaves_when_started: bool = False,
        forgets_barrier: bool = False,
        relays_learn: bool = False,
    ) -> None:
        self.single_sender: Final[bool] = single_sender
        self.prunes_barriers: Final[bool] = prunes_barriers
        self.waits_for_unheard: Final[bool] = waits_for_unheard
        self.inner_nodes_introduce_themselves: Final[bool] = inner_nodes_introduce_themselves
        self.whole_view_in_acknowledgements: Final[bool] = whole_view_in_acknowledgements
        self.leaves_keep_payload: Final[bool] = leaves_keep_payload
        self.matches_acknowledgements: Final[bool] = matches_acknowledgements
        self.forgets_last_deliveries: Final[bool] = forgets_last_deliveries
        self.updates_whole_view: Final[bool] = updates_whole_view
        self.keeps_tombstones: Final[bool] = keeps_tombstones
        self.leaves_under_any_counter: Final[bool] = leaves_under_any_counter
        self.joins_when_started: Final[bool] = joins_when_started
        self.leaves_when_started: Final[bool] = leaves_when_started
        self.forgets_barrier: Final[bool] = forgets_barrier
        self.relays_learn: Final[bool] = relays_learn

    @staticmethod
    def minimal() -> PublishedVCubeOptions:
        """The listing, corrected only where it contradicts itself or the plain sense of the prose around it."""
        return PublishedVCubeOptions()

    @staticmethod
    def as_printed() -> PublishedVCubeOptions:
        """The listing of the thesis at its word, as far as it runs at all.

        Left out: the keys of acknowledgements that do not match, with which no node gets beyond its first operation,
        and points that only the SBAC-PAD paper prints or only the prose has.
        """
        return PublishedVCubeOptions(
            single_sender=False,
            prunes_barriers=False,
            leaves_keep_payload=False,
            forgets_last_deliveries=False,
            updates_whole_view=False,
        )


@final
class Operation:
    """An entry of bcast_queue. An ``ends_membership`` of false is an UNS that did not find the tuple to remove."""

    def __init__(self, kind: i64, counter: i64, timestamp: i64, payload: bytes, ends_membership: bool = False) -> None:
        self.kind: Final[i64] = kind
        self.counter: Final[i64] = counter
        self.timestamp: Final[i64] = timestamp
        self.payload: Final[bytes] = payload
        self.ends_membership: Final[bool] = ends_membership


@final
class PublishedVCubeTopic:
    """The per-topic variables of one node. ``is_member`` represents (me, SUB, _) in view[t]."""

    def __init__(self, name: i64, view: PublishedMemberView, delivery: PublishedDelivery) -> None:
        self.name: Final[i64] = name
        self.view: PublishedMemberView = view
        self.delivery: Final[PublishedDelivery] = delivery
        self.queue: list[Operation] = []
        self.senders: i64 = 0
        self.idle_senders: i64 = 0
        self.wants_membership: bool = False
        self.is_member: bool = False
        self.joined_counter: i64 = 0
        self.resets: i64 = NEVER_RESET

    def text(self) -> str:
        """Everything as text, to compare states."""
        queued = [(operation.kind, operation.counter) for operation in self.queue]
        flags = (self.senders, self.idle_senders, self.wants_membership, self.is_member, self.joined_counter)
        view = [*self.view.subscriptions(), *self.view.tombstones()]
        return f"{self.name} {queued} {flags} {view} [{self.delivery.state()}]"


class PublishedVCubePs(Process):
    """One node of the published topic system. ``cube`` holds all nodes; views hold the members of each topic."""

    def __init__(self, environment: Environment, cube: Cube, options: PublishedVCubeOptions) -> None:
        super().__init__(environment)
        self._cube: Final[Cube] = cube
        self.options: Final[PublishedVCubeOptions] = options
        self._topics: dict[i64, PublishedVCubeTopic] = {}
        # The topic that was asked for last; it is mostly the next one too, and no topic is ever forgotten.
        self._recent: PublishedVCubeTopic | None = None
        self._counter: i64 = 1
        # The variable acks: the node to tell and the number of missing ones; the gathered entries; the own operations.
        self._waves: Final = Waves()
        self._gathered: Final = Gatherings()
        self._running: dict[i64, Operation] = {}

    # Algorithm 3: operations of the application.

    def subscribe(self, topic: i64) -> None:
        state = self._topic(topic)
        if state.wants_membership:
            raise UsageError(f"node {self.me} is subscribed to topic {topic} already; unsubscribe first")
        state.wants_membership = True
        operation = self._operation(SUBSCRIBING, b"")
        if not self.options.joins_when_started:
            self._join(state, operation)
        if state.senders == 0 or not self.options.single_sender:
            state.senders += 1
            state.idle_senders += 1
        self._enqueue(state, operation)

    def unsubscribe(self, topic: i64) -> None:
        state = self._topic(topic)
        if not state.wants_membership:
            raise UsageError(f"node {self.me} is not subscribed to topic {topic}; subscribe before unsubscribing")
        found = self.options.leaves_under_any_counter or state.joined_counter == self._counter
        state.wants_membership = not found
        if found and not self.options.leaves_when_started:
            state.is_member = False
        self._enqueue(state, self._operation(UNSUBSCRIBING, b"", found))

    def publish(self, payload: bytes, topic: i64 = 0, order: i64 = UNSPECIFIED) -> i64:
        self.check_only_order(order, CAUSAL)
        state = self._topic(topic)
        if not state.wants_membership:
            raise UsageError(f"node {self.me} is not subscribed to topic {topic}; only subscribers publish: subscribe")
        operation = self._operation(PUBLISHING, payload)
        self._enqueue(state, operation)
        return operation.counter

    def begin_as_member(self, topic: i64, view: View) -> None:
        """Be a member from the start, knowing all other members: no messages are needed (before ``start``)."""
        state = self._topic(topic)
        state.view = self._view_of(view.copy())
        state.view.update(self.me, 0, True)
        state.wants_membership = True
        state.is_member = True
        state.senders = 1
        state.idle_senders = 1
        self.environment.subscribed(topic)

    def is_subscribed(self, topic: i64) -> bool:
        """Whether the application's last word on this topic was to subscribe."""
        known = self._topics.get(topic)
        return known is not None and known.wants_membership

    def state(self) -> str:
        topics = [topic.text() for _, topic in sorted(self._topics.items())]
        return f"{self._counter} {topics} {self._waves.state()} {self._gathered.state()} {sorted(self._running)}"

    def unfinished(self) -> i64:
        count: i64 = len(self._waves)
        for topic in self._topics.values():
            count += len(topic.queue) + topic.delivery.waiting()
        return count

    def topic(self, name: i64) -> PublishedVCubeTopic | None:
        """The state of this node about a topic, for inspection."""
        return self._topics.get(name)

    def topics(self) -> list[PublishedVCubeTopic]:
        """The state of this node about each known topic, for inspection."""
        return list(self._topics.values())

    # Algorithm 4: CO_BROADCAST and the sender task.

    def _operation(self, kind: i64, payload: bytes, ends_membership: bool = False) -> Operation:
        counter = self._counter
        self._counter += 1
        return Operation(kind, counter, self.environment.now(), payload, ends_membership)

    def _enqueue(self, topic: PublishedVCubeTopic, operation: Operation) -> None:
        topic.queue.append(operation)
        self._go_on(topic)

    def _go_on(self, topic: PublishedVCubeTopic) -> None:
        """Let every idle sender task take the next operation of the queue."""
        while topic.idle_senders > 0 and len(topic.queue) > 0:
            topic.idle_senders -= 1
            operation = topic.queue.pop(0)
            if not self._begin(topic, operation):
                self._finish(topic, operation)

    def _begin(self, topic: PublishedVCubeTopic, operation: Operation) -> bool:
        """Send an operation down this node's tree; false if there is no receiver to wait for."""
        options = self.options
        changes_when_started = options.joins_when_started or options.leaves_when_started
        if operation.kind == PUBLISHING:
            message: ProtocolMessage = self._publication(topic, operation)
        elif operation.kind == SUBSCRIBING:
            if options.joins_when_started:
                self._join(topic, operation)
            elif changes_when_started:
                topic.is_member = True
            message = Sub(self.me, operation.counter, topic.name)
        else:
            if changes_when_started and operation.ends_membership:
                topic.is_member = False
            self.environment.unsubscribed(topic.name)
            message = Uns(self.me, operation.counter, topic.name)
        count = self._send_down(topic, message, self._cube.dimension)
        if count == 0:
            return False
        key = publication_key(self.me, operation.counter)
        self._waves.open(key, count, NO_NODE)
        self._running[key] = operation
        return True

    def _publication(self, topic: PublishedVCubeTopic, operation: Operation) -> Pub:
        barrier = topic.delivery.publish(operation.counter)
        publication = Pub(self.me, operation.counter, operation.timestamp, operation.payload, barrier, topic.name)
        self.environment.deliver(publication)
        return publication

    def _finish(self, topic: PublishedVCubeTopic, operation: Operation) -> None:
        """All acknowledgements have come; the sender task that waited for them is idle, or ends."""
        topic.idle_senders += 1
        if operation.kind == SUBSCRIBING:
            self.environment.subscribed(topic.name)
        elif operation.kind == UNSUBSCRIBING:
            topic.delivery.leave(self.options.forgets_last_deliveries, self.options.forgets_barrier)
            if len(topic.queue) == 0:
                topic.senders -= 1
                topic.idle_senders -= 1

    def _join(self, topic: PublishedVCubeTopic, operation: Operation) -> None:
        """Line 6 of Algorithm 3: this node is the only member it knows."""
        topic.is_member = True
        topic.joined_counter = operation.counter
        topic.resets += 1
        topic.view = self._view_of(View(self._cube.dimension))
        topic.view.update(self.me, operation.counter, True)

    # Algorithm 4: the receiver task.

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        if isinstance(message, Pub):
            self._receive_publication(sender, message)
        elif isinstance(message, Ack):
            self._receive_acknowledgement(message)
        elif isinstance(message, (Sub, Uns)):
            self._receive_membership(sender, message)
        else:
            raise ProtocolError(
                f"node {sender} sent a {type(message).__name__}, which VCube-PS as published does not know"
            )

    def _receive_publication(self, sender: i64, publication: Pub) -> None:
        topic = self._known(publication.topic)
        is_leaf = self._hand_on(sender, publication, topic)
        if topic is None or not topic.is_member:
            self.environment.unwanted(publication)
            return
        if is_leaf and not self.options.leaves_keep_payload:
            publication = publication.without_payload()
        for released in topic.delivery.received(publication):
            self.environment.deliver(released)

    def _receive_membership(self, sender: i64, message: ProtocolMessage) -> None:
        topic = self._known(message.topic)
        self._hand_on(sender, message, topic)
        if topic is None:
            return
        is_subscription = isinstance(message, Sub)
        if topic.is_member or self.options.relays_learn:
            topic.view.update(message.source, message.sequence, is_subscription)
        if topic.is_member and not is_subscription:
            topic.delivery.source_left(message.source)

    def _receive_acknowledgement(self, ack: Ack) -> None:
        if not self.options.matches_acknowledgements and ack.sequence != ack.topic:
            return  # (s, c, t) finds the entry under (s, t, c) only where c and t are the same number.
        key = publication_key(ack.source, ack.sequence)
        parent = self._waves.on_ack(key)
        if parent == NOT_OPEN:
            return
        topic = self._known(ack.topic)
        gathering = self._gathered.get(key)
        if topic is not None and topic.is_member:
            self._learn(topic, ack, gathering)
        entries = ack.entries if gathering is None else self._united(gathering.entries, ack.entries)
        if parent == STILL_OPEN:
            if gathering is not None:
                gathering.entries = entries
            elif len(entries) > 0:
                self._gathered.put(key, Gathering(entries, NEVER_RESET if topic is None else topic.resets))
            return
        if gathering is not None:
            self._gathered.remove(key)
        if parent != NO_NODE:
            self._acknowledge(parent, ack, topic, entries)
            return
        assert topic is not None, "who began an operation on a topic knows it"
        self._finish(topic, self._running.pop(key))
        self._go_on(topic)

    def _learn(self, topic: PublishedVCubeTopic, ack: Ack, gathering: Gathering | None) -> None:
        """UPDATE the view with the entries of an acknowledgement and those before it."""
        update_with(topic.view, ack.entries)
        # Earlier entries are in the view already, unless it was reset meanwhile.
        if gathering is not None and gathering.resets != topic.resets:
            gathering.resets = topic.resets
            update_with(topic.view, gathering.entries)

    def _hand_on(self, sender: i64, message: ProtocolMessage, topic: PublishedVCubeTopic | None) -> bool:
        """Forward to the children below the sender; true if there are none, and the answer is given at once."""
        count = self._send_down(topic, message, cluster(self.me, sender) - 1)
        if count > 0:
            self._waves.open(publication_key(message.source, message.sequence), count, sender)
            return False
        self._acknowledge(sender, message, topic, NO_ENTRIES)
        return True

    def _send_down(self, topic: PublishedVCubeTopic | None, message: ProtocolMessage, height: i64) -> i64:
        """Send to one node in each cluster up to ``height``, of all nodes or of the members; how many copies left."""
        to_all = isinstance(message, Sub)
        if topic is None and not to_all:
            return 0
        count: i64 = 0
        s: i64 = 1
        while s <= height:
            if to_all:
                child = self._cube.first(self.me, s)
            else:
                assert topic is not None, "excluded above"
                child = topic.view.first(self.me, s)
            if child != NO_NODE:
                self.environment.send(child, message)
                count += 1
            s += 1
        return count

    def _acknowledge(
        self, parent: i64, about: ProtocolMessage, topic: PublishedVCubeTopic | None, entries: vec[i64]
    ) -> None:
        """SENDACKS: a member adds its knowledge if it had not received a publication of the source before."""
        options = self.options
        if topic is not None and topic.is_member:
            first = topic.delivery.first(about.source)
            if first == NOTHING or (options.inner_nodes_introduce_themselves and first == about.sequence):
                if options.whole_view_in_acknowledgements:
                    entries = merged_entries(entries, topic.view.subscriptions())
                else:
                    entries = append(entries, member_entry(self.me, topic.joined_counter, True))
        self.environment.send(parent, Ack(about.source, about.sequence, about.topic, entries))

    def _united(self, some: vec[i64], others: vec[i64]) -> vec[i64]:
        if self.options.whole_view_in_acknowledgements:
            return merged_entries(some, others)
        # Every node is in one subtree only, so none is reported twice by itself.
        return append_all(some, others)

    def _known(self, name: i64) -> PublishedVCubeTopic | None:
        """What this node knows about a topic, if anything."""
        recent = self._recent
        if recent is None or recent.name != name:
            recent = self._topics.get(name)
            if recent is not None:
                self._recent = recent
        return recent

    def _topic(self, name: i64) -> PublishedVCubeTopic:
        found = self._topics.get(name)
        if found is None:
            options = self.options
            delivery = PublishedDelivery(self.me, options.prunes_barriers, options.waits_for_unheard)
            found = PublishedVCubeTopic(name, self._view_of(View(self._cube.dimension)), delivery)
            self._topics[name] = found
        return found

    def _view_of(self, members: View) -> PublishedMemberView:
        return PublishedMemberView(members, self.options.keeps_tombstones, not self.options.updates_whole_view)


def update_with(view: PublishedMemberView, entries: vec[i64]) -> None:
    """UPDATE a view with all tuples of an acknowledgement."""
    for entry in entries:
        view.update(entry >> (COUNTER_BITS + 1), (entry >> 1) & COUNTER_MASK, (entry & 1) == 1)
