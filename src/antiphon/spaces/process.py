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
from antiphon.spaces.space import Space, SpaceOutside

NO_SPACE = -1
"""The number of the space of a topic that is in none."""

STABILITY_TIMER = 1 << 50
"""The name of the timer of this layer; those of fabrics are lower."""

REFUSED_TOTAL = "total order is not available on topics of a space; publish there in causal order"

SpaceOf = Callable[[int], int]
"""The number of the space of a topic, or ``NO_SPACE``."""


class PendingOperation:
    """Something that the application asked for while a subscription was not effective; without payload, a change."""

    def __init__(self, topic: int, payload: bytes | None, keys: list[int], subscribes: bool) -> None:
        self.topic = topic
        self.payload = payload
        self.keys = keys
        self.subscribes = subscribes


class SpaceProcess(Process, SpaceOutside):
    """The process of a fabric, built by ``build``, under the spaces of its topics.

    Acknowledgements of the space are collected for ``acknowledge_ticks``; with 0 they leave at once.
    """

    def __init__(
        self,
        environment: Environment,
        build: Callable[[Environment], Process],
        space_of: SpaceOf,
        place: HeaderPlace | None = None,
        acknowledge_ticks: int = 0,
        new_space: Callable[[int, SpaceOutside], Space] = Space,
    ) -> None:
        super().__init__(environment)
        self.space_of = space_of
        self._new_space = new_space
        self._place = HeaderPlace() if place is None else place
        self._acknowledge_ticks = acknowledge_ticks
        self._has_timer = False
        self.spaces: dict[int, Space] = {}
        # Topics of spaces whose subscription was asked for and is not effective, and what waits for that.
        self._pending: dict[int, list[PendingOperation]] = {}
        self._entered: list[int] = []
        self._numbers: dict[int, int] = {}
        self._inner: Process | None = None
        self._inner = build(SpaceEnvironment(environment, self))

    @property
    def inner(self) -> Process:
        """The process of the fabric."""
        assert self._inner is not None, "a fabric does not ask about itself while it is built"
        return self._inner

    def space(self, topic: int) -> Space | None:
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
        if self.space_of(int(topic)) == NO_SPACE:
            return self.inner.publish(payload, topic, order)
        return self._publish_in_space(payload, int(topic), int(order), [])

    def publish_about(self, keys: list[int], payload: bytes, topic: i64 = 0, order: i64 = -1) -> i64:
        if self.space_of(int(topic)) == NO_SPACE:
            return self.inner.publish_about(keys, payload, topic, order)
        return self._publish_in_space(payload, int(topic), int(order), keys)

    def _publish_in_space(self, payload: bytes, topic: int, order: int, keys: list[int]) -> int:
        if order == TOTAL:
            raise UsageError(REFUSED_TOTAL)
        waiting = self._pending.get(topic)
        if waiting is not None:
            waiting.append(PendingOperation(topic, payload, keys, False))
            number = self._numbers[topic] = self._numbers.get(topic, 0) + 1
            return number
        number = self._hand_in(payload, topic, keys)
        self._after()
        return number

    def _hand_in(self, payload: bytes, topic: int, keys: list[int]) -> int:
        space = self.space(topic)
        assert space is not None, "only topics of spaces come here"
        whole = self._place.embed(payload, space.header_for(topic))
        if keys:
            number = int(self.inner.publish_about(keys, whole, topic, CAUSAL))
        else:
            number = int(self.inner.publish(whole, topic, CAUSAL))
        self._numbers[topic] = number
        space.published(topic, number)
        return number

    def subscribe(self, topic: i64) -> None:
        name = int(topic)
        if self.space_of(name) != NO_SPACE:
            if name in self._pending:
                self._pending[name].append(PendingOperation(name, None, [], True))
                return
            self._pending[name] = []
        self.inner.subscribe(topic)
        self._after()

    def unsubscribe(self, topic: i64) -> None:
        name = int(topic)
        if name in self._pending:
            self._pending[name].append(PendingOperation(name, None, [], False))
            return
        self.inner.unsubscribe(topic)
        self._after()

    def refusal(self, order: i64, topic: i64 = 0) -> str | None:
        if order == TOTAL and self.space_of(int(topic)) != NO_SPACE:
            return REFUSED_TOTAL
        return self.inner.refusal(order, topic)

    def room(self, topic: i64) -> i64:
        return 0 if int(topic) in self._pending else self.inner.room(topic)

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
                space = self.space(topic)
                if space is not None:
                    space.became_stable(topic, int(message.source), number)
        else:
            self.inner.receive(sender, message)
        self._after()

    def expire(self, name: i64) -> None:
        if name == STABILITY_TIMER:
            self._has_timer = False
            self._tell_news()
            return
        self.inner.expire(name)
        self._after()

    def synced(self) -> None:
        self.inner.synced()
        self._after()

    def peer_lost(self, peer: i64) -> None:
        self.inner.peer_lost(peer)
        self._after()

    def peer_found(self, peer: i64) -> None:
        self.inner.peer_found(peer)
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
        held = [] if space is None else [key for name, key in space.barrier.held if name == topic]
        return without(keys, held) if held else keys

    def known_nodes(self) -> list[int]:
        return self.inner.known_nodes()

    def unfinished(self) -> i64:
        waiting = sum(len(operations) for operations in self._pending.values())
        return int(self.inner.unfinished()) + waiting + sum(space.unfinished() for space in self.spaces.values())

    def state(self) -> str:
        spaces = [(number, space.state()) for number, space in sorted(self.spaces.items())]
        waiting = [
            (topic, [(each.payload, each.subscribes) for each in operations])
            for topic, operations in sorted(self._pending.items())
        ]
        return f"{self.inner.state()} {spaces} {waiting}"

    # The surroundings of spaces.

    def deliver(self, publication: Publication) -> None:
        self.environment.deliver(publication)

    def entered(self, topic: int) -> None:
        self.environment.subscribed(topic)
        self._entered.append(topic)

    def header_of(self, publication: Publication) -> bytes:
        return self._place.extract(publication.payload)

    def frontier(self, topic: int) -> list[int]:
        return [] if self._inner is None else [int(key) for key in self._inner.frontier_keys(topic)]

    def recipients(self, topic: int) -> list[int] | None:
        return self.inner.recipients(topic)

    # After each step.

    def _after(self) -> None:
        """Go on with what waited for subscriptions, and tell others what is news."""
        while self._entered:
            topic = self._entered.pop(0)
            operations = self._pending.pop(topic, [])
            while operations:
                operation = operations.pop(0)
                if operation.payload is not None:
                    self._hand_in(operation.payload, topic, operation.keys)
                elif operation.subscribes:
                    self._pending[topic] = operations
                    self.inner.subscribe(topic)
                    break
                else:
                    self.inner.unsubscribe(topic)
        if any(space.stability.has_news() for space in self.spaces.values()):
            if self._acknowledge_ticks == 0:
                self._tell_news()
            elif not self._has_timer:
                self._has_timer = True
                self.environment.set_timer(self._acknowledge_ticks, STABILITY_TIMER)

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
    counts = {key & SOURCE_MASK: key >> SOURCE_BITS for key in keys if key >= 0}
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
