"""The general way of a copy: output server, trace, loss, delay, duplication.

A node sends by a shorter way where the network is simple and nothing is traced per copy.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.kernel.message import Message
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.engine.connections import Connections
from antiphon.simulator.engine.events import Flight
from antiphon.simulator.engine.node import Node, NodeHost
from antiphon.trace.recorder import DROP, DROPPED_LOSS, DUPLICATE, SEND

NETWORK_STREAM: Final = 1
"""Which of the streams of random numbers of a run is that of the network."""


@final
class Transmission:
    """Sends copies: says when they leave, whether they are lost on their way, and when they arrive."""

    def __init__(self, host: NodeHost, connections: Connections) -> None:
        self._host: Final[NodeHost] = host
        self._connections: Final[Connections] = connections
        self._random: Final[RandomStream] = RandomStream(host.seed, NETWORK_STREAM)

    def transmit(self, node: Node, destination: i64, message: Message) -> None:
        """Send a copy to a node, perhaps twice, unless it is lost."""
        host = self._host
        network = host.network
        now = host.calendar.now
        departs = now
        if network.charge_control or not message.is_control():
            departs = max(now, node.free)
            host.charged += 1
            host.queue_ticks += departs - now
            departs += network.transmission
            node.free = departs
        else:
            departs += network.transmission
        host.sent += 1
        if host.traces_copies:
            host.record(SEND, node.identifier, destination, message, departs - now)
        if network.loss > 0.0 and self._random.chance(network.loss):
            host.dropped += 1
            host.record(DROP, destination, node.identifier, message, DROPPED_LOSS)
            return
        self._launch(node, destination, message, departs)
        if network.duplication > 0.0 and self._random.chance(network.duplication):
            host.record(DUPLICATE, destination, node.identifier, message, 0)
            self._launch(node, destination, message, departs)

    def _launch(self, node: Node, destination: i64, message: Message, departs: i64) -> None:
        network = self._host.network
        arrives = departs + network.delay.draw(node.identifier, destination, self._random)
        if network.reordering > 0.0 and self._random.chance(network.reordering):
            arrives += self._random.between(0, network.reordering_window)
        if network.in_order:
            departs = self._connections.departure(node.identifier, destination, departs)
            arrives = self._connections.arrival(node.identifier, destination, max(arrives, departs))
        what: object = message
        if self._host.can_fail:
            what = Flight(message, self._host.calendar.now, departs, arrives, node.life)
        self._host.calendar.schedule(arrives + network.processing, self._host.nodes[destination], node, what)
