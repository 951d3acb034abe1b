"""Subscriptions that read the history of a topic: from a position on, or from the earliest message that there is.

Messages in the history come in its order, each with its position, and later messages come when they have
its position too. So these subscriptions show the same at every node, and wait while a majority of the replicas is away.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from antiphon.api.batch import Batch, Message
from antiphon.api.iteration import Callback, messages_of
from antiphon.api.pubsub import Subscription, SubscriptionTable
from antiphon.api.streams.starts import StartPlace, place_of
from antiphon.api.streams.stream_api import StreamCalls
from antiphon.api.subscription import LiveSubscription, Start, WhenMissed
from antiphon.api.topic_names import checked_name
from antiphon.api.topic_state import LiveTopic
from antiphon.kernel.errors import AntiphonError
from antiphon.streams.position import Position, generation_of

Options = tuple[Callback | None, str, int, WhenMissed | None]
"""What was said about a subscription beside its topic and start: callback, policy, limit, ``when_missed``."""


class HistoryFeed:
    """The host of one subscription: it hands it the history of its topic."""

    has_log: Final = False

    def __init__(self, calls: StreamCalls, topic: str, start: Start, options: Options) -> None:
        loop = asyncio.get_running_loop()
        self._calls = calls
        self._topic = LiveTopic(checked_name(topic))
        # From a position on means behind it: whoever has seen that message goes on with the next one.
        self._position = int(start) + 1 if isinstance(start, Position) else place_of(str(start)).position
        self._start = StartPlace(self._position, generation_of(start))
        callback, policy, limit, when_missed = options
        self._is_patient = policy == "block"
        self._ready: asyncio.Future[None] = loop.create_future()
        self._room = asyncio.Event()
        self.subscription = LiveSubscription(self, topic, start, callback, policy, limit, when_missed)
        self.subscription.begin_at(self._topic, max(0, self._position))
        self._reading = loop.create_task(self._read())

    async def _read(self) -> None:
        try:
            async for piece in self._calls.pieces(self._topic.name, self._start, follow=True):
                if not self._ready.done():
                    self._ready.set_result(None)
                for batch in piece.batches:
                    await self._push(batch, piece.is_compacted)
        except AntiphonError as error:
            if not self._ready.done():
                self._ready.set_exception(error)
                # A program that iterates without waiting for readiness gets it there.
                self._ready.exception()
            self.subscription.fail(error)

    async def _push(self, batch: Batch, is_compacted: bool) -> None:
        subscription = self.subscription
        if 0 <= self._position < batch.first_offset and not is_compacted:
            # Retention has removed what was between.
            subscription.miss(self._topic)
        self._position = batch.end_offset
        while self._is_patient and not subscription.is_empty and subscription.queued + len(batch) > subscription.limit:
            self._room.clear()
            await self._room.wait()
        subscription.push(self._topic, batch)

    # What the subscription asks for.

    async def subscription_ready(self, subscription: LiveSubscription) -> None:
        """Wait until the history answers."""
        await asyncio.shield(self._ready)

    def subscription_closed(self, subscription: LiveSubscription, topics: list[LiveTopic]) -> None:
        """Nothing more is wanted."""
        self._reading.cancel()

    def taken(self, subscription: LiveSubscription, batch: Batch, from_offset: int) -> None:
        """There is room for more."""
        self._room.set()

    def first_offset(self, topic: LiveTopic, start: Start) -> int:
        """The history decides."""
        return max(0, self._position)

    def read_log(self, topic: LiveTopic, offset: int, max_bytes: int) -> list[Batch]:
        """There is none."""
        return []

    def release_credit(self, topic: LiveTopic, subscription: LiveSubscription) -> None:
        """No publisher waits for readers of the history."""
        topic.caught_up(subscription)


class EarliestSubscription(Subscription):
    """A subscription from the earliest message on: to the history of the topic, or to the log of the node if it has
    none."""

    def __init__(self, calls: StreamCalls, table: SubscriptionTable, topic: str, options: Options) -> None:
        self._calls = calls
        self._table = table
        self._topic = topic
        self._options = options
        self._chosen: LiveSubscription | None = None
        self._live = NOTHING_YET  # type: ignore[assignment]
        self._choosing = asyncio.get_running_loop().create_task(self._choose())
        # Whoever waits or iterates gets its error.
        self._choosing.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _choose(self) -> LiveSubscription:
        if await self._calls.has_history(self._topic):
            chosen = HistoryFeed(self._calls, self._topic, "earliest", self._options).subscription
        else:
            chosen = self._table.add(self._topic, "earliest", *self._options)
        chosen.heard = self._calls.heard
        self._chosen = self._live = chosen
        return chosen

    async def ready(self) -> EarliestSubscription:
        """Wait until every message that is published from now on will arrive; returns the subscription."""
        await (await asyncio.shield(self._choosing)).ready()
        return self

    async def _messages(self) -> AsyncIterator[Message]:
        async for message in messages_of(await asyncio.shield(self._choosing)):
            yield message

    async def _batches(self) -> AsyncIterator[list[Message]]:
        async for batch in Subscription(await asyncio.shield(self._choosing)).batches():
            yield batch

    def __aiter__(self) -> AsyncIterator[Message]:
        return self._messages()

    def batches(self) -> AsyncIterator[list[Message]]:
        """Iterate over lists of messages, as they arrive: the quickest way to take many."""
        return self._batches()

    async def close(self) -> None:
        """End the subscription. Messages that wait in it are dropped, and iterating over it ends."""
        self._choosing.cancel()
        if self._chosen is not None:
            self._chosen.end()

    @property
    def pattern(self) -> str:
        """The topic that it was made with."""
        return self._topic


class NothingYet:
    """The visible state of a subscription that has not begun."""

    is_closed = False
    queued = dropped = expired = gaps = 0


NOTHING_YET: Final = NothingYet()
