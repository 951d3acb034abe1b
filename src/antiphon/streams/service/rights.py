"""The rights of clients on histories and consumers: the right that each request needs."""

from __future__ import annotations

from antiphon.kernel.errors import DeniedError
from antiphon.streams.requests import (
    AwaitPosition,
    DescribeTopic,
    FoundDirectory,
    ListTopics,
    ReadHistory,
    RemoveConsumerRequest,
    Request,
    TopicRequest,
)
from antiphon.streams.service.host import StreamHolder


def check_right(holder: StreamHolder, topic: str, request: Request) -> None:
    """Refuse a request about the history of a topic for which the client lacks the right.

    Reading changes nothing. An acknowledgement counts for all members of a consumer, so it needs a right of its own.
    """
    rights = holder.rights
    if isinstance(request, ReadHistory):
        is_allowed, right = rights.may_subscribe(topic), "subscribe"
    elif isinstance(request, AwaitPosition):
        is_allowed, right = rights.may_publish(topic) or rights.may_subscribe(topic), "publish"
    elif isinstance(request, RemoveConsumerRequest):
        is_allowed, right = rights.may_manage(topic), "manage"
    elif isinstance(request, DescribeTopic):
        is_allowed, right = rights.may_see(topic), "subscribe"
    else:
        is_allowed, right = rights.may_consume(topic), "consume"
    if not is_allowed:
        raise denied(holder, topic, right)


def check_managing(holder: StreamHolder, request: TopicRequest) -> None:
    """Refuse a client that may not begin, change or remove a history."""
    if isinstance(request, FoundDirectory):
        if not holder.rights.admin:
            raise DeniedError(f"client {holder.name!r} may not found the list; have admin = true added to its rights")
    elif not isinstance(request, ListTopics) and not holder.rights.may_manage(request.name):
        raise denied(holder, request.name, "manage")


def denied(holder: StreamHolder, topic: str, right: str) -> DeniedError:
    """The error for a right that is missing."""
    return DeniedError(f"client {holder.name!r} may not {right} {topic!r}; have it added to its rights ({right})")
