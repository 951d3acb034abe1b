"""The rivals of VCube-PS: one root per topic, with subscribers (SRPT-S) or brokers (SRPT-B) as the tree.

A topic belongs to one node, its root. Publishing takes one hop to the root, then the publication goes down the root's
cube tree, pruned to the paths that lead to a member; a non-member on such a path is a *relay*, and its receptions are
false positives (thesis, sections 5.3 and 5.6.1; it represents Scribe, Magnet and DRScribe there). There are no
acknowledgements, and nothing is ordered. In SRPT-B (section 5.6.7, for DYNATOPS) the tree consists of the brokers,
nodes ``0 .. brokers - 1``; each of the other nodes hangs on one of them, evenly, and its broker serves it directly,
one copy each. SRPT-S is the case in which every node is its own broker, so one class does both.

Open points of the documents, and how they are read here:

* A SUB or UNS goes to the root and is broadcast from there over the tree, the way to the node in question included;
  only this charge makes the root saturate at the points that section 5.6.6 names. The copy that comes back to the node
  completes the operation, and only then does it begin the next one.
* A node knows its own subtree only: how many members each of its clusters holds, which is all that forwarding needs.
  So a SUB has reached all concerned nodes when it comes back to the subscriber.
* The publisher delivers at once and ignores the copy that comes back to it. Brokers forward to brokers first and then
  serve their own subscribers, in ascending order.

Links must not lose or duplicate; they may reorder. Nodes do not fail here.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube.topic import PendingRequest
from antiphon.fabrics.cube.topology import Cube, FullCube, cluster, dimension_for
from antiphon.fabrics.cube.view import View
from antiphon.kernel.errors import ProtocolError, UsageError
from antiphon.kernel.integer_map import IntegerMap
from antiphon.kernel.message import UNSPECIFIED, ProtocolMessage, Publication
from antiphon.kernel.process import NO_NODE, Environment, Process
from antiphon_lab.protocols.cube.published_messages import Sub, Uns

OUTSIDE: Final[i64] = 0
JOINING: Final[i64] = 1
MEMBER: Final[i64] = 2
LEAVING: Final[i64] = 3


@final
class SrptOptions:
    """Where the trees are; shared by all nodes of a system. Topic ``t`` has the root ``roots[t mod len(roots)]``.

    ``tree`` holds the nodes that form trees: all of them in SRPT-S, the brokers in SRPT-B (:func:`brokers`). Node ``i``
    that is not in the tree hangs on ``i mod 2**dimension``. ``largest_first`` serves the deepest subtree first; the
    published one is served last.
    """

    def __init__(self, tree: Cube, node_count: i64, roots: list[int], largest_first: bool = False) -> None:
        if len(roots) == 0:
            raise UsageError("SRPT needs the root of at least one topic; give a list with one node")
        for root in roots:
            if not tree.contains(root):
                raise UsageError(
                    f"node {root} cannot be the root of a topic: it is not in the tree; choose one that is"
                )
        self.tree: Final[Cube] = tree
        self.node_count: Final[i64] = node_count
        self.largest_first: Final[bool] = largest_first
        self._roots: Final[list[int]] = roots

    def root_of(self, topic: i64) -> i64:
        """The root of a topic."""
        return self._roots[topic % len(self._roots)]

    def broker_of(self, node: i64) -> i64:
        """The node of the tree that serves ``node``; itself if it is in the tree."""
        if self.tree.contains(node):
            return node
        return node & ((1 << self.tree.dimension) - 1)


def brokers(count: int) -> Cube:
    """The tree of SRPT-B: brokers ``0 .. count - 1``."""
    dimension = dimension_for(count)
    if count != 1 << dimension:
        raise UsageError(f"the number of brokers must be a power of two, not {count}; {1 << dimension} is the next one")
    return FullCube(dimension)


@final
class SrptTopic:
    """The state of one node about one topic. ``height`` is the number of its clusters below it in the root's tree."""

    def __init__(self, name: i64, root: i64, height: i64) -> None:
        self.name: Final[i64] = name
        self.root: Final[i64] = root
        self.height: Final[i64] = height
        self.state: i64 = OUTSIDE
        self.wants_membership: bool = False
        self.queue: list[PendingRequest] = []
        self.early: list[Publication] = []
        self.published: i64 = 0
        # The members of this node's subtree with the counters of their subscriptions, and how many each cluster holds.
        self.known: Final = IntegerMap()
        self.members_in_cluster: vec[i64] = vec[i64]([0] * int(height + 1))
        # The members that hang on this broker, ascending.
        self.attached: Final[list[int]] = []

    def text(self) -> str:
        """Everything as text, to compare states."""
        queued = [(pending.sequence, pending.payload) for pending in self.queue]
        early = [(publication.source, publication.sequence) for publication in self.early]
        return f"{self.name} {self.state} {self.published} {queued} {early} {self.known.sorted_items()}"


class SingleRootPerTopic(Process):
    """One node of SRPT-S or SRPT-B, depending on the tree that the options name."""

    def __init__(self, environment: Environment, options: SrptOptions) -> None:
        super().__init__(environment)
        self._options: Final[SrptOptions] = options
        self._topics: dict[i64, SrptTopic] = {}
        self._counter: i64 = 0

    # Operations of the application.

    def subscribe(self, topic: i64) -> None:
        state = self._topic(topic)
        if state.wants_membership:
            raise UsageError(f"node {self.me} is subscribed to topic {topic} already; unsubscribe first")
        state.wants_membership = True
        self._enqueue(state, PendingRequest(0, self.environment.now(), None))

    def unsubscribe(self, topic: i64) -> None:
        state = self._topic(topic)
        if not state.wants_membership:
            raise UsageError(f"node {self.me} is not subscribed to topic {topic}; subscribe before unsubscribing")
        state.wants_membership = False
        self._enqueue(state, PendingRequest(0, self.environment.now(), None))

    def publish(self, payload: bytes, topic: i64 = 0, order: i64 = UNSPECIFIED) -> i64:
        self.check_only_order(order, UNSPECIFIED)
        state = self._topic(topic)
        if not state.wants_membership:
            raise UsageError(f"node {self.me} is not subscribed to topic {topic}; only subscribers publish: subscribe")
        state.published += 1
        self._enqueue(state, PendingRequest(state.published, self.environment.now(), payload))
        return state.published

    def begin_as_member(self, topic: i64, view: View) -> None:
        """Be a member from the start, knowing the members below this node: no messages are needed (before ``start``).

        The other nodes need :meth:`begin_as_relay`.
        """
        state = self._topic(topic)
        state.wants_membership = True
        state.state = MEMBER
        self.environment.subscribed(topic)
        self.begin_as_relay(topic, view)

    def begin_as_relay(self, topic: i64, view: View) -> None:
        """Know the members below this node from the start without being one (before ``start``)."""
        state = self._topic(topic)
        options = self._options
        if options.broker_of(self.me) != self.me:
            return
        for distance in range(1 << int(state.height)):
            broker: i64 = self.me ^ distance
            node = broker
            while node < options.node_count:
                if view.contains(node) and options.broker_of(node) == broker:
                    self._learn(state, node, 0, True)
                node += 1 << options.tree.dimension

    def is_subscribed(self, topic: i64) -> bool:
        """Whether the application's last word on this topic was to subscribe."""
        known = self._topics.get(topic)
        return known is not None and known.wants_membership

    def state(self) -> str:
        return f"{self._counter} {[topic.text() for _, topic in sorted(self._topics.items())]}"

    def unfinished(self) -> i64:
        count: i64 = 0
        for topic in self._topics.values():
            count += len(topic.queue) + len(topic.early) + (1 if topic.state in {JOINING, LEAVING} else 0)
        return count

    def members_below(self, topic: i64) -> list[int]:
        """The members that this node knows: those in its subtree, ascending."""
        known = self._topics.get(topic)
        return [] if known is None else [int(node) for node, _ in known.known.sorted_items()]

    # One operation of the application after the other.

    def _enqueue(self, topic: SrptTopic, pending: PendingRequest) -> None:
        topic.queue.append(pending)
        self._go_on(topic)

    def _go_on(self, topic: SrptTopic) -> None:
        """Begin the next request of the application, once the last change of membership has come back."""
        while len(topic.queue) > 0 and (topic.state == OUTSIDE or topic.state == MEMBER):
            pending = topic.queue.pop(0)
            payload = pending.payload
            if payload is not None:
                self._start_publication(topic, pending, payload)
                continue
            self._counter += 1
            if topic.state == OUTSIDE:
                topic.state = JOINING
                self._to_root(topic, Sub(self.me, self._counter, topic.name))
            else:
                topic.state = LEAVING
                self._to_root(topic, Uns(self.me, self._counter, topic.name))

    def _to_root(self, topic: SrptTopic, message: ProtocolMessage) -> None:
        if self.me == topic.root:
            self._spread_membership(topic, message)
        else:
            self.environment.send(topic.root, message)

    def _start_publication(self, topic: SrptTopic, pending: PendingRequest, payload: bytes) -> None:
        publication = Publication(self.me, pending.sequence, pending.timestamp, payload, topic.name)
        self.environment.deliver(publication)
        if self.me == topic.root:
            self._send_down(topic, publication)
        else:
            self.environment.send(topic.root, publication)

    # Messages.

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        topic = self._topic(message.topic)
        if isinstance(message, Publication):
            self._send_down(topic, message)
            if message.source != self.me:
                self._take(topic, message)
        elif isinstance(message, (Sub, Uns)):
            self._spread_membership(topic, message)
        else:
            raise ProtocolError(f"node {sender} sent a {type(message).__name__}, which SRPT does not know")

    def _take(self, topic: SrptTopic, publication: Publication) -> None:
        if topic.state == JOINING:
            # It has overtaken the returning subscription.
            topic.early.append(publication)
        elif topic.state == OUTSIDE:
            self.environment.unwanted(publication)
        else:
            self.environment.deliver(publication)

    def _spread_membership(self, topic: SrptTopic, message: ProtocolMessage) -> None:
        """Forward a SUB or UNS over the tree of the members with it and, where it ends a membership, before it."""
        is_subscription = isinstance(message, Sub)
        if is_subscription:
            self._learn(topic, message.source, message.sequence, True)
        self._send_down(topic, message)
        if not is_subscription:
            self._learn(topic, message.source, message.sequence, False)
        if message.source == self.me:
            self._finish(topic, is_subscription)

    def _finish(self, topic: SrptTopic, is_subscription: bool) -> None:
        """The own SUB or UNS has come back: all nodes on the path from the root know."""
        if is_subscription:
            topic.state = MEMBER
            self.environment.subscribed(topic.name)
            early = topic.early
            topic.early = []
            for publication in early:
                self.environment.deliver(publication)
        else:
            topic.state = OUTSIDE
            self.environment.unsubscribed(topic.name)
        self._go_on(topic)

    def _send_down(self, topic: SrptTopic, message: ProtocolMessage) -> None:
        """Send into each cluster below this node that holds a member, then to the members that hang on this node."""
        tree = self._options.tree
        height = topic.height
        s: i64 = 1
        while s <= height:
            index = height + 1 - s if self._options.largest_first else s
            if topic.members_in_cluster[index] > 0:
                self.environment.send(tree.first(self.me, index), message)
            s += 1
        if isinstance(message, Publication):
            for member in topic.attached:
                self.environment.send(member, message)
        elif message.source != self.me and self._options.broker_of(message.source) == self.me:
            # Only its own node has to know; the brokers know for the others.
            self.environment.send(message.source, message)

    def _learn(self, topic: SrptTopic, member: i64, counter: i64, is_subscription: bool) -> None:
        """Count a member in or out of the cluster in which it, or its broker, is."""
        broker = self._options.broker_of(member)
        index = cluster(self.me, broker)
        if index > topic.height or self._options.broker_of(self.me) != self.me:
            return
        known = topic.known.get(member, -1)
        if is_subscription == (known >= 0) or counter < known:
            return
        topic.members_in_cluster[index] += 1 if is_subscription else -1
        if is_subscription:
            topic.known.put(member, counter)
        else:
            topic.known.remove(member)
        if broker == self.me and member != self.me:
            if is_subscription:
                insort(topic.attached, int(member))
            else:
                del topic.attached[bisect_left(topic.attached, int(member))]

    def _topic(self, name: i64) -> SrptTopic:
        found = self._topics.get(name)
        if found is None:
            found = SrptTopic(name, self._options.root_of(name), self._height(self._options.root_of(name)))
            self._topics[name] = found
        return found

    def _height(self, root: i64) -> i64:
        """How many clusters of this node are below it in the tree of ``root``: none for one that is not in the tree."""
        tree = self._options.tree
        if self.me == root:
            return tree.dimension
        parent = tree.parent_in_tree(self.me, root)
        return 0 if parent == NO_NODE else cluster(self.me, parent) - 1
