"""The workloads ``broadcast``, ``g-set`` and ``kafka``, each as a service above one process.

A broadcast value and an element of a set is a publication in causal order; a node has it when its process has delivered
it, at the node that was asked at once. A message of a log is a publication in total order about its key: all nodes
deliver those of one key in the same order, so that each counts the same offsets, and who was asked answers when its own
process has delivered. Committed offsets are publications without an order; of two for a key the higher one counts.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import msgspec

from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import CAUSAL, NONE, TOTAL, Publication
from antiphon.maelstrom.host import HostOptions, Request, Service, number_of_key
from antiphon.maelstrom.links import LinkOptions
from antiphon.maelstrom.protocol import MALFORMED_REQUEST, RequestError

MESSAGES_IN_POLL: Final = 256
"""So many messages of a key are shown at once; who wants more asks again."""


class ValuesService(Service):
    """A set that grows: ``broadcast`` and ``g-set`` differ in words only."""

    def __init__(self, adds: str, added: str, shown: str) -> None:
        self._adds = adds
        self._added = added
        self._shown = shown
        # By their JSON, in which order of keys does not matter: values may be anything.
        self._values: dict[bytes, Any] = {}
        self._unanswered: dict[bytes, list[Request]] = {}

    def handle(self, request: Request) -> bool:
        """Requests to add, to read, and about a topology."""
        if request.type == self._adds:
            self._add(request, canonical(request.field(self._added)))
        elif request.type == "read":
            request.answer(**{self._shown: list(self._values.values())})
        elif request.type == "topology":
            # Neighbours are a proposal; the tree has its own.
            request.field("topology", dict)
            request.answer()
        else:
            return False
        return True

    def _add(self, request: Request, value: bytes) -> None:
        """Publish a value; it is acknowledged when it has been delivered here, which is mostly at once."""
        waiting = self._unanswered.setdefault(value, [])
        waiting.append(request)
        try:
            self.publish(value, int(CAUSAL))
        except RequestError:
            waiting.remove(request)
            raise

    def delivered(self, publication: Publication) -> None:
        """A value has come."""
        self._values.setdefault(publication.payload, msgspec.json.decode(publication.payload))
        if publication.source == self.process.me:
            for request in self._unanswered.pop(publication.payload, []):
                request.answer()


class Appended(msgspec.Struct, frozen=True, tag=True):
    """Messages that one node was asked to append to a log, together."""

    key: str
    messages: list[Any]


class Committed(msgspec.Struct, frozen=True, tag=True):
    """How far some logs have been processed, by key."""

    offsets: dict[str, int]


_read = msgspec.json.Decoder(Appended | Committed).decode


class LogsService(Service):
    """Logs by key, which only grow, and how far they have been processed."""

    def __init__(self) -> None:
        self._logs: dict[str, list[Any]] = {}
        self._committed: dict[str, int] = {}
        # By key: requests whose messages are on their way to be ordered, and those that wait for these.
        self._under_way: dict[str, list[Request]] = {}
        self._waiting: dict[str, list[Request]] = {}
        self._committing: deque[Request] = deque()

    def handle(self, request: Request) -> bool:
        """Requests to send, poll, commit, and to list what is committed."""
        if request.type == "send":
            self._send(request)
        elif request.type == "poll":
            self._poll(request)
        elif request.type == "commit_offsets":
            self._commit(request)
        elif request.type == "list_committed_offsets":
            keys = request.field("keys", list)
            request.answer(offsets={key: self._committed[key] for key in keys if key in self._committed})
        else:
            return False
        return True

    def _send(self, request: Request) -> None:
        """Messages for one key leave together, while others of it are on their way: its order is made one by one."""
        key = request.field("key", str)
        request.field("msg")
        if key in self._under_way:
            self._waiting.setdefault(key, []).append(request)
        else:
            self._append(key, [request])

    def _append(self, key: str, requests: list[Request]) -> None:
        messages = [request.field("msg") for request in requests]
        self._under_way[key] = requests
        try:
            self.publish(msgspec.json.encode(Appended(key, messages)), int(TOTAL), [number_of_key(key)])
        except RequestError as error:
            del self._under_way[key]
            for request in requests:
                request.refuse(error)

    def _commit(self, request: Request) -> None:
        """Without an order it waits for no message of a log that is still to be ordered."""
        self._committing.append(request)
        try:
            self.publish(msgspec.json.encode(Committed(offsets_of(request))), int(NONE))
        except RequestError:
            self._committing.remove(request)
            raise

    def _poll(self, request: Request) -> None:
        found: dict[str, list[tuple[int, Any]]] = {}
        for key, first in offsets_of(request).items():
            messages = self._logs.get(key, [])[first : first + MESSAGES_IN_POLL]
            if messages:
                found[key] = list(enumerate(messages, first))
        request.answer(msgs=found)

    def delivered(self, publication: Publication) -> None:
        """Some messages have their places in a log, or some offsets are committed."""
        news = _read(publication.payload)
        if isinstance(news, Committed):
            for key, offset in news.offsets.items():
                self._committed[key] = max(offset, self._committed.get(key, offset))
            if publication.source == self.process.me:
                # Those of one node are delivered there as they are published.
                self._committing.popleft().answer()
            return
        log = self._logs.setdefault(news.key, [])
        first = len(log)
        log.extend(news.messages)
        if publication.source == self.process.me:
            for place, request in enumerate(self._under_way.pop(news.key)):
                request.answer(offset=first + place)
            waiting = self._waiting.pop(news.key, [])
            if waiting:
                self._append(news.key, waiting)


def offsets_of(request: Request) -> dict[str, int]:
    """The offsets by key in a request."""
    offsets: dict[str, Any] = request.field("offsets", dict)
    for key, offset in offsets.items():
        if not isinstance(offset, int) or offset < 0:
            raise RequestError(MALFORMED_REQUEST, f"the offset of {key!r} is a number from 0, not {offset!r}")
    return offsets


def canonical(value: object) -> bytes:
    """A value as JSON that is the same for the same value."""
    return msgspec.json.encode(value, order="deterministic")


WORKLOADS: Final = ("broadcast", "g-set", "kafka")

PATIENCE_MS: Final = {"broadcast": 60_000, "g-set": 60_000, "kafka": 2_000}
"""After how long a silent node counts as lost, and the tree is repaired without it.

A value of a set is stable when all nodes have it. A part of the tree that is cut off gains nothing for that by
repairing itself, but has to be brought back when the partition is over, which takes longer than sending again what did
not get through. So sets outlast most partitions. Logs need a majority for their order, which is to go on without the
others.
"""


def options_for(workload: str, fan_out: int, gather_ms: int, patience_ms: int | None) -> HostOptions:
    """How the nodes of a workload behave."""
    if patience_ms is None:
        patience_ms = PATIENCE_MS.get(workload, 2_000)
    return HostOptions(fan_out=fan_out, links=LinkOptions(gather_us=gather_ms * 1000, patience_us=patience_ms * 1000))


def service_for(workload: str) -> Service:
    """What serves a workload."""
    if workload == "broadcast":
        return ValuesService("broadcast", "message", "messages")
    if workload == "g-set":
        return ValuesService("add", "element", "value")
    if workload == "kafka":
        return LogsService()
    raise UsageError(f"there is no workload {workload!r} here; choose one of {', '.join(WORKLOADS)}")
