"""A process with spaces: it stands between a host and the process of a fabric, and is a process for both.

Topics outside spaces pass through. On the topics of a space every publication is causal: weaker ones are raised to
that, since a publication that waits for nothing would be delivered before what a later one names. Total order is
refused there: two topics that each decide an order of their own could order the same chain in two ways.
"""

from __future__ import annotations

from collections.abc import Callable

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import CAUSAL, SOURCE_BITS, SOURCE_MASK, TOTAL, ProtocolMessage, Publication
from antiphon.kernel.process import Environment, Process
from antiphon.spaces.environment import SpaceEnvironment
from antiphon.spaces.header import HeaderPlace
from antiphon.spaces.messages import SpaceAcknowledgement, SpaceStable, pairs_in
from antiphon.spaces.space import SpaceOrder, SpaceOutside, counts_of

NO_SPACE = -1
"""The number of the space of a topic that is in none."""

STABILITY_TIMER = 1 << 50
"""The name of the timer of this layer; those of fabrics are lower."""

GIVE_UP_TIMER = STABILITY_TIMER + 1
"""The timer after which a publication is given up whose source is lost."""

REFUSED_TOTAL = "total order is not available on topics of a space; publish there in causal order"

SpaceOf = Callable[[int], int]
"""The number of the space of a topic, or ``NO_SPACE``."""


class PendingOperation:
    """Something that the application asked for and that has not begun; without payload, a change of membership."""

    def __init__(self, topic: int, payload: bytes | None, keys: list[int], subscribes: bool) -> None:
        self.topic = topic
        self.payload = payload
        self.keys = keys
        self.subscribes = subscribes


class SpaceProcess(Process, SpaceOutside):
    """The process of a fabric, built by ``build``, under the spaces of its topics.

    Acknowledgements of the space are collected for ``acknowledge_ticks``; with 0 they leave at once. If a source has
    been lost for ``give_up_ticks``, nothing waits for its publications that have not come; None waits for ever.
    """

    def __init__(
        self,
        environment: Environment,
        build: Callable[[Environment], Process],
        space_of: SpaceOf,
        place: HeaderPlace | None = None,
        acknowledge_ticks: int = 0,
        give_up_ticks: int | None = None,
        new_space: Callable[[int, SpaceOutside], SpaceOrder] = SpaceOrder,
    ) -> None:
        super().__init__(environment)
        self.space_of = space_of
        self._new_space = new_space
        self._place = HeaderPlace() if place is None else place
        self._acknowledge_ticks = acknowledge_ticks
        self._has_timer = False
        self._give_up_ticks = give_up_ticks
        self._lost_since: dict[int, int] = {}
        self._gives_up_at = 0
        self.spaces: dict[int, SpaceOrder] = {}
        # Topics of spaces whose subscription has begun and is not effective.
        self._pending: set[int] = set()
        # Those to which the application's last word was to subscribe.
        self._wanted: set[int] = set()
        # What waits for that, by topic.
        self._until_effective: dict[int, list[PendingOperation]] = {}
        # By space, what else the application asked for and has not begun.
        self._operations: dict[int, list[PendingOperation]] = {}
        self._numbers: dict[int, int] = {}
        self._inner: Process | None = None
        self._inner = build(SpaceEnvironment(environment, self))

    @property
    def inner(self) -> Process:
        """The process of the fabric."""
        assert self._inner is not None, "a fabric does not ask about itself while it is built"
        return self._inner

    def space(self, topic: int) -> SpaceOrder | None:
        """The space of a topic; None if it is in none."""
        number = self.space_of(topic)
        if number == NO_SPACE:
            return None
        found = self.spaces.get(number)
        if found is None:
            found = self.spaces[number] = self._new_space(int(self.me), self)
        return found

    # What the application does.

    def publish(self, payload: bytes, topic: i64 = 0, order: i64 = -1) -> i64:
        if self.space_of(int(topic)) == NO_SPACE or int(topic) not in self._wanted:
            return self.inner.publish(payload, topic, order)
        return self._publish_in_space(payload, int(topic), int(order), [])

    def publish_about(self, keys: list[int], payload: bytes, topic: i64 = 0, order: i64 = -1) -> i64:
        if self.space_of(int(topic)) == NO_SPACE or int(topic) not in self._wanted:
            return self.inner.publish_about(keys, payload, topic, order)
        return self._publish_in_space(payload, int(topic), int(order), keys)

    def _publish_in_space(self, payload: bytes, topic: int, order: int, keys: list[int]) -> int:
        if order == TOTAL:
            raise UsageError(REFUSED_TOTAL)
        self._queue(topic).append(PendingOperation(topic, payload, keys, False))
        if topic not in self._numbers:
            self._numbers[topic] = counts_of(self.frontier(topic)).get(int(self.me), 0)
        number = self._numbers[topic] = self._numbers[topic] + 1
        self._after()
        # If it began, the fabric has numbered it.
        return self._numbers[topic] if not self._waits_on(topic) else number

    def _queue(self, topic: int) -> list[PendingOperation]:
        return self._operations.setdefault(self.space_of(topic), [])

    def _waits_on(self, topic: int) -> bool:
        return topic in self._until_effective or any(each.topic == topic for each in self._queue(topic))

    def subscribe(self, topic: i64) -> None:
        name = int(topic)
        if self.space_of(name) == NO_SPACE:
            self.inner.subscribe(topic)
            return
        self._wanted.add(name)
        self._queue(name).append(PendingOperation(name, None, [], True))
        self._after()

    def unsubscribe(self, topic: i64) -> None:
        name = int(topic)
        if self.space_of(name) == NO_SPACE:
            self.inner.unsubscribe(topic)
            return
        self._wanted.discard(name)
        self._queue(name).append(PendingOperation(name, None, [], False))
        self._after()

    def _begin_operations(self) -> bool:
        """Begin what the application asked for, in its order across the topics of a space; whether anything began.

        A publication begins when its topic has room, so that it starts at once: until then no later one of the space
        begins. An operation on a topic whose subscription is not effective waits for that, and holds up no other topic:
        it counts as asked for when the subscription is effective.
        """
        has_begun = False
        for number in list(self._operations):
            waiting: list[PendingOperation] = []
            blocked: set[int] = set()
            is_full = False
            operations, self._operations[number] = self._operations[number], []
            for operation in operations:
                topic = operation.topic
                if topic in self._pending:
                    self._until_effective.setdefault(topic, []).append(operation)
                    continue
                if topic in blocked:
                    pass
                elif operation.payload is None:
                    self._change(operation)
                    has_begun = True
                    continue
                elif not is_full and self.inner.room(topic) > 0:
                    self._hand_in(operation.payload, topic, operation.keys)
                    has_begun = True
                    continue
                else:
                    is_full = True
                    blocked.add(topic)
                waiting.append(operation)
            self._operations[number] = waiting + self._operations[number]
        return has_begun

    def _change(self, operation: PendingOperation) -> None:
        if operation.subscribes:
            self._pending.add(operation.topic)
            self.inner.subscribe(operation.topic)
        else:
            self.inner.unsubscribe(operation.topic)

    def _hand_in(self, payload: bytes, topic: int, keys: list[int]) -> None:
        space = self.space(topic)
        assert space is not None, "only topics of spaces come here"
        whole = self._place.embed(payload, space.header_for(topic))
        if keys:
            begun = int(self.inner.publish_about(keys, whole, topic, CAUSAL))
        else:
            begun = int(self.inner.publish(whole, topic, CAUSAL))
        self._numbers[topic] = max(begun, self._numbers.get(topic, 0))

    def refusal(self, order: i64, topic: i64 = 0) -> str | None:
        if order == TOTAL and self.space_of(int(topic)) != NO_SPACE:
            return REFUSED_TOTAL
        return self.inner.refusal(order, topic)

    def room(self, topic: i64) -> i64:
        name = int(topic)
        if self.space_of(name) != NO_SPACE and (name in self._pending or self._queue(name)):
            return 0
        return self.inner.room(topic)

    # What the host says.

    def start(self) -> None:
        self.inner.start()
        self._after()

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        if isinstance(message, SpaceAcknowledgement):
            for topic, number in pairs_in(message.entries):
                space = self.space(topic)
                if space is not None:
                    space.acknowledged(int(sender), topic, number)
        elif isinstance(message, SpaceStable):
            for topic, number in pairs_in(message.entries):
                # This node may not know the topic, and so not its space.
                for space in self.spaces.values():
                    space.became_stable(topic, int(message.source), number)
        else:
            self.inner.receive(sender, message)
        self._after()

    def expire(self, name: i64) -> None:
        if name == STABILITY_TIMER:
            self._has_timer = False
            self._tell_news()
            return
        if name == GIVE_UP_TIMER:
            self._gives_up_at = 0
            self._give_up()
            self._after()
            return
        self.inner.expire(name)
        self._after()

    def synced(self) -> None:
        self.inner.synced()
        self._after()

    def peer_lost(self, peer: i64) -> None:
        self._lost_since.setdefault(int(peer), int(self.environment.now()))
        self.inner.peer_lost(peer)
        self._after()

    def peer_found(self, peer: i64) -> None:
        self._lost_since.pop(int(peer), None)
        self.inner.peer_found(peer)
        for space in self.spaces.values():
            space.found(int(peer))
        self._after()

    def joined(self, node: i64) -> None:
        self.inner.joined(node)
        self._after()

    def left(self, node: i64) -> None:
        self.inner.left(node)
        self._after()

    def leave(self) -> None:
        self.inner.leave()

    # What the host asks.

    def first_unsettled(self, topic: i64) -> i64:
        return self.inner.first_unsettled(topic)

    def recorded(self, publication: Publication) -> ProtocolMessage:
        return self.inner.recorded(publication)

    def frontier_keys(self, topic: i64) -> list[int]:
        keys = [int(key) for key in self.inner.frontier_keys(topic)]
        space = self.space(int(topic))
        # Own publications are delivered before they are past.
        places = [] if space is None else space.barrier.held
        held = [key for name, key in places if name == topic and key & SOURCE_MASK != self.me]
        return without(keys, held) if held else keys

    def of_fabric(self) -> Process:
        return self.inner

    def known_nodes(self) -> list[int]:
        return self.inner.known_nodes()

    def unfinished(self) -> i64:
        queues = [*self._operations.values(), *self._until_effective.values()]
        waiting = sum(len(operations) for operations in queues)
        return int(self.inner.unfinished()) + waiting + sum(space.unfinished() for space in self.spaces.values())

    def state(self) -> str:
        spaces = [(number, space.state()) for number, space in sorted(self.spaces.items())]
        waiting = [
            (number, [(each.topic, each.payload, each.subscribes) for each in operations])
            for number, operations in [*sorted(self._operations.items()), *sorted(self._until_effective.items())]
        ]
        return f"{self.inner.state()} {spaces} {waiting} {sorted(self._pending)}"

    # The surroundings of spaces.

    def deliver(self, publication: Publication) -> None:
        self.environment.deliver(publication)

    def entered(self, topic: int) -> None:
        if topic in self._pending:
            self._pending.discard(topic)
            self._queue(topic).extend(self._until_effective.pop(topic, []))
        else:
            # It is a member from the start.
            self._wanted.add(topic)
        self.environment.subscribed(topic)

    def header_of(self, publication: Publication) -> bytes:
        return self._place.extract(publication.payload)

    def frontier(self, topic: int) -> list[int]:
        return [] if self._inner is None else [int(key) for key in self._inner.frontier_keys(topic)]

    def follows_frontier(self, topic: int) -> bool:
        return self.environment.restored_frontier(topic) is not None

    def recipients(self, topic: int) -> list[int] | None:
        return self.inner.recipients(topic)

    # After each step.

    def _after(self) -> None:
        """Go on with what waited for subscriptions, and tell others what is news."""
        while any(self._operations.values()) and self._begin_operations():
            pass
        if any(space.stability.has_news() for space in self.spaces.values()):
            if self._acknowledge_ticks == 0:
                self._tell_news()
            elif not self._has_timer:
                self._has_timer = True
                self.environment.set_timer(self._acknowledge_ticks, STABILITY_TIMER)
        if self._lost_since and self._give_up_ticks is not None and self._gives_up_at == 0:
            self._plan_to_give_up(self._give_up_ticks)

    def _plan_to_give_up(self, after_ticks: int) -> None:
        """Set a timer if something waits for a source that is lost."""
        due = [
            self._lost_since[source] + after_ticks
            for space in self.spaces.values()
            for _, source, _ in space.barrier.wanted()
            if source in self._lost_since
        ]
        if due:
            now = int(self.environment.now())
            self._gives_up_at = max(min(due), now + 1)
            self.environment.set_timer(self._gives_up_at - now, GIVE_UP_TIMER)

    def _give_up(self) -> None:
        """Count what has not come of sources that are lost for long as past, and report it as lost."""
        if self._give_up_ticks is None:
            return
        latest = int(self.environment.now()) - self._give_up_ticks
        for space in self.spaces.values():
            for topic, source, number in space.barrier.wanted():
                if self._lost_since.get(source, latest + 1) > latest:
                    continue
                for missing in range(space.barrier.count(topic, source) + 1, number + 1):
                    if not space.barrier.is_held(topic, source, missing):
                        self.environment.lost(topic, source, missing)
                        space.pass_over(topic, source, missing)

    def _tell_news(self) -> None:
        """Acknowledge what is past here to its sources, and tell all what is stable."""
        acknowledged: dict[int, list[int]] = {}
        stable: list[int] = []
        for space in self.spaces.values():
            for source, topics in space.stability.take_acknowledgements().items():
                acknowledged.setdefault(source, []).extend(flat(topics))
            stable += flat(space.stability.take_announcement())
        for source, pairs in sorted(acknowledged.items()):
            self.environment.send(source, SpaceAcknowledgement(source, 0, vector_of(pairs)))
        if stable:
            for node in self.inner.known_nodes():
                if node != self.me:
                    self.environment.send(node, SpaceStable(self.me, 0, vector_of(stable)))


def flat(numbers: dict[int, int]) -> list[int]:
    """Pairs one after the other."""
    return [each for pair in sorted(numbers.items()) for each in pair]


def vector_of(numbers: list[int]) -> vec[i64]:
    """Numbers as a vector."""
    found = vec[i64]()
    for number in numbers:
        found = append(found, i64(number))
    return found


def without(keys: list[int], held: list[int]) -> list[int]:
    """A set of publications without some of its members; single ones beyond the first gap are written one by one."""
    counts = counts_of(keys)
    missing: dict[int, set[int]] = {}
    for key in held:
        missing.setdefault(key & SOURCE_MASK, set()).add(key >> SOURCE_BITS)
    singles = [~key for key in keys if key < 0 and ~key not in held]
    for source, numbers in missing.items():
        first = min(numbers)
        last = counts.get(source, 0)
        if first <= last:
            counts[source] = first - 1
            singles += [(n << SOURCE_BITS) | source for n in range(first + 1, last + 1) if n not in numbers]
    prefixes = [(number << SOURCE_BITS) | source for source, number in sorted(counts.items()) if number > 0]
    return prefixes + [~key for key in sorted(singles)]
