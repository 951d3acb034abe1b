"""The calls of a node or a client about topics with a history."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from antiphon.api.batch import Message
from antiphon.api.columns import Receipt
from antiphon.api.iteration import Callback
from antiphon.api.pubsub import PubSubHost, Subscription
from antiphon.api.streams.consumption import Consumption
from antiphon.api.streams.history_subscriptions import EarliestSubscription, HistoryFeed
from antiphon.api.streams.position_waits import SettledReceipt
from antiphon.api.streams.starts import StreamStart
from antiphon.api.streams.stream_api import SETTLE_SECONDS, StreamCalls
from antiphon.api.streams.table import Table
from antiphon.api.streams.topics import Topics
from antiphon.api.subscription import DEFAULT_LIMIT, LiveSubscription, Start, WhenMissed
from antiphon.api.topic_names import checked_pattern, is_pattern
from antiphon.streams.position import Position


class StreamUser:
    """The part of a node or a client that has to do with topics with a history, and their consumers."""

    def __init__(self, live: PubSubHost, streams: StreamCalls) -> None:
        self._stream_host: Final[PubSubHost] = live
        self._streams: Final[StreamCalls] = streams
        streams.heard = live.heard

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
        """Subscribe to a topic, or to all topics that match a pattern (``orders.*``, ``orders.>``).

        Iterate over the subscription, or give a ``callback``, which is called with each message. ``await
        subscription.ready()`` returns when every message that is published from then on will arrive.

        ``start`` is ``"latest"``, ``"earliest"``, an offset or a ``datetime`` with a time zone; all but the first need
        a node with a log. On a topic with a history, ``"earliest"`` and a position (``message.position``) work at every
        node: the subscription goes on behind the position, and each message has its own.

        ``policy`` says what happens when the program falls behind by more than ``limit`` messages: ``"block"``,
        ``"drop_oldest"``, ``"drop_newest"`` or ``"disconnect"``.

        If messages are missing, because no node has kept them, ``when_missed`` is called with the name of the topic.
        Without ``when_missed``, iterating raises ``MissedMessagesError`` once; iterate again to go on.
        """
        self._stream_host.refuse_if_closed()
        options = (callback, policy, limit, when_missed)
        if isinstance(start, Position):
            return Subscription(self._hearing(HistoryFeed(self._streams, topic, start, options).subscription))
        if start == "earliest" and not is_pattern(checked_pattern(topic)):
            return EarliestSubscription(self._streams, self._stream_host.subscriptions, topic, options)
        return Subscription(self._hearing(self._stream_host.subscriptions.add(topic, start, *options)))

    def _hearing(self, subscription: LiveSubscription) -> LiveSubscription:
        """A subscription of this program: what it shows is what later messages follow."""
        subscription.heard = self._stream_host.heard
        return subscription

    def consume(
        self,
        topic: str,
        name: str | None = None,
        *,
        mode: str = "any",
        ack_seconds: float = 30.0,
        max_deliveries: int = 0,
        start: StreamStart = "earliest",
        window: int = 256,
    ) -> Consumption:
        """Take messages of a topic with a history, as a member of a named consumer.

        Each message goes to one of the members. With ``mode`` ``"any"`` it goes to any of them, with ``"key"`` the
        messages of one key go to one member, in order, and with ``"causal"`` a message goes out when everything that it
        follows is acknowledged. Acknowledge each message (``await message.ack()``). A message that is not acknowledged
        within ``ack_seconds``, or whose member ends, is handed out again. After ``max_deliveries`` it is published on
        ``TOPIC.dead`` instead. ``start`` counts when the consumer is new: ``"earliest"``, ``"latest"``, a position
        or a ``datetime``. A member holds up to ``window`` messages at a time.

        Without a name the consumer is this program's alone, and ends with it. A pattern (``orders.*``) stands for the
        consumers of that name on all topics with a history that match, also on those that are made later.
        """
        self._stream_host.refuse_if_closed()
        return self._streams.consume(topic, name, mode, ack_seconds, max_deliveries, start, window)

    def history(self, topic: str, start: StreamStart = "earliest", *, follow: bool = True) -> AsyncIterator[Message]:
        """Read the history of a topic from a position or a ``datetime`` on; it is the same at every node.

        With ``follow`` the iterator waits at the end for new messages, without it the iterator ends there.
        """
        self._stream_host.refuse_if_closed()
        return self._streams.history(topic, start, follow)

    def table(self, topic: str) -> Table:
        """The newest message of each key of a topic with a history: ``async with client.table("prices") as table``.

        ``await table.get(key)`` is the newest message of a key, and ``table.changes()`` iterates over what changes.
        A topic with ``compact`` keeps the newest message of each key; otherwise a table has what retention has left.
        """
        self._stream_host.refuse_if_closed()
        return Table(self._streams, topic, self._stream_host.refuse_if_closed)

    async def settled(self, receipt: Receipt, timeout: float = 15.0) -> SettledReceipt:
        """Wait until a published message has its position, on the disks of a majority of the topic's replicas."""
        self._stream_host.refuse_if_closed()
        return await self._streams.settled(receipt, timeout)

    async def position_of(self, message: Message) -> Position:
        """The position of a message, also of one that came before it had one.

        It raises an error after 15 seconds if more than 4,096 publications of the topic have come since.
        """
        self._stream_host.refuse_if_closed()
        if message.position is not None:
            return message.position
        receipt = Receipt(message.topic, message.author, message.author_sequence)
        return (await self._streams.settled(receipt, SETTLE_SECONDS)).position
