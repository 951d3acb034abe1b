"""The topics with a history, at a client: make, change, list, describe and remove them."""

from __future__ import annotations

from typing import Final, TypedDict, Unpack

from antiphon.api.streams.leader_links import LeaderLinks
from antiphon.api.streams.starts import StreamStart, place_of
from antiphon.kernel.errors import UsageError
from antiphon.streams.requests import (
    CreateTopic,
    DescribeTopic,
    FoundDirectory,
    ListTopics,
    Policy,
    RemoveConsumerRequest,
    RemoveTopic,
    ResetConsumerRequest,
    SetPolicy,
    TopicInfo,
    TopicList,
)

ASK_SECONDS: Final = 15.0

MANAGEMENT: Final = "topics"
"""In the place of a topic, where a request is about all of them."""

SECONDS_AT_MOST: Final = 1e12


class PolicyChanges(TypedDict, total=False):
    """The parts of a policy that are not as they were: what is left out stays."""

    replicas: int
    retention_bytes: int
    retention_seconds: float
    hold: float
    replace_seconds: float
    compact: bool


class Topics:
    """The topics with a history: make, change, list, describe and remove them."""

    def __init__(self, links: LeaderLinks) -> None:
        self._links = links

    async def create(self, name: str, **policy: Unpack[PolicyChanges]) -> TopicInfo:
        """Keep the history of a topic from now on; a topic that has one keeps it as it is.

        ``replicas`` nodes keep it (3). With ``retention_bytes`` and ``retention_seconds`` only the newest messages are
        kept; 0 is no bound. A message that a named consumer has not done is kept for longer, up to ``hold`` (2.0) times
        these bounds. With ``compact`` the newest message of each key is kept beyond the bounds. A replica that is away
        for longer than ``replace_seconds`` (600) is replaced by another node.
        """
        return await self._ask_about_one(CreateTopic(name, changed_policy(Policy(), policy)))

    async def set(self, name: str, **policy: Unpack[PolicyChanges]) -> TopicInfo:
        """Keep the history of a topic differently from now on; what is left out stays as it is."""
        known = {topic.name: topic for topic in await self.list()}
        if name not in known:
            raise UsageError(f"the topic {name!r} has no history; make it with create")
        return await self._ask_about_one(SetPolicy(name, changed_policy(known[name].policy, policy)))

    async def found(self) -> None:
        """Begin the list of topics at this client's node: for clusters whose first node has no data directory."""
        await self._links.ask(MANAGEMENT, FoundDirectory(), ASK_SECONDS)

    async def _ask_about_one(self, request: CreateTopic | SetPolicy) -> TopicInfo:
        _, found = await self._links.ask(MANAGEMENT, request, ASK_SECONDS)
        assert isinstance(found, TopicList)
        return found.topics[0]

    async def list(self) -> list[TopicInfo]:
        """All topics with a history that this client may read."""
        _, found = await self._links.ask(MANAGEMENT, ListTopics(), ASK_SECONDS)
        assert isinstance(found, TopicList)
        return found.topics

    async def describe(self, name: str) -> TopicInfo:
        """How far a topic's history is, where it is kept, and its consumers."""
        _, found = await self._links.ask(name, DescribeTopic(name), ASK_SECONDS)
        assert isinstance(found, TopicList)
        return found.topics[0]

    async def remove(self, name: str) -> None:
        """Remove the history of a topic, and its consumers."""
        await self._links.ask(MANAGEMENT, RemoveTopic(name), ASK_SECONDS)

    async def remove_consumer(self, topic: str, name: str) -> None:
        """Forget a consumer of a topic."""
        await self._links.ask(topic, RemoveConsumerRequest(topic, name), ASK_SECONDS)

    async def reset_consumer(self, topic: str, name: str, start: StreamStart = "earliest") -> None:
        """Let a consumer hand out the messages of a topic from another place on; it must have no members.

        Messages that were acknowledged behind that place come again. ``start`` is ``"earliest"``, ``"latest"``, a
        position or a ``datetime`` with a time zone.
        """
        where = place_of(start)
        request = ResetConsumerRequest(topic, name, where.position, where.generation, where.time_us)
        await self._links.ask(topic, request, ASK_SECONDS)


def changed_policy(policy: Policy, changes: PolicyChanges) -> Policy:
    """A policy with some parts changed, if they are possible."""
    replicas = changes.get("replicas", policy.replicas)
    if not 1 <= replicas <= 7:
        raise UsageError(f"a topic has between 1 and 7 replicas, not {replicas}")
    size = changes.get("retention_bytes", policy.retention_bytes)
    if not 0 <= size < 1 << 62:
        raise UsageError(f"retention_bytes is 0 (no bound) or more, not {size}")
    age = changes.get("retention_seconds", policy.retention_us / 1e6)
    if not 0 <= age <= SECONDS_AT_MOST:
        raise UsageError(f"retention_seconds is 0 (no bound) or more, not {age}")
    hold = changes.get("hold", policy.hold)
    if not 1 <= hold <= 1000:
        raise UsageError(f"hold is between 1 and 1000 times the bounds, not {hold}")
    replace = changes.get("replace_seconds", policy.replace_us / 1e6)
    if not 1 <= replace <= SECONDS_AT_MOST:
        raise UsageError(f"replace_seconds is 1 or more, not {replace}")
    compact = bool(changes.get("compact", policy.compact))
    return Policy(replicas, size, round(age * 1e6), hold, round(replace * 1e6), compact)
