"""How a node is: as a dictionary, as metrics for Prometheus, and over HTTP.

Nothing is counted for this that costs anything per message: figures are read off the node when somebody asks.
``/health`` answers 200 while the node runs, its disk works and no topic stands still for no reason; ``/ready`` answers
200 while it is in the cluster and no other node is missing; both say what is wrong otherwise.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Callable, Collection, Iterator
from heapq import nlargest
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from antiphon.api.lifecycle import Lifecycle
from antiphon.api.outbox import Outbox
from antiphon.api.subscription import EmptySubscription, LiveSubscription
from antiphon.api.topic_state import LiveTopic
from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.errors import AntiphonError, UsageError
from antiphon.membership.messages import PROTOCOL_VERSION
from antiphon.node.acl import Rights
from antiphon.node.audit_log import AuditLog
from antiphon.node.consumer_metrics import consumer_figures, consumer_metrics
from antiphon.node.gateway.accounts import Ledger
from antiphon.node.loop import NodeLoop
from antiphon.node.members import Members
from antiphon.node.settings import Settings
from antiphon.sessions.backlog import Backlogs
from antiphon.trace.quantities import quantity
from antiphon.transport.incoming import ServedClient
from antiphon.transport.links import OutgoingLink, split_address
from antiphon.transport.listener import Listener
from antiphon.transport.tls import check_trusted, identity_of, is_loopback

if TYPE_CHECKING:
    from antiphon.transport.certificate_watch import CertificateWatch

STALLED_SECONDS: Final = 5.0
"""For so long messages may wait for nobody before a node says that something is wrong with it."""

REQUEST_BYTES_AT_MOST: Final = 8192
REQUEST_SECONDS: Final = 5.0
READERS_AT_MOST: Final = 64
"""So many may ask at a time; the one that has been silent for longest makes room for the next."""

TOPICS_SHOWN: Final = 1000
"""Figures of so many topics are shown: those with the most messages. Each is a dozen series for Prometheus."""


class NodeStatus:
    """Reads the figures of one node off its parts."""

    def __init__(
        self,
        settings: Settings,
        address: str,
        loop: NodeLoop,
        members: Members,
        rights: Rights,
        listener: Listener,
        lifecycle: Lifecycle,
        clients: set[ServedClient],
        backlogs: Backlogs,
        ledger: Ledger,
        certificates: CertificateWatch | None,
        audit: AuditLog,
    ) -> None:
        self._settings = settings
        self._address = address
        self._loop = loop
        self._members = members
        self._cluster = members.cluster
        self._host = members.host
        self._sessions = members.sessions
        self._rights = rights
        self._listener = listener
        self._lifecycle = lifecycle
        self._clients = clients
        self._backlogs = backlogs
        self._ledger = ledger
        self.certificates = certificates
        self._audit = audit
        # The figures of the door for MQTT clients, if it is open.
        self.mqtt: Callable[[], dict[str, int]] | None = None

    def figures(self) -> dict[str, Any]:
        """All figures of the node, as numbers and strings."""
        loop, cluster = self._loop, self._cluster
        links = self._host.links.values()
        return {
            **self.summary(),
            "uptime_seconds": time.monotonic() - self._lifecycle.started_at,
            "durability": self._settings.durability,
            "clients": len(self._clients),
            "unhandled_errors": loop.unhandled_errors,
            "quotas": self._ledger.figures(),
            "refused_connections": self._listener.refused_connections,
            "resumed_clients": self._sessions.resumed,
            "lanes_known": len(loop.writers),
            "lanes_forgotten": loop.writers.forgotten,
            "pieces_repeated": loop.writers.repeated,
            "pieces_ahead": loop.writers.ahead,
            "pieces_in_conflict": loop.writers.conflicts,
            "troubles": self.troubles(),
            "round_trips": self.round_trips(),
            "audit_dropped": self._audit.dropped,
            "certificate_days": None if self.certificates is None else self.certificates.days_left(),
            "bytes_sent": sum(link.bytes_sent for link in links),
            "frames_sent": sum(link.frames_sent for link in links),
            "writes": sum(link.writes for link in links),
            "bytes_unwritten": sum(link.unwritten_bytes() for link in links),
            "unfinished": 0 if loop.process is None else int(loop.process.unfinished()),
            "commits": 0 if loop.commit is None else loop.commit.commits,
            "bytes_uncommitted": 0 if loop.store is None else loop.store.pending_bytes,
            "bytes_handed_in": self._backlogs.bytes,
            "clients_held": self._backlogs.held_clients,
            "topics_known": len(loop.topics.by_name),
            "consumers": consumer_figures(self._members.streams),
            "mqtt": None if self.mqtt is None else self.mqtt(),
            "topics": {
                topic.name: topic_status(loop, topic) | cluster.figures_of(topic.number)
                for topic in shown_topics(loop.topics.by_name.values())
            },
            **cluster.figures(),
        }

    def summary(self) -> dict[str, Any]:
        """The facts that a client needs to go on when the node goes."""
        peers = [{"node": peer.identifier, "address": peer.address} for peer in self._cluster.peers()]
        return {
            "node": self._loop.identifier,
            "address": self._address,
            "fabric": self._settings.fabric,
            "mixes_keys": FABRICS[self._settings.fabric].mixes_keys,
            "lost_seconds": self._settings.lost_seconds,
            "strict_session": self._loop.traits.is_strict,
            "protocol": PROTOCOL_VERSION,
            "peers": peers,
        }

    def round_trips(self) -> list[dict[str, Any]]:
        """How far other nodes are, in microseconds there and back, as the system measures it on existing traffic."""
        found = []
        for peer in self._cluster.peers():
            link = None if peer.identifier is None else self._cluster.links.get(peer.identifier)
            if isinstance(link, OutgoingLink) and (round_trip_us := link.round_trip_us) >= 0:
                found.append({"node": peer.identifier, "address": peer.address, "microseconds": round_trip_us})
        return found

    def troubles(self) -> list[str]:
        """The troubles in words; none if all is well."""
        loop = self._loop
        troubles = []
        if self._lifecycle.failure is not None:
            troubles.append(f"stopped: {self._lifecycle.failure}")
        if loop.commit is not None and loop.commit.trouble:
            troubles.append(f"disk: {loop.commit.trouble}")
        troubles += stalled_topics(loop)
        if self._rights.trouble:
            troubles.append(f"rights: {self._rights.trouble}")
        if self.certificates is not None:
            troubles += self.certificates.troubles()
        return troubles


def shown_topics(topics: Collection[LiveTopic]) -> Collection[LiveTopic]:
    """The topics whose figures are shown."""
    if len(topics) <= TOPICS_SHOWN:
        return topics
    return nlargest(TOPICS_SHOWN, topics, key=lambda topic: topic.delivered_messages)


def topic_status(loop: NodeLoop, topic: LiveTopic) -> dict[str, Any]:
    """The figures of one topic."""
    subscriptions = [
        sink for sink in topic.sinks if isinstance(sink, LiveSubscription) and not isinstance(sink, EmptySubscription)
    ]
    outbox = topic.outbox
    return {
        "delivered_messages": topic.delivered_messages,
        "delivered_bytes": topic.delivered_bytes,
        "end_offset": topic.end_offset,
        "subscriptions": len(subscriptions) + topic.readers,
        "lag": max((sub.queued for sub in subscriptions), default=0),
        "dropped": sum(sub.dropped for sub in subscriptions),
        "repeated_batches": topic.repeated_batches,
        "lost_batches": topic.lost_batches,
        "late_batches": topic.late_batches,
        "published": 0 if outbox is None else int(outbox.next_sequence - outbox.first_sequence),
        "unsent": 0 if outbox is None else len(outbox),
        "publisher_waits": 0 if outbox is None else int(outbox.waits),
        "bytes_under_way": topic.bytes_under_way,
        "subscriptions_behind": len(topic.behind),
        "blocked_seconds": 0.0 if outbox is None else blocked_seconds(outbox),
        "blocked_by": blocked_by(loop, topic),
    }


def blocked_seconds(outbox: Outbox) -> float:
    """For how long messages have waited in an outbox while none of them was sent."""
    return max(0.0, (outbox.clock_us() - outbox.blocked_at_us) / 1_000_000) if outbox.is_blocked else 0.0


def blocked_by(loop: NodeLoop, topic: LiveTopic) -> list[str]:
    """For whom publishers on a topic wait, here or elsewhere; nobody if they do not wait."""
    found = [
        f"the subscription to {sink.pattern!r} of {sink.owner}: {sink.queued} messages wait in it, its limit is "
        f"{sink.limit}"
        for sink in topic.behind
        if isinstance(sink, LiveSubscription)
    ]
    outbox, process = topic.outbox, loop.process
    if outbox is None or not outbox.is_blocked:
        return found
    if loop.is_disk_behind and loop.store is not None:
        found.append(f"the disk, which has not taken {loop.store.pending_bytes} bytes yet")
    elif not topic.may_publish():
        found.append("other nodes, which have not all heard that this one publishes here")
    elif (
        not found
        and process is not None
        and (process.room(topic.number) <= 0 or topic.bytes_under_way >= loop.window_bytes)
    ):
        found.append(f"other nodes, which have not acknowledged up to {topic.bytes_under_way} bytes yet")
    return found


def stalled_topics(loop: NodeLoop) -> list[str]:
    """Topics on which messages wait for nobody: something is wrong with the node itself."""
    return [
        f"topic {outbox.topic!r}: {len(outbox)} messages have waited {blocked_seconds(outbox):.0f} seconds, and nobody "
        "keeps them back; restart the node"
        for outbox in tuple(loop.blocked)
        if blocked_seconds(outbox) > STALLED_SECONDS
        and (topic := loop.topics.by_name.get(outbox.topic)) is not None
        and not blocked_by(loop, topic)
    ]


NODE_METRICS: Final = {
    "peers": GaugeMetricFamily,
    "clients": GaugeMetricFamily,
    "refused_connections": CounterMetricFamily,
    "resumed_clients": CounterMetricFamily,
    "lanes_known": GaugeMetricFamily,
    "lanes_forgotten": CounterMetricFamily,
    "pieces_repeated": CounterMetricFamily,
    "pieces_ahead": CounterMetricFamily,
    "pieces_in_conflict": CounterMetricFamily,
    "bytes_sent": CounterMetricFamily,
    "frames_sent": CounterMetricFamily,
    "writes": CounterMetricFamily,
    "bytes_unwritten": GaugeMetricFamily,
    "unfinished": GaugeMetricFamily,
    "commits": CounterMetricFamily,
    "bytes_uncommitted": GaugeMetricFamily,
    "bytes_handed_in": GaugeMetricFamily,
    "clients_held": GaugeMetricFamily,
    "topics_known": GaugeMetricFamily,
    "uptime_seconds": GaugeMetricFamily,
    "certificate_days": GaugeMetricFamily,
    "audit_dropped": CounterMetricFamily,
    "unhandled_errors": CounterMetricFamily,
}
CLIENT_METRICS: Final = {
    "quota_used": GaugeMetricFamily,
    "quota_bound": GaugeMetricFamily,
    "quota_hits": CounterMetricFamily,
}
TOPIC_METRICS: Final = {
    "delivered_messages": CounterMetricFamily,
    "delivered_bytes": CounterMetricFamily,
    "published": CounterMetricFamily,
    "dropped": CounterMetricFamily,
    "repeated_batches": CounterMetricFamily,
    "lost_batches": CounterMetricFamily,
    "late_batches": CounterMetricFamily,
    "publisher_waits": CounterMetricFamily,
    "lag": GaugeMetricFamily,
    "unsent": GaugeMetricFamily,
    "bytes_under_way": GaugeMetricFamily,
    "subscriptions_behind": GaugeMetricFamily,
    "blocked_seconds": GaugeMetricFamily,
    "subscriptions": GaugeMetricFamily,
    "end_offset": GaugeMetricFamily,
}
MQTT_METRICS: Final = {
    "connections": GaugeMetricFamily,
    "sessions": GaugeMetricFamily,
    "subscriptions": GaugeMetricFamily,
    "groups": GaugeMetricFamily,
    "retained": GaugeMetricFamily,
    "received": CounterMetricFamily,
    "dropped": GaugeMetricFamily,
    "undeliverable": CounterMetricFamily,
    "refused": CounterMetricFamily,
}
"""What they mean is said where all quantities are defined."""


class NodeCollector(Collector):
    """Turns figures into what Prometheus reads."""

    def __init__(self, figures: dict[str, Any]) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        status = self._figures
        for name, family in NODE_METRICS.items():
            value = status[name]
            if value is None:  # a node without TLS has no certificate
                continue
            number = len(value) if isinstance(value, list) else value
            yield family(f"antiphon_{name}", quantity(name).definition, value=number)
        healthy = 0 if status["troubles"] else 1
        yield GaugeMetricFamily("antiphon_healthy", quantity("healthy").definition, value=healthy)
        for name, family in TOPIC_METRICS.items():
            metric = family(f"antiphon_topic_{name}", quantity(name).definition, labels=["topic"])
            for topic, figures in status["topics"].items():
                metric.add_metric([topic], figures[name])
            yield metric
        yield from client_metrics(status["quotas"])
        yield from consumer_metrics(status["consumers"])
        if status["mqtt"] is not None:
            for name, family in MQTT_METRICS.items():
                yield family(f"antiphon_mqtt_{name}", quantity(f"mqtt_{name}").definition, value=status["mqtt"][name])


def client_metrics(clients: dict[str, dict[str, Any]]) -> Iterator[Metric]:
    """The use of quotas by client, for Prometheus."""
    for name, family in CLIENT_METRICS.items():
        metric = family(f"antiphon_client_{name}", quantity(name).definition, labels=["client", "quota"])
        for client, figures in clients.items():
            bounds, hits = figures["bounds"], figures["hits"]
            used = {quota: figures[quota] for quota in bounds}
            for quota, value in {"quota_used": used, "quota_bound": bounds, "quota_hits": hits}[name].items():
                metric.add_metric([client, quota], value)
        yield metric


def metrics_text(figures: dict[str, Any]) -> bytes:
    """Figures as Prometheus reads them."""
    registry = CollectorRegistry()
    registry.register(NodeCollector(figures))
    return generate_latest(registry)


class StatusServer:
    """Answers ``/metrics``, ``/status``, ``/health`` and ``/ready``; nothing else."""

    def __init__(self, status: NodeStatus, tls: CertificateWatch | None) -> None:
        self._status = status
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._context: ssl.SSLContext | None = None
        self._readers = 0
        # Connections that have not asked for anything yet, the oldest first.
        self._silent: dict[asyncio.StreamWriter, None] = {}
        self.address = ""

    async def start(self, address: str) -> StatusServer:
        """Listen; where other machines can connect, with TLS, if there is any, and for holders of certificates only."""
        host, port = split_address(address)
        tls = None if is_loopback(host) else self._tls
        context = self._context = None if tls is None else tls.server_context(requires_certificate=True)
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=REQUEST_BYTES_AT_MOST, ssl=context)
        except OSError as error:
            raise UsageError(
                f"cannot listen for metrics at {address}: {error.strerror or error}; choose another address"
            ) from error
        self.address = f"{host}:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._readers >= READERS_AT_MOST:
            oldest = next(iter(self._silent), writer)
            oldest.transport.abort()
            if oldest is writer:
                return
            del self._silent[oldest]
        self._readers += 1
        self._silent[writer] = None
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                check_trusted(self._context, identity_of(writer.transport))
                request = await reader.readuntil(b"\r\n\r\n")
                self._silent.pop(writer, None)
                method, path = request.split(b" ", 2)[:2]
                status, kind, body = await self._answer(
                    method.decode("latin-1"), path.decode("latin-1").partition("?")[0]
                )
                head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
                await writer.drain()
        except (
            TimeoutError,
            OSError,
            ValueError,
            AntiphonError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
        ):
            # Whoever asks in another way than HTTP gets no answer.
            pass
        finally:
            self._readers -= 1
            self._silent.pop(writer, None)
            writer.close()

    async def _answer(self, method: str, path: str) -> tuple[str, str, bytes]:
        if method != "GET":
            return "405 Method Not Allowed", "text/plain", b"only GET is answered\n"
        if path == "/metrics":
            return "200 OK", "text/plain; version=0.0.4", await asyncio.to_thread(metrics_text, self._status.figures())
        if path == "/status":
            text = await asyncio.to_thread(json.dumps, self._status.figures())
            return "200 OK", "application/json", text.encode()
        troubles = self._status.troubles()
        if path == "/health":
            troubles = [trouble for trouble in troubles if not trouble.startswith("lost nodes")]
        elif path != "/ready":
            return "404 Not Found", "text/plain", b"ask for /metrics, /status, /health or /ready\n"
        if troubles:
            return "503 Service Unavailable", "text/plain", ("\n".join(troubles) + "\n").encode()
        notes = [] if self._status.certificates is None else self._status.certificates.notes()
        return "200 OK", "text/plain", "\n".join(["ok", *notes, ""]).encode()
