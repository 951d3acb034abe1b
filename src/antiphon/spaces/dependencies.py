"""The names in the next publication of a node: the frontier of the publications that it follows, by topic.

Of a topic that the node is subscribed to, the entries are its direct predecessors there: a publication that comes
takes away what the order of its own topic puts before it. Of another topic nothing is known but what headers say, so
the entries are the highest numbers of each source. Entries that are stable are named no more
(:mod:`antiphon.spaces.stability`).

A publication names nothing of its own topic that its node has delivered: the order of the topic sees to that. It does
name what counted as past there without having been delivered, since the order of the topic does not put that before it.
"""

from __future__ import annotations

from collections.abc import Iterable

from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK
from antiphon.spaces.header import Frontier, sorted_frontier


class SpaceDependencies:
    """The causal past of one node in one space, as far as later publications must name it."""

    def __init__(self, me: int) -> None:
        self._me = me
        self._named: Frontier = {}
        self.size = 0
        """How many publications are named."""
        # What is stable: by topic and source the last number.
        self._stable: Frontier = {}
        # What counted as past here without having been delivered.
        self._unheard: Frontier = {}
        # Sources that are gone for so long that nobody waits for them.
        self._gone: set[int] = set()

    def of(self, topic: int) -> dict[int, int]:
        """The named publications of one topic."""
        return self._named.get(topic, {})

    def header_on(self, topic: int) -> Frontier:
        """The header of a publication on a topic: the publications that it names."""
        found = {other: dict(entries) for other, entries in self._named.items() if other != topic}
        own = self._unheard_of(topic)
        if own:
            found[topic] = own
        return found

    def _unheard_of(self, topic: int) -> dict[int, int]:
        unheard = self._unheard.get(topic)
        if unheard is None:
            return {}
        return {source: number for source, number in self.of(topic).items() if number <= unheard.get(source, 0)}

    def published(self, topic: int, sequence: int) -> None:
        """This node publishes: its publication stands for all that it follows on its topic."""
        entries = self._unheard_of(topic)
        entries[self._me] = sequence
        self.size += len(entries) - len(self.of(topic))
        self._named[topic] = entries

    def counted_unheard(self, topic: int, source: int, number: int) -> None:
        """Publications up to a number count as past here without having been delivered."""
        unheard = self._unheard.setdefault(topic, {})
        unheard[source] = max(number, unheard.get(source, 0))

    def delivered(self, topic: int, source: int, sequence: int, implied: Iterable[int], header: Frontier) -> None:
        """A publication is delivered; ``implied`` are the keys that the order of its topic puts before it."""
        for other, entries in header.items():
            for named_source, number in entries.items():
                self.add(other, named_source, number)
        own = self.of(topic)
        for key in implied:
            self._remove_implied(own, int(key) & SOURCE_MASK, int(key) >> SOURCE_BITS)
        self.add(topic, source, sequence)

    def _remove_implied(self, own: dict[int, int], source: int, number: int) -> None:
        if own.get(source, number + 1) <= number:
            del own[source]
            self.size -= 1

    def add(self, topic: int, source: int, number: int) -> None:
        """Name publications up to a number, unless they are stable."""
        stable = self._stable.get(topic)
        if source in self._gone or (stable is not None and number <= stable.get(source, 0)):
            return
        entries = self._named.setdefault(topic, {})
        before = entries.get(source, 0)
        if number > before:
            entries[source] = number
            self.size += before == 0

    def became_stable(self, topic: int, source: int, number: int) -> None:
        """All members of a topic have the publications of a source up to a number: nobody needs to name them."""
        stable = self._stable.setdefault(topic, {})
        stable[source] = max(number, stable.get(source, 0))
        entries = self._named.get(topic)
        if entries is not None and entries.get(source, number + 1) <= number:
            del entries[source]
            self.size -= 1
            if not entries:
                del self._named[topic]

    def source_gone(self, source: int) -> None:
        """Nobody waits any more for publications of a source, which cannot say what is stable: name them no more."""
        self._gone.add(source)
        for topic in [topic for topic, entries in self._named.items() if source in entries]:
            entries = self._named[topic]
            del entries[source]
            self.size -= 1
            if not entries:
                del self._named[topic]

    def source_found(self, source: int) -> None:
        """A source is there: what it publishes is named again."""
        self._gone.discard(source)

    def state(self) -> str:
        """The content as text."""
        return f"{sorted_frontier(self._named)} {sorted_frontier(self._stable)} {sorted_frontier(self._unheard)}"
