"""Which publications are stable: past at every node that may still get something that follows them.

The source of a publication decides. When the publication starts, the source notes the members of the topic that it
knows; the fabric promises that any other node, if it becomes a member later, counts the publication as past from the
beginning. Each of them acknowledges when the publication is past in the space, which is later than when it has arrived.
When all have, or have left, the source tells every node that it knows, and nobody names the publication any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from antiphon.spaces.header import Frontier, sorted_frontier


class SpaceStability:
    """The own publications of one node that are not stable, and what it has to acknowledge to others."""

    def __init__(self, me: int) -> None:
        self._me = me
        # By topic: own publications with the nodes that must have them, in sequence.
        self._open: dict[int, deque[tuple[int, list[int]]]] = {}
        self._acked: dict[int, dict[int, int]] = {}
        # By source, then by topic: up to which number this node has something that it has not acknowledged.
        self._to_acknowledge: Frontier = {}
        self._to_announce: dict[int, int] = {}
        self._stable: dict[int, int] = {}

    # Own publications.

    def started(self, topic: int, number: int, recipients: Iterable[int]) -> None:
        """An own publication starts; these nodes must have it."""
        needed = [node for node in recipients if node != self._me]
        self._open.setdefault(topic, deque()).append((number, needed))

    def acknowledged(self, node: int, topic: int, number: int) -> None:
        """A node has everything of this source on a topic up to a number."""
        acked = self._acked.setdefault(topic, {})
        acked[node] = max(number, acked.get(node, 0))

    def settle(self, topic: int, members: Iterable[int]) -> int:
        """The last own publication on a topic that is stable, given its present members; 0 if that is no news."""
        waiting = self._open.get(topic)
        if not waiting:
            return 0
        present = set(members)
        acked = self._acked.get(topic, {})
        stable = 0
        while waiting and all(acked.get(node, 0) >= waiting[0][0] or node not in present for node in waiting[0][1]):
            stable = waiting.popleft()[0]
        if stable:
            self._to_announce[topic] = self._stable[topic] = stable
        return stable

    def take_announcement(self) -> dict[int, int]:
        """The numbers up to which publications became stable since the last call, by topic."""
        found, self._to_announce = self._to_announce, {}
        return found

    def announce_again(self) -> None:
        """Announce everything that is stable once more: somebody may not have heard."""
        self._to_announce.update(self._stable)

    # Publications of others.

    def past_grew(self, topic: int, source: int, number: int) -> None:
        """This node has the publications of a source on a topic up to a number."""
        if source != self._me and number > 0:
            self._to_acknowledge.setdefault(source, {})[topic] = number

    def take_acknowledgements(self) -> Frontier:
        """The numbers to acknowledge since the last call, by source and topic."""
        found, self._to_acknowledge = self._to_acknowledge, {}
        return found

    def has_news(self) -> bool:
        """Whether there is something to acknowledge or to announce."""
        return bool(self._to_acknowledge or self._to_announce)

    def state(self) -> str:
        """The content as text."""
        waiting = [(topic, list(each)) for topic, each in sorted(self._open.items()) if each]
        return f"{waiting} {sorted_frontier(self._acked)} {sorted_frontier(self._to_acknowledge)}"
