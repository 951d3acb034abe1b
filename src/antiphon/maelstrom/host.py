"""The third host: a broker of the tree, driven by lines of JSON and by real timers.

The simulator drives processes in virtual time and live nodes drive them over sockets; here one is driven over standard
input and output, by the same contract (:mod:`antiphon.kernel.process`). The host reads no input and no clock by itself:
:mod:`antiphon.maelstrom.loop` hands it lines and calls it when something is due, so that tests can do the same.

Why the tree. A tree of ``n`` nodes needs ``n - 1`` messages for each that is broadcast, and no fabric can do with less
without gathering several in one. With all nodes below one root nobody is more than two links from anybody, so the time
that links need to gather is affordable. The cube's trees have as many edges, but are ``log n`` links deep and answer
every copy; gossip is made for systems in which nobody knows all others, as Maelstrom's nodes do. The tree also repairs
itself through partitions: each part of it goes on, and what the parts missed of each other comes when they meet. Total
order, which the workload ``kafka`` needs, comes with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from antiphon.api.topic_names import key_number
from antiphon.fabrics.tree.broker import TreeBroker
from antiphon.fabrics.tree.options import TreeOptions
from antiphon.fabrics.tree.quorum import Council
from antiphon.fabrics.tree.topology import Overlay, regular_parents
from antiphon.kernel.errors import PeerError
from antiphon.kernel.message import Message, Publication
from antiphon.kernel.process import Environment
from antiphon.kernel.randomness import RandomStream
from antiphon.maelstrom.links import LinkOptions, Links
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
from antiphon.maelstrom.timers import Timers
from antiphon.transport.codec import Codec
from antiphon.transport.schema import FABRIC_KINDS

TOPIC: Final = 0
"""All that is published is on one topic, which has all nodes as members."""


class HostOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How nodes behave; the same for all of a system."""

    fan_out: int = 24
    """How many children the root has, and each below it: with up to 25 nodes all are children of the root."""

    window: int = 100_000
    """So many publications of a node may be on their way to somebody; further ones are refused for the time being."""

    patience_us: int = 1_000_000
    """After how long a broker that was asked for a place and does not answer counts as refusing."""

    collect_us: int = 1_000_000
    """How often the root finds out what all have got and nobody needs to keep."""

    council_us: int = 2_000_000
    absence_us: int = 3_600_000_000
    """Who is away is waited for: with Maelstrom nobody goes for good."""

    links: LinkOptions = LinkOptions()


class Request:
    """A request of a client, to be answered once, now or later."""

    def __init__(self, host: Host, client: str, body: dict[str, Any]) -> None:
        self._host = host
        self._client = client
        self.body: Final = body
        self.type: Final = body.get("type")
        self.number: Final = body.get("msg_id")

    def field(self, name: str, kind: type[Any] = object) -> Any:
        """What it says under a name."""
        return field(self.body, name, kind)

    def answer(self, **fields: Any) -> None:
        """Answer with fields, under the type that belongs to the request's."""
        self._reply({"type": f"{self.type}_ok", **fields})

    def refuse(self, error: RequestError) -> None:
        """Answer with an error."""
        self._reply({"type": "error", "code": error.code, "text": error.text})

    def _reply(self, body: dict[str, Any]) -> None:
        if self.number is not None:
            body["in_reply_to"] = self.number
        self._host.say(self._client, body)


class Service:
    """What a workload asks for, above one process."""

    process: TreeBroker

    def handle(self, request: Request) -> bool:
        """Do what a client asks; False if this workload does not know such requests."""
        raise NotImplementedError

    def delivered(self, publication: Publication) -> None:
        """The process delivers."""
        raise NotImplementedError

    def publish(self, payload: bytes, order: int, keys: list[int] | None = None) -> int:
        """Hand something to the process; the client is told if it cannot be taken now."""
        refusal = self.process.refusal(order)
        if refusal is None and self.process.room(TOPIC) < 1:
            refusal = "too much is on its way to nodes that cannot be reached; try again later"
        if refusal is not None:
            raise RequestError(TEMPORARILY_UNAVAILABLE, refusal)
        return int(self.process.publish_about(keys or [], payload, TOPIC, order))


class MaelstromEnvironment(Environment):
    """Ticks are microseconds of the host's clock."""

    def __init__(self, identifier: int, host: Host) -> None:
        super().__init__(identifier)
        self._host = host
        self._random = RandomStream(identifier)

    def now(self) -> int:
        return self._host.timers.now()

    def send(self, destination: int, message: Message) -> None:
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


class Host:
    """One node: it takes lines and gives lines."""

    def __init__(
        self, service: Service, write: Callable[[bytes], None], clock: Callable[[], int], options: HostOptions
    ) -> None:
        self.service: Final = service
        self.timers: Final = Timers(clock)
        self.codec: Final = Codec(kinds=FABRIC_KINDS["tree"])
        self.links: Links
        self.process: TreeBroker
        self.name = ""
        self._options = options
        self._write = write
        self._names: list[str] = []
        self._places: dict[str, int] = {}

    # What comes in.

    def take(self, line: bytes) -> None:
        """A line of input."""
        envelope = read_line(line)
        place = self._places.get(envelope.src)
        if place is None:
            self._take_request(envelope)
        else:
            self.links.to(place).receive(read_frame(envelope))
        self.settle()

    def wake(self) -> None:
        """Some time has passed."""
        self.timers.run_due()
        self.settle()

    def settle(self) -> None:
        """Write what is due."""
        if self.name:
            self.links.settle()

    def _take_request(self, envelope: Envelope) -> None:
        request = Request(self, envelope.src, read_body(envelope))
        try:
            if request.type == "init":
                self._begin(request)
            elif not self.name:
                raise RequestError(TEMPORARILY_UNAVAILABLE, "this node has not been told yet who it is; send init")
            elif request.type == FRAME:
                raise PeerError(f"{envelope.src} speaks like a node and is none of {', '.join(self._names)}")
            elif not self.service.handle(request):
                raise RequestError(NOT_SUPPORTED, f"this workload has no requests of type {request.type!r}")
        except RequestError as error:
            request.refuse(error)

    def _begin(self, request: Request) -> None:
        """Become one of the nodes of a system that all begin together."""
        name, names = request.field("node_id", str), request.field("node_ids", list)
        if name not in names or self.name:
            raise RequestError(
                MALFORMED_REQUEST, f"init names {name!r} among {names}, once; this node is {self.name!r}"
            )
        self.name, self._names = name, names
        self._places = {other: place for place, other in enumerate(names)}
        self.links = Links(
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
        assert isinstance(message, Message), "hosts of this kind exchange nothing but messages of processes"
        self.process.receive(peer, message)

    def _lost(self, peer: int) -> None:
        self.process.peer_lost(peer)

    def _found(self, peer: int) -> None:
        self.process.peer_found(peer)

    # What goes out.

    def say(self, destination: str, body: dict[str, Any]) -> None:
        """Say something to a client."""
        self._write(write_line(self.name, destination, body))

    def _write_frame(self, peer: int, frame: Frame) -> None:
        self._write(write_line(self.name, self._names[peer], frame))


def number_of_key(key: str) -> int:
    """The number by which processes know a key of a log."""
    return key_number(key.encode())
