"""The network of the experiments on BRISA: delays of hops, and sizes of messages.

A hop takes a time that is drawn from a law (:data:`NETWORKS`). Sizes are those of packets on a connection, without the
payload of publications.
"""

from __future__ import annotations

from math import log

import numpy as np

from antiphon.fabrics.gossip.messages import Beat, Comparison, Data, FetchResponse, Report, TreePosition
from antiphon.fabrics.gossip.sampling.hyparview import Shuffle, ShuffleReply
from antiphon.fabrics.gossip.sampling.service import SamplingMessage
from antiphon.kernel.message import ProtocolMessage
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.network.delays import Delay, MatrixDelay, NormalDelay
from antiphon.simulator.network.network import NetworkModel

PLACES_STREAM = 12
"""The random stream for distances between places."""


HEADER_BYTES, NODE_BYTES, NUMBER_BYTES, DEPTH_BYTES = 40, 6, 8, 2
"""The sizes on a connection: the header of a packet, an address of 48 bits as in section 4.2.4, numbers, depths."""


CLUSTER, HEAVY, PLANETLAB = "cluster", "heavy tail", "PlanetLab"


NETWORKS = {
    CLUSTER: "normal, 10 ms with a standard deviation of 2 ms, drawn for each message",
    HEAVY: "exponential, 10 ms on average, drawn for each message",
    PLANETLAB: "half of a ping between two places, drawn once per pair from a law with percentiles 5, 50 and 95 of 15, "
    "125 and 366 ms (Figure 5.7 of the thesis); each message keeps the sender's line busy for 8 ms, as 1 KB "
    "does at 1 Mbit/s",
}
"""How long a hop takes."""


PING_SHARES = (0, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1)


PING_MS = (1, 15, 70, 125, 215, 366, 480, 800)
"""The published percentiles of pings, and between and beyond them others that give the published mean too."""


HEAVY_MEAN_MS, HEAVY_STEPS = 10, 1024


PLANETLAB_TRANSMISSION_MS = 8


class HeavyDelay(Delay):
    """Exponential, in steps of equal probability."""

    def __init__(self, mean: float) -> None:
        shares = [(step + 0.5) / HEAVY_STEPS for step in range(HEAVY_STEPS)]
        self._ticks = [max(1, round(-mean * log(1 - share))) for share in shares]

    def draw(self, sender: int, receiver: int, random: RandomStream) -> int:
        return self._ticks[random.below(HEAVY_STEPS)]


def ping_ms(share: float) -> float:
    """The ping below which so large a share of all pings is."""
    return float(np.interp(share, PING_SHARES, PING_MS))


def places(nodes: int, seed: int) -> MatrixDelay:
    """A delay for each pair of nodes, the same in both directions."""
    random = RandomStream(seed, PLACES_STREAM)
    rows = [[0] * nodes for _ in range(nodes)]
    for one in range(nodes):
        for other in range(one):
            rows[one][other] = rows[other][one] = max(1, round(ping_ms(random.uniform()) / 2))
    return MatrixDelay(rows)


def network_of(kind: str, nodes: int, seed: int) -> NetworkModel:
    """A network in which copies between two nodes do not overtake each other, as on a connection."""
    if kind == PLANETLAB:
        return NetworkModel(places(nodes, seed), PLANETLAB_TRANSMISSION_MS, processing=0, in_order=True)
    law: Delay = NormalDelay(10, 2) if kind == CLUSTER else HeavyDelay(HEAVY_MEAN_MS)
    return NetworkModel(law, transmission=0, processing=0, in_order=True)


def position_bytes(position: TreePosition) -> int:
    """A path, or a depth."""
    return NODE_BYTES * len(position.path) if len(position.path) > 0 else DEPTH_BYTES


def report_bytes(report: Report) -> int:
    """Pairs of node and number, names of structures and places in them, and three properties of the node."""
    pairs = (len(report.numbers) + len(report.pulses)) // 2 * (NODE_BYTES + NUMBER_BYTES)
    places = sum(NODE_BYTES + 1 + position_bytes(position) for position in report.positions)
    return pairs + places + 3 * NUMBER_BYTES


def size_of(message: ProtocolMessage) -> int:
    """Bytes of a message without the payload of the publication in it."""
    size = HEADER_BYTES + NODE_BYTES
    if isinstance(message, Data):
        return size + 2 * NUMBER_BYTES + 1 + position_bytes(message.position)
    if isinstance(message, FetchResponse):
        return size + 2 * NUMBER_BYTES
    if isinstance(message, Beat):
        return size + 3 * NUMBER_BYTES + report_bytes(message.report)
    if isinstance(message, Comparison):
        return size + report_bytes(message.report)
    if isinstance(message, Shuffle | ShuffleReply):
        return size + 1 + NODE_BYTES * len(message.nodes)
    # Other messages name a node or a structure, and one number at most.
    return size + (1 if isinstance(message, SamplingMessage) else NUMBER_BYTES)
