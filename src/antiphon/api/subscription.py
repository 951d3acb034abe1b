"""Subscriptions: messages of a topic, or of all topics that match a pattern, as an iterator or to a callback.

A *ready* subscription receives every message that is published from then on. Messages wait for the application in a
bounded queue; the policy of the subscription says what happens when the queue is full:

* ``block`` (the default): nothing is dropped. The publishers of the topic are slowed; at a node with a log the
  subscription goes on reading from the log instead, and nobody is slowed.
* ``drop_oldest``, ``drop_newest``: whole batches are dropped and counted in ``dropped``.
* ``disconnect``: the subscription ends with :class:`SlowConsumerError`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final, Protocol

from antiphon.api.batch import Batch, Message
from antiphon.api.heard import HeardTable
from antiphon.api.iteration import Callback, call_for_each
from antiphon.api.outbox import set_if_waiting
from antiphon.api.topic_state import LiveTopic
from antiphon.api.waiting import Mark, Meter, WaitingBatches
from antiphon.kernel.errors import AntiphonError, ProtocolError, UsageError
from antiphon.runtime.clocks import wall_clock_us
from antiphon.runtime.errors import MissedMessagesError, SlowConsumerError
from antiphon.runtime.logging import logger
from antiphon.runtime.tasks import Tasks
from antiphon.sessions.dedup import DedupTable
from antiphon.sessions.replay_buffer import Resumption

POLICIES: Final = ("block", "drop_oldest", "drop_newest", "disconnect")
DEFAULT_LIMIT: Final = 65_536
REPLAY_BYTES: Final = 1 << 20
"""How much of a log is read at a time."""

Start = str | int | datetime
WhenMissed = Callable[[str], None]
"""Is told the topic of which messages may be missing."""

log = logger("subscription")


def checked_start(start: Start) -> Start:
    """Where a subscription begins: ``latest``, ``earliest``, an offset or a time."""
    if isinstance(start, str) and start not in ("latest", "earliest"):
        raise UsageError(f"a subscription starts at 'latest', 'earliest', an offset or a datetime, not at {start!r}")
    if isinstance(start, int) and start < 0:
        raise UsageError(f"offsets count from 0; there is no offset {start}")
    if isinstance(start, datetime) and start.tzinfo is None:
        raise UsageError("a time to start from needs a time zone; use for example datetime.now(UTC)")
    return start


class SubscriptionHost(Protocol):
    """The services of the node or client that a subscription belongs to."""

    @property
    def has_log(self) -> bool:
        """Whether what was delivered can be read again."""

    async def subscription_ready(self, subscription: LiveSubscription) -> None:
        """Wait until a subscription is effective."""

    def subscription_closed(self, subscription: LiveSubscription, topics: list[LiveTopic]) -> None:
        """A subscription has ended."""

    def first_offset(self, topic: LiveTopic, start: Start) -> int:
        """The offset at which a subscription begins."""

    def read_log(self, topic: LiveTopic, offset: int, max_bytes: int) -> list[Batch]:
        """Batches from the log."""

    def taken(self, subscription: LiveSubscription, batch: Batch, from_offset: int) -> None:
        """The application has taken a batch."""

    def release_credit(self, topic: LiveTopic, subscription: LiveSubscription) -> None:
        """A subscription that had fallen behind has room again."""


class LiveSubscription:
    """The queue of one subscription: hosts push batches into it, and an application takes messages out of it."""

    def __init__(
        self,
        host: SubscriptionHost,
        pattern: str,
        start: Start = "latest",
        callback: Callback | None = None,
        policy: str = "block",
        limit: int = DEFAULT_LIMIT,
        when_missed: WhenMissed | None = None,
    ) -> None:
        if policy not in POLICIES:
            raise UsageError(f"a subscription's policy is {', '.join(POLICIES)}, not {policy!r}")
        if limit < 1:
            raise UsageError(f"a subscription holds at least 1 message, not {limit}")
        self.pattern = pattern
        self.start = checked_start(start)
        self.policy = policy
        self.limit = limit
        self.dropped = 0
        self.delivered = 0
        self.expired = 0
        self.gaps = 0
        self.resumption: Resumption[Batch] | None = None
        # Whose it is, for those who look at the node.
        self.owner = "this program"
        self._host = host
        self._when_missed = when_missed
        self.has_callback = callback is not None
        self._callback = callback if callback is not None and not inspect.iscoroutinefunction(callback) else None
        # Whether it looks into batches, as all do but those of gateways.
        self.reads_messages = True
        # Where its program publishes, too: what it has received.
        self.heard: HeardTable | None = None
        # Whether marks say where each topic begins, as gateways want it.
        self.marks_beginnings = False
        # Where gateways want it: the batches that were dropped since somebody took note of them.
        self.dropped_batches: dict[LiveTopic, DedupTable] | None = None
        self._waiting = WaitingBatches(limit)
        self.current: Iterator[Message] = iter(())
        # Its topics, with the offset from which on each of them is wanted.
        self._from_offset: dict[LiveTopic, int] = {}
        self._waiter: asyncio.Future[None] | None = None
        # Where a gateway takes what comes: called when something has come, or nothing more will.
        self.when_arrived: Callable[[], None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._failure: BaseException | None = None
        self._is_closed = False
        self._has_ended = False
        # The topics whose publishers may be waiting for this subscription.
        self._held: dict[LiveTopic, None] = {}
        self._reading: set[LiveTopic] = set()
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks()
        if callback is not None and self._callback is None:
            self._tasks.spawn(call_for_each(self, callback))

    # What the application does (:class:`antiphon.api.pubsub.Subscription`).

    async def ready(self) -> None:
        """Wait until every message that is published from now on will arrive."""
        await self._host.subscription_ready(self)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits for the application."""
        return not self._waiting.entries

    def arrival(self) -> asyncio.Future[None] | None:
        """Done when something has come, or nothing more will; None if that is known. Raises why it ended, if it did."""
        if self._waiting.entries:
            return None
        if self._failure is not None:
            raise self._failure
        if self._is_closed:
            return None
        self._waiter = self._loop.create_future()
        return self._waiter

    @property
    def is_closed(self) -> bool:
        """Whether nothing more will be added to what has come."""
        return self._is_closed

    @property
    def failure(self) -> BaseException | None:
        """The error with which it ended, if it did."""
        return self._failure

    @property
    def queued(self) -> int:
        """How many messages wait for the application."""
        return self._waiting.messages

    def count_memory(self, meter: Meter) -> None:
        """Count its memory together with that of other subscriptions of an identity, as gateways do."""
        self._waiting.meter = meter

    def end(self) -> None:
        """End the subscription at once: when this returns, its host knows nothing of it any more."""
        if self._has_ended:
            return
        self._is_closed = True
        self._waiting.clear()
        self._end()
        self._wake()

    def _end(self) -> None:
        """Nothing more is wanted of the host; what has come may still be taken."""
        self._has_ended = True
        self._tasks.cancel()
        for topic in self._reading:
            topic.readers -= 1
        self._reading.clear()
        topics = list(self._from_offset)
        self._held.clear()
        # The host first forgets it, then lets those go on who waited for it: what they publish is not for it.
        self._host.subscription_closed(self, topics)

    # What the node does.

    def begin(self, topic: LiveTopic) -> None:
        """Start with a topic whose membership is effective: at its end, or with what its log holds."""
        if self._is_closed or topic in self._from_offset:
            return
        if self.resumption is not None:
            self._resume(topic, self.resumption)
            return
        offset = self._from_offset[topic] = self._host.first_offset(topic, self.start)
        if offset >= topic.visible_offset:
            self._mark_beginning(topic)
            topic.add_sink(self)
        else:
            self._read_from(topic, offset)

    def _resume(self, topic: LiveTopic, resumption: Resumption[Batch]) -> None:
        """Begin with what has been shown here and was not seen elsewhere."""
        self._from_offset[topic] = 0
        topic.add_sink(self)
        is_gap, batches = resumption.replay(topic.name, topic.replay_buffer)
        if is_gap:
            self.miss(topic)
        for batch in batches:
            if self in topic.sinks:
                # Else there was more than it may hold, and it goes on with the log.
                self.push(topic, batch)
        self._mark_beginning(topic)

    def _mark_beginning(self, topic: LiveTopic) -> None:
        if self.marks_beginnings:
            buffer = topic.replay_buffer
            self._waiting.add_mark(topic, Mark(buffer.shown.ranges(), buffer.past.ranges()))
            self._wake()

    def begin_at(self, topic: LiveTopic, offset: int) -> None:
        """Show the messages of a topic from this offset on."""
        self._from_offset[topic] = offset

    def push(self, topic: LiveTopic, batch: Batch) -> None:
        """A batch has been delivered."""
        if self._is_closed:
            return
        if self._callback is not None:
            self._call(topic, batch)
            self._host.taken(self, batch, self._from_offset.get(topic, 0))
            return
        waiting = self._waiting
        if not waiting.has_room_for(batch) and not self._make_room(topic, batch):
            return
        if waiting.add(topic, batch) and self.policy == "block" and not self._host.has_log:
            topic.fell_behind(self)
            self._held[topic] = None
        if self._waiter is not None or self.when_arrived is not None:
            self._wake()

    def miss(self, topic: LiveTopic) -> None:
        """Here messages may be missing."""
        if self._is_closed:
            return
        self.gaps += 1
        if self._when_missed is not None:
            self._when_missed(topic.name)
        elif self.has_callback:
            log.error("messages may be missing", topic=topic.name, pattern=self.pattern)
        else:
            self._waiting.add_mark(topic, Mark())
            self._wake()

    def fail(self, error: BaseException) -> None:
        """End with an error, after what has come."""
        self._failure = error
        self._is_closed = True
        self._wake()

    def revoke(self, error: BaseException) -> None:
        """End with an error at once: nothing more is shown, not even what has come."""
        self._waiting.clear()
        self.fail(error)
        if not self._has_ended:
            self._end()

    def _make_room(self, topic: LiveTopic, batch: Batch) -> bool:
        """The queue is full: do what the policy says; whether the batch is to be taken."""
        if self.policy == "block":
            if not self._host.has_log:
                return self._is_allowed(batch)
            # The log has it: go on from there when the application has taken what waits.
            topic.remove_sink(self)
            self._read_from(topic, batch.first_offset)
            return False
        if self.policy == "drop_newest":
            self._drop(topic, batch)
            return False
        if self.policy == "drop_oldest":
            return self._drop_oldest_for(topic, batch)
        self.fail(
            SlowConsumerError(
                f"the subscription to {self.pattern!r} had {self.queued} messages waiting and was ended; "
                "take them faster, raise its limit or choose another policy"
            )
        )
        self._end()
        return False

    def _is_allowed(self, batch: Batch) -> bool:
        """Whether publishers wait for it; if its identity has no memory left, it ends instead."""
        meter = self._waiting.meter
        if meter is None or not self._waiting.refuses(batch):
            return True
        self.fail(meter.memory_used_up(f"the subscription to {self.pattern!r} was ended"))
        self._end()
        return False

    def _drop_oldest_for(self, topic: LiveTopic, batch: Batch) -> bool:
        """Drop batches until there is room for another; whether there is. Marks stay: they tell what is missing."""
        marks: list[tuple[LiveTopic, Mark]] = []
        waiting = self._waiting
        while waiting.entries and not waiting.has_room_for(batch):
            of_topic, oldest = waiting.take()
            if isinstance(oldest, Batch):
                self._drop(of_topic, oldest)
            else:
                marks.append((of_topic, oldest))
        waiting.put_back(marks)
        if waiting.refuses(batch):
            # Its identity has no memory left, and nothing of it is here.
            self._drop(topic, batch)
            return False
        return True

    def _drop(self, topic: LiveTopic, batch: Batch) -> None:
        self.dropped += batch.count
        if self.dropped_batches is not None:
            self.dropped_batches.setdefault(topic, DedupTable()).add(batch.author, batch.number, batch.is_written)

    def _call(self, topic: LiveTopic, batch: Batch) -> None:
        callback = self._callback
        assert callback is not None, "only subscriptions with a callback call"
        try:
            messages = self._visible(topic, batch)
        except ProtocolError as unreadable:
            log.error("a batch cannot be read", cause=unreadable, topic=topic.name, publisher=batch.publisher)
            return
        self.delivered += len(messages)
        for message in messages:
            try:
                callback(message)
            except Exception as error:
                # One bad message must not cost the others, nor the node's other subscriptions.
                log.error("a callback failed", cause=error, topic=topic.name, offset=message.offset)

    def take_messages(self) -> list[Message] | None:
        """The messages of the next batch in the queue; None if nothing waits there."""
        if not self._waiting.entries:
            return None
        topic, batch = self._take()
        if not isinstance(batch, Batch):
            raise MissedMessagesError(topic.name)
        messages = self._visible(topic, batch)
        self.delivered += len(messages)
        return messages

    def take_raw(self) -> tuple[LiveTopic, Batch | Mark, int]:
        """The next batch or mark, with the offset from which on its topic is wanted: for gateways."""
        topic, batch = self._take()
        if isinstance(batch, Batch):
            self.delivered += batch.count
        return topic, batch, self._from_offset.get(topic, 0)

    def _take(self) -> tuple[LiveTopic, Batch | Mark]:
        """The next batch or mark in the queue."""
        topic, batch = self._waiting.take()
        if not isinstance(batch, Batch):
            return topic, batch
        self._host.taken(self, batch, self._from_offset.get(topic, 0))
        if (self._held or self._room is not None) and self._waiting.is_half_empty:
            # Publishers that go on may fill the queue again at once, and hold other topics, or the same.
            held = list(self._held)
            self._held.clear()
            for released in held:
                self._host.release_credit(released, self)
            if self._room is not None:
                set_if_waiting(self._room)
        return topic, batch

    def _visible(self, topic: LiveTopic, batch: Batch) -> list[Message]:
        from_offset = self._from_offset.get(topic, 0)
        if self.heard is not None:
            self.heard.add(batch)
        if batch.columns.expires_us is None:
            return batch.messages(from_offset)
        messages = batch.messages(from_offset, wall_clock_us())
        self.expired += batch.count_from(from_offset) - len(messages)
        return messages

    def _read_from(self, topic: LiveTopic, offset: int) -> None:
        """Go on with the log."""
        self._reading.add(topic)
        topic.readers += 1
        self._tasks.spawn(self._replay(topic, offset))

    async def _replay(self, topic: LiveTopic, offset: int) -> None:
        """Read the log from an offset on, until there is nothing that the others have seen and this one has not."""
        try:
            while offset < topic.visible_offset:
                while not self._waiting.may_read(REPLAY_BYTES):
                    # Several topics may wait for the same room.
                    if self._room is None or self._room.done():
                        self._room = asyncio.get_running_loop().create_future()
                    await self._room
                for batch in self._host.read_log(topic, offset, REPLAY_BYTES):
                    if self._callback is not None:
                        self._call(topic, batch)
                    else:
                        self._waiting.add(topic, batch)
                    offset = batch.end_offset
                self._wake()
                await asyncio.sleep(0)
            if not self._is_closed:
                topic.add_sink(self)
        except AntiphonError as error:
            # The disk failed, or retention was quicker. Nothing more is wanted of its other topics either.
            self.fail(error)
            if not self._has_ended:
                self._end()
        finally:
            if topic in self._reading:
                self._reading.discard(topic)
                topic.readers -= 1

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)
        if self.when_arrived is not None:
            self.when_arrived()


class EmptySubscription(LiveSubscription):
    """A subscription of nobody: for its sake its node is a member, and it takes nothing."""

    def __init__(self, host: SubscriptionHost, pattern: str) -> None:
        super().__init__(host, pattern)
        self.reads_messages = False

    def miss(self, topic: LiveTopic) -> None:
        """Nobody is here to be told."""

    def push(self, topic: LiveTopic, batch: Batch) -> None:
        pass
