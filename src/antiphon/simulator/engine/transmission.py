"""The general path of a copy: output server, trace, loss, delay, duplication.

A node uses a shorter path where the network is simple and no trace of copies is kept.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.kernel.message import ProtocolMessage
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.engine.connections import ConnectionModel
from antiphon.simulator.engine.events import Flight
from antiphon.simulator.engine.node import EngineBase, SimulatedNode
from antiphon.trace.recorder import DROP, DROPPED_LOSS, DUPLICATE, SEND

NETWORK_STREAM: Final = 1
"""The number of the random stream of the network."""


@final
class Transmission:
    """Sends copies: decides when they leave, whether they are lost, and when they arrive."""

    def __init__(self, host: EngineBase, connections: ConnectionModel) -> None:
        self._host: Final[EngineBase] = host
        self._connections: Final[ConnectionModel] = connections
        self._random: Final[RandomStream] = RandomStream(host.seed, NETWORK_STREAM)

    def transmit(self, node: SimulatedNode, destination: i64, message: ProtocolMessage) -> None:
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

    def _launch(self, node: SimulatedNode, destination: i64, message: ProtocolMessage, departs: i64) -> None:
        network = self._host.network
        arrives = departs + network.delay.draw(node.identifier, destination, self._random)
        if network.reordering > 0.0 and self._random.chance(network.reordering):
            arrives += self._random.between(0, network.reordering_window)
        if network.in_order:
            departs = self._connections.departure(node.identifier, destination, departs)
            arrives = self._connections.arrival(node.identifier, destination, max(arrives, departs))
        what: object = message
        if self._host.can_fail:
            what = Flight(message, self._host.calendar.now, departs, arrives, node.incarnation)
        self._host.calendar.schedule(arrives + network.processing, self._host.nodes[destination], node, what)
