"""BRISA: dissemination structures that emerge from an epidemic overlay, for topics and in order.

Thesis of M. Matos, chapter 4. A node keeps a handful of links (:mod:`antiphon.fabrics.gossip.sampling.hyparview`);
publications travel along trees, or graphs with several parents, that are what is left of a flood when every copy too
many has told its sender to stop (:mod:`antiphon.fabrics.gossip.trees`). A publication that a link loses is fetched from
a neighbour (:mod:`antiphon.fabrics.gossip.recovery`). :class:`~antiphon.fabrics.gossip.topic.Group` puts these parts
together for one topic; the process below serves the application and the host.

Where this goes beyond the thesis: every topic is a group with an overlay of its own; every publisher has its own
trees; publications are delivered in an order (:mod:`antiphon.orders`), in total order if they ask for it
(:mod:`antiphon.fabrics.gossip.epto.topic`); links may lose messages, and every node that stays gets everything;
the races that the published rules leave open are closed (:class:`antiphon.fabrics.gossip.options.Rules`).

With ``floods`` no link is ever deactivated: the flooding that the thesis compares with (figure 4.3).
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from antiphon.fabrics.gossip.delivery import Departure
from antiphon.fabrics.gossip.epto.rounds import Tentative
from antiphon.fabrics.gossip.epto.topic import topic_of_rounds
from antiphon.fabrics.gossip.messages import Beat, Comparison, Data, FetchRequest
from antiphon.fabrics.gossip.options import BrisaOptions
from antiphon.fabrics.gossip.retransmit import serve_after_leaving
from antiphon.fabrics.gossip.sampling.hyparview import Disconnect, Join, Parted
from antiphon.fabrics.gossip.sampling.service import Connections, PeerSampling
from antiphon.fabrics.gossip.seeds import Seeds
from antiphon.fabrics.gossip.stream import QueuedRequest
from antiphon.fabrics.gossip.structure import Repairs
from antiphon.fabrics.gossip.topic import Group
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import UNSPECIFIED, ProtocolMessage
from antiphon.kernel.process import UNBOUNDED, Environment, Process, order_name
from antiphon.orders.order import Order


class Brisa(Process):
    """BRISA at one node."""

    def __init__(self, environment: Environment, options: BrisaOptions) -> None:
        super().__init__(environment)
        self.options: Final[BrisaOptions] = options
        self.connections: Final = Connections(environment)
        self._groups: Final[dict[i64, Group]] = {}
        # By topic the last number of this node, and what it remembers of topics that it has left.
        self._published: Final[dict[i64, i64]] = {}
        self._left: Final[dict[i64, Departure]] = {}
        # Overlays of topics that this node has left, while somebody may not know that.
        self._parting: Final[dict[i64, PeerSampling]] = {}
        self.seeds: Final = Seeds(self.me, options.contacts)
        self._held: Final[list[i64]] = []

    # Before the start.

    def begin_as_contact(self, topic: i64, is_first: bool) -> None:
        """Be in the overlay of a topic without being subscribed; the first of all nodes founds it."""
        group = self._open(topic)
        if is_first:
            group.found()

    def begin_as_member(self, topic: i64) -> None:
        """Be subscribed to a topic from the start."""
        self._open(topic).application.queue.append(QueuedRequest(0, 0, None, UNSPECIFIED))

    def start(self) -> None:
        window = self.options.join_window
        self._hold_seeds()
        for group in self._groups.values():
            group.begin(0 if self.seeds.includes_me else self.environment.random().below(window + 1))

    def contacts_are(self, contacts: list[i64]) -> None:
        """Where nodes come and go: these are the seeds from now on, by seniority."""
        before = list(self.seeds.others)
        self.seeds.become(contacts)
        self._hold_seeds()
        found = [seed for seed in self.seeds.others if seed not in before]
        if len(found) > 0:
            for group in self._groups.values():
                group.seed_found()
                if self.seeds.is_first():
                    group.invite(found)

    def _found(self, group: Group) -> None:
        """Begin a topic; all seeds are to take part in it, since each of them may be the first one day."""
        group.found()
        group.invite(self.seeds.others)

    def _hold_seeds(self) -> None:
        """Seeds watch each other."""
        wanted = list(self.seeds.others) if self.seeds.includes_me else []
        for seed in wanted:
            if seed not in self._held:
                self._held.append(seed)
                self.connections.hold(seed)
        for seed in list(self._held):
            if seed not in wanted:
                self._held.remove(seed)
                self.connections.release(seed)

    # Calls of the application.

    def publish(self, payload: bytes, topic: i64 = 0, order: i64 = UNSPECIFIED) -> i64:
        group = self._groups.get(topic)
        if group is None or not group.application.is_wanted():
            raise UsageError(f"node {self.me} is not subscribed to topic {topic}; subscribe before publishing on it")
        if not self.options.mixed:
            self.check_only_order(order, self.options.strength)
        elif order != UNSPECIFIED and not 0 <= order < len(self.options.orders):
            raise UsageError(f"there is no order {order_name(order)}; choose from {', '.join(self.options.orders)}")
        chosen = self.options.strength if order == UNSPECIFIED else order
        own = group.streams.get(self.me)
        sequence = max(self._published.get(topic, 0), 0 if own is None else own.received.complete) + 1
        self._published[topic] = sequence
        group.ask(QueuedRequest(sequence, self.environment.now(), payload, chosen))
        return sequence

    def publish_about(self, keys: list[int], payload: bytes, topic: i64 = 0, order: i64 = UNSPECIFIED) -> i64:
        """There is one total order for all keys of a topic, so whatever keys are named, theirs is in it."""
        if self.options.total is None:
            return super().publish_about(keys, payload, topic, order)
        return self.publish(payload, topic, order)

    def subscribe(self, topic: i64) -> None:
        group = self._groups.get(topic)
        if group is not None and group.application.is_wanted():
            raise UsageError(f"node {self.me} is subscribed to topic {topic} already; unsubscribe first")
        if group is None:
            group = self._open(topic)
            if self.seeds.is_first():
                # Every node that looks for a topic asks this one in the end: none has yet.
                self._found(group)
            group.begin(0)
        group.ask(QueuedRequest(0, 0, None, UNSPECIFIED))

    def room(self, topic: i64) -> i64:
        group = self._groups.get(topic)
        return UNBOUNDED if group is None else group.application.room()

    def unsubscribe(self, topic: i64) -> None:
        group = self._groups.get(topic)
        if group is None or not group.application.is_wanted():
            raise UsageError(f"node {self.me} is not subscribed to topic {topic} and cannot unsubscribe")
        group.ask(QueuedRequest(0, 0, None, UNSPECIFIED))

    def _open(self, topic: i64) -> Group:
        group = self._groups.get(topic)
        if group is None:
            group = self.new_group(topic)
            self._groups[topic] = group
            departure = self._left.pop(topic, None)
            if departure is not None:
                group.delivery.start_from(departure)
        return group

    def new_group(self, topic: i64) -> Group:
        """A topic that this node begins to take part in."""
        now = self.environment.now()
        return Group(self.environment, topic, self.options, self.connections, self.seeds, now)

    # Calls of the host.

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        group = self._groups.get(message.topic)
        if group is not None:
            group.receive(sender, message)
        elif self.seeds.includes_me and isinstance(message, (Join, Comparison)):
            self._take_part(message.topic).receive(sender, message)
        elif isinstance(message, (Beat, Data)):
            # It takes this node for a neighbour, and did not hear that it has left or is a new life.
            self.mistaken_for_neighbour(sender, message.topic)
        elif isinstance(message, FetchRequest):
            serve_after_leaving(self.environment, sender, message, self._published.get(message.topic, 0))
        elif isinstance(message, Parted) and message.topic in self._parting:
            self._parting[message.topic].receive(sender, message)

    def _take_part(self, topic: i64) -> Group:
        """Become part of a topic of which this seed had not heard."""
        group = self._open(topic)
        if self.seeds.is_first():
            self._found(group)
        else:
            group.sampling.join(self.seeds.first)
        group.begin(0)
        return group

    def mistaken_for_neighbour(self, sender: i64, topic: i64) -> None:
        """Tell somebody that this node takes no part in a topic."""
        self.environment.send(sender, Disconnect(self.me, topic))

    def expire(self, name: i64) -> None:
        if topic_of_rounds(name) >= 0:
            in_order = self._groups.get(topic_of_rounds(name))
            if in_order is not None:
                in_order.round_passed()
            return
        if name < 0:
            self._part_again(~name)
            return
        group = self._groups.get(name)
        if group is None:
            return
        group.tick()
        if group.is_gone:
            self._left[name] = group.delivery.departure()
            del self._groups[name]
            self._parting[name] = group.sampling
            self.environment.set_timer(self.options.period, ~name)

    def _part_again(self, topic: i64) -> None:
        """Tell former neighbours in a topic that this node has left it, until all have answered."""
        sampling = self._parting.pop(topic, None)
        if sampling is not None and topic not in self._groups and sampling.part_again():
            self._parting[topic] = sampling
            self.environment.set_timer(self.options.period, ~topic)

    def peer_lost(self, peer: i64) -> None:
        self.connections.lost(peer)
        for group in self._groups.values():
            group.link_lost(peer)

    def peer_found(self, peer: i64) -> None:
        self.connections.found(peer)
        for group in self._groups.values():
            group.peer_found(peer)

    def leave(self) -> None:
        for group in self._groups.values():
            group.sampling.leave()

    def first_unsettled(self, topic: i64) -> i64:
        group = self._groups.get(topic)
        return UNBOUNDED if group is None else group.first_unsettled()

    def frontier_keys(self, topic: i64) -> list[int]:
        group = self._groups.get(topic)
        return [] if group is None else list(group.order.frontier())

    def unfinished(self) -> i64:
        return sum(group.unfinished() for group in self._groups.values())

    # Questions of measurements.

    def groups(self) -> list[Group]:
        """The topics that this node takes part in."""
        return list(self._groups.values())

    def takes_part(self, topic: i64) -> bool:
        """Whether this node is part of the overlay of a topic, subscribed or not."""
        return topic in self._groups

    def group(self, topic: i64) -> Group:
        """One of the topics that this node takes part in."""
        return self._groups[topic]

    def tentative(self, topic: i64) -> list[Tentative]:
        """The total publications of a topic that wait for delivery, and how likely each is to be stable."""
        group = self._groups.get(topic)
        totals = None if group is None else group.delivery.totals
        return [] if totals is None else totals.tentative()

    def repairs(self) -> list[Repairs]:
        """Counts of lost and found parents, for each topic that this node takes part in."""
        return [group.trees.repairs for group in self._groups.values()]

    def orders(self) -> list[Order]:
        """The order of each topic that this node takes part in."""
        return [group.order for group in self._groups.values()]
