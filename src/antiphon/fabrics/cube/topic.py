"""The state of one topic at one node, and the options of VCube-PS."""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.cube.ack_aggregation import Waves
from antiphon.fabrics.cube.repair.retransmit_buffer import RetransmitBuffer
from antiphon.fabrics.cube.route import Route
from antiphon.fabrics.cube.view import View
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import NO_KEYS, NONE, ORDER_NAMES, ProtocolMessage
from antiphon.orders.causal import CausalOrder
from antiphon.orders.order import Order
from antiphon.orders.registry import new_topic_order
from antiphon.orders.total import ALL_SHARE, TotalOrder

OUTSIDE: Final[i64] = 0
SUBSCRIBING: Final[i64] = 1
SYNCHRONISING: Final[i64] = 2
MEMBER: Final[i64] = 3

ORDERS: Final = ORDER_NAMES[:3]
"""Those that need nobody to decide between publications that do not know of each other."""


@final
class Options:
    """How a VCube-PS process behaves; shared by all nodes of a system.

    ``order`` is that of every publication; with ``mixed`` it is only the default, and each may choose its own.
    ``total`` lets them choose total order too, and name keys; if it is the order of all, that goes without saying.
    ``window`` bounds the waves of own publications that are open per topic; the printed protocol has 1.
    ``bundle`` bounds the publications that travel together when they had to queue for the window; 1 bundles nothing.
    ``largest_first`` serves the cluster with the deepest subtree first, which shortens the longest path; the printed
    protocol serves it last. ``directory`` lets a newcomer ask the topic's home node who the members are instead of
    asking everybody: a subscription then costs messages by the size of the topic and not of the system, but the home
    is one node on which all subscriptions of the topic depend.
    """

    def __init__(
        self,
        order: str = "causal",
        window: i64 = 64,
        largest_first: bool = True,
        bundle: i64 = 64,
        directory: bool = False,
        mixed: bool = False,
        total: bool = False,
    ) -> None:
        if order not in ORDER_NAMES:
            raise UsageError(f"VCube-PS orders by {', '.join(ORDER_NAMES)}, not {order!r}; choose one of these")
        if window < 1:
            raise UsageError(f"the window of open publications must be at least 1, not {window}")
        if bundle < 1:
            raise UsageError(f"a bundle holds at least 1 publication, not {bundle}")
        self.order: Final[str] = order
        self.strength: Final[i64] = ORDER_NAMES.index(order)
        self.mixed: Final[bool] = mixed
        self.total: Final[bool] = total or order == "total"
        self.window: Final[i64] = window
        self.largest_first: Final[bool] = largest_first
        self.bundle: Final[i64] = bundle
        self.directory: Final[bool] = directory

    def new_order(self, me: i64) -> Order:
        """An order of the chosen kind for one topic at one node."""
        return new_topic_order(me, self.strength, self.mixed, self.total)


UNBOUNDED: Final[i64] = 1 << 62


@final
class FaultOptions:
    """How a member helps others over faults; shared by all nodes of a system.

    A node keeps ``keep`` publications of each source for nodes that lack them: at least ``window`` and ``bundle``
    together. While something is wrong, members compare what they have every ``compare_ticks``: several round trips.
    After ``forget_ticks`` a member that is away is not expected back, and a publication that others wait for and no
    node has is given up: longer than partitions last. Total order waits ``exclude_ticks`` for an unreachable node, and
    then, where there is a majority, goes on without it: longer than all nodes take to notice a crash. ``keep_bytes``
    bounds the kept publications of each source on a topic: more than a host lets a source have under way there.
    """

    def __init__(
        self,
        keep: i64 = 256,
        compare_ticks: i64 = 1000,
        forget_ticks: i64 = 1_000_000,
        exclude_ticks: i64 = 2000,
        keep_bytes: i64 = UNBOUNDED,
    ) -> None:
        if compare_ticks < 1 or forget_ticks < compare_ticks:
            raise UsageError("compare_ticks is at least 1, and forget_ticks is not less than compare_ticks")
        self.keep: Final[i64] = keep
        self.keep_bytes: Final[i64] = keep_bytes
        self.compare_ticks: Final[i64] = compare_ticks
        self.forget_ticks: Final[i64] = forget_ticks
        self.exclude_ticks: Final[i64] = exclude_ticks

    def check(self, options: Options) -> None:
        """Complain if a node that may fail cannot be run with these options."""
        if not options.mixed or options.directory:
            raise UsageError("where nodes may fail, set mixed = true and directory = false")
        if self.keep < options.window + options.bundle:
            raise UsageError(
                f"{self.keep} publications are kept, fewer than may be under way; keep at least "
                f"{options.window + options.bundle}, or choose a smaller window"
            )


@final
class PendingRequest:
    """Something the application asked for that has not begun: a publication, or else a change of membership."""

    def __init__(
        self, sequence: i64, timestamp: i64, payload: bytes | None, order: i64 = NONE, keys: vec[i64] = NO_KEYS
    ) -> None:
        self.sequence: Final[i64] = sequence
        self.timestamp: Final[i64] = timestamp
        self.payload: Final[bytes | None] = payload
        self.order: Final[i64] = order
        self.keys: Final[vec[i64]] = keys


@final
class OwnTotal:
    """A total publication at the head of the queue, from its claim to its start."""

    def __init__(self, sequence: i64, keys: vec[i64]) -> None:
        self.sequence: Final[i64] = sequence
        self.keys: Final[vec[i64]] = keys
        self.place: i64 = 0
        self.is_granted: bool = False
        self.is_closed: bool = False
        self.closed_at: i64 = 0
        # The last publications of all members when they closed.
        self.entries: vec[i64] = vec[i64]()

    def text(self) -> str:
        """The state as text, to compare states."""
        return f"{self.sequence} {self.place} {self.is_granted} {self.is_closed} {list(self.entries)}"


# Shared by all topics that have nothing of a kind, which are nearly all: a node may have very many topics. They stay
# empty. Only the methods of a topic that add something begin a container of its own.
NO_REQUESTS: Final[list[PendingRequest]] = []
NO_MESSAGES: Final[list[ProtocolMessage]] = []
NO_TOTALS: Final[list[OwnTotal]] = []
NO_ROUTES: Final[dict[i64, Route]] = {}
NO_COUNTERS: Final[dict[i64, i64]] = {}
NO_NUMBERS: Final[dict[i64, bool]] = {}


@final
@mypyc_attr(acyclic=True)
class CubeTopic:
    """All that one node knows about one topic. It outlives a membership: numbers are not used again."""

    def __init__(self, name: i64, order: Order) -> None:
        self.name: Final[i64] = name
        self.state: i64 = OUTSIDE
        self.view: View = View(0)
        self.order: Order = order
        self._waves: Waves | None = None
        self.queue: list[PendingRequest] = NO_REQUESTS
        self.wants_membership: bool = False
        self.published: i64 = 0
        self.in_flight: i64 = 0
        self.joined_counter: i64 = 0
        self.left_counter: i64 = 0
        # Publications, or bundles of them, that came between subscribing and being synchronised.
        self.early: list[ProtocolMessage] = NO_MESSAGES
        # With a directory: whom this newcomer has heard of, in that order.
        self.heard: dict[i64, bool] = NO_NUMBERS
        # What counted as past at those who have gone: they left it with the home, or with everybody.
        self.inherited: vec[i64] = vec[i64]()
        # Who unsubscribed while this node was subscribing: their word for themselves may still be on its way.
        self.departed: dict[i64, i64] = NO_COUNTERS
        # The last own publication that has begun.
        self.begun: i64 = 0
        # The first of the queue, as far as they are total and claimed.
        self.own_totals: list[OwnTotal] = NO_TOTALS
        # Own total publications that have begun and were not delivered here.
        self.undelivered_totals: i64 = 0
        # Locks of others, or own ones, for which not all below this node are closed.
        self.closing_count: i64 = 0
        # Where nodes may fail: waves with their children by the key of their packet, members that are out of reach with
        # the counters of their subscriptions, and what is kept for whoever lacks it.
        self.routes: dict[i64, Route] = NO_ROUTES
        self.away: dict[i64, i64] = NO_COUNTERS
        self.retransmit_buffer: RetransmitBuffer | None = None
        # Own packets that not all have acknowledged, by their numbers, in order.
        self.own_open: dict[i64, bool] = NO_NUMBERS

    # What is added, and taken away.

    @property
    def waves(self) -> Waves:
        """The waves that are open here, where nobody fails."""
        if self._waves is None:
            self._waves = Waves()
        return self._waves

    def enqueue(self, pending: PendingRequest) -> None:
        """The application asks for something."""
        if len(self.queue) == 0:
            self.queue = [pending]
        else:
            self.queue.append(pending)

    def dequeue(self, count: i64) -> None:
        """The first of the queue have begun."""
        if count == len(self.queue):
            self.queue = NO_REQUESTS
        else:
            del self.queue[:count]

    def add_early(self, packet: ProtocolMessage) -> None:
        """A packet has come before this node is synchronised."""
        if len(self.early) == 0:
            self.early = [packet]
        else:
            self.early.append(packet)

    def hear_of(self, newcomer: i64) -> None:
        """This newcomer has heard of another."""
        if len(self.heard) == 0:
            self.heard = {}
        self.heard[newcomer] = True

    def add_departed(self, node: i64, counter: i64) -> None:
        """A node has unsubscribed while this node was subscribing."""
        if len(self.departed) == 0:
            self.departed = {}
        self.departed[node] = max(counter, self.departed.get(node, 0))

    def add_own_total(self, own: OwnTotal) -> None:
        """An own total publication is claimed."""
        if len(self.own_totals) == 0:
            self.own_totals = [own]
        else:
            self.own_totals.append(own)

    def add_away(self, member: i64, counter: i64) -> None:
        """A member is out of reach."""
        if len(self.away) == 0:
            self.away = {}
        self.away[member] = counter

    def open_route(self, key: i64, route: Route) -> None:
        """A packet is on its way through this node."""
        if len(self.routes) == 0:
            self.routes = {}
        self.routes[key] = route

    def close_route(self, key: i64) -> None:
        """Nobody has to answer for a packet any more."""
        self.routes.pop(key, None)
        if len(self.routes) == 0:
            self.routes = NO_ROUTES

    def open_own(self, sequence: i64) -> None:
        """Not all have acknowledged an own packet."""
        if len(self.own_open) == 0:
            self.own_open = {}
        self.own_open[sequence] = True

    def close_own(self, sequence: i64) -> None:
        """All have acknowledged an own packet."""
        self.own_open.pop(sequence, None)
        if len(self.own_open) == 0:
            self.own_open = NO_NUMBERS

    # What there is to see.

    def text(self) -> str:
        """The state as text, to compare states."""
        queued = [(pending.sequence, pending.order, pending.payload, list(pending.keys)) for pending in self.queue]
        totals = ([own.text() for own in self.own_totals], self.begun, self.undelivered_totals, self.closing_count)
        early = [(packet.source, packet.sequence) for packet in self.early]
        counters = (self.state, self.published, self.in_flight, self.joined_counter, self.left_counter)
        heard = (list(self.heard), list(self.inherited))
        faults = (
            [(key, route.text()) for key, route in sorted(self.routes.items())],
            sorted(self.away.items()),
            "" if self.retransmit_buffer is None else self.retransmit_buffer.state(),
            list(self.own_open),
        )
        return (
            f"{self.name} {counters} {queued} {early} {heard} {sorted(self.departed.items())} {totals} {faults} "
            f"[{self.view.state()}] [{self.order.state()}] [{'[]' if self._waves is None else self._waves.state()}]"
        )

    def unfinished(self) -> i64:
        """How much waits: for others, for acknowledgements, for its turn, or for a subscription to take effect."""
        joining = 1 if self.state == SUBSCRIBING or self.state == SYNCHRONISING else 0
        locks = self.closing_count + self.undelivered_totals
        order = self.order
        if isinstance(order, TotalOrder) and self.state == MEMBER:
            locks += order.open_locks()
        waves = self._open_waves() + len(self.routes)
        return order.waiting() + waves + len(self.queue) + len(self.early) + joining + locks

    def has_open_waves(self) -> bool:
        """Whether somebody waits for this node's answer, or this node for others'."""
        return self._open_waves() > 0 or len(self.routes) > 0 or self.closing_count > 0

    def _open_waves(self) -> i64:
        return 0 if self._waves is None else len(self._waves)

    def is_active(self) -> bool:
        """Whether this node has a complete view and can serve clusters."""
        return self.state >= SYNCHRONISING


@final
class CubeTopicTable:
    """The topics that one node has heard of, and the counter of its subscriptions, which is one for all of them."""

    def __init__(self, me: i64, options: Options) -> None:
        self._me: Final[i64] = me
        self.options: Final[Options] = options
        self._topics: dict[i64, CubeTopic] = {}
        # The topic that was asked for last: mostly the next message is about the same one.
        self._recent: CubeTopic | None = None
        self.counter: i64 = 0

    def find(self, name: i64) -> CubeTopic:
        """The state of a topic; it begins now if this node has not heard of the topic."""
        recent = self._recent
        if recent is not None and recent.name == name:
            return recent
        found = self._topics.get(name)
        if found is None:
            found = CubeTopic(name, self.options.new_order(self._me))
            self._topics[name] = found
        self._recent = found
        return found

    def get(self, name: i64) -> CubeTopic | None:
        """The state of a topic, if this node has heard of it."""
        return self._topics.get(name)

    def all(self) -> list[CubeTopic]:
        """Each topic that this node has heard of, in that order."""
        return list(self._topics.values())

    def next_counter(self) -> i64:
        """The number of a subscription or unsubscription that begins now."""
        self.counter += 1
        return self.counter

    def unfinished(self) -> i64:
        """How much waits on all topics."""
        count: i64 = 0
        for topic in self._topics.values():
            count += topic.unfinished()
        return count

    def text(self) -> str:
        """The state as text, to compare states."""
        return f"{self.counter} {[topic.text() for _, topic in sorted(self._topics.items())]}"


def is_closed(topic: CubeTopic, keys: vec[i64]) -> bool:
    """Whether nothing may begin on a topic about some keys."""
    order = topic.order
    assert isinstance(order, TotalOrder), "with total order a topic has an order that serves it"
    return order.is_closed(keys if len(keys) > 0 else ALL_SHARE)


def total(topic: CubeTopic) -> TotalOrder:
    """The order of a topic where publications may be total."""
    order = topic.order
    assert isinstance(order, TotalOrder), "with total order a topic has an order that serves it"
    return order


def mixed(topic: CubeTopic) -> CausalOrder:
    """The order of a topic where nodes may fail."""
    order = topic.order
    assert isinstance(order, CausalOrder), "where nodes may fail orders are mixed"
    return order
