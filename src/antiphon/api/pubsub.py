"""The objects that an application holds: a node or a client, which publishes and subscribes, and its subscriptions.

These classes have the calls of applications and nothing else. Everything behind them is in the *live* objects that they
hold: the node or client (:class:`PubSubHost`) and the queue of a subscription (:class:`LiveSubscription`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Final, Protocol, Self

from antiphon.api.batch import Message
from antiphon.api.iteration import Callback, batches_of, messages_of
from antiphon.api.lifecycle import close_after, raise_refusals
from antiphon.api.publisher import Publisher, PublishHost
from antiphon.api.subscription import LiveSubscription, Start, WhenMissed


class SubscriptionTable(Protocol):
    """All subscriptions at a node or a client."""

    def add(
        self,
        topic: str,
        start: Start,
        callback: Callback | None,
        policy: str,
        limit: int,
        when_missed: WhenMissed | None,
    ) -> LiveSubscription:
        """A new subscription."""


class PubSubHost(PublishHost):
    """The part of a live node or client that applications reach through :class:`PubSub`."""

    @property
    def subscriptions(self) -> SubscriptionTable:
        """Its subscriptions."""
        raise NotImplementedError

    def refuse_if_closed(self) -> None:
        """Raise the reason why nothing can be done any more, if there is one."""
        raise NotImplementedError

    async def until_accepted(self) -> None:
        """Wait until everything published so far is accepted, or has been refused."""
        raise NotImplementedError

    async def close(self) -> None:
        """Stop in an orderly way, and raise an error if messages were refused."""
        raise NotImplementedError

    async def abandon(self) -> None:
        """Stop at once."""
        raise NotImplementedError


class Subscription:
    """Messages of a topic, or of all topics that match a pattern. Made by ``subscribe``.

    Iterate over it with ``async for``. Close it with ``close``, or use it with ``async with``, which also waits until
    it is ready.
    """

    def __init__(self, live: LiveSubscription) -> None:
        self._live = live

    async def ready(self) -> Self:
        """Wait until every message that is published from now on will arrive; returns the subscription."""
        await self._live.ready()
        return self

    def __aiter__(self) -> AsyncIterator[Message]:
        return messages_of(self._live)

    def batches(self) -> AsyncIterator[list[Message]]:
        """Iterate over lists of messages, as they arrive: the quickest way to take many."""
        return batches_of(self._live)

    async def close(self) -> None:
        """End the subscription. Messages that wait in it are dropped, and iterating over it ends."""
        self._live.end()

    async def __aenter__(self) -> Self:
        return await self.ready()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def pattern(self) -> str:
        """The topic or pattern that it was made with."""
        return self._live.pattern

    @property
    def is_closed(self) -> bool:
        """Whether nothing more arrives: it was closed, or it has failed. Messages that wait can still be taken."""
        return self._live.is_closed

    @property
    def waiting(self) -> int:
        """How many messages have arrived and wait for the program."""
        return self._live.queued

    @property
    def dropped(self) -> int:
        """How many messages were dropped because the program fell behind (``drop_oldest``, ``drop_newest``)."""
        return self._live.dropped

    @property
    def expired(self) -> int:
        """How many messages were not shown because their ``ttl_seconds`` had passed."""
        return self._live.expired

    @property
    def gaps(self) -> int:
        """How often messages were missing, because no node had kept them."""
        return self._live.gaps

    def __repr__(self) -> str:
        return f"Subscription({self.pattern!r}, waiting={self.waiting})"


class PubSub(Publisher):
    """A node or a client: publish, flush and close."""

    def __init__(self, live: PubSubHost) -> None:
        super().__init__(live)
        self._pubsub: Final[PubSubHost] = live

    async def flush(self) -> None:
        """Wait until everything published so far is accepted; at a node, until it has left for the subscribers' nodes.

        If messages were refused since the last flush, it raises one error that says how many and why. Messages that the
        program has awaited itself do not count.
        """
        await self._pubsub.until_accepted()
        await raise_refusals(self._pubsub.refusals)

    async def close(self) -> None:
        """Stop in an orderly way. Like ``flush``, it raises an error if messages were refused."""
        await self._pubsub.close()

    async def abandon(self) -> None:
        """Stop at once, as a crash does: messages that are not accepted yet may be lost."""
        await self._pubsub.abandon()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await close_after(self, error)
