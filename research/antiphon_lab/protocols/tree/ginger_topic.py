"""The state of one broker of Ginger as published about one topic (sections 3.3 and 4.3 of the dissertation)."""

from __future__ import annotations

from collections import deque
from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.kernel.interval_set import IntervalSet
from antiphon.kernel.message import TOTAL, Keyed, publication_key
from antiphon_lab.protocols.tree.ginger_messages import LastNumbers

Arrival = tuple[Keyed, int]
"""A publication and the neighbour that it came from, NO_NODE for the application here."""


@final
class Buffered:
    """An entry of the bounded buffer; total publications enter when they come, and are completed later."""

    def __init__(self, publication: Keyed, is_completed: bool) -> None:
        self.publication: Final[Keyed] = publication
        self.is_completed: bool = is_completed


@final
class Pending:
    """A total publication in progress: linearT and childrenAcks of the listings."""

    def __init__(self, publication: Keyed, is_from_above: bool) -> None:
        self.publication: Final[Keyed] = publication
        # Whether the parent, or one that has failed since, asked for an acknowledgement.
        self.is_from_above: bool = is_from_above
        self.has_asked: bool = False
        # Whether this broker has acknowledged it to its parent, or sent it there.
        self.has_gone_up: bool = False
        # The brokers that have acknowledged, and the number of acknowledgements (D39).
        self.acknowledged: set[int] = set()
        self.acknowledgements: i64 = 0

    def acknowledge(self, child: i64) -> None:
        """A child has locked it."""
        self.acknowledged.add(int(child))
        self.acknowledgements += 1


@final
class Pool:
    """Publications that wait for locked keys, in the order of their arrival; those on the same key stay in order."""

    def __init__(self) -> None:
        self.waiting: deque[Arrival] = deque()
        self._keys: dict[int, int] = {}

    def has_any(self, keys: vec[i64]) -> bool:
        """Whether something waits that is about one of these keys."""
        return any(key in self._keys for key in keys)

    def add(self, publication: Keyed, sender: i64) -> None:
        """Let a publication wait."""
        self.waiting.append((publication, int(sender)))
        for key in publication.keys:
            self._keys[key] = self._keys.get(key, 0) + 1

    def take_all(self) -> list[Arrival]:
        """Everything that waits; it does not wait any more."""
        taken = list(self.waiting)
        self.waiting.clear()
        self._keys.clear()
        return taken


@final
class PublishedGingerTopic:
    """The variables of one topic at one broker."""

    def __init__(self, name: i64, buffer_size: i64) -> None:
        self.name: Final[i64] = name
        # The subscribers: the application here, the parent if there is a subscriber beyond it, and children.
        self.is_subscribed: bool = False
        self.has_parent: bool = False
        self.children: set[int] = set()
        self.published: i64 = 0
        # Locked keys with the publications that locked them, by the direction from which these came.
        self.locked_from_below: dict[int, set[int]] = {}
        self.locked_from_above: dict[int, set[int]] = {}
        self.pending: dict[int, Pending] = {}
        self.completed: set[int] = set()
        self.pool_own: Final[Pool] = Pool()
        self.pool_up: Final[Pool] = Pool()
        self.pool_down: Final[Pool] = Pool()
        self.buffer: deque[Buffered] = deque(maxlen=int(buffer_size))
        self._received: dict[int, IntervalSet] = {}
        # During a repair: publications that wait for its end, and up to where a new parent resends missed ones.
        self.on_hold: list[Arrival] = []
        self.missed: LastNumbers = {}

    def is_needed_below(self) -> bool:
        """Whether the application here or a child subscribes."""
        return self.is_subscribed or len(self.children) > 0

    def is_new(self, publication: Keyed) -> bool:
        """Whether a publication comes for the first time; the next time it does not."""
        source = int(publication.source)
        if source not in self._received:
            self._received[source] = IntervalSet()
        return self._received[source].add(publication.sequence)

    def keep(self, publication: Keyed, is_completed: bool) -> None:
        """Put a publication into the buffer; the oldest gives way."""
        self.buffer.append(Buffered(publication, is_completed))

    def mark_completed(self, publication: Keyed) -> None:
        """A total publication that is in the buffer, unless it is so old that it is not, is completed."""
        self.completed.add(publication_key(publication.source, publication.sequence))
        for entry in self.buffer:
            if entry.publication is publication:
                entry.is_completed = True

    def last_numbers(self) -> LastNumbers:
        """The last publication of each publisher in the buffer, in the order of the buffer."""
        last: LastNumbers = {}
        for entry in self.buffer:
            last[int(entry.publication.source)] = int(entry.publication.sequence)
        return last

    def last_completed(self) -> LastNumbers:
        """The last completed total publication of each publisher in the buffer."""
        last: LastNumbers = {}
        for entry in self.buffer:
            if entry.is_completed and entry.publication.order == TOTAL:
                last[int(entry.publication.source)] = int(entry.publication.sequence)
        return last

    def lock(self, pending: Pending) -> None:
        """Lock the keys of a total publication."""
        publication = pending.publication
        name = int(publication_key(publication.source, publication.sequence))
        locked = self.locked_from_above if pending.is_from_above else self.locked_from_below
        for key in publication.keys:
            locked.setdefault(int(key), set()).add(name)

    def unlock(self, publication: Keyed) -> None:
        """Take the locks of a total publication off, wherever they are."""
        name = int(publication_key(publication.source, publication.sequence))
        for locked in (self.locked_from_below, self.locked_from_above):
            for key in publication.keys:
                if key in locked:
                    locked[key].discard(name)
                    if not locked[key]:
                        del locked[key]

    def waiting(self) -> int:
        """How many publications are in progress or wait."""
        pools = len(self.pool_own.waiting) + len(self.pool_up.waiting) + len(self.pool_down.waiting)
        return pools + len(self.pending) + len(self.on_hold)
