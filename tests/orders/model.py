"""Orders by brute force, and a small world in which an order and its model live through the same schedule.

The models scan everything that waits at every arrival, with whole vectors, as the textbooks print it. The world keeps
the true happened-before relation, which neither the order nor the model can see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import strategies as st

from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK, Publication
from antiphon.orders import Order, Ordered
from tests.support import lists_up_to

Identity = tuple[int, int]
"""Source and sequence number of a publication."""


@dataclass(frozen=True)
class Sent:
    """A publication with what only the test knows: its whole vector and all that happened before it."""

    publication: Publication
    vector: dict[int, int]
    past: frozenset[Identity]

    @property
    def identity(self) -> Identity:
        return identity_of(self.publication)


def identity_of(publication: Publication) -> Identity:
    return int(publication.source), int(publication.sequence)


def dependencies_of(publication: Publication) -> list[Identity]:
    return [(int(key & SOURCE_MASK), int(key >> SOURCE_BITS)) for key in publication.dependencies]


@dataclass
class Model:
    """The printed form of an order: keep what arrives, scan it all, deliver what may be delivered, scan again."""

    vector: dict[int, int] = field(default_factory=dict)
    seen: set[Identity] = field(default_factory=set)
    pending: list[Sent] = field(default_factory=list)
    held_total: int = 0
    held_peak: int = 0

    def may_be_delivered(self, sent: Sent) -> bool:
        """The rule. Here: at once."""
        return True

    def published(self, source: int) -> dict[int, int]:
        """Count an own publication; the answer is the whole vector that it carries."""
        self.vector[source] = self.vector.get(source, 0) + 1
        self.seen.add((source, self.vector[source]))
        return dict(self.vector)

    def arrived(self, sent: Sent) -> set[Identity]:
        """One copy has arrived; what is delivered because of it."""
        if sent.identity in self.seen:
            return set()
        self.seen.add(sent.identity)
        self.pending.append(sent)
        delivered: set[Identity] = set()
        while ready := next((each for each in self.pending if self.may_be_delivered(each)), None):
            self.pending.remove(ready)
            delivered.add(ready.identity)
            source, sequence = ready.identity
            self.vector[source] = max(self.vector.get(source, 0), sequence)
        if sent in self.pending:
            self.held_total += 1
            self.held_peak = max(self.held_peak, len(self.pending))
        return delivered


class FifoModel(Model):
    """The next one of its source."""

    def may_be_delivered(self, sent: Sent) -> bool:
        source, sequence = sent.identity
        return sequence == self.vector.get(source, 0) + 1


class CausalModel(Model):
    """Birman, Schiper and Stephenson: the next one of its source, and nothing missing that its source had delivered."""

    def may_be_delivered(self, sent: Sent) -> bool:
        source, sequence = sent.identity
        others = {other: count for other, count in sent.vector.items() if other != source}
        return sequence == self.vector.get(source, 0) + 1 and all(
            count <= self.vector.get(other, 0) for other, count in others.items()
        )


@dataclass(frozen=True)
class Step:
    """One step of a schedule: a process publishes, or one of the copies on the way to it arrives."""

    process: int
    choice: int
    copy_stays: bool


def schedules(processes: int) -> st.SearchStrategy[list[Step]]:
    """Any interleaving of publications and arrivals, in any order per link, with duplicates."""
    return lists_up_to(80, st.builds(Step, st.integers(0, processes - 1), st.integers(0, 12), st.booleans()))


class World:
    """Some processes, each with an order and its model, and the copies on their way."""

    def __init__(self, processes: int, order: Callable[[int], Order], model: Callable[[], Model]) -> None:
        self.orders = [order(me) for me in range(processes)]
        self.models = [model() for _ in range(processes)]
        self.on_the_way: list[list[Sent]] = [[] for _ in range(processes)]
        self.delivered: list[list[Identity]] = [[] for _ in range(processes)]
        self.sent: dict[Identity, Sent] = {}

    def run(self, schedule: list[Step]) -> None:
        """Live through a schedule; the order must do what its model does, at every step."""
        for step in schedule:
            copies = self.on_the_way[step.process]
            if step.choice == 0 or not copies:
                self.publish(step.process)
            else:
                position = step.choice % len(copies)
                self.arrive(step.process, copies[position] if step.copy_stays else copies.pop(position))

    def drain(self) -> None:
        """Let every copy arrive, the latest first, and the rest of the duplicates too."""
        for process, copies in enumerate(self.on_the_way):
            while copies:
                self.arrive(process, copies.pop())

    def publish(self, me: int) -> Sent:
        """A process publishes to all the others."""
        past: set[Identity] = set(self.delivered[me])
        for identity in self.delivered[me]:
            past |= self.sent[identity].past
        vector = self.models[me].published(me)
        sequence = vector[me]
        publication = Ordered(me, sequence, 0, b"", self.orders[me].stamp(sequence))
        sent = Sent(publication, vector, frozenset(past))
        self.sent[sent.identity] = sent
        self.delivered[me].append(sent.identity)
        for other, copies in enumerate(self.on_the_way):
            if other != me:
                copies.append(sent)
        return sent

    def arrive(self, me: int, sent: Sent) -> None:
        """A copy arrives; order and model must deliver, hold and count the same."""
        order, model = self.orders[me], self.models[me]
        released = [identity_of(publication) for publication in order.arrived(sent.publication)]
        assert set(released) == model.arrived(sent)
        assert len(set(released)) == len(released)
        assert order.waiting() == len(model.pending)
        assert (order.held_total, order.held_peak) == (model.held_total, model.held_peak)
        self.delivered[me] += released
