"""Requests about topics with a history: make, change, list and remove them. The leader of the directory answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from antiphon.kernel.errors import DeniedError, UsageError
from antiphon.streams.directory import DIRECTORY, ChangePolicy, DropStream
from antiphon.streams.requests import (
    CreateTopic,
    Done,
    FoundDirectory,
    ListTopics,
    Policy,
    Redirect,
    RemoveTopic,
    Response,
    SetPolicy,
    StreamInfo,
    TopicInfo,
    TopicList,
)
from antiphon.streams.retention import UNBOUNDED
from antiphon.streams.service.host import StreamClient, StreamRights
from antiphon.streams.service.service import StreamService

NO_DIRECTORY: Final = (
    "no node keeps the list of topics, because the first node of the cluster has no data directory: choose a node with "
    "one (--data) and run once: antiphon topics found --servers ADDRESS"
)

TopicRequest = CreateTopic | RemoveTopic | ListTopics | SetPolicy | FoundDirectory
Respond = Callable[[Response], None]


class TopicRequests:
    """The requests about topics at one node."""

    def __init__(self, service: StreamService) -> None:
        self._service = service
        # Histories that are being begun, and the term of the directory's leader in which they are.
        self._making: dict[str, StreamInfo] = {}
        self._making_term = 0

    def handle(self, client: StreamClient, request: TopicRequest, respond: Respond) -> None:
        """Answer a request, or say which node can."""
        service, holder = self._service, client.holder
        rights = holder.rights
        if isinstance(request, FoundDirectory) and not rights.admin:
            raise DeniedError(f"client {holder.name!r} may not begin a list; have admin = true added to its rights")
        if isinstance(request, (CreateTopic, RemoveTopic, SetPolicy)) and not rights.may_manage(request.name):
            raise DeniedError(
                f"client {holder.name!r} may not manage the topic {request.name!r}; have it added to its rights"
            )
        if isinstance(request, FoundDirectory):
            self._found(respond)
        elif not service.leads_directory:
            where = service.whom_to_ask(None)
            respond(Redirect(where, "another node leads the directory of topics" if where else NO_DIRECTORY))
        elif isinstance(request, ListTopics):
            listed = [info for name, info in sorted(service.directory.by_name.items())]
            respond(TopicList([described(info) for info in listed if may_see(rights, info.name)]))
        elif isinstance(request, CreateTopic):
            service.host.check_name(request.name)
            if request.name not in service.directory.by_name:
                self._check_quotas(client, request.name, request.policy, is_new=True)
                self._making[request.name] = StreamInfo(0, request.name, request.policy, [], owner=holder.name)
            service.create(request.name, request.policy, holder.name, partial(self._created, respond))
        else:
            self._change(client, request, respond)

    def _check_quotas(self, client: StreamClient, name: str, policy: Policy, is_new: bool) -> None:
        """Refuse a history that is more than the client's identity may let the cluster keep."""
        service = self._service
        term = service.replicas[DIRECTORY].replica.log.term
        if term != self._making_term:
            self._making_term, self._making = term, {}
        owner = client.holder.name
        known = (*service.directory.by_number.values(), *self._making.values())
        others = [info.policy for info in known if info.owner == owner and info.name != name]
        if is_new:
            client.check_kept("histories", len(others))
        used = sum(each.bounds.bytes_at_most for each in others)
        client.check_kept("history_bytes", min(used, UNBOUNDED), policy.bounds.bytes_at_most)

    def _found(self, respond: Respond) -> None:
        """Begin the list of topics at this node: for clusters whose first node has no data directory."""
        if self._service.knows_directory:
            raise UsageError("this cluster has a list of topics; make one with: antiphon topics create TOPIC")
        self._service.found_directory()
        respond(Done())

    def _created(self, respond: Respond, info: StreamInfo) -> None:
        self._making.pop(info.name, None)
        respond(TopicList([described(info, len(info.keepers))]))

    def _change(self, client: StreamClient, request: RemoveTopic | SetPolicy, respond: Respond) -> None:
        service = self._service
        found = service.directory.by_name.get(request.name)
        if found is None:
            raise UsageError(f"the topic {request.name!r} has no history; make it with: antiphon topics create")
        number = found.number
        if isinstance(request, RemoveTopic):
            service.decide(DropStream(number), lambda: respond(Done()))
        else:
            if found.owner == client.holder.name:
                self._check_quotas(client, found.name, request.policy, is_new=False)
            changed = ChangePolicy(number, request.policy)
            service.decide(changed, lambda: respond(TopicList([described(service.directory.by_number[number])])))


def may_see(rights: StreamRights, topic: str) -> bool:
    """Whether somebody may know how far a topic and its consumers are."""
    return rights.may_subscribe(topic) or rights.may_consume(topic) or rights.may_manage(topic)


def described(info: StreamInfo, connected: int = -1) -> TopicInfo:
    """A topic as the directory knows it."""
    return TopicInfo(info.name, info.policy.replicas, info.number, -1, connected, policy=info.policy)
