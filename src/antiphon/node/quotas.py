"""Quotas: how much of a node one identity may use, so that no tenant can starve another.

An operator writes quotas into the file of rights, for all clients and for single ones::

    [quotas]
    connections = 20

    [clients.shop.quotas]
    messages_per_second = 5000
    policies = ["drop_oldest", "disconnect"]

All connections of one identity share its quotas at a node. A count that is used up is refused with
:class:`~antiphon.QuotaError`, which names the quota. A rate that is used up slows: batches wait until they fit. The
account of an identity outlives its connections, so connecting again gains nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import msgspec

from antiphon.api.subscription import POLICIES
from antiphon.kernel.errors import UsageError


class Quotas(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The quotas of one identity at one node; None is no bound."""

    connections: int | None = None
    """Connections at a time."""
    subscriptions: int | None = None
    """Subscriptions at a time, over all connections."""
    topics: int | None = None
    """Different topics that the identity has published on or subscribed to since the node was started."""
    messages_per_second: float | None = None
    bytes_per_second: float | None = None
    """Rates of publishing; bytes are those of whole batches."""
    memory: int | None = None
    """Bytes that wait in its subscriptions, with the objects that hold them, and in the lists of those that resume."""
    series: int | None = None
    """Series of exactly-once writers that the node remembers for it: one for each lane and topic."""
    consumers: int | None = None
    """Named consumers that it has made, of the histories that the node leads."""
    histories: int | None = None
    """Topics whose history it has begun, counted by the node that leads the list of them."""
    history_bytes: int | None = None
    """Bytes that these histories may keep together, by their ``retention_bytes``; none of them may be without it."""
    policies: list[str] | None = None
    """The policies that its subscriptions may ask for, of those in ``POLICIES``."""
    policy: str | None = None
    """The policy of all its subscriptions, whatever they ask for."""
    block_seconds: float | None = None
    """How long a subscription with policy ``block`` may wait for its client before it is ended."""

    def check(self, where: str) -> None:
        """Raise what is wrong with them."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, (int, float)) and value <= 0:
                raise UsageError(
                    f"{where}: {name} is {value}; a quota is more than 0, and one that is left out is none"
                )
        named = [*(self.policies or ()), *(() if self.policy is None else (self.policy,))]
        unknown = [policy for policy in named if policy not in POLICIES]
        if unknown:
            raise UsageError(f"{where}: there is no policy {unknown[0]!r}; choose from {', '.join(POLICIES)}")

    def over(self, defaults: Quotas) -> Quotas:
        """These quotas, and the defaults where these say nothing."""
        own = {name: getattr(self, name) for name in self.__struct_fields__}
        return msgspec.structs.replace(defaults, **{name: value for name, value in own.items() if value is not None})


class TopicLimits(Protocol):
    """The settings of a node that say how many topics may be in use."""

    @property
    def client_topics(self) -> int:
        """How many topics one client may use."""

    @property
    def maximum_topics(self) -> int:
        """How many topics the node may have."""


def why_no_topic(limits: TopicLimits, topics: Collection[str], name: str, used: int, what: str) -> str:
    """Why a client that uses so many topics may not use one more; empty if it may.

    Each topic stays in memory as long as the node runs.
    """
    if used >= limits.client_topics:
        return f"one client may not {what}: {used} are allowed here (client_topics); connect once more"
    if name not in topics and len(topics) >= limits.maximum_topics:
        return f"this node has {len(topics)} topics, as many as it may (maximum_topics)"
    return ""
