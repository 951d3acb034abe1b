"""The methods of a node or client that replicas and proxies need and applications do not.

A node that becomes a member of a topic begins behind some publications, which it will never deliver. A replica there
must get them in the state of another replica, so it names them; where a fabric passes a barrier instead, a mark is
enough.
"""

from __future__ import annotations

from typing import Any, Final

from antiphon.api.pubsub import PubSub
from antiphon.api.topic_names import checked_name
from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.errors import DeniedError, UsageError
from antiphon.services.description import ServiceDescription


class PastPublications:
    """The publications that count as past at the node of this program on one topic."""

    def __init__(self, peer: Any, topic: str) -> None:
        self._host: Final[Any] = host_of(peer)
        self._topic = topic

    @property
    def is_known(self) -> bool:
        """Whether this program has a node, which can say it."""
        return hasattr(self._host, "sessions")

    def keys(self) -> list[int]:
        """All of them, as keys of the process; none where a mark is enough."""
        if not self.is_known or not self._host.sessions.traits.counts_past:
            return []
        topic = self._host.loop.topics.topic(self._topic)
        return [int(key) for key in self._host.sessions.host.frontier_keys(topic.number)]

    def covers(self, keys: list[int]) -> bool:
        """Whether all that counts as past elsewhere does here, too."""
        if not self.is_known:
            return True
        topic = self._host.loop.topics.topic(self._topic)
        return bool(self._host.sessions.is_past(topic, keys))


def host_of(peer: object) -> Any:
    """The live object behind a node or a client."""
    if not isinstance(peer, PubSub):
        raise UsageError(
            f"a service works at a node or a client, not at {type(peer).__name__}; pass antiphon.start(...)"
        )
    return peer._pubsub


def check_fabric(peer: object) -> None:
    """Refuse a fabric whose total order may pass over a message: replicas would part for good."""
    settings = getattr(host_of(peer), "settings", None)
    if settings is not None:
        _check(settings.fabric)


def _check(name: str) -> None:
    if FABRICS[name].may_pass_over:
        others = " or ".join(f"fabric={fabric.name!r}" for fabric in FABRICS.values() if not fabric.may_pass_over)
        raise UsageError(
            f"a service needs every operation at every replica, and total order in {name} may pass one over; "
            f"run its nodes with {others}"
        )


async def check_fabric_of_client(peer: Any) -> None:
    """The same at a client, which has to ask its node."""
    if not hasattr(peer, "status"):
        return
    try:
        status = await peer.status()
    except DeniedError:
        return
    _check(status["fabric"])


def topic_of(description: ServiceDescription, topic: str | None) -> str:
    """The topic of a service: its name in small letters, unless the program names another one."""
    return checked_name(description.name.lower() if topic is None else topic)
