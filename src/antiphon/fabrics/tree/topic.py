"""The state of one topic at one broker."""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from antiphon.fabrics.tree.durable_state import NUMBERS_AHEAD
from antiphon.fabrics.tree.messages import COMPLETION, DATA, LOCK, Frontier, Item, Known, LockItem
from antiphon.kernel.message import Keyed, publication_key
from antiphon.kernel.process import UNBOUNDED

SHUT: Final[i64] = 0
JOINING: Final[i64] = 1
OPEN: Final[i64] = 2
"""Whether the link to the parent carries a topic, is being asked to, or does not."""


def lacks(frontier: Frontier, base: Frontier) -> bool:
    """Whether a broker with this frontier lacks items of a base."""
    return any(frontier.get(origin, 0) < number for origin, number in base.items())


@final
class TreeLock:
    """A publication that has a place in the order and is not yet completed."""

    def __init__(self, item: Item) -> None:
        self.item: Item = item
        self.publication: Final[Keyed] = item.publication
        # The latest epoch in which a root has locked it; with the number of the item, its place in the order.
        self.epoch: i64 = epoch_of(item)
        # In which epoch each child last said that all below it is closed, and in which this broker said so.
        self.closed_in: dict[i64, i64] = {}
        self.said_in: i64 = 0
        # The epoch of the latest lock of it that is on disk here, and of the latest that is being written there.
        self.safe_epoch: i64 = -1
        self.saved_epoch: i64 = -1

    def renew(self, item: Item) -> None:
        """Note that a later root has locked it too."""
        epoch = epoch_of(item)
        if epoch > self.epoch:
            self.item = item
            self.epoch = epoch


def epoch_of(item: Item) -> i64:
    """The epoch in which something was locked; unknown is before all others."""
    return item.epoch if isinstance(item, LockItem) else 0


def place_of(lock: TreeLock) -> tuple[int, int]:
    """For sorting: what a later root has locked comes first, and what one root has locked in its order."""
    return (-int(lock.epoch), int(lock.item.number))


@final
class TreeTopic:
    """All that one broker knows about one topic."""

    def __init__(self, name: i64, owner: i64, first_number: i64 = 0) -> None:
        self.name: Final[i64] = name
        # The broker that knows this, and up to which number earlier incarnations of it may have published.
        self.owner: Final[i64] = owner
        self.first_number: Final[i64] = first_number
        # Whether what becomes of the stream is written down.
        self.is_written: bool = False
        # The application's wish, and whether it is fulfilled.
        self.is_wanted: bool = False
        self.is_subscribed: bool = False
        # Whether this broker is part of the topic's tree, and which of its links are.
        self.is_carried: bool = False
        # Whether others may begin with what is here: nothing will be skipped any more.
        self.is_settled: bool = False
        # Whether it is settled when everything has come that neighbours have promised to send, and what that is.
        self.is_settling: bool = False
        self.promised: dict[int, Frontier] = {}
        self.up: i64 = SHUT
        self.children: set[int] = set()
        # Whether this broker carries the topic for the sake of total publications, and which children are told to.
        self.is_needed: bool = False
        self.told: set[int] = set()
        # Whether nothing was known of the topic here when it began, while a broker was absent that may have known more.
        self.is_apart: bool = False
        # The stream: the items in their order of arrival, as far as not all brokers have them.
        self.items: list[Item] = []
        self.frontier: Frontier = {}
        self.base: Frontier = {}
        # What had come when the subscription took effect: what came later was delivered.
        self.subscribed_at: Frontier = {}
        # What all brokers of the epoch are known to have got.
        self.agreed: Frontier = {}
        self.injected: i64 = 0
        # Total publications.
        self.locks: dict[i64, TreeLock] = {}
        self.closed_keys: dict[i64, i64] = {}
        # Keys that were opened since the waiting publications were told.
        self.opened: list[int] = []
        # The last completed one of each source; the same for the part of the stream that is not kept any more.
        self.completed: Frontier = {}
        self.base_completed: Frontier = {}
        # What the application published: numbers, and what has to wait.
        self.published: i64 = first_number
        # How many of them all brokers of the topic have got, and those of which that is not known.
        self.settled: i64 = first_number
        self.unsettled: deque[Item] = deque()
        # What it asked for and has not got: publications, or else to be (True) or not to be (False) a subscriber.
        self.requests: deque[object] = deque()
        self.is_publishing: bool = False
        self.ordered: deque[Keyed] = deque()
        # Those without order wait for keys only; each is found under one of those that it waits for.
        self.waiting_for: dict[i64, list[Keyed]] = {}
        self.waiting_free: i64 = 0
        self.proposed: dict[i64, Keyed] = {}

    def end(self) -> None:
        """Stop carrying the topic; what was known of it is out of date when it is carried again."""
        self.is_carried = False
        self.is_settled = False
        self.is_settling = False
        self.promised.clear()
        self.is_apart = False
        self.is_written = False
        self.up = SHUT
        self.frontier = {}
        self.base = {}
        self.completed = {}
        self.base_completed = {}
        self.locks.clear()
        self.closed_keys.clear()

    def has_all_promised(self) -> bool:
        """Whether everything has come that neighbours had when they connected, so that others may begin here.

        A subscriber that begins earlier gets old publications after its own.
        """
        return not any(lacks(self.frontier, frontier) for frontier in self.promised.values())

    # The stream.

    def is_new(self, item: Item) -> bool:
        """Whether an item has not come before; items of one origin come without gaps."""
        got = self.frontier.get(item.origin, 0)
        # Of an origin that was never heard of, neither here nor where this broker began, any number is the first.
        is_next = got == 0 or item.number <= got + 1
        assert is_next, f"{item.origin}'s item {item.number} of topic {self.name} comes after {got}"
        return item.number > got

    def take(self, item: Item) -> None:
        """Keep a new item."""
        self.frontier[item.origin] = item.number
        self.items.append(item)
        is_delivered = item.kind == DATA or item.kind == COMPLETION
        if is_delivered and item.source == self.owner and item.sequence > self.first_number:
            self.unsettled.append(item)

    def missing_at(self, frontier: Frontier) -> list[Item]:
        """The kept items beyond the frontier of another broker, in their order of arrival."""
        return [item for item in self.items if item.number > frontier.get(item.origin, 0)]

    def missed(self, known: Known) -> list[tuple[int, int, int]]:
        """The items that a subscriber here will never get, because no broker keeps them: origin, first and last number.

        That happens only to a broker that was absent for so long that the others gave it up. It does not miss items
        from before the topic began here.
        """
        if not self.is_subscribed or self.is_apart:
            return []
        return [
            (origin, self.frontier.get(origin, 0) + 1, number)
            for origin, number in sorted(known.base.items())
            if self.frontier.get(origin, 0) < number
        ]

    def begin_at(self, known: Known) -> None:
        """Begin with nothing but what another broker will not send.

        Everything here came from a parent that was lost before it had sent all.
        """
        self.items = []
        for name in list(self.locks):
            self.remove_lock(name)
        self.frontier = dict(known.base)
        self.base = dict(known.base)
        self.completed = {}
        self.base_completed = {}
        self.skip_to(known)

    def skip_to(self, known: Known) -> None:
        """Count what another broker will not send as got."""
        for origin, number in known.base.items():
            if self.frontier.get(origin, 0) < number:
                self.frontier[origin] = number
                self.base[origin] = number
        self.items = [item for item in self.items if item.number > self.base.get(item.origin, 0)]
        kept = self._first_kept_completions()
        for source, sequence in known.completed.items():
            # This broker sends what it keeps, so its neighbours must not count that as completed.
            skipped = min(sequence, kept.get(source, sequence + 1) - 1)
            if self.base_completed.get(source, 0) < skipped:
                self.base_completed[source] = skipped
            if self.completed.get(source, 0) < sequence:
                self.completed[source] = sequence
        # What is skipped may be the completion of something that had come before.
        for name, lock in list(self.locks.items()):
            if lock.publication.sequence <= self.completed.get(lock.publication.source, 0):
                self.remove_lock(name)
        for item in known.locks:
            self.add_lock(item)

    def _first_kept_completions(self) -> Frontier:
        """The first completion of each source that is kept, without those that another root had completed before."""
        first: Frontier = {}
        for item in self.items:
            if item.kind == COMPLETION and item.sequence > self.base_completed.get(item.source, 0):
                first.setdefault(int(item.source), item.sequence)
        return first

    def take_back(self, items: list[Item], base: Frontier) -> None:
        """Keep again what was forgotten: all that the base held beyond this lower one."""
        self.items = items + self.items
        self.base.update(base)
        is_completed: set[int] = set()
        for item in items:
            if item.kind == COMPLETION and item.source not in is_completed:
                # Those of one source are completed in the order of their numbers.
                is_completed.add(int(item.source))
                self.base_completed[item.source] = item.sequence - 1

    def remember(self, history: list[Item]) -> None:
        """Keep items from before this broker began, for others that may need them."""
        for item in history:
            self.take(item)
            if item.kind == LOCK:
                self.add_lock(item)
            elif item.kind == COMPLETION:
                self.remove_outlived_locks(item.publication)
                self.remove_lock(publication_key(item.source, item.sequence))
                # After a partition the completions of two roots may follow each other.
                self.completed[item.source] = max(item.sequence, self.completed.get(item.source, 0))

    def known(self) -> tuple[Frontier, Frontier, list[Item]]:
        """The facts that stand for publications that are not kept: ``base``, ``completed`` and ``locks``."""
        base = self.base
        locks = [lock.item for lock in self.locks.values() if lock.item.number <= base.get(lock.item.origin, 0)]
        return dict(base), dict(self.base_completed), locks

    def settle(self, stable: Frontier) -> None:
        """Note which items all brokers have, and count the publications of this broker among them."""
        self.agreed = stable
        while self.unsettled and self.unsettled[0].number <= stable.get(self.unsettled[0].origin, 0):
            self.unsettled.popleft()
            self.settled += 1

    def is_agreed(self) -> bool:
        """Whether all brokers are known to have all items."""
        return all(number <= self.agreed.get(origin, 0) for origin, number in self.frontier.items())

    def forget(self, stable: Frontier) -> None:
        """Drop items that all brokers have, unless this broker has begun since and they are still on their way here."""
        if not lacks(self.base, stable) or lacks(self.frontier, stable):
            return
        kept: list[Item] = []
        for item in self.items:
            if item.number > stable.get(item.origin, 0):
                kept.append(item)
                continue
            if item.kind == COMPLETION:
                self.base_completed[item.source] = max(item.sequence, self.base_completed.get(item.source, 0))
        self.items = kept
        for origin, number in stable.items():
            if self.base.get(origin, 0) < number:
                self.base[origin] = number

    # Locks.

    def add_lock(self, item: Item) -> None:
        """Close the keys of a publication that is locked, perhaps once more by a later root."""
        publication = item.publication
        name = publication_key(publication.source, publication.sequence)
        if publication.sequence <= self.completed.get(publication.source, 0):
            return
        known = self.locks.get(name)
        if known is not None:
            known.renew(item)
            return
        self.locks[name] = TreeLock(item)
        for key in publication.keys:
            self.closed_keys[key] = self.closed_keys.get(key, 0) + 1

    def remove_lock(self, name: i64) -> None:
        """Open the keys of a total publication that is completed."""
        lock = self.locks.pop(name, None)
        if lock is None:
            return
        for key in lock.publication.keys:
            closed = self.closed_keys[key] - 1
            if closed == 0:
                del self.closed_keys[key]
                self.opened.append(int(key))
            else:
                self.closed_keys[key] = closed

    def remove_outlived_locks(self, publication: Keyed) -> None:
        """Open the keys of what an earlier incarnation of the same source had begun, which no root completes any more.

        A majority completes a publication of a later incarnation after all publications of earlier ones that it knows.
        So no root has completed the rest, and none will.
        """
        if publication.sequence - self.completed.get(publication.source, 0) < NUMBERS_AHEAD // 2:
            # Both are of one incarnation, which has had all before it completed.
            return
        for name, lock in list(self.locks.items()):
            earlier = lock.publication
            if earlier.source == publication.source and earlier.sequence < publication.sequence:
                self.remove_lock(name)

    def is_closed(self, publication: Keyed) -> bool:
        """Whether any key of a publication is closed."""
        if not self.closed_keys:
            return False
        return any(key in self.closed_keys for key in publication.keys)

    def pending(self) -> list[Keyed]:
        """The publications that are locked and not completed, in the order in which they are to be completed."""
        return [lock.publication for lock in sorted(self.locks.values(), key=place_of)]

    # What the application published.

    def wait_for_key(self, publication: Keyed) -> None:
        """Let a publication without order wait for one of its keys that is closed."""
        for key in publication.keys:
            if key in self.closed_keys:
                self.waiting_for.setdefault(key, []).append(publication)
                self.waiting_free += 1
                return
        raise AssertionError("only what has a closed key has to wait")

    def take_opened(self) -> list[int]:
        """The keys that were opened since this was last asked, however that came about."""
        opened = self.opened
        self.opened = []
        return opened

    def stop_waiting(self, keys: list[int]) -> list[Keyed]:
        """The publications without order that waited for keys which are open now."""
        released: list[Keyed] = []
        for key in keys:
            if key not in self.closed_keys:
                released += self.waiting_for.pop(key, [])
        self.waiting_free -= len(released)
        return released

    def has_proposed(self) -> bool:
        """Whether a total publication of this broker is under way that its publisher waits for.

        A barrier is not one. Without a majority it stays under way, and would stop every client of this broker because
        one of them came from another broker.
        """
        return any(not publication.is_barrier() for publication in self.proposed.values())

    def first_unsettled(self) -> i64:
        """The number of this broker's first publication that waits, or that not all brokers are known to have."""
        first: i64 = UNBOUNDED
        for request in self.requests:
            if isinstance(request, Keyed):
                first = min(first, request.sequence)
        for publication in (*self.ordered, *self.proposed.values()):
            first = min(first, publication.sequence)
        for waiting in self.waiting_for.values():
            for publication in waiting:
                first = min(first, publication.sequence)
        for item in self.unsettled:
            first = min(first, item.sequence)
        return first

    def is_idle(self) -> bool:
        """Whether the topic is not needed here: no subscriber, no child, no item that others may still ask for."""
        waiting = len(self.items) + len(self.requests) + self.in_progress()
        return (
            not self.is_needed and not self.is_wanted and not self.is_subscribed and not self.children and waiting == 0
        )

    def unfinished(self) -> i64:
        """The waiting requests: publications, total ones among them, and the wish to subscribe."""
        return self.in_progress() + len(self.requests) + len(self.locks)

    def in_progress(self) -> i64:
        """The publications that have not all begun."""
        return len(self.ordered) + self.waiting_free + len(self.proposed)
