"""The third host: a broker of the tree, driven by lines of JSON and by real timers.

The simulator drives processes in virtual time and live nodes drive them over sockets; this host drives one over
standard input and output, by the same contract (:mod:`antiphon.kernel.process`). It reads no input and no clock by
itself: :mod:`antiphon.maelstrom.loop` passes lines to it and calls it when a timer is due, so that tests can do the
same.

Why the tree. A tree of ``n`` nodes needs ``n - 1`` messages per broadcast, and no fabric needs fewer without batching.
With all nodes below one root no two nodes are more than two links apart, so links can afford to wait for a batch. The
cube's trees have as many edges, but are ``log n`` links deep and acknowledge every copy; gossip is made for systems in
which nodes do not know all others, while Maelstrom's nodes do. The tree also repairs itself through partitions: each
part continues, and the parts exchange what they missed when they meet. It has total order too, which the workload
``kafka`` needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from antiphon.api.topic_names import key_number
from antiphon.fabrics.tree.broker import TreeBroker
from antiphon.fabrics.tree.fabric import TREE
from antiphon.fabrics.tree.options import TreeOptions
from antiphon.fabrics.tree.quorum import Council
from antiphon.fabrics.tree.topology import Overlay, regular_parents
from antiphon.kernel.errors import PeerError
from antiphon.kernel.message import ProtocolMessage, Publication
from antiphon.kernel.process import Environment
from antiphon.kernel.randomness import RandomStream
from antiphon.maelstrom.links import FrameLinks, LinkOptions
from antiphon.maelstrom.protocol import (
    FRAME,
    MALFORMED_REQUEST,
    NOT_SUPPORTED,
    TEMPORARILY_UNAVAILABLE,
    Envelope,
    Frame,
    RequestError,
    field,
    read_body,
    read_frame,
    read_line,
    write_line,
)
from antiphon.maelstrom.timers import HostTimers
from antiphon.transport.codec import Codec
from antiphon.transport.schema import FABRIC_KINDS

TOPIC: Final = 0
"""The one topic of all publications; all nodes are members."""


class HostOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The behaviour of nodes; the same for all of a system."""

    fan_out: int = 24
    """The number of children of each broker: with up to 25 nodes all are children of the root."""

    window: int = 100_000
    """The most publications of a node in transit; further ones are refused for the time being."""

    patience_us: int = 1_000_000
    """How long a broker may take to answer a request for a place before it counts as refusing."""

    collect_us: int = 1_000_000
    """The interval at which the root learns which publications all brokers have."""

    council_us: int = 2_000_000
    absence_us: int = 3_600_000_000
    """A disconnected broker is waited for: with Maelstrom no node leaves for good."""

    links: LinkOptions = LinkOptions()


class ClientRequest:
    """A request of a client, to be answered once, now or later."""

    def __init__(self, host: MaelstromHost, client: str, body: dict[str, Any]) -> None:
        self._host = host
        self._client = client
        self.body: Final = body
        self.type: Final = body.get("type")
        self.number: Final = body.get("msg_id")

    def field(self, name: str, kind: type[Any] = object) -> Any:
        """The value of a field."""
        return field(self.body, name, kind)

    def answer(self, **fields: Any) -> None:
        """Answer with fields, under the type that matches the request."""
        self._reply({"type": f"{self.type}_ok", **fields})

    def refuse(self, error: RequestError) -> None:
        """Answer with an error."""
        self._reply({"type": "error", "code": error.code, "text": error.text})

    def _reply(self, body: dict[str, Any]) -> None:
        if self.number is not None:
            body["in_reply_to"] = self.number
        self._host.say(self._client, body)


class WorkloadService:
    """The requests of a workload, served above one process."""

    process: TreeBroker

    def handle(self, request: ClientRequest) -> bool:
        """Serve a request of a client; False if this workload does not know it."""
        raise NotImplementedError

    def delivered(self, publication: Publication) -> None:
        """The process delivers a publication."""
        raise NotImplementedError

    def publish(self, payload: bytes, order: int, keys: list[int] | None = None) -> int:
        """Publish through the process; the client is told if it refuses now."""
        refusal = self.process.refusal(order)
        if refusal is None and self.process.room(TOPIC) < 1:
            refusal = "too many messages wait for unreachable nodes; try again later"
        if refusal is not None:
            raise RequestError(TEMPORARILY_UNAVAILABLE, refusal)
        return int(self.process.publish_about(keys or [], payload, TOPIC, order))


class MaelstromEnvironment(Environment):
    """The environment of the process; ticks are microseconds of the host's clock."""

    def __init__(self, identifier: int, host: MaelstromHost) -> None:
        super().__init__(identifier)
        self._host = host
        self._random = RandomStream(identifier)

    def now(self) -> int:
        return self._host.timers.now()

    def send(self, destination: int, message: ProtocolMessage) -> None:
        self._host.links.to(destination).send(self._host.codec.encode(message))

    def deliver(self, publication: Publication) -> None:
        self._host.service.delivered(publication)

    def set_timer(self, delay: int, name: int) -> int:
        return self._host.timers.after(delay, lambda: self._host.process.expire(name))

    def cancel_timer(self, handle: int) -> None:
        self._host.timers.cancel(handle)

    def random(self) -> RandomStream:
        return self._random

    def watch(self, peer: int) -> None:
        self._host.links.to(peer).watch()

    def unwatch(self, peer: int) -> None:
        self._host.links.to(peer).unwatch()


class MaelstromHost:
    """One node: it takes lines of input and writes lines of output."""

    def __init__(
        self, service: WorkloadService, write: Callable[[bytes], None], clock: Callable[[], int], options: HostOptions
    ) -> None:
        self.service: Final = service
        self.timers: Final = HostTimers(clock)
        self.codec: Final = Codec(kinds=FABRIC_KINDS[TREE.name])
        self.links: FrameLinks
        self.process: TreeBroker
        self.name = ""
        self._options = options
        self._write = write
        self._names: list[str] = []
        self._places: dict[str, int] = {}

    # Input.

    def take(self, line: bytes) -> None:
        """Handle a line of input."""
        envelope = read_line(line)
        place = self._places.get(envelope.src)
        if place is None:
            self._take_request(envelope)
        else:
            self.links.to(place).receive(read_frame(envelope))
        self.settle()

    def wake(self) -> None:
        """Handle timers that are due."""
        self.timers.run_due()
        self.settle()

    def settle(self) -> None:
        """Write what is due."""
        if self.name:
            self.links.settle()

    def _take_request(self, envelope: Envelope) -> None:
        request = ClientRequest(self, envelope.src, read_body(envelope))
        try:
            if request.type == "init":
                self._begin(request)
            elif not self.name:
                raise RequestError(TEMPORARILY_UNAVAILABLE, "this node has no identity yet; send init")
            elif request.type == FRAME:
                raise PeerError(f"{envelope.src} sends frames and is none of {', '.join(self._names)}")
            elif not self.service.handle(request):
                raise RequestError(NOT_SUPPORTED, f"this workload has no requests of type {request.type!r}")
        except RequestError as error:
            request.refuse(error)

    def _begin(self, request: ClientRequest) -> None:
        """Become one of the nodes of a system that all begin together."""
        name, names = request.field("node_id", str), request.field("node_ids", list)
        if name not in names or self.name:
            raise RequestError(
                MALFORMED_REQUEST, f"init names {name!r} among {names}, once; this node is {self.name!r}"
            )
        self.name, self._names = name, names
        self._places = {other: place for place, other in enumerate(names)}
        self.links = FrameLinks(
            self.timers,
            self._options.links,
            self._write_frame,
            self._received,
            self._lost,
            self._found,
        )
        self.process = self._broker(self._places[name])
        self.service.process = self.process
        self.process.start()
        request.answer()

    def _broker(self, me: int) -> TreeBroker:
        options = self._options
        count = len(self._names)
        parents = regular_parents(count, options.fan_out)
        overlay = Overlay(1, 0, dict(enumerate(parents)), [], Council(1, [list(range(count))]))
        tree_options = TreeOptions(
            "causal",
            total_degree=options.fan_out + 1,
            patience_ticks=options.patience_us,
            collect_ticks=options.collect_us,
            window=options.window,
            quorum=True,
            council_ticks=options.council_us,
            absence_ticks=options.absence_us,
        )
        broker = TreeBroker(MaelstromEnvironment(me, self), tree_options, overlay)
        broker.begin(TOPIC, True, overlay.children_of(me))
        return broker

    def _received(self, peer: int, encoded: bytes) -> None:
        message = self.codec.decode(encoded)
        assert isinstance(message, ProtocolMessage), "hosts of this kind exchange nothing but messages of processes"
        self.process.receive(peer, message)

    def _lost(self, peer: int) -> None:
        self.process.peer_lost(peer)

    def _found(self, peer: int) -> None:
        self.process.peer_found(peer)

    # Output.

    def say(self, destination: str, body: dict[str, Any]) -> None:
        """Send a message to a client."""
        self._write(write_line(self.name, destination, body))

    def _write_frame(self, peer: int, frame: Frame) -> None:
        self._write(write_line(self.name, self._names[peer], frame))


def number_of_key(key: str) -> int:
    """The number of a log's key in processes."""
    return key_number(key.encode())
