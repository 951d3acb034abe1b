"""Publishing and subscribing, as an application finds them at a node and at a client alike."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from antiphon.api.lifecycle import close_after, raise_refusals
from antiphon.api.publisher import Publisher
from antiphon.api.subscription import DEFAULT_LIMIT, Callback, Start, Subscription, WhenMissed


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
    ) -> Subscription:
        """A new subscription."""


class PubSub(Publisher):
    """A node or a client: publish, subscribe, flush and close."""

    _subscriptions: SubscriptionTable

    def refuse_if_closed(self) -> None:
        """Raise the reason why nothing can be done any more, if there is one."""
        raise NotImplementedError

    async def close(self) -> None:
        """Stop in an orderly way; raises, as :meth:`flush` does, what messages met that were not accepted."""
        raise NotImplementedError

    async def _until_accepted(self) -> None:
        """Wait until everything published so far is accepted, or has been refused."""
        raise NotImplementedError

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

        Iterate over the answer, or give a callback, which is called with each message. ``await subscription.ready()``
        returns when whatever is published from then on will come. Where messages are missing, because nobody has kept
        them or because a client has changed its node, ``when_missed`` is called with the name of the topic, or, without
        it, iterating raises :class:`MissedMessagesError`, once.
        """
        self.refuse_if_closed()
        return self._subscriptions.add(topic, start, callback, policy, limit, when_missed)

    async def flush(self) -> None:
        """Wait until everything published so far is accepted; at a node, until it has left for the subscribers' nodes.

        Raises what messages of this program met that were published since the last flush and were not accepted, unless
        it has awaited them itself: one error, which says how many there were and why.
        """
        await self._until_accepted()
        await raise_refusals(self.refusals)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await close_after(self, error)
