"""The knowledge of a live node about one topic: who here publishes and subscribes, and how far it has delivered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from antiphon.api.batch import Batch
from antiphon.api.outbox import Outbox, set_if_waiting
from antiphon.api.topic_names import topic_number
from antiphon.kernel.errors import UsageError
from antiphon.runtime.clocks import monotonic_us
from antiphon.sessions.dedup import Arrivals, DedupTable, LoggedPublications
from antiphon.sessions.replay_buffer import PER_KEY, Budget, ReplayBuffer, TotalOrderScope
from antiphon.sessions.steps import Promise


class Sink(Protocol):
    """Something here that wants the messages of a topic: a subscription, or a client's."""

    @property
    def reads_messages(self) -> bool:
        """Whether it looks into batches; a gateway only forwards them."""

    def push(self, topic: LiveTopic, batch: Batch) -> None:
        """Take a batch. It never waits: a sink that cannot keep up says so through ``LiveTopic.fell_behind``."""

    def miss(self, topic: LiveTopic) -> None:
        """Here messages are missing."""

    def fail(self, error: BaseException) -> None:
        """Nothing more will come, for this reason."""


NO_SINKS: Final[tuple[Sink, ...]] = ()
SINKS_IN_ROW: Final = 8
"""More sinks of one topic than this are in a table; fewer take less memory, and less time, in a row."""

# Shared by all topics that have nothing of a kind: they stay empty.
NOBODY_BEHIND: Final[dict[Sink, None]] = {}
NOTHING_RECORDED: Final[dict[int, int]] = {}
NEVER_LOGGED: Final = LoggedPublications()


class BytesInFlight:
    """How many bytes of this node's publications on one topic are under way: their sizes, the oldest first.

    A process counts publications: how many more it takes before others have acknowledged some. Publications have
    between one byte and ten megabytes, so their number bounds no memory. The last publications are acknowledged last,
    so the number that is under way says which ones these are.
    """

    def __init__(self, size: int) -> None:
        # There are a few of them at most.
        self._sizes = [size]
        self.bytes = size

    def add(self, size: int) -> None:
        """One more is under way."""
        self._sizes.append(size)
        self.bytes += size

    def keep(self, count: int) -> None:
        """No more than so many are still under way."""
        sizes = self._sizes
        while len(sizes) > count and sizes:
            self.bytes -= sizes.pop(0)


class LiveTopic:
    """One topic at one node."""

    def __init__(self, name: str, budget: Budget | None = None, total_order: TotalOrderScope = PER_KEY) -> None:
        self.name = name
        self.number = topic_number(name)
        self.outbox: Outbox | None = None
        self._sinks: tuple[Sink, ...] | dict[Sink, None] = NO_SINKS
        # How many of them look into batches.
        self.reading_sinks = 0
        # Whoever on this node takes batches before they are on disk, and waits for the disk itself.
        self.takers: tuple[Callable[[Batch], object], ...] = ()
        # Subscriptions that read the log and will be sinks when they have caught up.
        self.readers = 0
        # Subscriptions that wait for the membership.
        self.beginners = 0
        # Done when this node's membership is effective.
        self.joined: asyncio.Future[None] | None = None
        # Whether everybody has heard that this node publishes here.
        self.is_announced = False
        # Whether some client's session waits for what is delivered here.
        self.is_watched = False
        # Kept when this node knows whose batches others had seen here, see :class:`antiphon.sessions.node_end.NodeEnd`.
        self.learned: Promise[None] | None = None
        # Messages up to the first have got their offset; up to the second, subscribers may see them.
        self.end_offset = 0
        self.visible_offset = 0
        # Where the log was when the membership began, and that of what is not for subscribers.
        self.log_from = 0
        self.passed_over_from = 0
        # Until when, on the loop's clock, publishers elsewhere or here wait for acknowledgements.
        self.hurried_until = 0.0
        # What was delivered, so that nothing is delivered twice, and the last of what was shown.
        self.seen = Arrivals()
        # The last batches of clients that an earlier life of this node has logged.
        self.logged_before: DedupTable | None = None
        # Where the log has what was delivered last, by the keys of publications; only where others may ask for it.
        self.recorded: dict[int, int] = NOTHING_RECORDED
        # What the log has ever held; only where a node comes back with its log.
        self.logged = NEVER_LOGGED
        self.replay_buffer: ReplayBuffer[Batch] = ReplayBuffer(budget or Budget(), total_order)
        # What this node has published and others may not have acknowledged.
        self.under_way: BytesInFlight | None = None
        self.repeated_batches = 0
        # Those of the sinks that hold as much as they may, and whether there are any.
        self._behind: dict[Sink, None] = NOBODY_BEHIND
        self.is_behind = False
        self.delivered_messages = 0
        self.delivered_bytes = 0
        # Batches that this node will never deliver; and those of them that came too late for total order.
        self.lost_batches = 0
        self.late_batches = 0
        # Whether the last that happened was such a loss, of which subscribers have not been told yet.
        self.is_missing = False

    def is_member(self) -> bool:
        """Whether the membership is effective."""
        return self.joined is not None and self.joined.done() and not self.joined.cancelled()

    def may_publish(self) -> bool:
        """Whether whoever must know that this node publishes here knows it."""
        joined = self.joined
        return self.is_announced and joined is not None and joined.done() and not joined.cancelled()

    def sent(self, size: int) -> None:
        """A publication of so many bytes is under way from here."""
        if self.under_way is None:
            self.under_way = BytesInFlight(size)
        else:
            self.under_way.add(size)

    def acknowledged_but(self, count: int) -> int:
        """No more than so many publications are still under way from here; gives their bytes."""
        under_way = self.under_way
        if under_way is None:
            return 0
        if count == 0:
            self.under_way = None
            return 0
        under_way.keep(count)
        return under_way.bytes

    @property
    def bytes_under_way(self) -> int:
        """How many bytes are under way from here."""
        return 0 if self.under_way is None else self.under_way.bytes

    def is_wanted(self) -> bool:
        """Whether anybody here still publishes or subscribes."""
        return self.outbox is not None or bool(self._sinks) or self.readers > 0 or self.beginners > 0

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """The readers of the messages of this topic."""
        return tuple(self._sinks)

    @property
    def behind(self) -> tuple[Sink, ...]:
        """The sinks for which the publishers of this topic wait."""
        return tuple(self._behind)

    def add_sink(self, sink: Sink) -> None:
        """From now on a sink gets what is shown."""
        sinks = self._sinks
        if sink in sinks:
            return
        self.reading_sinks += sink.reads_messages
        if isinstance(sinks, dict):
            sinks[sink] = None
        elif len(sinks) < SINKS_IN_ROW:
            self._sinks = (*sinks, sink)
        else:
            self._sinks = dict.fromkeys((*sinks, sink))

    def remove_sink(self, sink: Sink) -> bool:
        """A sink wants nothing more, so nobody waits for it either; true if it was the last to wait for."""
        sinks = self._sinks
        if sink in sinks:
            self.reading_sinks -= sink.reads_messages
            if isinstance(sinks, dict):
                del sinks[sink]
            else:
                self._sinks = tuple([each for each in sinks if each is not sink])
        return self.caught_up(sink)

    def show(self, batch: Batch) -> None:
        """Let the subscribers see a batch."""
        self.visible_offset = batch.end_offset
        self.replay_buffer.add(monotonic_us(), batch.bare())
        for sink in tuple(self._sinks):
            sink.push(self, batch)

    def miss(self) -> None:
        """Tell the subscribers that messages are missing; what is lost from now on is another gap."""
        self.is_missing = False
        self.replay_buffer.lost(monotonic_us())
        for sink in tuple(self._sinks):
            sink.miss(self)

    def fell_behind(self, sink: Sink) -> None:
        """A sink has as much as it may hold; the publishers are slowed until it has caught up, or has ended.

        They are slowed for sinks alone: a sink that has ended takes nothing, and would hold them for ever.
        """
        if sink in self._sinks:
            if not self._behind:
                self._behind = {}
            self._behind[sink] = None
            self.is_behind = True

    def caught_up(self, sink: Sink) -> bool:
        """A sink has room again; true if it was the last to wait for."""
        if sink not in self._behind:
            return False
        del self._behind[sink]
        self.is_behind = bool(self._behind)
        if not self.is_behind:
            self._behind = NOBODY_BEHIND
        return not self.is_behind


class LiveTopicTable:
    """The topics of one node, by their names and numbers."""

    def __init__(self, total_order: TotalOrderScope) -> None:
        self.by_name: dict[str, LiveTopic] = {}
        self.by_number: dict[int, LiveTopic] = {}
        self._budget = Budget()
        self._total_order = total_order
        # What topics whose membership is effective share, instead of a future for each.
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.done.set_result(None)
        # Up to which offset the log holds a topic, where there is a log.
        self.logged_end: Callable[[str], int] | None = None

    def topic(self, name: str) -> LiveTopic:
        """The state of a topic, made now if it is new."""
        found = self.by_name.get(name)
        if found is None:
            found = LiveTopic(name, self._budget, self._total_order)
            other = self.by_number.setdefault(found.number, found)
            if other is not found:
                raise UsageError(f"the names {name!r} and {other.name!r} have the same number; rename one of them")
            self.by_name[name] = found
            if self.logged_end is not None:
                found.end_offset = found.visible_offset = self.logged_end(name)
                found.logged = LoggedPublications()
                found.logged.is_known = found.end_offset == 0
        return found

    def became_member(self, topic: LiveTopic) -> None:
        """The subscription of the process to a topic is effective: those who wait for that go on."""
        if topic.joined is not None:
            set_if_waiting(topic.joined)
            # All topics share one future that is done: those who wait hold the other.
            topic.joined = self.done
