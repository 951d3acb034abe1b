"""The calls of a node or a client about topics with a history."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from antiphon.api.batch import Message
from antiphon.api.columns import Receipt
from antiphon.api.iteration import Callback
from antiphon.api.pubsub import PubSub, PubSubHost, Subscription
from antiphon.api.streams.consumption import Consumption
from antiphon.api.streams.history_subscriptions import EarliestSubscription, HistoryFeed
from antiphon.api.streams.stream_api import SETTLE_SECONDS, SettledReceipt, StreamCalls, Topics
from antiphon.api.subscription import DEFAULT_LIMIT, Start, WhenMissed
from antiphon.api.topic_names import checked_pattern, is_pattern
from antiphon.streams.position import Position


class StreamUser(PubSub):
    """A node or a client: besides publishing and subscribing, topics with a history, and their consumers."""

    def __init__(self, live: PubSubHost, streams: StreamCalls) -> None:
        super().__init__(live)
        self._streams: Final[StreamCalls] = streams

    @property
    def address(self) -> str:
        """The address of its node."""
        raise NotImplementedError

    @property
    def topics(self) -> Topics:
        """The topics with a history: make, list, describe and remove them."""
        return self._streams.topics

    def subscribe(
        self,
        topic: str,
        start: Start = "latest",
        *,
        callback: Callback | None = None,
        policy: str = "block",
        limit: int = DEFAULT_LIMIT,
        when_missed: WhenMissed | None = None,
    ) -> Subscription:
        self._pubsub.refuse_if_closed()
        options = (callback, policy, limit, when_missed)
        if isinstance(start, Position):
            return Subscription(HistoryFeed(self._streams, topic, start, options).subscription)
        if start == "earliest" and not is_pattern(checked_pattern(topic)):
            return EarliestSubscription(self._streams, self._pubsub.subscriptions, topic, options)
        return Subscription(self._pubsub.subscriptions.add(topic, start, *options))

    subscribe.__doc__ = PubSub.subscribe.__doc__

    def consume(
        self,
        topic: str,
        name: str,
        *,
        mode: str = "any",
        ack_seconds: float = 30.0,
        max_deliveries: int = 0,
        start: str | int = "earliest",
        window: int = 256,
    ) -> Consumption:
        """Take messages of a topic with a history, as a member of a named consumer.

        Each message goes to one of the members: ``mode`` ``"any"`` hands it to any of them, ``"key"`` hands the
        messages of one key to one member, in order. Acknowledge each (``await message.ack()``): a message that is not
        acknowledged within ``ack_seconds``, or whose member goes, is handed out again. After ``max_deliveries`` it is
        published on the topic's dead letters (``TOPIC.dead``) instead. ``start`` counts when the consumer is new:
        ``"earliest"``, ``"latest"`` or a position. A member takes ``window`` messages at a time.
        """
        self._pubsub.refuse_if_closed()
        return self._streams.consume(topic, name, mode, ack_seconds, max_deliveries, start, window)

    def history(self, topic: str, start: str | int = "earliest", *, follow: bool = True) -> AsyncIterator[Message]:
        """The history of a topic from a position on, the same at every node; without ``follow`` it ends at its end."""
        self._pubsub.refuse_if_closed()
        return self._streams.history(topic, start, follow)

    async def settled(self, receipt: Receipt, timeout: float = 15.0) -> SettledReceipt:
        """Wait until a published message has its position, on the disks of a majority of the topic's replicas."""
        self._pubsub.refuse_if_closed()
        return await self._streams.settled(receipt, timeout)

    async def position_of(self, message: Message) -> Position:
        """The position of a message, also of one that came before it had one.

        The leader of the history remembers the positions of its last 4,096 publications; of an earlier one it does not
        answer within 15 seconds.
        """
        self._pubsub.refuse_if_closed()
        if message.position is not None:
            return message.position
        receipt = Receipt(message.topic, message.author, message.author_sequence)
        return (await self._streams.settled(receipt, SETTLE_SECONDS)).position
