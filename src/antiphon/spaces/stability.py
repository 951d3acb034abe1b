"""Which publications are stable: past at every node that may still get something that follows them.

The source of a publication decides. When the publication starts, the source notes the members of the topic that it
knows; the fabric promises that any other node, if it becomes a member later, counts the publication as past from the
beginning. Each of them acknowledges when the publication is past in the space, which is later than when it has arrived.
When all have, or have left, the source tells every node that it knows, and nobody names the publication any more.

A fabric may tell a source that a member has left when it publishes again, or not at all if the source has left, too. So
a source asks those that have not acknowledged for long. A node that is no member answers at once: if it becomes one
again, it counts the publication as past.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable

from antiphon.spaces.header import Frontier, sorted_frontier


class SpaceStability:
    """The own publications of one node that are not stable, and what it has to acknowledge to others."""

    def __init__(self, me: int) -> None:
        self._me = me
        # By topic: own publications with the nodes that must have them, in sequence; no topic without any.
        self._open: dict[int, deque[tuple[int, list[int]]]] = {}
        self._acked: dict[int, dict[int, int]] = {}
        # By source, then by topic: up to which number this node has something that it has not acknowledged.
        self._to_acknowledge: Frontier = {}
        self._to_announce: dict[int, int] = {}
        self._stable: dict[int, int] = {}
        # Topics that this node has left with own publications that are not stable; whom to ask, and up to which number.
        self._left: set[int] = set()
        self._to_ask: Frontier = {}
        self._gone: set[int] = set()
        self.waits = False
        """Whether nodes that can be reached may have to be asked."""

    # Own publications.

    def started(self, topic: int, number: int, recipients: Iterable[int]) -> None:
        """An own publication starts; these nodes must have it."""
        needed = [node for node in recipients if node != self._me]
        self._open.setdefault(topic, deque()).append((number, needed))
        self.waits = True

    def acknowledged(self, node: int, topic: int, number: int) -> None:
        """A node has everything of this source on a topic up to a number."""
        acked = self._acked.setdefault(topic, {})
        acked[node] = max(number, acked.get(node, 0))

    def settle(self, topic: int, members: Iterable[int] | None) -> int:
        """The last own publication on a topic that is stable, given its present members; 0 if that is no news.

        A node that has left the topic does not know the members. It asks those that were members and waits for each,
        unless it is gone.
        """
        waiting = self._open.get(topic)
        if waiting is None or (members is None and topic not in self._left):
            return 0
        present = None if members is None else set(members)
        stable = 0
        while waiting and all(self._has(node, topic, waiting[0][0], present) for node in waiting[0][1]):
            stable = waiting.popleft()[0]
        if not waiting:
            del self._open[topic]
            self._left.discard(topic)
        if stable:
            self._to_announce[topic] = self._stable[topic] = stable
        return stable

    def _has(self, node: int, topic: int, number: int, present: set[int] | None) -> bool:
        if self._acked.get(topic, {}).get(node, 0) >= number:
            return True
        return node in self._gone if present is None else node not in present

    # Own memberships.

    def left(self, topic: int) -> None:
        """This node is no member of a topic any more, and does not see others leave."""
        if topic in self._open:
            self._left.add(topic)

    def joined(self, topic: int) -> None:
        """This node is a member of a topic, and knows the others."""
        self._left.discard(topic)

    def ask(self, lost: Container[int]) -> bool:
        """Ask those that have not acknowledged and can be reached; whether there are any."""
        for topic, waiting in self._open.items():
            acked = self._acked.get(topic, {})
            for number, needed in waiting:
                for node in needed:
                    if acked.get(node, 0) < number and node not in lost:
                        self._to_ask.setdefault(node, {})[topic] = number
        self.waits = bool(self._to_ask)
        return self.waits

    def found(self) -> None:
        """A node can be reached again: what was said to it may be lost."""
        self._to_announce.update(self._stable)
        self.waits = bool(self._open)

    def back(self, node: int) -> None:
        """A node is there again."""
        self._gone.discard(node)

    def gone(self, node: int) -> None:
        """A node is not expected back."""
        self._gone.add(node)

    def take_questions(self) -> Frontier:
        """The numbers to ask for since the last call, by node and topic."""
        found, self._to_ask = self._to_ask, {}
        return found

    def open_topics(self) -> list[int]:
        """The topics with own publications that are not stable."""
        return list(self._open)

    def take_announcement(self) -> dict[int, int]:
        """The numbers up to which publications became stable since the last call, by topic."""
        found, self._to_announce = self._to_announce, {}
        return found

    # Publications of others.

    def past_grew(self, topic: int, source: int, number: int) -> None:
        """This node has the publications of a source on a topic up to a number."""
        if source != self._me:
            self._to_acknowledge.setdefault(source, {})[topic] = number

    def take_acknowledgements(self) -> Frontier:
        """The numbers to acknowledge since the last call, by source and topic."""
        found, self._to_acknowledge = self._to_acknowledge, {}
        return found

    def has_news(self) -> bool:
        """Whether there is something to acknowledge, to announce or to ask."""
        return bool(self._to_acknowledge or self._to_announce or self._to_ask)

    def state(self) -> str:
        """The content as text."""
        waiting = [(topic, list(each)) for topic, each in sorted(self._open.items())]
        asked = f"{sorted_frontier(self._to_ask)} {sorted(self._left)}"
        return f"{waiting} {sorted_frontier(self._acked)} {sorted_frontier(self._to_acknowledge)} {asked}"
