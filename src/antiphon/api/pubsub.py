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
        """Stop in an orderly way. Like ``flush``, it raises an error if messages were refused."""
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

        Iterate over the subscription, or give a ``callback``, which is called with each message. ``await
        subscription.ready()`` returns when every message that is published from then on will arrive.

        ``start`` is ``"latest"``, ``"earliest"``, an offset or a ``datetime`` with a time zone; all but the first need
        a node with a log. ``policy`` says what happens when the program falls behind by more than ``limit`` messages:
        ``"block"``, ``"drop_oldest"``, ``"drop_newest"`` or ``"disconnect"``.

        If messages are missing, because no node has kept them, ``when_missed`` is called with the name of the topic.
        Without ``when_missed``, iterating raises ``MissedMessagesError`` once; iterate again to go on.
        """
        self.refuse_if_closed()
        return self._subscriptions.add(topic, start, callback, policy, limit, when_missed)

    async def flush(self) -> None:
        """Wait until everything published so far is accepted; at a node, until it has left for the subscribers' nodes.

        If messages were refused since the last flush, it raises one error that says how many and why. Messages that the
        program has awaited itself do not count.
        """
        await self._until_accepted()
        await raise_refusals(self.refusals)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await close_after(self, error)
