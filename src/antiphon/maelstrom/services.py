"""The workloads ``broadcast``, ``g-set`` and ``kafka``, each as a service above one process.

A broadcast value or an element of a set is a publication in causal order; a node has it when its process has delivered
it, which is at once at the node that was asked. A message of a log is a publication in total order about its key: all
nodes deliver those of one key in the same order, so that each counts the same offsets, and the asked node answers when
its own process has delivered. Committed offsets are publications without an order; for each key the highest one counts.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import msgspec

from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import CAUSAL, NONE, TOTAL, Publication
from antiphon.maelstrom.host import ClientRequest, HostOptions, WorkloadService, number_of_key
from antiphon.maelstrom.links import LinkOptions
from antiphon.maelstrom.protocol import MALFORMED_REQUEST, RequestError

MESSAGES_IN_POLL: Final = 256
"""The most messages of a key in one answer; a client asks again for more."""


class ValuesService(WorkloadService):
    """A set that grows: ``broadcast`` and ``g-set`` differ only in the names of messages."""

    def __init__(self, adds: str, added: str, shown: str) -> None:
        self._adds = adds
        self._added = added
        self._shown = shown
        # By canonical JSON, independent of the order of keys, because values may be anything.
        self._values: dict[bytes, Any] = {}
        self._unanswered: dict[bytes, list[ClientRequest]] = {}

    def handle(self, request: ClientRequest) -> bool:
        """Serve requests to add, to read, and about a topology."""
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

    def _add(self, request: ClientRequest, value: bytes) -> None:
        """Publish a value; it is acknowledged when it is delivered here, mostly at once."""
        waiting = self._unanswered.setdefault(value, [])
        waiting.append(request)
        try:
            self.publish(value, int(CAUSAL))
        except RequestError:
            waiting.remove(request)
            raise

    def delivered(self, publication: Publication) -> None:
        """Add a delivered value."""
        self._values.setdefault(publication.payload, msgspec.json.decode(publication.payload))
        if publication.source == self.process.me:
            for request in self._unanswered.pop(publication.payload, []):
                request.answer()


class Appended(msgspec.Struct, frozen=True, tag=True):
    """Messages that one node was asked to append to a log together."""

    key: str
    messages: list[Any]


class Committed(msgspec.Struct, frozen=True, tag=True):
    """Processed offsets of some logs, by key."""

    offsets: dict[str, int]


_read = msgspec.json.Decoder(Appended | Committed).decode


class LogsService(WorkloadService):
    """Logs by key, which only grow, and their committed offsets."""

    def __init__(self) -> None:
        self._logs: dict[str, list[Any]] = {}
        self._committed: dict[str, int] = {}
        # By key: requests whose messages wait to be ordered, and requests that wait for those.
        self._under_way: dict[str, list[ClientRequest]] = {}
        self._waiting: dict[str, list[ClientRequest]] = {}
        self._committing: deque[ClientRequest] = deque()

    def handle(self, request: ClientRequest) -> bool:
        """Serve requests to send, poll, commit, and to list committed offsets."""
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

    def _send(self, request: ClientRequest) -> None:
        """Send messages of one key in one batch after the previous one: total order takes one at a time."""
        key = request.field("key", str)
        request.field("msg")
        if key in self._under_way:
            self._waiting.setdefault(key, []).append(request)
        else:
            self._append(key, [request])

    def _append(self, key: str, requests: list[ClientRequest]) -> None:
        messages = [request.field("msg") for request in requests]
        self._under_way[key] = requests
        try:
            self.publish(msgspec.json.encode(Appended(key, messages)), int(TOTAL), [number_of_key(key)])
        except RequestError as error:
            del self._under_way[key]
            for request in requests:
                request.refuse(error)

    def _commit(self, request: ClientRequest) -> None:
        """Publish without an order, so that a commit waits for no unordered message."""
        self._committing.append(request)
        try:
            self.publish(msgspec.json.encode(Committed(offsets_of(request))), int(NONE))
        except RequestError:
            self._committing.remove(request)
            raise

    def _poll(self, request: ClientRequest) -> None:
        found: dict[str, list[tuple[int, Any]]] = {}
        for key, first in offsets_of(request).items():
            messages = self._logs.get(key, [])[first : first + MESSAGES_IN_POLL]
            if messages:
                found[key] = list(enumerate(messages, first))
        request.answer(msgs=found)

    def delivered(self, publication: Publication) -> None:
        """Append ordered messages to a log, or commit offsets."""
        news = _read(publication.payload)
        if isinstance(news, Committed):
            for key, offset in news.offsets.items():
                self._committed[key] = max(offset, self._committed.get(key, offset))
            if publication.source == self.process.me:
                # A node delivers its own messages in the order of publication.
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


def offsets_of(request: ClientRequest) -> dict[str, int]:
    """The offsets by key in a request."""
    offsets: dict[str, Any] = request.field("offsets", dict)
    for key, offset in offsets.items():
        if not isinstance(offset, int) or offset < 0:
            raise RequestError(MALFORMED_REQUEST, f"the offset of {key!r} is a number from 0, not {offset!r}")
    return offsets


def canonical(value: object) -> bytes:
    """A value as JSON that is the same for equal values."""
    return msgspec.json.encode(value, order="deterministic")


WORKLOADS: Final = ("broadcast", "g-set", "kafka")

PATIENCE_MS: Final = {"broadcast": 60_000, "g-set": 60_000, "kafka": 2_000}
"""How long a node may be silent before it counts as lost and the tree is repaired without it.

A value of a set is stable when all nodes have it. An isolated part of the tree gains nothing by repairing itself, but
has to be reattached when the partition is over, which takes longer than sending the lost frames again. So sets outlast
most partitions. Logs need a majority for their order, which must continue without the others.
"""


def options_for(workload: str, fan_out: int, gather_ms: int, patience_ms: int | None) -> HostOptions:
    """The options of the nodes of a workload."""
    if patience_ms is None:
        patience_ms = PATIENCE_MS.get(workload, 2_000)
    return HostOptions(fan_out=fan_out, links=LinkOptions(gather_us=gather_ms * 1000, patience_us=patience_ms * 1000))


def service_for(workload: str) -> WorkloadService:
    """The service of a workload."""
    if workload == "broadcast":
        return ValuesService("broadcast", "message", "messages")
    if workload == "g-set":
        return ValuesService("add", "element", "value")
    if workload == "kafka":
        return LogsService()
    raise UsageError(f"there is no workload {workload!r} here; choose one of {', '.join(WORKLOADS)}")
