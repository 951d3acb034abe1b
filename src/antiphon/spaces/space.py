"""One space at one node: publications come out of the orders of their topics and leave in the order of the space.

The node *enters* a topic when the fabric says that its subscription is effective. It becomes a member, for the
application, when everything of the topic that the node already follows is past there. A node that has delivered an
answer must not deliver the question afterwards, because it subscribed late; what comes while it enters counts as past.
"""

from __future__ import annotations

from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK, Publication
from antiphon.spaces.barrier import HeldPublication, SpaceBarrier
from antiphon.spaces.dependencies import SpaceDependencies
from antiphon.spaces.header import decode_frontier, encode_frontier
from antiphon.spaces.stability import SpaceStability


class SpaceOutside:
    """The surroundings of a space at a node: the host above, and the process of the fabric below."""

    def deliver(self, publication: Publication) -> None:
        """Give a publication to the application."""
        raise NotImplementedError

    def entered(self, topic: int) -> None:
        """The node is a member of a topic."""
        raise NotImplementedError

    def header_of(self, publication: Publication) -> bytes:
        """The header of a publication."""
        raise NotImplementedError

    def frontier(self, topic: int) -> list[int]:
        """The publications that the fabric counts as past on a topic."""
        raise NotImplementedError

    def is_subscribing(self, topic: int) -> bool:
        """Whether a subscription has begun, or is to begin."""
        return False

    def follows_frontier(self, topic: int) -> bool:
        """Whether an earlier life of this node delivered what the fabric counts as past on a topic."""
        return False

    def recipients(self, topic: int) -> list[int] | None:
        """The nodes that a publication of this node goes to; None where no node knows them."""
        raise NotImplementedError


class SpaceOrder:
    """The order of one space at one node."""

    def __init__(
        self,
        me: int,
        outside: SpaceOutside,
        dependencies: SpaceDependencies | None = None,
        barrier: SpaceBarrier | None = None,
        stability: SpaceStability | None = None,
    ) -> None:
        self.me = me
        self._outside = outside
        self.dependencies = SpaceDependencies(me) if dependencies is None else dependencies
        self.barrier = SpaceBarrier() if barrier is None else barrier
        self.stability = SpaceStability(me) if stability is None else stability
        # Topics whose subscription is effective in the fabric, and not yet here.
        self.entering: set[int] = set()

    # Publishing.

    def header_for(self, topic: int) -> bytes:
        """The header of the next publication on a topic."""
        return encode_frontier(self.dependencies.header_on(topic))

    # What comes from the fabric.

    def delivered(self, publication: Publication) -> None:
        """The order of its topic delivers a publication."""
        topic, source, sequence = int(publication.topic), int(publication.source), int(publication.sequence)
        if sequence <= self.barrier.count(topic, source):
            # It was given up, and is here after all: what follows it may have been delivered.
            return
        if topic in self.entering:
            self.pass_over(topic, source, sequence)
        elif source == self.me:
            recipients = self._outside.recipients(topic)
            if recipients is not None:
                self.stability.started(topic, sequence, recipients)
            self.dependencies.published(topic, sequence)
            self._outside.deliver(publication)
            # The order of its topic put it after all that had come here, also what waits. It is past when that is.
            self._release(self.barrier.arrived(publication, {}))
            self.settle(topic)
        else:
            header = decode_frontier(self._outside.header_of(publication))
            self._release(self.barrier.arrived(publication, header))

    def pass_over(self, topic: int, source: int, sequence: int) -> None:
        """A publication counts as past here, and is not delivered."""
        self.dependencies.counted_unheard(topic, source, sequence)
        self._release(self.barrier.passed(topic, source, sequence))
        self._past_grew(topic, source)

    def _release(self, released: list[HeldPublication]) -> None:
        for held in released:
            publication = held.publication
            topic, source = int(publication.topic), int(publication.source)
            if source == self.me:
                continue
            self.dependencies.delivered(topic, source, int(publication.sequence), implied_by(publication), held.header)
            self._outside.deliver(publication)
            self._past_grew(topic, source)

    def _past_grew(self, topic: int, source: int) -> None:
        self.stability.past_grew(topic, source, self.barrier.count(topic, source))
        if topic in self.entering:
            self._enter(topic)

    # Memberships.

    def subscribed(self, topic: int) -> None:
        """The subscription is effective in the fabric."""
        frontier = self._outside.frontier(topic)
        self.barrier.begin(topic, frontier)
        is_own = self._outside.follows_frontier(topic)
        for source, number in counts_of(frontier).items():
            if is_own:
                self.dependencies.add(topic, source, number)
            self.dependencies.counted_unheard(topic, source, number)
            self.stability.past_grew(topic, source, number)
        self.stability.joined(topic)
        self.entering.add(topic)
        self._enter(topic)

    def _enter(self, topic: int) -> None:
        if self.barrier.covers(topic, self.dependencies.of(topic)):
            self.entering.discard(topic)
            self._outside.entered(topic)

    def unsubscribed(self, topic: int) -> None:
        """The subscription has ended in the fabric."""
        self.entering.discard(topic)
        self.stability.left(topic)
        self._release(self.barrier.end(topic))

    # Stability.

    def acknowledged(self, node: int, topic: int, number: int) -> None:
        """A node has what this node published on a topic up to a number."""
        self.stability.acknowledged(node, topic, number)
        self.settle(topic)

    def settle(self, topic: int) -> None:
        """Look whether own publications on a topic have become stable."""
        stable = self.stability.settle(topic, self._outside.recipients(topic))
        if stable:
            self.dependencies.became_stable(topic, self.me, stable)

    def asked(self, topic: int, source: int, number: int) -> None:
        """A source asks whether this node still waits for a publication; if so, it asks again later."""
        # A subscription that has begun counts: the source may have heard of it before the publication started.
        is_member = self.barrier.is_member(topic) or self._outside.is_subscribing(topic)
        if not is_member or self.barrier.count(topic, source) >= number:
            self.stability.past_grew(topic, source, number)

    def gone(self, node: int) -> None:
        """A node is lost for so long that it is not expected back."""
        self.dependencies.source_gone(node)
        self.stability.gone(node)

    def back(self, node: int) -> None:
        """A node that was lost is there again."""
        self.dependencies.source_found(node)
        self.stability.back(node)

    def settle_all(self) -> None:
        """Look at all topics: a member that has left, or is not expected back, keeps nothing from being stable."""
        for topic in self.stability.open_topics():
            self.settle(topic)

    def became_stable(self, topic: int, source: int, number: int) -> None:
        """A source says that its publications on a topic are stable up to a number."""
        self.dependencies.became_stable(topic, source, number)

    def found(self, peer: int) -> None:
        """A node can be reached again: what was acknowledged to it, or announced, may be lost."""
        for topic in self.barrier.topics():
            self.stability.past_grew(topic, peer, self.barrier.count(topic, peer))
        self.stability.found()

    # What there is to see.

    def unfinished(self) -> int:
        """How many publications wait, and how many topics are being entered."""
        return len(self.barrier.held) + len(self.entering)

    def state(self) -> str:
        """All that decides what this space will do, as text."""
        parts = self.dependencies.state(), self.barrier.state(), self.stability.state(), str(sorted(self.entering))
        return " ".join(parts)


def implied_by(publication: Publication) -> list[int]:
    """The keys that the order of its topic puts before a publication."""
    return [int(key) for key in publication.dependencies if key >= 0]


def counts_of(frontier: list[int]) -> dict[int, int]:
    """Per source the number up to which a set of publications is complete."""
    return {key & SOURCE_MASK: key >> SOURCE_BITS for key in frontier if key >= 0}
