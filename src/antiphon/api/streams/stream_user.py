"""The calls of a node or a client about topics with a history."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from antiphon.api.columns import Receipt
from antiphon.api.pubsub import PubSub, PubSubHost
from antiphon.api.streams.consumption import Consumption
from antiphon.api.streams.stream_api import HistoryMessage, SettledReceipt, StreamCalls, Topics


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

    def history(
        self, topic: str, start: str | int = "earliest", *, follow: bool = True
    ) -> AsyncIterator[HistoryMessage]:
        """The history of a topic from a position on, the same at every node; without ``follow`` it ends at its end."""
        self._pubsub.refuse_if_closed()
        return self._streams.history(topic, start, follow)

    async def settled(self, receipt: Receipt, timeout: float = 15.0) -> SettledReceipt:
        """Wait until a published message has its position, on the disks of a majority of the topic's replicas."""
        self._pubsub.refuse_if_closed()
        return await self._streams.settled(receipt, timeout)
