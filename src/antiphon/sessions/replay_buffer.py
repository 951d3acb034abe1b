"""The last batches of a topic that a node has shown, for clients that come from another node.

A client whose node is gone says what it has seen, and since when it was subscribed. The new node sends what it has
shown and the client has not seen. It also says whether that may be too little: because it was no member of the topic
all that time, or because what the client lacks is not kept any more. Then other members are asked.
"""

from __future__ import annotations

from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, final

from mypy_extensions import i64, mypyc_attr

from antiphon.sessions.dedup import DedupTable, Ranges
from antiphon.sessions.seen_lists import PackedLists

BATCHES_AT_MOST: int = 4096
BYTES_AT_MOST: Final = 4 << 20
"""How much is kept of one topic. It has to last for as long as a client takes to find another node, a second or so."""

BATCH_BYTES: Final = 512
"""The objects of a batch, beside its payload; they count, too."""

BYTES_OF_ALL_AT_MOST: int = 128 << 20
"""How much is kept of all topics; the topic on which something comes that is too much gives up its oldest."""

AUTHORS_AT_MOST: Final = 4096
"""Of whose dropped batches the last is remembered."""

DROPPED_AT_ONCE: Final = 64
"""The oldest batches are given up by this part of all that are kept."""

LONG_AGO_US: Final = -(1 << 62)


class ShownBatch(Protocol):
    """A batch as a node shows it to subscribers."""

    @property
    def author(self) -> int:
        """The client or node that published it."""

    @property
    def number(self) -> int:
        """Its number among the batches of its author."""

    @property
    def is_written(self) -> bool:
        """Whether an exactly-once writer published it."""

    @property
    def publisher(self) -> int:
        """The node that published it."""

    @property
    def sequence(self) -> int:
        """Its number among the publications of that node."""

    @property
    def order(self) -> str:
        """Its order."""

    @property
    def payload(self) -> bytes:
        """Its messages."""

    @property
    def total_keys(self) -> set[bytes | None]:
        """The keys that it is about; one that stands for all others if it names none."""


B = TypeVar("B", bound=ShownBatch)


class Budget:
    """How much is kept of all topics of a node together."""

    def __init__(self) -> None:
        self.bytes = 0


class TotalOrderScope(NamedTuple):
    """How far the total order of a node reaches: over all keys of a topic, and over what is weaker and published later.

    On a tree with ``strict_session = false`` what somebody publishes in order waits for no earlier total message.
    """

    is_over_all_keys: bool = False
    is_strict: bool = True


PER_KEY: Final = TotalOrderScope()


@final
@mypyc_attr(acyclic=True)
class KeptBatch:
    """A batch, when it was shown, and what remains of it when it is dropped: its author and number, and its size."""

    def __init__(self, time_us: i64, batch: Any, author: int, number: int, size: i64) -> None:
        self.time_us: Final[i64] = time_us
        self.batch: Final[Any] = batch
        self.author: Final[int] = author
        self.number: Final[int] = number
        self.size: Final[i64] = size


# Shared by all topics that have nothing of a kind: they stay empty.
NOTHING_BEFORE: Final[dict[int, Ranges]] = {}
NOTHING_KEPT: Final[list[KeptBatch]] = []
NOTHING_DROPPED: Final[dict[int, tuple[int, int]]] = {}

NO_MEMBER_US: Final = -1
NOBODY_ASKED_US: Final = -1


class ReplayBuffer(Generic[B]):
    """The last batches of one topic. Times are microseconds of the monotonic clock."""

    def __init__(self, budget: Budget, total_order: TotalOrderScope = PER_KEY) -> None:
        self._budget = budget
        self._total_order = total_order
        # Since when the node is a member.
        self._since_us: int = NO_MEMBER_US
        # When the node itself has last missed something.
        self._lost_at_us = LONG_AGO_US
        # All that was ever shown.
        self.shown = DedupTable()
        # Publications by publisher and number: those that counted as past when the node became a member and that it has
        # not shown in an earlier life either, and all that counted as past or were shown.
        self.before: dict[int, Ranges] = NOTHING_BEFORE
        self.past = DedupTable()
        # The oldest first. A topic at rest mostly keeps one batch, for which a list takes a tenth of what a deque does.
        self._kept: list[KeptBatch] = NOTHING_KEPT
        self._bytes = 0
        # Of each author the last batch that is not kept any more; and until when that is not known of everybody.
        self._dropped: dict[int, tuple[int, int]] = NOTHING_DROPPED
        self._forgotten_until_us = LONG_AGO_US

    def begin(self, now_us: int) -> None:
        """The node is a member from now on."""
        self._since_us = now_us
        self.before = NOTHING_BEFORE
        self.past = DedupTable()
        self._kept = NOTHING_KEPT
        self._budget.bytes -= self._bytes
        self._bytes = 0
        self._dropped = NOTHING_DROPPED
        self._forgotten_until_us = LONG_AGO_US
        self._lost_at_us = LONG_AGO_US

    def starts_behind(self, past: DedupTable) -> None:
        """These publications counted as past when the node became a member.

        Its log may have held the last of them. They were added here, so that clients are shown them as all others.
        """
        shown = self.past.ranges()
        if not shown and not past.ranges(1):
            return
        self.before = past.without(shown).ranges()
        past.merge(shown)
        self.past = past

    def before_all(self, others: list[dict[int, Ranges]]) -> dict[int, Ranges]:
        """The publications that neither this node nor any other has shown: they counted as past when each became one.

        A node that has delivered what counts as past here has shown the rest of that, now or in an earlier life.
        """
        before = DedupTable(self.before)
        for other in others:
            before = before.in_common(other)
        return before.ranges()

    def end(self) -> None:
        """The node is no member any more."""
        self.begin(0)
        self._since_us = NO_MEMBER_US

    def lost(self, now_us: int) -> None:
        """The node itself has missed something, and can only speak for what comes."""
        self._since_us = now_us
        self._lost_at_us = now_us

    def has_lost_since(self, time_us: int) -> bool:
        """Whether the node itself has missed something since then."""
        return self._lost_at_us >= time_us

    def member_us(self, now_us: int) -> int:
        """For how long the node is a member, and has missed nothing; 0 if it is none."""
        return 0 if self._since_us == NO_MEMBER_US else max(0, now_us - self._since_us)

    def add(self, now_us: int, batch: B) -> None:
        """A batch is shown."""
        author, number = batch.author, batch.number
        self.shown.add(author, number, batch.is_written)
        self.past.add(batch.publisher, batch.sequence)
        if not self._kept:
            self._kept = []
        kept, budget, size = self._kept, self._budget, BATCH_BYTES + len(batch.payload)
        kept.append(KeptBatch(now_us, batch, author, number, size))
        self._bytes += size
        budget.bytes += size
        while len(kept) > BATCHES_AT_MOST or (
            (self._bytes > BYTES_AT_MOST or budget.bytes > BYTES_OF_ALL_AT_MOST) and len(kept) > 1
        ):
            self._drop(max(1, len(kept) // DROPPED_AT_ONCE))

    def _drop(self, count: int) -> None:
        """Give up the oldest; of a long list several at once, because the others move up."""
        if not self._dropped:
            self._dropped = {}
        for each in self._kept[:count]:
            self._bytes -= int(each.size)
            self._budget.bytes -= int(each.size)
            self._dropped.pop(each.author, None)
            self._dropped[each.author] = (each.number, int(each.time_us))
            if len(self._dropped) > AUTHORS_AT_MOST:
                _, self._forgotten_until_us = self._dropped.pop(next(iter(self._dropped)))
        del self._kept[:count]

    def unseen(self, seen: DedupTable, since_us: int) -> list[B]:
        """The batches that were shown since then, were not seen, and were not passed over at the former node.

        Nodes may have missed something, and not the same everywhere. If something was seen that waits for a batch, as
        all that is in order waits for what its author published before, or that is after it in total order, the batch
        is too late: a gap was told in its place.
        """
        return self._unseen(seen, since_us)[0]

    def has_passed(self, seen: DedupTable, since_us: int, past: DedupTable | None = None) -> bool:
        """Whether a total batch was shown here before one that was seen, and perhaps nobody was told of a gap for it.

        Where nodes pass over what comes too late, the former node may never have heard of it. ``past`` are the
        publications that came before the subscription, or were shown to it.
        """
        passed = self._unseen(seen, since_us)[1] if self._total_order.is_over_all_keys else []
        return any(past is None or not past.has(batch.publisher, batch.sequence) for batch in passed)

    def _unseen(self, seen: DedupTable, since_us: int) -> tuple[list[B], list[B]]:
        """The unseen batches for which it is not too late, and the total ones that are behind others' in place."""
        found: list[B] = []
        late: list[B] = []
        # From the last to the first.
        passed = SeenSince(self._total_order)
        for each in reversed(self._kept):
            if each.time_us < since_us:
                break
            batch: B = each.batch
            if seen.has(batch.author, batch.number):
                passed.add(batch)
            elif not passed.waited_for(batch):
                found.append(batch)
            elif batch.order == "total" and not passed.has_later_of_author(batch):
                late.append(batch)
        return found[::-1], late

    def may_lack(self, seen: DedupTable, since_us: int, was_here: bool = False) -> bool:
        """Whether somebody who was subscribed since then may be owed more than is kept here.

        If it ``was_here`` all the time, the node was a member for long enough.
        """
        if self._since_us == NO_MEMBER_US or (self._since_us > since_us and not was_here):
            return True
        return not self.is_whole(seen, since_us, was_here)

    def is_whole(self, seen: DedupTable, since_us: int, was_here: bool = False) -> bool:
        """Whether all is kept that this node has shown since then and that has not been seen, and it missed nothing.

        A client that ``was_here`` has been told of what the node missed.
        """
        if self._forgotten_until_us >= since_us or (self._lost_at_us >= since_us and not was_here):
            return False
        return not any(
            time_us >= since_us and seen.highest(author) < number for author, (number, time_us) in self._dropped.items()
        )


class SeenSince:
    """The batches that a client has seen among those shown here after some place."""

    def __init__(self, total_order: TotalOrderScope) -> None:
        self._total_order = total_order
        # The highest number of each author among those in order, and among the total ones.
        self._ordered: dict[int, int] = {}
        self._total: dict[int, int] = {}
        self._keys: set[bytes | None] = set()

    def add(self, batch: ShownBatch) -> None:
        """It has seen this one."""
        # A batch without order may be shown before earlier ones of its author, and has not waited for them.
        if batch.order == "none":
            return
        self._ordered[batch.author] = max(batch.number, self._ordered.get(batch.author, 0))
        if batch.order == "total":
            self._total[batch.author] = max(batch.number, self._total.get(batch.author, 0))
            if self._total_order.is_over_all_keys or not batch.is_written:
                # A writer may have written it again, and then it has no order with what others published. Where nodes
                # pass over what is late, a gap is told for what is behind it.
                self._keys |= self._keys_of(batch)

    def waited_for(self, batch: ShownBatch) -> bool:
        """Whether something of it was not shown anywhere before this one, unless this one was missed there."""
        if batch.order != "total":
            return self._ordered.get(batch.author, 0) > batch.number
        return self.has_later_of_author(batch) or not self._keys.isdisjoint(self._keys_of(batch))

    def has_later_of_author(self, batch: ShownBatch) -> bool:
        """Whether a batch of its author that waits for this total one was shown."""
        later = self._ordered if self._total_order.is_strict else self._total
        return later.get(batch.author, 0) > batch.number

    def _keys_of(self, batch: ShownBatch) -> set[bytes | None]:
        """The keys in whose order it has a place; those that name none share one."""
        return {None} if self._total_order.is_over_all_keys else batch.total_keys


class Resumption(Generic[B]):
    """Where a client's subscription goes on that was effective elsewhere since a time of the monotonic clock."""

    def __init__(
        self,
        client: int,
        since_us: int,
        seen: dict[str, dict[int, Ranges]],
        past: dict[str, dict[int, Ranges]] | None = None,
    ) -> None:
        self.client = client
        self.since_us = since_us
        self._seen = PackedLists(seen)
        self._past = PackedLists(past or {})
        # By topic, unseen batches of another node, where this one has not kept enough, and when it was asked.
        self._fetched: dict[str, tuple[int, list[B]]] = {}

    @property
    def size_bytes(self) -> int:
        """How much memory its lists take."""
        return self._seen.size_bytes + self._past.size_bytes

    def seen_on(self, topic: str) -> DedupTable:
        """The batches that were seen on a topic."""
        return DedupTable(self._seen.on(topic))

    def is_behind(self, topic: str, publications: dict[int, Ranges]) -> bool:
        """Whether all these publications were shown to it on a topic, or came before it."""
        return DedupTable(self._past.on(topic)).has_all(publications)

    def fetch(self, topic: str, asked_at_us: int, batches: list[B]) -> None:
        """Another node has answered for what had come here when it was asked."""
        self._fetched[topic] = (asked_at_us, batches)

    def replay(self, topic: str, replay_buffer: ReplayBuffer[B]) -> tuple[bool, list[B]]:
        """Whether something may be missing, and the batches with which the subscription goes on here."""
        seen = self.seen_on(topic)
        asked_at_us, fetched = self._fetched.pop(topic, (NOBODY_ASKED_US, []))
        if asked_at_us == NOBODY_ASKED_US:
            is_gap = replay_buffer.may_lack(seen, self.since_us)
        else:
            is_gap = replay_buffer.has_lost_since(asked_at_us)
        is_gap = is_gap or replay_buffer.has_passed(seen, self.since_us, DedupTable(self._past.on(topic)))
        return is_gap, [*fetched, *replay_buffer.unseen(seen, self.since_us)]
