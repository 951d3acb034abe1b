"""BRISA beside its rivals: the systems that section 4.3.5 of the thesis of M. Matos compares, and Plumtree.

The same growth and the same stream as in the other experiments on BRISA (:mod:`antiphon_lab.experiments.brisa.model`),
with another protocol at each node. Open points of the document, and how they are read here:

* **SimpleGossip**: views of Cyclon of 30, of which 8 change hands every second; a fanout of ``ln n`` rounded up;
  anti-entropy every 100 ms, which is twice the rate of messages, with one message in answer to each question.
* **SimpleTree** and **TAG**: the first node is the coordinator, and the source too.
* **TAG**: up to 8 children, a tree one level deeper than it need be, 4 peers, a question every 400 ms. Table 4.3 says
  that 500 messages take 200 s: one message for each question does that. A connection to a node of the list takes a
  round trip to open.
* **Plumtree** has the overlay, the beats and the stream of BRISA. The document argues about it and does not measure it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from antiphon.fabrics.gossip.messages import Data, FetchRequest, FetchResponse, GossipFrontierResponse
from antiphon.fabrics.gossip.options import BrisaOptions
from antiphon.fabrics.gossip.sampling.cyclon import CyclonOptions, Entries
from antiphon.fabrics.gossip.sampling.hyparview import HyParViewOptions
from antiphon.kernel.message import ProtocolMessage
from antiphon_lab.experiments.brisa.hops import HEADER_BYTES, NODE_BYTES, NUMBER_BYTES, size_of
from antiphon_lab.experiments.brisa.model import (
    CONTACTS,
    DRAIN_MS,
    GAP_MS,
    MODEL,
    SETTLING_MS,
    Counts,
    Growth,
    StreamCase,
)
from antiphon_lab.protocols.gossip.plumtree import PlumtreeOptions
from antiphon_lab.protocols.gossip.pulling import Pull
from antiphon_lab.protocols.gossip.simple_gossip import SimpleGossipOptions, usual_fanout
from antiphon_lab.protocols.gossip.simple_tree import SimpleTreeOptions
from antiphon_lab.protocols.gossip.tag import TagOptions, room_in_tree

BRISA, SIMPLE_GOSSIP, SIMPLE_TREE, TAG, PLUMTREE = "BRISA", "SimpleGossip", "SimpleTree", "TAG", "Plumtree"
SYSTEMS = (SIMPLE_GOSSIP, SIMPLE_TREE, TAG, BRISA, PLUMTREE)

VIEW = 4
PULL_MS = 400
PULLS_AT_MOST = 20
"""A pull protocol has so many periods for each message of the stream: on overloaded hosts a pull waits for its turn."""
ANTI_ENTROPY_MS = GAP_MS // 2
EXCHANGE_MS = 1000
CYCLON_VIEW, CYCLON_EXCHANGED = 30, 8
CAPACITY = 8
HANDSHAKES = 1
AGE_BYTES = 2
KEPT = 1024

RIVALS_MODEL: dict[str, object] = {
    **MODEL,
    "view": VIEW,
    "SimpleGossip": f"Cyclon, views of {CYCLON_VIEW}, {CYCLON_EXCHANGED} exchanged every {EXCHANGE_MS} ms; fanout ln n "
    f"rounded up; anti-entropy with one node every {ANTI_ENTROPY_MS} ms, 1 message for each question",
    "SimpleTree": "a random earlier node as parent",
    "TAG": f"{CAPACITY} children, a tree one level deeper than it need be, 4 peers, 1 message for each question, every "
    f"{PULL_MS} ms; {HANDSHAKES} round trip to open a connection on the way along the list",
    "Plumtree": "one tree for all, grafts after 500 ms",
    "source": "the first node where there is a coordinator, else a random one",
}


@dataclass(frozen=True)
class Rival(StreamCase):
    """One simulation of one of the systems; ``batch`` is the answer to each question, of TAG and of anti-entropy."""

    system: str = BRISA
    batch: int = 1

    def __str__(self) -> str:
        text = f"{self.system}, {self.nodes} nodes, {self.messages} messages"
        if self.batch != 1:
            text += f", {self.batch} for each question"
        return text if self.network == "cluster" else f"{text}, {self.network}"

    @property
    def has_coordinator(self) -> bool:
        """Whether the first node arranges all others."""
        return self.system in (SIMPLE_TREE, TAG)

    def options(self) -> BrisaOptions:
        """How all nodes behave."""
        contacts = range(min(CONTACTS, self.nodes))
        if self.system == SIMPLE_TREE:
            return SimpleTreeOptions(order="none", join_window=0)
        if self.system == TAG:
            deepest = 1 + next(depth for depth in range(1, 64) if room_in_tree(CAPACITY, depth) >= self.nodes)
            return TagOptions(
                order="none",
                batch=self.batch,
                capacity=CAPACITY,
                deepest=deepest,
                handshakes=HANDSHAKES,
                period=PULL_MS,
                keep=KEPT,
                buffer=4 * KEPT,
                join_window=0,
            )
        if self.system == SIMPLE_GOSSIP:
            cyclon = CyclonOptions(CYCLON_VIEW, CYCLON_EXCHANGED, EXCHANGE_MS // ANTI_ENTROPY_MS)
            fanout = usual_fanout(self.nodes)
            return SimpleGossipOptions(
                cyclon,
                fanout,
                self.batch,
                contacts,
                order="none",
                period=ANTI_ENTROPY_MS,
                keep=KEPT,
                join_window=0,
            )
        view = HyParViewOptions(self.active, expansion=self.expansion)
        if self.system == PLUMTREE:
            return PlumtreeOptions(view, contacts=contacts, order="none", join_window=0)
        return BrisaOptions(view, contacts, order="none", join_window=0)


def rival_size_of(message: ProtocolMessage) -> int:
    """Bytes of a message of any of the systems, without the payload of the publication in it."""
    if isinstance(message, Pull | GossipFrontierResponse):
        return HEADER_BYTES + NODE_BYTES + (NODE_BYTES + NUMBER_BYTES) * len(message.frontier)
    if isinstance(message, FetchRequest):
        return HEADER_BYTES + NODE_BYTES + NUMBER_BYTES * len(message.numbers)
    if isinstance(message, Entries):
        return HEADER_BYTES + NODE_BYTES + (NODE_BYTES + AGE_BYTES) * (len(message.entries) // 2)
    return size_of(message)


class Costs(Counts):
    """Arrivals from the beginning on; ``stabilising`` are those before the second message of the stream.

    The first message builds the tree of BRISA and of Plumtree, so it counts as stabilising.
    """

    def __init__(self, nodes: int) -> None:
        super().__init__(nodes)
        self.stabilising = [0] * nodes
        self.is_stable = False

    def note(self, sender: int, receiver: int, message: ProtocolMessage) -> None:
        size = rival_size_of(message)
        if not self.is_stable:
            self.stabilising[receiver] += size
            return
        if isinstance(message, Data | FetchResponse):
            self.copies_received[receiver] += 1
        self.bytes_received[receiver] += size


class RivalRun:
    """One system that grows, and a stream through it."""

    def __init__(self, case: Rival, growth: Growth) -> None:
        self.case = case
        self.growth = growth
        self.costs = Costs(case.nodes)
        self.growth.counts = self.costs
        if case.has_coordinator:
            self.growth.source = 0
        self.start = self.growth.grown_at + SETTLING_MS
        self.end = self.growth.publish_from(self.start)

    def run(self) -> None:
        """Run until all nodes had time to receive everything; pull protocols need longer."""
        engine = self.growth.engine
        self.growth.is_counting = True
        engine.run(self.start + self.case.gap_ms - 1)
        self.costs.is_stable = True
        engine.run(self.end + DRAIN_MS)
        last = self.end + DRAIN_MS + PULLS_AT_MOST * self.case.messages * PULL_MS
        while self.missing() > 0 and engine.calendar.now < last:
            if engine.run(engine.calendar.now + DRAIN_MS) == "finished":
                break

    def missing(self) -> int:
        """Deliveries that were due and did not happen."""
        return self.case.messages * self.case.nodes - sum(self.growth.receipts.count)

    def dissemination_ms(self) -> np.ndarray:
        """From the first to the last message, at each node."""
        receipts = self.growth.receipts
        return np.subtract(receipts.last, receipts.first)
